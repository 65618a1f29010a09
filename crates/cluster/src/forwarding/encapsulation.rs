//! Packets that leave in a tunnel to a server: wrapped, and then forwarded as a packet of the node's own to the tunnel's end.
//!
//! ```text
//!   packet ─► too long with the outer header? ─► ICMP error with the MTU that is left, or fragments of the packet
//!          ─► stands for several? ─► these, each for itself
//!          ─► outer header, in place if the frame has room ─► forward
//! ```

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use flow::wire::checksum::complete_partial;
use flow::wire::{Headers, Packet, Parsed, TunnelEnd, parse, segment_frame};
use flow::{Checksum, Disposition, DropReason, Frame, Instant, PortId, Segmentation, SegmentationKind};

use super::error_cause::ErrorCause;
use super::forwarder::Forwarder;
use super::out_frame::{OutFrame, Pending};
use super::oversize::{FRAGMENT_FRAMES_MAX, fragment_packet, may_be_fragmented, wire_bytes};

impl Forwarder {
    /// As [`Forwarder::forward`], for a packet that leaves in a tunnel to `end`. The frame is then the outer packet's, and
    /// `packet.headers` stay those of the packet inside. The tunnel begins at an address that the node holds on the egress port.
    ///
    /// The order of packets stays: a packet behind pieces of another one waits with them.
    pub fn forward_in_tunnel(&mut self, now: Instant, packet: &mut Packet<'_, '_>, end: &TunnelEnd) -> Disposition {
        if !self.is_active() {
            return Disposition::Drop(DropReason::NotActive);
        }
        let Some(egress) = self.route(end.address).map(|next_hop| next_hop.port) else {
            return self.refuse(DropReason::NoRoute, ErrorCause::NoRoute);
        };
        let Some(source) = self.addresses.source_for(egress, end.address, self.held) else {
            return Disposition::Drop(DropReason::TunnelUnusable);
        };
        let mtu_bytes = self.ports[usize::from(egress.0)].mtu_bytes;
        let room_bytes = mtu_bytes.saturating_sub(end.overhead_bytes() as u32);
        let is_oversize = wire_bytes(packet.headers, &packet.frame.segmentation) > room_bytes;
        if is_oversize && !may_be_fragmented(packet) {
            return self.refuse(DropReason::PacketTooBig, ErrorCause::TooBig { mtu_bytes: room_bytes });
        }
        self.clamp_segments_for_tunnel(packet, egress);
        if let Err(reason) = packet.decrement_ttl() {
            return self.refuse(reason, ErrorCause::TimeExceeded);
        }
        if !complete_checksum(packet) {
            return Disposition::Drop(DropReason::Malformed);
        }
        let is_whole = !is_oversize && packet.frame.segmentation.kind == SegmentationKind::None;
        if is_whole
            && self.released.is_empty()
            && let Some(mut outer) = packet.encapsulate(source, end)
        {
            let mut outer = Packet { frame: &mut *packet.frame, headers: &mut outer };
            let disposition = self.forward(now, &mut outer);
            return self.without_error(disposition);
        }
        let pieces = if is_whole {
            packet.frame.bytes().get(..packet.headers.l3_end()).map(|bytes| vec![bytes.to_vec()])
        } else {
            pieces(packet, is_oversize, room_bytes)
        };
        let Some(pieces) = pieces else { return Disposition::Drop(DropReason::PacketTooBig) };
        self.send_each_in_tunnel(now, pieces, (source, end))
    }

    fn send_each_in_tunnel(
        &mut self,
        now: Instant,
        pieces: Vec<Vec<u8>>,
        (source, end): (IpAddr, &TunnelEnd),
    ) -> Disposition {
        if self.released.len() + pieces.len() > FRAGMENT_FRAMES_MAX {
            return Disposition::Drop(DropReason::TransmitFailed);
        }
        for mut bytes in pieces {
            let length_bytes = bytes.len();
            bytes.resize(length_bytes + end.overhead_bytes(), 0);
            let Some((mut frame, mut inner)) = parsed(&mut bytes, length_bytes) else {
                return Disposition::Drop(DropReason::TunnelUnusable);
            };
            let Some(mut outer) = (Packet { frame: &mut frame, headers: &mut inner }).encapsulate(source, end) else {
                return Disposition::Drop(DropReason::TunnelUnusable);
            };
            let disposition = self.forward(now, &mut Packet { frame: &mut frame, headers: &mut outer });
            match self.without_error(disposition) {
                Disposition::Transmit(port) => {
                    let frame = OutFrame { port, checksum: Checksum::Valid, segmentation: Segmentation::default() };
                    self.released.push_back(Pending { bytes, frame });
                }
                Disposition::Consumed => {}
                refused => return refused,
            }
        }
        Disposition::Consumed
    }

    /// What becomes of an outer packet concerns no sender: no error about it is due, now or later.
    const fn without_error(&mut self, disposition: Disposition) -> Disposition {
        (self.refusal, self.has_just_queued) = (None, false);
        disposition
    }
}

/// A packet made here, in a buffer with room behind it, with its headers.
fn parsed(bytes: &mut [u8], length_bytes: usize) -> Option<(Frame<'_>, Headers)> {
    let mut frame = Frame::new(bytes, 0, length_bytes, PortId::default())?;
    frame.checksum = Checksum::Valid;
    let Ok(Parsed::Ip(headers)) = parse(&frame) else { return None };
    Some((frame, headers))
}

/// No device completes a checksum inside a tunnel. True if it is complete now. Packets that are cut get new ones.
fn complete_checksum(packet: &mut Packet<'_, '_>) -> bool {
    let Checksum::Partial { start, offset } = packet.frame.checksum else { return true };
    if packet.frame.segmentation.kind != SegmentationKind::None {
        return true;
    }
    let end = packet.headers.l3_end();
    let is_complete =
        packet.frame.bytes_mut().get_mut(..end).is_some_and(|bytes| complete_partial(bytes, start, offset));
    if is_complete {
        packet.frame.checksum = Checksum::Valid;
    }
    is_complete
}

/// The packets that the frame stands for, or fragments of at most `room_bytes`. `None`: it cannot be cut.
fn pieces(packet: &mut Packet<'_, '_>, is_oversize: bool, room_bytes: u32) -> Option<Vec<Vec<u8>>> {
    if is_oversize {
        let (l3_offset, checksum) = (packet.headers.l3_offset, packet.frame.checksum);
        return fragment_packet(packet.frame.bytes_mut(), l3_offset, checksum, room_bytes).ok();
    }
    segment_frame(packet.frame.bytes(), packet.headers, &packet.frame.segmentation)
}
