//! Packets as they go into a tunnel and come out of it.

use alloc::vec::Vec;

use flow::Segmentation;
use redundancy::FlowPosition;

/// A packet for the tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The packet from its IP header on, its checksums complete.
    pub bytes: &'a [u8],
    /// Bytes of its headers, IP and transport: the rest is what is encoded.
    pub header_bytes: usize,
    /// Where a TCP segment stands in its flow.
    pub at: Option<FlowPosition>,
    /// How it is cut into the packets that it stands for.
    pub segmentation: Segmentation,
}

/// A packet out of the tunnel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// The packet from its IP header on, its checksums complete but not verified.
    pub bytes: Vec<u8>,
    /// How it is cut into the packets that it stands for.
    pub segmentation: Segmentation,
}
