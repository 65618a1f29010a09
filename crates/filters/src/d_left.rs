//! The d-left counting Bloom filter (DLCBF; Bonomi et al., "An improved construction for counting Bloom filters", 2006), as
//! MLCBF compares with: subtables of one size, and a new item goes to the least loaded of its buckets, of several to the
//! leftmost.
//!
//! That is a [multi-level](crate::multi_level) filter whose levels do not become smaller, so it is the same code. Unlike in
//! Bonomi's, fingerprints are the same in all subtables; he permutes key and fingerprint together, so that two items which
//! meet in one subtable meet in all.

use crate::multi_level::MultiLevel;
use crate::shape::{Insertion, MultiLevelShape};

/// A d-left counting Bloom filter: a [`MultiLevel`] with a [`shape`] of its own.
pub type DLeft<H> = MultiLevel<H>;

/// The shape of a d-left filter with so many cells in all, in so many subtables of buckets of so many cells. The fingerprint
/// has the bits that the content leaves.
#[must_use]
pub const fn shape(cells: u64, subtables: u8, cells_per_bucket: u8, content_bits: u8) -> MultiLevelShape {
    MultiLevelShape {
        cells,
        levels: subtables,
        cells_per_bucket,
        ratio_per_mille: 1000,
        insertion: Insertion::LeastLoad,
        ..MultiLevelShape::for_items(0, content_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counters, Secret};

    #[test]
    fn items_are_spread_over_the_subtables_with_a_lean_to_the_left() {
        let mut filter = DLeft::<Counters>::new(shape(10_000, 4, 8, 4)).expect("a shape");
        let secret = Secret::new([1, 1]);
        (0..2000).for_each(|number| assert!(filter.insert(secret.spread(number)).is_ok()));
        let items = filter.items_by_level();
        assert!(items[..4].is_sorted_by(|one, next| one > next), "{items:?}");
        assert_eq!(items.iter().sum::<usize>(), filter.len());
        assert!((0..2000).all(|number| filter.contains(secret.spread(number))));
    }
}
