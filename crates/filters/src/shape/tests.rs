//! Validation and encoding of shapes.

use super::*;
use proptest::prelude::*;

const SOME: [Shape; 4] = [
    Shape::Bloom(BloomShape { bits: 1000, hashes: 4 }),
    Shape::CountingBloom(CountingBloomShape { counters: 1000, hashes: 4 }),
    Shape::MultiLevel(MultiLevelShape::for_items(1000, 8), Content::States),
    Shape::Cuckoo(CuckooShape::for_items(1000)),
];

#[test]
fn encoded_shapes_decode_to_the_same_shape() {
    for shape in SOME {
        assert_eq!(Shape::decode(&shape.encode(5), 5), Ok(shape));
        assert_eq!(Shape::decode(&shape.encode(5), 6), Err(ShapeError::OtherSecret));
        assert_eq!(Shape::decode(&shape.encode(5)[1..], 5), Err(ShapeError::Malformed("not 32 bytes")));
        let mut later = shape.encode(5);
        later[0] = 2;
        assert_eq!(Shape::decode(&later, 5), Err(ShapeError::Version(2)));
    }
}

#[test]
fn sizes_of_levels_decrease_by_the_ratio() {
    let shape = MultiLevelShape { cells: 10_000, ..MultiLevelShape::for_items(0, 8) };
    assert_eq!(shape.buckets().map(|buckets| buckets[..5].to_vec()), Ok(std::vec![666, 333, 166, 83, 0]));
    let even = MultiLevelShape { ratio_per_mille: 1000, ..shape };
    assert_eq!(even.buckets().map(|buckets| buckets[..5].to_vec()), Ok(std::vec![312, 312, 312, 312, 0]));
}

#[test]
fn invalid_shapes_are_rejected_with_the_reason() {
    let good = MultiLevelShape::for_items(1000, 8);
    let refused = [
        (MultiLevelShape { levels: 1, ..good }, "levels: 1, allowed are 2 to 8"),
        (MultiLevelShape { cells_per_bucket: 9, ..good }, "cells a bucket: 9, allowed are 1 to 8"),
        (MultiLevelShape { fingerprint_bits: 24, ..good }, "fingerprint bits: 24, allowed are 4 to 23"),
        (MultiLevelShape { content_bits: 17, ..good }, "content bits: 17, allowed are 1 to 16"),
        (MultiLevelShape { cells: 20, ..good }, "buckets of a level: 0, allowed are 1 to 268435456"),
        (MultiLevelShape { ratio_per_mille: 1001, ..good }, "thousandths of a level's size over the last: 1001"),
    ];
    for (shape, reason) in refused {
        let error = shape.buckets().map_err(|error| std::format!("{error}")).expect_err("there is no such filter");
        assert!(error.starts_with(reason), "{error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), kind in 1_u8..7) {
        if let [first, second, ..] = &mut bytes[..] {
            (*first, *second) = (1, kind);
        }
        if let Ok(shape) = Shape::decode(&bytes, 0) {
            prop_assert_eq!(&shape.encode(0)[..], &bytes[..]);
        }
    }

    #[test]
    fn one_changed_byte_is_another_shape_or_none(index in 0_usize..32, change in 1_u8..=255, which in 0..SOME.len()) {
        let mut bytes = SOME[which].encode(9);
        bytes[index] ^= change;
        prop_assert_ne!(Shape::decode(&bytes, 9), Ok(SOME[which]));
    }
}
