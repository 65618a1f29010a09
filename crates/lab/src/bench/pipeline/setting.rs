//! The gateway that is measured, and the connections that go through it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU8;
use std::sync::Arc;

use flow::conntrack::{Tracker, TrackerConfig};
use flow::wire::ip_protocol;
use flow::{HashKey, IpFamily, NodeId, Tuple};
use network_functions::address::{Prefix, bounds, family, from_tuple_bytes};
use network_functions::chain::{Chain, ChainBuilder};
use network_functions::classifier::{Classifier, ClassifierConfig};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::load_balancer::{
    Affinity, BackendConfig, LoadBalancer, Mode, OnFailure, Scheduler, ServiceConfig, Services,
};
use network_functions::nat::{Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourcePorts, SourceRule};
use network_functions::port_range::PortRange;
use network_functions::rate_limit::{self, LimitConfig, Per, Rate, RateLimit, RateLimitRules};
use network_functions::rule_set::Conditions;
use network_functions::syn_cookie::{CookieKey, CookieKeys};
use network_functions::syn_proxy::{self, SynProxy, SynProxyRules};

/// This node, and the one that it replicates its connections to.
pub(in crate::bench) const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];

/// The secret of the hash: any will do, as there is no attack.
pub(in crate::bench) const HASH_KEY: HashKey = HashKey([0x5851_f42d_4c95_7f2d, 0x1405_7b7e_f767_814f]);

/// Rules of the firewall, unless others are asked for; the last one is the one that lets connections in.
pub(in crate::bench) const FIREWALL_RULES: u16 = 50;
/// Where clients, servers and the gateway's outside addresses are, each from the network's first address on.
const CLIENTS: [&str; 2] = ["10.0.0.0/8", "2001:db8:1::/48"];
const SERVERS: [&str; 2] = ["198.51.100.0/24", "2001:db8:2::/48"];
const OUTSIDE: [&str; 2] = ["192.0.2.0/24", "2001:db8:3::/48"];
const OUTSIDE_ADDRESSES: u32 = 4;
const SERVER_PORT: u16 = 443;
/// Servers, more than a client has connections: so no two of a client's connections are alike.
const SERVER_COUNT: u32 = 251;
const CONNECTIONS_PER_CLIENT: u32 = 32;
/// Packets of a source that the rate limit of the chain of five lets pass: more than come.
const PACKETS_PER_S_MAX: u64 = 1_000_000_000;
/// The ports that Linux clients choose from: these and the following.
const CLIENT_PORT_FIRST: u32 = 32_768;
const CLIENT_PORTS: u32 = 28_232;

/// The connection with number `number` of a family and protocol, as its client sees it.
pub(in crate::bench) fn original(family: IpFamily, protocol: u8, number: u32) -> Tuple {
    let (client, server) = (1 + number / CONNECTIONS_PER_CLIENT, number % SERVER_COUNT);
    let port = (CLIENT_PORT_FIRST + number.wrapping_mul(2_654_435_761) % CLIENT_PORTS) as u16;
    // Written out, for a table of millions: the addresses are those of CLIENTS and SERVERS.
    match family {
        IpFamily::V4 => {
            let (client, server) =
                (Ipv4Addr::from_bits(0x0a00_0000 + client), Ipv4Addr::from_bits(0xc633_6400 + server));
            Tuple::v4(protocol, (client, port), (server, SERVER_PORT))
        }
        IpFamily::V6 => {
            let host = |network: u16, host: u32| {
                Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(network) << 80 | u128::from(host))
            };
            Tuple::v6(protocol, (host(1, client), port), (host(2, server), SERVER_PORT))
        }
    }
}

pub(super) fn tracker() -> Tracker {
    Tracker::new(TrackerConfig::default())
}

/// A firewall of so many rules, and NAT behind it.
pub(in crate::bench) fn chain(firewall_rules: u16) -> Chain {
    ChainBuilder::new().push(firewall(firewall_rules)).push(nat()).build().expect("the two go together")
}

/// Classifier, a rate limit that no packet exceeds, a firewall of so many rules, a SYN proxy for other servers, and NAT.
pub(in crate::bench) fn chain_of_five(firewall_rules: u16) -> Chain {
    let classifier = Classifier::new(&ClassifierConfig::default()).expect("the built-in names and ports");
    let most = Rate { per_s: PACKETS_PER_S_MAX, burst: PACKETS_PER_S_MAX };
    let limit = LimitConfig { per: Per::Source, packets: Some(most), ..LimitConfig::default() };
    let limited =
        rate_limit::RuleConfig { name: "all".to_owned(), conditions: Conditions::default(), limits: vec![limit] };
    let limits = RateLimitRules::new(&[limited], HASH_KEY, None).expect("the limit makes sense");
    let proxied = syn_proxy::RuleConfig {
        name: "others".to_owned(),
        destinations: vec!["203.0.113.0/24".parse().expect("a prefix")],
        ports: Vec::new(),
        mode: syn_proxy::Mode::Always,
        offered: syn_proxy::Offered::default(),
    };
    let keys = CookieKeys::new(CookieKey([1, 2]), []);
    let proxy = SynProxyRules::new(&[proxied], keys, None).expect("the rule makes sense");
    ChainBuilder::new()
        .push(classifier)
        .push(RateLimit::new(Arc::new(limits)))
        .push(firewall(firewall_rules))
        .push(SynProxy::new(Arc::new(proxy)))
        .push(nat())
        .build()
        .expect("the five go together")
}

/// Backends of each service that is measured.
pub(super) const BALANCED_BACKENDS: u16 = 100;

/// A firewall of so many rules, and a load balancer behind it, for which each server is a service.
pub(in crate::bench) fn balanced_chain(firewall_rules: u16) -> Chain {
    let backend = |number: u16| BackendConfig {
        address: IpAddr::V4(Ipv4Addr::from_bits(0x0ac8_0000 + u32::from(number))),
        port: None,
        weight: 1,
    };
    let service = |server: u32| ServiceConfig {
        name: format!("service {server}"),
        address: IpAddr::V4(Ipv4Addr::from_bits(0xc633_6400 + server)),
        protocol: ip_protocol::TCP,
        ports: vec![PortRange::single(SERVER_PORT)],
        scheduler: Scheduler::Maglev,
        affinity: Affinity::Connection,
        mode: Mode::Nat,
        on_failure: OnFailure::Keep,
        slow_start: None,
        quic: None,
        backends: (0..BALANCED_BACKENDS).map(backend).collect(),
    };
    let configs: Vec<_> = (0..SERVER_COUNT).map(service).collect();
    let services = Services::new(&configs, &Services::default()).expect("the services make sense");
    let ports = SourcePorts::new(SOURCE_PORTS_DEFAULT, NODES[0], NonZeroU8::MIN, HASH_KEY).expect("there are ports");
    let balancer = LoadBalancer::new(Arc::new(services), ports);
    ChainBuilder::new().push(firewall(firewall_rules)).push(balancer).build().expect("the two go together")
}

fn prefixes(networks: [&str; 2]) -> Vec<Prefix> {
    networks.map(|network| network.parse().expect("a prefix")).to_vec()
}

fn firewall(rules: u16) -> Firewall {
    let rule = |number: u16| Rule {
        name: format!("rule {number}"),
        conditions: Conditions {
            protocols: vec![ip_protocol::TCP, ip_protocol::UDP],
            destinations: prefixes(SERVERS),
            destination_ports: vec![PortRange::single(SERVER_PORT + rules - 1 - number)],
            ..Conditions::default()
        },
        action: Action::Accept,
        log: false,
    };
    let config = FirewallConfig { rules: (0..rules).map(rule).collect(), ..FirewallConfig::default() };
    Firewall::new(config).expect("the rules make sense")
}

fn nat() -> Nat {
    let source_rule = |clients: Prefix, outside: Prefix| {
        let [first, _] = bounds(&outside);
        let address =
            |number: u32| from_tuple_bytes((first + 1 + u128::from(number)).to_be_bytes(), family(outside.addr()));
        let pool: Vec<IpAddr> = (0..OUTSIDE_ADDRESSES).map(address).collect();
        let conditions = Conditions { sources: vec![clients], ..Conditions::default() };
        SourceRule { conditions, action: SourceAction::Translate(pool) }
    };
    Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: prefixes(CLIENTS)
            .into_iter()
            .zip(prefixes(OUTSIDE))
            .map(|(one, other)| source_rule(one, other))
            .collect(),
        ports: SOURCE_PORTS_DEFAULT,
        node: NODES[0],
        nodes: NonZeroU8::MIN,
        key: HASH_KEY,
    })
    .expect("the rules make sense")
}
