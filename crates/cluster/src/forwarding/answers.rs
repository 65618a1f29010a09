//! Replies of the node itself: ARP, neighbour discovery, echo.

use core::net::{IpAddr, Ipv6Addr};

use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::checksum::{self, Sum};
use flow::wire::ethernet::{self, EthernetView};
use flow::wire::icmpv6::{NEIGHBOUR_HOP_LIMIT, NeighbourMessage, advertisement_flags};
use flow::wire::{IcmpQuery, MacAddress, Packet, Transport, build, icmp, icmpv6};
use flow::{Checksum, Disposition, DropReason, Frame, Instant, PortId};

use super::conflict::AddressConflict;
use super::forwarder::Forwarder;
use super::learning::Learning;
use super::neighbour::Learnt;

/// The time to live of answers (RFC 1700).
const ANSWER_TTL: u8 = 64;

impl Forwarder {
    /// An ARP packet, which begins `offset` bytes into the frame. It is learnt from whatever the role; it is answered
    /// for the node's own addresses, and for the shared ones that it holds.
    pub fn handle_arp(&mut self, now: Instant, frame: &Frame<'_>, offset: u16) -> Disposition {
        let bytes = frame.bytes().get(usize::from(offset)..).unwrap_or_default();
        let arp = match ArpView::new_checked(bytes) {
            Ok(arp) => arp,
            Err(reason) => return Disposition::Drop(reason),
        };
        let ingress = frame.ingress;
        let target = IpAddr::V4(arp.target_ip());
        let sender = IpAddr::V4(arp.sender_ip());
        let is_for_this_node = self.addresses.find(target, ingress).is_some_and(|local| local.port == ingress);
        let Some(port) = self.ports.get(usize::from(ingress.0)) else {
            return Disposition::Drop(DropReason::LocalUnhandled);
        };
        let mac = port.mac;
        let is_answer = arp.operation() == ArpOperation::Reply && arp.target_mac() == mac;
        let how = match arp.operation() {
            ArpOperation::Reply if is_answer => Learnt::Confirmed,
            ArpOperation::Request if (is_for_this_node || !self.is_active()) && !arp.is_gratuitous() => Learnt::Asked,
            _ => Learnt::Overheard,
        };
        self.learn(now, (ingress, sender), arp.sender_mac(), how);
        if arp.operation() == ArpOperation::Request && arp.sender_ip().is_unspecified() {
            self.note_probe(ingress, target, arp.sender_mac());
        }
        if arp.operation() == ArpOperation::Request && self.holds_on_port(target, ingress) && sender != target {
            let reply = build::arp_reply(mac, arp.target_ip(), (arp.sender_mac(), arp.sender_ip()));
            self.push_control(ingress, reply);
        }
        Disposition::Consumed
    }

    /// A packet to one of the node's own or shared addresses, or to a group: see [`super::Admission::Local`]. Echo
    /// requests are turned into replies in place; neighbour discovery is learnt from and answered.
    pub fn handle_local(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        match packet.headers.transport {
            Transport::IcmpOther(icmpv6::kind::NEIGHBOUR_SOLICITATION | icmpv6::kind::NEIGHBOUR_ADVERTISEMENT, _)
                if packet.headers.tuple.version == 6 =>
            {
                self.handle_neighbour_discovery(now, packet)
            }
            Transport::IcmpQuery(IcmpQuery { kind: icmp::kind::ECHO_REQUEST | icmpv6::kind::ECHO_REQUEST, .. })
                if self.answers_echo(packet.headers.tuple.destination_ip(), packet.frame.ingress)
                    && !packet.headers.is_fragment =>
            {
                answer_echo(packet)
            }
            _ => Disposition::Drop(DropReason::LocalUnhandled),
        }
    }

    fn handle_neighbour_discovery(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Disposition {
        let headers = &*packet.headers;
        if headers.ttl != NEIGHBOUR_HOP_LIMIT {
            return Disposition::Drop(DropReason::Malformed);
        }
        let frame = packet.frame.bytes();
        let end = frame.len().min(usize::from(headers.l3_offset) + headers.l3_bytes as usize);
        let message = frame.get(usize::from(headers.l4_offset)..end).unwrap_or_default();
        let message = match NeighbourMessage::parse(message) {
            Ok(Some(message)) => message,
            Ok(None) => return Disposition::Drop(DropReason::LocalUnhandled),
            Err(reason) => return Disposition::Drop(reason),
        };
        let ingress = packet.frame.ingress;
        if message.is_advertisement {
            self.learn_from_advertisement(now, ingress, &message);
        } else {
            let source = headers.tuple.source_ip();
            if let Some(mac) = message.link_address.filter(|mac| !mac.is_group()) {
                self.learn(now, (ingress, source), mac, Learnt::Asked);
            }
            let link_source = EthernetView::new_checked(frame).map(|link| link.source()).unwrap_or_default();
            self.answer_solicitation(ingress, source, message.link_address.unwrap_or(link_source), message.target);
        }
        Disposition::Consumed
    }

    /// RFC 4861 section 7.2.5, but that an advertisement without the override flag never replaces a link address.
    fn learn_from_advertisement(&mut self, now: Instant, ingress: PortId, message: &NeighbourMessage) {
        let Some(mac) = message.link_address.filter(|mac| !mac.is_group()) else { return };
        let address = IpAddr::V6(message.target);
        let known = self.neighbours.find(ingress, address).and_then(|slot| self.neighbours.entry(slot));
        let replaces = known.is_some_and(|entry| entry.mac != mac && entry.mac != MacAddress::default());
        if replaces && message.flags & advertisement_flags::OVERRIDE == 0 {
            return;
        }
        let is_answer = message.flags & advertisement_flags::SOLICITED != 0;
        let how = if is_answer { Learnt::Confirmed } else { Learnt::Overheard };
        self.learn(now, (ingress, address), mac, how);
    }

    fn answer_solicitation(&mut self, ingress: PortId, source: IpAddr, to: MacAddress, target: Ipv6Addr) {
        let Some(port) = self.ports.get(usize::from(ingress.0)) else { return };
        if !self.holds_on_port(IpAddr::V6(target), ingress) {
            if source.is_unspecified() {
                self.note_probe(ingress, IpAddr::V6(target), to);
            }
            return;
        }
        let mac = port.mac;
        let flags = advertisement_flags::ROUTER | advertisement_flags::OVERRIDE;
        let answer = match source {
            IpAddr::V6(source) if !source.is_unspecified() => {
                build::neighbour_advertisement(mac, target, (to, source), flags | advertisement_flags::SOLICITED)
            }
            // Somebody wants to know whether the address is free (RFC 4862 section 5.4.3).
            _ => build::unsolicited_neighbour_advertisement(mac, target, true),
        };
        self.push_control(ingress, answer);
    }

    /// Learns from what a neighbour said of itself, if it is on the link and not this node's own address.
    pub(super) fn learn(&mut self, now: Instant, neighbour: (PortId, IpAddr), mac: MacAddress, how: Learnt) {
        let (port, address) = neighbour;
        let Some(on) = self.ports.get(usize::from(port.0)) else { return };
        if address.is_unspecified() || address.is_multicast() || mac.is_group() || !on.is_on_link(address) {
            return;
        }
        if self.addresses.find(address, port).is_some() {
            if mac != on.mac && self.holds_on_port(address, port) {
                self.note_conflict(now, AddressConflict { port, address, mac });
            } else {
                self.note_in_use(port, address, mac);
            }
            return;
        }
        self.note_learning(Learning { port, address, mac, how });
        for packet in self.neighbours.learn(now, neighbour, mac, how) {
            self.release(port, mac, packet);
        }
    }
}

/// Turns an echo request into its reply. Swapping addresses leaves every sum as it is; type and time to live do not.
fn answer_echo(packet: &mut Packet<'_, '_>) -> Disposition {
    let inverse = packet.headers.tuple.inverse();
    packet.rewrite(&inverse);
    let (l3, l4) = (usize::from(packet.headers.l3_offset), usize::from(packet.headers.l4_offset));
    let is_ipv4 = inverse.version == 4;
    let (request, reply) = if is_ipv4 {
        (icmp::kind::ECHO_REQUEST, icmp::kind::ECHO_REPLY)
    } else {
        (icmpv6::kind::ECHO_REQUEST, icmpv6::kind::ECHO_REPLY)
    };
    let is_partial = matches!(packet.frame.checksum, Checksum::Partial { .. });
    let bytes = packet.frame.bytes_mut();
    let Ok(link) = EthernetView::new_checked(bytes) else { return Disposition::Drop(DropReason::Truncated) };
    let (to, from) = (link.source(), link.destination());
    ethernet::set_addresses(bytes, to, from);
    bytes[l4] = reply;
    if !is_partial {
        update(bytes, l4 + icmp::ICMP_CHECKSUM_OFFSET, u16::from(request) << 8, u16::from(reply) << 8);
    }
    let ttl_at = if is_ipv4 { l3 + 8 } else { l3 + 7 };
    let ttl_before = bytes[ttl_at];
    bytes[ttl_at] = ANSWER_TTL;
    if is_ipv4 {
        update(bytes, l3 + 10, u16::from(ttl_before) << 8, u16::from(ANSWER_TTL) << 8);
    }
    packet.headers.ttl = ANSWER_TTL;
    packet.headers.transport = Transport::IcmpQuery(IcmpQuery { kind: reply, code: 0, is_reply: true });
    Disposition::Transmit(packet.frame.ingress)
}

/// Corrects the checksum at `at` for a word that changed.
fn update(bytes: &mut [u8], at: usize, before: u16, after: u16) {
    let field = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let delta = Sum::ZERO.plus_u16(after).minus(Sum::ZERO.plus_u16(before));
    bytes[at..at + 2].copy_from_slice(&checksum::updated(field, delta).to_be_bytes());
}
