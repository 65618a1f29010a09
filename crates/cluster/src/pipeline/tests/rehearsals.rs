//! Packets that may be answers on a peer's connection: asking whether they could begin one takes nothing of what connections share.

use std::sync::Arc;

use flow::wire::build::Echo;
use network_functions::load_balancer::{
    Affinity, BackendConfig, LoadBalancer, Mode, OnFailure, Scheduler, ServiceConfig, Services,
};
use network_functions::nat::SourcePorts;
use network_functions::rate_limit::{LimitConfig, Per, Rate, RateLimit, RateLimitRules, RuleConfig};

use super::*;
use crate::pipeline::sharing::SharingConfig;

const BACKEND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 20);
const BURST: u64 = 5;

fn limited(per: Per) -> Arc<RateLimitRules> {
    let limit = LimitConfig { per, connections: Some(Rate { per_s: 1, burst: BURST }), ..LimitConfig::default() };
    let rule = RuleConfig { name: "clients".into(), limits: std::vec![limit], ..RuleConfig::default() };
    Arc::new(RateLimitRules::new(&[rule], HashKey([1, 2]), None).unwrap())
}

/// A node whose peer lives: packets that no connection has may be answers on the peer's. None of them waits.
fn beside_a_peer(chain: ChainBuilder) -> Bench {
    let tracker = Tracker::new(TrackerConfig::default());
    let pipeline = Pipeline::new(NodeId(0), 64, HashKey([1, 2]), tracker, chain.build().unwrap());
    let mut bench =
        Bench::of(pipeline.with_sharing(SharingConfig { wait_for_peer: Duration::ZERO, is_symmetric: false }));
    bench.pipeline.set_live_owners(core::iter::once(NodeId(1)));
    bench
}

fn datagram(port: u16) -> Vec<u8> {
    build::udp(&Tuple::v4(ip_protocol::UDP, (CLIENT, port), (SERVER, 53)), b"question")
}

fn query(identifier: u16) -> Vec<u8> {
    build::echo(&Tuple::echo(CLIENT.into(), SERVER.into(), identifier), Echo::default(), b"")
}

#[test]
fn new_flows_beside_a_living_peer_take_one_token_each() {
    for frame in [datagram as fn(u16) -> Vec<u8>, query] {
        for per in [Per::Rule, Per::Source, Per::Class] {
            let rules = limited(per);
            let mut bench = beside_a_peer(ChainBuilder::new().push(RateLimit::new(Arc::clone(&rules))));
            let begun = (1..=20).filter(|number| bench.feed_one(INSIDE, frame(*number)).is_some()).count() as u64;
            assert_eq!(begun, BURST, "{per:?}");
            let refused = rules.views().next().unwrap().limits[0].connections;
            assert_eq!(refused, 20 - BURST, "{per:?}: each is refused once");
        }
    }
}

#[test]
fn a_new_flow_beside_a_living_peer_counts_once_at_its_backend() {
    let service = ServiceConfig {
        name: "dns".into(),
        address: SERVER.into(),
        protocol: ip_protocol::UDP,
        ports: Vec::new(),
        scheduler: Scheduler::Maglev,
        affinity: Affinity::Connection,
        mode: Mode::Nat,
        on_failure: OnFailure::Keep,
        slow_start: None,
        quic: None,
        backends: std::vec![BackendConfig { address: BACKEND.into(), port: None, weight: 1 }],
    };
    let services = Arc::new(Services::new(&[service], &Services::default()).unwrap());
    let ports =
        SourcePorts::new(PortRange::new(1024, 65_535).unwrap(), NodeId(0), 1.try_into().unwrap(), HashKey([7, 8]));
    let balancer = LoadBalancer::new(Arc::clone(&services), ports.unwrap());
    let mut bench = beside_a_peer(ChainBuilder::new().push(balancer));
    for port in 1..=3 {
        bench.feed_one(INSIDE, datagram(port)).expect("it passes");
    }
    assert_eq!(services.services()[0].backends()[0].view().begun, 3);
    services.handle_health(0, 0, false);
    for port in 4..=6 {
        assert_eq!(bench.feed_one(INSIDE, datagram(port)), None);
    }
    assert_eq!(services.services()[0].refused(), 3);
}
