//! Answers that go on: traces, captures, connections that are followed.

use std::sync::mpsc::SyncSender as Sink;

use cluster::observation::{
    Arrival, CapturedFrame, ConnectionChange, ConnectionEvent, Outcome, PacketTrace, Sight, Step, Subject,
};
use flow::{DropReason, PortId};

use super::super::streams::from_hexadecimal;
use super::super::watching::{WatchOrder, Witnessed};
use super::*;
use api::{PacketFilterText, Query};
use api::{TracedOutcome, TracedPacket, TracedStep};

/// A data path whose packets are those that the test sends.
struct Watched {
    orders: Sink<WatchOrder>,
    refuses: bool,
}

impl ControlHandler for Watched {
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

    fn watch(&mut self, order: WatchOrder) -> Result<(), String> {
        if self.refuses {
            return Err("8 run already: end one".to_owned());
        }
        self.orders.send(order).map_err(|_| "the test is over".to_owned())
    }

    fn functions(&mut self) -> Vec<&'static str> {
        vec!["firewall", "nat"]
    }
}

/// As many workers, what they are asked to look at, and a server before them.
struct Gateway {
    orders: Vec<std::sync::mpsc::Receiver<WatchOrder>>,
    _answering: Vec<Answering>,
    _server: ControlServer,
    directory: Directory,
}

impl Gateway {
    fn start(workers: usize, refuses: bool) -> Self {
        let directory = Directory::new();
        let (mut answering, mut orders) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (sink, received) = sync_channel(4);
            answering.push(Answering::start_with(Watched { orders: sink, refuses }));
            orders.push(received);
        }
        let senders = answering.iter().map(|answering: &Answering| answering.sender.clone()).collect();
        let sender = ControlSender::of_workers(senders);
        let server =
            ControlServer::start(&directory.socket(), sender, Arc::new(describer()), Arc::new(NoOperations)).unwrap();
        Self { orders, _answering: answering, _server: server, directory }
    }

    fn order(&self, worker: usize) -> WatchOrder {
        self.orders[worker].recv_timeout(Duration::from_secs(10)).expect("the worker is asked")
    }

    /// Asks in another thread; the lines come when the answer has ended.
    fn ask(&self, query: Query) -> JoinHandle<Result<Vec<Line>, ClientError>> {
        let socket = self.directory.socket();
        thread::spawn(move || {
            let mut lines = Vec::new();
            Client::connect(&socket)?.stream(query, 30.0, |line| lines.push(line))?;
            Ok(lines)
        })
    }
}

fn trace(at_ms: u64) -> Sight {
    Sight::Packet(Box::new(PacketTrace {
        at: Instant::from_millis(at_ms),
        ingress: PortId(1),
        frame_bytes: 60,
        arrival: Arrival::Arp,
        steps: vec![Step::Unknown],
        outcome: Outcome::Dropped(DropReason::NoRoute),
    }))
}

fn send(order: &WatchOrder, missed: u64, sight: Sight) {
    order.sink.send(Witnessed { missed, sight }).expect("somebody looks");
}

/// Waits until the client looks no more.
fn wait_until_unattended(order: &WatchOrder) {
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while order.alive.strong_count() > 0 {
        assert!(std::time::Instant::now() < until, "somebody still looks");
        thread::sleep(Duration::from_millis(1));
    }
}

fn tracing(count: u64, seconds: f64) -> Query {
    Query::Trace { filter: PacketFilterText::default(), count, seconds }
}

#[test]
fn a_trace_is_sent_line_by_line_until_its_count_is_reached() {
    let gateway = Gateway::start(1, false);
    let answer = gateway.ask(tracing(2, 30.0));
    let order = gateway.order(0);
    assert!(matches!(order.subject, Subject::Packets(_)) && order.sights_max == 2);
    send(&order, 0, trace(1));
    send(&order, 5, trace(2));
    let lines = answer.join().unwrap().unwrap();
    let [Line::Trace(first), Line::Missed { worker: 0, count: 5 }, Line::Trace(second)] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert_eq!((first.monotonic_ns, second.monotonic_ns), (1_000_000, 2_000_000));
    assert_eq!((first.ingress.as_str(), &first.packet), ("outside", &TracedPacket::Arp));
    assert_eq!(first.steps, [TracedStep::Unknown]);
    assert_eq!(first.outcome, TracedOutcome::Dropped { reason: "no_route".into() });
    wait_until_unattended(&order);
}

#[test]
fn what_several_workers_see_is_sent_in_the_order_of_time() {
    let gateway = Gateway::start(2, false);
    let answer = gateway.ask(tracing(4, 30.0));
    let orders = [gateway.order(0), gateway.order(1)];
    let now = packet_io::clock::now().as_nanos() / 1_000_000;
    // All of them are to come within the time that is waited for the others.
    for (worker, at_ms) in [(0, 1), (0, 4), (1, 2), (1, 3)] {
        send(&orders[worker], 0, trace(now + 200 + at_ms));
    }
    let lines = answer.join().unwrap().unwrap();
    let order: Vec<_> = lines
        .iter()
        .map(|line| if let Line::Trace(trace) = line { (trace.worker, trace.monotonic_ns) } else { panic!("{line:?}") })
        .collect();
    assert!(order.is_sorted_by_key(|(_, at)| *at), "{order:?}");
    assert_eq!(order.iter().map(|(worker, _)| *worker).collect::<Vec<_>>(), [0, 1, 1, 0]);
}

#[test]
fn an_answer_ends_when_its_time_is_over() {
    let gateway = Gateway::start(1, false);
    let answer = gateway.ask(tracing(2, 0.2));
    let order = gateway.order(0);
    assert_eq!(answer.join().unwrap().unwrap(), []);
    assert!(order.alive.strong_count() == 0, "nobody looks any more");
}

#[test]
fn a_client_that_goes_ends_its_watch_and_one_that_asks_on_is_answered() {
    let gateway = Gateway::start(1, false);
    let mut stream = UnixStream::connect(gateway.directory.socket()).expect("it listens");
    stream.write_all(b"{\"version\":1,\"query\":\"trace\",\"count\":10,\"seconds\":600}\n").unwrap();
    let first = gateway.order(0);
    stream.write_all(b"{\"version\":1,\"query\":\"trace\",\"count\":10,\"seconds\":600}\n").unwrap();
    let second = gateway.order(0);
    assert!(first.alive.strong_count() == 0, "the second question ends the first answer");
    let end = lines(&stream).next().expect("the first answer ends in good order");
    assert!(matches!(end, Line::End { lines: 0, truncated: false, .. }), "{end:?}");
    drop(stream);
    wait_until_unattended(&second);
}

#[test]
fn frames_come_with_their_bytes_and_drop_reasons() {
    let gateway = Gateway::start(1, false);
    let (filter, snapshot_bytes) = (PacketFilterText::default(), 100);
    let answer = gateway.ask(Query::Capture { at: "drop".into(), filter, count: 1, seconds: 30.0, snapshot_bytes });
    let order = gateway.order(0);
    assert!(matches!(order.subject, Subject::Frames { snapshot_bytes: 100, .. }));
    let bytes: Vec<u8> = (0..=255).collect();
    send(
        &order,
        0,
        Sight::Frame(CapturedFrame {
            at: Instant::from_millis(7),
            port: PortId(0),
            length_bytes: 1500,
            bytes: bytes.clone(),
            dropped: Some(DropReason::NoRoute),
        }),
    );
    let lines = answer.join().unwrap().unwrap();
    let [Line::Frame(frame)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((frame.port.as_str(), frame.length_bytes, frame.dropped.as_deref()), ("inside", 1500, Some("no_route")));
    assert_eq!(from_hexadecimal(&frame.bytes), Some(bytes));
    assert!(frame.unix_ns > 1_700_000_000_000_000_000, "the time of day, as captures have it");
    assert_eq!(from_hexadecimal("0g"), None);
    assert_eq!(from_hexadecimal("012"), None);
}

#[test]
fn connection_events_are_sent_with_their_connection() {
    let gateway = Gateway::start(1, false);
    let filter = FlowFilterText { protocol: Some("tcp".into()), ..FlowFilterText::default() };
    let answer = gateway.ask(Query::Follow { filter, count: 1, seconds: 30.0 });
    let order = gateway.order(0);
    assert!(matches!(&order.subject, Subject::Connections(filter) if filter.protocol == Some(6)));
    let event = ConnectionEvent {
        at: NOW,
        change: ConnectionChange::TakenOver,
        connection: connection(2),
        entered_at: ENTERED_AT,
    };
    send(&order, 0, Sight::Connection(Box::new(event)));
    let lines = answer.join().unwrap().unwrap();
    let [Line::FlowEvent(event)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((event.change.as_str(), event.flow.original.source.as_str()), ("taken_over", "10.0.0.2:1026"));
    assert!((event.flow.age_s - 1.5).abs() < 1e-9);
}

#[test]
fn what_cannot_be_looked_at_is_refused_with_what_can() {
    let refused = |gateway: &Gateway, query: Query| match gateway.ask(query).join().unwrap() {
        Err(ClientError::Refused { kind, message }) => (kind, message),
        other => panic!("{other:?}"),
    };
    let gateway = Gateway::start(1, false);
    let filtered = |filter| Query::Trace { filter, count: 1, seconds: 1.0 };
    let cases = [
        (PacketFilterText { dropped: Some("bad".into()), ..PacketFilterText::default() }, "no_route"),
        (PacketFilterText { ingress: Some("eth9".into()), ..PacketFilterText::default() }, "inside, outside"),
        (PacketFilterText { source: Some("ten".into()), ..PacketFilterText::default() }, "source: "),
        (PacketFilterText { protocol: Some("tpc".into()), ..PacketFilterText::default() }, "write tcp"),
    ];
    for (filter, remedy) in cases {
        let (kind, message) = refused(&gateway, filtered(filter));
        assert!(kind == ErrorKind::Malformed && message.contains(remedy), "{message}");
    }
    let (filter, snapshot_bytes) = (PacketFilterText::default(), 1);
    let capture = Query::Capture { at: "after:proxy".into(), filter, count: 1, seconds: 1.0, snapshot_bytes };
    assert!(refused(&gateway, capture).1.contains("firewall, nat"));
    let filter = FlowFilterText { state: Some("ESTABLISHED".into()), ..FlowFilterText::default() };
    assert!(refused(&gateway, Query::Follow { filter, count: 1, seconds: 1.0 }).1.contains("leave them out"));
    assert_eq!(refused(&gateway, tracing(0, 1.0)).0, ErrorKind::Malformed);

    let busy = Gateway::start(1, true);
    assert_eq!(refused(&busy, tracing(1, 1.0)), (ErrorKind::Refused, "8 run already: end one".to_owned()));
}
