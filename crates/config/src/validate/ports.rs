//! `[[port]]` and `[[route]]`.

use std::net::IpAddr;

use flow::PortId;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawPort, RawRoute, Text};
use super::super::validated::{Backend, Group, Port, Route, SharedAddress};
use super::super::value::{self, Prefix};
use super::common::{flag, quoted};
use super::groups::grouped_addresses;
use super::{family_name, named, one_of, parsed};

/// Ports of a node at most: an index has to fit into a connection's record.
const PORTS_MAX: usize = 64;
/// Longest name of an interface (Linux's `IFNAMSIZ` less the terminator).
const INTERFACE_BYTES_MAX: usize = 15;

pub(super) fn ports(raw: &[Spanned<RawPort>], groups: &[Group], diagnostics: &mut Diagnostics<'_>) -> Vec<Port> {
    if raw.len() < 2 {
        let mistake = Mistake::new(
            format!(
                "a gateway forwards between ports, and there {}",
                if raw.is_empty() { "is none" } else { "is one" }
            ),
            "add a [[port]] for every interface, at least two",
        );
        diagnostics.error(raw.first().map_or(0..0, Spanned::span), "[[port]]", mistake);
    }
    if let Some(first_beyond) = raw.get(PORTS_MAX) {
        let mistake = Mistake::new(format!("there are more than {PORTS_MAX} ports"), "remove some");
        diagnostics.error(first_beyond.span(), "[[port]]", mistake);
    }
    let mut ports: Vec<Port> = Vec::new();
    for (index, written) in raw.iter().take(PORTS_MAX).enumerate() {
        let id = PortId(u8::try_from(index).unwrap_or(u8::MAX));
        let port = port(id, written.get_ref(), groups, &ports, diagnostics);
        ports.push(port);
    }
    ports
}

fn port(id: PortId, raw: &RawPort, groups: &[Group], earlier: &[Port], diagnostics: &mut Diagnostics<'_>) -> Port {
    let subject = format!("port {:?}", raw.name.get_ref());
    let name = named("port.name", &raw.name, diagnostics);
    if earlier.iter().any(|port| port.name == name) {
        let mistake = Mistake::new("another port has this name", "give each port its own name");
        diagnostics.error(raw.name.span(), &subject, mistake);
    }
    let interface = interface(&subject, &raw.interface, diagnostics);
    if let Some(other) = earlier.iter().find(|port| port.interface == interface) {
        let mistake = Mistake::new(
            format!("interface {interface:?} is already that of port {:?}", other.name),
            "give each port its own interface",
        );
        diagnostics.error(raw.interface.span(), &subject, mistake);
    }
    let backend = backend(&subject, raw, earlier, diagnostics);
    if raw.addresses.is_empty() && raw.group.is_empty() {
        let mistake = Mistake::new(
            "the port has no shared address, so nobody on its network can use the gateway as next hop",
            "add addresses = [\"10.0.0.1/24\"] with an address of your network",
        );
        diagnostics.warning(raw.name.span(), &subject, mistake);
    }
    let mut addresses: Vec<SharedAddress> = Vec::new();
    for (group, text) in grouped_addresses(&subject, raw, groups, diagnostics) {
        if let Some(prefix) = parsed(&subject, text, |text| shared_address(text, earlier, &addresses), diagnostics) {
            addresses.push(SharedAddress { prefix, group });
        }
    }
    let mss_clamp = raw.mss_clamp.as_ref().and_then(|clamp| {
        let checked = value::mss_clamp(clamp.get_ref());
        checked.map_err(|mistake| diagnostics.error(clamp.span(), &subject, mistake)).ok()
    });
    let redirect_peer =
        flag("port.redirect_peer", raw.redirect_peer.as_ref().map(|flag| *flag.get_ref()), false, diagnostics);
    if let Some(written) = raw.redirect_peer.as_ref().filter(|_| redirect_peer && backend != Backend::AfPacket) {
        let mistake = Mistake::new(
            format!("a port of the backend {} has no fast path, so redirect_peer has no effect", backend.name()),
            format!("remove it, or set backend = {:?}", Backend::AfPacket.name()),
        );
        diagnostics.warning(written.span(), &subject, mistake);
    }
    Port { id, name, interface, backend, addresses, mss_clamp, redirect_peer }
}

/// Any ports can be mixed but for these two: a packet socket hands over runs of segments as one frame, which `AF_XDP`
/// cannot send.
fn backend(subject: &str, raw: &RawPort, earlier: &[Port], diagnostics: &mut Diagnostics<'_>) -> Backend {
    let default = Backend::default().name();
    diagnostics.describe("port.backend", Some(format!("{default:?}")), quoted(&Backend::ALL));
    let written = raw.backend.as_ref();
    let backend = written.and_then(|text| one_of(subject, text, &Backend::ALL, diagnostics)).unwrap_or_default();
    let excluded = match backend {
        Backend::AfPacket => Backend::AfXdp,
        Backend::AfXdp => Backend::AfPacket,
        Backend::Tun => return backend,
    };
    if let Some(other) = earlier.iter().find(|port| port.backend == excluded) {
        let mistake = Mistake::new(
            format!(
                "frames of many segments that an af_packet port receives cannot be sent on an af_xdp port, and port {:?} is \
                 {}",
                other.name,
                excluded.name()
            ),
            format!("give both backend = {:?}, or both {:?}", excluded.name(), backend.name()),
        );
        diagnostics.error(written.map_or_else(|| raw.name.span(), Spanned::span), subject, mistake);
    }
    backend
}

pub(super) fn interface(subject: &str, text: &Text, diagnostics: &mut Diagnostics<'_>) -> String {
    let name = text.get_ref();
    if name.len() > INTERFACE_BYTES_MAX {
        let mistake = Mistake::new(format!("interface name is longer than {INTERFACE_BYTES_MAX} bytes"), "shorten it");
        diagnostics.error(text.span(), subject, mistake);
    } else if name.is_empty() || name == "." || name == ".." || name.contains(|c: char| c == '/' || c.is_whitespace()) {
        let mistake = Mistake::new(format!("{name:?} cannot be an interface"), "write a name as `ip link` shows it");
        diagnostics.error(text.span(), subject, mistake);
    }
    name.clone()
}

/// An address that hosts can use as their next hop and that collides with no other.
fn shared_address(text: &str, earlier: &[Port], own: &[SharedAddress]) -> Result<Prefix, Mistake> {
    if !text.contains('/') {
        return Err(Mistake::new(format!("{text:?} has no prefix length"), format!("write it like {text}/24")));
    }
    let address = value::prefix(text)?;
    host_address(address)?;
    if own.iter().any(|other| other.prefix.addr() == address.addr()) {
        return Err(Mistake::new(format!("{} is listed twice", address.addr()), "list it once"));
    }
    for port in earlier {
        if let Some(other) = port
            .addresses
            .iter()
            .map(|other| other.prefix)
            .find(|other| other.contains(&address) || address.contains(other))
        {
            return Err(Mistake::new(
                format!("{address} overlaps {other} of port {:?}", port.name),
                "give each port its own network",
            ));
        }
    }
    Ok(address)
}

/// Whether the address is one that a host may have: no group, not the network itself, not its broadcast.
fn host_address(address: Prefix) -> Result<(), Mistake> {
    let ip = address.addr();
    if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
        return Err(Mistake::new(format!("no host on a network can have the address {ip}"), "write a unicast address"));
    }
    let is_network = ip == address.network();
    if ip.is_ipv4() && address.prefix_len() < 31 && (is_network || ip == address.broadcast()) {
        let which = if is_network { "network" } else { "broadcast" };
        return Err(Mistake::new(
            format!("{ip} is the {which} address of {}", address.trunc()),
            "write an address of a host in it",
        ));
    }
    Ok(())
}

pub(super) fn routes(raw: &[Spanned<RawRoute>], ports: &[Port], diagnostics: &mut Diagnostics<'_>) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for written in raw {
        let written = written.get_ref();
        let subject = format!("route to {:?}", written.to.get_ref());
        let to = parsed(&subject, &written.to, value::network, diagnostics);
        let via = parsed(&subject, &written.via, value::address, diagnostics);
        let (Some(to), Some(via)) = (to, via) else { continue };
        if routes.iter().any(|route| route.to == to) {
            let mistake = Mistake::new("another route has the same destination", "keep one of the two");
            diagnostics.error(written.to.span(), &subject, mistake);
        }
        match next_hop_port(to, via, ports) {
            Ok(port) => routes.push(Route { to, via, port }),
            Err(mistake) => diagnostics.error(written.via.span(), &subject, mistake),
        }
    }
    routes
}

fn next_hop_port(to: Prefix, via: IpAddr, ports: &[Port]) -> Result<PortId, Mistake> {
    if to.addr().is_ipv4() != via.is_ipv4() {
        return Err(Mistake::new(
            format!("the next hop {via} is {}, the destination is not", family_name(via)),
            format!("write an {} next hop", family_name(to.addr())),
        ));
    }
    if let Some(port) = ports.iter().find(|port| port.addresses.iter().any(|own| own.prefix.addr() == via)) {
        return Err(Mistake::new(
            format!("the next hop {via} is the gateway's own address on port {:?}", port.name),
            "write the address of the next router",
        ));
    }
    let on_link = ports.iter().find(|port| port.addresses.iter().any(|own| own.prefix.contains(&via)));
    on_link.map(|port| port.id).ok_or_else(|| {
        Mistake::new(
            format!("the next hop {via} is on no port's network"),
            "add an address of its network to a port, or correct the next hop",
        )
    })
}
