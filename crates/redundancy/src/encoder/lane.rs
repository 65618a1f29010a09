//! A block that is encoded, alone or beside others.

use super::flow_memory::FlowPosition;
use crate::fingerprint::Marks;
use crate::matching::max_match::Probe;
use crate::packet_cache::Place;

/// What is to be encoded.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The payload.
    pub bytes: &'a [u8],
    /// Where it stands in its flow; None when it is no flow's, or new for sure.
    pub at: Option<FlowPosition>,
}

/// One of the blocks that are encoded at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// None for a block that goes plain and leaves no trace.
    pub(super) place: Option<Place>,
    pub(super) is_cautious: bool,
    pub(super) marks: Marks,
    pub(super) probe: Probe,
}
