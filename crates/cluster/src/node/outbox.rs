//! Frames that wait to be sent, and where a polled datagram or frame goes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::{Checksum, Disposition, DropReason, NodeId, PacketBatch, PortId, Segmentation};

use crate::pipeline::Pipeline;

/// Frames that wait to be polled at most; further ones are dropped as [`DropReason::TransmitFailed`].
const OUTBOX_FRAMES_MAX: usize = 8192;

/// Where a datagram or frame that was polled is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// A datagram for the peer's replication port: what is replicated to the peer, and what secures the channel.
    Replication(NodeId),
    /// A failure-detection packet for the peer (time to live 255); not where the channel is secured.
    Detection(NodeId),
    /// A frame for one of the node's ports.
    Port {
        /// The port.
        port: PortId,
        /// What is left undone of its checksum.
        checksum: Checksum,
        /// How it is to be cut.
        segmentation: Segmentation,
    },
}

/// A frame with what is left undone of it.
struct WaitingFrame {
    bytes: Vec<u8>,
    port: PortId,
    checksum: Checksum,
    segmentation: Segmentation,
}

/// Frames that the node made, or reinjected, oldest first.
#[derive(Default)]
pub(super) struct Outbox {
    frames: VecDeque<WaitingFrame>,
}

impl Outbox {
    pub(super) fn has_room(&self) -> bool {
        self.frames.len() < OUTBOX_FRAMES_MAX
    }

    /// Keeps the frames of a batch that are to be sent. The pipeline counts those that find no room.
    pub(super) fn post(&mut self, batch: &PacketBatch<'_>, pipeline: &mut Pipeline) {
        for frame in batch {
            let Disposition::Transmit(port) = frame.disposition else { continue };
            if !self.has_room() {
                pipeline.count_drop(DropReason::TransmitFailed);
                continue;
            }
            self.frames.push_back(WaitingFrame {
                bytes: frame.bytes().to_vec(),
                port,
                checksum: frame.checksum,
                segmentation: frame.segmentation,
            });
        }
    }

    /// The next frame, in place of `buffer`.
    pub(super) fn poll(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let WaitingFrame { bytes, port, checksum, segmentation } = self.frames.pop_front()?;
        *buffer = bytes;
        Some(Transmit::Port { port, checksum, segmentation })
    }
}
