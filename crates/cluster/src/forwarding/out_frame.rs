//! Frames that the forwarder sends on its own account, and what goes with them.

use alloc::vec::Vec;

use flow::{Checksum, PortId, Segmentation, SegmentationKind};

/// What goes with a frame that [`Forwarder::poll_transmit`](super::Forwarder::poll_transmit) wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutFrame {
    /// The port to send it by.
    pub port: PortId,
    /// The state of its transport checksum.
    pub checksum: Checksum,
    /// How it is to be cut.
    pub segmentation: Segmentation,
}

impl OutFrame {
    /// What goes with a frame of the node's own making: whole, its checksum in place.
    pub(crate) const fn of_own(port: PortId) -> Self {
        Self {
            port,
            checksum: Checksum::Valid,
            segmentation: Segmentation { kind: SegmentationKind::None, size_bytes: 0, header_bytes: 0, ecn: false },
        }
    }
}

/// A frame that waits to be sent.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) bytes: Vec<u8>,
    pub(super) frame: OutFrame,
}
