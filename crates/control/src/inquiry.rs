//! The channel between the threads that serve operators and the thread that moves packets.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};

use super::flows::{FlowsPage, FlowsQuery};
use super::merge;
use super::orders::{ANSWER_TIMEOUT, Order, OrderClaim, OrderOutcome};
pub use super::orders::{AskError, INQUIRIES_WAITING_MAX};
use super::watching::WatchOrder;
use api::metrics::Samples;
use api::{Event, Status, UrlLookup};

/// What the data path's thread answers. Each call must be short: packets wait meanwhile.
pub trait ControlHandler {
    /// How the node is.
    fn status(&mut self) -> Status;
    /// A part of the connections: [`FlowsQuery::page`] does the work.
    fn flows(&mut self, query: &FlowsQuery) -> FlowsPage;
    /// All counters and gauges.
    fn counters(&mut self) -> Samples;
    /// The events remembered, oldest first.
    fn events(&mut self) -> Vec<Event>;
    /// Does what an operator wants.
    fn obey(&mut self, order: Order) -> OrderOutcome {
        drop(order);
        Err("this gateway takes no orders".to_owned())
    }
    /// Begins to look at something.
    ///
    /// # Errors
    /// A sentence with the reason.
    fn watch(&mut self, order: WatchOrder) -> Result<(), String> {
        drop(order);
        Err("this gateway cannot be looked into".to_owned())
    }
    /// What the URL filter decides about a host, with a path or without.
    ///
    /// # Errors
    /// A sentence with the reason.
    fn url(&mut self, target: &str) -> Result<UrlLookup, String> {
        let _ = target;
        Err("there is no URL filter here: ask a gateway with [[url_filter.rule]]".to_owned())
    }
    /// Names of the functions in the chain.
    fn functions(&mut self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// A question, with the way back for its answer: what is asked decides what is answered.
enum Inquiry {
    Status(SyncSender<Status>),
    Flows(FlowsQuery, SyncSender<FlowsPage>),
    Counters(SyncSender<Samples>),
    Events(SyncSender<Vec<Event>>),
    Order(Order, OrderClaim, SyncSender<OrderOutcome>),
    Watch(WatchOrder, SyncSender<Result<(), String>>),
    Functions(SyncSender<Vec<&'static str>>),
    Url(String, SyncSender<Result<UrlLookup, String>>),
}

/// Makes the data path's thread look at its [`ControlReceiver`].
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The askers' end. A gateway with several workers has a lane to each; the lead's is the first.
#[derive(Clone)]
pub struct ControlSender {
    lanes: Vec<Lane>,
}

/// The way to one worker.
#[derive(Clone)]
struct Lane {
    inquiries: SyncSender<Inquiry>,
    wake: Wake,
}

/// The data path's end.
pub struct ControlReceiver {
    inquiries: Receiver<Inquiry>,
}

/// A channel. `wake` is called after every question, from the asker's thread.
#[must_use]
pub fn channel(wake: Wake) -> (ControlSender, ControlReceiver) {
    let (sender, inquiries) = sync_channel(INQUIRIES_WAITING_MAX);
    (ControlSender { lanes: vec![Lane { inquiries: sender, wake }] }, ControlReceiver { inquiries })
}

impl ControlSender {
    /// One end for all workers of a gateway, of which the first leads.
    #[must_use]
    pub fn of_workers(workers: Vec<Self>) -> Self {
        Self { lanes: workers.into_iter().flat_map(|worker| worker.lanes).collect() }
    }

    /// How many workers there are to be asked.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.lanes.len()
    }

    /// Asks how the node is.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn status(&self) -> Result<Status, AskError> {
        Ok(merge::status(self.ask_each(|| Inquiry::Status)?))
    }

    /// Asks a worker, by its number, for a part of its connections.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn flows(&self, worker: usize, query: FlowsQuery) -> Result<FlowsPage, AskError> {
        let lane = self.lanes.get(worker).ok_or(AskError::Stopping)?;
        lane.ask(|answer| Inquiry::Flows(query, answer))
    }

    /// Asks for all counters.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn counters(&self) -> Result<Samples, AskError> {
        Ok(merge::samples(self.ask_each(|| Inquiry::Counters)?))
    }

    /// Asks what happened lately.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn events(&self) -> Result<Vec<Event>, AskError> {
        self.ask(Inquiry::Events)
    }

    /// Has the lead do something that it does for all.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn order(&self, order: Order) -> Result<OrderOutcome, AskError> {
        self.order_of(0, order)
    }

    /// Has a worker, by its number, do something. An order that is not answered in time is taken back: it is then never
    /// obeyed.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn order_of(&self, worker: usize, order: Order) -> Result<OrderOutcome, AskError> {
        self.lanes.get(worker).ok_or(AskError::Stopping)?.order(order)
    }

    /// Has a worker, by its number, begin to look at something. The inner error is the worker's reason for a refusal.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn watch(&self, worker: usize, order: WatchOrder) -> Result<Result<(), String>, AskError> {
        self.lanes.get(worker).ok_or(AskError::Stopping)?.ask(|answer| Inquiry::Watch(order, answer))
    }

    /// Asks what the URL filter decides about a host. The inner error is the gateway's reason for having no answer.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn url(&self, target: &str) -> Result<Result<UrlLookup, String>, AskError> {
        self.ask(|answer| Inquiry::Url(target.to_owned(), answer))
    }

    /// Asks for the names of the functions in the chain.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn functions(&self) -> Result<Vec<&'static str>, AskError> {
        self.ask(Inquiry::Functions)
    }

    /// Asks the lead what it alone knows.
    fn ask<T>(&self, inquiry: impl FnOnce(SyncSender<T>) -> Inquiry) -> Result<T, AskError> {
        self.lanes.first().ok_or(AskError::Stopping)?.ask(inquiry)
    }

    /// Asks one worker after the other.
    fn ask_each<T, F: FnOnce(SyncSender<T>) -> Inquiry>(&self, inquiry: impl Fn() -> F) -> Result<Vec<T>, AskError> {
        self.lanes.iter().map(|lane| lane.ask(inquiry())).collect()
    }
}

impl Lane {
    fn ask<T>(&self, inquiry: impl FnOnce(SyncSender<T>) -> Inquiry) -> Result<T, AskError> {
        // Room for the one answer, so that the data path never waits for an asker that has given up.
        let (answer, answered) = sync_channel(1);
        self.send(inquiry(answer))?;
        answered.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => AskError::TimedOut,
            RecvTimeoutError::Disconnected => AskError::Stopping,
        })
    }

    fn order(&self, order: Order) -> Result<OrderOutcome, AskError> {
        let (answer, answered) = sync_channel(1);
        let claim = OrderClaim::default();
        self.send(Inquiry::Order(order, claim.clone(), answer))?;
        let stopped = |_| AskError::Stopping;
        match answered.recv_timeout(ANSWER_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) if claim.take() => Err(AskError::TimedOut),
            // It is being obeyed at this moment.
            Err(RecvTimeoutError::Timeout) => answered.recv().map_err(stopped),
            Err(RecvTimeoutError::Disconnected) => Err(AskError::Stopping),
            Ok(outcome) => Ok(outcome),
        }
    }

    fn send(&self, inquiry: Inquiry) -> Result<(), AskError> {
        self.inquiries.try_send(inquiry).map_err(|error| match error {
            TrySendError::Full(_) => AskError::Busy,
            TrySendError::Disconnected(_) => AskError::Stopping,
        })?;
        (self.wake)();
        Ok(())
    }
}

impl ControlReceiver {
    /// Answers the question that has waited longest. Never blocks; call between batches, once each, so that packets
    /// never wait for more than one answer.
    ///
    /// Returns whether there was a question; then there may be another.
    pub fn answer_one(&self, handler: &mut dyn ControlHandler) -> bool {
        let inquiry = match self.inquiries.try_recv() {
            Ok(inquiry) => inquiry,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return false,
        };
        // An asker that is gone by now does not want the answer any more.
        match inquiry {
            Inquiry::Status(answer) => drop(answer.try_send(handler.status())),
            Inquiry::Flows(query, answer) => drop(answer.try_send(handler.flows(&query))),
            Inquiry::Counters(answer) => drop(answer.try_send(handler.counters())),
            Inquiry::Events(answer) => drop(answer.try_send(handler.events())),
            Inquiry::Order(order, claim, answer) if claim.take() => drop(answer.try_send(handler.obey(order))),
            Inquiry::Order(..) => {}
            Inquiry::Watch(order, answer) => drop(answer.try_send(handler.watch(order))),
            Inquiry::Url(target, answer) => drop(answer.try_send(handler.url(&target))),
            Inquiry::Functions(answer) => drop(answer.try_send(handler.functions())),
        }
        true
    }
}
