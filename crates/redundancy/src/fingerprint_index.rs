//! Where a fingerprint was last seen (seed, table 4.1): a table of four-byte slots, found by the fingerprint.
//!
//! A slot has the place of a marker in the ring, and in the bits that are left a tag: more of the fingerprint. Most slots that
//! are of another fingerprint say so by their tag, and the cache is not read for them. Nothing is ever deleted: what is
//! written over in the ring, or shares slot and tag, is found out when the bytes are compared.

use alloc::boxed::Box;
use alloc::vec;

use flow::table::prefetch::prefetch;

use crate::limits::GRANULE_BYTES;

/// A slot's bytes.
const SLOT_BYTES: usize = 4;

/// The slot and the tag of a fingerprint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hook {
    slot: u32,
    /// In its place among the slot's bits.
    tag: u32,
}

/// The fingerprint store.
#[derive(Clone, Debug)]
pub(crate) struct FingerprintIndex {
    slots: Box<[u32]>,
    /// The bits of a slot that are a place.
    offset_mask: u32,
}

impl FingerprintIndex {
    /// With a slot for each `period_bytes` of the cache.
    pub(crate) fn new(granules: u64, period_bytes: usize) -> Self {
        let cache_bytes = granules as usize * GRANULE_BYTES;
        let slots = vec![0; (cache_bytes / period_bytes).max(1)].into_boxed_slice();
        Self { slots, offset_mask: (cache_bytes.next_power_of_two() - 1) as u32 }
    }

    #[inline(always)]
    pub(crate) const fn hook(&self, fingerprint: u64) -> Hook {
        let slot = ((fingerprint >> 32) * self.slots.len() as u64) >> 32;
        let tag = fingerprint as u32 & !self.offset_mask;
        Hook { slot: slot as u32, tag }
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, hook: Hook) {
        prefetch(&self.slots, hook.slot as usize, 0);
    }

    /// Puts a marker's place, and returns the one that was there, if it has the same tag.
    #[inline(always)]
    pub(crate) fn replace(&mut self, hook: Hook, offset: usize) -> Option<usize> {
        let slot = self.slots.get_mut(hook.slot as usize)?;
        let former = core::mem::replace(slot, hook.tag | offset as u32);
        (former & !self.offset_mask == hook.tag).then_some((former & self.offset_mask) as usize)
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_a_share_of_the_cache_that_the_period_decides() {
        let granules = (16 << 20) / GRANULE_BYTES as u64;
        for (period, kilobytes) in [(64, 1024), (32, 2048)] {
            assert_eq!(FingerprintIndex::new(granules, period).memory_bytes(), kilobytes << 10);
        }
    }

    #[test]
    fn a_place_is_found_by_its_fingerprint_and_most_others_are_told_apart_by_the_tag() {
        let mut index = FingerprintIndex::new((1 << 20) / GRANULE_BYTES as u64, 32);
        let hook = index.hook(0x1234_5678_9abc_def0);
        assert_eq!(index.replace(hook, 77_777), None);
        assert_eq!(index.replace(hook, 88_888), Some(77_777));
        // The same slot, another tag.
        assert_eq!(index.replace(index.hook(0x1234_5678_7abc_def0), 5), None);
        assert_eq!(index.replace(hook, 6), None);
    }
}
