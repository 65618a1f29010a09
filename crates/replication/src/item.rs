//! What two nodes must agree on of a connection, as one number, and sums of such numbers.
//!
//! ```text
//!   63             32 31              0
//!  +-----------------+-----------------+
//!  |      check      |      name       |     bucket = the lowest bits of the name
//!  +-----------------+-----------------+
//! ```
//! The name is of the original tuple alone: the connection stays in its bucket. The check covers everything that must be equal
//! on both nodes. Sums do not depend on the order in which connections were replicated.

use alloc::boxed::Box;
use alloc::vec;

/// Buckets that connections are summed in; a table with fewer connections is compared in fewer buckets.
pub const BUCKETS_MAX: u16 = 1024;
/// The fewest buckets that tables are compared in, so that what is in flight at the time leaves some untouched.
pub(crate) const BUCKETS_MIN: u16 = 64;
/// Connections to a bucket, as long as there are buckets.
const CONNECTIONS_PER_BUCKET: u32 = 64;

const _: () = assert!(BUCKETS_MAX.is_power_of_two() && BUCKETS_MIN.is_power_of_two());

/// A connection as two nodes must agree on it: 32 bits of its name, 32 of all that must be equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Item(u64);

impl Item {
    /// No connection, or a store that does not take part in comparisons.
    pub const NONE: Self = Self(0);

    /// The connection with this name and this check.
    #[must_use]
    pub const fn new(name: u32, check: u32) -> Self {
        // A connection is never taken for none.
        let check = if check == 0 { 1 } else { check };
        Self((check as u64) << 32 | name as u64)
    }

    /// As on the wire.
    pub(crate) const fn to_u64(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_u64(value: u64) -> Self {
        Self(value)
    }

    /// There is no connection.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn name(self) -> u32 {
        self.0 as u32
    }

    /// The bucket among `buckets`, a power of two.
    pub(crate) const fn bucket(self, buckets: u16) -> u16 {
        self.0 as u16 & (buckets - 1)
    }
}

/// How many buckets to compare so many connections in.
pub(crate) const fn buckets_for(connections: u32) -> u16 {
    let wanted = connections / CONNECTIONS_PER_BUCKET;
    if wanted >= BUCKETS_MAX as u32 {
        BUCKETS_MAX
    } else if wanted <= BUCKETS_MIN as u32 {
        BUCKETS_MIN
    } else {
        (wanted as u16).next_power_of_two()
    }
}

/// The sum of the items in each bucket.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Sums {
    sums: Box<[u64]>,
    count: u32,
}

impl Sums {
    pub(crate) fn new() -> Self {
        Self { sums: vec![0; BUCKETS_MAX.into()].into_boxed_slice(), count: 0 }
    }

    /// Connections summed.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn add(&mut self, item: Item) {
        if !item.is_none() {
            let sum = &mut self.sums[usize::from(item.bucket(BUCKETS_MAX))];
            *sum = sum.wrapping_add(item.0);
            self.count += 1;
        }
    }

    pub(crate) fn subtract(&mut self, item: Item) {
        if !item.is_none() {
            let sum = &mut self.sums[usize::from(item.bucket(BUCKETS_MAX))];
            *sum = sum.wrapping_sub(item.0);
            self.count -= 1;
        }
    }

    /// The digest of one of `buckets` buckets.
    pub(crate) fn digest(&self, bucket: u16, buckets: u16) -> u32 {
        let folded = self.sums.iter().skip(bucket.into()).step_by(buckets.into());
        let sum = folded.fold(0_u64, |sum, each| sum.wrapping_add(*each));
        // An odd factor, so that all bits of the sum come to bear on those that are kept.
        (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 ^ sum as u32
    }
}

/// Messages in flight that concern the connections of each bucket.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Unsettled(Box<[u16]>);

impl Unsettled {
    pub(crate) fn new() -> Self {
        Self(vec![0; BUCKETS_MAX.into()].into_boxed_slice())
    }

    pub(crate) fn add(&mut self, item: Item) {
        if !item.is_none() {
            self.0[usize::from(item.bucket(BUCKETS_MAX))] += 1;
        }
    }

    pub(crate) fn subtract(&mut self, item: Item) {
        if !item.is_none() {
            self.0[usize::from(item.bucket(BUCKETS_MAX))] -= 1;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    pub(crate) fn is_any(&self, bucket: u16, buckets: u16) -> bool {
        self.0.iter().skip(bucket.into()).step_by(buckets.into()).any(|count| *count != 0)
    }
}

/// A set of buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Buckets([u64; BUCKETS_MAX as usize / 64]);

impl Buckets {
    pub(crate) const EMPTY: Self = Self([0; BUCKETS_MAX as usize / 64]);

    /// All of `buckets`.
    pub(crate) fn all(buckets: u16) -> Self {
        let mut set = Self::EMPTY;
        (0..buckets).for_each(|bucket| set.insert(bucket));
        set
    }

    pub(crate) const fn insert(&mut self, bucket: u16) {
        self.0[bucket as usize / 64] |= 1 << (bucket % 64);
    }

    pub(crate) const fn remove(&mut self, bucket: u16) {
        self.0[bucket as usize / 64] &= !(1 << (bucket % 64));
    }

    pub(crate) const fn contains(&self, bucket: u16) -> bool {
        self.0[bucket as usize / 64] & 1 << (bucket % 64) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..BUCKETS_MAX).filter(|bucket| self.contains(*bucket))
    }

    /// The words that hold `buckets` buckets, at least 64.
    pub(crate) fn words(&self, buckets: u16) -> &[u64] {
        &self.0[..usize::from(buckets).div_ceil(64)]
    }

    pub(crate) fn from_words(words: impl Iterator<Item = u64>) -> Self {
        let mut set = Self::EMPTY;
        set.0.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn items() -> impl Strategy<Value = Vec<Item>> {
        proptest::collection::vec(any::<(u32, u32)>().prop_map(|(name, check)| Item::new(name, check)), 0..200)
    }

    proptest! {
        #[test]
        fn sums_do_not_depend_on_the_order_nor_on_what_came_and_went(items in items(), others in items(), buckets in 6..=10_u32) {
            let (mut one, mut other) = (Sums::new(), Sums::new());
            items.iter().chain(&others).for_each(|item| one.add(*item));
            others.iter().for_each(|item| one.subtract(*item));
            items.iter().rev().for_each(|item| other.add(*item));
            for bucket in 0..1 << buckets {
                prop_assert_eq!(one.digest(bucket, 1 << buckets), other.digest(bucket, 1 << buckets));
            }
            prop_assert_eq!(one.count() as usize, items.len());
        }

        #[test]
        fn one_wrong_bit_in_one_connection_changes_its_bucket_and_no_other(items in items(), bit in 32..64_u32, which: prop::sample::Index) {
            prop_assume!(!items.is_empty());
            let wrong = which.index(items.len());
            let (mut one, mut other) = (Sums::new(), Sums::new());
            for (index, item) in items.iter().enumerate() {
                one.add(*item);
                other.add(if index == wrong { Item(item.0 ^ 1 << bit) } else { *item });
            }
            prop_assume!(items[wrong].0 ^ 1 << bit > u64::from(u32::MAX));
            for bucket in 0..BUCKETS_MIN {
                let is_equal = one.digest(bucket, BUCKETS_MIN) == other.digest(bucket, BUCKETS_MIN);
                prop_assert_eq!(is_equal, bucket != items[wrong].bucket(BUCKETS_MIN), "bucket {}", bucket);
            }
        }
    }

    #[test]
    fn there_are_as_many_buckets_as_the_connections_need() {
        let cases = [(0, 64), (4096, 64), (4200, 128), (10_000, 256), (65_536, 1024), (1 << 20, 1024)];
        for (connections, buckets) in cases {
            assert_eq!(buckets_for(connections), buckets, "{connections} connections");
        }
    }
}
