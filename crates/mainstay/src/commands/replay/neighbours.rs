//! Neighbours that always answer: a capture's hosts are not there to be asked for their link addresses.

use std::net::IpAddr;

use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::ethernet::EthernetView;
use flow::wire::icmpv6::{NeighbourMessage, advertisement_flags, kind};
use flow::wire::{self, MacAddress, Parsed, Transport, build};
use flow::{Checksum, Frame, PortId};

/// What a frame of the node's own making is to the replay.
pub(super) enum OwnFrame {
    /// It asks for a link address, and this is the answer.
    Solicitation(Vec<u8>),
    /// It announces an address, or answers who asked for one: nothing that belongs to the capture's packets.
    Announcement,
    /// A packet.
    Packet,
}

/// Classifies a frame that the node itself sends.
pub(super) fn examine(bytes: &mut [u8]) -> OwnFrame {
    let length_bytes = bytes.len();
    let Some(mut frame) = Frame::new(bytes, 0, length_bytes, PortId(0)) else { return OwnFrame::Packet };
    frame.checksum = Checksum::Valid;
    let Ok(link) = EthernetView::new_checked(frame.bytes()) else { return OwnFrame::Packet };
    let asked = (!link.destination().is_group()).then_some(link.destination());
    match wire::parse(&frame) {
        Ok(Parsed::Arp(offset)) => answer_arp(frame.bytes().get(usize::from(offset)..).unwrap_or_default(), asked),
        Ok(Parsed::Ip(headers)) => match headers.transport {
            Transport::IcmpOther(kind::NEIGHBOUR_SOLICITATION, _) if headers.tuple.version == 6 => {
                let message = frame.bytes().get(usize::from(headers.l4_offset)..headers.l3_end());
                answer_solicitation(message.unwrap_or_default(), headers.tuple.source_ip(), asked, link.source())
            }
            Transport::IcmpOther(kind::NEIGHBOUR_ADVERTISEMENT, _) if headers.tuple.version == 6 => {
                OwnFrame::Announcement
            }
            _ => OwnFrame::Packet,
        },
        Err(_) => OwnFrame::Packet,
    }
}

fn answer_arp(message: &[u8], asked: Option<MacAddress>) -> OwnFrame {
    let Ok(arp) = ArpView::new_checked(message) else { return OwnFrame::Announcement };
    if arp.operation() != ArpOperation::Request || arp.is_gratuitous() {
        return OwnFrame::Announcement;
    }
    let mac = asked.unwrap_or_else(|| link_address(arp.target_ip().into()));
    OwnFrame::Solicitation(build::arp_reply(mac, arp.target_ip(), (arp.sender_mac(), arp.sender_ip())))
}

fn answer_solicitation(message: &[u8], source: IpAddr, asked: Option<MacAddress>, to: MacAddress) -> OwnFrame {
    let (Ok(Some(message)), IpAddr::V6(source)) = (NeighbourMessage::parse(message), source) else {
        return OwnFrame::Announcement;
    };
    let mac = asked.unwrap_or_else(|| link_address(message.target.into()));
    let flags = advertisement_flags::SOLICITED | advertisement_flags::OVERRIDE;
    OwnFrame::Solicitation(build::neighbour_advertisement(mac, message.target, (to, source), flags))
}

/// A link address for a host whose address the capture does not have: locally administered, and the same each time.
fn link_address(of: IpAddr) -> MacAddress {
    match of {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            MacAddress([0x02, 4, a, b, c, d])
        }
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            MacAddress([0x02, 6, a, b, c, d])
        }
    }
}
