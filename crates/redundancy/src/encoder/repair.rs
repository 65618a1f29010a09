//! Sends missing data to the decoder.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Encoder, Finder};
use crate::limits::{FILL_GRANULES_MAX, GRANULE_BYTES};
use crate::wire::control::Control;

impl Encoder {
    pub(super) fn handle_held(&mut self, ranges: &[Range<u64>]) {
        let next = self.placement.next();
        for (former, later) in ranges.iter().zip(ranges.iter().skip(1)) {
            if former.end < later.start {
                self.view.learn_gap(&(former.end..later.start), next);
            }
        }
        ranges.iter().for_each(|range| self.view.learn_held(range, next));
    }

    pub(super) fn handle_missing(&mut self, ranges: &[Range<u64>]) {
        let next = self.placement.next();
        for range in ranges {
            self.view.learn_missing(range, next);
            // At most a cache, so that the reply is bounded.
            self.requests.push(range.start..range.end.min(range.start + self.granules));
        }
    }

    pub(super) fn poll_repair(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(range) = self.requests.pop() else { return false };
        let Some(count) = self.write_fill(&range, out) else {
            self.counters.granules_gone += self.write_gone(range, out);
            return true;
        };
        self.counters.granules_filled += count;
        if range.start + count < range.end {
            self.requests.put_back(range.start + count..range.end);
        }
        true
    }

    /// Writes the beginning of a range as a message, and returns its number of granules. `None`: not all are present.
    pub(super) fn write_fill(&self, range: &Range<u64>, out: &mut Vec<u8>) -> Option<u64> {
        let next = self.placement.next();
        let first = (range.start % self.granules) as usize;
        let count = (range.end - range.start).min(FILL_GRANULES_MAX as u64).min(self.granules - first as u64);
        let is_there = range.start + self.granules >= next
            && range.start + count <= next
            && self.view.owns(first..first + count as usize);
        let Finder::Max { ring, .. } = &self.finder else { return None };
        let bytes = ring.bytes().get(first * GRANULE_BYTES..(first + count as usize) * GRANULE_BYTES)?;
        is_there.then(|| Control::Fill { epoch: self.epoch, number: range.start, bytes }.write(out))?;
        Some(count)
    }

    /// Writes a message that a range is missing. Returns its number of granules.
    pub(super) fn write_gone(&self, range: Range<u64>, out: &mut Vec<u8>) -> u64 {
        let count = range.end - range.start;
        Control::Gone { epoch: self.epoch, ranges: vec![range] }.write(out);
        count
    }
}
