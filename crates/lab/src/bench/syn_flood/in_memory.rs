//! What an answer to a SYN costs without a network: parse, the function that answers, and the answer in place.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use flow::conntrack::ProtocolState;
use flow::random::SplitMix64;
use flow::wire::{MacAddress, Packet, Parsed, parse};
use flow::{Connection, Frame, Instant, NodeId, PortId, Tuple};
use network_functions::chain::{ChainBuilder, Runtime};
use network_functions::expectation::Expectations;
use network_functions::function::{HandshakeExchange, TupleUse};
use network_functions::inspect::assembly::Assemblies;
use network_functions::log::Log;
use network_functions::syn_cookie::{CookieKey, CookieKeys};
use network_functions::syn_proxy::{Mode, Offered, RuleConfig, SynProxy, SynProxyRules};

const SYNS: usize = 1024;
const ROUNDS: usize = 50;
/// Room behind a frame for its answer.
const ROOM_BYTES: usize = 64;

struct NoneUsed;

impl TupleUse for NoneUsed {
    fn is_used(&self, _: &Tuple) -> bool {
        false
    }
}

/// Nanoseconds for each SYN: the least of the rounds.
pub(super) fn answer_ns() -> f64 {
    let rule = RuleConfig {
        name: "all".to_owned(),
        destinations: Vec::new(),
        ports: Vec::new(),
        mode: Mode::Always,
        offered: Offered::default(),
    };
    let keys = CookieKeys::new(CookieKey([1, 2]), []);
    let rules = SynProxyRules::new(&[rule], keys, None).expect("one rule");
    rules.set_unix_time(Instant::ZERO, Duration::from_secs(1_800_000_000));
    let chain = ChainBuilder::new().push(SynProxy::new(Arc::new(rules))).build().expect("one function");
    let (mut counters, mut log, mut expectations) = (chain.new_counters(), Log::default(), Expectations::default());
    let mut assemblies = Assemblies::default();
    let mut random = SplitMix64::new(1);
    let destination = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 10), 80);
    let links = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
    let syns: Vec<Vec<u8>> =
        (0..SYNS).map(|_| crate::testbed::syn_flood::frame(&mut random, links, destination)).collect();
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let mut buffers: Vec<Vec<u8>> = syns.iter().map(|syn| [&syn[..], &[0; ROOM_BYTES]].concat()).collect();
        let began = Clock::now();
        let mut answered = 0;
        for buffer in &mut buffers {
            let length_bytes = buffer.len() - ROOM_BYTES;
            let Some(mut frame) = Frame::new(buffer, 0, length_bytes, PortId(0)) else { continue };
            let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { continue };
            let tuple = headers.tuple;
            let mut packet = Packet { frame: &mut frame, headers: &mut headers };
            let mut connection = Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
            let mut runtime = Runtime {
                now: Instant::ZERO,
                node: NodeId(0),
                counters: &mut counters,
                log: &mut log,
                assemblies: &mut assemblies,
                expectations: &mut expectations,
                handshake: HandshakeExchange::NONE,
            };
            let is_begun = chain.init(&mut runtime, &NoneUsed, &mut connection, &packet).is_ok();
            let proxy = chain.handshake_proxy().filter(|_| !is_begun);
            answered += usize::from(proxy.is_some_and(|proxy| proxy.answer(Instant::ZERO, &mut packet)));
        }
        assert_eq!(answered, SYNS, "every SYN is answered");
        least = least.min(began.elapsed().as_nanos() as f64 / SYNS as f64);
    }
    least
}
