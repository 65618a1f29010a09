//! Packets that are larger than the link they leave by takes: IPv4 packets that allow it are fragmented, as routers do (RFC
//! 1812 section 4.2.2.7); the senders of others receive the link's MTU in an ICMP error.

use alloc::vec::Vec;

use flow::wire::checksum::complete_partial;
use flow::wire::ipv4::Ipv4View;
use flow::wire::{Headers, Packet, fragment_ipv4};
use flow::{Checksum, DropReason, Segmentation, SegmentationKind};

/// Fragments of the node's own cutting that wait to be sent, with other frames that do. When there are more, packets that
/// would have to be cut are dropped as [`DropReason::TransmitFailed`].
pub const FRAGMENT_FRAMES_MAX: usize = 4096;

/// The length, from the IP header on, of the largest packet that goes onto the wire for a frame.
#[inline]
pub(super) fn wire_bytes(headers: &Headers, segmentation: &Segmentation) -> u32 {
    if segmentation.kind == SegmentationKind::None {
        return headers.l3_bytes;
    }
    let header_bytes = u32::from(headers.payload_offset.saturating_sub(headers.l3_offset));
    headers.l3_bytes.min(header_bytes + u32::from(segmentation.size_bytes))
}

/// Whether a packet that is too large may be fragmented: not frames that stand for several packets, each of which would have to
/// be.
pub(super) fn may_be_fragmented(packet: &Packet<'_, '_>) -> bool {
    let l3_offset = usize::from(packet.headers.l3_offset);
    let is_plain = packet.headers.tuple.version == 4 && packet.frame.segmentation.kind == SegmentationKind::None;
    let ip = packet.frame.bytes().get(l3_offset..).and_then(|bytes| Ipv4View::new_checked(bytes).ok());
    is_plain && ip.is_some_and(|ip| !ip.dont_fragment())
}

/// The pieces of a frame that a link of this MTU takes, with the frame's link addresses and complete checksums.
///
/// # Errors
/// Why it cannot be cut.
pub(super) fn fragment_packet(
    bytes: &mut [u8],
    l3_offset: u16,
    checksum: Checksum,
    mtu_bytes: u32,
) -> Result<Vec<Vec<u8>>, DropReason> {
    let l3_offset = usize::from(l3_offset);
    // The hardware could sum no more than one of the pieces. The link's padding is not to be summed.
    let packet = bytes.get(l3_offset..).and_then(|packet| Ipv4View::new_checked(packet).ok());
    let end = l3_offset + packet.map_or(0, |packet| packet.total_length().into());
    if let Checksum::Partial { start, offset } = checksum
        && !complete_partial(&mut bytes[..end], start, offset)
    {
        return Err(DropReason::Malformed);
    }
    fragment_ipv4(bytes, l3_offset, mtu_bytes as usize).ok_or(DropReason::PacketTooBig)
}
