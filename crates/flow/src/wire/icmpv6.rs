//! ICMPv6 messages (RFC 4443) and neighbour discovery (RFC 4861). The header is that of ICMP: see
//! [`IcmpView`].

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use super::ethernet::MacAddress;
use super::icmp::{Class, IcmpView};
use crate::DropReason;

/// Bytes of a neighbour solicitation or advertisement before its options.
pub const NEIGHBOUR_MESSAGE_BYTES: usize = 24;
/// The hop limit that neighbour discovery must arrive with, as proof that no router passed it on (RFC 4861 section 7.1).
pub const NEIGHBOUR_HOP_LIMIT: u8 = 255;

pub mod kind {
    //! Types of ICMPv6 messages (IANA).
    /// A packet could not be delivered; its codes are in [`super::unreachable_code`].
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// A packet exceeds the MTU of a link, which is in the second word.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// A packet's hop limit ran out (code 0), or the time of its reassembly (1).
    pub const TIME_EXCEEDED: u8 = 3;
    /// A packet's header could not be understood.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Requests an echo reply.
    pub const ECHO_REQUEST: u8 = 128;
    /// Replies to an echo request.
    pub const ECHO_REPLY: u8 = 129;
    /// Requests a router advertisement.
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Announces a router and the networks of its link.
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Requests the link address of an address.
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Announces the link address of an address.
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
}

pub mod unreachable_code {
    //! Codes of [`super::kind::DESTINATION_UNREACHABLE`] (RFC 4443 section 3.1).
    /// No route.
    pub const NO_ROUTE: u8 = 0;
    /// Forbidden by an administrator.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    /// No route to the address.
    pub const ADDRESS: u8 = 3;
    /// No socket listens on the port.
    pub const PORT: u8 = 4;
}

pub mod advertisement_flags {
    //! The first byte of an advertisement's second word (RFC 4861 section 4.4).
    /// The sender is a router.
    pub const ROUTER: u8 = 0x80;
    /// It answers a solicitation.
    pub const SOLICITED: u8 = 0x40;
    /// It replaces what the receiver had stored.
    pub const OVERRIDE: u8 = 0x20;
}

const OPTION_SOURCE_LINK_ADDRESS: u8 = 1;
const OPTION_TARGET_LINK_ADDRESS: u8 = 2;

/// The kind of an ICMPv6 message by its type.
#[inline]
pub(super) const fn classify(message: u8) -> Class {
    match message {
        kind::ECHO_REQUEST => Class::Query { request: kind::ECHO_REQUEST, is_reply: false },
        kind::ECHO_REPLY => Class::Query { request: kind::ECHO_REQUEST, is_reply: true },
        kind::DESTINATION_UNREACHABLE | kind::PACKET_TOO_BIG | kind::TIME_EXCEEDED | kind::PARAMETER_PROBLEM => {
            Class::Error
        }
        _ => Class::Other,
    }
}

/// A neighbour solicitation or advertisement, checked by RFC 4861 section 7.1 except for the IP header's hop limit. The
/// caller must verify that it is [`NEIGHBOUR_HOP_LIMIT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourMessage {
    /// The message is an advertisement, else a solicitation.
    pub is_advertisement: bool,
    /// Bits of [`advertisement_flags`]; 0 in a solicitation.
    pub flags: u8,
    /// The solicited or advertised address.
    pub target: Ipv6Addr,
    /// The link address in the message: the source's in a solicitation, the target's in an advertisement.
    pub link_address: Option<MacAddress>,
}

impl NeighbourMessage {
    /// Reads a message from its ICMPv6 header on. `None`: it is no neighbour solicitation or advertisement.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: a code that is not 0, a multicast target, an option that does not fit.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, DropReason> {
        let message = IcmpView::new_checked(bytes)?;
        let is_advertisement = match message.kind() {
            kind::NEIGHBOUR_SOLICITATION => false,
            kind::NEIGHBOUR_ADVERTISEMENT => true,
            _ => return Ok(None),
        };
        let (target, options) = message.body().split_first_chunk::<16>().ok_or(DropReason::Malformed)?;
        let target = Ipv6Addr::from(*target);
        if message.code() != 0 || target.is_multicast() {
            return Err(DropReason::Malformed);
        }
        let wanted = if is_advertisement { OPTION_TARGET_LINK_ADDRESS } else { OPTION_SOURCE_LINK_ADDRESS };
        let flags = if is_advertisement { message.parameter().to_be_bytes()[0] } else { 0 };
        Ok(Some(Self { is_advertisement, flags, target, link_address: find_link_address(options, wanted)? }))
    }

    /// Appends the message with a zero checksum.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (kind, option) = if self.is_advertisement {
            (kind::NEIGHBOUR_ADVERTISEMENT, OPTION_TARGET_LINK_ADDRESS)
        } else {
            (kind::NEIGHBOUR_SOLICITATION, OPTION_SOURCE_LINK_ADDRESS)
        };
        out.extend_from_slice(&[kind, 0, 0, 0, self.flags, 0, 0, 0]);
        out.extend_from_slice(&self.target.octets());
        if let Some(address) = self.link_address {
            out.extend_from_slice(&[option, 1]);
            out.extend_from_slice(&address.0);
        }
    }
}

/// The solicited-node multicast group of an address (RFC 4291 section 2.7.1).
#[must_use]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let low = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (low[6] & 0xff), low[7])
}

/// Every option has a length of at least eight bytes, so the loop is bounded by the bytes.
pub(super) fn find_link_address(mut options: &[u8], wanted: u8) -> Result<Option<MacAddress>, DropReason> {
    let mut found = None;
    while let [kind, length, ..] = *options {
        let length_bytes = usize::from(length) * 8;
        if length_bytes == 0 {
            return Err(DropReason::Malformed);
        }
        let (option, rest) = options.split_at_checked(length_bytes).ok_or(DropReason::Malformed)?;
        if let ([_, _, a, b, c, d, e, f], true) = (option, kind == wanted) {
            found = found.or(Some(MacAddress([*a, *b, *c, *d, *e, *f])));
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(DropReason::Malformed) }
}
