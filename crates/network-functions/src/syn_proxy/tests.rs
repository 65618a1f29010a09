//! The proxy between a client and a server that are written out, segment by segment.

mod activation;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;
use std::vec;
use std::vec::Vec;

use flow::conntrack::ProtocolState;
use flow::wire::{Headers, Parsed, build, parse};
use flow::{Connection, Frame, NodeId, PortId};
use proptest::prelude::*;

use super::*;
use crate::chain::{Chain, ChainBuilder, ChainCounters, Runtime};
use crate::expectation::Expectations;
use crate::function::{FlowState, HandshakeExchange};
use crate::inspect::assembly::Assemblies;
use crate::log::Log;
use crate::port_range::PortRange;
use crate::syn_cookie::{CookieKey, CookieKeys};
use crate::testing::{Tuples, tcp};

const UNIX: Duration = Duration::from_secs(1_800_000_000);
const CLIENT_ISN: u32 = 0xffff_fff0;
const SERVER_ISN: u32 = 77;

fn rule(mode: Mode, offered: Offered) -> RuleConfig {
    RuleConfig {
        name: "web".into(),
        destinations: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/64".parse().unwrap()],
        ports: vec![PortRange::single(80)],
        mode,
        offered,
    }
}

fn rules_of(configs: &[RuleConfig]) -> Arc<SynProxyRules> {
    let rules = SynProxyRules::new(configs, CookieKeys::new(CookieKey([1, 2]), []), None).unwrap();
    rules.set_unix_time(Instant::ZERO, UNIX);
    Arc::new(rules)
}

/// A node with the proxy alone in its chain.
struct Proxy {
    rules: Arc<SynProxyRules>,
    chain: Chain,
    counters: ChainCounters,
    now: Instant,
}

/// A segment as it was received.
#[derive(Clone, Debug)]
struct Received {
    headers: Headers,
    segment: TcpSegment,
    options: SegmentOptions,
}

impl Received {
    fn of(bytes: &[u8]) -> Self {
        let mut bytes = bytes.to_vec();
        let length = bytes.len();
        let frame = Frame::new(&mut bytes, 0, length, PortId(0)).unwrap();
        let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("a sound packet") };
        let Transport::Tcp(segment) = headers.transport else { panic!("a segment") };
        let header = &frame.bytes()[usize::from(headers.l4_offset)..usize::from(headers.payload_offset)];
        Self { headers, segment, options: SegmentOptions::read(header) }
    }
}

impl Proxy {
    fn new(mode: Mode, offered: Offered) -> Self {
        Self::with(rules_of(&[rule(mode, offered)]))
    }

    fn with(rules: Arc<SynProxyRules>) -> Self {
        let chain = ChainBuilder::new().push(SynProxy::new(Arc::clone(&rules))).build().unwrap();
        Self { counters: chain.new_counters(), chain, rules, now: Instant::ZERO }
    }

    fn view(&self) -> RuleView {
        self.rules.rules()[0].view(self.now)
    }

    /// Calls `with` with a packet, and returns the frame afterwards.
    fn packet<R>(
        &mut self,
        tuple: &Tuple,
        segment: build::Tcp<'_>,
        payload: &[u8],
        with: impl FnOnce(&mut Self, &mut Packet<'_, '_>) -> R,
    ) -> (R, Vec<u8>) {
        let mut bytes = build::tcp(tuple, segment, payload);
        let length = bytes.len();
        bytes.resize(length + 64, 0);
        let mut frame = Frame::new(&mut bytes, 0, length, PortId(0)).unwrap();
        let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { panic!("a sound packet") };
        let result = with(self, &mut Packet { frame: &mut frame, headers: &mut headers });
        (result, frame.bytes().to_vec())
    }

    fn init(&mut self, packet: &Packet<'_, '_>, accepted: Option<AcceptedClient>) -> Result<Connection, DropReason> {
        let tuple = packet.headers.tuple;
        let mut connection = Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
        let (mut log, mut expectations) = (Log::default(), Expectations::default());
        let mut assemblies = Assemblies::default();
        let mut runtime = Runtime {
            now: self.now,
            node: NodeId(0),
            counters: &mut self.counters,
            log: &mut log,
            assemblies: &mut assemblies,
            expectations: &mut expectations,
            handshake: HandshakeExchange { accepted, ..HandshakeExchange::NONE },
        };
        self.chain.init(&mut runtime, &Tuples::default(), &mut connection, packet)?;
        self.chain.note_entered(&connection);
        Ok(connection)
    }

    fn process(
        &mut self,
        connection: &mut Connection,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> (Verdict, Option<ToServer>) {
        let (mut log, mut expectations) = (Log::default(), Expectations::default());
        let mut assemblies = Assemblies::default();
        let mut runtime = Runtime {
            now: self.now,
            node: NodeId(0),
            counters: &mut self.counters,
            log: &mut log,
            assemblies: &mut assemblies,
            expectations: &mut expectations,
            handshake: HandshakeExchange::NONE,
        };
        let verdict = self.chain.process(&mut runtime, connection, packet, direction).verdict;
        (verdict, runtime.handshake.to_server)
    }

    /// A client's SYN: the answer, or the connection that begins unproxied.
    fn syn(&mut self, tuple: &Tuple, syn: build::Tcp<'_>) -> Result<Connection, Box<Received>> {
        let (connection, bytes) = self.packet(tuple, syn, b"", |proxy, packet| match proxy.init(packet, None) {
            Ok(connection) => Some(connection),
            Err(DropReason::SynProxied) => {
                assert!(proxy.chain.handshake_proxy().unwrap().answer(proxy.now, packet));
                None
            }
            Err(reason) => panic!("{reason:?}"),
        });
        connection.ok_or_else(|| Box::new(Received::of(&bytes)))
    }

    fn check(&mut self, tuple: &Tuple, segment: build::Tcp<'_>) -> Option<Result<AcceptedClient, DropReason>> {
        self.packet(tuple, segment, b"", |proxy, packet| {
            proxy.chain.handshake_proxy().unwrap().check(proxy.now, packet)
        })
        .0
    }

    /// A client's acknowledgement of a cookie, up to the SYN to the server.
    fn acknowledge(&mut self, tuple: &Tuple, segment: build::Tcp<'_>) -> (Connection, Received) {
        let client = self.check(tuple, segment).expect("it concerns the proxy").expect("a valid cookie");
        let (connection, bytes) = self.packet(tuple, segment, b"", |proxy, packet| {
            assert!(packet.become_segment(tuple, 64, &first_syn(&client)));
            let mut connection = proxy.init(packet, Some(client)).unwrap();
            assert_eq!(proxy.process(&mut connection, packet, Direction::Original).0, Verdict::Forward);
            connection
        });
        (connection, Received::of(&bytes))
    }

    fn pass(
        &mut self,
        connection: &mut Connection,
        direction: Direction,
        segment: build::Tcp<'_>,
    ) -> (Result<Received, DropReason>, Option<ToServer>) {
        let tuple = *connection.tuple(direction);
        let ((verdict, to_server), bytes) =
            self.packet(&tuple, segment, b"data", |proxy, packet| proxy.process(connection, packet, direction));
        match verdict {
            Verdict::Forward => (Ok(Received::of(&bytes)), to_server),
            Verdict::Drop(reason) => (Err(reason), to_server),
            other => panic!("{other:?}"),
        }
    }

    fn state(&self, connection: &Connection) -> SynProxyState {
        self.chain.state_of::<SynProxyState>(connection).unwrap()
    }
}

fn client() -> Tuple {
    tcp("10.0.0.2:4000", "192.0.2.1:80")
}

fn linux_syn() -> build::Tcp<'static> {
    build::Tcp {
        flags: tcp_flags::SYN,
        sequence: CLIENT_ISN,
        window: 64240,
        maximum_segment_bytes: Some(1460),
        window_scale: Some(9),
        sack_permitted: true,
        timestamps: Some((5000, 0)),
        ..build::Tcp::default()
    }
}

fn ack_of(syn_ack: &Received, timestamp: u32) -> build::Tcp<'static> {
    build::Tcp {
        flags: tcp_flags::ACK,
        sequence: CLIENT_ISN.wrapping_add(1),
        acknowledgement: syn_ack.segment.sequence.wrapping_add(1),
        window: 501,
        timestamps: syn_ack.options.timestamps.map(|(value, _)| (timestamp, value)),
        ..build::Tcp::default()
    }
}

fn server_syn_ack() -> build::Tcp<'static> {
    build::Tcp {
        flags: tcp_flags::SYN | tcp_flags::ACK,
        sequence: SERVER_ISN,
        acknowledgement: CLIENT_ISN.wrapping_add(1),
        window: 65160,
        maximum_segment_bytes: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some((900, 5001)),
        ..build::Tcp::default()
    }
}

/// Both handshakes; returns the connection and the cookie.
fn opened(proxy: &mut Proxy, server: build::Tcp<'_>) -> (Connection, Received) {
    let syn_ack = proxy.syn(&client(), linux_syn()).unwrap_err();
    let (mut connection, _) = proxy.acknowledge(&client(), ack_of(&syn_ack, 5001));
    proxy.pass(&mut connection, Direction::Reply, server).0.unwrap();
    (connection, *syn_ack)
}

#[test]
fn a_syn_is_answered_with_what_the_rule_offers() {
    for (address, size) in [("192.0.2.1:80", 1460), ("[2001:db8::1]:80", 1440)] {
        let source = if address.starts_with('[') { "[2001:db8:1::2]:4000" } else { "10.0.0.2:4000" };
        let mut proxy = Proxy::new(Mode::Always, Offered::default());
        let tuple = tcp(source, address);
        let answer = proxy.syn(&tuple, linux_syn()).unwrap_err();
        assert_eq!(answer.headers.tuple, tuple.inverse());
        let TcpSegment { flags, acknowledgement, window, .. } = answer.segment;
        assert_eq!((flags, acknowledgement), (tcp_flags::SYN | tcp_flags::ACK, CLIENT_ISN.wrapping_add(1)));
        assert_eq!(window, 0, "no data before the server has answered");
        assert_eq!((answer.segment.window_scale, answer.segment.sack_permitted), (Some(7), true));
        assert_eq!(answer.segment.maximum_segment_bytes, Some(size));
        assert_eq!(answer.options.timestamps.map(|(_, echo)| echo), Some(5000));
        assert_eq!(proxy.view().answered, 1);
    }
}

#[test]
fn what_the_client_or_the_rule_lacks_is_not_offered() {
    let nothing = build::Tcp { flags: tcp_flags::SYN, sequence: CLIENT_ISN, ..build::Tcp::default() };
    let without = |timestamps, sack, window_scale| Offered { timestamps, sack, window_scale, ..Offered::default() };
    for (offered, syn, expected) in [
        (Offered::default(), nothing, (None, false, false)),
        (without(false, true, Some(7)), linux_syn(), (None, false, false)),
        (without(true, false, Some(3)), linux_syn(), (Some(3), false, true)),
        (without(true, true, None), linux_syn(), (None, true, true)),
    ] {
        let answer = Proxy::new(Mode::Always, offered).syn(&client(), syn).unwrap_err();
        let TcpSegment { window_scale, sack_permitted, .. } = answer.segment;
        assert_eq!((window_scale, sack_permitted, answer.options.timestamps.is_some()), expected);
    }
}

#[test]
fn an_accepted_client_s_options_are_in_the_syn_to_the_server() {
    let mut proxy = Proxy::new(Mode::Always, Offered::default());
    let syn_ack = proxy.syn(&client(), linux_syn()).unwrap_err();
    let (connection, syn) = proxy.acknowledge(&client(), ack_of(&syn_ack, 5001));
    assert_eq!(syn.headers.tuple, client());
    assert_eq!((syn.segment.flags, syn.segment.sequence), (tcp_flags::SYN, CLIENT_ISN));
    assert_eq!((syn.segment.window_scale, syn.segment.sack_permitted), (Some(9), true));
    assert_eq!((syn.segment.maximum_segment_bytes, syn.segment.window), (Some(1460), u16::MAX));
    assert_eq!(syn.options.timestamps, Some((5001, 0)));
    assert_eq!(proxy.state(&connection).phase(), Phase::Awaiting);
    let repeated = syn_to_server(&proxy.state(&connection), CLIENT_ISN, 9).unwrap();
    assert_eq!((repeated.sequence, repeated.window_scale, repeated.timestamps), (CLIENT_ISN, Some(9), Some((5001, 0))));
}

#[test]
fn any_node_with_the_key_accepts_a_cookie_also_by_a_probe_of_the_window() {
    let syn_ack = Proxy::new(Mode::Always, Offered::default()).syn(&client(), linux_syn()).unwrap_err();
    for sequence in [CLIENT_ISN.wrapping_add(1), CLIENT_ISN] {
        let mut other = Proxy::new(Mode::Always, Offered::default());
        let segment = build::Tcp { sequence, ..ack_of(&syn_ack, 5001) };
        let accepted = other.check(&client(), segment).unwrap().unwrap();
        assert_eq!((accepted.sequence, accepted.rule), (CLIENT_ISN, rule_id("web")));
    }
}

#[test]
fn numbers_and_timestamps_of_both_sides_are_translated() {
    let mut proxy = Proxy::new(Mode::Always, Offered::default());
    let syn_ack = proxy.syn(&client(), linux_syn()).unwrap_err();
    let cookie = syn_ack.segment.sequence;
    let cookie_time = syn_ack.options.timestamps.unwrap().0;
    let (mut connection, _) = proxy.acknowledge(&client(), ack_of(&syn_ack, 5001));

    let (update, acknowledgement) = proxy.pass(&mut connection, Direction::Reply, server_syn_ack());
    let update = update.unwrap();
    assert_eq!((update.segment.flags, update.segment.sequence), (tcp_flags::ACK, cookie.wrapping_add(1)));
    assert_eq!(update.segment.acknowledgement, CLIENT_ISN.wrapping_add(1));
    assert_eq!((update.segment.window, update.segment.payload_bytes), (65160 >> 7, 0));
    assert_eq!(update.options.timestamps, Some((cookie_time, 5001)));
    let expected = ServerAcknowledgement {
        sequence: CLIENT_ISN.wrapping_add(1),
        acknowledgement: SERVER_ISN + 1,
        timestamps: Some((5001, 900)),
    };
    assert_eq!(acknowledgement, Some(ToServer::Acknowledgement(expected)));
    // The server did not get it, and repeats its SYN/ACK.
    let (repeated, acknowledgement) = proxy.pass(&mut connection, Direction::Reply, server_syn_ack());
    assert_eq!(
        (repeated.unwrap().segment, acknowledgement),
        (update.segment, Some(ToServer::Acknowledgement(expected)))
    );

    let request = build::Tcp {
        flags: tcp_flags::ACK,
        sequence: CLIENT_ISN.wrapping_add(1),
        acknowledgement: cookie.wrapping_add(1),
        timestamps: Some((5002, cookie_time)),
        sack_blocks: &[(cookie.wrapping_add(101), cookie.wrapping_add(201))],
        ..build::Tcp::default()
    };
    let request = proxy.pass(&mut connection, Direction::Original, request).0.unwrap();
    assert_eq!(request.segment.sequence, CLIENT_ISN.wrapping_add(1));
    assert_eq!((request.segment.acknowledgement, request.segment.sack_end), (SERVER_ISN + 1, SERVER_ISN + 201));
    assert_eq!(request.options.timestamps, Some((5002, 900)));

    let answer = build::Tcp {
        flags: tcp_flags::ACK,
        sequence: SERVER_ISN + 1,
        acknowledgement: CLIENT_ISN.wrapping_add(5),
        window: 1000,
        timestamps: Some((950, 5002)),
        ..build::Tcp::default()
    };
    let answer = proxy.pass(&mut connection, Direction::Reply, answer).0.unwrap();
    assert_eq!(
        (answer.segment.sequence, answer.segment.acknowledgement),
        (cookie.wrapping_add(1), CLIENT_ISN.wrapping_add(5))
    );
    assert_eq!((answer.segment.window, answer.options.timestamps), (1000, Some((cookie_time.wrapping_add(50), 5002))));
    let RuleView { accepted, opened, mismatched, .. } = proxy.view();
    assert_eq!((accepted, opened, mismatched), (1, 1, 0));
}

#[test]
fn the_tracker_sees_acknowledgements_in_the_servers_numbers() {
    let mut proxy = Proxy::new(Mode::Always, Offered::default());
    let (connection, syn_ack) = opened(&mut proxy, server_syn_ack());
    let acknowledgement = syn_ack.segment.sequence.wrapping_add(11);
    let mut segment =
        TcpSegment { flags: tcp_flags::ACK, acknowledgement, sack_end: acknowledgement, ..TcpSegment::default() };
    let function = SynProxy::new(Arc::clone(&proxy.rules));
    function.as_sent(&proxy.state(&connection), &mut segment, Direction::Original);
    assert_eq!((segment.acknowledgement, segment.sack_end), (SERVER_ISN + 11, SERVER_ISN + 11));
    let before = segment;
    function.as_sent(&proxy.state(&connection), &mut segment, Direction::Reply);
    assert_eq!(segment, before);
}

#[test]
fn windows_of_a_server_that_scales_otherwise_are_shifted() {
    let window = |server_scale, direction, window| {
        let mut proxy = Proxy::new(Mode::Always, Offered::default());
        let server = build::Tcp { window_scale: server_scale, ..server_syn_ack() };
        let (mut connection, _) = opened(&mut proxy, server);
        let segment = build::Tcp { flags: tcp_flags::ACK, window, ..build::Tcp::default() };
        proxy.pass(&mut connection, direction, segment).0.unwrap().segment.window
    };
    // The client was announced 7 and scales by 9 itself.
    assert_eq!(window(Some(7), Direction::Reply, 300), 300);
    assert_eq!(window(Some(9), Direction::Reply, 300), 1200);
    assert_eq!(window(Some(4), Direction::Reply, 300), 37);
    assert_eq!(window(Some(4), Direction::Reply, 1), 1, "an open window stays open");
    assert_eq!(window(Some(4), Direction::Reply, 0), 0);
    assert_eq!(window(Some(14), Direction::Reply, u16::MAX), u16::MAX);
    assert_eq!(window(Some(4), Direction::Original, 300), 300);
    // Without window scaling at the server, its windows and those towards it are plain.
    assert_eq!(window(None, Direction::Reply, 6400), 50);
    assert_eq!(window(None, Direction::Original, 100), 51_200);
    assert_eq!(window(None, Direction::Original, 300), u16::MAX);
}

#[test]
fn a_server_without_timestamps_is_noted() {
    let mut proxy = Proxy::new(Mode::Always, Offered::default());
    let (connection, _) = opened(&mut proxy, build::Tcp { timestamps: None, ..server_syn_ack() });
    assert!(!proxy.state(&connection).has_timestamps());
    assert_eq!(proxy.view().mismatched, 1);
}

#[test]
fn a_server_that_refuses_resets_the_client() {
    let mut proxy = Proxy::new(Mode::Always, Offered::default());
    let syn_ack = proxy.syn(&client(), linux_syn()).unwrap_err();
    let (mut connection, _) = proxy.acknowledge(&client(), ack_of(&syn_ack, 5001));
    let refusal = build::Tcp {
        flags: tcp_flags::RST | tcp_flags::ACK,
        acknowledgement: CLIENT_ISN.wrapping_add(1),
        ..build::Tcp::default()
    };
    let reset = proxy.pass(&mut connection, Direction::Reply, refusal).0.unwrap();
    assert!(reset.segment.has(tcp_flags::RST));
    assert_eq!(reset.segment.sequence, syn_ack.segment.sequence.wrapping_add(1));
    assert_eq!(proxy.view().refused, 1);
    assert_eq!(reset_to_client(&proxy.state(&connection), CLIENT_ISN).sequence, reset.segment.sequence);
}

#[test]
fn a_server_that_holds_an_older_connection_is_to_be_reset_at_the_number_that_it_acknowledges() {
    let mut proxy = Proxy::new(Mode::Always, Offered::default());
    let syn_ack = proxy.syn(&client(), linux_syn()).unwrap_err();
    let (mut connection, _) = proxy.acknowledge(&client(), ack_of(&syn_ack, 5001));
    let challenge = build::Tcp { flags: tcp_flags::ACK, acknowledgement: 1234, ..build::Tcp::default() };
    let (dropped, to_server) = proxy.pass(&mut connection, Direction::Reply, challenge);
    assert_eq!((dropped.err(), to_server), (Some(DropReason::InvalidTcpState), Some(ToServer::ResetOlder(1234))));
    assert_eq!(proxy.state(&connection).phase(), Phase::Awaiting);
}

#[test]
fn a_client_that_sends_before_the_server_has_answered_is_not_forwarded() {
    let mut proxy = Proxy::new(Mode::Always, Offered::default());
    let syn_ack = proxy.syn(&client(), linux_syn()).unwrap_err();
    let (mut connection, _) = proxy.acknowledge(&client(), ack_of(&syn_ack, 5001));
    let early = proxy.pass(&mut connection, Direction::Original, ack_of(&syn_ack, 5002)).0;
    assert_eq!(early.unwrap_err(), DropReason::SynProxyAwaiting);
    let stray = build::Tcp { flags: tcp_flags::ACK, ..build::Tcp::default() };
    assert_eq!(proxy.pass(&mut connection, Direction::Reply, stray).0.unwrap_err(), DropReason::InvalidTcpState);
}

#[test]
fn bad_acknowledgements_and_resets_have_reasons_of_their_own() {
    let mut proxy = Proxy::new(Mode::Always, Offered::default());
    let syn_ack = proxy.syn(&client(), linux_syn()).unwrap_err();
    let good = ack_of(&syn_ack, 5001);
    let forged = build::Tcp { acknowledgement: good.acknowledgement ^ 1, ..good };
    assert_eq!(proxy.check(&client(), forged), Some(Err(DropReason::SynCookieInvalid)));
    let reset = build::Tcp { flags: tcp_flags::RST, ..good };
    assert_eq!(proxy.check(&client(), reset), Some(Err(DropReason::SynProxyReset)));
    proxy.now = Instant::ZERO + Duration::from_secs(200);
    assert_eq!(proxy.check(&client(), good), Some(Err(DropReason::SynCookieExpired)));
    let other_port = tcp("10.0.0.2:4000", "192.0.2.1:81");
    assert_eq!(proxy.check(&other_port, forged), None);
    let view = proxy.view();
    assert_eq!((view.invalid, view.expired, view.resets, view.accepted), (1, 1, 1, 0));
}

proptest! {
    /// Whatever the two sides support, numbers that a side sends are those that it gets acknowledged.
    #[test]
    fn the_offsets_of_both_directions_are_inverse(
        client_isn: u32, server_isn: u32, timestamps: bool, server_time: u32, step in 0u32..1 << 20,
    ) {
        let mut proxy = Proxy::new(Mode::Always, Offered::default());
        let syn = build::Tcp { sequence: client_isn, timestamps: timestamps.then_some((5000, 0)), ..linux_syn() };
        let syn_ack = proxy.syn(&client(), syn).unwrap_err();
        let ack = build::Tcp { sequence: client_isn.wrapping_add(1), ..ack_of(&syn_ack, 5001) };
        let (mut connection, _) = proxy.acknowledge(&client(), ack);
        let server = build::Tcp {
            sequence: server_isn, acknowledgement: client_isn.wrapping_add(1),
            timestamps: timestamps.then_some((server_time, 5001)), ..server_syn_ack()
        };
        proxy.pass(&mut connection, Direction::Reply, server).0.unwrap();
        // The state is what is replicated.
        let state = proxy.state(&connection);
        let mut attributes = Vec::new();
        state.encode(&mut attributes);
        prop_assert_eq!(SynProxyState::decode(&attributes).unwrap(), state);

        let sent = build::Tcp {
            flags: tcp_flags::ACK, sequence: server_isn.wrapping_add(step),
            timestamps: timestamps.then_some((server_time.wrapping_add(step), 5001)), ..build::Tcp::default()
        };
        let received = proxy.pass(&mut connection, Direction::Reply, sent).0.unwrap();
        let back = build::Tcp {
            flags: tcp_flags::ACK, acknowledgement: received.segment.sequence,
            timestamps: received.options.timestamps.map(|(value, _)| (5002, value)), ..build::Tcp::default()
        };
        let acknowledged = proxy.pass(&mut connection, Direction::Original, back).0.unwrap();
        prop_assert_eq!(acknowledged.segment.acknowledgement, sent.sequence);
        prop_assert_eq!(acknowledged.options.timestamps.map(|(_, echo)| echo), sent.timestamps.map(|(value, _)| value));
    }
}
