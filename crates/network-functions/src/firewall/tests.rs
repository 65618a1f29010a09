//! Scenarios of the firewall.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flow::wire::ip_protocol::{ICMP, ICMPV6, TCP, UDP};
use flow::{Direction, Instant, Tuple};
use proptest::prelude::*;

use super::*;
use crate::log::{LOG_ENTRIES_MAX, Log, LogEntry, SOURCES_MAX};
use crate::port_range::PortRange;
use crate::rule_set::{Conditions, IcmpMatch};
use crate::testing::{Gateway, INSIDE, OUTSIDE, echo, tcp, udp};

fn rule(name: &str, action: Action, conditions: Conditions) -> Rule {
    Rule { name: name.to_string(), conditions, action, log: false }
}

fn firewall(rules: Vec<Rule>) -> Firewall {
    Firewall::new(FirewallConfig { rules, generation: 7, ..FirewallConfig::default() }).expect("the rules make sense")
}

/// A small office: the inside may reach all but one bad network; the outside may reach the web server and ping.
fn office() -> Gateway {
    let ping = |protocol, kind| Conditions {
        protocols: vec![protocol],
        icmp: vec![IcmpMatch { kind, code: Some(0) }],
        ..Conditions::default()
    };
    Gateway::with(firewall(vec![
        rule(
            "bad network",
            Action::Drop,
            Conditions { destinations: vec!["203.0.113.0/24".parse().unwrap()], ..Conditions::default() },
        ),
        rule("inside out", Action::Accept, Conditions { ingress: vec![INSIDE], ..Conditions::default() }),
        rule(
            "web",
            Action::Accept,
            Conditions {
                destinations: vec!["192.0.2.80/32".parse().unwrap(), "2001:db8::80/128".parse().unwrap()],
                protocols: vec![TCP, UDP],
                destination_ports: vec![PortRange::single(80), PortRange::single(443)],
                ..Conditions::default()
            },
        ),
        rule("ping", Action::Accept, ping(ICMP, 8)),
        rule("ping6", Action::Accept, ping(ICMPV6, 128)),
    ]))
}

fn admitted(gateway: &mut Gateway, ingress: flow::PortId, tuple: Tuple) -> bool {
    match gateway.begin(ingress, tuple) {
        Ok(_) => true,
        Err(reason) => {
            assert_eq!(reason, DropReason::FirewallDenied);
            false
        }
    }
}

#[test]
fn the_first_matching_rule_decides_and_unmatched_packets_are_dropped() {
    let mut office = office();
    for (ingress, tuple, expected) in [
        (INSIDE, tcp("10.0.0.1:5000", "198.51.100.1:22"), true),
        (INSIDE, tcp("10.0.0.1:5000", "203.0.113.9:443"), false),
        (OUTSIDE, tcp("198.51.100.1:5000", "192.0.2.80:443"), true),
        (OUTSIDE, udp("198.51.100.1:5000", "192.0.2.80:443"), true),
        (OUTSIDE, tcp("198.51.100.1:5000", "192.0.2.80:22"), false),
        (OUTSIDE, tcp("198.51.100.1:5000", "192.0.2.81:443"), false),
        (OUTSIDE, tcp("[2001:db8:1::1]:5000", "[2001:db8::80]:80"), true),
        (OUTSIDE, tcp("[2001:db8:1::1]:5000", "[2001:db8::81]:80"), false),
        (OUTSIDE, echo("198.51.100.1", "192.0.2.5", 77), true),
        (OUTSIDE, echo("2001:db8:1::1", "2001:db8::5", 77), true),
        // A timestamp request (type 13) is ICMP too, but no ping.
        (OUTSIDE, Tuple { discriminator: 13, ..echo("198.51.100.1", "192.0.2.5", 77) }, false),
    ] {
        assert_eq!(admitted(&mut office, ingress, tuple), expected, "{tuple:?}");
    }
    let hits = [
        "rule/drop/bad network",
        "rule/accept/inside out",
        "rule/accept/web",
        "rule/accept/ping",
        "rule/accept/ping6",
        "default_hits",
    ];
    let counted = hits.map(|name| office.counter(&format!("firewall.{name}")));
    assert_eq!(counted, [1, 1, 3, 1, 1, 4]);
}

#[test]
fn a_firewall_without_rules_refuses_every_connection() {
    let mut gateway = Gateway::with(firewall(Vec::new()));
    assert!(!admitted(&mut gateway, INSIDE, tcp("10.0.0.1:5000", "198.51.100.1:22")));
}

#[test]
fn established_connections_pass_in_both_directions_even_if_their_rule_is_unknown() {
    let mut office = office();
    let begun = office.begin(INSIDE, tcp("10.0.0.1:5000", "198.51.100.1:22")).unwrap();
    let mut encoded = Vec::new();
    office.chain.encode_states(&begun.connection, &mut encoded);

    let mut elsewhere = Gateway::with(firewall(Vec::new()));
    let mut connection = begun.connection;
    elsewhere.chain.decode_states(&mut connection, &encoded).unwrap();
    for direction in [Direction::Original, Direction::Reply] {
        let (processed, _) = elsewhere.pass(&mut connection, OUTSIDE, direction);
        assert_eq!(processed.verdict, Verdict::Forward);
    }
}

#[test]
fn a_rule_is_named_only_in_its_own_generation() {
    let anything = || vec![rule("anything", Action::Accept, Conditions::default())];
    let state = FirewallState { rule_number: 1, generation: 7, ingress_number: 1 };
    assert_eq!(firewall(anything()).rule_name(&state), Some("anything"));
    assert_eq!(firewall(anything()).rule_name(&FirewallState { generation: 8, ..state }), None);
    assert_eq!(firewall(anything()).rule_name(&FirewallState { rule_number: 2, ..state }), None);
    assert_eq!(firewall(anything()).rule_name(&FirewallState::default()), None);
}

/// Connections of every kind in the office's rules.
fn allowed() -> [(flow::PortId, Tuple); 5] {
    [
        (INSIDE, tcp("10.0.0.1:5000", "198.51.100.1:22")),
        (OUTSIDE, tcp("198.51.100.1:5000", "192.0.2.80:443")),
        (OUTSIDE, tcp("[2001:db8:1::1]:5000", "[2001:db8::80]:80")),
        (OUTSIDE, echo("198.51.100.1", "192.0.2.5", 77)),
        (OUTSIDE, echo("2001:db8:1::1", "2001:db8::5", 77)),
    ]
}

#[test]
fn under_the_same_rules_every_permitted_connection_stays() {
    let mut office = office();
    for (ingress, tuple) in allowed() {
        let mut connection = office.begin(ingress, tuple).unwrap().connection;
        assert_eq!(office.chain.reevaluate(&mut connection), ReevaluationOutcome::Allowed, "{tuple:?}");
    }
}

#[test]
fn reevaluation_ends_denied_connections_and_updates_the_rules_of_others() {
    let mut office = office();
    let inside_out = Conditions { ingress: vec![INSIDE], ..Conditions::default() };
    let newer = FirewallConfig {
        rules: vec![rule("inside out", Action::Accept, inside_out)],
        generation: 8,
        ..FirewallConfig::default()
    };
    let newer = Firewall::new(newer).unwrap();
    for (ingress, tuple) in allowed() {
        let connection = office.begin(ingress, tuple).unwrap().connection;
        let mut state = FirewallState::read_from_bytes(&connection.functions[..6]).unwrap();
        let expected = if ingress == INSIDE { ReevaluationOutcome::Allowed } else { ReevaluationOutcome::Denied };
        assert_eq!(newer.reevaluate(&mut state, &tuple, Class::Unknown), expected, "{tuple:?}");
        assert_eq!(newer.rule_name(&state).is_some(), expected == ReevaluationOutcome::Allowed);
    }
}

#[test]
fn a_connection_without_rule_is_not_reevaluated() {
    let closed = firewall(Vec::new());
    let tuple = tcp("10.0.0.1:5000", "198.51.100.1:22");
    let known = FirewallState { rule_number: 1, generation: 3, ingress_number: 1 };
    assert_eq!(closed.reevaluate(&mut known.clone(), &tuple, Class::Unknown), ReevaluationOutcome::Denied);
    for unknown in [FirewallState { rule_number: 0, ..known }, FirewallState { ingress_number: 0, ..known }] {
        assert_eq!(
            closed.reevaluate(&mut unknown.clone(), &tuple, Class::Unknown),
            ReevaluationOutcome::Allowed,
            "{unknown:?}"
        );
    }
}

#[test]
fn an_expected_connection_is_reevaluated_only_if_it_needs_a_rule() {
    let tuple = tcp("198.51.100.1:20", "10.0.0.1:5000");
    let announced = FirewallState { ingress_number: 2, ..FirewallState::default() };
    let from = |ingress| Conditions { ingress: vec![ingress], ..Conditions::default() };
    for (related, ingress, expected) in [
        (Related::Accept, INSIDE, ReevaluationOutcome::Allowed),
        (Related::Rules, INSIDE, ReevaluationOutcome::Denied),
        (Related::Rules, OUTSIDE, ReevaluationOutcome::Allowed),
    ] {
        let rules = vec![rule("one way", Action::Accept, from(ingress))];
        let firewall = Firewall::new(FirewallConfig { rules, related, ..FirewallConfig::default() }).unwrap();
        assert_eq!(
            firewall.reevaluate(&mut announced.clone(), &tuple, Class::Unknown),
            expected,
            "{related:?} {ingress:?}"
        );
    }
}

#[test]
fn a_counter_identifies_its_rule() {
    assert_eq!(rule_of_counter(&rule_counter_name(Action::Accept, "a/b")), Some(("accept", "a/b")));
    assert_eq!(rule_of_counter(DEFAULT_COUNTER_NAME), None);
}

#[test]
fn matches_of_logged_rules_are_logged_until_the_log_is_full() {
    let config = FirewallConfig {
        rules: vec![Rule {
            log: true,
            ..rule("ssh", Action::Accept, Conditions { protocols: vec![TCP], ..Conditions::default() })
        }],
        log_default: true,
        ..FirewallConfig::default()
    };
    let mut gateway = Gateway::with(Firewall::new(config).unwrap());
    let accepted = tcp("10.0.0.1:5000", "198.51.100.1:22");
    let refused = udp("10.0.0.1:5000", "198.51.100.1:53");
    assert!(admitted(&mut gateway, INSIDE, accepted));
    assert!(!admitted(&mut gateway, INSIDE, refused));
    let entries: Vec<LogEntry> = gateway.log.drain().collect();
    let entry = |message: &str, tuple| LogEntry { function: NAME, message: message.to_string(), tuple };
    assert_eq!(entries, [entry("accept by rule ssh", accepted), entry("drop by rule default", refused)]);

    gateway.log.set_limit(None);
    for _ in 0..LOG_ENTRIES_MAX + 3 {
        assert!(!admitted(&mut gateway, INSIDE, refused));
    }
    assert_eq!(gateway.log.dropped_entries(), 3);
    assert_eq!(gateway.log.drain().len(), LOG_ENTRIES_MAX);
}

#[test]
fn a_rule_that_matches_constantly_does_not_suppress_entries_of_others() {
    let config = FirewallConfig {
        rules: vec![Rule {
            log: true,
            ..rule("ssh", Action::Accept, Conditions { protocols: vec![TCP], ..Conditions::default() })
        }],
        log_default: true,
        ..FirewallConfig::default()
    };
    let mut gateway = Gateway::with(Firewall::new(config).unwrap());
    gateway.log.set_limit(Some(10));
    let refused = udp("10.0.0.1:5000", "198.51.100.1:53");
    for _ in 0..1000 {
        assert!(!admitted(&mut gateway, INSIDE, refused));
    }
    assert!(admitted(&mut gateway, INSIDE, tcp("10.0.0.1:5000", "198.51.100.1:22")));
    assert_eq!(gateway.log.drain().len(), 11);
    assert_eq!(gateway.log.dropped_entries(), 990);

    gateway.log.push_summaries(Instant::from_millis(999));
    assert_eq!(gateway.log.drain().len(), 0, "it is not due yet");
    gateway.log.push_summaries(Instant::from_millis(1000));
    let entries: Vec<LogEntry> = gateway.log.drain().collect();
    let message = "990 more by rule default not logged".to_string();
    assert_eq!(entries, [LogEntry { function: NAME, message, tuple: refused }]);
    gateway.log.push_summaries(Instant::from_millis(9000));
    assert_eq!(gateway.log.drain().len(), 0, "it is reported once");
}

#[test]
fn sources_beyond_the_limit_are_admitted_when_others_are_idle() {
    let (mut log, tuple) = (Log::default(), udp("10.0.0.1:5000", "198.51.100.1:53"));
    log.set_limit(Some(1));
    let mut push = |at_ms: u64, name: &str| {
        log.push_limited(Instant::from_millis(at_ms), LogSource { function: NAME, name }, tuple, String::new);
        log.drain().len()
    };
    for index in 0..SOURCES_MAX {
        assert_eq!(push(1000, &format!("rule-{index}")), 1);
    }
    assert_eq!(push(1000, "one-more"), 0);
    assert_eq!(push(2001, "one-more"), 1);
}

#[test]
fn an_attribute_of_wrong_size_is_refused() {
    let mut attributes = Vec::new();
    tlv::put(&mut attributes, attribute::RULE, &[1, 2, 3]);
    assert_eq!(FirewallState::decode(&attributes), Err(TlvError::ValueSize(attribute::RULE)));
}

proptest! {
    #[test]
    fn encoded_states_decode_to_the_same_states(rule_number: u16, generation: u16, ingress_number: u16) {
        let state = FirewallState { rule_number, generation, ingress_number };
        let mut encoded = Vec::new();
        state.encode(&mut encoded);
        prop_assert_eq!(FirewallState::decode(&encoded), Ok(state));
    }

    #[test]
    fn decoding_never_panics(bytes: Vec<u8>) {
        let _ = FirewallState::decode(&bytes);
    }
}
