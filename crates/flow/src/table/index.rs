//! The index of connections by hash: an open-addressing hash table of cache-line buckets.
//!
//! A bucket holds ten entries (a 16-bit tag of the hash, and a slot) and counts the entries that were pushed to a later
//! bucket because it was full. A search ends at the first bucket with a count of zero. Searches for absent keys thus
//! mostly read one cache line, and removals need no tombstones.

use alloc::boxed::Box;
use alloc::vec;

use filters::prefetch::prefetch;

/// Entries of a bucket.
const BUCKET_ENTRIES: usize = 10;
/// Buckets are made for this many entries each (load 0.8).
const BUCKET_ENTRIES_MEAN: usize = 8;

/// One cache line of entries. A tag of 0 marks a free one.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    slots: [u32; BUCKET_ENTRIES],
    /// Entries that were pushed past this bucket, which was full, on the way from their home bucket.
    passed: u32,
    tags: [u16; BUCKET_ENTRIES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    const EMPTY: Self = Self { slots: [0; BUCKET_ENTRIES], passed: 0, tags: [0; BUCKET_ENTRIES] };

    /// A bit for each entry with `tag`.
    #[inline(always)]
    fn matches(&self, tag: u16) -> u32 {
        let mut bits = 0;
        for (entry, stored) in self.tags.iter().enumerate() {
            bits |= u32::from(*stored == tag) << entry;
        }
        bits
    }
}

/// Slots by hash. The same hash may be entered for several slots.
pub struct Index {
    buckets: Box<[Bucket]>,
}

impl core::fmt::Debug for Index {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Index").field("buckets", &self.buckets.len()).finish()
    }
}

impl Index {
    /// An index with room for `entries_max` entries.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        Self { buckets: vec![Bucket::EMPTY; entries_max.div_ceil(BUCKET_ENTRIES_MEAN).max(1)].into_boxed_slice() }
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// The home bucket of a hash: its low half, scaled.
    #[inline(always)]
    pub(super) const fn home(&self, hash: u64) -> usize {
        (((hash & 0xffff_ffff) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The tag of a hash: sixteen bits above those that choose the bucket and below those that choose the worker.
    #[inline(always)]
    const fn tag(hash: u64) -> u16 {
        let tag = (hash >> 32) as u16;
        if tag == 0 { 1 } else { tag }
    }

    const fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// Fetches the hash's home bucket.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.buckets, self.home(hash), 0);
    }

    /// The first slot in the hash's home bucket that may have it.
    #[must_use]
    #[inline(always)]
    pub fn glance(&self, hash: u64) -> Option<u32> {
        let bucket = &self.buckets[self.home(hash)];
        let matches = bucket.matches(Self::tag(hash));
        (matches != 0).then(|| bucket.slots[matches.trailing_zeros() as usize])
    }

    /// The first result of `check` for a slot that may have the hash.
    #[inline]
    pub fn find<T>(&self, hash: u64, check: impl FnMut(u32) -> Option<T>) -> Option<T> {
        self.position(hash, check).map(|(_, _, found)| found)
    }

    /// The position of the first result of `check`: bucket, entry, result.
    #[inline]
    fn position<T>(&self, hash: u64, mut check: impl FnMut(u32) -> Option<T>) -> Option<(usize, usize, T)> {
        let tag = Self::tag(hash);
        let mut number = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[number];
            let mut matches = bucket.matches(tag);
            while matches != 0 {
                let entry = matches.trailing_zeros() as usize;
                if let Some(found) = check(bucket.slots[entry]) {
                    return Some((number, entry, found));
                }
                matches &= matches - 1;
            }
            if bucket.passed == 0 {
                break;
            }
            number = self.after(number);
        }
        None
    }

    /// Enters a slot.
    ///
    /// # Panics
    /// The index exceeds its capacity.
    pub fn insert(&mut self, hash: u64, slot: u32) {
        let mut number = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &mut self.buckets[number];
            let free = bucket.matches(0);
            if free != 0 {
                let entry = free.trailing_zeros() as usize;
                bucket.tags[entry] = Self::tag(hash);
                bucket.slots[entry] = slot;
                return;
            }
            bucket.passed += 1;
            number = self.after(number);
        }
        unreachable!("an index has more room than its table has connections");
    }

    /// Removes a slot that was entered under `hash`.
    pub fn remove(&mut self, hash: u64, slot: u32) {
        let found = self.position(hash, |candidate| (candidate == slot).then_some(()));
        let Some((found, entry, ())) = found else {
            debug_assert!(false, "slot {slot} is not in the index");
            return;
        };
        self.buckets[found].tags[entry] = 0;
        let mut passed = self.home(hash);
        while passed != found {
            self.buckets[passed].passed -= 1;
            passed = self.after(passed);
        }
    }

    /// The slots in `buckets_max` buckets from the hash's home on.
    pub(super) fn near(&self, hash: u64, buckets_max: usize) -> impl Iterator<Item = u32> {
        let home = self.home(hash);
        (0..buckets_max.min(self.buckets.len())).flat_map(move |distance| {
            let bucket = &self.buckets[(home + distance) % self.buckets.len()];
            bucket.tags.iter().zip(&bucket.slots).filter(|(tag, _)| **tag != 0).map(|(_, slot)| *slot)
        })
    }

    /// The number of entries, and of entries that passed a bucket.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        let held = self.buckets.iter().map(|bucket| bucket.tags.iter().filter(|tag| **tag != 0).count()).sum();
        (held, self.buckets.iter().map(|bucket| bucket.passed as usize).sum())
    }
}
