//! A client reuses its port before the record of its former connection is gone: the new connection is a first one for every function.

use alloc::boxed::Box;
use alloc::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use flow::wire::{TcpSegment, Transport, build, ip_protocol, tcp_flags};
use flow::{Connection, DropReason, Tuple};
use network_functions::load_balancer::{
    Affinity, BackendConfig, Mode as ServiceMode, OnFailure, Scheduler, ServiceConfig, Services,
};
use network_functions::port_range::PortRange;
use network_functions::syn_proxy::Mode;
use replication::representation::Start;

use super::cluster::{CLIENT, Cluster, Options, Received, SERVER, segment, syn, syn_ack};
use super::{ACK, FIN_ACK};

const RST: u8 = tcp_flags::RST;
const SYN_ACK: u8 = tcp_flags::SYN | ACK;
const PORT: u16 = 40_000;
/// The client's first number of its second connection.
const SECOND: u32 = 900_000;

/// How the former connection ended, as far as the node saw it. The numbers are those behind the handshake and `sent` bytes of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    ServerReset,
    ClientReset,
    /// Both have sent FIN, and the last acknowledgement is lost.
    LastAckLost,
    TimeWait,
}

const ENDS: [End; 4] = [End::ServerReset, End::ClientReset, End::LastAckLost, End::TimeWait];

/// What passes at the end: whether the client sends it, flags, and by how much each side is further on.
fn segments_of(end: End) -> &'static [(bool, u8, u32, u32)] {
    match end {
        End::ServerReset => &[(false, RST | ACK, 0, 0)],
        End::ClientReset => &[(true, RST | ACK, 0, 0)],
        End::LastAckLost => &[(true, FIN_ACK, 0, 0), (false, FIN_ACK, 0, 1)],
        End::TimeWait => &[(true, FIN_ACK, 0, 0), (false, FIN_ACK, 0, 1), (true, ACK, 1, 1)],
    }
}

fn tcp(received: &Received) -> TcpSegment {
    let Transport::Tcp(segment) = received.headers.transport else { panic!("TCP only") };
    segment
}

/// A cluster that replicates connections from their first packet on, so that a SYN alone has a replica.
fn start_replicating_at_once(options: Options) -> Cluster {
    let mut cluster = Cluster::start(options);
    let now = cluster.now;
    (0..2).for_each(|id| cluster.node_mut(id).set_start(now, Start::FirstPacket));
    cluster
}

fn drain(cluster: &mut Cluster) {
    while cluster.client_receives().is_some() || cluster.server_receives().is_some() {}
}

fn take_over(cluster: &mut Cluster) {
    cluster.run(Duration::from_millis(20));
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.run(Duration::from_millis(5));
    drain(cluster);
}

fn record(cluster: &Cluster, id: u8, tuple: &Tuple) -> Connection {
    let pipeline = cluster.node(id).pipeline();
    let (slot, _) = pipeline.lookup(tuple).expect("the connection is known");
    *pipeline.connection(slot).expect("it is occupied")
}

/// A connection of the client, without the SYN proxy.
struct Plain {
    tuple: Tuple,
}

impl Plain {
    fn new(server_port: u16) -> Self {
        Self { tuple: Tuple::v4(ip_protocol::TCP, (CLIENT, PORT), (SERVER, server_port)) }
    }

    fn client_sends(&self, cluster: &mut Cluster, tcp: build::Tcp<'_>, payload: &[u8]) {
        cluster.client_sends_frame(|envelope| envelope.tcp(&self.tuple, tcp, payload));
    }

    /// The handshake and one segment of the client, then the end. What the hosts receive is left out.
    fn lives(&self, cluster: &mut Cluster, payload: &[u8], end: End) {
        self.client_sends(cluster, syn(), b"");
        let seen = cluster.server_receives().expect("the SYN passes").tuple.inverse();
        let server_sends = |cluster: &mut Cluster, tcp: build::Tcp<'_>| {
            cluster.server_sends_frame(|envelope| envelope.tcp(&seen, tcp, b""));
        };
        server_sends(cluster, syn_ack());
        self.client_sends(cluster, segment(ACK, 1001, 5001), b"");
        cluster.server_receives().expect("the acknowledgement passes");
        self.client_sends(cluster, segment(ACK, 1001, 5001), payload);
        let sent = payload.len() as u32;
        // The server acknowledges what reached it.
        let received = cluster.server_receives().map_or(1001, |received| tcp(&received).end());
        server_sends(cluster, segment(ACK, 5001, received));
        for (is_clients, flags, client, server) in segments_of(end) {
            match is_clients {
                true => self.client_sends(cluster, segment(*flags, 1001 + sent + client, 5001 + server), b""),
                false => server_sends(cluster, segment(*flags, 5001, received + server)),
            }
        }
        drain(cluster);
    }
}

/// A function with what leaves something in its state.
struct Case {
    name: &'static str,
    options: Options,
    server_port: u16,
    payload: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let get =
        |host: &str| std::format!("GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\n\r\n", "x".repeat(400)).into_bytes();
    let defaults = Options::default;
    let case = |name, options, server_port, payload| Case { name, options, server_port, payload };
    std::vec![
        case("firewall and NAT", defaults(), 80, b"question".to_vec()),
        case("without translation", Options { is_translated: false, ..defaults() }, 80, b"question".to_vec()),
        case("FTP helper", defaults(), 21, b"PORT 10,1,0,10,19,136\r\n".to_vec()),
        case("classifier", Options { is_classified: true, ..defaults() }, 80, get("www.example")),
        case("URL filter", Options { filters_urls: true, ..defaults() }, 80, get("www.example")),
        case("URL filter that refuses", Options { filters_urls: true, ..defaults() }, 80, get("www.blocked.example")),
    ]
}

#[test]
fn a_syn_after_the_end_is_a_first_syn_for_every_function() {
    for Case { name, options, server_port, payload } in cases() {
        for end in ENDS {
            for is_failed_over in [false, true] {
                let what = std::format!("{name}, {end:?}, failed over: {is_failed_over}");
                let plain = Plain::new(server_port);
                let mut cluster = start_replicating_at_once(options);
                plain.lives(&mut cluster, &payload, end);
                let former = record(&cluster, 0, &plain.tuple);
                if is_failed_over {
                    take_over(&mut cluster);
                }
                let (id, begun) =
                    (u8::from(is_failed_over), cluster.node(u8::from(is_failed_over)).pipeline().counters().begun);
                plain.client_sends(&mut cluster, build::Tcp { sequence: SECOND, ..syn() }, b"");
                let arrived = cluster.server_receives().unwrap_or_else(|| panic!("{what}: the SYN passes"));
                assert_eq!(tcp(&arrived).sequence, SECOND, "{what}: in the client's numbers");

                let mut other = start_replicating_at_once(options);
                plain.client_sends(&mut other, build::Tcp { sequence: SECOND, ..syn() }, b"");
                let (reborn, first) = (record(&cluster, id, &plain.tuple), record(&other, 0, &plain.tuple));
                let kept = |connection: &Connection| {
                    let Connection { functions, packets, bytes, flags, protocol, owner, .. } = *connection;
                    (functions, packets, bytes, flags, (owner == flow::NodeId(0)) ^ is_failed_over, protocol)
                };
                let (mut reborn_kept, first_kept) = (kept(&reborn), kept(&first));
                reborn_kept.4 = first_kept.4;
                assert_eq!(reborn_kept, first_kept, "{what}");
                assert_eq!(reborn.owner, flow::NodeId(id), "{what}");
                assert!(former.is_older_than(reborn.version), "{what}: no update of the former one counts");
                assert_eq!(cluster.node(id).pipeline().counters().begun, begun + 1, "{what}");
                assert_eq!(cluster.connections(id), 1, "{what}");
                if !is_failed_over {
                    [&mut cluster, &mut other].into_iter().for_each(|cluster| cluster.run(Duration::from_millis(20)));
                    let (replica, first) = (record(&cluster, 1, &plain.tuple), record(&other, 1, &plain.tuple));
                    assert_eq!((replica.functions, replica.version), (first.functions, reborn.version), "{what}");
                    assert_eq!(
                        (replica.reply, replica.protocol.state),
                        (reborn.reply, reborn.protocol.state),
                        "{what}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_repeated_syn_ack_of_a_closing_connection_does_not_begin_another() {
    let mut cluster = Cluster::start(Options::default());
    let plain = Plain::new(21);
    plain.lives(&mut cluster, b"PORT 10,1,0,10,19,136\r\n", End::LastAckLost);
    let seen = record(&cluster, 0, &plain.tuple).reply;
    cluster.server_sends_frame(|envelope| envelope.tcp(&seen, segment(SYN_ACK, 77_000, SECOND + 1), b""));
    assert!(cluster.client_receives().is_none(), "no function has seen the SYN that it answers");
    assert_eq!(cluster.dropped(0, DropReason::NoConnection), 1);
}

#[test]
fn a_server_that_lost_a_connection_and_accepts_another_has_the_client_begin_anew() {
    let mut cluster = start_replicating_at_once(Options::default());
    let plain = Plain::new(21);
    plain.client_sends(&mut cluster, syn(), b"");
    let seen = cluster.server_receives().expect("the SYN passes").tuple.inverse();
    cluster.server_sends_frame(|envelope| envelope.tcp(&seen, syn_ack(), b""));
    plain.client_sends(&mut cluster, segment(ACK, 1001, 5001), b"PORT 10,1,0,10,19,136\r\n");
    drain(&mut cluster);
    // Both have lost it without a word; the record is established.
    plain.client_sends(&mut cluster, build::Tcp { sequence: SECOND, ..syn() }, b"");
    let passed = cluster.server_receives().expect("only the server knows whether it lives");
    cluster.server_sends_frame(|envelope| {
        envelope.tcp(&seen, segment(SYN_ACK, 77_000, tcp(&passed).sequence.wrapping_add(1)), b"")
    });
    assert!(cluster.client_receives().is_none());
    assert_eq!(cluster.connections(0), 0);
    plain.client_sends(&mut cluster, build::Tcp { sequence: SECOND, ..syn() }, b"");
    let begun = cluster.server_receives().expect("the repeated SYN begins a connection");
    assert_eq!(tcp(&begun).sequence, SECOND);
    cluster.run(Duration::from_millis(20));
    assert_eq!(cluster.connections(1), 1, "the replica is that of the new connection");
    assert_eq!(record(&cluster, 1, &plain.tuple).functions, record(&cluster, 0, &plain.tuple).functions);
}

#[test]
fn a_forged_syn_does_not_end_a_half_closed_connection() {
    let mut cluster = Cluster::start(Options::default());
    let seen = cluster.connect(PORT);
    cluster.client_sends(PORT, segment(FIN_ACK, 1001, 5001), b"");
    drain(&mut cluster);
    cluster.client_sends(PORT, build::Tcp { sequence: SECOND, ..syn() }, b"");
    drain(&mut cluster);
    cluster.server_sends(seen, segment(ACK, 5001, 1002), b"a long download");
    assert!(cluster.client_receives().is_some(), "it goes on");
}

/// A service at the server's address, with two backends at other ports of it. Connections outlive their backend's failure.
fn services() -> &'static [Arc<Services>; 2] {
    let backend = |port| BackendConfig { address: SERVER.into(), port: Some(port), weight: 1 };
    let config = ServiceConfig {
        name: "web".into(),
        address: SERVER.into(),
        protocol: ip_protocol::TCP,
        ports: std::vec![PortRange::single(80)],
        scheduler: Scheduler::default(),
        affinity: Affinity::default(),
        mode: ServiceMode::default(),
        on_failure: OnFailure::Keep,
        slow_start: None,
        quic: None,
        backends: std::vec![backend(8080), backend(8081)],
    };
    let services = || Arc::new(Services::new(core::slice::from_ref(&config), &Services::default()).unwrap());
    Box::leak(Box::new([services(), services()]))
}

#[test]
fn a_client_that_returns_after_its_backend_failed_gets_another_backend() {
    for end in ENDS {
        let services = services();
        let mut cluster =
            Cluster::start(Options { services: Some(services), is_translated: false, ..Options::default() });
        let plain = Plain::new(80);
        plain.lives(&mut cluster, b"question", end);
        let failed = record(&cluster, 0, &plain.tuple).reply.source_port;
        assert!(services[0].handle_health(0, usize::from(failed - 8080), false));
        cluster.node_mut(0).handle_input_change();
        plain.client_sends(&mut cluster, build::Tcp { sequence: SECOND, ..syn() }, b"");
        let arrived = cluster.server_receives().expect("the SYN passes").tuple.destination_port;
        assert_eq!(arrived, 8080 + 8081 - failed, "{end:?}");
    }
}

/// A client with the SYN proxy before its server: its first number, the server's, and the cookie between them.
struct Proxied {
    isn: u32,
    server: u32,
    cookie: u32,
}

impl Proxied {
    /// The SYN is answered, and nothing reaches the server.
    fn asks(cluster: &mut Cluster, isn: u32, server: u32) -> Self {
        cluster.client_sends(PORT, build::Tcp { sequence: isn, ..syn() }, b"");
        assert!(cluster.server_receives().is_none(), "the SYN does not pass the proxy");
        let answer = tcp(&cluster.client_receives().expect("the proxy answers"));
        assert_eq!((answer.flags, answer.acknowledgement), (SYN_ACK, isn + 1));
        Self { isn, server, cookie: answer.sequence }
    }

    /// The client acknowledges the cookie; the server's port for it is returned with its SYN.
    fn acknowledges(&self, cluster: &mut Cluster) -> u16 {
        cluster.client_sends(PORT, segment(ACK, self.isn + 1, self.cookie.wrapping_add(1)), b"");
        let syn = cluster.server_receives().expect("the SYN to the server");
        assert_eq!((tcp(&syn).flags, tcp(&syn).sequence), (tcp_flags::SYN, self.isn));
        syn.tuple.source_port
    }

    fn is_opened(&self, cluster: &mut Cluster, seen: u16) {
        cluster.server_sends(seen, segment(SYN_ACK, self.server, self.isn + 1), b"");
        let update = tcp(&cluster.client_receives().expect("the client's window opens"));
        assert_eq!((update.flags, update.sequence), (ACK, self.cookie.wrapping_add(1)));
        let acknowledged = tcp(&cluster.server_receives().expect("the server is acknowledged"));
        assert_eq!((acknowledged.flags, acknowledged.acknowledgement), (ACK, self.server + 1));
    }

    fn connects(cluster: &mut Cluster, isn: u32, server: u32) -> (Self, u16) {
        let client = Self::asks(cluster, isn, server);
        let seen = client.acknowledges(cluster);
        client.is_opened(cluster, seen);
        (client, seen)
    }

    fn exchanges(&self, cluster: &mut Cluster, seen: u16) {
        cluster.client_sends(PORT, segment(ACK, self.isn + 1, self.cookie.wrapping_add(1)), b"question");
        let question = tcp(&cluster.server_receives().expect("the question passes"));
        assert_eq!((question.sequence, question.acknowledgement), (self.isn + 1, self.server + 1));
        cluster.server_sends(seen, segment(ACK, self.server + 1, self.isn + 9), b"answer");
        let answer = tcp(&cluster.client_receives().expect("the answer passes"));
        assert_eq!((answer.sequence, answer.acknowledgement), (self.cookie.wrapping_add(1), self.isn + 9));
    }

    fn ends(&self, cluster: &mut Cluster, seen: u16, segments: &[(bool, u8, u32, u32)]) {
        for (is_clients, flags, client, server) in segments {
            if *is_clients {
                let acknowledged = self.cookie.wrapping_add(1 + server);
                cluster.client_sends(PORT, segment(*flags, self.isn + 9 + client, acknowledged), b"");
            } else {
                cluster.server_sends(seen, segment(*flags, self.server + 7, self.isn + 9 + server), b"");
            }
        }
        drain(cluster);
    }
}

fn always() -> Options {
    Options { syn_proxy: Mode::Always, ..Options::default() }
}

/// Ends that leave the record closing, half-closed ones among them.
fn proxied_ends() -> Vec<Vec<(bool, u8, u32, u32)>> {
    let half_closed = [std::vec![(true, FIN_ACK, 0, 6)], std::vec![(false, FIN_ACK, 0, 0)]];
    let acknowledged = std::vec![(true, FIN_ACK, 0, 6), (false, ACK, 0, 1)];
    let further = |segments: &[(bool, u8, u32, u32)]| {
        segments
            .iter()
            .map(|(is_clients, flags, client, server)| {
                (*is_clients, *flags, *client, if *is_clients { server + 6 } else { *server })
            })
            .collect()
    };
    ENDS.iter().map(|end| further(segments_of(*end))).chain(half_closed).chain([acknowledged]).collect()
}

#[test]
fn a_client_that_returns_from_its_port_is_proxied_anew() {
    for segments in proxied_ends() {
        for is_failed_over in [false, true] {
            let what = std::format!("{segments:?}, failed over: {is_failed_over}");
            let mut cluster = Cluster::start(always());
            let (former, seen) = Proxied::connects(&mut cluster, 1000, 5000);
            former.exchanges(&mut cluster, seen);
            former.ends(&mut cluster, seen, &segments);
            if is_failed_over {
                take_over(&mut cluster);
            }
            let id = u8::from(is_failed_over);
            assert_eq!(cluster.connections(id), 1, "{what}: the record is there");
            let (next, seen) = Proxied::connects(&mut cluster, SECOND, 70_000);
            next.exchanges(&mut cluster, seen);
            if !is_failed_over {
                // The peer's replica is that of the new connection.
                take_over(&mut cluster);
                next.exchanges(&mut cluster, seen);
            }
        }
    }
}

#[test]
fn a_syn_that_may_be_forged_leaves_a_closing_connection_as_it_is() {
    let mut cluster = Cluster::start(always());
    let (client, seen) = Proxied::connects(&mut cluster, 1000, 5000);
    client.exchanges(&mut cluster, seen);
    client.ends(&mut cluster, seen, &[(true, FIN_ACK, 0, 6)]);
    let before = record(&cluster, 0, &Plain::new(80).tuple);
    let _ = Proxied::asks(&mut cluster, SECOND, 0);
    let after = record(&cluster, 0, &Plain::new(80).tuple);
    assert_eq!((before.version, before.functions, before.protocol), (after.version, after.functions, after.protocol));
    cluster.server_sends(seen, segment(ACK, 5007, 1010), b"more");
    assert_eq!(tcp(&cluster.client_receives().expect("it passes")).sequence, client.cookie.wrapping_add(7));
}

#[test]
fn a_late_first_segment_of_a_closing_connection_begins_no_other() {
    let mut cluster = Cluster::start(always());
    let (client, seen) = Proxied::connects(&mut cluster, 1000, 5000);
    // The server closes at once; the client's first segment crosses its FIN.
    cluster.server_sends(seen, segment(FIN_ACK, 5001, 1001), b"");
    cluster.client_receives().expect("the FIN passes");
    cluster.client_sends(PORT, segment(ACK, 1001, client.cookie.wrapping_add(1)), b"question");
    let question = tcp(&cluster.server_receives().expect("the question passes"));
    assert_eq!((question.flags, question.sequence, question.acknowledgement), (ACK, 1001, 5001));
}

#[test]
fn a_server_that_still_holds_the_former_connection_is_reset_and_sent_the_syn_once_more() {
    let mut cluster = Cluster::start(always());
    let (former, seen) = Proxied::connects(&mut cluster, 1000, 5000);
    former.exchanges(&mut cluster, seen);
    former.ends(&mut cluster, seen, &[(false, FIN_ACK, 0, 0), (true, FIN_ACK, 0, 7)]);
    let next = Proxied::asks(&mut cluster, SECOND, 70_000);
    let seen = next.acknowledges(&mut cluster);
    // A challenge (RFC 5961 section 4.2): the number that it waits for.
    cluster.server_sends(seen, segment(ACK, 5008, 1009), b"");
    assert!(cluster.client_receives().is_none(), "the client knows of no such connection");
    let reset = tcp(&cluster.server_receives().expect("the server is reset"));
    assert_eq!((reset.flags, reset.sequence), (RST, 1009));
    let repeated = tcp(&cluster.server_receives().expect("and sent the SYN once more"));
    assert_eq!((repeated.flags, repeated.sequence), (tcp_flags::SYN, SECOND));
    next.is_opened(&mut cluster, seen);
    next.exchanges(&mut cluster, seen);
}

/// A client that has acknowledged a cookie, and whose server does not answer.
fn awaiting(cluster: &mut Cluster) -> Proxied {
    let client = Proxied::asks(cluster, 1000, 5000);
    client.acknowledges(cluster);
    client
}

#[test]
fn a_client_that_begins_anew_while_its_server_is_awaited_is_proxied_anew() {
    // Also a number close to the former one.
    for isn in [SECOND, 1001] {
        for is_failed_over in [false, true] {
            let mut cluster = Cluster::start(always());
            let _ = awaiting(&mut cluster);
            cluster.run(core::time::Duration::from_millis(50));
            if is_failed_over {
                take_over(&mut cluster);
            }
            let (client, seen) = Proxied::connects(&mut cluster, isn, 70_000);
            client.exchanges(&mut cluster, seen);
            cluster.run(core::time::Duration::from_secs(16));
            assert!(cluster.server_receives().is_none(), "the former SYN is not sent again");
            assert!(cluster.client_receives().is_none(), "the former opening is not given up");
            client.exchanges(&mut cluster, seen);
        }
    }
}

#[test]
fn a_syn_that_may_be_forged_leaves_a_handshake_as_it_is() {
    let mut cluster = Cluster::start(always());
    let client = awaiting(&mut cluster);
    let before = record(&cluster, 0, &Plain::new(80).tuple);
    let _ = Proxied::asks(&mut cluster, SECOND, 0);
    let after = record(&cluster, 0, &Plain::new(80).tuple);
    assert_eq!((before.version, before.functions, before.protocol), (after.version, after.functions, after.protocol));
    // The client probes its closed window meanwhile.
    cluster.client_sends(PORT, segment(ACK, 1001, client.cookie.wrapping_add(1)), b"");
    assert_eq!(cluster.dropped(0, flow::DropReason::SynProxyAwaiting), 1);
    let seen = before.reply.destination_port;
    client.is_opened(&mut cluster, seen);
    client.exchanges(&mut cluster, seen);
}
