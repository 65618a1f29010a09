//! The state of a block while it is encoded, alone or in a batch.

use super::flow_memory::FlowPosition;
use crate::fingerprint::Marks;
use crate::matching::max_match::Probe;
use crate::packet_cache::Place;

/// A block to encode.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The payload.
    pub bytes: &'a [u8],
    /// Its position in its flow; None without a flow, or if certainly new.
    pub at: Option<FlowPosition>,
}

/// The state of one block of a batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// None for a block that is sent plain and not cached.
    pub(super) place: Option<Place>,
    pub(super) is_cautious: bool,
    pub(super) marks: Marks,
    pub(super) probe: Probe,
}
