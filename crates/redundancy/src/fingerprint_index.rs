//! The last position of each fingerprint (RE, table 4.1): a table of four-byte slots, indexed by the fingerprint.
//!
//! A slot contains a marker's position in the ring, and in the remaining bits a tag: more of the fingerprint. The tag
//! rejects most slots of other fingerprints without a read of the cache. Slots are never deleted: comparing the bytes
//! reveals overwritten data and collisions.

use alloc::boxed::Box;
use alloc::vec;

use flow::table::prefetch::prefetch;

use crate::limits::GRANULE_BYTES;

/// A slot's bytes.
const SLOT_BYTES: usize = 4;

/// The slot and the tag of a fingerprint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotKey {
    slot: u32,
    /// The tag, shifted to its position in the slot.
    tag: u32,
}

/// The fingerprint store.
#[derive(Clone, Debug)]
pub(crate) struct FingerprintIndex {
    slots: Box<[u32]>,
    /// The bits of a slot that hold a position.
    offset_mask: u32,
}

impl FingerprintIndex {
    /// An index with a slot for each `period_bytes` of the cache.
    pub(crate) fn new(granules: u64, period_bytes: usize) -> Self {
        let cache_bytes = granules as usize * GRANULE_BYTES;
        let slots = vec![0; (cache_bytes / period_bytes).max(1)].into_boxed_slice();
        Self { slots, offset_mask: (cache_bytes.next_power_of_two() - 1) as u32 }
    }

    #[inline(always)]
    pub(crate) const fn slot_key(&self, fingerprint: u64) -> SlotKey {
        let slot = ((fingerprint >> 32) * self.slots.len() as u64) >> 32;
        let tag = fingerprint as u32 & !self.offset_mask;
        SlotKey { slot: slot as u32, tag }
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, slot_key: SlotKey) {
        prefetch(&self.slots, slot_key.slot as usize, 0);
    }

    /// Stores a marker's position, and returns the former one, if it has the same tag.
    #[inline(always)]
    pub(crate) fn replace(&mut self, slot_key: SlotKey, offset: usize) -> Option<usize> {
        let slot = self.slots.get_mut(slot_key.slot as usize)?;
        let former = core::mem::replace(slot, slot_key.tag | offset as u32);
        (former & !self.offset_mask == slot_key.tag).then_some((former & self.offset_mask) as usize)
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_size_is_a_share_of_the_cache_by_the_period() {
        let granules = (16 << 20) / GRANULE_BYTES as u64;
        for (period, kilobytes) in [(64, 1024), (32, 2048)] {
            assert_eq!(FingerprintIndex::new(granules, period).memory_bytes(), kilobytes << 10);
        }
    }

    #[test]
    fn a_position_is_found_by_its_fingerprint_and_the_tag_rejects_most_others() {
        let mut index = FingerprintIndex::new((1 << 20) / GRANULE_BYTES as u64, 32);
        let slot_key = index.slot_key(0x1234_5678_9abc_def0);
        assert_eq!(index.replace(slot_key, 77_777), None);
        assert_eq!(index.replace(slot_key, 88_888), Some(77_777));
        // The same slot, another tag.
        assert_eq!(index.replace(index.slot_key(0x1234_5678_7abc_def0), 5), None);
        assert_eq!(index.replace(slot_key, 6), None);
    }
}
