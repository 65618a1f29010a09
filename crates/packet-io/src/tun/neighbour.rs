//! Neighbour discovery by the node on an emulated link.

use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::ethernet::{ETHERNET_HEADER_BYTES, ether_type};
use flow::wire::icmpv6::{NeighbourMessage, advertisement_flags, kind};
use flow::wire::ipv6::Ipv6View;
use flow::wire::{MacAddress, build, ip_protocol};

use super::KERNEL_MAC;

/// The offset of the next-header field in an IPv6 frame.
const NEXT_HEADER_AT: usize = ETHERNET_HEADER_BYTES + 6;
/// The offset of the ICMPv6 message in an IPv6 frame without extension headers.
const MESSAGE_AT: usize = ETHERNET_HEADER_BYTES + 40;

/// The treatment of a frame that the node sends.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum NeighbourAction {
    /// Not about neighbours: it goes to the kernel.
    Forward,
    /// For neighbours other than the kernel: it is discarded.
    Discard,
    /// The node receives this reply.
    Reply(Vec<u8>),
}

/// The treatment of `frame`: every requested neighbour has [`KERNEL_MAC`].
pub(super) fn answer(frame: &[u8]) -> NeighbourAction {
    let Some(link) = frame.first_chunk::<ETHERNET_HEADER_BYTES>() else { return NeighbourAction::Forward };
    let sender = MacAddress([link[6], link[7], link[8], link[9], link[10], link[11]]);
    match u16::from_be_bytes([link[12], link[13]]) {
        ether_type::ARP => {
            answer_arp(&frame[ETHERNET_HEADER_BYTES..]).map_or(NeighbourAction::Discard, NeighbourAction::Reply)
        }
        ether_type::IPV6 if is_about_neighbours(frame) => {
            answer_solicitation(frame, sender).map_or(NeighbourAction::Discard, NeighbourAction::Reply)
        }
        _ => NeighbourAction::Forward,
    }
}

fn answer_arp(packet: &[u8]) -> Option<Vec<u8>> {
    let request = ArpView::new_checked(packet).ok()?;
    let is_question = request.operation() == ArpOperation::Request && !request.is_gratuitous();
    let asker = (request.sender_mac(), request.sender_ip());
    is_question.then(|| build::arp_reply(KERNEL_MAC, request.target_ip(), asker))
}

fn is_about_neighbours(frame: &[u8]) -> bool {
    frame.get(NEXT_HEADER_AT) == Some(&ip_protocol::ICMPV6)
        && matches!(frame.get(MESSAGE_AT), Some(&(kind::NEIGHBOUR_SOLICITATION | kind::NEIGHBOUR_ADVERTISEMENT)))
}

fn answer_solicitation(frame: &[u8], sender: MacAddress) -> Option<Vec<u8>> {
    let source = Ipv6View::new_checked(&frame[ETHERNET_HEADER_BYTES..]).ok()?.source();
    let message = NeighbourMessage::parse(&frame[MESSAGE_AT..]).ok()??;
    // From the unspecified address it is duplicate address detection, which finds no duplicate.
    let is_question = !message.is_advertisement && source != [0; 16];
    let flags = advertisement_flags::SOLICITED | advertisement_flags::OVERRIDE;
    is_question.then(|| build::neighbour_advertisement(KERNEL_MAC, message.target, (sender, source.into()), flags))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use flow::Tuple;

    use super::super::NODE_MAC;
    use super::*;

    #[test]
    fn every_requested_neighbour_has_the_kernels_address() {
        let (own, other) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 9));
        let NeighbourAction::Reply(reply) = answer(&build::arp_request(NODE_MAC, own, other)) else {
            panic!("no answer")
        };
        let view = ArpView::new_checked(&reply[ETHERNET_HEADER_BYTES..]).unwrap();
        assert_eq!((view.sender_mac(), view.sender_ip(), view.target_ip()), (KERNEL_MAC, other, own));

        let (own, other): (Ipv6Addr, Ipv6Addr) = ("fe80::1".parse().unwrap(), "fd00::9".parse().unwrap());
        let NeighbourAction::Reply(reply) = answer(&build::neighbour_solicitation(NODE_MAC, own, other)) else {
            panic!("no answer")
        };
        let message = NeighbourMessage::parse(&reply[MESSAGE_AT..]).unwrap().unwrap();
        assert_eq!((message.is_advertisement, message.target), (true, other));
        assert_eq!(message.link_address, Some(KERNEL_MAC));
        assert_eq!(reply[..6], NODE_MAC.0);
    }

    #[test]
    fn announcements_are_discarded_and_packets_forwarded() {
        let own = Ipv4Addr::new(10, 0, 0, 1);
        let announcement = build::gratuitous_arp(ArpOperation::Request, NODE_MAC, own);
        assert_eq!(answer(&announcement), NeighbourAction::Discard);
        let address = "fd00::1".parse().unwrap();
        assert_eq!(
            answer(&build::unsolicited_neighbour_advertisement(NODE_MAC, address, true)),
            NeighbourAction::Discard
        );
        let address_probe = build::neighbour_solicitation(NODE_MAC, Ipv6Addr::UNSPECIFIED, address);
        assert_eq!(answer(&address_probe), NeighbourAction::Discard);
        for (from, to) in [(IpAddr::V4(own), IpAddr::V4(own)), (IpAddr::V6(address), IpAddr::V6(address))] {
            let packet = build::udp(&Tuple::new(17, (from, 1).into(), (to, 2).into()), b"data");
            assert_eq!(answer(&packet), NeighbourAction::Forward);
        }
        for length_bytes in 0..20 {
            answer(&announcement[..length_bytes]);
        }
    }
}
