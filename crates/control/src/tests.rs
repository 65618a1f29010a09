//! Clients, limits and answers of the control socket.

mod orders;
mod remote;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flow::conntrack::ProtocolState;
use flow::table::Slot;
use flow::{Connection, Instant, NodeId, Tuple};

use super::answer::CLIENTS_MAX;
use super::client::{Client, ClientError};
use super::events::EVENTS_MAX;
use super::flows::{FLOWS_EXAMINED_PER_PAGE_MAX, FlowDescriber, FlowFilter, FlowsPage, FlowsQuery, Listed};
use super::server::{ControlServer, REQUEST_BYTES_MAX, ServerError};
use super::{ControlHandler, ControlSender, EventLog, channel};
use api::metrics::{Metric, Samples};
use api::{ErrorKind, Event, EventKind, Flow, FlowFilterText, Line, Status, UrlLookup};
use orders::NoOperations;

const NOW: Instant = Instant::from_millis(5_000);
/// When each connection was entered.
const ENTERED_AT: Instant = Instant::from_millis(3_500);

/// A data path that has nothing to do but answer.
struct FakeNode {
    connections: BTreeMap<u32, Connection>,
    events: EventLog,
}

impl ControlHandler for FakeNode {
    fn status(&mut self) -> Status {
        let mut status = Status { uptime_s: 5.0, ..Status::default() };
        "left".clone_into(&mut status.node.name);
        status.connections.count = self.connections.len() as u64;
        status
    }

    fn flows(&mut self, query: &FlowsQuery) -> FlowsPage {
        query.page_of(NOW, |from| {
            self.connections.range(from.0..).next().map(|(slot, found)| (Slot(*slot), found, ENTERED_AT))
        })
    }

    fn counters(&mut self) -> Samples {
        let mut samples = Samples::default();
        samples.add_count(Metric::Takeovers, &[], 3);
        samples
    }

    fn events(&mut self) -> Vec<Event> {
        self.events.to_vec()
    }

    fn url(&mut self, target: &str) -> Result<UrlLookup, String> {
        match target {
            "ads.example" => {
                Ok(UrlLookup { target: target.to_owned(), listed: vec!["ads".to_owned()], verdicts: vec![] })
            }
            _ => Err("it begins with no host name".to_owned()),
        }
    }
}

/// A fake node's thread and the sender that reaches it.
struct Answering {
    sender: ControlSender,
    wake: SyncSender<()>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    fn start(node: FakeNode) -> Self {
        Self::start_with(node)
    }

    fn start_with(mut node: impl ControlHandler + Send + 'static) -> Self {
        let (wake, woken) = sync_channel(1);
        let waker = wake.clone();
        let (sender, receiver) = channel(Arc::new(move || {
            // Full means that the node is awake already.
            let _ = waker.try_send(());
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while woken.recv().is_ok() && !stopping.load(Ordering::Acquire) {
                while receiver.answer_one(&mut node) {}
            }
        });
        Self { sender, wake, stop, thread: Some(thread) }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.wake.try_send(());
        let ended = self.thread.take().expect("it is taken here only").join();
        assert!(ended.is_ok() || thread::panicking(), "the fake node panicked");
    }
}

/// A directory of its own for each test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mainstay-control-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("the name is its own");
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn describer() -> FlowDescriber {
    FlowDescriber {
        node: NodeId(0),
        port_names: vec!["inside".to_owned(), "outside".to_owned()],
        own_addresses: Vec::new(),
        state_name: |_, state| if state.state == 3 { "ESTABLISHED" } else { "SYN_SENT" },
    }
}

fn mapped(address: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

/// The `number`th connection: from 10.0.x.y:1024+ to 198.51.100.1:443, seen outside as 192.0.2.10, every third a
/// backup, every second established.
fn connection(number: u32) -> Connection {
    let [.., high, low] = number.to_be_bytes();
    let original = Tuple {
        source: mapped([10, 0, high, low]),
        destination: mapped([198, 51, 100, 1]),
        source_port: 1024 + u16::try_from(number).expect("tests use few"),
        destination_port: 443,
        protocol: 6,
        version: 4,
        discriminator: 0,
    };
    let protocol = ProtocolState { state: if number.is_multiple_of(2) { 3 } else { 1 }, ..ProtocolState::default() };
    let owner = NodeId(u8::from(number.is_multiple_of(3)));
    let mut connection = Connection::new(original, owner, protocol, Instant::from_millis(6_500));
    connection.reply.destination = mapped([192, 0, 2, 10]);
    connection.egress = [2, 1];
    connection
}

fn node(connections: u32) -> FakeNode {
    // Slots with holes between them.
    let connections = (0..connections).map(|number| (number * 3, connection(number))).collect();
    FakeNode { connections, events: EventLog::default() }
}

fn serve(directory: &Directory, node: FakeNode) -> (Answering, ControlServer) {
    let answering = Answering::start(node);
    let server = ControlServer::start(
        &directory.socket(),
        answering.sender.clone(),
        Arc::new(describer()),
        Arc::new(NoOperations),
    );
    (answering, server.expect("nobody else is there"))
}

fn lines(stream: &UnixStream) -> impl Iterator<Item = Line> + use<> {
    let reader = BufReader::new(stream.try_clone().expect("descriptors are left"));
    reader.lines().map(|line| serde_json::from_str(&line.expect("a line")).expect("one of ours"))
}

fn error_kind(line: Option<Line>) -> ErrorKind {
    match line {
        Some(Line::Error { error, .. }) => error,
        other => panic!("an error was expected, not {other:?}"),
    }
}

fn collect(client: &mut Client, filter: FlowFilterText, limit: u64) -> (Vec<Flow>, bool) {
    let mut flows = Vec::new();
    let truncated = client.flows(filter, limit, |flow| flows.push(flow)).expect("the node answers");
    (flows, truncated)
}

#[test]
fn an_operator_sees_the_node_its_counters_and_its_events() {
    let directory = Directory::new();
    let mut node = node(7);
    node.events.push(NOW, EventKind::BecameActive, "node 1 is down");
    let (_answering, _server) = serve(&directory, node);
    let mut client = Client::connect(&directory.socket()).expect("it listens");

    let status = client.status().expect("the node answers");
    assert_eq!((status.node.name.as_str(), status.connections.count), ("left", 7));
    let counters = client.counters().expect("the node answers");
    assert_eq!((counters[0].name.as_str(), counters[0].value), ("mainstay_takeovers_total", 3.0));
    let events = client.events().expect("the node answers");
    assert_eq!((events[0].kind, events[0].monotonic_ns), (EventKind::BecameActive, 5_000_000_000));
}

#[test]
fn an_operator_sees_what_the_url_filter_decides_about_a_host_or_the_reason_without_an_answer() {
    let directory = Directory::new();
    let (_answering, _server) = serve(&directory, node(1));
    let mut client = Client::connect(&directory.socket()).expect("it listens");
    let found = client.url("ads.example").expect("the node answers");
    assert_eq!((found.target.as_str(), found.listed), ("ads.example", vec!["ads".to_owned()]));
    let refused = client.url("?").expect_err("there is no host").to_string();
    assert!(refused.contains("no host name"), "{refused}");
}

#[test]
fn every_flow_of_many_pages_comes_exactly_once() {
    let count = u32::try_from(FLOWS_EXAMINED_PER_PAGE_MAX).expect("it is small") * 3 + 17;
    let directory = Directory::new();
    let (_answering, _server) = serve(&directory, node(count));
    let mut client = Client::connect(&directory.socket()).expect("it listens");

    let (flows, truncated) = collect(&mut client, FlowFilterText::default(), u64::MAX);
    let sources: BTreeSet<_> = flows.iter().map(|flow| flow.original.source.clone()).collect();
    assert_eq!((flows.len(), sources.len(), truncated), (count as usize, count as usize, false));

    let (flows, truncated) = collect(&mut client, FlowFilterText::default(), 300);
    assert_eq!((flows.len(), truncated), (300, true));
    let (flows, truncated) = collect(&mut client, FlowFilterText::default(), count.into());
    assert_eq!((flows.len(), truncated), (count as usize, false));
}

#[test]
fn a_flow_is_described_with_its_translation() {
    let flow = describer()
        .describe(&Listed { connection: connection(2), entered_at: ENTERED_AT, class: None, path: None }, NOW);
    assert!((flow.age_s - 1.5).abs() < 1e-9);
    assert_eq!((flow.protocol.as_str(), flow.state.as_str(), flow.role.as_str()), ("tcp", "ESTABLISHED", "master"));
    assert_eq!(
        (flow.original.source.as_str(), flow.original.destination.as_str()),
        ("10.0.0.2:1026", "198.51.100.1:443")
    );
    let translated = flow.translated.expect("its source is translated");
    assert_eq!((translated.source.as_str(), translated.destination.as_str()), ("192.0.2.10:1026", "198.51.100.1:443"));
    assert_eq!((flow.egress.as_deref(), flow.expires_s), (Some("outside"), 1.5));
}

#[test]
fn filters_choose_flows() {
    let text = |key: &str, value: &str| -> FlowFilterText {
        serde_json::from_value(serde_json::json!({ key: value })).expect("keys are right")
    };
    let port = |port| FlowFilterText { port: Some(port), ..FlowFilterText::default() };
    let cases = [
        (FlowFilterText::default(), 60),
        (text("protocol", "TCP"), 60),
        (text("protocol", "17"), 0),
        (text("state", "established"), 30),
        (text("role", "backup"), 20),
        (text("source", "10.0.0.0/27"), 32),
        (text("source", "192.0.2.10"), 60),
        (text("destination", "10.0.0.0/8"), 0),
        (text("destination", "198.51.100.0/24"), 60),
        (port(443), 60),
        (port(1030), 1),
    ];
    for (text, expected) in cases {
        let filter = FlowFilter::parse(&text).expect("it can be read");
        let found = (0..60).filter(|number| filter.matches(&connection(*number), &describer())).count();
        assert_eq!(found, expected, "for {text:?}");
    }
    for (key, value) in [("protocol", "tpc"), ("source", "10.0.0.0/40"), ("role", "boss"), ("state", "FOO")] {
        let error = FlowFilter::parse(&text(key, value)).expect_err("it cannot be read");
        assert!(error.starts_with(key), "{error}");
        assert!(key != "state" || error.contains("write one of SYN_SENT, SYN_RECV, ESTABLISHED"), "{error}");
    }
}

#[test]
fn requests_that_cannot_be_answered_are_refused_and_the_client_may_go_on() {
    let directory = Directory::new();
    let (_answering, _server) = serve(&directory, node(1));
    let mut stream = UnixStream::connect(directory.socket()).expect("it listens");
    let mut answers = lines(&stream);
    let cases: [(&[u8], ErrorKind); 7] = [
        (b"what?\n", ErrorKind::Malformed),
        (b"\n", ErrorKind::Malformed),
        (b"\xff\xfe{}\n", ErrorKind::Malformed),
        (b"{\"version\":1,\"query\":\"reboot\"}\n", ErrorKind::Malformed),
        (b"{\"version\":1,\"query\":\"flows\",\"filter\":{\"colour\":\"red\"}}\n", ErrorKind::Malformed),
        (b"{\"version\":1,\"query\":\"flows\",\"filter\":{\"source\":\"here\"}}\n", ErrorKind::Malformed),
        (b"{\"version\":2,\"query\":{\"of\":\"the future\"}}\n", ErrorKind::Incompatible),
    ];
    for (request, expected) in cases {
        stream.write_all(request).expect("it reads");
        assert_eq!(error_kind(answers.next()), expected, "for {}", request.escape_ascii());
    }
    stream.write_all(b"{\"version\":1,\"query\":\"status\"}\n").expect("it reads");
    assert!(matches!(answers.next(), Some(Line::Status(_))));
    assert!(matches!(answers.next(), Some(Line::End { lines: 1, truncated: false, .. })));
}

#[test]
fn an_endless_request_is_refused_and_closed() {
    let directory = Directory::new();
    let (_answering, _server) = serve(&directory, node(1));
    let mut stream = UnixStream::connect(directory.socket()).expect("it listens");
    stream.write_all(&vec![b' '; REQUEST_BYTES_MAX + 1]).expect("it reads");
    let mut answers = lines(&stream);
    assert_eq!(error_kind(answers.next()), ErrorKind::Limit);
    assert_eq!(answers.next(), None);
}

#[test]
fn slow_and_silent_clients_hold_up_nobody() {
    let directory = Directory::new();
    let (_answering, _server) = serve(&directory, node(20_000));
    // One asks for far more than a socket's buffer holds and reads nothing, one sends half a request.
    let mut slow = UnixStream::connect(directory.socket()).expect("it listens");
    slow.write_all(b"{\"version\":1,\"query\":\"flows\",\"limit\":1000000}\n").expect("it reads");
    let mut silent = UnixStream::connect(directory.socket()).expect("it listens");
    silent.write_all(b"{\"version\":1,").expect("it reads");

    let mut client = Client::connect(&directory.socket()).expect("it listens");
    assert_eq!(client.status().expect("the node answers").connections.count, 20_000);
    // When the slow one reads at last, nothing is missing.
    assert_eq!(lines(&slow).take_while(|line| matches!(line, Line::Flow(_))).count(), 20_000);
    silent.write_all(b"\"query\":\"events\"}\n").expect("it reads");
    assert!(matches!(lines(&silent).next(), Some(Line::End { lines: 0, .. })));
}

#[test]
fn clients_at_the_same_time_get_their_own_answers() {
    let directory = Directory::new();
    let (_answering, _server) = serve(&directory, node(600));
    let path = directory.socket();
    thread::scope(|scope| {
        for number in 0..16_u64 {
            let path = &path;
            scope.spawn(move || {
                let mut client = Client::connect(path).expect("it listens");
                for round in 1..=5 {
                    let limit = number * 30 + round;
                    assert_eq!(collect(&mut client, FlowFilterText::default(), limit).0.len() as u64, limit);
                    assert_eq!(client.status().expect("the node answers").connections.count, 600);
                }
            });
        }
    });
}

#[test]
fn one_client_too_many_takes_the_place_of_one_that_is_silent() {
    let directory = Directory::new();
    let (_answering, _server) = serve(&directory, node(1));
    let connect = || {
        let mut client = Client::connect(&directory.socket()).expect("it listens");
        client.status().expect("the node answers");
        client
    };
    let mut clients: Vec<_> = (0..=CLIENTS_MAX).map(|_| connect()).collect();
    let newest = clients.last_mut().expect("there is one");
    newest.status().expect("the newest stays");
    let closed = clients.iter_mut().filter_map(|client| client.status().err()).count();
    assert_eq!(closed, 1);
}

#[test]
fn silent_clients_never_keep_one_that_asks_from_being_answered() {
    let directory = Directory::new();
    let (_answering, _server) = serve(&directory, node(1));
    let mut silent: Vec<UnixStream> = Vec::new();
    for number in 0..200 {
        let mut stream = UnixStream::connect(directory.socket()).expect("it listens");
        // Some send nothing, some half a request; the server may have closed them already.
        let _ = stream.write_all(if number % 2 == 0 { b"" } else { b"{\"version\":1," });
        silent.push(stream);
        let mut client = Client::connect(&directory.socket()).expect("it listens");
        assert_eq!(client.status().expect("it is answered").connections.count, 1);
    }
}

#[test]
fn clients_that_take_nothing_of_their_answers_make_room_for_another() {
    let directory = Directory::new();
    let (_answering, _server) = serve(&directory, node(20_000));
    let _stalled: Vec<UnixStream> = (0..CLIENTS_MAX)
        .map(|_| {
            let mut stream = UnixStream::connect(directory.socket()).expect("it listens");
            stream.write_all(b"{\"version\":1,\"query\":\"flows\",\"limit\":1000000}\n").expect("it reads");
            stream
        })
        .collect();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while Client::connect(&directory.socket()).and_then(|mut client| client.status()).is_err() {
        assert!(std::time::Instant::now() < deadline, "no room is made");
        thread::yield_now();
    }
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_server() {
    let directory = Directory::new();
    let (_answering, server) = serve(&directory, node(1));
    let mode = fs::metadata(directory.socket()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut idle = UnixStream::connect(directory.socket()).expect("it listens");
    drop(server);
    assert!(!directory.socket().exists());
    assert_eq!(idle.read(&mut [0; 1]).expect("it was closed in order"), 0);
    let left: Vec<_> = fs::read_dir(&directory.0).expect("it is ours").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_dead_gateways_socket_is_replaced_and_a_live_ones_is_not() {
    let directory = Directory::new();
    drop(UnixListener::bind(directory.socket()).expect("nobody else is there"));
    assert!(directory.socket().exists(), "a listener that ends leaves its file");
    let (answering, _server) = serve(&directory, node(1));

    let second = ControlServer::start(
        &directory.socket(),
        answering.sender.clone(),
        Arc::new(describer()),
        Arc::new(NoOperations),
    );
    let error = second.err().expect("the first one answers");
    assert!(matches!(error, ServerError::InUse(_)));
    assert_eq!(
        error.to_string(),
        format!(
            "another gateway answers at {}: stop it, or choose another node.control_socket",
            directory.socket().display()
        )
    );
    let mut client = Client::connect(&directory.socket()).expect("the first one still listens");
    assert!(client.status().is_ok());
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let directory = Directory::new();
    fs::write(directory.socket(), "precious").expect("it is ours");
    let answering = Answering::start(node(1));
    let error = ControlServer::start(
        &directory.socket(),
        answering.sender.clone(),
        Arc::new(describer()),
        Arc::new(NoOperations),
    )
    .err();
    assert!(matches!(error, Some(ServerError::NotASocket(_))), "{error:?}");
    assert_eq!(fs::read_to_string(directory.socket()).expect("it is there"), "precious");
}

#[test]
fn the_error_without_a_gateway_has_a_remedy() {
    let error = Client::connect(Path::new("/nonexistent/control.sock")).err().expect("nobody is there");
    assert_eq!(
        error.to_string(),
        "no gateway answers at /nonexistent/control.sock: is it running? (mainstay gateway --config …)"
    );
}

#[test]
fn a_data_path_that_has_ended_is_no_mystery() {
    let directory = Directory::new();
    let (sender, receiver) = channel(Arc::new(|| ()));
    drop(receiver);
    let _server = ControlServer::start(&directory.socket(), sender, Arc::new(describer()), Arc::new(NoOperations))
        .expect("it listens");
    let error = Client::connect(&directory.socket()).expect("it listens").status().expect_err("nobody answers");
    assert_eq!(error.to_string(), "refused: the gateway is stopping");
}

#[test]
fn the_event_log_forgets_the_oldest() {
    let mut log = EventLog::default();
    for number in 0..EVENTS_MAX + 5 {
        log.push(Instant::ZERO + Duration::from_secs(number as u64), EventKind::PeerUp, "");
    }
    let events = log.to_vec();
    assert_eq!((events.len(), events[0].number), (EVENTS_MAX, 5));
}
