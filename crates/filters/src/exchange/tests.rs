//! Updates make a replica equal to its original; invalid words are rejected.

use super::*;
use crate::{
    Bloom, BloomShape, Counters, CountingBloom, CountingBloomShape, Cuckoo, CuckooShape, KeyHash, MultiLevel,
    MultiLevelShape, Secret, States,
};
use proptest::prelude::*;

const SECRET: [u64; 2] = [11, 12];

fn key(number: u64) -> KeyHash {
    Secret::new(SECRET).spread(number)
}

/// Replicates a filter to another by updates alone, and checks that both become equal.
fn check_replication<F: Exchange>(mut sender: F, mut change: impl FnMut(&mut F, u64), mut agrees: impl FnMut(&F, &F)) {
    let mut receiver = F::empty(sender.shape()).expect("the sender's shape");
    for number in 0..50 {
        change(&mut sender, number);
    }
    let mark = sender.memory_mut().mark().expect("the first");
    // The whole filter, in two updates that arrive out of order.
    let words = sender.memory().words();
    let half = words.len() / 2;
    for (first, words) in [(half, &words[half..]), (0, &words[..half])] {
        let mut bytes = Vec::new();
        Update::encode_words(first as u32, words, &mut bytes);
        let update = Update::parse(&bytes, sender.memory().words().len()).expect("what was encoded");
        assert_eq!(receiver.apply(&update), Ok(words.len()));
    }
    agrees(&sender, &receiver);
    // Changes, a few words at a time; every third update is lost at first.
    let (mut changes, mut bytes) = (Vec::new(), Vec::new());
    for number in 50..200 {
        change(&mut sender, number);
        sender.memory_mut().take_changes(mark, 5, &mut changes);
        if number.is_multiple_of(3) {
            sender.memory_mut().give_back(mark, changes.drain(..).map(|change| change.index));
            continue;
        }
        Update::encode(&mut changes, &mut bytes);
        let update = Update::parse(&bytes, half * 2 + 2).expect("what was encoded");
        assert_eq!(update.len(), changes.len());
        receiver.apply(&update).expect("an update of the sender");
        changes.clear();
        bytes.clear();
    }
    while sender.memory().changed(mark) > 0 {
        sender.memory_mut().take_changes(mark, 100, &mut changes);
    }
    Update::encode(&mut changes, &mut bytes);
    receiver.apply(&Update::parse(&bytes, half * 2 + 2).expect("what was encoded")).expect("an update of the sender");
    agrees(&sender, &receiver);
    let all = 0..usize::MAX;
    assert_eq!(sender.memory().digest(all.clone()), receiver.memory().digest(all));
    let copy = F::from_words(sender.shape(), sender.memory().words()).expect("its own words");
    agrees(&sender, &copy);
}

#[test]
fn a_bloom_filter_is_replicated() {
    let shape = BloomShape { bits: 3001, hashes: 3 };
    check_replication(
        Bloom::new(shape).expect("a shape"),
        |filter, number| filter.insert(key(number)),
        |one, other| assert_eq!(one.memory().words(), other.memory().words()),
    );
}

#[test]
fn a_counting_bloom_filter_is_replicated() {
    let shape = CountingBloomShape { counters: 1003, hashes: 4 };
    let change = |filter: &mut CountingBloom, number: u64| {
        filter.insert(key(number));
        if number.is_multiple_of(4) {
            filter.remove(key(number / 2));
        }
    };
    check_replication(CountingBloom::new(shape).expect("a shape"), change, |one, other| {
        assert_eq!(one.memory().words(), other.memory().words());
    });
}

#[test]
fn a_cuckoo_filter_is_replicated() {
    let change = |filter: &mut Cuckoo, number: u64| {
        filter.insert(key(number)).expect("room");
        if number.is_multiple_of(3) {
            filter.remove(key(number / 2));
        }
    };
    check_replication(Cuckoo::new(CuckooShape::for_items(180)).expect("a shape"), change, |one, other| {
        assert_eq!(one.len(), other.len());
        assert_eq!(one.memory().words(), other.memory().words());
    });
}

#[test]
fn a_multi_level_filter_is_replicated() {
    let change = |filter: &mut MultiLevel<States>, number: u64| {
        filter.insert(key(number), (number % 200) as u16).expect("room");
        if number.is_multiple_of(3) {
            filter.remove(key(number / 2));
        }
        filter.modify(key(number - number % 7), 201);
    };
    let shape = MultiLevelShape::for_items(150, 8);
    check_replication(MultiLevel::<States>::new(shape).expect("a shape"), change, |one, other| {
        assert_eq!(one.len(), other.len());
        (0..200).for_each(|number| assert_eq!(one.lookup(key(number)), other.lookup(key(number))));
    });
    let count = |filter: &mut MultiLevel<Counters>, number: u64| {
        filter.insert(key(number / 2)).expect("room");
    };
    check_replication(MultiLevel::<Counters>::new(shape).expect("a shape"), count, |one, other| {
        (0..200).for_each(|number| assert_eq!(one.count(key(number)), other.count(key(number))));
    });
}

#[test]
fn an_update_with_an_invalid_word_changes_nothing() {
    let shape = MultiLevelShape { fingerprint_bits: 20, ..MultiLevelShape::for_items(100, 8) };
    let mut filter = MultiLevel::<States>::new(shape).expect("a shape");
    let whole = Shape::MultiLevel(shape, crate::shape::Content::States);
    assert_eq!(filter.shape(), whole);
    // The second cell is free, yet has a fingerprint; a bit between fingerprint and state is unused.
    for word in [5, 1 << 31 | 1 << 30] {
        let mut changes = std::vec![Change { index: 0, word: 1 << 31 | 5 }, Change { index: 1, word }];
        let mut bytes = Vec::new();
        Update::encode(&mut changes, &mut bytes);
        let update = Update::parse(&bytes, 1000).expect("whole runs");
        assert_eq!(filter.apply(&update), Err(ExchangeError::InvalidWord { index: 1 }));
        assert_eq!((filter.len(), filter.memory().words()[0]), (0, 0));
    }
    let beyond = Update { bytes: &[0xff, 0x7f, 1, 0, 0, 0, 0], words: 1 };
    assert!(matches!(filter.apply(&beyond), Err(ExchangeError::Beyond { .. })));
    assert!(matches!(Bloom::empty(whole), Err(ShapeError::OtherShape)));
    let few = MultiLevel::<States>::from_words(whole, &[0; 3]);
    assert_eq!(few.err(), Some(ExchangeError::Malformed("not as many words as its shape has")));
}

#[test]
fn a_lone_word_takes_four_bytes_and_its_gap() {
    let mut changes: Vec<_> = (0..2000_u32).map(|number| Change { index: number * 590, word: 1 << 31 }).collect();
    let mut bytes = Vec::new();
    Update::encode(&mut changes, &mut bytes);
    assert!(bytes.len() <= 2000 * 6, "{}", bytes.len());
}

proptest! {
    #[test]
    fn encoded_updates_decode_to_the_same_changes(
        updates in proptest::collection::vec((0_u32..500, any::<u32>()), 0..60)
    ) {
        let mut changes: Vec<_> = updates.iter().map(|&(index, word)| Change { index, word }).collect();
        let latest: std::collections::BTreeMap<u32, u32> = updates.into_iter().collect();
        let mut bytes = Vec::new();
        Update::encode(&mut changes, &mut bytes);
        let update = Update::parse(&bytes, 500).expect("what was encoded");
        let read: Vec<_> = update.changes().map(|change| (change.index, change.word)).collect();
        prop_assert_eq!(read, latest.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes: std::vec::Vec<u8>, words in 0_usize..300) {
        if let Ok(update) = Update::parse(&bytes, words) {
            prop_assert_eq!(update.changes().count(), update.len());
            prop_assert!(update.changes().all(|change| (change.index as usize) < words));
        }
    }
}
