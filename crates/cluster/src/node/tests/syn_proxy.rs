//! A SYN proxy on two nodes: cookies that another node accepts, numbers that go on shifted after a take-over.

use std::string::String;
use std::time::Duration;
use std::vec::Vec;

use flow::conntrack::TcpState;
use flow::table::Slot;
use flow::wire::tcp::SegmentOptions;
use flow::wire::{TcpSegment, Transport, build, ip_protocol, tcp_flags};
use flow::{DropReason, Tuple};
use network_functions::syn_proxy::{Mode, Phase, SynProxyState, Thresholds};

use super::ACK;
use super::cluster::{CLIENT, Cluster, Compactly, Options, Received, SERVER, SHARED_OUTSIDE, segment};
use super::compact::MULTI_LEVEL;

const SYN_ACK: u8 = tcp_flags::SYN | tcp_flags::ACK;
pub(super) const SERVER_ISN: u32 = 5000;
/// The client's first number.
pub(super) const ISN: u32 = 1000;

pub(super) fn always() -> Options {
    Options { syn_proxy: Mode::Always, ..Options::default() }
}

pub(super) fn tuple(port: u16) -> Tuple {
    Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80))
}

fn client_syn() -> build::Tcp<'static> {
    build::Tcp {
        flags: tcp_flags::SYN,
        sequence: ISN,
        maximum_segment_bytes: Some(1460),
        window_scale: Some(9),
        sack_permitted: true,
        timestamps: Some((7000, 0)),
        ..build::Tcp::default()
    }
}

fn server_syn_ack() -> build::Tcp<'static> {
    build::Tcp {
        flags: SYN_ACK,
        sequence: SERVER_ISN,
        acknowledgement: ISN + 1,
        maximum_segment_bytes: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some((300, 7001)),
        ..build::Tcp::default()
    }
}

fn tcp(received: &Received) -> TcpSegment {
    let Transport::Tcp(segment) = received.headers.transport else { panic!("TCP only") };
    segment
}

fn timestamps(received: &Received) -> Option<(u32, u32)> {
    let header = usize::from(received.headers.l4_offset)..usize::from(received.headers.payload_offset);
    SegmentOptions::read(&received.bytes[header]).timestamps
}

fn text(received: &Received) -> String {
    String::from_utf8_lossy(&received.bytes[usize::from(received.headers.payload_offset)..]).into_owned()
}

/// A client that has sent a SYN and received its answer: the cookie, and the timestamp that goes with it.
pub(super) struct Client {
    port: u16,
    pub(super) cookie: u32,
    cookie_time: u32,
}

impl Client {
    pub(super) fn sends_syn(cluster: &mut Cluster, port: u16) -> Self {
        cluster.client_sends(port, client_syn(), b"");
        let answer = cluster.client_receives().expect("the proxy answers");
        assert_eq!((answer.tuple, tcp(&answer).flags, tcp(&answer).window), (tuple(port).inverse(), SYN_ACK, 0));
        assert!(cluster.server_receives().is_none(), "the server is not concerned");
        Self { port, cookie: tcp(&answer).sequence, cookie_time: timestamps(&answer).expect("timestamps").0 }
    }

    /// A segment that acknowledges all that the server has sent up to `behind` of its data.
    pub(super) fn segment(&self, offset: u32, behind: u32) -> build::Tcp<'static> {
        build::Tcp {
            flags: ACK,
            sequence: ISN.wrapping_add(1 + offset),
            acknowledgement: self.cookie.wrapping_add(1 + behind),
            window: 501,
            timestamps: Some((7001, self.cookie_time)),
            ..build::Tcp::default()
        }
    }

    pub(super) fn acknowledges(&self, cluster: &mut Cluster) {
        cluster.client_sends(self.port, self.segment(0, 0), b"");
    }

    /// The server's answer to the SYN comes: both sides get their acknowledgements. Returns the port that the server sees.
    fn is_opened(&self, cluster: &mut Cluster) -> u16 {
        let syn = cluster.server_receives().expect("the SYN to the server");
        assert_eq!((tcp(&syn).flags, tcp(&syn).sequence, tcp(&syn).window_scale), (tcp_flags::SYN, ISN, Some(9)));
        let seen = syn.tuple.source_port;
        self.server_answers(cluster, seen);
        seen
    }

    fn server_answers(&self, cluster: &mut Cluster, seen: u16) {
        let outside = if cluster.options().is_translated { SHARED_OUTSIDE } else { CLIENT };
        let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (outside, seen));
        cluster.server_sends_frame(|envelope| envelope.tcp(&tuple, server_syn_ack(), b""));
        let update = cluster.client_receives().expect("the client's window opens");
        assert_eq!((tcp(&update).flags, tcp(&update).sequence), (ACK, self.cookie.wrapping_add(1)));
        assert_eq!((tcp(&update).acknowledgement, tcp(&update).window), (ISN + 1, 511));
        assert_eq!(timestamps(&update), Some((self.cookie_time, 7001)));
        let acknowledgement = cluster.server_receives().expect("the server is acknowledged");
        let TcpSegment { flags, sequence, acknowledgement: number, .. } = tcp(&acknowledgement);
        assert_eq!((flags, sequence, number), (ACK, ISN + 1, SERVER_ISN + 1));
        assert_eq!(timestamps(&acknowledgement), Some((7001, 300)));
    }

    pub(super) fn connects(cluster: &mut Cluster, port: u16) -> (Self, u16) {
        let client = Self::sends_syn(cluster, port);
        client.acknowledges(cluster);
        let seen = client.is_opened(cluster);
        (client, seen)
    }

    /// Data passes both ways, `offset` bytes behind the beginning of each, with the numbers that each side knows.
    fn exchanges(&self, cluster: &mut Cluster, seen: u16, offset: u32) {
        cluster.client_sends(self.port, self.segment(offset, offset), b"question");
        let question = cluster.server_receives().expect("the question passes");
        assert_eq!(text(&question), "question");
        assert_eq!(
            (tcp(&question).sequence, tcp(&question).acknowledgement),
            (ISN + 1 + offset, SERVER_ISN + 1 + offset)
        );
        assert_eq!(timestamps(&question), Some((7001, 300)));
        let answer =
            build::Tcp { timestamps: Some((310, 7001)), ..segment(ACK, SERVER_ISN + 1 + offset, ISN + 1 + offset + 8) };
        let outside = if cluster.options().is_translated { SHARED_OUTSIDE } else { CLIENT };
        let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (outside, seen));
        cluster.server_sends_frame(|envelope| envelope.tcp(&tuple, answer, b"answer"));
        let answer = cluster.client_receives().expect("the answer passes");
        assert_eq!((text(&answer).as_str(), tcp(&answer).sequence), ("answer", self.cookie.wrapping_add(1 + offset)));
        assert_eq!(timestamps(&answer), Some((self.cookie_time.wrapping_add(10), 7001)));
    }
}

fn take_over(cluster: &mut Cluster) {
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
}

fn state(cluster: &Cluster, id: u8, port: u16) -> SynProxyState {
    let pipeline = cluster.node(id).pipeline();
    let (slot, _) = pipeline.lookup(&tuple(port)).expect("the connection is known");
    let connection = pipeline.connection(slot).unwrap();
    assert!(pipeline.chain().needs_packets(connection), "no fast path forwards what is to be renumbered");
    pipeline.chain().state_of::<SynProxyState>(connection).unwrap()
}

#[test]
fn a_flood_leaves_no_record_and_reaches_no_server() {
    let mut cluster = Cluster::start(always());
    for port in 20_000..30_000 {
        cluster.client_sends(port, client_syn(), b"");
    }
    let answers = std::iter::from_fn(|| cluster.client_receives()).count();
    assert_eq!(answers, 10_000);
    assert!(cluster.server_receives().is_none());
    assert_eq!((cluster.connections(0), cluster.connections(1)), (0, 0));
    assert!(cluster.node(0).pipeline().counters().drops.iter().all(|count| *count == 0), "an answered SYN is no drop");
}

#[test]
fn a_denied_syn_is_not_answered() {
    let mut cluster = Cluster::start(always());
    cluster.server_sends(2000, client_syn(), b"");
    assert!(cluster.server_receives().is_none() && cluster.client_receives().is_none());
    assert_eq!(cluster.dropped(0, DropReason::FirewallDenied), 1);
}

#[test]
fn a_connection_opens_and_goes_on_through_the_other_node() {
    let mut cluster = Cluster::start(always());
    let (client, seen) = Client::connects(&mut cluster, 40_000);
    client.exchanges(&mut cluster, seen, 0);
    assert_eq!(state(&cluster, 1, 40_000), state(&cluster, 0, 40_000), "the offset is replicated");
    take_over(&mut cluster);
    client.exchanges(&mut cluster, seen, 1_000_000);
    client.exchanges(&mut cluster, seen, 1_000_008);
}

#[test]
fn the_node_dies_between_syn_and_acknowledgement_and_the_other_accepts_the_cookie() {
    let mut cluster = Cluster::start(always());
    let client = Client::sends_syn(&mut cluster, 40_000);
    take_over(&mut cluster);
    client.acknowledges(&mut cluster);
    let seen = client.is_opened(&mut cluster);
    client.exchanges(&mut cluster, seen, 0);
}

#[test]
fn the_node_dies_before_the_server_answers_and_the_other_goes_on() {
    let mut cluster = Cluster::start(always());
    let client = Client::sends_syn(&mut cluster, 40_000);
    client.acknowledges(&mut cluster);
    let syn = cluster.server_receives().expect("the SYN to the server");
    cluster.run(Duration::from_millis(10));
    assert_eq!(state(&cluster, 1, 40_000).phase(), Phase::Awaiting, "the handshake is replicated");
    take_over(&mut cluster);
    client.server_answers(&mut cluster, syn.tuple.source_port);
    client.exchanges(&mut cluster, syn.tuple.source_port, 0);
}

#[test]
fn a_probe_of_the_client_has_the_other_node_repeat_the_syn() {
    let mut cluster = Cluster::start(always());
    let client = Client::sends_syn(&mut cluster, 40_000);
    client.acknowledges(&mut cluster);
    let lost = cluster.server_receives().expect("it leaves, and is lost");
    cluster.run(Duration::from_millis(10));
    take_over(&mut cluster);
    // A probe of a closed window is numbered one before what it waits to send.
    let probe = build::Tcp { sequence: ISN, ..client.segment(0, 0) };
    cluster.client_sends(40_000, probe, b"");
    assert_eq!(cluster.dropped(1, DropReason::SynProxyAwaiting), 1);
    let seen = client.is_opened(&mut cluster);
    assert_eq!(seen, lost.tuple.source_port, "under the same translation");
    client.exchanges(&mut cluster, seen, 0);
}

#[test]
fn a_servers_repeated_answer_is_acknowledged_by_the_other_node() {
    let mut cluster = Cluster::start(always());
    let (client, seen) = Client::connects(&mut cluster, 40_000);
    cluster.run(Duration::from_millis(10));
    take_over(&mut cluster);
    client.server_answers(&mut cluster, seen);
    client.exchanges(&mut cluster, seen, 0);
}

#[test]
fn a_silent_server_is_asked_four_times_and_its_client_reset() {
    let mut cluster = Cluster::start(always());
    let client = Client::sends_syn(&mut cluster, 40_000);
    client.acknowledges(&mut cluster);
    let mut seconds = Vec::new();
    let began = cluster.now;
    for _ in 0..16 {
        while let Some(syn) = cluster.server_receives() {
            assert_eq!((tcp(&syn).flags, tcp(&syn).sequence), (tcp_flags::SYN, ISN));
            assert_eq!(timestamps(&syn), Some((7001, 0)));
            seconds.push(cluster.now.saturating_since(began).as_secs());
        }
        cluster.run(Duration::from_secs(1));
    }
    assert_eq!(seconds, [0, 1, 3, 7]);
    let reset = cluster.client_receives().expect("the client is reset");
    assert_eq!(
        (tcp(&reset).flags & tcp_flags::RST, tcp(&reset).sequence),
        (tcp_flags::RST, client.cookie.wrapping_add(1))
    );
    assert_eq!(cluster.connections(0), 0);
    cluster.run_until("the replica to end", |cluster| cluster.connections(1) == 0);
}

#[test]
fn a_server_that_refuses_resets_its_client() {
    let mut cluster = Cluster::start(always());
    let client = Client::sends_syn(&mut cluster, 40_000);
    client.acknowledges(&mut cluster);
    let syn = cluster.server_receives().expect("the SYN to the server");
    cluster.server_sends(syn.tuple.source_port, segment(tcp_flags::RST | ACK, 0, ISN + 1), b"");
    let reset = cluster.client_receives().expect("the client is reset");
    assert_eq!(
        (tcp(&reset).flags & tcp_flags::RST, tcp(&reset).sequence),
        (tcp_flags::RST, client.cookie.wrapping_add(1))
    );
    assert_eq!(cluster.connections(0), 0);
}

#[test]
fn forged_acknowledgements_and_resets_are_dropped_with_reasons_of_their_own() {
    let mut cluster = Cluster::start(always());
    let client = Client::sends_syn(&mut cluster, 40_000);
    let forged = build::Tcp { acknowledgement: client.cookie ^ 5, ..client.segment(0, 0) };
    cluster.client_sends(40_000, forged, b"");
    cluster.client_sends(40_000, build::Tcp { flags: tcp_flags::RST, ..client.segment(0, 0) }, b"");
    cluster.run(Duration::from_secs(150));
    client.acknowledges(&mut cluster);
    assert!(cluster.server_receives().is_none());
    let reasons = [DropReason::SynCookieInvalid, DropReason::SynProxyReset, DropReason::SynCookieExpired];
    assert_eq!(reasons.map(|reason| cluster.dropped(0, reason)), [1, 1, 1]);
    assert_eq!(cluster.connections(0), 0);
}

#[test]
fn connections_begun_before_an_attack_and_during_it_live_side_by_side() {
    let thresholds = Thresholds { syns_per_s: Some(20), half_open: None, hold: Duration::from_secs(5) };
    let mut cluster = Cluster::start(Options { syn_proxy: Mode::Auto(thresholds), ..Options::default() });
    let direct = cluster.connect(40_000);
    for port in 20_000..20_100 {
        cluster.client_sends(port, client_syn(), b"");
    }
    while cluster.server_receives().is_some() {}
    while cluster.client_receives().is_some() {}
    assert!(cluster.connections(0) < 25, "the proxy answers from the twentieth SYN on");
    let (client, seen) = Client::connects(&mut cluster, 40_001);
    take_over(&mut cluster);
    super::exchange(&mut cluster, 40_000, direct, 1001, 5001);
    client.exchanges(&mut cluster, seen, 0);
    // Node 1 has not seen the attack.
    let _ = cluster.connect(40_002);
}

#[test]
fn a_cookie_of_an_attack_is_accepted_by_a_node_that_has_not_seen_it() {
    let thresholds = Thresholds { syns_per_s: Some(1), half_open: None, hold: Duration::from_secs(5) };
    let mut cluster = Cluster::start(Options { syn_proxy: Mode::Auto(thresholds), ..Options::default() });
    let client = Client::sends_syn(&mut cluster, 40_000);
    take_over(&mut cluster);
    client.acknowledges(&mut cluster);
    let seen = client.is_opened(&mut cluster);
    client.exchanges(&mut cluster, seen, 0);
}

#[test]
fn with_compact_replication_proxied_connections_go_on_beside_others() {
    let options = Options { is_translated: false, ..always() };
    let mut cluster = Cluster::start(Options { compact: Some(Compactly::of(MULTI_LEVEL)), ..options });
    let (client, seen) = Client::connects(&mut cluster, 40_000);
    assert_eq!(seen, 40_000);
    client.exchanges(&mut cluster, seen, 0);
    cluster.run_until("everything to be replicated", |cluster| !cluster.node(0).has_unacknowledged());
    take_over(&mut cluster);
    client.exchanges(&mut cluster, seen, 1_000_000);
}

#[test]
fn the_ftp_helper_reads_a_proxied_control_connection_and_shifts_its_numbers_further() {
    let mut cluster = Cluster::start(always());
    let control = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 21));
    let sends = |cluster: &mut Cluster, tcp: build::Tcp<'_>, payload: &[u8]| {
        cluster.client_sends_frame(|envelope| envelope.tcp(&control, tcp, payload));
    };
    sends(&mut cluster, client_syn(), b"");
    let answer = cluster.client_receives().expect("the proxy answers");
    let client = Client { port: 40_000, cookie: tcp(&answer).sequence, cookie_time: timestamps(&answer).unwrap().0 };
    sends(&mut cluster, client.segment(0, 0), b"");
    let syn = cluster.server_receives().expect("the SYN to the server");
    let back = syn.tuple.inverse();
    cluster.server_sends_frame(|envelope| envelope.tcp(&back, server_syn_ack(), b""));
    assert!(cluster.client_receives().is_some() && cluster.server_receives().is_some());

    sends(&mut cluster, client.segment(0, 0), b"PORT 10,1,0,10,19,136\r\n");
    let command = cluster.server_receives().expect("the command passes");
    assert!(text(&command).starts_with("PORT 198,51,100,1,"), "{}", text(&command));
    let length = text(&command).len() as u32;
    let reply = build::Tcp { timestamps: Some((310, 7001)), ..segment(ACK, SERVER_ISN + 1, ISN + 1 + length) };
    take_over(&mut cluster);
    cluster.server_sends_frame(|envelope| envelope.tcp(&back, reply, b"200 fine\r\n"));
    let reply = cluster.client_receives().expect("the reply passes the other node");
    assert_eq!(tcp(&reply).sequence, client.cookie.wrapping_add(1));
    assert_eq!(tcp(&reply).acknowledgement, ISN + 1 + 23, "in the client's numbers");
}

#[test]
fn a_url_filter_before_the_proxy_refuses_a_connection_in_the_numbers_of_each_side() {
    let mut cluster = Cluster::start(Options { filters_urls: true, ..always() });
    let client = Client::sends_syn(&mut cluster, 40_000);
    client.acknowledges(&mut cluster);
    client.is_opened(&mut cluster);
    let request = std::format!("GET / HTTP/1.1\r\nHost: blocked.example\r\nCookie: {}\r\n\r\n", "x".repeat(400));
    cluster.client_sends(client.port, client.segment(0, 0), request.as_bytes());
    let page = cluster.client_receives().expect("the filter answers");
    assert!(text(&page).starts_with("HTTP/1.1 403 Forbidden"), "{}", text(&page));
    assert_eq!(tcp(&page).sequence, client.cookie.wrapping_add(1));
    let reset = cluster.server_receives().expect("the server is reset");
    assert_eq!((tcp(&reset).flags, tcp(&reset).sequence), (tcp_flags::RST, ISN + 1));
    let pipeline = cluster.node(0).pipeline();
    let slot = pipeline.table().next_occupied(Slot(0)).expect("the record stays");
    let state = pipeline.connection(slot).expect("it is occupied").protocol.state;
    assert_ne!(state, TcpState::Established as u8, "tracking has seen the end, in the server's numbers");
}
