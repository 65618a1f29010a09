//! Changes a packet in place, with incremental checksum updates (RFC 1624).

use super::checksum::{self, Sum};
use super::icmp::{ICMP_CHECKSUM_OFFSET, ICMP_IDENTIFIER_OFFSET};
use super::ipv4::{self, IPV4_HEADER_BYTES};
use super::sctp;
use super::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES, TCP_HEADER_BYTES_MAX, TcpView, option};
use super::udp::UDP_CHECKSUM_OFFSET;
use super::{Headers, IcmpError, Transport, ip_protocol, tcp_flags};
use crate::key::unmapped;
use crate::{Checksum, DropReason, Frame, Tuple};

const IPV4_TTL_OFFSET: usize = 8;
const IPV4_CHECKSUM_OFFSET: usize = 10;
const IPV4_SOURCE_OFFSET: usize = 12;
const IPV4_DESTINATION_OFFSET: usize = 16;
/// Bytes of an IPv4 and a TCP header, both without options.
const PLAIN_TCP_BYTES: usize = IPV4_HEADER_BYTES + TCP_HEADER_BYTES;
const IPV6_HOP_LIMIT_OFFSET: usize = 7;
const IPV6_SOURCE_OFFSET: usize = 8;
const IPV6_DESTINATION_OFFSET: usize = 24;

/// A packet in the chain of functions: the frame and its headers, kept consistent as it is rewritten.
///
/// `headers` must be the result of [`parse`](super::parse) for `frame`. With others, bytes at wrong offsets are
/// rewritten, though never beyond the frame's end.
#[derive(Debug)]
pub struct Packet<'f, 'b> {
    /// The frame.
    pub frame: &'f mut Frame<'b>,
    /// The current headers. They are borrowed like the frame, so that no stage copies them.
    pub headers: &'f mut Headers,
}

impl Packet<'_, '_> {
    /// The payload behind the transport header, without link padding. Empty when its start is unknown.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.frame.bytes().get(usize::from(self.headers.payload_offset)..self.headers.l3_end()).unwrap_or_default()
    }

    /// Rewrites addresses and ports (or the ICMP identifier, from the source port) to those of `tuple`, and the
    /// checksums with them: whole, partial (address change only, uncomplemented) or verified alike. Protocol and
    /// version must be the packet's own. Of ICMP errors and fragments without ports the addresses alone are rewritten; for
    /// the packet that an error quotes see [`Packet::rewrite_icmp_error`].
    #[inline]
    pub fn rewrite(&mut self, tuple: &Tuple) {
        let is_partial = self.is_partial();
        if let (Transport::Tcp(_), 4, false) = (&self.headers.transport, tuple.version, is_partial)
            && self.rewrite_plain_tcp(tuple)
        {
            self.headers.tuple = *tuple;
            return;
        }
        let Headers { transport, l3_offset, l4_offset, .. } = *self.headers;
        let l4 = usize::from(l4_offset);
        let mut patch = Patch::new(self.frame.bytes_mut());
        let addresses = patch.set_addresses(usize::from(l3_offset), tuple);
        if let Some(field) = Field::of(&transport, l4, tuple.version) {
            let body = match transport {
                Transport::Tcp(_) | Transport::Udp => patch.set_ports(l4, tuple),
                Transport::IcmpQuery(_) => patch.set_identifier(l4, tuple),
                _ => Sum::ZERO,
            };
            patch.fix(field, addresses, body, is_partial);
        }
        if matches!(transport, Transport::Sctp(_)) {
            self.rewrite_sctp_ports(tuple);
        }
        self.headers.tuple = *tuple;
    }

    /// Rewrites the ports of an SCTP packet, whose checksum covers them but no address. The checksum is computed in
    /// full even where it was offloaded, as hardware may not support it. For whole packets only: a fragment's checksum
    /// covers bytes that are not here.
    fn rewrite_sctp_ports(&mut self, tuple: &Tuple) {
        let (is_partial, end) = (self.is_partial(), self.headers.l3_end());
        let before = self.headers.tuple;
        let is_same = (before.source_port, before.destination_port) == (tuple.source_port, tuple.destination_port);
        let l4 = usize::from(self.headers.l4_offset);
        if is_same && !is_partial {
            return;
        }
        let bytes = self.frame.bytes_mut();
        Patch::new(bytes).set_ports(l4, tuple);
        let end = end.min(bytes.len());
        let is_filled = bytes.get_mut(l4..end).is_some_and(sctp::fill_checksum);
        if is_partial && is_filled {
            self.frame.checksum = Checksum::Valid;
        }
    }

    /// The fast path of [`Packet::rewrite`], with one length check: TCP behind an IPv4 header without options, checksum
    /// complete. Returns false, without changes, for other packets.
    #[inline]
    fn rewrite_plain_tcp(&mut self, tuple: &Tuple) -> bool {
        let Headers { l3_offset, l4_offset, .. } = *self.headers;
        let rest = self.frame.bytes_mut().get_mut(usize::from(l3_offset)..);
        let Some(headers) = rest.and_then(|rest| rest.first_chunk_mut::<PLAIN_TCP_BYTES>()) else { return false };
        if usize::from(l4_offset) != usize::from(l3_offset) + IPV4_HEADER_BYTES {
            return false;
        }
        let (ip, tcp) = headers.split_at_mut(IPV4_HEADER_BYTES);
        let (source, destination) = (unmapped(&tuple.source), unmapped(&tuple.destination));
        let before = Sum::of(&ip[IPV4_SOURCE_OFFSET..]);
        ip[IPV4_SOURCE_OFFSET..IPV4_DESTINATION_OFFSET].copy_from_slice(&source);
        ip[IPV4_DESTINATION_OFFSET..].copy_from_slice(&destination);
        let addresses = Sum::of_u32(source).plus(Sum::of_u32(destination)).minus(before);
        update(&mut ip[IPV4_CHECKSUM_OFFSET..], addresses);

        let before = Sum::of(&tcp[..4]);
        tcp[..2].copy_from_slice(&tuple.source_port.to_be_bytes());
        tcp[2..4].copy_from_slice(&tuple.destination_port.to_be_bytes());
        let ports = Sum::ZERO.plus_u16(tuple.source_port).plus_u16(tuple.destination_port).minus(before);
        update(&mut tcp[TCP_CHECKSUM_OFFSET..], addresses.plus(ports));
        true
    }

    /// Rewrites an ICMP error for the other side of a translation: it goes from `source` to `destination` (in the form
    /// of [`Tuple`]), and the packet that it quotes becomes `quoted` (the tuple as that side knows it to have been
    /// sent). All checksums follow: the quoted header's, the quoted transport's where the quote reaches that far,
    /// and the error's own. Does nothing to packets of other kinds.
    pub fn rewrite_icmp_error(&mut self, quoted: &Tuple, source: &[u8; 16], destination: &[u8; 16]) {
        let Transport::IcmpError(error) = self.headers.transport else { return };
        let is_partial = self.is_partial();
        let Headers { tuple, l3_offset, l4_offset, .. } = *self.headers;
        let end = self.headers.l3_end();
        let outer = Tuple { source: *source, destination: *destination, ..tuple };
        let bytes = self.frame.bytes_mut();
        let end = end.min(bytes.len());
        let mut patch = Patch::new(&mut bytes[..end]);
        let addresses = patch.set_addresses(usize::from(l3_offset), &outer);
        let body = patch.rewrite_quoted(&error, quoted);
        if let Some(field) = Field::of(&self.headers.transport, usize::from(l4_offset), tuple.version) {
            patch.fix(field, addresses, body, is_partial);
        }
        self.headers.tuple = outer;
        self.headers.transport = Transport::IcmpError(IcmpError { inner: *quoted, ..error });
    }

    /// Updates the transport checksum after the bytes that it covers, other than addresses, changed by `delta`.
    pub(super) fn fix_transport_checksum(&mut self, delta: Sum) {
        let is_partial = self.is_partial();
        let l4 = usize::from(self.headers.l4_offset);
        if let Some(field) = Field::of(&self.headers.transport, l4, self.headers.tuple.version) {
            Patch::new(self.frame.bytes_mut()).fix(field, Sum::ZERO, delta, is_partial);
        }
    }

    /// Decrements the time to live or hop limit.
    ///
    /// # Errors
    /// [`DropReason::TtlExceeded`]: it would be zero; the packet is as it was.
    #[inline]
    pub fn decrement_ttl(&mut self) -> Result<(), DropReason> {
        if self.headers.ttl <= 1 {
            return Err(DropReason::TtlExceeded);
        }
        let ttl = self.headers.ttl - 1;
        self.headers.ttl = ttl;
        let rest = self.frame.bytes_mut().get_mut(usize::from(self.headers.l3_offset)..);
        if self.headers.tuple.version == 4 {
            let Some(ip) = rest.and_then(|rest| rest.first_chunk_mut::<IPV4_HEADER_BYTES>()) else { return Ok(()) };
            ip[IPV4_TTL_OFFSET] = ttl;
            let checksum = u16::from_be_bytes([ip[IPV4_CHECKSUM_OFFSET], ip[IPV4_CHECKSUM_OFFSET + 1]]);
            let checksum = ipv4::checksum_after_hop(checksum);
            ip[IPV4_CHECKSUM_OFFSET..IPV4_CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_be_bytes());
        } else if let Some(hop_limit) = rest.and_then(|rest| rest.get_mut(IPV6_HOP_LIMIT_OFFSET)) {
            *hop_limit = ttl;
        }
        Ok(())
    }

    /// Lowers the maximum segment size option of a SYN to `max_bytes`. Returns false if the packet is no SYN, lacks the
    /// option, or does not exceed the value.
    pub fn clamp_mss(&mut self, max_bytes: u16) -> bool {
        let is_partial = self.is_partial();
        let end = self.headers.l3_end();
        let l4 = usize::from(self.headers.l4_offset);
        let Transport::Tcp(segment) = &mut self.headers.transport else { return false };
        if segment.flags & tcp_flags::SYN == 0 || segment.maximum_segment_bytes.is_none_or(|mss| mss <= max_bytes) {
            return false;
        }
        let bytes = self.frame.bytes_mut();
        let header_end = end.min(l4 + TCP_HEADER_BYTES_MAX);
        let Some(at) = bytes.get(l4..header_end).and_then(mss_value_offset) else { return false };
        let mut patch = Patch::new(bytes);
        let delta = patch.set(l4 + at, &max_bytes.to_be_bytes());
        segment.maximum_segment_bytes = Some(max_bytes);
        patch.fix(Field::complemented(l4 + TCP_CHECKSUM_OFFSET), Sum::ZERO, delta, is_partial);
        true
    }

    /// Whether the transport checksum is offloaded. A partial checksum that starts elsewhere belongs to an inner packet
    /// (a tunnel's): this one's is then complete.
    #[inline]
    pub(super) fn is_partial(&self) -> bool {
        matches!(self.frame.checksum, Checksum::Partial { start, .. } if start == self.headers.l4_offset)
    }
}

/// Updates the checksum at the beginning of `field`.
#[inline(always)]
pub(super) fn update(field: &mut [u8], delta: Sum) {
    let new = checksum::updated(u16::from_be_bytes([field[0], field[1]]), delta);
    field[..2].copy_from_slice(&new.to_be_bytes());
}

/// The position of the maximum segment size option's value in a TCP header; the last one counts, as in parsing.
fn mss_value_offset(segment: &[u8]) -> Option<usize> {
    let options = TcpView::new_checked(segment).ok()?.options();
    let found =
        options.filter_map(Result::ok).filter(|o| o.kind == option::MAXIMUM_SEGMENT && o.value.len() == 2).last();
    found.map(|option| TCP_HEADER_BYTES + option.value_offset)
}

/// A checksum field.
#[derive(Clone, Copy)]
struct Field {
    /// Offset from the start of the frame, in bytes.
    at: usize,
    /// It covers the pseudo-header.
    covers_addresses: bool,
    /// Zero means that there is none (UDP).
    zero_is_none: bool,
}

impl Field {
    /// A field that covers the bytes whose change its owner computes.
    const fn complemented(at: usize) -> Self {
        Self { at, covers_addresses: true, zero_is_none: false }
    }

    /// The field of a transport header at `l4`, if it has one that is known.
    #[inline]
    fn of(transport: &Transport, l4: usize, version: u8) -> Option<Self> {
        match transport {
            Transport::Tcp(_) => Some(Self::complemented(l4 + TCP_CHECKSUM_OFFSET)),
            Transport::Udp => Some(Self { zero_is_none: true, ..Self::complemented(l4 + UDP_CHECKSUM_OFFSET) }),
            Transport::IcmpQuery(_) | Transport::IcmpError(_) | Transport::IcmpOther(..) => {
                Some(Self::icmp(l4, version))
            }
            Transport::Sctp(_) | Transport::Other => None,
        }
    }

    /// The same by protocol number, for a quoted packet.
    const fn of_protocol(protocol: u8, l4: usize, version: u8) -> Option<Self> {
        match protocol {
            ip_protocol::TCP => Some(Self::complemented(l4 + TCP_CHECKSUM_OFFSET)),
            ip_protocol::UDP => Some(Self { zero_is_none: true, ..Self::complemented(l4 + UDP_CHECKSUM_OFFSET) }),
            ip_protocol::ICMP | ip_protocol::ICMPV6 => Some(Self::icmp(l4, version)),
            _ => None,
        }
    }

    /// ICMPv6 covers a pseudo-header (RFC 4443 section 2.3), ICMP does not.
    const fn icmp(l4: usize, version: u8) -> Self {
        Self { covers_addresses: version == 6, ..Self::complemented(l4 + ICMP_CHECKSUM_OFFSET) }
    }
}

/// Bytes being changed. Every change returns the change of the ones-complement sum, new minus old. Offsets are from the
/// start of the frame; network and transport headers begin at even ones. Changes beyond the end are not made.
struct Patch<'b> {
    bytes: &'b mut [u8],
}

impl<'b> Patch<'b> {
    #[inline]
    const fn new(bytes: &'b mut [u8]) -> Self {
        Self { bytes }
    }

    #[inline]
    fn get<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..)?.first_chunk().copied()
    }

    #[inline]
    fn set<const N: usize>(&mut self, at: usize, new: &[u8; N]) -> Sum {
        let Some(place) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) else {
            return Sum::ZERO;
        };
        let delta = Sum::of(new).minus(Sum::of(place));
        *place = *new;
        if at.is_multiple_of(2) { delta } else { delta.at_odd_offset() }
    }

    /// Addresses of the IP header at `l3`, and its own checksum. Returns the change of the addresses alone.
    #[inline]
    fn set_addresses(&mut self, l3: usize, tuple: &Tuple) -> Sum {
        if tuple.version == 4 {
            let delta = self
                .set(l3 + IPV4_SOURCE_OFFSET, &unmapped(&tuple.source))
                .plus(self.set(l3 + IPV4_DESTINATION_OFFSET, &unmapped(&tuple.destination)));
            self.fix(Field::complemented(l3 + IPV4_CHECKSUM_OFFSET), delta, Sum::ZERO, false);
            delta
        } else {
            self.set(l3 + IPV6_SOURCE_OFFSET, &tuple.source)
                .plus(self.set(l3 + IPV6_DESTINATION_OFFSET, &tuple.destination))
        }
    }

    #[inline]
    fn set_ports(&mut self, l4: usize, tuple: &Tuple) -> Sum {
        let [a, b] = tuple.source_port.to_be_bytes();
        let [c, d] = tuple.destination_port.to_be_bytes();
        self.set(l4, &[a, b, c, d])
    }

    #[inline]
    fn set_identifier(&mut self, l4: usize, tuple: &Tuple) -> Sum {
        self.set(l4 + ICMP_IDENTIFIER_OFFSET, &tuple.source_port.to_be_bytes())
    }

    /// Updates a checksum after the addresses changed by `addresses` and the rest by `body`. Returns the change of the
    /// field itself.
    #[inline]
    fn fix(&mut self, field: Field, addresses: Sum, body: Sum, is_partial: bool) -> Sum {
        let Some(old) = self.get::<2>(field.at).map(u16::from_be_bytes) else { return Sum::ZERO };
        let addresses = if field.covers_addresses { addresses } else { Sum::ZERO };
        let new = if is_partial {
            // An ICMP field covers no pseudo-header and holds nothing yet.
            if field.covers_addresses { checksum::updated_partial(old, addresses) } else { old }
        } else if field.zero_is_none && old == 0 {
            old
        } else {
            let new = checksum::updated(old, addresses.plus(body));
            if field.zero_is_none { checksum::non_zero(new) } else { new }
        };
        self.set(field.at, &new.to_be_bytes())
    }

    /// Rewrites the packet that an ICMP error quotes. Returns the total change.
    fn rewrite_quoted(&mut self, error: &IcmpError, quoted: &Tuple) -> Sum {
        let (l3, l4) = (usize::from(error.inner_l3_offset), usize::from(error.inner_l4_offset));
        let before = self.quoted_header_sum(l3, quoted.version);
        let addresses = self.set_addresses(l3, quoted);
        let mut total = self.quoted_header_sum(l3, quoted.version).minus(before);
        let ports = match quoted.protocol {
            // The checksum of a quoted SCTP packet stays: the quote is incomplete.
            ip_protocol::TCP | ip_protocol::UDP | ip_protocol::SCTP => self.set_ports(l4, quoted),
            ip_protocol::ICMP | ip_protocol::ICMPV6 if quoted.discriminator != 0 => self.set_identifier(l4, quoted),
            _ => Sum::ZERO,
        };
        total = total.plus(ports);
        if let Some(field) = Field::of_protocol(quoted.protocol, l4, quoted.version) {
            total = total.plus(self.fix(field, addresses, ports, false));
        }
        total
    }

    /// The sum of the fields that [`Patch::set_addresses`] changes: addresses, and for IPv4 the header's checksum.
    fn quoted_header_sum(&self, l3: usize, version: u8) -> Sum {
        if version == 4 {
            self.get::<10>(l3 + IPV4_CHECKSUM_OFFSET).map_or(Sum::ZERO, |fields| Sum::of(&fields))
        } else {
            self.get::<32>(l3 + IPV6_SOURCE_OFFSET).map_or(Sum::ZERO, |fields| Sum::of(&fields))
        }
    }
}
