//! The page, and that the documentation lists all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use flow::DropReason;

use super::server::{CLIENTS_MAX, REQUEST_BYTES_MAX};
use super::{MetricsServer, add_status, render};
use crate::{ControlHandler, ControlSender, FlowsPage, FlowsQuery, channel};
use api::metrics::Samples;
use api::{DropCount, Event, PeerStatus, PortStatus, Status};

fn samples() -> Samples {
    let mut status = Status { uptime_s: 12.5, ..Status::default() };
    "0.1.0".clone_into(&mut status.program_version);
    let port = |name: &str| PortStatus { name: name.to_owned(), received_packets: 7, ..PortStatus::default() };
    status.ports = vec![port("inside"), port("out\"si\\de\n")];
    status.peers = vec![PeerStatus { id: 1, lag_ms: 2.5, synchronised: true, ..PeerStatus::default() }];
    status.drops = vec![DropCount { reason: "no_route".to_owned(), packets: 9_007_199_254_740_993 }];
    let mut samples = Samples::default();
    add_status(&mut samples, &status);
    samples
}

/// A strict reader of the format: every sample belongs to the metric announced above it, every metric is announced
/// once with help and type, names and labels are well formed, no two samples are the same, values are numbers.
fn read(page: &str) -> BTreeMap<(String, String), f64> {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    assert!(page.ends_with('\n'), "the last line ends with a newline");
    let (mut announced, mut current, mut help) = (BTreeSet::new(), String::new(), String::new());
    let mut values = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').expect("a help has a text");
            assert!(is_name(name) && !text.is_empty());
            help = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type has a kind");
            assert_eq!(name, help, "the type follows the help");
            assert!(announced.insert(name.to_owned()), "{name} is announced twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            name.clone_into(&mut current);
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let is_of_histogram =
                ["_bucket", "_sum", "_count"].iter().any(|suffix| name == format!("{current}{suffix}"));
            assert!(name == current || is_of_histogram, "{name} stands below the type of {current}");
            check_labels(labels.strip_suffix('}').expect("the labels are closed"), &is_name);
            let value = value.parse().expect("the value is a number");
            let before = values.insert((name.to_owned(), labels.to_owned()), value);
            assert_eq!(before, None, "{series} comes twice");
        }
    }
    values
}

fn check_labels(mut labels: &str, is_name: &dyn Fn(&str) -> bool) {
    while !labels.is_empty() {
        let (name, rest) = labels.split_once("=\"").expect("a label has a quoted value");
        assert!(is_name(name), "{name}");
        let mut escaped = false;
        let end = rest.find(|c| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        let rest = &rest[end.expect("the value is closed") + 1..];
        labels = rest.strip_prefix(',').unwrap_or(rest);
        assert!(labels.is_empty() || rest.starts_with(','));
    }
}

#[test]
fn the_page_is_what_prometheus_reads() {
    let values = read(&render(&samples()));
    let value = |name: &str, labels: &str| values[&(name.to_owned(), labels.to_owned())];
    assert_eq!(value("mainstay_uptime_seconds", "}"), 12.5);
    assert_eq!(value("mainstay_received_packets_total", "port=\"inside\"}"), 7.0);
    assert_eq!(value("mainstay_received_packets_total", "port=\"out\\\"si\\\\de\\n\"}"), 7.0);
    assert_eq!(value("mainstay_replication_lag_seconds", "peer=\"1\"}"), 0.0025);
    assert_eq!(value("mainstay_build_info", "version=\"0.1.0\"}"), 1.0);
}

#[test]
fn every_drop_reason_is_on_the_page_from_the_start() {
    let values = read(&render(&samples()));
    let of_drops = |name: &str| name == "mainstay_dropped_packets_total";
    assert_eq!(values.keys().filter(|(name, _)| of_drops(name)).count(), DropReason::ALL.len());
    let total: f64 = values.iter().filter(|((name, _), _)| of_drops(name)).map(|(_, value)| value).sum();
    assert_eq!(total, 9_007_199_254_740_992.0);
}

/// A node, and how often it was asked.
#[derive(Default)]
struct FakeNode {
    asked: Arc<AtomicUsize>,
}

impl ControlHandler for FakeNode {
    fn status(&mut self) -> Status {
        Status::default()
    }

    fn flows(&mut self, query: &FlowsQuery) -> FlowsPage {
        query.page_of(flow::Instant::ZERO, |_| None)
    }

    fn counters(&mut self) -> Samples {
        self.asked.fetch_add(1, Ordering::Relaxed);
        samples()
    }

    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }
}

/// Runs `test` against a server with a node behind it.
fn with_server(test: impl FnOnce(SocketAddr)) {
    with_node(FakeNode::default(), test);
}

fn with_node(mut node: FakeNode, test: impl FnOnce(SocketAddr)) {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel(Arc::new(|| ()));
    thread::scope(|scope| {
        let stopping = Arc::clone(&stop);
        scope.spawn(move || {
            while !stopping.load(Ordering::Acquire) {
                if !receiver.answer_one(&mut node) {
                    thread::yield_now();
                }
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let server = start(sender);
            test(server.address());
        }));
        stop.store(true, Ordering::Release);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn start(sender: ControlSender) -> MetricsServer {
    MetricsServer::start(SocketAddr::from(([127, 0, 0, 1], 0)), sender).expect("a port is free")
}

/// Sends bytes and returns all that comes back.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it closes in order");
    answer
}

#[test]
fn a_scraper_gets_the_page() {
    with_server(|address| {
        let answer = exchange(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(!read(body).is_empty());
    });
}

#[test]
fn other_requests_are_refused_and_the_next_scraper_is_served() {
    with_server(|address| {
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(REQUEST_BYTES_MAX + 1 - 26));
        let huge = [long.as_bytes(), &[b'x'; 100_000]].concat();
        let cases: [(&[u8], &str); 5] = [
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\x16\x03\x01\r\n\r\n", "400"),
            (long.as_bytes(), "431"),
            (&huge, "431"),
        ];
        for (request, expected) in cases {
            let answer = exchange(address, request);
            assert_eq!(answer.split(' ').nth(1), Some(expected), "{answer}");
        }
        assert!(exchange(address, b"GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
    });
}

/// Clients that are there at the same time, more than are served.
const SILENT_CLIENTS: usize = 200;
const _: () = assert!(SILENT_CLIENTS > 3 * CLIENTS_MAX);

#[test]
fn silent_and_slow_clients_do_not_keep_a_scraper_waiting() {
    with_server(|address| {
        let clients: Vec<TcpStream> = (0..SILENT_CLIENTS)
            .map(|number| {
                let mut stream = TcpStream::connect(address).expect("it listens");
                // Some send nothing, some half a request; the server may have closed them already.
                let _ = stream.write_all(if number % 2 == 0 { b"" } else { b"GET /met" });
                stream
            })
            .collect();
        for _ in 0..20 {
            assert!(exchange(address, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        }
        drop(clients);
    });
}

#[test]
fn a_client_that_sends_byte_by_byte_is_closed_in_the_end() {
    with_server(|address| {
        let mut slow = TcpStream::connect(address).expect("it listens");
        slow.set_nodelay(true).expect("it is a TCP connection");
        let request = b"GET /metrics HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
        // Without end, and never long enough to be refused for that.
        let sent = request.take(REQUEST_BYTES_MAX / 2).take_while(|byte| {
            thread::sleep(std::time::Duration::from_millis(2));
            slow.write_all(&[**byte]).is_ok()
        });
        assert!(sent.count() < REQUEST_BYTES_MAX / 2, "it is never closed");
    });
}

#[test]
fn health_is_answered_while_the_data_path_answers() {
    with_server(|address| {
        assert!(exchange(address, b"GET /health HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    });
}

#[test]
fn many_clients_share_the_answers_of_the_data_path() {
    let asked = Arc::new(AtomicUsize::new(0));
    with_node(FakeNode { asked: Arc::clone(&asked) }, |address| {
        let begin = Instant::now();
        for target in ["metrics", "health"].into_iter().cycle().take(200) {
            let answer = exchange(address, format!("GET /{target} HTTP/1.1\r\n\r\n").as_bytes());
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        }
        let most = begin.elapsed().div_duration_f64(super::server::REUSE) as usize + 1;
        assert!((1..=most).contains(&asked.load(Ordering::Relaxed)), "{asked:?} of at most {most}");
    });
}

#[test]
fn the_error_for_a_taken_port_names_the_key_to_change() {
    let (sender, _receiver) = channel(Arc::new(|| ()));
    let first = start(sender.clone());
    let error = MetricsServer::start(first.address(), sender).err().expect("it is taken");
    let expected =
        format!("metrics cannot be served at {}: another program listens there: change node.metrics", first.address());
    assert_eq!(error.to_string(), expected);
}

#[test]
fn without_a_data_path_the_page_is_an_error() {
    let (sender, receiver) = channel(Arc::new(|| ()));
    drop(receiver);
    let server = start(sender);
    let answer = exchange(server.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("the gateway is stopping\n"), "{answer}");
}
