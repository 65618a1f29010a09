//! What of a packet's headers changes from packet to packet of a flow, what follows from the rest, and what is the flow.

use arrayvec::ArrayVec;
use flow::wire::checksum::Sum;
use flow::wire::ip_protocol;
use flow::{Segmentation, SegmentationKind};

/// Bytes of the longest headers that are remembered: IPv6 and TCP with all options, and how the packet is cut.
pub(super) const IMAGE_BYTES_MAX: usize = IPV6_BYTES + 60 + SEGMENTATION_BYTES;
/// Bytes of how a packet is cut, behind its headers.
pub(super) const SEGMENTATION_BYTES: usize = 5;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// Places that change, at most: those of IPv4 and TCP, with ten words of options.
const FIELDS_MAX: usize = 24;

/// Headers and how the packet is cut, as one piece.
pub(super) type Image = ArrayVec<u8, IMAGE_BYTES_MAX>;

/// A number in an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    pub(super) at: u8,
    pub(super) bytes: u8,
}

impl Field {
    pub(super) fn read(self, image: &[u8]) -> u32 {
        let at = usize::from(self.at);
        let bytes = image.get(at..at + usize::from(self.bytes)).unwrap_or_default();
        bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
    }

    pub(super) fn write(self, image: &mut [u8], value: u32) {
        let (at, count) = (usize::from(self.at), usize::from(self.bytes));
        if let Some(place) = image.get_mut(at..at + count) {
            place.copy_from_slice(&value.to_be_bytes()[4 - count..]);
        }
    }

    /// How far it is from one value to another, the nearer way round.
    pub(super) fn distance(self, from: u32, to: u32) -> i32 {
        let unused = 32 - 8 * u32::from(self.bytes);
        (to.wrapping_sub(from) << unused).cast_signed() >> unused
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Carried {
    /// Nothing that is known, or a piece of something.
    Opaque,
    Tcp,
    Udp,
}

/// How headers are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    is_ipv4: bool,
    carried: Carried,
    header_bytes: usize,
}

impl Layout {
    /// The layout of headers that are all there is before the payload. `None`: they are laid out otherwise than most are, and
    /// travel as they are.
    pub(super) fn of(header: &[u8]) -> Option<Self> {
        let is_ipv4 = match header.first()? {
            0x45 => true,
            first if first >> 4 == 6 => false,
            _ => return None,
        };
        let (ip_bytes, protocol_at) = if is_ipv4 { (IPV4_BYTES, 9) } else { (IPV6_BYTES, 6) };
        let protocol = *header.get(protocol_at)?;
        let behind_bytes = header.len().checked_sub(ip_bytes)?;
        let carried = match protocol {
            _ if behind_bytes == 0 => Carried::Opaque,
            ip_protocol::TCP if behind_bytes >= TCP_BYTES => {
                let said_bytes = usize::from(header[ip_bytes + 12] >> 4) * 4;
                (said_bytes == behind_bytes).then_some(Carried::Tcp)?
            }
            ip_protocol::UDP if behind_bytes == UDP_BYTES => Carried::Udp,
            _ => return None,
        };
        Some(Self { is_ipv4, carried, header_bytes: header.len() })
    }

    const fn ip_bytes(self) -> usize {
        if self.is_ipv4 { IPV4_BYTES } else { IPV6_BYTES }
    }

    /// The fields that change, the most frequent first: one byte names the first seven of a layout.
    pub(super) fn fields(self) -> ArrayVec<Field, FIELDS_MAX> {
        let mut fields = ArrayVec::new();
        // There is room for all: the longest layout has 22.
        let mut push = |at: usize, bytes: u8| fields.push(Field { at: at as u8, bytes });
        let tcp = self.ip_bytes();
        let option = |number: usize| tcp + TCP_BYTES + 4 * number;
        if self.carried == Carried::Tcp {
            // Sequence and acknowledgement.
            push(tcp + 4, 4);
            push(tcp + 8, 4);
        }
        if self.is_ipv4 {
            // The datagram's identification.
            push(4, 2);
        }
        if self.carried == Carried::Tcp {
            // Both time stamps, where they lie in most segments (RFC 7323, appendix A); window; flags.
            [1, 2].into_iter().filter(|word| option(*word) < self.header_bytes).for_each(|word| push(option(word), 4));
            push(tcp + 14, 2);
            push(tcp + 12, 2);
        }
        // How the packet is cut.
        push(self.header_bytes, 1);
        push(self.header_bytes + 1, 2);
        push(self.header_bytes + 3, 2);
        if self.is_ipv4 {
            // Type of service, time to live, flags and offset of fragments.
            push(1, 1);
            push(8, 1);
            push(6, 2);
        } else {
            // Traffic class and flow label, hop limit.
            push(0, 4);
            push(7, 1);
        }
        if self.carried == Carried::Tcp {
            // Blocks that came out of order, and whatever else are options; the urgent pointer.
            [3, 4, 0, 5, 6, 7, 8, 9]
                .into_iter()
                .filter(|word| option(*word) < self.header_bytes)
                .for_each(|word| push(option(word), 4));
            push(tcp + 18, 2);
        }
        fields
    }

    /// Where the checksum over the payload lies. It is carried as it is, so that it vouches for the payload to the very end.
    pub(super) const fn checksum(self) -> Option<Field> {
        let at = match self.carried {
            Carried::Opaque => return None,
            Carried::Tcp => self.ip_bytes() + 16,
            Carried::Udp => self.ip_bytes() + 6,
        };
        Some(Field { at: at as u8, bytes: 2 })
    }

    /// Fills in what follows from the rest: lengths and the IPv4 header's checksum.
    pub(super) fn complete(self, header: &mut [u8], payload_bytes: usize) {
        let behind_bytes = self.header_bytes - self.ip_bytes() + payload_bytes;
        let mut put = |at: usize, value: u16| Field { at: at as u8, bytes: 2 }.write(header, value.into());
        if self.carried == Carried::Udp {
            put(self.ip_bytes() + 4, behind_bytes as u16);
        }
        if !self.is_ipv4 {
            put(4, behind_bytes as u16);
            return;
        }
        put(2, (IPV4_BYTES + behind_bytes) as u16);
        put(10, 0);
        let sum = Sum::of(header.get(..IPV4_BYTES).unwrap_or_default()).checksum();
        Field { at: 10, bytes: 2 }.write(header, sum.into());
    }

    /// Clears what follows from the rest, and the checksum that is carried: what is left and does not change is the flow.
    pub(super) fn clear_derived(self, header: &mut [u8]) {
        let mut clear = |at: usize| Field { at: at as u8, bytes: 2 }.write(header, 0);
        if self.is_ipv4 {
            clear(2);
            clear(10);
        } else {
            clear(4);
        }
        match self.carried {
            Carried::Opaque => {}
            Carried::Tcp => clear(self.ip_bytes() + 16),
            Carried::Udp => {
                clear(self.ip_bytes() + 4);
                clear(self.ip_bytes() + 6);
            }
        }
    }
}

/// How a packet is cut, in as few bytes as hold it.
pub(super) fn segmentation_bytes(segmentation: &Segmentation) -> [u8; SEGMENTATION_BYTES] {
    let kind = match segmentation.kind {
        SegmentationKind::None => 0,
        SegmentationKind::TcpIpv4 => 1,
        SegmentationKind::TcpIpv6 => 2,
        SegmentationKind::Udp => 3,
    };
    let ([s0, s1], [h0, h1]) = (segmentation.size_bytes.to_be_bytes(), segmentation.header_bytes.to_be_bytes());
    [kind | u8::from(segmentation.ecn) << 7, s0, s1, h0, h1]
}

/// Reads it again. `None`: nothing is cut so.
pub(super) fn segmentation_of(bytes: [u8; SEGMENTATION_BYTES]) -> Option<Segmentation> {
    let [kind, s0, s1, h0, h1] = bytes;
    let ecn = kind & 0x80 != 0;
    let kind = match kind & 0x7f {
        0 => SegmentationKind::None,
        1 => SegmentationKind::TcpIpv4,
        2 => SegmentationKind::TcpIpv6,
        3 => SegmentationKind::Udp,
        _ => return None,
    };
    let size_bytes = u16::from_be_bytes([s0, s1]);
    let has_size = size_bytes > 0 || kind == SegmentationKind::None;
    has_size.then_some(Segmentation { kind, size_bytes, header_bytes: u16::from_be_bytes([h0, h1]), ecn })
}
