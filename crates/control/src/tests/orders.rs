//! What operators want done.

use super::super::orders::{ANSWER_TIMEOUT, AskError};
use super::super::orders::{OperationError, Operations, Order, OrderOutcome};
use super::*;
use api::ReloadReport;

/// Operations of a gateway whose data path refuses everything.
pub(super) struct NoOperations;

impl Operations for NoOperations {
    fn reload(&self, check_only: bool) -> Result<ReloadReport, AskError> {
        let needs_restart = vec!["node.id: 0 before, 1 now".to_owned()];
        Ok(ReloadReport { check_only, needs_restart, ..ReloadReport::default() })
    }

    fn drain(&self, is_forced: bool) -> Result<(), OperationError> {
        if is_forced { Ok(()) } else { Err(OperationError::Refused("there is no peer".to_owned())) }
    }

    fn undrain(&self) -> Result<(), OperationError> {
        Err(AskError::Busy.into())
    }
}

#[test]
fn operations_are_answered_by_what_became_of_them() {
    let (directory, answering) = (Directory::new(), Answering::start(node(0)));
    let operations = Arc::new(NoOperations);
    let server = ControlServer::start(&directory.socket(), answering.sender.clone(), Arc::new(describer()), operations);
    let _server = server.expect("it listens");
    let mut client = Client::connect(&directory.socket()).expect("it listens");
    let report = client.reload(true).expect("a report");
    assert!(report.check_only && !report.is_possible(), "{report:?}");
    client.drain(true).expect("it is forced");
    let refusal = |result: Result<(), ClientError>| match result {
        Err(ClientError::Refused { kind, message }) => (kind, message),
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(client.drain(false)), (ErrorKind::Refused, "there is no peer".to_owned()));
    assert_eq!(refusal(client.undrain()).0, ErrorKind::Busy);
}

/// Counts the orders that it obeys.
struct Obedient(u32);

impl ControlHandler for Obedient {
    fn status(&mut self) -> Status {
        Status::default()
    }

    fn flows(&mut self, query: &FlowsQuery) -> FlowsPage {
        query.page_of(NOW, |_| None)
    }

    fn counters(&mut self) -> Samples {
        Samples::default()
    }

    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn obey(&mut self, _order: Order) -> OrderOutcome {
        self.0 += 1;
        Ok(true)
    }
}

#[test]
fn an_order_that_was_given_up_is_not_obeyed_later() {
    let (sender, receiver) = channel(Arc::new(|| ()));
    let mut handler = Obedient(0);
    let begun = std::time::Instant::now();
    assert_eq!(sender.order(Order::Undrain), Err(AskError::TimedOut));
    assert!(begun.elapsed() >= ANSWER_TIMEOUT);
    assert!(receiver.answer_one(&mut handler), "it waited");
    assert_eq!(handler.0, 0);
    let ordering = thread::spawn(move || sender.order(Order::Undrain));
    while !receiver.answer_one(&mut handler) {
        thread::yield_now();
    }
    assert_eq!(ordering.join().expect("it does not panic"), Ok(Ok(true)));
    assert_eq!(handler.0, 1);
}
