//! `[firewall]`.

use flow::PortId;
use network_functions::firewall::{Action, Related, Rule};
use network_functions::port_range::PortRange;
use network_functions::rule_set::{Conditions, IcmpMatch};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawFirewall, RawRule, Text};
use super::super::validated::Port;
use super::super::value::{self, PortText, Prefix};
use super::common::{choice, quoted};
use super::{named, one_of, parsed_list, port_named};

/// Rules at most: a rule's index lies in every connection's record.
const RULES_MAX: usize = 10_000;
const ACTIONS: [(&str, Action); 2] = [(Action::Accept.label(), Action::Accept), (Action::Drop.label(), Action::Drop)];
const RELATED: [(&str, Related); 2] = [("accept", Related::Accept), ("rules", Related::Rules)];
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

pub(super) fn rules(raw: &[Spanned<RawRule>], ports: &[Port], diagnostics: &mut Diagnostics<'_>) -> Vec<Rule> {
    if let Some(first_beyond) = raw.get(RULES_MAX) {
        let mistake = Mistake::new(format!("there are more than {RULES_MAX} rules"), "merge rules by listing prefixes");
        diagnostics.error(first_beyond.span(), "[[firewall.rule]]", mistake);
    }
    let mut rules: Vec<Rule> = Vec::new();
    let mut catch_all: Option<String> = None;
    for written in raw.iter().take(RULES_MAX) {
        let rule = rule(written.get_ref(), ports, diagnostics);
        let subject = format!("firewall rule {:?}", rule.name);
        if rules.iter().any(|other| other.name == rule.name) {
            let mistake = Mistake::new("another rule has this name", "give each rule its own name");
            diagnostics.error(written.get_ref().name.span(), &subject, mistake);
        }
        if let Some(earlier) = &catch_all {
            let mistake = Mistake::new(
                format!("rule {earlier:?} above it matches every packet, so this one never does"),
                "move it up or remove it",
            );
            diagnostics.warning(written.get_ref().name.span(), &subject, mistake);
        } else if rule.conditions == Conditions::default() {
            catch_all = Some(rule.name.clone());
        }
        rules.push(rule);
    }
    if !rules.iter().any(|rule| rule.action == Action::Accept) {
        let mistake = Mistake::new(
            "no rule accepts anything, so every connection is dropped",
            "add a [[firewall.rule]] with action = \"accept\"",
        );
        diagnostics.warning(raw.first().map_or(0..0, Spanned::span), "[firewall]", mistake);
    }
    rules
}

pub(super) fn related(raw: Option<&RawFirewall>, diagnostics: &mut Diagnostics<'_>) -> Related {
    let text = raw.and_then(|raw| raw.related.as_ref());
    choice("firewall.related", text, &RELATED, diagnostics)
}

fn rule(raw: &RawRule, ports: &[Port], diagnostics: &mut Diagnostics<'_>) -> Rule {
    let subject = format!("firewall rule {:?}", raw.name.get_ref());
    let list = |list: &[Text], diagnostics: &mut Diagnostics<'_>| -> Vec<Prefix> {
        parsed_list(&subject, list, |text| value::network(text), diagnostics)
    };
    let protocol = raw.protocol.as_ref().and_then(|text| {
        value::protocol(text.get_ref()).map_err(|mistake| diagnostics.error(text.span(), &subject, mistake)).ok()
    });
    diagnostics.describe("firewall.rule.class", None, quoted(&super::classifier::classes()));
    diagnostics.describe("firewall.rule.action", None, quoted(&ACTIONS));
    let name = named("firewall.rule.name", &raw.name, diagnostics);
    let from = raw.from.as_ref().map(|name| port_named(&subject, name, ports, diagnostics).unwrap_or(PortId(0)));
    let icmp = raw.icmp_type.as_ref().map(|kind| IcmpMatch { kind: *kind.get_ref(), code: None });
    let conditions = Conditions {
        family: None,
        sources: list(&raw.source, diagnostics),
        destinations: list(&raw.destination, diagnostics),
        protocols: protocol.into_iter().collect(),
        source_ports: port_ranges(&subject, &raw.source_ports, diagnostics),
        destination_ports: port_ranges(&subject, &raw.destination_ports, diagnostics),
        icmp: icmp.into_iter().collect(),
        ingress: from.into_iter().collect(),
        classes: super::classifier::list(&subject, &raw.class, diagnostics),
    };
    let action = one_of(&subject, &raw.action, &ACTIONS, diagnostics).unwrap_or(Action::Drop);
    if raw.protocol.is_none() || protocol.is_some() {
        check_protocol(&subject, raw, protocol, diagnostics);
    }
    check_families(&subject, raw, &conditions, diagnostics);
    Rule { name, conditions, action, log: raw.log }
}

pub(super) fn port_ranges(
    subject: &str,
    list: &[Spanned<PortText>],
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<PortRange> {
    let mut ranges: Vec<PortRange> = Vec::with_capacity(list.len());
    for item in list {
        match value::port_range(item.get_ref()) {
            Ok(range) => {
                let overlapped =
                    ranges.iter().find(|other| other.first() <= range.last() && range.first() <= other.last());
                if let Some(other) = overlapped {
                    let mistake =
                        Mistake::new(format!("ports {range} overlap {other} of the same list"), "join the two ranges");
                    diagnostics.warning(item.span(), subject, mistake);
                }
                ranges.push(range);
            }
            Err(mistake) => diagnostics.error(item.span(), subject, mistake),
        }
    }
    ranges
}

/// Conditions that only some protocols' packets can meet.
fn check_protocol(subject: &str, raw: &RawRule, protocol: Option<u8>, diagnostics: &mut Diagnostics<'_>) {
    let ports = raw.source_ports.first().or(raw.destination_ports.first());
    if let Some(ports) = ports.filter(|_| !protocol.is_some_and(value::has_ports)) {
        let mistake = Mistake::new(
            "ports are given, but the protocol is not TCP, UDP or SCTP",
            "add protocol = \"tcp\", \"udp\" or \"sctp\"",
        );
        diagnostics.error(ports.span(), subject, mistake);
    }
    if let Some(kind) = raw.icmp_type.as_ref().filter(|_| !matches!(protocol, Some(ICMP | ICMPV6))) {
        let mistake =
            Mistake::new("icmp_type is given, but the protocol is not ICMP", "add protocol = \"icmp\" or \"icmpv6\"");
        diagnostics.error(kind.span(), subject, mistake);
    }
}

/// A rule whose addresses and protocol are of different families matches nothing.
fn check_families(subject: &str, raw: &RawRule, conditions: &Conditions, diagnostics: &mut Diagnostics<'_>) {
    let has = |list: &[Prefix], v4: bool| list.is_empty() || list.iter().any(|prefix| prefix.addr().is_ipv4() == v4);
    let allows = |v4: bool| match conditions.protocols[..] {
        [ICMP] => v4,
        [ICMPV6] => !v4,
        _ => true,
    };
    let possible = |v4| has(&conditions.sources, v4) && has(&conditions.destinations, v4) && allows(v4);
    if !possible(true) && !possible(false) {
        let mistake = Mistake::new(
            "source, destination and protocol have no address family in common, so nothing matches",
            "use IPv4 prefixes with \"icmp\" and IPv6 prefixes with \"icmpv6\", and one family for both ends",
        );
        diagnostics.error(raw.name.span(), subject, mistake);
    }
}
