//! That decoding a message in symbols yields what was encoded, and that messages cost what they should.

use super::*;
use filters::{BloomShape, CountingBloomShape, MultiLevelShape, Update};
use proptest::prelude::*;
use std::collections::BTreeMap;

const WORDS: usize = 4000;

fn codings() -> [Coding; 4] {
    [
        Coding::Words,
        Coding::Cells { fingerprint_bits: 23, content_bits: 8 },
        Coding::Cells { fingerprint_bits: 16, content_bits: 8 },
        Coding::Flips,
    ]
}

/// A word that a filter of the coding can have.
fn admitted(coding: Coding, word: u32) -> u32 {
    match coding {
        Coding::Cells { fingerprint_bits, content_bits } if word != 0 => {
            TAKEN | word & (((1_u64 << (fingerprint_bits + content_bits)) - 1) as u32)
        }
        _ => word,
    }
}

fn encoded(coding: Coding, known: &BTreeMap<u32, u32>, changes: &BTreeMap<u32, u32>) -> Vec<u8> {
    let (mut encoder, mut message) = (Encoder::new(coding), Vec::new());
    for (&index, &word) in changes {
        encoder.append(Change { index, word }, known.get(&index).copied().unwrap_or(0), &mut message);
    }
    message
}

proptest! {
    #[test]
    fn a_decoded_message_yields_the_words_of_its_sender(
        known in proptest::collection::btree_map(0..WORDS as u32, any::<u32>(), 0..60),
        states in proptest::collection::btree_map(0..WORDS as u32, prop_oneof![Just(0), any::<u32>()], 0..60),
    ) {
        for coding in codings() {
            let [known, mut changes] = [&known, &states].map(|words| {
                words.iter().map(|(index, word)| (*index, admitted(coding, *word))).collect::<BTreeMap<_, _>>()
            });
            // Some keep their fingerprint and have another state.
            if let Coding::Cells { fingerprint_bits, .. } = coding {
                let mask = TAKEN | ((1 << fingerprint_bits) - 1);
                changes.extend(known.iter().filter(|(_, word)| **word != 0).map(|(index, word)| {
                    (*index, word & mask | 5 << fingerprint_bits)
                }));
            }
            let message = encoded(coding, &known, &changes);
            let mut decoded = Vec::new();
            let word = |index: u32| known.get(&index).copied().unwrap_or(0);
            decode(coding, &message, WORDS, word, &mut decoded).expect("it was just written");
            let mut after = known.clone();
            after.extend(decoded.iter().map(|change| (change.index, change.word)));
            for (index, word) in &changes {
                prop_assert_eq!(after.get(index).copied().unwrap_or(0), *word, "{:?}", coding);
            }
        }
    }

    #[test]
    fn whatever_comes_is_read_or_refused(message: Vec<u8>, words in 1_usize..500, known: u32) {
        for coding in codings() {
            let mut changes = Vec::new();
            if decode(coding, &message, words, |_| known, &mut changes).is_ok() {
                prop_assert!(changes.is_sorted_by(|one, next| one.index < next.index));
                prop_assert!(changes.iter().all(|change| (change.index as usize) < words));
            }
        }
    }

    #[test]
    fn words_of_every_filter_are_encoded_and_decoded(
        changes in proptest::collection::btree_map(0..WORDS as u32, any::<u32>(), 0..60),
    ) {
        let message = encoded(Coding::Words, &BTreeMap::new(), &changes);
        let update = Update::parse(&message, WORDS).expect("it is an update");
        prop_assert_eq!(update.changes().map(|change| (change.index, change.word)).collect::<BTreeMap<_, _>>(), changes);
    }
}

#[test]
fn a_change_of_state_takes_no_fingerprint_and_an_end_takes_nothing_but_its_place() {
    let coding = Coding::Cells { fingerprint_bits: 23, content_bits: 8 };
    let cell = |state: u32, fingerprint: u32| TAKEN | state << 23 | fingerprint;
    let bytes =
        |known: u32, word: u32| encoded(coding, &BTreeMap::from([(10, known)]), &BTreeMap::from([(10, word)])).len();
    assert_eq!(bytes(0, cell(1, 77)), 5);
    assert_eq!(bytes(cell(1, 77), cell(2, 77)), 2);
    assert_eq!(bytes(cell(2, 77), 0), 1);
    assert_eq!(bytes(cell(2, 77), cell(2, 78)), 5, "another connection has taken the cell");
}

#[test]
fn each_shape_has_the_coding_that_leaves_out_most() {
    let bits = Shape::Bloom(BloomShape { bits: 100, hashes: 4 });
    let levels = Shape::MultiLevel(MultiLevelShape::for_items(100, 8), Content::States);
    let counters = Shape::CountingBloom(CountingBloomShape { counters: 100, hashes: 4 });
    let cells = Coding::Cells { fingerprint_bits: 23, content_bits: 8 };
    let expected = [(bits, Coding::Flips), (levels, cells), (counters, Coding::Words)];
    for (shape, coding) in expected {
        assert_eq!(Coding::of(shape, true), coding);
        assert_eq!(Coding::of(shape, false), if coding == Coding::Flips { coding } else { Coding::Words });
    }
}
