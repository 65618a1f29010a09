//! Peer filters, as a peer sends them: a shape, and updates of it.

use filters::{Bloom, Change, Counters, CountingBloom, Cuckoo, Exchange, MultiLevel, Secret, Shape, States, Update};

/// Words of a filter that is built from the fuzzer's bytes: a node, too, refuses larger ones.
const WORDS_MAX: usize = 1 << 16;
/// Bytes of a shape.
const SHAPE_BYTES: usize = filters::shape::SHAPE_BYTES;

/// A shape, then updates: each with its length in a byte before it.
pub fn run(data: &[u8]) {
    let Some((received, updates)) = data.split_at_checked(SHAPE_BYTES) else {
        assert!(Shape::decode(data, 0).is_err(), "a shape has a length");
        return;
    };
    let Ok(shape) = Shape::decode(received, 0) else { return };
    assert_eq!(&shape.encode(0)[..], received, "there is one form of each shape");
    if shape.words().expect("a shape that was read can be built") > WORDS_MAX {
        return;
    }
    match shape {
        Shape::Bloom(_) => apply::<Bloom>(shape, updates, |filter, key| {
            let _ = filter.contains(key);
        }),
        Shape::CountingBloom(_) => apply::<CountingBloom>(shape, updates, |filter, key| {
            filter.remove(key);
        }),
        Shape::MultiLevel(_, filters::shape::Content::States) => {
            apply::<MultiLevel<States>>(shape, updates, |filter, key| {
                let _ = filter.insert(key, 1);
                assert_eq!(filter.lookup(key).is_some(), filter.search_cost(key).is_found);
                filter.remove(key);
                let items: usize = filter.items_by_level().iter().sum();
                assert_eq!(items, filter.len());
            });
        }
        Shape::Cuckoo(_) => apply::<Cuckoo>(shape, updates, |filter, key| {
            let before = filter.len();
            let is_inserted = filter.insert(key).is_ok();
            assert!(!is_inserted || filter.contains(key) && filter.len() == before + 1);
            assert!(!is_inserted || filter.remove(key) && filter.len() == before);
        }),
        Shape::MultiLevel(..) => apply::<MultiLevel<Counters>>(shape, updates, |filter, key| {
            let _ = filter.insert(key);
            filter.remove(key);
        }),
    }
}

/// Whatever was taken of the updates, the structure goes on working, and another can be made equal to it.
fn apply<F: Exchange>(shape: Shape, mut updates: &[u8], work: impl Fn(&mut F, filters::KeyHash)) {
    let mut structure = F::empty(shape).expect("a shape that was read can be built");
    let words = structure.memory().words().len();
    let mark = structure.memory_mut().mark().expect("the first");
    while let Some((length, rest)) = updates.split_first() {
        let (received, behind) = rest.split_at(usize::from(*length).min(rest.len()));
        updates = behind;
        let Ok(update) = Update::parse(received, words) else { continue };
        assert_eq!(update.changes().count(), update.len());
        let before = structure.memory().digest(0..words);
        if structure.apply(&update).is_err() {
            assert_eq!(structure.memory().digest(0..words), before, "all of it or nothing");
        }
    }
    let secret = Secret::new([0, 0]);
    (0..16).for_each(|number| work(&mut structure, secret.spread(number)));
    let mut copy = F::empty(shape).expect("the same shape");
    let mut changes: Vec<Change> = Vec::new();
    structure.memory_mut().take_changes(mark, usize::MAX, &mut changes);
    let mut bytes = Vec::new();
    Update::encode(&mut changes, &mut bytes);
    let update = Update::parse(&bytes, words).expect("what was written can be read");
    copy.apply(&update).expect("what one has another can have");
    assert_eq!(copy.memory().words(), structure.memory().words());
}
