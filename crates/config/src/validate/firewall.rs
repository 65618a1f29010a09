//! `[firewall]`.

use flow::PortId;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawFirewall, RawRule, Text};
use super::super::validated::{Action, Port, Related, Rule};
use super::super::value::{self, PortRange, PortText, Prefix};
use super::common::{choice, quoted};
use super::{named, one_of, parsed_list, port_named};

/// Rules at most: a rule's index lies in every connection's record.
const RULES_MAX: usize = 10_000;
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
        } else if matches_everything(&rule) {
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
    choice("firewall.related", text, &Related::ALL, diagnostics)
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
    diagnostics.describe("firewall.rule.action", None, quoted(&Action::ALL));
    let rule = Rule {
        name: named("firewall.rule.name", &raw.name, diagnostics),
        from: raw.from.as_ref().map(|name| port_named(&subject, name, ports, diagnostics).unwrap_or(PortId(0))),
        source: list(&raw.source, diagnostics),
        destination: list(&raw.destination, diagnostics),
        protocol,
        source_ports: port_ranges(&subject, &raw.source_ports, diagnostics),
        destination_ports: port_ranges(&subject, &raw.destination_ports, diagnostics),
        icmp_type: raw.icmp_type.as_ref().map(|kind| *kind.get_ref()),
        classes: super::classifier::list(&subject, &raw.class, diagnostics),
        action: one_of(&subject, &raw.action, &Action::ALL, diagnostics).unwrap_or(Action::Drop),
        log: raw.log,
    };
    if raw.protocol.is_none() || protocol.is_some() {
        check_protocol(&subject, raw, &rule, diagnostics);
    }
    check_families(&subject, raw, &rule, diagnostics);
    rule
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
                    ranges.iter().find(|other| other.start() <= range.end() && range.start() <= other.end());
                if let Some(other) = overlapped {
                    let mistake = Mistake::new(
                        format!("ports {} overlap {} of the same list", show(&range), show(other)),
                        "join the two ranges",
                    );
                    diagnostics.warning(item.span(), subject, mistake);
                }
                ranges.push(range);
            }
            Err(mistake) => diagnostics.error(item.span(), subject, mistake),
        }
    }
    ranges
}

fn show(range: &PortRange) -> String {
    if range.start() == range.end() { range.start().to_string() } else { format!("{}-{}", range.start(), range.end()) }
}

/// Conditions that only some protocols' packets can meet.
fn check_protocol(subject: &str, raw: &RawRule, rule: &Rule, diagnostics: &mut Diagnostics<'_>) {
    let protocol = rule.protocol;
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
fn check_families(subject: &str, raw: &RawRule, rule: &Rule, diagnostics: &mut Diagnostics<'_>) {
    let has = |list: &[Prefix], v4: bool| list.is_empty() || list.iter().any(|prefix| prefix.addr().is_ipv4() == v4);
    let allows = |v4: bool| match rule.protocol {
        Some(ICMP) => v4,
        Some(ICMPV6) => !v4,
        _ => true,
    };
    let possible = |v4| has(&rule.source, v4) && has(&rule.destination, v4) && allows(v4);
    if !possible(true) && !possible(false) {
        let mistake = Mistake::new(
            "source, destination and protocol have no address family in common, so nothing matches",
            "use IPv4 prefixes with \"icmp\" and IPv6 prefixes with \"icmpv6\", and one family for both ends",
        );
        diagnostics.error(raw.name.span(), subject, mistake);
    }
}

fn matches_everything(rule: &Rule) -> bool {
    rule.from.is_none()
        && rule.source.is_empty()
        && rule.destination.is_empty()
        && rule.protocol.is_none()
        && rule.source_ports.is_empty()
        && rule.destination_ports.is_empty()
        && rule.icmp_type.is_none()
        && rule.classes.is_empty()
}
