//! `[nat]`.

use std::net::IpAddr;
use std::ops::Range;

use network_functions::port_range::PortRange;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawConfig, RawDestinationNat, RawSourceNat, Text};
use super::super::validated::{Config, DestinationNat, Node, Port, SourceNat};
use super::super::value::{self, PortText, Prefix, ProtocolText};
use super::{family_name, parsed, parsed_list};

/// Ports that source NAT translates to by default: all but the system ports (RFC 6335 section 6).
const PORTS_DEFAULT: PortRange = PortRange::to_the_last(1024);

/// Addresses that a source translation chooses from, at most.
const POOL_ADDRESSES_MAX: usize = 256;

pub(super) fn source(
    raw: &[Spanned<RawSourceNat>],
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<SourceNat> {
    raw.iter().map(|written| source_rule(written, ports, diagnostics)).collect()
}

fn source_rule(written: &Spanned<RawSourceNat>, ports: &[Port], diagnostics: &mut Diagnostics<'_>) -> SourceNat {
    const SUBJECT: &str = "nat.source";
    let raw = written.get_ref();
    let network = |text: &String| value::network(text);
    let source = parsed_list(SUBJECT, raw.source.get_ref(), network, diagnostics);
    let destination = parsed_list(SUBJECT, &raw.destination, network, diagnostics);
    let to = addresses_to(raw.to.get_ref(), ports, diagnostics);
    if raw.source.get_ref().is_empty() {
        let mistake =
            Mistake::new("the list of sources is empty", "write source = [\"10.0.0.0/8\"] with your prefixes");
        diagnostics.error(raw.source.span(), SUBJECT, mistake);
    }
    if raw.to.get_ref().is_empty() {
        let mistake = Mistake::new("the list of addresses is empty", "write to = [\"192.0.2.10\"] with your address");
        diagnostics.error(raw.to.span(), SUBJECT, mistake);
    }
    if to.len() > POOL_ADDRESSES_MAX {
        let mistake = Mistake::new(
            format!("{} addresses are more than the {POOL_ADDRESSES_MAX} that a rule may have", to.len()),
            "divide the sources over several rules",
        );
        diagnostics.error(raw.to.span(), SUBJECT, mistake);
    }
    if let Some(first) = source.first() {
        let others = source.iter().chain(&destination).map(Prefix::addr).chain(to.iter().copied());
        if let Some(other) = others.into_iter().find(|other| other.is_ipv4() != first.addr().is_ipv4()) {
            let mistake = Mistake::new(
                format!("{} and {} addresses are mixed", family_name(first.addr()), family_name(other)),
                "write a rule for each family",
            );
            diagnostics.error(written.span(), SUBJECT, mistake);
        }
    }
    let (mapping, is_endpoint_independent) = super::mapping::mapping(raw, diagnostics);
    let protocol = protocol(SUBJECT, raw.protocol.as_ref(), diagnostics);
    SourceNat { source, destination, protocol, to, mapping, is_endpoint_independent }
}

fn addresses_to(list: &[Text], ports: &[Port], diagnostics: &mut Diagnostics<'_>) -> Vec<IpAddr> {
    const SUBJECT: &str = "nat.source";
    let mut addresses = Vec::with_capacity(list.len());
    for text in list {
        let Some(address) = parsed(SUBJECT, text, value::address, diagnostics) else { continue };
        if addresses.contains(&address) {
            let mistake = Mistake::new(format!("{address} is listed twice"), "list it once");
            diagnostics.error(text.span(), SUBJECT, mistake);
        }
        warn_if_nobody_answers(SUBJECT, address, text.span(), ports, diagnostics);
        addresses.push(address);
    }
    addresses
}

/// Packets to an address that no port holds reach the gateway only by routing.
pub(super) fn warn_if_nobody_answers(
    subject: &str,
    address: IpAddr,
    span: Range<usize>,
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) {
    let held = ports.iter().flat_map(|port| &port.addresses).any(|own| own.prefix.addr() == address);
    if !held {
        let mistake = Mistake::new(
            format!("no port holds {address}"),
            "add it to a port's addresses, or have the next router route it to the gateway",
        );
        diagnostics.warning(span, subject, mistake);
    }
}

/// The ports that source NAT translates to, at least one for each node.
pub(super) fn port_pool(raw: Option<&Spanned<PortText>>, node: &Node, diagnostics: &mut Diagnostics<'_>) -> PortRange {
    let default = format!("\"{PORTS_DEFAULT}\"");
    diagnostics.describe("nat.ports", Some(default), "a port for each node at least".to_owned());
    let Some(written) = raw else { return PORTS_DEFAULT };
    let checked = value::port_range(written.get_ref()).and_then(|range| {
        if range.count() < u32::from(node.nodes) {
            return Err(Mistake::new(
                format!("the range of {} cannot be divided among {} nodes", range.count(), node.nodes),
                "widen it",
            ));
        }
        Ok(range)
    });
    checked.map_err(|mistake| diagnostics.error(written.span(), "nat.ports", mistake)).unwrap_or(PORTS_DEFAULT)
}

/// Picked-up connections find their ports again by a secret that outlasts the nodes.
pub(super) fn check_key(raw: &RawConfig, config: &Config, diagnostics: &mut Diagnostics<'_>) {
    let Some(loose) = raw.tracking.loose.as_ref().filter(|_| config.tracking.loose) else { return };
    let chooses = config.source_nat.iter().any(|rule| rule.mapping.is_none());
    let security = config.cluster.as_ref().and_then(|cluster| cluster.replication.security.as_ref());
    let has_shared = security.is_some_and(|security| !security.pre_shared_keys.is_empty());
    if chooses && config.nat_key.is_none() && !has_shared {
        let mistake = Mistake::new(
            "no secret outlasts the nodes, so the ports of source NAT follow from the rules alone, and can be guessed",
            "write key = \"/etc/mainstay/nat.key\" in [nat]; `mainstay key` makes one, which all nodes need",
        );
        diagnostics.warning(loose.span(), "nat.key", mistake);
    }
}

fn protocol(subject: &str, raw: Option<&Spanned<ProtocolText>>, diagnostics: &mut Diagnostics<'_>) -> Option<u8> {
    let written = raw?;
    value::protocol(written.get_ref()).map_err(|mistake| diagnostics.error(written.span(), subject, mistake)).ok()
}

pub(super) fn destination(
    raw: &[Spanned<RawDestinationNat>],
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<DestinationNat> {
    let mut rules: Vec<DestinationNat> = Vec::new();
    for written in raw {
        let Some(rule) = destination_rule(written.get_ref(), ports, diagnostics) else { continue };
        if rules.iter().any(|other| match_the_same(other, &rule)) {
            let mistake = Mistake::new(
                format!("an earlier rule matches packets to {} too", rule.destination),
                "make addresses, protocols or ports of the two differ",
            );
            diagnostics.error(written.span(), "nat.destination", mistake);
        }
        rules.push(rule);
    }
    rules
}

fn destination_rule(
    raw: &RawDestinationNat,
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<DestinationNat> {
    const SUBJECT: &str = "nat.destination";
    let destination = parsed(SUBJECT, &raw.destination, value::address, diagnostics);
    let protocol = protocol(SUBJECT, raw.protocol.as_ref(), diagnostics);
    let port_range = raw.port.as_ref().and_then(|written| {
        value::port_range(written.get_ref()).map_err(|mistake| diagnostics.error(written.span(), SUBJECT, mistake)).ok()
    });
    let (to, to_port) = parsed(SUBJECT, &raw.to, server, diagnostics)?;
    let destination = destination?;
    warn_if_nobody_answers(SUBJECT, destination, raw.destination.span(), ports, diagnostics);
    if destination.is_ipv4() != to.is_ipv4() {
        let mistake = Mistake::new(
            format!("{} addresses cannot be translated to {} ones", family_name(destination), family_name(to)),
            "write both addresses in one family",
        );
        diagnostics.error(raw.to.span(), SUBJECT, mistake);
    }
    if let Some(written) = raw.port.as_ref().filter(|_| !protocol.is_some_and(value::has_ports)) {
        let mistake = Mistake::new(
            "a port is given, but the protocol is not TCP, UDP or SCTP",
            "add protocol = \"tcp\", \"udp\" or \"sctp\"",
        );
        diagnostics.error(written.span(), SUBJECT, mistake);
    }
    check_server_ports(raw, port_range, to_port, diagnostics);
    Some(DestinationNat { destination, protocol, ports: port_range, to, to_port })
}

fn check_server_ports(
    raw: &RawDestinationNat,
    ports: Option<PortRange>,
    to_port: Option<u16>,
    diagnostics: &mut Diagnostics<'_>,
) {
    let Some(first) = to_port else { return };
    let mistake = match ports {
        None if raw.port.is_none() => {
            Some(Mistake::new("`to` names a port, but the rule matches all ports", "add port = … or drop it from `to`"))
        }
        Some(range) if u32::from(first) + range.count() - 1 > u32::from(u16::MAX) => {
            Some(Mistake::new("the range of server ports goes beyond 65535", "lower the port in `to`"))
        }
        _ => None,
    };
    if let Some(mistake) = mistake {
        diagnostics.error(raw.to.span(), "nat.destination", mistake);
    }
}

/// `10.0.0.5`, `10.0.0.5:8080`, `fd00::5` or `[fd00::5]:8080`.
pub(super) fn server(text: &str) -> Result<(IpAddr, Option<u16>), Mistake> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, None));
    }
    value::socket_address(text).map(|address| (address.ip(), Some(address.port()))).map_err(|mistake| {
        Mistake::new(mistake.problem, "write the server like 10.0.0.5, 10.0.0.5:8080 or [fd00::5]:8080")
    })
}

fn match_the_same(a: &DestinationNat, b: &DestinationNat) -> bool {
    let protocols = a.protocol.is_none() || b.protocol.is_none() || a.protocol == b.protocol;
    let ports = match (&a.ports, &b.ports) {
        (Some(a), Some(b)) => a.first() <= b.last() && b.first() <= a.last(),
        _ => true,
    };
    a.destination == b.destination && protocols && ports
}
