//! Connections restored by another node from their tuples alone.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU8;

use flow::wire::ip_protocol::{TCP, UDP};
use flow::{Direction, DropReason, HashKey, NodeId, Tuple};

use crate::chain::{Chain, ChainBuilder};
use crate::firewall::{Action, Firewall, FirewallConfig, Related, Rule};
use crate::ftp::{CONTROL_PORT, Ftp, FtpConfig};
use crate::nat::{
    Algorithm, DestinationRule, Mapping, MappingKey, Nat, NatConfig, NatError, SOURCE_PORTS_DEFAULT, SourceAction,
    SourceRule,
};
use crate::port_range::PortRange;
use crate::rule_set::Conditions;
use crate::testing::{Gateway, INSIDE, OUTSIDE, echo, tcp, udp};

fn nat(node: u8, action: SourceAction) -> Nat {
    let web = Conditions {
        destinations: vec!["192.0.2.1/32".parse().unwrap()],
        protocols: vec![TCP],
        destination_ports: vec![PortRange::single(80)],
        ..Conditions::default()
    };
    let inside = Conditions { sources: vec!["10.0.0.0/25".parse().unwrap()], ..Conditions::default() };
    Nat::new(NatConfig {
        destination_rules: vec![DestinationRule {
            conditions: web,
            address: "10.0.0.80".parse().unwrap(),
            port: Some(8080),
        }],
        source_rules: vec![SourceRule { conditions: inside, action }],
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(node),
        nodes: NonZeroU8::new(2).unwrap(),
        key: HashKey([u64::from(node), 1]),
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

fn computed(block_ports: Option<u16>) -> SourceAction {
    let mapping = Mapping { algorithm: Algorithm::Keyed(MappingKey([3, 4])), block_ports };
    SourceAction::Compute(vec!["192.0.2.1".parse().unwrap()], mapping)
}

fn rule(name: &str, conditions: Conditions) -> Rule {
    Rule { name: name.into(), conditions, action: Action::Accept, log: false }
}

/// The inside may begin any connection, the outside only web connections.
fn firewall() -> Firewall {
    let web =
        Conditions { protocols: vec![TCP], destination_ports: vec![PortRange::single(80)], ..Conditions::default() };
    let rules = vec![rule("inside", Conditions { ingress: vec![INSIDE], ..Conditions::default() }), rule("web", web)];
    Firewall::new(FirewallConfig { rules, log_default: false, generation: 5, related: Related::Accept }).unwrap()
}

fn ftp(node: u8) -> Ftp {
    Ftp::new(FtpConfig {
        control_ports: vec![PortRange::single(CONTROL_PORT)],
        loose: false,
        privileged_ports: false,
        timeout: core::time::Duration::from_secs(60),
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(node),
        nodes: NonZeroU8::new(2).unwrap(),
        key: HashKey([9, 9]),
    })
    .unwrap()
}

fn chain(node: u8) -> Chain {
    ChainBuilder::new().push(firewall()).push(nat(node, computed(None))).push(ftp(node)).build().unwrap()
}

fn originals(chain: &Chain, reply: &Tuple) -> Vec<Tuple> {
    let mut originals = Vec::new();
    chain.originals_of(reply, &mut originals);
    originals
}

#[test]
fn another_node_restores_translations_from_tuples_alone() {
    let (mut first, second) = (Gateway::of(chain(0)), chain(1));
    assert_eq!(second.restorable(), Ok(()));
    let mut there = Gateway::of(chain(1));
    for (ingress, tuple) in [
        (INSIDE, tcp("10.0.0.9:40000", "198.51.100.1:443")),
        (INSIDE, udp("10.0.0.9:40000", "198.51.100.1:53")),
        (INSIDE, echo("10.0.0.9", "198.51.100.1", 7)),
        // Hairpin: both translations.
        (INSIDE, tcp("10.0.0.9:40001", "192.0.2.1:80")),
        (OUTSIDE, tcp("198.51.100.1:40000", "192.0.2.1:80")),
    ] {
        let begun = first.begin(ingress, tuple).unwrap();
        assert!(first.chain.is_restorable(&begun.connection), "{tuple}");
        // Whichever direction's packet arrives first.
        let restored = second.restore(&tuple, Some(ingress)).expect("the rules permit it");
        assert_eq!(restored.reply, begun.connection.reply, "{tuple}");
        let from_reply = originals(&second, &begun.connection.reply);
        assert!(from_reply.contains(&tuple), "{tuple}");
        let mut connection = begun.connection;
        (connection.reply, connection.functions) = (restored.reply, restored.functions);
        let (_, outgoing) = there.pass(&mut connection, ingress, Direction::Original);
        let (_, answer) = there.pass(&mut connection, OUTSIDE, Direction::Reply);
        assert_eq!((outgoing, answer), (begun.outgoing, tuple.inverse()));
    }
}

#[test]
fn nat_rules_with_ingress_conditions_are_refused() {
    let conditions = Conditions { ingress: vec![OUTSIDE], protocols: vec![TCP], ..Conditions::default() };
    let rule = DestinationRule { conditions, address: "10.0.0.80".parse().unwrap(), port: None };
    let nat = Nat::new(NatConfig {
        destination_rules: vec![rule],
        source_rules: Vec::new(),
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::new(2).unwrap(),
        key: HashKey([0, 1]),
    });
    let chain = ChainBuilder::new().push(nat.unwrap()).build().unwrap();
    let refusal = chain.restorable().unwrap_err();
    assert!(
        refusal.cause.remedy.contains("name addresses"),
        "an answer that comes first would find another translation"
    );
}

#[test]
fn denied_connections_are_not_restored_on_a_filter_hit() {
    let chain = chain(1);
    let denied = tcp("198.51.100.1:40000", "203.0.113.9:22");
    assert_eq!(chain.restore(&denied, Some(OUTSIDE)), None);
    assert!(chain.restore(&denied, Some(INSIDE)).is_some());
    assert!(chain.restore(&denied, None).is_some(), "only a reply arrived: it may have begun inside");
    let inside_out =
        rule("inside", Conditions { sources: vec!["10.0.0.0/8".parse().unwrap()], ..Conditions::default() });
    let rules = FirewallConfig { rules: vec![inside_out], ..FirewallConfig::default() };
    let chain = ChainBuilder::new().push(Firewall::new(rules).unwrap()).build().unwrap();
    assert_eq!(chain.restore(&denied, None), None, "it cannot have begun at any port");
    assert!(chain.restore(&tcp("10.0.0.9:40000", "203.0.113.9:22"), None).is_some());
}

#[test]
fn a_port_in_use_is_replaced_within_the_block_and_the_connection_needs_precise_replication() {
    let chain = ChainBuilder::new().push(nat(0, computed(Some(256)))).build().unwrap();
    let mut gateway = Gateway::of(chain);
    let first = gateway.begin(INSIDE, tcp("10.0.0.9:40000", "198.51.100.1:443")).unwrap();
    // 256 further on: the same port outside.
    let second = gateway.begin(INSIDE, tcp("10.0.0.9:40256", "198.51.100.1:443")).unwrap();
    assert_ne!(first.outgoing.source_port, second.outgoing.source_port);
    assert!(gateway.chain.is_restorable(&first.connection));
    assert!(!gateway.chain.is_restorable(&second.connection));
    assert_eq!(gateway.counter("nat.ports_displaced"), 1);
    // Towards another server the port is free.
    let third = gateway.begin(INSIDE, tcp("10.0.0.9:40256", "198.51.100.2:443")).unwrap();
    assert!(gateway.chain.is_restorable(&third.connection));
    // A connection from elsewhere may have any tuple: it is never given to another.
    let wanted = gateway.chain.restore(&tcp("10.0.0.10:5", "198.51.100.1:443"), None).unwrap().reply;
    gateway.tuples.0.insert(wanted);
    let beside = gateway.begin(INSIDE, tcp("10.0.0.10:5", "198.51.100.1:443")).unwrap();
    assert_ne!(beside.connection.reply, wanted);
}

#[test]
fn a_host_with_an_exhausted_block_takes_no_port_of_another() {
    let chain = ChainBuilder::new().push(nat(0, computed(Some(256)))).build().unwrap();
    let mut gateway = Gateway::of(chain);
    let tuple = |port: u16| tcp(&std::format!("10.0.0.9:{port}"), "198.51.100.1:443");
    for port in 0..256 {
        gateway.begin(INSIDE, tuple(20_000 + port)).expect("a block has 256 ports");
    }
    let refused = gateway.begin(INSIDE, tuple(30_000)).map(|begun| begun.outgoing);
    assert_eq!(refused, Err(DropReason::NatBlockExhausted));
    assert_eq!(gateway.counter("nat.ports_exhausted"), 1);
    assert!(gateway.begin(INSIDE, tcp("10.0.0.10:20000", "198.51.100.1:443")).is_ok());
}

/// Port forwarding to one server inside, as many rules as there are `forwards`, of a protocol, an outside port and an inside one.
fn forwarding(forwards: &[(u8, PortRange, u16)]) -> Chain {
    let rule = |&(protocol, ports, port): &(u8, PortRange, u16)| DestinationRule {
        conditions: Conditions {
            destinations: vec!["192.0.2.1/32".parse().unwrap()],
            protocols: vec![protocol],
            destination_ports: vec![ports],
            ..Conditions::default()
        },
        address: "10.0.0.80".parse().unwrap(),
        port: Some(port),
    };
    let inside = Conditions { sources: vec!["10.0.0.0/25".parse().unwrap()], ..Conditions::default() };
    let nat = Nat::new(NatConfig {
        destination_rules: forwards.iter().map(rule).collect(),
        source_rules: vec![SourceRule { conditions: inside, action: computed(Some(128)) }],
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::MIN,
        key: HashKey([1, 2]),
    });
    ChainBuilder::new().push(nat.unwrap()).build().unwrap()
}

#[test]
fn all_inside_ports_of_an_outside_port_are_enumerated_once() {
    let chain = forwarding(&[]);
    let begun = tcp("10.0.0.9:40000", "198.51.100.1:443");
    let found = originals(&chain, &chain.restore(&begun, None).unwrap().reply);
    // Those of the host, and the untranslated one with the outside address.
    assert_eq!(found.len(), 512 + 1);
    assert!(found.contains(&begun));
    assert_eq!(found.iter().filter(|tuple| tuple.source == begun.source).count(), 512);
    let distinct: std::collections::BTreeSet<_> = found.iter().collect();
    assert_eq!(distinct.len(), found.len());
}

#[test]
fn a_reply_matches_the_right_one_of_many_forwarded_ports() {
    // Each of 200 ports to itself plus 7000, for two protocols; and a range.
    let mut forwards: Vec<_> = (1..=200)
        .flat_map(|port| [TCP, UDP].map(|protocol| (protocol, PortRange::single(port), 7000 + port)))
        .collect();
    forwards.push((TCP, PortRange::new(1000, 1099).unwrap(), 9000));
    let chain = forwarding(&forwards);
    for (outside, inside) in [(80, 7080), (1042, 9042)] {
        let begun = tcp("198.51.100.1:40000", &std::format!("192.0.2.1:{outside}"));
        let restored = chain.restore(&begun, None).unwrap();
        assert_eq!(restored.reply, tcp(&std::format!("10.0.0.80:{inside}"), "198.51.100.1:40000"));
        let found = originals(&chain, &restored.reply);
        let direct = tcp("198.51.100.1:40000", &std::format!("10.0.0.80:{inside}"));
        assert_eq!(found, [direct, begun], "{outside}");
    }
}

#[test]
fn a_reply_with_too_many_candidates_matches_none() {
    // Nine outside services map to one inside, and an inside host may have begun with any of them.
    let forwards: Vec<_> = (1..=9).map(|port| (TCP, PortRange::single(port), 80)).collect();
    let chain = forwarding(&forwards);
    let hairpin = tcp("10.0.0.9:40000", "192.0.2.1:7");
    let reply = chain.restore(&hairpin, None).unwrap().reply;
    assert_eq!(originals(&chain, &reply), [], "ten times 513");
    let few: Vec<_> = (1..=2).map(|port| (TCP, PortRange::single(port), 80)).collect();
    let chain = forwarding(&few);
    let reply = chain.restore(&tcp("10.0.0.9:40000", "192.0.2.1:2"), None).unwrap().reply;
    assert_eq!(originals(&chain, &reply).len(), 3 * 513);
}

#[test]
fn a_control_connection_needs_precise_replication() {
    let mut gateway = Gateway::of(chain(0));
    let control = gateway.begin(INSIDE, tcp("10.0.0.9:40000", "198.51.100.1:21")).unwrap();
    assert!(!gateway.chain.is_restorable(&control.connection));
    assert_eq!(gateway.chain.restore(&control.connection.original, Some(INSIDE)), None);
}

#[test]
fn nat_with_chosen_ports_is_not_restorable_from_tuples() {
    let chosen = SourceAction::Translate(vec!["192.0.2.1".parse().unwrap()]);
    let chain = ChainBuilder::new().push(firewall()).push(nat(0, chosen)).build().unwrap();
    let refusal = chain.restorable().unwrap_err();
    assert_eq!(refusal.function, crate::nat::NAME);
    let text = std::format!("{refusal}");
    assert!(text.contains("mapping = \"deterministic\""), "{text}");
    assert_eq!(chain.restore(&tcp("10.0.0.9:40000", "198.51.100.1:443"), None), None);
}

#[test]
fn an_outside_address_of_a_computed_mapping_belongs_to_one_rule() {
    let rule = |prefix: &str, action| SourceRule {
        conditions: Conditions { sources: vec![prefix.parse().unwrap()], ..Conditions::default() },
        action,
    };
    let config = NatConfig {
        destination_rules: Vec::new(),
        source_rules: vec![
            rule("10.1.0.0/16", SourceAction::Translate(vec!["192.0.2.1".parse().unwrap()])),
            rule("10.0.0.0/25", computed(None)),
        ],
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::MIN,
        key: HashKey([1, 2]),
    };
    assert_eq!(Nat::new(config).map(|nat| nat.ports()).unwrap_err(), NatError::SharedPool { first: 0, second: 1 });
}
