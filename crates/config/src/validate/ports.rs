//! `[[port]]`.

use std::net::IpAddr;

use ::cluster::forwarding::ReversePath;
use flow::PortId;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawPort, Text};
use super::super::validated::{Backend, Group, Port, SharedAddress};
use super::super::value::{self, Prefix, is_link_local};
use super::common::{choice, flag, quoted};
use super::groups::grouped_addresses;
use super::router_advertisements::router_advertisements;
use super::{named, one_of, parsed};

/// Ports of a node at most: an index has to fit into a connection's record.
const PORTS_MAX: usize = 64;
/// Length of the prefix of all link-local addresses (RFC 4291 section 2.5.6).
const LINK_LOCAL_BITS: u8 = 10;
/// Checks of source addresses, by name.
const REVERSE_PATHS: [(&str, ReversePath); 3] =
    [("strict", ReversePath::Strict), ("loose", ReversePath::Loose), ("off", ReversePath::Off)];
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
    let reverse_path = choice("port.reverse_path", raw.reverse_path.as_ref(), &REVERSE_PATHS, diagnostics);
    let advertised = raw.router_advertisements.as_ref();
    let router_advertisements = router_advertisements(advertised, &subject, &addresses, diagnostics);
    if let Some(section) = advertised.filter(|_| backend == Backend::Tun) {
        let mistake = Mistake::new(
            "a tunnel device has no hosts that ask for routers",
            "remove [port.router_advertisements], or choose another backend",
        );
        diagnostics.error(section.span(), &subject, mistake);
    }
    let redirect_peer =
        flag("port.redirect_peer", raw.redirect_peer.as_ref().map(|flag| *flag.get_ref()), false, diagnostics);
    if let Some(written) = raw.redirect_peer.as_ref().filter(|_| redirect_peer && backend != Backend::AfPacket) {
        let mistake = Mistake::new(
            format!("a port of the backend {} has no fast path, so redirect_peer has no effect", backend.name()),
            format!("remove it, or set backend = {:?}", Backend::AfPacket.name()),
        );
        diagnostics.warning(written.span(), &subject, mistake);
    }
    Port { id, name, interface, backend, addresses, mss_clamp, reverse_path, router_advertisements, redirect_peer }
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
    if is_link_local(address.addr()) {
        // Each port has such a network of its own.
        return Ok(address);
    }
    for port in earlier {
        if let Some(other) = port
            .addresses
            .iter()
            .map(|other| other.prefix)
            .find(|other| !is_link_local(other.addr()) && (other.contains(&address) || address.contains(other)))
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
    if let IpAddr::V6(v6) = ip
        && let Some(v4) = v6.to_ipv4_mapped()
    {
        return Err(Mistake::new(
            format!("{ip} is an IPv4-mapped address, which no packet carries"),
            format!("write {v4} with a prefix length of IPv4"),
        ));
    }
    let is_no_host = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast() || matches!(v4.octets()[0], 0 | 127));
    if is_no_host || ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
        return Err(Mistake::new(format!("no host on a network can have the address {ip}"), "write a unicast address"));
    }
    if is_link_local(ip) && address.prefix_len() < LINK_LOCAL_BITS {
        return Err(Mistake::new(format!("{address} is wider than the link-local network"), format!("write {ip}/64")));
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
