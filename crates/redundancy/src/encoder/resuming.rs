//! An encoder survives the replacement of its channel: see the decoder's side.

use core::ops::Range;

use alloc::vec::Vec;

use super::link::Link;
use super::{Encoder, EncoderCounters};
use crate::decoder::StreamPosition;
use crate::limits::{FILL_GRANULES_MAX, GRANULE_BYTES};

impl Encoder {
    /// Switches to a new channel, which keeps order and excludes old messages. The first message is an Open. Blocks do
    /// not point to earlier data until the decoder has reported that it holds it.
    pub fn resume(&mut self) {
        self.link = Link::Open { decoder: 0 };
        self.view.forget();
        self.requests.clear();
        self.is_to_open = true;
        self.counters.hellos_sent += 1;
    }

    /// Whether the last blocks were cached without a number: the decoder has not confirmed their positions.
    #[must_use]
    pub const fn is_unconfirmed(&self) -> bool {
        self.is_unconfirmed
    }

    /// Repeats the Open, whose next number confirms the last blocks: for a channel that keeps order
    /// ([`Encoder::resume`]).
    pub const fn confirm(&mut self) {
        self.is_to_open |= self.is_unconfirmed && self.link.is_open();
    }

    /// Repeats the Open: the last one was lost on an ordered channel.
    pub const fn reopen(&mut self) {
        self.is_to_open |= self.link.is_open();
    }

    /// The position of its stream, for others to follow.
    #[must_use]
    pub const fn stream_position(&self) -> StreamPosition {
        let (granules, next) = (self.granules as u32, self.placement.next());
        StreamPosition { epoch: self.epoch, granules, next, parent: self.parent }
    }

    /// The numbers of a decoder's report for `epoch` that are valid here: all of this stream's, and those of its parent
    /// below the fork.
    pub(super) fn numbers_of(&self, epoch: u32) -> Option<Range<u64>> {
        if epoch == self.epoch {
            return Some(0..u64::MAX);
        }
        self.parent.filter(|parent| parent.epoch == epoch).map(|parent| 0..parent.fork)
    }

    /// Writes a reply for the beginning of the requested range into `out`, replacing earlier content: a Fill, or a Gone
    /// if it is missing here. Returns the number of granules covered.
    pub fn write_reply(&self, range: &Range<u64>, out: &mut Vec<u8>) -> u64 {
        let (next, granules) = (self.placement.next(), self.granules);
        let count = range.end.saturating_sub(range.start).min(FILL_GRANULES_MAX as u64);
        let wanted = range.start..range.start + count;
        if wanted.is_empty() {
            return 0;
        }
        let is_held = |number: &u64| {
            let granule = (number % granules) as usize;
            *number < next && number + granules >= next && self.view.owns(granule..granule + 1)
        };
        let held = wanted.clone().take_while(is_held).count() as u64;
        let filled = if held > 0 { self.write_fill(&(wanted.start..wanted.start + held), out) } else { None };
        filled.unwrap_or_else(|| {
            let gone = wanted.clone().take_while(|number| !is_held(number)).count().max(1) as u64;
            self.write_gone(wanted.start..wanted.start + gone, out)
        })
    }

    /// Bytes of the cache.
    #[must_use]
    pub const fn cache_bytes(&self) -> usize {
        self.granules as usize * GRANULE_BYTES
    }

    /// Returns the counters and resets them.
    pub fn take_counters(&mut self) -> EncoderCounters {
        core::mem::take(&mut self.counters)
    }
}
