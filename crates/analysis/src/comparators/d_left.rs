//! The d-left counting Bloom filter (DLCBF; Bonomi et al., "An improved construction for counting Bloom filters",
//! 2006), a comparator in MLCBF: subtables of one size, and a new item goes to the least loaded of its buckets, the
//! leftmost among equals.
//!
//! It is a [multi-level](filters::multi_level) filter whose levels have the same size, so it shares that code. Unlike
//! Bonomi's, an item has the same fingerprint in all subtables. He permutes key and fingerprint together, so two items
//! that collide in one subtable collide in all.

use filters::{Insertion, MultiLevelShape};

/// The shape of a d-left filter with `cells` cells in total, in `subtables` subtables. The fingerprint has the bits of
/// a cell beyond `content_bits`.
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
    use filters::{Counters, MultiLevel, Secret};

    #[test]
    fn items_are_distributed_with_more_in_subtables_on_the_left() {
        let mut filter = MultiLevel::<Counters>::new(shape(10_000, 4, 8, 4)).expect("a shape");
        let secret = Secret::new([1, 1]);
        (0..2000).for_each(|number| assert!(filter.insert(secret.spread(number)).is_ok()));
        let items = filter.items_by_level();
        assert!(items[..4].is_sorted_by(|one, next| one > next), "{items:?}");
        assert_eq!(items.iter().sum::<usize>(), filter.len());
        assert!((0..2000).all(|number| filter.contains(secret.spread(number))));
    }
}
