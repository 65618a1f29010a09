//! The URL filter on two nodes: what client and server receive, and what the standby node does after a failover.

use alloc::sync::Arc;
use std::boxed::Box;
use std::string::String;
use std::sync::Mutex;
use std::time::Duration;
use std::vec::Vec;

use flow::conntrack::TcpState;
use flow::table::Slot;
use flow::wire::{Transport, ip_protocol, tcp_flags};
use flow::{Connection, DropReason, Instant, NodeId, Tuple};
use network_functions::inspect::{HostName, quic, tls};
use network_functions::shared_values::{SharedValues, SharingError};
use network_functions::url_filter::path::NormalPath;
use network_functions::url_filter::server::{Categories, CategoryClient, Lookup, OnFailure, OnUnknown, ServerConfig};
use network_functions::url_filter::{Phase, UrlState};
use replication::compact::Representation;

use super::ACK;
use super::below::Program;
use super::cluster::{CLIENT, Cluster, Compactly, Options, Received, SERVER, segment};
use crate::pipeline::{GatewayReason, PacketPath};

const PORT: u16 = 40_000;

fn start(options: Options) -> Cluster {
    Cluster::start(Options { filters_urls: true, ..options })
}

/// A request that is long enough for its frame to have room for the page.
fn get(host: &str) -> Vec<u8> {
    let cookie = "x".repeat(400);
    std::format!("GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n").into_bytes()
}

fn hello(server: &str) -> Vec<u8> {
    tls::in_records(&tls::client_hello_bytes(&[(51, &[7; 900]), (0, &tls::server_name_bytes(server))]), 1 << 14)
}

fn only(cluster: &Cluster, id: u8) -> Connection {
    let pipeline = cluster.node(id).pipeline();
    let slot = pipeline.table().next_occupied(Slot(0)).expect("a connection");
    *pipeline.connection(slot).expect("it is occupied")
}

fn phase(cluster: &Cluster, id: u8) -> Phase {
    let chain = cluster.node(id).pipeline().chain();
    chain.state_of::<UrlState>(&only(cluster, id)).expect("the filter is there").phase()
}

fn fail_over(cluster: &mut Cluster) {
    cluster.run(Duration::from_millis(5));
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    // What the node announces.
    cluster.run(Duration::from_millis(5));
    while cluster.client_receives().is_some() || cluster.server_receives().is_some() {}
}

fn flags_and_sequence(received: &Received) -> (u8, u32) {
    let Transport::Tcp(segment) = received.headers.transport else { panic!("a segment") };
    (segment.flags, segment.sequence)
}

fn text(received: &Received) -> String {
    String::from_utf8_lossy(&received.bytes[usize::from(received.headers.payload_offset)..]).into_owned()
}

#[test]
fn a_blocked_request_is_answered_by_a_page_and_stays_so_on_the_other_node() {
    let mut cluster = start(Options::default());
    let seen_port = cluster.connect(PORT);
    for is_failed_over in [false, true] {
        cluster.client_sends(PORT, segment(ACK, 1001, 5001), &get("www.blocked.example"));
        let page = cluster.client_receives().expect("the client has an answer");
        assert!(text(&page).starts_with("HTTP/1.1 403 Forbidden"), "{}", text(&page));
        assert_eq!(flags_and_sequence(&page).1, 5001);
        assert!(cluster.client_receives().is_none());
        let reset = cluster.server_receives().expect("the server is reset");
        assert_eq!((reset.tuple.source_port, flags_and_sequence(&reset)), (seen_port, (tcp_flags::RST, 1001)));
        assert!(cluster.server_receives().is_none(), "the request did not pass");
        let id = u8::from(is_failed_over);
        assert_eq!(phase(&cluster, id), Phase::BlockedByPage);
        assert_ne!(only(&cluster, id).protocol.state, TcpState::Established as u8, "tracking has seen the end");
        if !is_failed_over {
            fail_over(&mut cluster);
        }
    }
    // What the server had sent before the reset reached it does not reach the client, and is answered by another one.
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"HTTP/1.1 200 OK\r\n\r\n");
    assert!(cluster.client_receives().is_none());
    assert_eq!(cluster.dropped(1, DropReason::UrlFiltered), 1);
    assert_eq!(flags_and_sequence(&cluster.server_receives().expect("another reset")), (tcp_flags::RST, 1001));
}

#[test]
fn a_refused_client_hello_resets_both_ends() {
    let mut cluster = start(Options::default());
    cluster.connect(PORT);
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello("blocked.example"));
    assert_eq!(flags_and_sequence(&cluster.client_receives().expect("a reset")), (tcp_flags::RST, 5001));
    assert_eq!(flags_and_sequence(&cluster.server_receives().expect("a reset")), (tcp_flags::RST, 1001));
    fail_over(&mut cluster);
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello("blocked.example"));
    assert_eq!(flags_and_sequence(&cluster.client_receives().expect("a reset")), (tcp_flags::RST, 5001));
}

#[test]
fn an_allowed_connection_goes_to_the_fast_path_and_survives_without_another_look() {
    let mut cluster = start(Options::default());
    let program = Program::default();
    let now = cluster.now;
    cluster.node_mut(0).set_fast_path(now, Box::new(program));
    cluster.node_mut(0).beat_fast_path(now);
    let seen_port = cluster.connect(PORT);
    for _ in 0..10 {
        cluster.client_sends(PORT, segment(ACK, 1001, 5001), b"");
        cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"");
    }
    cluster.run(Duration::from_millis(5));
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), b"");
    let path = |cluster: &Cluster| cluster.node(0).packet_path(cluster.now, &only(cluster, 0).original);
    assert_eq!(path(&cluster), Some(PacketPath::Gateway(GatewayReason::Function)), "its packets are still needed");
    while cluster.client_receives().is_some() || cluster.server_receives().is_some() {}
    let request = hello("www.example.org");
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &request);
    cluster.server_receives().expect("it passes");
    cluster.run(Duration::from_millis(5));
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"");
    assert_eq!(path(&cluster), Some(PacketPath::Gateway(GatewayReason::Function)), "the server lacks the request");
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001 + request.len() as u32), b"");
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001 + request.len() as u32), b"");
    assert_eq!(path(&cluster), Some(PacketPath::Kernel));
    fail_over(&mut cluster);
    assert_eq!(phase(&cluster, 1), Phase::Allowed);
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"hello");
    cluster.client_receives().expect("it passes");
}

#[test]
fn a_connection_whose_node_dies_before_it_is_decided_is_decided_by_the_next_one() {
    let mut cluster = start(Options::default());
    cluster.connect(PORT);
    fail_over(&mut cluster);
    assert_eq!(phase(&cluster, 1), Phase::Reading);
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello("blocked.example"));
    assert_eq!(flags_and_sequence(&cluster.client_receives().expect("a reset")).0, tcp_flags::RST);
}

#[test]
fn with_compact_replication_refused_connections_are_replicated_precisely() {
    let compact = Some(Compactly::of(Representation::FlowDigest));
    let mut cluster = start(Options { compact, ..Options::default() });
    cluster.connect(PORT);
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello("blocked.example"));
    cluster.run(Duration::from_millis(200));
    assert_eq!(cluster.connections(1), 1, "a record, beside the filter");
    assert_eq!(phase(&cluster, 1), Phase::BlockedByReset);
}

/// A categorisation server's client, without a socket.
#[derive(Debug)]
struct Server(Mutex<CategoryClient>);

impl Categories for Server {
    fn look_up(&self, now: Instant, host: &HostName, path: Option<&NormalPath>) -> Lookup {
        self.0.lock().unwrap().look_up(now, host, path)
    }
}

impl SharedValues for Server {
    fn run(&self) -> u64 {
        self.0.lock().unwrap().sharing_run()
    }

    fn handle(&self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), SharingError> {
        self.0.lock().unwrap().handle_shared(now, from, datagram)
    }

    fn poll(&self, now: Instant, to: (NodeId, u64), out: &mut Vec<u8>) -> bool {
        self.0.lock().unwrap().poll_shared(now, to, out)
    }
}

/// A server's client of the node with this number.
fn server_of(id: u64, on_failure: OnFailure) -> Arc<Server> {
    let config = ServerConfig {
        categories: std::vec!["ads".into()],
        on_unknown: OnUnknown::Wait,
        on_failure,
        timeout: Duration::from_secs(1),
        cache_entries: 1000,
        cache_lifetime: Duration::from_secs(3600),
    };
    Arc::new(Server(Mutex::new(CategoryClient::new(config, [id, 2], id + 1).unwrap())))
}

/// Two nodes whose filters ask a server, each by its client or both by one, which answers only when the test has it answer.
fn start_with(servers: &[Arc<Server>]) -> Cluster {
    let categories: Vec<Arc<dyn Categories>> =
        servers.iter().map(|server| Arc::<Server>::clone(server) as Arc<dyn Categories>).collect();
    start(Options { categories: Vec::leak(categories), ..Options::default() })
}

/// Two nodes with one client.
fn start_with_server(on_failure: OnFailure) -> (Cluster, Arc<Server>) {
    let server = server_of(0, on_failure);
    (start_with(&[Arc::clone(&server)]), server)
}

/// The server answers to all questions; a node handles what waits.
fn answer(cluster: &mut Cluster, server: &Server, id: u8, body: &[u8]) -> Vec<String> {
    let mut client = server.0.lock().unwrap();
    let targets = client.poll_targets().to_vec();
    client.handle_response(cluster.now, body).expect("answers");
    drop(client);
    let now = cluster.now;
    cluster.node_mut(id).handle_answer(now);
    cluster.deliver();
    targets
}

#[test]
fn a_request_waits_for_its_category_and_then_passes_or_is_refused() {
    for (body, is_blocked) in [(&b"ads host"[..], true), (b"- host", false)] {
        let (mut cluster, server) = start_with_server(OnFailure::Pass);
        cluster.connect(PORT);
        let hello = hello("www.example.org");
        // In two segments: the first one passes, the second one waits, and so does its repetition.
        cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello[..500]);
        cluster.server_receives().expect("the beginning passes");
        for _ in 0..2 {
            cluster.client_sends(PORT, segment(ACK, 1501, 5001), &hello[500..]);
            cluster.run(Duration::from_millis(10));
        }
        assert!(cluster.client_receives().is_none() && cluster.server_receives().is_none());
        assert_eq!((cluster.node(0).pipeline().waiting(), phase(&cluster, 0)), (2, Phase::Reading));
        assert_eq!(answer(&mut cluster, &server, 0, body), ["www.example.org"]);
        assert_eq!(cluster.node(0).pipeline().waiting(), 0);
        if is_blocked {
            assert_eq!(flags_and_sequence(&cluster.client_receives().expect("a reset")).0, tcp_flags::RST);
            assert_eq!(phase(&cluster, 0), Phase::BlockedByReset);
        } else {
            let passed = cluster.server_receives().expect("the rest passes");
            assert_eq!(flags_and_sequence(&passed).1, 1501);
            assert_eq!(phase(&cluster, 0), Phase::Confirming);
        }
        // The verdict is on the other node, whose cache would not be asked.
        let decided = if is_blocked { Phase::BlockedByReset } else { Phase::Allowed };
        fail_over(&mut cluster);
        assert_eq!(phase(&cluster, 1), decided);
        assert_eq!(server.0.lock().unwrap().view().counters.asked, 1);
    }
}

/// The standby node has the answers of the active one, and asks nothing when it takes over.
#[test]
fn a_node_has_the_answers_that_its_peer_has_asked_for() {
    let servers = [0, 1].map(|id| server_of(id, OnFailure::Block));
    let mut cluster = start_with(&servers);
    cluster.connect(PORT);
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello("www.example.org"));
    answer(&mut cluster, &servers[0], 0, b"ads host");
    cluster.run_until("node 1 to have the answer", |_| servers[1].0.lock().unwrap().view().entries == 1);
    fail_over(&mut cluster);
    cluster.connect(PORT + 1);
    while cluster.client_receives().is_some() {}
    cluster.client_sends(PORT + 1, segment(ACK, 1001, 5001), &hello("www.example.org"));
    assert_eq!(flags_and_sequence(&cluster.client_receives().expect("a reset")).0, tcp_flags::RST);
    let counters = servers[1].0.lock().unwrap().view().counters;
    assert_eq!((counters.asked, counters.misses, counters.received), (0, 0, 1));
}

#[test]
fn a_request_does_not_wait_longer_than_the_timeout() {
    for (on_failure, expected) in [(OnFailure::Pass, Phase::Confirming), (OnFailure::Block, Phase::BlockedByReset)] {
        let (mut cluster, _server) = start_with_server(on_failure);
        cluster.connect(PORT);
        cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello("www.example.org"));
        cluster.run(Duration::from_millis(990));
        assert_eq!(phase(&cluster, 0), Phase::Reading);
        cluster.run(Duration::from_millis(20));
        assert_eq!((phase(&cluster, 0), cluster.node(0).pipeline().waiting()), (expected, 0));
    }
}

#[test]
fn a_request_that_waits_when_its_node_dies_is_decided_by_the_other_node() {
    let (mut cluster, server) = start_with_server(OnFailure::Pass);
    cluster.connect(PORT);
    let hello = hello("www.example.org");
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello);
    fail_over(&mut cluster);
    // The client repeats what was not acknowledged.
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello);
    answer(&mut cluster, &server, 1, b"ads host");
    assert_eq!(flags_and_sequence(&cluster.client_receives().expect("a reset")).0, tcp_flags::RST);
    assert_eq!(phase(&cluster, 1), Phase::BlockedByReset);
}

#[test]
fn a_short_request_that_has_waited_is_answered_by_a_page() {
    let (mut cluster, server) = start_with_server(OnFailure::Pass);
    cluster.connect(PORT);
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), b"GET /top HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(answer(&mut cluster, &server, 0, b"ads path"), ["a.example/top"]);
    let page = cluster.client_receives().expect("an answer");
    assert!(text(&page).starts_with("HTTP/1.1 403 Forbidden") && text(&page).contains("<b>ads</b>"), "{}", text(&page));
    assert_eq!(phase(&cluster, 0), Phase::BlockedByPage);
}

/// The first datagram of a QUIC connection to this host.
fn quic_hello(host: &str) -> Vec<u8> {
    let message = tls::client_hello_bytes(&[(0, &tls::server_name_bytes(host))]);
    quic::decryption::client_initial_bytes(quic::Version::V1, &[1; 8], 0, &[(0, &message)]).expect("it fits")
}

fn client_sends_datagram(cluster: &mut Cluster, payload: &[u8]) {
    let tuple = Tuple::v4(ip_protocol::UDP, (CLIENT, PORT), (SERVER, 443));
    cluster.client_sends_frame(|envelope| envelope.udp(&tuple, payload));
}

#[test]
fn a_quic_connection_that_its_first_datagram_refuses_has_a_record_and_is_examined_once() {
    let mut cluster = start(Options::default());
    for sent in 1..=3 {
        client_sends_datagram(&mut cluster, &quic_hello("www.blocked.example"));
        assert_eq!((cluster.connections(0), cluster.dropped(0, DropReason::UrlFiltered)), (1, sent));
    }
    assert_eq!(phase(&cluster, 0), Phase::BlockedByReset);
    let pipeline = cluster.node(0).pipeline();
    let blocked = pipeline.chain().counter_names().iter().position(|name| name == "url_filter.blocked");
    assert_eq!(pipeline.chain_counters().values()[blocked.expect("a counter")], 1, "it is decided once");
    fail_over(&mut cluster);
    client_sends_datagram(&mut cluster, b"anything");
    assert_eq!((phase(&cluster, 1), cluster.dropped(1, DropReason::UrlFiltered)), (Phase::BlockedByReset, 1));
}

#[test]
fn a_quic_connection_waits_for_its_category_with_its_first_datagram_and_each_packet_counts_once() {
    for (body, expected) in [(&b"ads host"[..], Phase::BlockedByReset), (b"- host", Phase::Initials)] {
        let (mut cluster, server) = start_with_server(OnFailure::Pass);
        let before = cluster.node(0).pipeline().counters().received;
        client_sends_datagram(&mut cluster, &quic_hello("www.example.org"));
        assert_eq!((cluster.node(0).pipeline().waiting(), phase(&cluster, 0)), (1, Phase::Reading));
        answer(&mut cluster, &server, 0, body);
        assert_eq!((cluster.node(0).pipeline().waiting(), phase(&cluster, 0)), (0, expected));
        assert_eq!(cluster.server_receives().is_some(), expected == Phase::Initials);
        assert_eq!(only(&cluster, 0).packets, [1, 0]);
        // The server's link address is asked for when the datagram passes.
        let asked = u64::from(expected == Phase::Initials);
        assert_eq!(cluster.node(0).pipeline().counters().received, before + 1 + asked);
    }
}
