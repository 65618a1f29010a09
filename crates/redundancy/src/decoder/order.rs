//! Blocks that go plain and are remembered: they bring no number, and have the one that follows from the order.
//!
//! ```text
//!  numbered ─► plain ─► plain ─► numbered: as expected? ─► yes: what lies between is sure, and is told to be held
//!      │         └── run, not sure ──┘                 └► no: one of them was lost; the run is forgotten
//!      └ the next number is known
//! ```
//! No block points to a run before its own number was held against what follows from it, so that a run that is wrong is
//! forgotten before it is read. After a pause an Open confirms it in place of a number. What is forgotten and needed is asked for, as all that is lacking.

use core::ops::Range;

use flow::Instant;

use super::Decoder;
use super::implied::Implied;
use crate::limits::{BLOCK_BYTES_MAX, IMPLIED_GRANULES_MAX};
use crate::packet_cache::{Placement, granules_for};
use crate::wire::shim::Shim;

impl Decoder {
    /// Handles a block that went plain and is remembered ([`crate::Encoding::Remembered`]). Whoever carries blocks keeps their
    /// order, and hands each in once; a loss is found out by the numbers of later ones.
    pub fn handle_plain(&mut self, block: &[u8]) {
        let Some(mut placement) = self.implied.placement else { return };
        let is_fit =
            !block.is_empty() && block.len() <= BLOCK_BYTES_MAX && granules_for(block.len()) <= self.store.granules();
        let place = placement.peek(block.len());
        let start = if self.implied.run.is_empty() { place.number } else { self.implied.run.start };
        placement.take(place, block.len());
        if !is_fit || placement.next() - start > IMPLIED_GRANULES_MAX || !self.store.put(place.number, block) {
            // No encoder of this release sends that: nothing follows from it.
            self.lose_order();
            return;
        }
        self.implied = Implied { placement: Some(placement), run: start..placement.next() };
        self.counters.blocks_remembered += 1;
        self.is_news = true;
    }

    /// A stream begins with this number.
    pub(super) fn begin_order(&mut self, next: u64) {
        self.lose_order();
        self.implied.placement = Some(Placement::new(self.store.granules(), next));
    }

    /// What is not sure is forgotten, and nothing follows before the next number.
    pub(super) fn lose_order(&mut self) {
        let run = core::mem::take(&mut self.implied).run;
        run.for_each(|number| self.store.forget(number));
    }

    /// The number up to which nothing is unsure.
    pub(super) fn sure_next(&self) -> u64 {
        if self.implied.run.is_empty() { self.store.next } else { self.implied.run.start }
    }

    /// Whoever has the same stream is sure of all before `next`, and said so after the last block that it told.
    pub(super) fn hold_order_against(&mut self, now: Instant, next: u64) {
        match self.implied.placement.map(|placement| placement.next()) {
            Some(here) if here == next => {
                let run = core::mem::take(&mut self.implied.run);
                if !run.is_empty() {
                    self.report.add(now, run);
                }
            }
            // It is not sure itself of what was told since.
            Some(here) if here > next => {}
            // Something was left out, or is yet to come: nothing follows before the next number.
            _ => self.lose_order(),
        }
    }

    /// The encoder repeated its Open in order: this is the number of the block that comes next.
    pub(super) fn confirm_order(&mut self, now: Instant, next: u64) {
        let here = self.implied.placement.map(|placement| placement.next());
        self.store.next = self.store.next.max(next);
        if here == Some(next) {
            self.hold_order_against(now, next);
        } else {
            // A block of the run was lost, or the order was lost before.
            self.begin_order(next);
        }
    }

    /// Numbers of the range that are unsure.
    pub(super) fn count_unsure(&self, of: &Range<u64>) -> u64 {
        let run = &self.implied.run;
        let unsure = run.start.max(of.start)..run.end.min(of.end);
        unsure.filter(|number| self.store.holds(*number)).count() as u64
    }

    /// A block of the present stream brought its number.
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
        // One that comes late says nothing of those that follow it.
        let is_forward = expected.is_none_or(|expected| number >= expected);
        self.implied.placement = is_forward.then(|| {
            let mut placement = Placement::new(self.store.granules(), number);
            placement.take(placement.peek(length_bytes), length_bytes);
            placement
        });
    }
}
