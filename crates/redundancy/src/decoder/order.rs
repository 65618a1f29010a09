//! Plain blocks in the cache: they carry no number; it follows from the order of blocks.
//!
//! ```text
//!  numbered ─► plain ─► plain ─► numbered: as expected? ─► yes: the run is confirmed and reported as held
//!      │         └ run, unconfirmed ─┘                 └► no: a block was lost; the run is discarded
//!      └ the next number is known
//! ```
//! No block points to a run before the next number has confirmed it, so a wrong run is discarded before it is used.
//! After a pause an Open confirms it in place of a number. Discarded data that is needed later is requested like any
//! missing data.

use core::ops::Range;

use flow::Instant;

use super::Decoder;
use super::implied::Implied;
use crate::limits::{BLOCK_BYTES_MAX, IMPLIED_GRANULES_MAX};
use crate::packet_cache::{Placement, granules_for};
use crate::wire::shim::Shim;

impl Decoder {
    /// Handles a plain block that is cached ([`crate::Encoding::PlainCached`]). The transport must keep the order of
    /// blocks and pass each once; numbers of later blocks reveal a loss.
    pub fn handle_plain(&mut self, block: &[u8]) {
        let Some(mut placement) = self.implied.placement else { return };
        let is_fit =
            !block.is_empty() && block.len() <= BLOCK_BYTES_MAX && granules_for(block.len()) <= self.store.granules();
        let place = placement.peek(block.len());
        let start = if self.implied.run.is_empty() { place.number } else { self.implied.run.start };
        placement.take(place, block.len());
        if !is_fit || placement.next() - start > IMPLIED_GRANULES_MAX || !self.store.put(place.number, block) {
            // No encoder of this release sends that: no number follows from it.
            self.lose_order();
            return;
        }
        self.implied = Implied { placement: Some(placement), run: start..placement.next() };
        self.counters.blocks_plain_cached += 1;
        self.is_news = true;
    }

    /// A stream begins with this number.
    pub(super) fn begin_order(&mut self, next: u64) {
        self.lose_order();
        self.implied.placement = Some(Placement::new(self.store.granules(), next));
    }

    /// Discards the unconfirmed run; the next number is unknown until a block carries one.
    pub(super) fn lose_order(&mut self) {
        let run = core::mem::take(&mut self.implied).run;
        run.for_each(|number| self.store.forget(number));
    }

    /// The number below which all data is confirmed.
    pub(super) fn sure_next(&self) -> u64 {
        if self.implied.run.is_empty() { self.store.next } else { self.implied.run.start }
    }

    /// Compares the order with a peer of the same stream, which has confirmed all blocks before `next` and stated so
    /// after its last block.
    pub(super) fn check_order(&mut self, now: Instant, next: u64) {
        match self.implied.placement.map(|placement| placement.next()) {
            Some(here) if here == next => {
                let run = core::mem::take(&mut self.implied.run);
                if !run.is_empty() {
                    self.report.add(now, run);
                }
            }
            // The peer has not confirmed the blocks after its statement.
            Some(here) if here > next => {}
            // A block was lost or is late: no number follows until a block carries one.
            _ => self.lose_order(),
        }
    }

    /// The encoder repeated its Open in order: this is the number of the next block.
    pub(super) fn confirm_order(&mut self, now: Instant, next: u64) {
        let here = self.implied.placement.map(|placement| placement.next());
        self.store.next = self.store.next.max(next);
        if here == Some(next) {
            self.check_order(now, next);
        } else {
            // A block of the run was lost, or the order was lost before.
            self.begin_order(next);
        }
    }

    /// The unconfirmed numbers of the range.
    pub(super) fn count_unconfirmed(&self, of: &Range<u64>) -> u64 {
        let run = &self.implied.run;
        let unconfirmed = run.start.max(of.start)..run.end.min(of.end);
        unconfirmed.filter(|number| self.store.holds(*number)).count() as u64
    }

    /// A block of the present stream carried its number.
    pub(super) fn verify_order(&mut self, now: Instant, shim: &Shim<'_>) {
        let Some(number) = shim.number(self.store.next) else { return };
        let length_bytes = shim.restored_bytes();
        let expected = self.implied.placement.map(|placement| placement.peek(length_bytes).number);
        if expected == Some(number) {
            let run = core::mem::take(&mut self.implied.run);
            if !run.is_empty() {
                self.report.add(now, run);
            }
        } else {
            self.lose_order();
        }
        // A late block does not determine the number of its successors.
        let is_forward = expected.is_none_or(|expected| number >= expected);
        self.implied.placement = is_forward.then(|| {
            let mut placement = Placement::new(self.store.granules(), number);
            placement.take(placement.peek(length_bytes), length_bytes);
            placement
        });
    }
}
