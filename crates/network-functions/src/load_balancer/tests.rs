//! Scenarios and properties of the load balancer.

mod choice;
mod direct_return;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::num::NonZeroU8;
use core::time::Duration;
use std::collections::{HashMap, HashSet};

use flow::wire::ip_protocol::{ICMP, TCP, UDP};
use flow::{Connection, HashKey, Instant, NodeId};
use proptest::prelude::*;

use super::*;
use crate::chain::{Chain, ChainBuilder};
use crate::firewall::{Action, Firewall, FirewallConfig, Rule};
use crate::function::FlowState;
use crate::nat::{Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourceRule};
use crate::port_range::PortRange;
use crate::rule_set::Conditions;
use crate::testing::{Begun, Gateway, INSIDE, OUTSIDE, tcp, udp};

const KEY: HashKey = HashKey([7, 8]);

fn ports(node: u8) -> SourcePorts {
    let nodes = NonZeroU8::new(2).expect("not 0");
    SourcePorts::new(SOURCE_PORTS_DEFAULT, NodeId(node), nodes, KEY).expect("there are enough")
}

fn backend(end: &str, weight: u8) -> BackendConfig {
    let end: SocketAddr = end.parse().expect(end);
    BackendConfig { address: end.ip(), port: (end.port() != 0).then_some(end.port()), weight }
}

fn service(name: &str, address: &str, protocol: u8, backends: Vec<BackendConfig>) -> ServiceConfig {
    let address: SocketAddr = address.parse().expect(address);
    ServiceConfig {
        name: String::from(name),
        address: address.ip(),
        protocol,
        ports: vec![PortRange::single(address.port())],
        scheduler: Scheduler::default(),
        affinity: Affinity::default(),
        mode: Mode::default(),
        on_failure: OnFailure::default(),
        slow_start: None,
        quic: None,
        backends,
    }
}

/// A web service with three backends, and its twin over IPv6.
fn web() -> Vec<ServiceConfig> {
    let four = (1..=3).map(|host| backend(&std::format!("10.0.0.{host}:8080"), 1)).collect();
    let six = (1..=3).map(|host| backend(&std::format!("[fd00::{host}]:8080"), 1)).collect();
    vec![service("web", "192.0.2.80:80", TCP, four), service("web6", "[2001:db8::80]:80", TCP, six)]
}

fn with(change: impl Fn(&mut ServiceConfig)) -> Vec<ServiceConfig> {
    let mut configs = web();
    configs.iter_mut().for_each(change);
    configs
}

fn services(configs: &[ServiceConfig]) -> Arc<Services> {
    Arc::new(Services::new(configs, &Services::default()).unwrap_or_else(|error| panic!("{error}")))
}

fn gateway(services: &Arc<Services>) -> Gateway {
    Gateway::with(LoadBalancer::new(Arc::clone(services), ports(0)))
}

fn client(number: u16) -> Tuple {
    tcp(&std::format!("198.51.100.{}:{}", 1 + number % 250, 1024 + number), "192.0.2.80:80")
}

fn end(gateway: &mut Gateway, connection: &Connection) {
    gateway.tuples.0.remove(&connection.original);
    gateway.tuples.0.remove(&connection.reply);
    gateway.chain.note_left(connection);
}

fn backend_of(begun: &Begun) -> SocketAddr {
    begun.outgoing.destination_addr()
}

fn connections(services: &Services) -> Vec<u32> {
    services.services()[0].backends().iter().map(|backend| backend.view().connections).collect()
}

#[test]
fn connections_are_spread_and_their_replies_come_from_the_service() {
    let services = services(&web());
    let mut gateway = gateway(&services);
    let mut used = HashMap::new();
    for number in 0..300 {
        let tuple = client(number);
        let mut begun = gateway.begin(OUTSIDE, tuple).unwrap();
        assert_eq!(begun.outgoing.source_addr(), tuple.source_addr(), "the source stays");
        assert_eq!(gateway.answer(&mut begun), tuple.inverse());
        *used.entry(backend_of(&begun)).or_insert(0u32) += 1;
    }
    assert_eq!(used.len(), 3);
    assert!(used.values().all(|count| (70..=130).contains(count)), "{used:?}");
    assert_eq!(gateway.counter("load_balancer.service/web/connections"), 300);
    assert_eq!(connections(&services).iter().sum::<u32>(), 300);
}

#[test]
fn ipv6_is_balanced_alike() {
    let mut gateway = gateway(&services(&web()));
    let tuple = tcp("[2001:db8:1::1]:5000", "[2001:db8::80]:80");
    let mut begun = gateway.begin(OUTSIDE, tuple).unwrap();
    assert!(begun.outgoing.destination_ip().is_ipv6() && begun.outgoing.destination_port == 8080);
    assert_eq!(gateway.answer(&mut begun), tuple.inverse());
}

#[test]
fn other_packets_are_left_alone() {
    let services = services(&web());
    let mut gateway = gateway(&services);
    for tuple in [tcp("198.51.100.1:5000", "192.0.2.80:81"), udp("198.51.100.1:5000", "192.0.2.80:80")] {
        let begun = gateway.begin(OUTSIDE, tuple).unwrap();
        assert_eq!(begun.outgoing, tuple);
    }
    assert_eq!(connections(&services), [0, 0, 0]);
}

#[test]
fn full_nat_has_backends_answer_to_an_address_of_the_cluster() {
    let configs = with(|service| {
        let source = if service.address.is_ipv4() { "10.0.0.254" } else { "fd00::fe" };
        service.mode = Mode::FullNat(vec![source.parse().unwrap()]);
    });
    let mut gateway = gateway(&services(&configs));
    let mut seen = HashSet::new();
    for number in 0..200 {
        let mut begun = gateway.begin(OUTSIDE, client(number)).unwrap();
        assert_eq!(begun.outgoing.source_ip(), "10.0.0.254".parse::<core::net::IpAddr>().unwrap());
        assert!(ports(0).ports().contains(begun.outgoing.source_port), "a port of this node's part");
        assert!(seen.insert(begun.outgoing), "no tuple twice");
        assert_eq!(gateway.answer(&mut begun), client(number).inverse());
    }
}

#[test]
fn another_node_continues_on_the_same_backend_whatever_it_would_choose() {
    let services_here = services(&web());
    let mut here = gateway(&services_here);
    let begun = here.begin(OUTSIDE, client(1)).unwrap();
    let mut attributes = Vec::new();
    here.chain.encode_states(&begun.connection, &mut attributes);

    // The other node has the services in another order, one more, and its checks of this backend fail.
    let mut configs = web();
    configs.reverse();
    configs.insert(0, service("dns", "192.0.2.80:53", UDP, vec![backend("10.0.0.9:53", 1)]));
    let services_there = services(&configs);
    let web_there = services_there.services().iter().position(|service| service.name() == "web").unwrap();
    let chosen =
        services_there.services()[web_there].backends().iter().position(|it| it.view().end == backend_of(&begun));
    services_there.handle_health(web_there, chosen.unwrap(), false);
    let mut there = gateway(&services_there);
    let mut copy =
        Connection::new(begun.connection.original, NodeId(0), begun.connection.protocol, Instant::FAR_FUTURE);
    copy.reply = begun.connection.reply;
    there.chain.decode_states(&mut copy, &attributes).unwrap();
    there.chain.note_entered(&copy);
    let (_, outgoing) = there.pass(&mut copy, OUTSIDE, Direction::Original);
    assert_eq!(outgoing, begun.outgoing);
    assert_eq!(services_there.services()[web_there].backends()[chosen.unwrap()].view().connections, 1);
    assert!(there.chain.may_continue(&copy).is_ok(), "connections stay by default");
}

#[test]
fn a_drained_backend_gets_no_new_connections_and_keeps_its_own() {
    let before = services(&web());
    let mut old = gateway(&before);
    let mut begun: Vec<_> = (0..60).map(|number| old.begin(OUTSIDE, client(number)).unwrap()).collect();
    let drained = backend_of(&begun[0]);
    let configs = with(|service| {
        let matching = |it: &&mut BackendConfig| SocketAddr::new(it.address, it.port.unwrap_or(0)) == drained;
        service.backends.iter_mut().filter(matching).for_each(|it| it.weight = 0);
    });
    let after = Arc::new(Services::new(&configs, &before).unwrap());
    assert_eq!(connections(&after), connections(&before), "numbers of connections continue across the reload");
    old.chain = rebuilt(&old, &after);
    for one in &mut begun {
        let (_, outgoing) = old.pass(&mut one.connection, OUTSIDE, Direction::Original);
        assert_eq!(outgoing, one.outgoing);
        assert!(old.chain.may_continue(&one.connection).is_ok());
    }
    for number in 1000..1100 {
        assert_ne!(backend_of(&old.begin(OUTSIDE, client(number)).unwrap()), drained);
    }
}

fn rebuilt(gateway: &Gateway, services: &Arc<Services>) -> Chain {
    let balancer = LoadBalancer::new(Arc::clone(services), ports(0));
    ChainBuilder::new().push(balancer).build_within(gateway.chain.layout()).expect("one function")
}

#[test]
fn connections_of_a_removed_backend_are_still_counted_when_it_returns() {
    let before = services(&web());
    let mut gateway = gateway(&before);
    let begun: Vec<_> = (0..60).map(|number| gateway.begin(OUTSIDE, client(number)).unwrap()).collect();
    let counted = connections(&before);
    let first_removed = with(|service| {
        service.backends.remove(0);
    });
    let without = Services::new(&first_removed, &before).unwrap();
    assert_eq!(connections(&without), counted[1..]);
    let after = Arc::new(Services::new(&web(), &without).unwrap());
    assert_eq!(connections(&after), counted);
    gateway.chain = rebuilt(&gateway, &after);
    begun.iter().for_each(|one| end(&mut gateway, &one.connection));
    assert_eq!(connections(&after), [0, 0, 0]);
}

#[test]
fn a_failed_backend_gets_no_new_connections_until_it_returns() {
    let services = services(&web());
    let mut gateway = gateway(&services);
    assert!(services.handle_health(0, 1, false));
    assert!(!services.handle_health(0, 1, false), "nothing changed");
    let failed = services.services()[0].backends()[1].view().end;
    let begun: Vec<_> = (0..200).map(|number| gateway.begin(OUTSIDE, client(number)).unwrap()).collect();
    assert!(begun.iter().all(|one| backend_of(one) != failed));
    assert!(services.handle_health(0, 1, true));
    let begun: Vec<_> = (200..400).map(|number| gateway.begin(OUTSIDE, client(number)).unwrap()).collect();
    assert!(begun.iter().any(|one| backend_of(one) == failed));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the health of backends comes from another thread")]
fn a_backend_seen_as_down_by_another_thread_gets_no_new_connections() {
    for _ in 0..8 {
        let services = services(&web());
        let mut gateway = gateway(&services);
        let failed = services.services()[0].backends()[1].view().end;
        let checker = Arc::clone(&services);
        let checks = std::thread::spawn(move || checker.handle_health(0, 1, false));
        while !services.services()[0].backends()[1].view().is_down {
            std::hint::spin_loop();
        }
        for number in 0..50 {
            assert_ne!(backend_of(&gateway.begin(OUTSIDE, client(number)).unwrap()), failed);
        }
        assert!(checks.join().unwrap());
    }
}

#[test]
fn connections_of_a_failed_backend_end_where_the_service_ends_them() {
    for (on_failure, outcome) in [(OnFailure::Keep, Ok(())), (OnFailure::End, Err(DropReason::BackendFailed))] {
        let services = services(&with(|service| service.on_failure = on_failure));
        let mut gateway = gateway(&services);
        let begun = gateway.begin(OUTSIDE, client(1)).unwrap();
        let backends = services.services()[0].backends();
        let chosen = backends.iter().position(|it| it.view().end == backend_of(&begun)).unwrap();
        services.handle_health(0, (chosen + 1) % 3, false);
        assert_eq!(gateway.chain.may_continue(&begun.connection), Ok(()), "another backend failed");
        services.handle_health(0, chosen, false);
        assert_eq!(gateway.chain.may_continue(&begun.connection), outcome);
    }
}

/// How many of `clients` come to a backend.
fn share_of(gateway: &mut Gateway, end: SocketAddr, clients: core::ops::Range<u16>) -> usize {
    clients.filter(|number| backend_of(&gateway.begin(OUTSIDE, client(*number)).unwrap()) == end).count()
}

#[test]
fn a_backend_that_returns_gets_a_growing_part_of_its_weight() {
    // A third of 300 in the end; with 1/16 of the weight 1 of 33, with 8/16 1 of 5. Least connections makes up for what it lacked before.
    for (scheduler, expected) in
        [(Scheduler::Maglev, [0..25, 30..90, 70..135]), (Scheduler::LeastConnections, [0..25, 100..125, 160..200])]
    {
        let services = services(&with(|service| {
            service.scheduler = scheduler;
            service.slow_start = Some(Duration::from_secs(30));
        }));
        let mut gateway = gateway(&services);
        let end = services.services()[0].backends()[1].view().end;
        assert_eq!(services.poll_timeout(), None, "at the beginning all have their whole weight");
        services.handle_health(0, 1, false);
        services.handle_health(0, 1, true);
        let began = Instant::from_millis(1_000);
        services.handle_timeout(began);
        let mut shares = vec![services.services()[0].backends()[1].view().share];
        let mut counts = vec![share_of(&mut gateway, end, 0..300)];
        for (round, seconds) in [(1, 14), (2, 30)] {
            services.handle_timeout(began + Duration::from_secs(seconds));
            shares.push(services.services()[0].backends()[1].view().share);
            counts.push(share_of(&mut gateway, end, round * 300..(round + 1) * 300));
        }
        assert_eq!(shares, [1, 8, SHARES]);
        assert!(expected.iter().zip(&counts).all(|(range, count)| range.contains(count)), "{scheduler:?}: {counts:?}");
        assert_eq!(services.poll_timeout(), None);
    }
}

#[test]
fn a_backend_that_a_reload_adds_or_gives_a_weight_starts_slowly() {
    let slow = |configs: &mut Vec<ServiceConfig>| {
        configs.iter_mut().for_each(|service| service.slow_start = Some(Duration::from_secs(30)));
    };
    let shares = |services: &Services| -> Vec<u8> {
        services.services()[0].backends().iter().map(|backend| backend.view().share).collect()
    };
    let mut configs = web();
    slow(&mut configs);
    configs[0].backends[0].weight = 0;
    let removed = configs[0].backends.pop().unwrap();
    let before = Services::new(&configs, &Services::default()).unwrap();
    assert_eq!(shares(&before), [SHARES; 2], "a new service has no backend to wait for");
    configs[0].backends[0].weight = 1;
    configs[0].backends.push(removed);
    let after = Services::new(&configs, &before).unwrap();
    assert_eq!(shares(&after), [1, SHARES, 1]);
    let third = Services::new(&configs, &after).unwrap();
    assert_eq!(shares(&third), [1, SHARES, 1], "another reload changes nothing");
    configs[0].slow_start = None;
    let without = Services::new(&configs, &third).unwrap();
    without.handle_timeout(Instant::from_millis(1));
    assert_eq!(shares(&without), [SHARES; 3]);
}

#[test]
fn a_service_without_an_available_backend_refuses_with_a_reason() {
    let services = services(&with(|service| service.backends[0].weight = 0));
    let mut gateway = gateway(&services);
    services.handle_health(0, 1, false);
    services.handle_health(0, 2, false);
    assert_eq!(gateway.begin(OUTSIDE, client(1)).map(|_| ()), Err(DropReason::NoBackend));
    assert_eq!(gateway.counter("load_balancer.no_backend"), 1);
    assert_eq!(services.services()[0].refused(), 1);
}

#[test]
fn a_client_keeps_its_backend_with_affinity_by_source() {
    let mut gateway = gateway(&services(&with(|service| service.affinity = Affinity::Source)));
    let of_client = |gateway: &mut Gateway, host: u16| -> HashSet<SocketAddr> {
        let tuple = |port: u16| tcp(&std::format!("198.51.100.{host}:{port}"), "192.0.2.80:80");
        (2000..2030).map(|port| backend_of(&gateway.begin(OUTSIDE, tuple(port)).unwrap())).collect()
    };
    let each: Vec<_> = (1..=30).map(|host| of_client(&mut gateway, host)).collect();
    assert!(each.iter().all(|used| used.len() == 1));
    assert_eq!(each.into_iter().flatten().collect::<HashSet<_>>().len(), 3);
}

#[test]
fn least_connections_fills_the_emptiest_backend_by_weight() {
    let services = services(&with(|service| {
        service.scheduler = Scheduler::LeastConnections;
        service.backends[2].weight = 2;
    }));
    let mut gateway = gateway(&services);
    let begun: Vec<_> = (0..400).map(|number| gateway.begin(OUTSIDE, client(number)).unwrap()).collect();
    assert_eq!(connections(&services), [100, 100, 200]);
    // A backend whose connections end gets the next ones.
    let first = services.services()[0].backends()[0].view().end;
    begun.iter().filter(|one| backend_of(one) == first).for_each(|one| end(&mut gateway, &one.connection));
    assert_eq!(connections(&services), [0, 100, 200]);
    for number in 1000..1050 {
        assert_eq!(backend_of(&gateway.begin(OUTSIDE, client(number)).unwrap()), first);
    }
}

#[test]
fn firewall_load_balancer_and_nat_translate_in_one_step() {
    let accept = Rule { name: "all".into(), conditions: Conditions::default(), action: Action::Accept, log: false };
    let firewall = Firewall::new(FirewallConfig { rules: vec![accept], ..FirewallConfig::default() }).unwrap();
    let nat = Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: vec![SourceRule {
            conditions: Conditions { sources: vec!["10.0.0.0/8".parse().unwrap()], ..Conditions::default() },
            action: SourceAction::Translate(vec!["192.0.2.1".parse().unwrap()]),
        }],
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::new(2).unwrap(),
        key: KEY,
    })
    .unwrap();
    let balancer = LoadBalancer::new(services(&web()), ports(0));
    let mut gateway = Gateway::of(ChainBuilder::new().push(firewall).push(balancer).push(nat).build().unwrap());
    // An inside client of the service: the destination by the load balancer, the source by NAT.
    let tuple = tcp("10.0.0.77:5000", "192.0.2.80:80");
    let mut begun = gateway.begin(INSIDE, tuple).unwrap();
    assert_eq!(begun.outgoing.source_ip(), "192.0.2.1".parse::<core::net::IpAddr>().unwrap());
    assert_eq!(begun.outgoing.destination_port, 8080);
    assert_eq!(gateway.answer(&mut begun), tuple.inverse());
    let counted: Vec<_> = gateway.counters.functions().iter().map(|of| of.packets).collect();
    assert_eq!(counted, [0, 2, 2], "both translating functions count the packets");
    assert!(!gateway.chain.needs_packets(&begun.connection), "a fast path may forward them");
}

#[test]
fn balanced_connections_are_replicated_precisely_and_others_restored() {
    let mut gateway = gateway(&services(&web()));
    assert!(gateway.chain.restorable().is_ok());
    let balanced = gateway.begin(OUTSIDE, client(1)).unwrap().connection;
    assert!(!gateway.chain.is_restorable(&balanced));
    let other = gateway.begin(OUTSIDE, tcp("198.51.100.1:5000", "203.0.113.1:80")).unwrap().connection;
    assert!(gateway.chain.is_restorable(&other));
    let restored = |tuple: Tuple| gateway.chain.restore(&tuple, None).map(|it| it.reply);
    assert_eq!(restored(balanced.original), None, "its backend does not follow from its tuple");
    assert_eq!(restored(other.original), Some(other.reply));
}

#[test]
fn mistakes_name_the_service() {
    let error = |change: &dyn Fn(&mut Vec<ServiceConfig>)| {
        let mut configs = web();
        change(&mut configs);
        Services::new(&configs, &Services::default()).map(|_| ()).unwrap_err()
    };
    assert_eq!(error(&|all| all[1].backends.clear()), ServiceError::NoBackend(1));
    assert_eq!(error(&|all| all[0].backends[1] = backend("[fd00::1]:80", 1)), ServiceError::MixedFamilies(0));
    assert_eq!(error(&|all| all[0].backends[1].weight = 101), ServiceError::Weight(0));
    assert_eq!(error(&|all| all[0].protocol = ICMP), ServiceError::Protocol(0));
    assert_eq!(error(&|all| all[0].ports.clear()), ServiceError::PortOfRange(0));
    assert_eq!(error(&|all| all[1].mode = Mode::FullNat(Vec::new())), ServiceError::Sources(1));
    assert_eq!(error(&|all| all[1].name = "web".into()), ServiceError::SameName(0, 1));
    assert_eq!(error(&|all| all[0].backends[1] = all[0].backends[0].clone()), ServiceError::SameBackend(0));
    assert_eq!(
        error(&|all| {
            all[0].affinity = Affinity::Source;
            all[0].scheduler = Scheduler::LeastConnections;
        }),
        ServiceError::Affinity(0)
    );
    assert_eq!(
        error(&|all| {
            let mut twin = all[0].clone();
            twin.name = "twin".into();
            all.push(twin);
        }),
        ServiceError::Overlap(0, 2)
    );
    assert_eq!(error(&|all| all[0].backends = vec![backend("10.0.0.1:1", 1); 513]), ServiceError::TooManyBackends(0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn all_nodes_choose_alike_whatever_the_order_of_their_lines(clients in prop::collection::vec(0u16..60_000, 1..20)) {
        let mut reversed = web();
        reversed.iter_mut().for_each(|service| service.backends.reverse());
        reversed.reverse();
        let (mut here, mut there) = (gateway(&services(&web())), gateway(&services(&reversed)));
        for number in clients {
            let chosen = [&mut here, &mut there].map(|node| node.begin(OUTSIDE, client(number)).map(|it| it.outgoing));
            prop_assert_eq!(chosen[0], chosen[1]);
        }
    }

    #[test]
    fn states_survive_the_wire(service: u32, backend: u32) {
        let state = BalancerState { service, backend: if service == 0 { 0 } else { backend } };
        let mut encoded = Vec::new();
        state.encode(&mut encoded);
        prop_assert_eq!(BalancerState::decode(&encoded), Ok(state));
    }

    #[test]
    fn decoding_never_panics(bytes: Vec<u8>) {
        let _ = BalancerState::decode(&bytes);
    }
}

/// The web service without its first backend, or without itself; and the same for DNS, which is over UDP.
fn dns() -> Vec<ServiceConfig> {
    let backends = || (1..=3).map(|host| backend(&std::format!("10.0.0.{host}:8053"), 1)).collect();
    vec![service("web", "192.0.2.80:80", TCP, backends()), service("dns", "192.0.2.80:53", UDP, backends())]
}

#[test]
fn flows_of_datagrams_end_with_the_backend_or_service_that_a_reload_removes_and_tcp_goes_on() {
    let before = services(&dns());
    let mut gateway = gateway(&before);
    let flows: Vec<_> = (0..30)
        .map(|port| {
            gateway.begin(OUTSIDE, udp(&std::format!("198.51.100.1:{}", 4000 + port), "192.0.2.80:53")).unwrap()
        })
        .collect();
    let connections: Vec<_> = (0..30).map(|number| gateway.begin(OUTSIDE, client(number)).unwrap()).collect();
    let first: SocketAddr = "10.0.0.1:8053".parse().unwrap();
    let continues = |gateway: &Gateway, one: &Begun| gateway.chain.may_continue(&one.connection);
    let reloaded = |gateway: &mut Gateway, change: &dyn Fn(&mut Vec<ServiceConfig>)| {
        let mut configs = dns();
        change(&mut configs);
        gateway.chain = rebuilt(gateway, &Arc::new(Services::new(&configs, &before).unwrap()));
    };
    // Drained: all go on.
    reloaded(&mut gateway, &|configs| configs.iter_mut().for_each(|service| service.backends[0].weight = 0));
    assert!(flows.iter().chain(&connections).all(|one| continues(&gateway, one).is_ok()));
    // A removed backend.
    reloaded(&mut gateway, &|configs| {
        for service in configs.iter_mut() {
            service.backends.remove(0);
        }
    });
    for flow in &flows {
        let expected = if backend_of(flow) == first { Err(DropReason::TranslationReplaced) } else { Ok(()) };
        assert_eq!(continues(&gateway, flow), expected);
    }
    assert!(connections.iter().all(|one| continues(&gateway, one).is_ok()));
    // A removed service, and one that moves to another address.
    for change in [&|configs: &mut Vec<ServiceConfig>| configs.clear(), &|configs: &mut Vec<ServiceConfig>| {
        configs.iter_mut().for_each(|service| service.address = [192, 0, 2, 81].into());
    }] as [&dyn Fn(&mut Vec<ServiceConfig>); 2]
    {
        reloaded(&mut gateway, change);
        assert!(flows.iter().all(|one| continues(&gateway, one) == Err(DropReason::TranslationReplaced)));
        assert!(connections.iter().all(|one| continues(&gateway, one).is_ok()));
    }
}

#[test]
fn a_flow_of_datagrams_that_a_new_service_would_balance_begins_anew() {
    let before = services(&web());
    let mut gateway = gateway(&before);
    let flow = gateway.begin(OUTSIDE, udp("198.51.100.1:4000", "192.0.2.80:53")).unwrap();
    assert_eq!(gateway.chain.may_continue(&flow.connection), Ok(()));
    gateway.chain = rebuilt(&gateway, &services(&dns()));
    assert_eq!(gateway.chain.may_continue(&flow.connection), Err(DropReason::TranslationReplaced));
}

/// A service whose backends have connection identifiers, and a short-header packet that names the backend of this position.
fn quic() -> ServiceConfig {
    let backends = (1..=3).map(|host| backend(&std::format!("10.0.0.{host}:8443"), 1)).collect();
    let server_ids = (1..=3).map(|id| vec![id]).collect();
    let quic = Some(QuicConfig { config: 1, server_id_bytes: 1, nonce_bytes: 4, server_ids });
    ServiceConfig { quic, ..service("quic", "192.0.2.80:443", UDP, backends) }
}

/// The first bytes of a QUIC packet, with a short header or a long one.
fn quic_packet(is_short: bool, server: u8) -> Vec<u8> {
    let identifier = [1 << 5 | 5, server, 9, 9, 9, 9];
    let header = if is_short { vec![0x40] } else { vec![0xc0, 0, 0, 0, 1, 6] };
    [&header[..], &identifier, &[0; 24]].concat()
}

/// The backend that the first packet of a client's port comes to.
fn backend_of_quic(gateway: &mut Gateway, port: u16, payload: &[u8]) -> Option<SocketAddr> {
    let tuple = udp(&std::format!("198.51.100.1:{port}"), "192.0.2.80:443");
    let mut bytes = flow::wire::build::Envelope::default().udp(&tuple, payload);
    let length_bytes = bytes.len();
    let mut frame = flow::Frame::new(&mut bytes, 0, length_bytes, OUTSIDE).unwrap();
    let flow::wire::Parsed::Ip(mut headers) = flow::wire::parse(&frame).unwrap() else { panic!("it is IP") };
    let mut connection =
        Connection::new(tuple, NodeId(0), flow::conntrack::ProtocolState::default(), Instant::FAR_FUTURE);
    let packet = Packet { frame: &mut frame, headers: &mut headers };
    gateway.begin_with(&mut connection, &packet).ok()?;
    let reply = connection.reply;
    Some(SocketAddr::new(reply.source_ip(), reply.source_port))
}

#[test]
fn a_quic_client_that_changes_its_port_keeps_the_backend_that_its_connection_identifier_names() {
    let services = services(&[quic()]);
    // Two nodes, whose tables know nothing of each other.
    for mut gateway in [gateway(&services), gateway(&services)] {
        for server in 1..=3 {
            let named: SocketAddr = std::format!("10.0.0.{server}:8443").parse().unwrap();
            for port in 4000..4050 {
                assert_eq!(backend_of_quic(&mut gateway, port, &quic_packet(true, server)), Some(named));
                assert_eq!(backend_of_quic(&mut gateway, port, &quic_packet(false, server)), Some(named));
            }
        }
        assert_eq!(gateway.counter("load_balancer.quic_routed"), 300);
    }
}

#[test]
fn quic_packets_that_name_no_backend_are_balanced_as_other_datagrams() {
    let services = services(&[quic()]);
    let mut gateway = gateway(&services);
    for payload in [quic_packet(true, 4), vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8], Vec::new()] {
        let seen: HashSet<_> =
            (4000..4100).map(|port| backend_of_quic(&mut gateway, port, &payload).unwrap()).collect();
        assert_eq!(seen.len(), 3);
    }
    assert_eq!(gateway.counter("load_balancer.quic_routed"), 0);
}

#[test]
fn a_drained_or_failed_backend_keeps_the_quic_connections_that_its_service_keeps() {
    let first: SocketAddr = "10.0.0.1:8443".parse().unwrap();
    let mut drained = quic();
    drained.backends[0].weight = 0;
    let mut gateway = gateway(&services(&[drained]));
    assert_eq!(backend_of_quic(&mut gateway, 4000, &quic_packet(true, 1)), Some(first));
    assert_ne!(
        backend_of_quic(&mut gateway, 4001, &quic_packet(false, 1)),
        Some(first),
        "a handshake begins elsewhere"
    );
    for (on_failure, keeps) in [(OnFailure::Keep, true), (OnFailure::End, false)] {
        let services = services(&[ServiceConfig { on_failure, ..quic() }]);
        services.handle_health(0, 0, false);
        let mut gateway = self::gateway(&services);
        assert_eq!(backend_of_quic(&mut gateway, 4000, &quic_packet(true, 1)) == Some(first), keeps);
    }
}

#[test]
fn unsound_connection_identifiers_are_refused() {
    let tcp = ServiceConfig { protocol: TCP, ..quic() };
    let mut same = quic();
    same.quic.as_mut().unwrap().server_ids[0] = vec![2];
    for config in [tcp, same] {
        assert_eq!(Services::new(&[config], &Services::default()).err(), Some(ServiceError::Quic(0)));
    }
}
