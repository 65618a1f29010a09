//! A batch of frames, parsed, while what their connections need is fetched into the cache.
//!
//! ```text
//!  parse, fetch index buckets ─► fetch records ─► fetch held segments ─► fetch their neighbours ─► each packet in turn
//! ```
//! Each step reads what the one before has fetched. So the cache misses of the packets of a batch overlap.

use flow::wire::{self, Headers, Parsed};
use flow::{Disposition, DropReason, PacketBatch};

use super::Edge;
use crate::flows::Index;
use crate::link_control;

/// Where a packet's connection is looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup {
    /// The hash of its tuple.
    pub(super) hash: u64,
    /// Its most likely place.
    pub(super) likely: Option<Index>,
}

/// A frame of the batch, as it was parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) headers: Headers,
    /// `Ok(Parsed::Ip)` if `headers` are its own. Frames to a group are not parsed.
    pub(super) parsed: Result<Parsed<()>, DropReason>,
    pub(super) lookup: Lookup,
}

impl Pending {
    /// A place for a frame.
    pub(super) const EMPTY: Self =
        Self { headers: Headers::NONE, parsed: Err(DropReason::Truncated), lookup: Lookup { hash: 0, likely: None } };
}

impl Edge {
    /// Parses the frames of a batch that are not decided, and fetches what their connections need.
    pub(super) fn look_at_batch(&self, batch: &PacketBatch<'_>, pending: &mut [Pending]) {
        let pending = &mut pending[..batch.len()];
        for (frame, place) in batch.iter().zip(pending.iter_mut()) {
            place.lookup = Lookup { hash: 0, likely: None };
            place.parsed = Err(DropReason::Truncated);
            let is_group = link_control::destination(frame).is_none_or(|destination| destination.is_group());
            if frame.disposition != Disposition::Undecided || is_group {
                continue;
            }
            place.parsed = wire::parse_into(frame, &mut place.headers);
            if place.parsed == Ok(Parsed::Ip(())) {
                place.lookup.hash = self.flows.hash(&place.headers.tuple);
                self.flows.prefetch_index(place.lookup.hash);
            }
        }
        for place in pending.iter_mut().filter(|place| place.parsed == Ok(Parsed::Ip(()))) {
            place.lookup.likely = self.flows.prefetch_record(place.lookup.hash);
        }
        let Some(recovery) = &self.recovery else { return };
        let records = || pending.iter().filter_map(|place| place.lookup.likely).map(|index| self.flows.get(index));
        records().for_each(|record| recovery.prefetch(record));
        records().for_each(|record| recovery.prefetch_neighbours(record));
    }
}
