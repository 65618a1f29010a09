//! Packets that are larger than the link they leave by takes: IPv4 packets that allow it are cut, as routers do (RFC 1812
//! section 4.2.2.7); of others the sender is told the link's MTU.

use flow::wire::checksum::complete_partial;
use flow::wire::ipv4::Ipv4View;
use flow::wire::{Headers, Packet, cut_ipv4};
use flow::{Checksum, Disposition, DropReason, PortId, Segmentation, SegmentationKind};

use super::forwarder::{Forwarder, OutFrame, Pending};

/// Fragments of the node's own cutting that wait to be sent, with other frames that do. When there are more, packets that
/// would have to be cut are dropped as [`DropReason::TransmitFailed`].
pub const CUT_FRAMES_MAX: usize = 4096;

/// The length, from the IP header on, of the largest packet that goes onto the wire for a frame.
#[inline]
pub(super) fn wire_bytes(headers: &Headers, segmentation: &Segmentation) -> u32 {
    if segmentation.kind == SegmentationKind::None {
        return headers.l3_bytes;
    }
    let header_bytes = u32::from(headers.payload_offset.saturating_sub(headers.l3_offset));
    headers.l3_bytes.min(header_bytes + u32::from(segmentation.size_bytes))
}

/// Whether a packet that is too large may be cut: not frames that stand for several packets, of which each would have to be.
pub(super) fn may_be_cut(packet: &Packet<'_, '_>) -> bool {
    let l3_offset = usize::from(packet.headers.l3_offset);
    let is_plain = packet.headers.tuple.version == 4 && packet.frame.segmentation.kind == SegmentationKind::None;
    let ip = packet.frame.bytes().get(l3_offset..).and_then(|bytes| Ipv4View::new_checked(bytes).ok());
    is_plain && ip.is_some_and(|ip| !ip.dont_fragment())
}

impl Forwarder {
    /// Sends the frame in pieces by `port`, its link addresses already set. The pieces come out of
    /// [`Forwarder::poll_transmit`].
    pub(super) fn send_in_pieces(
        &mut self,
        port: PortId,
        l3_offset: u16,
        bytes: &mut [u8],
        checksum: Checksum,
    ) -> Disposition {
        // The hardware could sum no more than one of the pieces. The link's padding is not to be summed.
        let packet = bytes.get(usize::from(l3_offset)..).and_then(|packet| Ipv4View::new_checked(packet).ok());
        let end = usize::from(l3_offset) + packet.map_or(0, |packet| packet.total_length().into());
        if let Checksum::Partial { start, offset } = checksum
            && !complete_partial(&mut bytes[..end], start, offset)
        {
            return Disposition::Drop(DropReason::Malformed);
        }
        let mtu_bytes = self.ports[usize::from(port.0)].mtu_bytes as usize;
        let Some(pieces) = cut_ipv4(bytes, usize::from(l3_offset), mtu_bytes) else {
            return Disposition::Drop(DropReason::PacketTooBig);
        };
        if self.released.len() + pieces.len() > CUT_FRAMES_MAX {
            return Disposition::Drop(DropReason::TransmitFailed);
        }
        self.counters.packets_fragmented += 1;
        let frame = OutFrame { port, checksum: Checksum::Valid, segmentation: Segmentation::default() };
        self.released.extend(pieces.into_iter().map(|bytes| Pending { bytes, frame }));
        Disposition::Consumed
    }
}
