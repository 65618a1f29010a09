//! ICMP messages (RFC 792).

use core::net::{IpAddr, SocketAddr};

use super::{icmpv6, ip_protocol};
use crate::{DropReason, Tuple};

/// Bytes of the header that all ICMP messages share, with their second word, whose meaning depends on the kind.
pub const ICMP_HEADER_BYTES: usize = 8;
/// Bytes of a timestamp or timestamp reply message.
pub const ICMP_TIMESTAMP_BYTES: usize = 20;
/// Offset of the checksum from the start of the header, in bytes; the same in ICMPv6.
pub const ICMP_CHECKSUM_OFFSET: usize = 2;
/// Offset of a query's identifier from the start of the header, in bytes; the same in ICMPv6.
pub const ICMP_IDENTIFIER_OFFSET: usize = 4;

pub mod kind {
    //! Types of ICMP messages (IANA).
    /// Replies to an echo request.
    pub const ECHO_REPLY: u8 = 0;
    /// A packet could not be delivered; its codes are in [`super::unreachable_code`].
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// A packet met congestion (deprecated by RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// There is a better first hop.
    pub const REDIRECT: u8 = 5;
    /// Requests an echo reply.
    pub const ECHO_REQUEST: u8 = 8;
    /// A packet's time to live expired (code 0), or that of its reassembly (1).
    pub const TIME_EXCEEDED: u8 = 11;
    /// A packet's header could not be understood.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Requests a timestamp reply.
    pub const TIMESTAMP: u8 = 13;
    /// Replies with a timestamp.
    pub const TIMESTAMP_REPLY: u8 = 14;
}

pub mod unreachable_code {
    //! Codes of [`super::kind::DESTINATION_UNREACHABLE`] (RFC 1812 section 5.2.7.1).
    /// No route to the network.
    pub const NETWORK: u8 = 0;
    /// Host unreachable.
    pub const HOST: u8 = 1;
    /// The host does not support the protocol.
    pub const PROTOCOL: u8 = 2;
    /// No socket listens on the port.
    pub const PORT: u8 = 3;
    /// Too large for the link and not to be fragmented; the low half of the second word is the link's MTU (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Forbidden by an administrator.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// A checked view of an ICMP or ICMPv6 message, of any kind.
#[derive(Clone, Copy, Debug)]
pub struct IcmpView<'a> {
    header: &'a [u8; ICMP_HEADER_BYTES],
    body: &'a [u8],
}

impl<'a> IcmpView<'a> {
    /// Views the payload of an IP packet.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: it is shorter than the shortest message.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, body) = bytes.split_first_chunk().ok_or(DropReason::Malformed)?;
        Ok(Self { header, body })
    }

    /// The message's type: one of [`kind`] (ICMP) or [`icmpv6::kind`].
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> u8 {
        self.header[0]
    }

    /// The message's code.
    #[must_use]
    #[inline]
    pub const fn code(&self) -> u8 {
        self.header[1]
    }

    /// A query's identifier; meaningless in other messages.
    #[must_use]
    #[inline]
    pub const fn identifier(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// A query's sequence number; meaningless in other messages.
    #[must_use]
    pub const fn sequence(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// The second word as it stands: an error's MTU or pointer, for example.
    #[must_use]
    pub const fn parameter(&self) -> u32 {
        u32::from_be_bytes([self.header[4], self.header[5], self.header[6], self.header[7]])
    }

    /// All behind the second word: an error's quoted packet, an echo's data.
    #[must_use]
    #[inline]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// A query of the request type, or the reply to one.
    Query { request: u8, is_reply: bool },
    /// An error that quotes a packet.
    Error,
    /// Another kind.
    Other,
}

/// The kind of an ICMP message by its type. The obsolete queries (information, address mask) are of the other kind, as
/// is the redirect, which concerns the link alone.
#[inline]
pub(super) const fn classify(message: u8) -> Class {
    match message {
        kind::ECHO_REQUEST | kind::TIMESTAMP => Class::Query { request: message, is_reply: false },
        kind::ECHO_REPLY => Class::Query { request: kind::ECHO_REQUEST, is_reply: true },
        kind::TIMESTAMP_REPLY => Class::Query { request: kind::TIMESTAMP, is_reply: true },
        kind::DESTINATION_UNREACHABLE | kind::SOURCE_QUENCH | kind::TIME_EXCEEDED | kind::PARAMETER_PROBLEM => {
            Class::Error
        }
        _ => Class::Other,
    }
}

impl Tuple {
    /// The tuple of an echo request of the addresses' family (ICMP or ICMPv6) and of its replies' inverse.
    ///
    /// # Panics
    /// The addresses are of different families.
    #[must_use]
    pub fn echo(source: IpAddr, destination: IpAddr, identifier: u16) -> Self {
        let (protocol, discriminator) = if source.is_ipv4() {
            (ip_protocol::ICMP, kind::ECHO_REQUEST)
        } else {
            (ip_protocol::ICMPV6, icmpv6::kind::ECHO_REQUEST)
        };
        let (source, destination) = (SocketAddr::new(source, identifier), SocketAddr::new(destination, identifier));
        Self { discriminator: u16::from(discriminator), ..Self::new(protocol, source, destination) }
    }
}
