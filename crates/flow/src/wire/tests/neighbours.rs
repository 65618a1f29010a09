//! ARP and neighbour discovery.

use alloc::string::ToString;

use super::*;
use crate::wire::MacAddress;
use crate::wire::arp::{ArpOperation, ArpView};
use crate::wire::ethernet::{self, EthernetView};
use crate::wire::icmpv6::{NEIGHBOUR_HOP_LIMIT, NeighbourMessage, advertisement_flags, solicited_node};
use crate::wire::vlan::VlanView;

const MINE: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x11]);
const THEIRS: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x22]);

#[track_caller]
fn arp_in(frame: &[u8]) -> ArpView<'_> {
    let Ok(Parsed::Arp(offset)) = read(frame) else { panic!("{:?}", read(frame)) };
    ArpView::new_checked(&frame[usize::from(offset)..]).expect("parsed already")
}

#[track_caller]
fn neighbour_in(frame: &[u8]) -> NeighbourMessage {
    let headers = headers(frame);
    assert_eq!(headers.ttl, NEIGHBOUR_HOP_LIMIT);
    NeighbourMessage::parse(&frame[usize::from(headers.l4_offset)..headers.l3_end()])
        .expect("built whole")
        .expect("built as a neighbour message")
}

#[test]
fn a_request_is_answered_by_a_reply_to_the_requester() {
    let request = build::arp_request(THEIRS, CLIENT, SERVER);
    let asked = arp_in(&request);
    assert_eq!((asked.operation(), asked.target_ip(), asked.is_gratuitous()), (ArpOperation::Request, SERVER, false));
    assert_eq!(EthernetView::new_checked(&request).map(|frame| frame.destination()), Ok(MacAddress::BROADCAST));

    let reply = build::arp_reply(MINE, SERVER, (asked.sender_mac(), asked.sender_ip()));
    let answer = arp_in(&reply).message();
    assert_eq!((answer.operation, answer.sender_mac, answer.sender_ip), (ArpOperation::Reply, MINE, SERVER));
    assert_eq!((answer.target_mac, answer.target_ip), (THEIRS, CLIENT));
    assert_eq!(EthernetView::new_checked(&reply).map(|frame| frame.destination()), Ok(THEIRS));
}

#[test]
fn gratuitous_arp_announces_in_either_form() {
    for operation in [ArpOperation::Request, ArpOperation::Reply] {
        let frame = build::gratuitous_arp(operation, MINE, SERVER);
        let arp = arp_in(&frame);
        assert!(arp.is_gratuitous());
        assert_eq!((arp.operation(), arp.sender_mac(), arp.sender_ip()), (operation, MINE, SERVER));
    }
}

#[test]
fn arp_for_other_networks_or_from_a_group_is_refused() {
    let frame = build::arp_request(MINE, CLIENT, SERVER);
    for (at, value, reason) in [
        (1, 6, DropReason::UnsupportedLinkProtocol),
        (2, 0x86, DropReason::UnsupportedLinkProtocol),
        (7, 3, DropReason::UnsupportedLinkProtocol),
        (4, 8, DropReason::Malformed),
        (5, 16, DropReason::Malformed),
        (8, 3, DropReason::Malformed),
    ] {
        let mut frame = frame.clone();
        frame[14 + at] = value;
        assert_eq!(read(&frame), Err(reason), "byte {at} = {value}");
    }
}

#[test]
fn a_solicitation_goes_to_the_targets_group_with_the_senders_link_address() {
    let target = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12ab, 0xcdef);
    let frame = build::neighbour_solicitation(THEIRS, v6(2), target);
    let message = neighbour_in(&frame);
    assert_eq!((message.is_advertisement, message.target, message.link_address), (false, target, Some(THEIRS)));
    assert_eq!(headers(&frame).tuple.destination_ip(), solicited_node(target));
    assert_eq!(solicited_node(target).to_string(), "ff02::1:ffab:cdef");
    let to = EthernetView::new_checked(&frame).expect("built whole").destination();
    assert_eq!(to.to_string(), "33:33:ff:ab:cd:ef");
}

#[test]
fn a_host_without_address_may_solicit_but_not_advertise() {
    let message = neighbour_in(&build::neighbour_solicitation(THEIRS, Ipv6Addr::UNSPECIFIED, v6(9)));
    assert_eq!((message.target, message.link_address), (v6(9), None));
}

#[test]
fn an_unsolicited_advertisement_overrides_the_former_owner_at_all_nodes() {
    let frame = build::unsolicited_neighbour_advertisement(MINE, v6(1), true);
    let message = neighbour_in(&frame);
    assert_eq!(message.flags, advertisement_flags::OVERRIDE | advertisement_flags::ROUTER);
    assert_eq!((message.is_advertisement, message.target, message.link_address), (true, v6(1), Some(MINE)));
    assert_eq!(headers(&frame).tuple.destination_ip().to_string(), "ff02::1");
}

#[test]
fn neighbour_messages_that_do_not_fit_are_malformed() {
    let frame = build::neighbour_solicitation(THEIRS, v6(2), v6(1));
    let message = &frame[14 + 40..];
    let damaged = |at: usize, value: u8| {
        let mut message = message.to_vec();
        message[at] = value;
        NeighbourMessage::parse(&message)
    };
    assert_eq!(damaged(1, 1), Err(DropReason::Malformed), "code");
    assert_eq!(damaged(8, 0xff), Err(DropReason::Malformed), "multicast target");
    assert_eq!(damaged(25, 0), Err(DropReason::Malformed), "an option of no length");
    assert_eq!(damaged(25, 2), Err(DropReason::Malformed), "an option longer than the message");
    assert_eq!(damaged(0, 128), Ok(None), "another message");
    for length in 0..message.len() {
        let truncated = NeighbourMessage::parse(&message[..length]);
        let without_option = length == 24;
        assert!(if without_option { matches!(truncated, Ok(Some(_))) } else { truncated.is_err() }, "{length}");
    }
}

#[test]
fn link_addresses_and_tags_can_be_read_and_written() {
    let mut frame = Envelope { vlans: &[100, 4095], ..Envelope::default() }.udp(&udp4(), b"");
    assert!(ethernet::set_addresses(&mut frame, THEIRS, MINE));
    let view = EthernetView::new_checked(&frame).expect("built whole");
    assert_eq!((view.destination(), view.source(), view.ether_type()), (THEIRS, MINE, 0x88a8));
    let outer = VlanView::new_checked(view.payload()).expect("built with a tag");
    assert_eq!((outer.id(), outer.priority(), outer.is_drop_eligible(), outer.ether_type()), (100, 0, false, 0x8100));
    let inner = VlanView::new_checked(outer.payload()).expect("built with two tags");
    assert_eq!((inner.id(), inner.ether_type()), (4095, 0x0800));
    assert!(!ethernet::set_addresses(&mut [0; 11], THEIRS, MINE));
}
