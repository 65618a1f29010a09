//! The encoder's view of the decoder's cache.

use core::ops::Range;

use crate::packet_cache::GranuleSet;

/// The data that blocks may point to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// All data that was sent and is not known to be lost. The decoder requests lost data (RE, section 4.3:
    /// optimistic).
    Sent,
    /// Only data that the decoder has reported as held (pessimistic).
    Held,
}

/// Sets of granules.
#[derive(Clone, Debug)]
pub(super) struct DecoderView {
    granules: u64,
    /// Granules that blocks may reference.
    pub(super) usable: GranuleSet,
    /// Granules that the decoder reported as held: a retransmission may point to them.
    pub(super) held: GranuleSet,
    /// Granules present in this encoder's cache. None when all are: only an encoder that took over from another has
    /// gaps.
    owned: Option<GranuleSet>,
}

impl DecoderView {
    pub(super) fn new(granules: u64, owned: Option<GranuleSet>) -> Self {
        Self { granules, usable: GranuleSet::new(granules), held: GranuleSet::new(granules), owned }
    }

    /// Resets the view.
    pub(super) fn forget(&mut self) {
        self.usable.clear();
        self.held.clear();
    }

    /// New bytes were stored in these granules of the ring, and sent or not.
    #[inline(always)]
    pub(super) fn put(&mut self, granules: Range<usize>, is_usable: bool) {
        self.usable.set(granules.clone(), is_usable);
        self.held.set(granules.clone(), false);
        if let Some(owned) = &mut self.owned {
            owned.set(granules, true);
        }
    }

    /// The numbers of `range` that are still in the ring before `next`, as at most two ranges of granules.
    pub(super) fn in_ring(&self, range: &Range<u64>, next: u64) -> [Range<usize>; 2] {
        let range = range.start.max(next.saturating_sub(self.granules))..range.end.min(next);
        if range.is_empty() {
            return [0..0, 0..0];
        }
        let first = (range.start % self.granules) as usize;
        let end = first + (range.end - range.start) as usize;
        let granules = self.granules as usize;
        [first..end.min(granules), 0..end.saturating_sub(granules)]
    }

    /// Records that the decoder holds `range`.
    pub(super) fn learn_held(&mut self, range: &Range<u64>, next: u64) {
        for part in self.in_ring(range, next) {
            self.held.set(part.clone(), true);
            match &self.owned {
                None => self.usable.set(part, true),
                Some(owned) => {
                    for granule in part.filter(|granule| owned.has(*granule)) {
                        self.usable.set(granule..granule + 1, true);
                    }
                }
            }
        }
    }

    /// Records that the decoder lacks `range`.
    pub(super) fn learn_missing(&mut self, range: &Range<u64>, next: u64) {
        for part in self.in_ring(range, next) {
            self.usable.set(part.clone(), false);
            self.held.set(part, false);
        }
    }

    /// Records a gap between reported ranges, which the decoder did not hold at that time.
    pub(super) fn learn_gap(&mut self, range: &Range<u64>, next: u64) {
        for part in self.in_ring(range, next) {
            for granule in part.filter(|granule| !self.held.has(*granule)) {
                self.usable.set(granule..granule + 1, false);
            }
        }
    }

    /// Whether the encoder's cache contains all of `number..`.
    pub(super) fn owns(&self, granules: Range<usize>) -> bool {
        self.owned.as_ref().is_none_or(|owned| owned.has_all(granules))
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.usable.memory_bytes() + self.held.memory_bytes()
    }
}
