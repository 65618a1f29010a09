//! ARP and neighbour discovery.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::{Envelope, fill_checksum};
use crate::Tuple;
use crate::wire::arp::{ArpMessage, ArpOperation};
use crate::wire::ethernet::{self, MacAddress, ether_type};
use crate::wire::icmp::ICMP_CHECKSUM_OFFSET;
use crate::wire::icmpv6::{NEIGHBOUR_HOP_LIMIT, NeighbourMessage, advertisement_flags, solicited_node};
use crate::wire::ip_protocol;
use crate::wire::router::RouterAdvertisement;

/// Every node on the link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An ARP packet from its sender to `destination`.
#[must_use]
pub fn arp(destination: MacAddress, message: &ArpMessage) -> Vec<u8> {
    let mut frame = Vec::with_capacity(42);
    ethernet::emit(&mut frame, destination, message.sender_mac, ether_type::ARP);
    message.emit(&mut frame);
    frame
}

/// A broadcast request for the link address of `target_ip`.
#[must_use]
pub fn arp_request(sender_mac: MacAddress, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Vec<u8> {
    let target_mac = MacAddress([0; 6]);
    let message = ArpMessage { operation: ArpOperation::Request, sender_mac, sender_ip, target_mac, target_ip };
    arp(MacAddress::BROADCAST, &message)
}

/// A reply to `target`: `sender_mac` has `sender_ip`.
#[must_use]
pub fn arp_reply(sender_mac: MacAddress, sender_ip: Ipv4Addr, target: (MacAddress, Ipv4Addr)) -> Vec<u8> {
    let (target_mac, target_ip) = target;
    arp(target_mac, &ArpMessage { operation: ArpOperation::Reply, sender_mac, sender_ip, target_mac, target_ip })
}

/// A broadcast announcement that `mac` has `ip` (RFC 5227 section 3). Most hosts learn from the request form, some from
/// the reply form alone.
#[must_use]
pub fn gratuitous_arp(operation: ArpOperation, mac: MacAddress, ip: Ipv4Addr) -> Vec<u8> {
    let target_mac = match operation {
        ArpOperation::Request => MacAddress([0; 6]),
        ArpOperation::Reply => mac,
    };
    let message = ArpMessage { operation, sender_mac: mac, sender_ip: ip, target_mac, target_ip: ip };
    arp(MacAddress::BROADCAST, &message)
}

/// A solicitation for the link address of `target`, sent to its solicited-node group. From the unspecified address it
/// is duplicate address detection and carries no link address (RFC 4861 section 4.3).
#[must_use]
pub fn neighbour_solicitation(mac: MacAddress, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let link_address = (!source.is_unspecified()).then_some(mac);
    let message = NeighbourMessage { is_advertisement: false, flags: 0, target, link_address };
    let group = solicited_node(target);
    neighbour((mac, source), (MacAddress::of_ipv6_multicast(&group.octets()), group), &message)
}

/// An advertisement to `to`: `mac` has `target`. `flags` are of [`advertisement_flags`]. A solicitation from the
/// unspecified address is answered to all nodes (see [`unsolicited_neighbour_advertisement`]).
#[must_use]
pub fn neighbour_advertisement(mac: MacAddress, target: Ipv6Addr, to: (MacAddress, Ipv6Addr), flags: u8) -> Vec<u8> {
    let message = NeighbourMessage { is_advertisement: true, flags, target, link_address: Some(mac) };
    neighbour((mac, target), to, &message)
}

/// An advertisement to all nodes on the link: `mac` has `target` from now on (RFC 4861 section 7.2.6).
#[must_use]
pub fn unsolicited_neighbour_advertisement(mac: MacAddress, target: Ipv6Addr, is_router: bool) -> Vec<u8> {
    let router = if is_router { advertisement_flags::ROUTER } else { 0 };
    let all_nodes = (MacAddress::of_ipv6_multicast(&ALL_NODES.octets()), ALL_NODES);
    neighbour_advertisement(mac, target, all_nodes, advertisement_flags::OVERRIDE | router)
}

/// A router's advertisement of itself from its link-local address, to one host or to all nodes on the link.
#[must_use]
pub fn router_advertisement(
    from: (MacAddress, Ipv6Addr),
    to: Option<(MacAddress, Ipv6Addr)>,
    advertisement: &RouterAdvertisement<'_>,
) -> Vec<u8> {
    let to = to.unwrap_or_else(|| (MacAddress::of_ipv6_multicast(&ALL_NODES.octets()), ALL_NODES));
    discovery(from, to, |transport| advertisement.emit(transport))
}

fn neighbour(from: (MacAddress, Ipv6Addr), to: (MacAddress, Ipv6Addr), message: &NeighbourMessage) -> Vec<u8> {
    discovery(from, to, |transport| message.emit(transport))
}

fn discovery(from: (MacAddress, Ipv6Addr), to: (MacAddress, Ipv6Addr), emit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let tuple = Tuple::v6(ip_protocol::ICMPV6, (from.1, 0), (to.1, 0));
    let mut transport = Vec::with_capacity(32);
    emit(&mut transport);
    fill_checksum(&tuple, &mut transport, ICMP_CHECKSUM_OFFSET);
    let envelope = Envelope { source: from.0, destination: to.0, ttl: NEIGHBOUR_HOP_LIMIT, ..Envelope::default() };
    envelope.raw(&tuple, &transport)
}
