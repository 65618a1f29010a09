//! Checked views of frames: Ethernet, 802.1Q, ARP, IPv4, IPv6, TCP, UDP, SCTP, ICMP, ICMPv6.
//!
//! [`parse`] checks a frame once, from the link header to the transport checksum, and returns [`Headers`] for all later
//! stages. [`Packet`] changes a frame in place. [`build`] writes whole frames.
//!
//! Each protocol has a module with a view: made by `new_checked`, its accessors cannot fail afterwards.

pub mod arp;
pub mod build;
pub mod checksum;
mod edit;
mod encapsulation;
pub mod ethernet;
mod fragment;
mod fragmentation;
pub mod icmp;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
mod parse;
mod quoted;
mod rewrite;
pub mod sctp;
mod segment;
mod segmentation;
pub mod tcp;
pub mod tlv;
mod translation;
pub mod udp;
pub mod vlan;

use crate::Tuple;

pub use crate::ip_protocol;
pub use encapsulation::{Encapsulation, GUE_PORT_DEFAULT, TunnelEnd};
pub use ethernet::MacAddress;
pub use fragment::Fragment;
pub use fragmentation::fragment_ipv4;
pub use parse::{parse, parse_into};
pub use quoted::{QuotedTcp, TcpHeader};
pub use rewrite::Packet;
pub use sctp::SctpPacket;
pub use segmentation::segment_frame;
pub use translation::Translation;

pub mod tcp_flags {
    //! Bits of the TCP header's flag byte (RFC 9293 section 3.1).
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement field counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

/// A TCP segment as connection tracking sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpSegment {
    /// Sequence number of the first byte (of SYN if it is set).
    pub sequence: u32,
    /// Acknowledgement number; meaningless without ACK.
    pub acknowledgement: u32,
    /// Bits of [`tcp_flags`].
    pub flags: u8,
    /// The window field as it stands, not scaled.
    pub window: u16,
    /// Bytes of payload, of all the segments that the frame stands for.
    pub payload_bytes: u32,
    /// The window scale option's shift, 0–14 (RFC 7323); only looked for in segments with SYN.
    pub window_scale: Option<u8>,
    /// The SACK-permitted option; only looked for in segments with SYN.
    pub sack_permitted: bool,
    /// The highest right edge of the SACK blocks (RFC 2018), or the acknowledgement when there are none.
    pub sack_end: u32,
    /// The maximum segment size option in bytes; only looked for in segments with SYN.
    pub maximum_segment_bytes: Option<u16>,
}

impl TcpSegment {
    /// Whether all bits of `flags` are set.
    #[must_use]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The sequence number behind the segment: SYN and FIN count one each.
    #[must_use]
    pub const fn end(&self) -> u32 {
        let syn = (self.flags & tcp_flags::SYN != 0) as u32;
        let fin = (self.flags & tcp_flags::FIN != 0) as u32;
        self.sequence.wrapping_add(self.payload_bytes).wrapping_add(syn).wrapping_add(fin)
    }
}

/// An ICMP or ICMPv6 message as connection tracking sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpQuery {
    /// Type of the message.
    pub kind: u8,
    /// Code of the message.
    pub code: u8,
    /// The message is a reply (for example an echo reply).
    pub is_reply: bool,
}

/// An ICMP or ICMPv6 error and the packet that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// Type of the message.
    pub kind: u8,
    /// Code of the message.
    pub code: u8,
    /// The tuple of the packet quoted in the error, as it was sent: the inverse of the direction in which the error goes.
    pub inner: Tuple,
    /// Offset of the quoted IP header from the start of the frame, in bytes.
    pub inner_l3_offset: u16,
    /// Offset of the quoted transport header from the start of the frame, in bytes. At least its first 8 bytes are there.
    pub inner_l4_offset: u16,
}

/// The transport behind the network header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A TCP segment.
    Tcp(TcpSegment),
    /// A UDP datagram.
    Udp,
    /// An SCTP packet.
    Sctp(SctpPacket),
    /// An ICMP or ICMPv6 query or its reply.
    IcmpQuery(IcmpQuery),
    /// An ICMP or ICMPv6 error.
    IcmpError(IcmpError),
    /// ICMP or ICMPv6 of another kind: (type, code).
    IcmpOther(u8, u8),
    /// A protocol without ports that are known.
    Other,
}

/// The headers of a parsed frame: positions and contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The packet's tuple.
    pub tuple: Tuple,
    /// The transport behind the network header.
    pub transport: Transport,
    /// Offset of the network header from the start of the frame, in bytes.
    pub l3_offset: u16,
    /// Offset of the transport header from the start of the frame, in bytes.
    pub l4_offset: u16,
    /// Offset of the transport's payload from the start of the frame, in bytes.
    pub payload_offset: u16,
    /// Length of the packet from the network header on, in bytes: the header's value, without link padding.
    pub l3_bytes: u32,
    /// The time to live, or hop limit.
    pub ttl: u8,
    /// The packet is a fragment (offset above 0, or more to come).
    pub is_fragment: bool,
}

impl Headers {
    /// Those of no packet, to be overwritten.
    pub const NONE: Self = Self {
        tuple: Tuple::NONE,
        transport: Transport::Other,
        l3_offset: 0,
        l4_offset: 0,
        payload_offset: 0,
        l3_bytes: 0,
        ttl: 0,
        is_fragment: false,
    };

    /// Offset of the packet's end from the start of the frame, in bytes; link padding follows.
    #[must_use]
    #[inline]
    pub const fn l3_end(&self) -> usize {
        self.l3_offset as usize + self.l3_bytes as usize
    }
}

/// A frame that was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed<H = Headers> {
    /// An IP packet, whole and with valid checksums. [`parse_into`] stores its headers in the caller's buffer.
    Ip(H),
    /// An ARP packet for IPv4 over Ethernet, that begins at this offset from the start of the frame.
    Arp(u16),
}

#[cfg(test)]
mod tests;
