//! Frames of clients and servers at a SYN proxy: checked, answered, and passed on connections in any state.

use std::sync::Arc;
use std::time::Duration;

use flow::conntrack::ProtocolState;
use flow::wire::{Headers, Packet, Parsed, Transport, parse};
use flow::{Connection, Direction, Frame, Instant, NodeId, PortId, Tuple};
use network_functions::chain::{Chain, ChainBuilder, Runtime};
use network_functions::expectation::Expectations;
use network_functions::function::{AcceptedClient, HandshakeExchange, TupleUse, Verdict};
use network_functions::inspect::assembly::Assemblies;
use network_functions::log::Log;
use network_functions::syn_cookie::{CookieKey, CookieKeys};
use network_functions::syn_proxy::{Mode, Offered, RuleConfig, SynProxy, SynProxyRules, first_syn};

/// Room behind a frame for an answer; also less than an answer needs.
const ROOM_BYTES: usize = 24;

struct NoneUsed;

impl TupleUse for NoneUsed {
    fn is_used(&self, _: &Tuple) -> bool {
        false
    }
}

/// The first byte chooses the direction; sixteen are the state of the connection; the rest is a frame.
pub fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let Some((state, bytes)) = rest.split_first_chunk::<16>() else { return };
    let chain = chain();
    let direction = if choice & 1 == 0 { Direction::Original } else { Direction::Reply };
    with_packet(bytes, |packet| {
        let proxy = chain.handshake_proxy().expect("the chain has one");
        if let Some(Ok(client)) = proxy.check(Instant::ZERO, packet) {
            let tuple = packet.headers.tuple;
            if packet.become_segment(&tuple, 64, &first_syn(&client)) {
                assert_sound(packet);
                let mut connection =
                    begin(&chain, packet, Some(client)).expect("an accepted client's connection begins");
                process(&chain, &mut connection, packet, Direction::Original);
            }
        }
    });
    with_packet(bytes, |packet| {
        let is_answered = begin(&chain, packet, None).is_none();
        let proxy = chain.handshake_proxy().expect("the chain has one");
        if is_answered && proxy.answer(Instant::ZERO, packet) {
            assert_sound(packet);
        }
    });
    with_packet(bytes, |packet| {
        let tuple = packet.headers.tuple;
        let mut connection = Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
        connection.functions[..16].copy_from_slice(state);
        let _ = chain.as_sent(&connection, packet.headers, direction);
        if process(&chain, &mut connection, packet, direction) == Verdict::Forward {
            assert_sound(packet);
        }
    });
}

/// What is sent is a sound packet, as its headers show.
fn assert_sound(packet: &mut Packet<'_, '_>) {
    if !matches!(packet.headers.transport, Transport::Tcp(_)) || packet.headers.is_fragment {
        return;
    }
    let Ok(Parsed::Ip(headers)) = parse(packet.frame) else { panic!("it cannot be read: {:?}", parse(packet.frame)) };
    assert_eq!(headers.tuple, packet.headers.tuple);
    assert_eq!(headers.l3_bytes, packet.headers.l3_bytes);
}

fn with_packet(bytes: &[u8], with: impl FnOnce(&mut Packet<'_, '_>)) {
    let mut buffer = bytes.to_vec();
    buffer.resize(bytes.len() + ROOM_BYTES, 0);
    let Some(mut frame) = Frame::new(&mut buffer, 0, bytes.len(), PortId(0)) else { return };
    let Ok(Parsed::Ip(headers)) = parse(&frame) else { return };
    let mut headers: Headers = headers;
    with(&mut Packet { frame: &mut frame, headers: &mut headers });
}

fn chain() -> Chain {
    let rule = RuleConfig {
        name: "all".to_owned(),
        destinations: Vec::new(),
        ports: Vec::new(),
        mode: Mode::Always,
        offered: Offered::default(),
    };
    let rules = SynProxyRules::new(&[rule], CookieKeys::new(CookieKey([1, 2]), []), None).expect("one rule");
    rules.set_unix_time(Instant::ZERO, Duration::from_secs(1_800_000_000));
    ChainBuilder::new().push(SynProxy::new(Arc::new(rules))).build().expect("one function")
}

fn begin(chain: &Chain, packet: &Packet<'_, '_>, accepted: Option<AcceptedClient>) -> Option<Connection> {
    let tuple = packet.headers.tuple;
    let mut connection = Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
    let (mut counters, mut log, mut expectations) = (chain.new_counters(), Log::default(), Expectations::default());
    let mut assemblies = Assemblies::default();
    let mut runtime = Runtime {
        now: Instant::ZERO,
        node: NodeId(0),
        counters: &mut counters,
        log: &mut log,
        assemblies: &mut assemblies,
        expectations: &mut expectations,
        handshake: HandshakeExchange { accepted, ..HandshakeExchange::NONE },
    };
    chain.init(&mut runtime, &NoneUsed, &mut connection, packet).ok().map(|()| connection)
}

fn process(chain: &Chain, connection: &mut Connection, packet: &mut Packet<'_, '_>, direction: Direction) -> Verdict {
    let (mut counters, mut log, mut expectations) = (chain.new_counters(), Log::default(), Expectations::default());
    let mut assemblies = Assemblies::default();
    let mut runtime = Runtime {
        now: Instant::ZERO,
        node: NodeId(0),
        counters: &mut counters,
        log: &mut log,
        assemblies: &mut assemblies,
        expectations: &mut expectations,
        handshake: HandshakeExchange::NONE,
    };
    chain.process(&mut runtime, connection, packet, direction).verdict
}
