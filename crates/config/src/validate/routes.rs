//! `[[route]]`, and the next hops that other sections name.

use std::net::IpAddr;

use flow::PortId;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::RawRoute;
use super::super::validated::{Port, Route};
use super::super::value::{self, Prefix, is_link_local};
use super::common::port_named;
use super::{family_name, parsed};

pub(super) fn routes(raw: &[Spanned<RawRoute>], ports: &[Port], diagnostics: &mut Diagnostics<'_>) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for written in raw {
        let written = written.get_ref();
        let subject = format!("route to {:?}", written.to.get_ref());
        let to = parsed(&subject, &written.to, destination, diagnostics);
        let named = written.port.as_ref().map(|name| port_named(&subject, name, ports, diagnostics));
        if to.is_some_and(|to| routes.iter().any(|route| route.to == to)) {
            let mistake = Mistake::new("another route has the same destination", "keep one of the two");
            diagnostics.error(written.to.span(), &subject, mistake);
        }
        if named == Some(None) {
            continue;
        }
        let port = named.flatten();
        let via = parsed(&subject, &written.via, |text| next_hop(text, port, ports, Some("port")), diagnostics);
        let (Some(to), Some((port, via))) = (to, via) else { continue };
        if to.addr().is_ipv4() == via.is_ipv4() {
            routes.push(Route { to, via, port });
            continue;
        }
        let mistake = Mistake::new(
            format!("the next hop {via} is {}, the destination is not", family_name(via)),
            format!("write an {} next hop", family_name(to.addr())),
        );
        diagnostics.error(written.via.span(), &subject, mistake);
    }
    routes
}

/// A network that packets can be routed to.
fn destination(text: &str) -> Result<Prefix, Mistake> {
    let to = value::network(text)?;
    let never_routed = [
        ("224.0.0.0/4", "multicast", "remove the route: the gateway forwards unicast packets only"),
        ("ff00::/8", "multicast", "remove the route: the gateway forwards unicast packets only"),
        ("255.255.255.255/32", "broadcast", "remove the route: a broadcast stays on its link"),
        ("0.0.0.0/8", "of no host", "remove the route, or write 0.0.0.0/0 for a default route"),
        ("127.0.0.0/8", "loopback", "remove the route: such packets never leave a host"),
        ("::1/128", "loopback", "remove the route: such packets never leave a host"),
        ("::/128", "of no host", "remove the route, or write ::/0 for a default route"),
        ("169.254.0.0/16", "link-local", "remove the route: such packets stay on their link"),
        ("fe80::/10", "link-local", "remove the route: such packets stay on their link"),
        ("::ffff:0:0/96", "IPv4-mapped", "write the network as an IPv4 prefix, such as 192.0.2.0/24"),
    ];
    let found = never_routed.into_iter().find(|(range, ..)| {
        let range = value::prefix(range).expect("the ranges are prefixes");
        range.contains(&to)
    });
    match found {
        Some((range, kind, remedy)) => {
            Err(Mistake::new(format!("{to} is {kind} ({range}), which no router forwards"), remedy))
        }
        None => Ok(to),
    }
}

/// A neighbour and its port. The name of a port or of its interface may follow an address after `%`, and must follow a link-local one
/// unless `port` is given. `key` is the key that gives it, if there is one.
pub(super) fn next_hop(
    text: &str,
    port: Option<PortId>,
    ports: &[Port],
    key: Option<&str>,
) -> Result<(PortId, IpAddr), Mistake> {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let address = value::address(address)?;
    let zone = zone.map(|zone| port_of_zone(zone, ports)).transpose()?;
    if let (Some(zone), Some(port)) = (zone, port)
        && zone != port
    {
        let problem = format!("the next hop {text} is on port {:?}, and `port` names another", name(zone, ports));
        return Err(Mistake::new(problem, "write one of the two"));
    }
    let port = port.or(zone);
    let on = |candidate: &&Port| port.is_none_or(|port| candidate.id == port);
    let has = |candidate: &&Port| candidate.addresses.iter().any(|own| own.prefix.addr() == address);
    if is_link_local(address) && port.is_none() {
        let example = ports.first().map_or("inside", |port| &port.name);
        let remedy = match key {
            Some(key) => format!("add {key} = {example:?}, or write \"{address}%{example}\""),
            None => format!("write \"{address}%{example}\""),
        };
        return Err(Mistake::new(
            format!("the next hop {address} is link-local, and each port has such a network"),
            remedy,
        ));
    }
    if let Some(own) = ports.iter().filter(|port| !is_link_local(address) || on(port)).find(has) {
        return Err(Mistake::new(
            format!("the next hop {address} is the gateway's own address on port {:?}", own.name),
            "write the address of the next router",
        ));
    }
    if address.is_multicast() || address.is_unspecified() || address.is_loopback() {
        return Err(Mistake::new(format!("no router can have the address {address}"), "write a unicast address"));
    }
    let is_on_link = |candidate: &&Port| {
        on(candidate) && (is_link_local(address) || candidate.addresses.iter().any(|own| own.prefix.contains(&address)))
    };
    let found = ports.iter().find(is_on_link).map(|port| (port.id, address));
    found.ok_or_else(|| match port {
        Some(port) => Mistake::new(
            format!("the next hop {address} is on no network of port {:?}", name(port, ports)),
            "add an address of its network to the port, or correct the next hop",
        ),
        None => Mistake::new(
            format!("the next hop {address} is on no port's network"),
            "add an address of its network to a port, or correct the next hop",
        ),
    })
}

/// The port whose name, or whose interface, a zone is.
fn port_of_zone(zone: &str, ports: &[Port]) -> Result<PortId, Mistake> {
    let found =
        ports.iter().find(|port| port.name == zone).or_else(|| ports.iter().find(|port| port.interface == zone));
    found.map(|port| port.id).ok_or_else(|| {
        let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
        Mistake::new(
            format!("there is no port {zone:?} after the %"),
            format!("write the name of a port: {}", names.join(", ")),
        )
    })
}

fn name(port: PortId, ports: &[Port]) -> &str {
    ports.get(usize::from(port.0)).map_or("", |port| &port.name)
}
