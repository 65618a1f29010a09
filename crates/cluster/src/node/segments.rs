//! Unacknowledged segments: sent to the peers, and resent after a take-over. See [`crate::pipeline::SegmentsConfig`].

use alloc::vec::Vec;

use flow::wire::tlv::TLV_HEADER_BYTES;
use flow::{Checksum, Instant, OwnedFrame, Segmentation};

use super::Node;
use super::event::NodeEvent;
use super::segment_sender::{SegmentSender, room_bytes};
use crate::pipeline::{Origin, Resend, SegmentStatus, SegmentsConfig, SegmentsResent};

impl Node {
    /// From now on the segments that this node has forwarded and that are not acknowledged are replicated as configured; `None`: they
    /// are not. With another configuration than before, what is held is dropped.
    pub fn set_segments(&mut self, config: Option<SegmentsConfig>) {
        let sender = &mut self.replication.segments;
        if sender.config() != config {
            *sender = SegmentSender::new(config);
            let packet_bytes_max = (room_bytes(&self.replication.peers) & !3).saturating_sub(TLV_HEADER_BYTES);
            self.pipeline.set_segments(config.as_ref(), packet_bytes_max);
        }
    }

    /// How the replication of segments stands; `None`: there is none.
    #[must_use]
    pub fn segments_status(&self) -> Option<SegmentStatus> {
        self.pipeline.segments_status()
    }

    /// Resends what former owners have forwarded, as far as it is due after a take-over. Each segment passes the pipeline as if its
    /// sender had sent it once more: by the port that leads to its sender.
    pub(super) fn resend_segments(&mut self, now: Instant) {
        // What comes of a packet that was resent is no sign that packets come to this node.
        let awaiting = self.awaiting_first_packet.take();
        let mut frames = Vec::new();
        while let Some(Resend { source, mut frame, is_syn }) = self.pipeline.poll_resend(now) {
            let port = self.forwarder.route(source).map(|next_hop| next_hop.port);
            let arrival = port.and_then(|port| Some((port, self.forwarder.link_address(port)?)));
            self.pipeline.count_resent(arrival.is_some(), is_syn);
            let Some((port, mac)) = arrival else { continue };
            frame[..6].copy_from_slice(&mac.0);
            frame[6..12].copy_from_slice(&mac.0);
            frames.push(OwnedFrame::new(frame, port, Checksum::Unverified, Segmentation::default()));
        }
        if !frames.is_empty() {
            self.reinject(now, frames, Origin::STEERED);
        }
        self.awaiting_first_packet = awaiting.map(|_| self.pipeline.counters().taken_over);
        if let Some(resent) = self.pipeline.poll_resent().filter(|resent| *resent != SegmentsResent::default()) {
            self.events.push(now, NodeEvent::SegmentsResent(resent));
        }
    }
}
