//! The decoder's cache: the ring, and the number of each of its granules.

use alloc::boxed::Box;
use alloc::vec;
use core::ops::Range;

use crate::limits::GRANULE_BYTES;
use crate::packet_cache::{GranuleSet, Ring, granules_for, granules_touched};

/// No number: it is that of a granule after 256 GiB, which is then requested once.
const NOTHING: u32 = u32::MAX;

/// The cache of one stream.
#[derive(Clone, Debug)]
pub(super) struct Store {
    ring: Ring,
    /// The lowest bits of the number that each granule has.
    numbers: Box<[u32]>,
    /// Granules of the ring that the stream uses.
    granules: u64,
    /// The number after the last that is known.
    pub(super) next: u64,
}

impl Store {
    pub(super) fn new(granules_max: u64) -> Self {
        let numbers = vec![NOTHING; granules_max as usize].into_boxed_slice();
        Self { ring: Ring::new(granules_max), numbers, granules: granules_max, next: 0 }
    }

    pub(super) const fn granules_max(&self) -> u64 {
        self.numbers.len() as u64
    }

    pub(super) const fn granules(&self) -> u64 {
        self.granules
    }

    /// Begins anew.
    pub(super) fn reset(&mut self, granules: u64, next: u64) {
        self.numbers.fill(NOTHING);
        self.granules = granules;
        self.next = next;
    }

    /// Discards the data with numbers from `fork` on.
    pub(super) fn discard_from(&mut self, fork: u64, next: u64) {
        for number in fork.max(self.next.saturating_sub(self.granules))..self.next {
            self.forget(number);
        }
        self.next = next;
    }

    pub(super) const fn holds(&self, number: u64) -> bool {
        self.numbers[(number % self.granules) as usize] == number as u32 && number < self.next
    }

    /// The number of held granules in a range that ends at the next number at most, and is no longer than the cache.
    pub(super) fn count_held(&self, range: Range<u64>) -> u64 {
        let (behind, before) = self.numbers[..self.granules as usize].split_at((range.start % self.granules) as usize);
        let slots = before.iter().chain(behind);
        slots.zip(range).filter(|(slot, number)| **slot == *number as u32).count() as u64
    }

    pub(super) const fn forget(&mut self, number: u64) {
        if self.holds(number) {
            self.numbers[(number % self.granules) as usize] = NOTHING;
        }
    }

    /// Whether a block with this number was overwritten long ago.
    pub(super) const fn is_stale(&self, number: u64) -> bool {
        number + self.granules <= self.next
    }

    /// Stores a block. Returns false if it cannot be stored: it would wrap around the ring's end, or has been
    /// overwritten.
    pub(super) fn put(&mut self, number: u64, block: &[u8]) -> bool {
        let first = (number % self.granules) as usize;
        let count = granules_for(block.len());
        if first as u64 + count > self.granules || self.is_stale(number) {
            return false;
        }
        self.ring.write(first * GRANULE_BYTES, block);
        let mut granule = number as u32;
        for slot in &mut self.numbers[first..first + count as usize] {
            *slot = granule;
            granule = granule.wrapping_add(1);
        }
        self.next = self.next.max(number + count);
        true
    }

    /// The ring bytes of `length` bytes from `position` on, or None if they wrap around the ring's end.
    pub(super) fn range(&self, position: u64, length: usize) -> Option<Range<usize>> {
        let ring_bytes = self.granules as usize * GRANULE_BYTES;
        let offset = (position % ring_bytes as u64) as usize;
        (offset + length <= ring_bytes).then(|| offset..offset + length)
    }

    /// Whether all granules of a range have the numbers that the range has at `position`.
    #[inline]
    pub(super) fn has(&self, position: u64, range: &Range<usize>) -> bool {
        let mut number = (position / GRANULE_BYTES as u64) as u32;
        let granules = &self.numbers[granules_touched(range)];
        let mut differences = 0;
        for held in granules {
            differences |= held ^ number;
            number = number.wrapping_add(1);
        }
        differences == 0
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.ring.bytes()[range]
    }

    /// The next run of held numbers, from `from` on.
    pub(super) fn next_held(&self, from: u64) -> Option<Range<u64>> {
        let oldest = self.next.saturating_sub(self.granules);
        let start = (from.max(oldest)..self.next).find(|number| self.holds(*number))?;
        let end = (start..self.next).find(|number| !self.holds(*number)).unwrap_or(self.next);
        Some(start..end)
    }

    /// The ring and the set of held granules.
    pub(super) fn into_ring(self) -> (Ring, GranuleSet) {
        let mut held = GranuleSet::new(self.granules);
        for number in self.next.saturating_sub(self.granules)..self.next {
            if self.holds(number) {
                let granule = (number % self.granules) as usize;
                held.set(granule..granule + 1, true);
            }
        }
        (self.ring.truncated(self.granules), held)
    }

    pub(super) const fn memory_bytes(&self) -> [usize; 2] {
        [self.ring.bytes().len(), self.numbers.len() * size_of::<u32>()]
    }
}
