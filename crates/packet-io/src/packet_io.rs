//! The set of a node's ports as one source and sink of frames.

use std::os::fd::BorrowedFd;

use flow::{Disposition, Frame, PacketBatch, PortId};

use crate::{IoError, TransmitFailure};

/// The counters of a port since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Frames received and passed to the node. A frame that represents several packets counts once.
    pub received_frames: u64,
    /// Their bytes, from the link header on.
    pub received_bytes: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Their bytes, from the link header on.
    pub sent_bytes: u64,
    /// Frames that arrived at a full receive queue.
    pub receive_queue_full: u64,
    /// Frames larger than a buffer.
    pub received_oversized: u64,
    /// Frames with an offload that the virtio-net header cannot express (for example tunnel segmentation).
    pub received_unsupported_offload: u64,
    /// How often the port was found down or deleted.
    pub went_down: u64,
    /// Frames that the node left undecided (a defect of the node).
    pub undecided: u64,
    /// Frames that could not be sent on this port.
    pub transmit_failures: TransmitFailureCounters,
}

/// Frames that were not sent, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransmitFailureCounters {
    /// [`TransmitFailure::NoSuchPort`], counted on the ingress port.
    pub no_such_port: u64,
    /// [`TransmitFailure::Down`].
    pub down: u64,
    /// [`TransmitFailure::QueueFull`].
    pub queue_full: u64,
    /// [`TransmitFailure::TooLarge`].
    pub too_large: u64,
    /// [`TransmitFailure::Invalid`].
    pub invalid: u64,
    /// [`TransmitFailure::Other`].
    pub other: u64,
}

impl TransmitFailureCounters {
    /// Counts one frame.
    pub fn count(&mut self, cause: TransmitFailure) {
        *match cause {
            TransmitFailure::NoSuchPort => &mut self.no_such_port,
            TransmitFailure::Down => &mut self.down,
            TransmitFailure::QueueFull => &mut self.queue_full,
            TransmitFailure::TooLarge => &mut self.too_large,
            TransmitFailure::Invalid => &mut self.invalid,
            TransmitFailure::Other => &mut self.other,
        } += 1;
    }

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.no_such_port + self.down + self.queue_full + self.too_large + self.invalid + self.other
    }
}

/// A node's ports.
pub trait PacketIo {
    /// Receives pending frames, at most one batch a port, lends each batch to `process`, then sends every frame whose
    /// disposition is `Transmit`. Never blocks. Returns the number of received frames; 0 means that no work is left
    /// until a descriptor becomes readable.
    ///
    /// # Errors
    /// Only if the ports become unusable as a whole. Unsent frames and ports that go down are counted instead: they
    /// occur in normal operation.
    fn poll(&mut self, process: &mut dyn FnMut(&mut PacketBatch<'_>)) -> Result<usize, IoError>;

    /// Sends one frame that the node created, with its checksum and segmentation state.
    ///
    /// # Errors
    /// [`IoError::Transmit`]; the failure has been counted, and the caller may ignore it.
    fn transmit(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), IoError>;

    /// Sends the frames with disposition `Transmit` of a batch that did not come from [`PacketIo::poll`], one by one: they
    /// need no headroom. Failures are counted.
    fn transmit_batch(&mut self, batch: &mut PacketBatch<'_>) {
        for frame in batch {
            if let Disposition::Transmit(port) = frame.disposition {
                // The failure has been counted.
                let _ = self.transmit(port, frame);
            }
        }
    }

    /// Descriptors that become readable when frames are pending. None when the backend can only be polled.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// The counters of `port`; all zero for an unknown port.
    fn counters(&self, port: PortId) -> PortCounters;
}
