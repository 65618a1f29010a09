//! Frames that come in a second time: what was kept back and may go on now.

use alloc::vec::Vec;

use flow::{BATCH_FRAMES_MAX, Disposition, DropReason, Instant, OwnedFrame, PacketBatch};

use super::surroundings::Surroundings;
use super::{Node, OUTBOX_FRAMES_MAX, OutFrame};
use crate::pipeline::Origin;

impl Node {
    /// Hands frames in again, with what they set free in their turn; what comes of them waits to be polled.
    pub(super) fn hand_in_again(&mut self, now: Instant, frames: Vec<OwnedFrame>) {
        // They were steered when they came.
        self.hand_in_again_as(now, frames, Origin::STEERED);
    }

    /// As [`Node::hand_in_again`], for frames of any origin.
    pub(super) fn hand_in_again_as(&mut self, now: Instant, frames: Vec<OwnedFrame>, origin: Origin) {
        let mut next = Some((frames, origin));
        while let Some((mut frames, origin)) = next {
            for part in frames.chunks_mut(BATCH_FRAMES_MAX) {
                let mut batch: PacketBatch<'_> = part.iter_mut().map(OwnedFrame::frame).collect();
                self.handle_again(now, &mut batch, origin);
            }
            next = self.pipeline.take_released_fragments().map(|frames| (frames, Origin::STEERED));
        }
        self.replicate_changes(now);
        self.note_first_packet(now);
    }

    fn handle_again(&mut self, now: Instant, batch: &mut PacketBatch<'_>, origin: Origin) {
        let mut surroundings = Surroundings {
            forwarder: &mut self.forwarder,
            peers: &self.replication.peers,
            held: None,
            hold_max: self.replication.hold_first_reply,
            site: self.site.as_deref_mut(),
        };
        self.pipeline.handle_batch(now, batch, origin, &mut surroundings);
        self.post_batch(batch);
    }

    /// Frames that are to be sent wait to be polled.
    pub(super) fn post_batch(&mut self, batch: &PacketBatch<'_>) {
        for frame in batch {
            let Disposition::Transmit(port) = frame.disposition else { continue };
            if self.outbox.len() >= OUTBOX_FRAMES_MAX {
                self.pipeline.count_drop(DropReason::TransmitFailed);
                continue;
            }
            self.outbox.push_back(OutFrame {
                bytes: frame.bytes().to_vec(),
                port,
                checksum: frame.checksum,
                segmentation: frame.segmentation,
            });
        }
    }

    /// Fragments that waited for their first one, and it has passed: they follow it.
    pub(super) fn release_fragments(&mut self, now: Instant) {
        if let Some(frames) = self.pipeline.take_released_fragments() {
            self.hand_in_again(now, frames);
        }
    }
}
