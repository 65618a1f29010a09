//! A peer's index follows its original through losses, restarts and reordering.

use super::*;
use crate::message::{IndexPart, Known, Message, Side};
use filters::{CuckooShape, ExchangeError};
use flow::Tuple;
use proptest::prelude::*;
use std::vec::Vec;

fn secret() -> IndexSecret {
    IndexSecret::new([5, 6])
}

fn key(number: u32) -> Key {
    let tuple = Tuple::v4(6, (number.into(), 4000), (0x0a00_0001.into(), 80));
    Key { side: Side::Incoming, tuple }
}

fn insert(index: &mut OwnIndex, numbers: core::ops::Range<u32>) {
    numbers.for_each(|number| index.insert(Side::Incoming, secret().hash(&key(number))).expect("room"));
}

fn has(peer: &PeerIndex, number: u32) -> bool {
    peer.contains(Side::Incoming, secret().hash(&key(number)))
}

/// The messages of increments.
fn messages(index: &OwnIndex, increments: impl IntoIterator<Item = Increment>) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    for mut increment in increments {
        let mut bytes = Vec::new();
        while index.encode_next(&mut increment, &mut bytes) {
            messages.push(core::mem::take(&mut bytes));
        }
    }
    messages
}

fn apply(peer: &mut PeerIndex, message: &[u8]) -> Applied {
    assert!(message.len() <= crate::message::MESSAGE_BYTES_MAX, "{}", message.len());
    match Message::parse(message) {
        Ok(Message::Index(part)) => peer.apply(&part).expect("valid"),
        other => panic!("{other:?}"),
    }
}

fn answered(index: &mut OwnIndex, peer: &mut PeerIndex) -> Vec<Applied> {
    let answer = index.answer(1, peer.known(), &mut Vec::new());
    messages(index, answer).iter().map(|message| apply(peer, message)).collect()
}

#[test]
fn advertised_increments_keep_a_peer_up_to_date() {
    let (mut own, mut peer) = (OwnIndex::new(1000, 7).expect("a size"), PeerIndex::default());
    for round in 0..10 {
        insert(&mut own, round * 50..(round + 1) * 50);
        own.remove(Side::Incoming, secret().hash(&key(round * 50)));
        let increments = own.advertise();
        for message in messages(&own, increments) {
            apply(&mut peer, &message);
        }
        assert_eq!(peer.known(), [own.known(); 2]);
    }
    assert!((0..500).all(|number| has(&peer, number) != number.is_multiple_of(50)));
    assert!(own.advertise().is_empty(), "nothing has changed");
}

#[test]
fn a_part_that_comes_late_does_not_undo_what_came_after_it() {
    let (mut own, mut peer) = (OwnIndex::new(1000, 7).expect("a size"), PeerIndex::default());
    insert(&mut own, 0..10);
    answered(&mut own, &mut peer);
    insert(&mut own, 10..20);
    let increments = own.advertise();
    let early = messages(&own, increments);
    (10..20).for_each(|number| own.remove(Side::Incoming, secret().hash(&key(number))));
    let increments = own.advertise();
    for message in early.iter().chain(&messages(&own, increments)) {
        apply(&mut peer, message);
    }
    let known = peer.known();
    assert!((10..20).all(|number| !has(&peer, number)));
    // Copies of the first increment arrive once more, as a network may deliver them.
    assert!(early.iter().all(|message| apply(&mut peer, message) == Applied::Part));
    assert_eq!(peer.known(), known, "the epoch does not go back");
    assert!((10..20).all(|number| !has(&peer, number)), "what was removed stays removed");
}

#[test]
fn an_index_of_more_connections_than_a_node_may_have_is_refused() {
    let mut peer = PeerIndex::default();
    let part = |buckets| IndexPart {
        query: 0,
        side: Side::Incoming,
        incarnation: 7,
        since: 0,
        epoch: 1,
        part: 0,
        parts: 1,
        shape: CuckooShape { buckets },
        update: &[],
    };
    let buckets_max = CuckooShape::for_items(ITEMS_MAX).buckets;
    let too_large = ExchangeError::Malformed("an index of more connections than a node may have");
    assert_eq!(peer.apply(&part(buckets_max + 1)), Err(too_large));
    assert_eq!(peer.apply(&part(u64::MAX)), Err(too_large));
    assert_eq!(peer.known(), [Known::default(); 2]);
    assert_eq!(peer.apply(&part(buckets_max)), Ok(Applied::Complete), "the largest that a node may have");
}

#[test]
fn a_lost_increment_is_a_gap_until_a_query_is_answered() {
    let (mut own, mut peer) = (OwnIndex::new(1000, 7).expect("a size"), PeerIndex::default());
    insert(&mut own, 0..10);
    answered(&mut own, &mut peer);
    insert(&mut own, 10..20);
    drop(own.advertise());
    insert(&mut own, 20..30);
    let increments = own.advertise();
    assert!(messages(&own, increments).iter().all(|message| apply(&mut peer, message) == Applied::Gap));
    assert!(has(&peer, 5) && !has(&peer, 15) && !has(&peer, 25));
    assert_eq!(answered(&mut own, &mut peer), [Applied::Complete; 2]);
    assert!((0..30).all(|number| has(&peer, number)));
}

#[test]
fn a_query_is_answered_with_what_was_not_yet_advertised() {
    let (mut own, mut peer) = (OwnIndex::new(1000, 7).expect("a size"), PeerIndex::default());
    insert(&mut own, 0..10);
    let mut advertised = Vec::new();
    let answer = own.answer(3, peer.known(), &mut advertised);
    assert_eq!(advertised.len(), 2, "the other peers miss nothing");
    for message in messages(&own, answer) {
        apply(&mut peer, &message);
    }
    assert!((0..10).all(|number| has(&peer, number)));
}

#[test]
fn the_index_of_a_restarted_node_replaces_the_former() {
    let (mut own, mut peer) = (OwnIndex::new(1000, 7).expect("a size"), PeerIndex::default());
    insert(&mut own, 0..10);
    answered(&mut own, &mut peer);
    let mut own = OwnIndex::new(1000, 8).expect("a size");
    insert(&mut own, 10..20);
    drop(own.advertise());
    insert(&mut own, 20..30);
    let increments = own.advertise();
    assert!(messages(&own, increments).iter().all(|message| apply(&mut peer, message) == Applied::Gap));
    answered(&mut own, &mut peer);
    assert!((0..30).all(|number| has(&peer, number) == (number >= 10)));
    assert_eq!(peer.known(), [Known { incarnation: 8, epoch: own.known().epoch }; 2]);
}

#[test]
fn a_whole_index_of_many_parts_arrives_in_any_order() {
    let (mut own, mut peer) = (OwnIndex::new(10_000, 7).expect("a size"), PeerIndex::default());
    insert(&mut own, 0..8000);
    let answer = own.answer(1, peer.known(), &mut Vec::new());
    let mut parts = messages(&own, answer);
    assert!(parts.len() > 20);
    let kept = parts.remove(3);
    for message in parts.iter().rev() {
        apply(&mut peer, message);
        apply(&mut peer, message);
    }
    assert_eq!(peer.known()[0], Known::default(), "a part is missing");
    assert!(!has(&peer, 1), "an incomplete index is not used");
    assert_eq!(apply(&mut peer, &kept), Applied::Complete);
    assert!((0..8000).all(|number| has(&peer, number)));
}

#[test]
fn an_index_that_is_too_large_is_refused() {
    assert!(OwnIndex::new(ITEMS_MAX + 1, 1).is_err());
}

proptest! {
    #[test]
    fn after_any_losses_one_answer_makes_both_equal(
        steps in proptest::collection::vec((0_u32..300, any::<bool>(), any::<bool>()), 1..120),
    ) {
        let (mut own, mut peer) = (OwnIndex::new(400, 7).expect("a size"), PeerIndex::default());
        let mut model = std::collections::BTreeSet::new();
        for (number, is_advertised, is_lost) in steps {
            if model.insert(number) {
                insert(&mut own, number..number + 1);
            } else {
                model.remove(&number);
                own.remove(Side::Incoming, secret().hash(&key(number)));
            }
            if is_advertised {
                let increments = own.advertise();
                for message in messages(&own, increments).iter().filter(|_| !is_lost) {
                    apply(&mut peer, message);
                }
            }
        }
        answered(&mut own, &mut peer);
        for number in 0..300 {
            let hash = secret().hash(&key(number));
            prop_assert_eq!(has(&peer, number), own.contains(Side::Incoming, hash));
            prop_assert!(!model.contains(&number) || has(&peer, number));
        }
    }
}

#[test]
fn a_tuple_and_its_inverse_are_on_different_sides_and_both_sides_have_as_many() {
    let mut incoming = 0;
    for number in 0..2000_u32 {
        let tuple = Tuple::v4(6, ((0x0a00_0000 + number).into(), 4000), (0xc633_640a.into(), 80));
        let key = secret().key(tuple);
        assert_ne!(key.side, secret().key(tuple.inverse()).side);
        incoming += usize::from(key.side == Side::Incoming);
    }
    assert!((900..=1100).contains(&incoming), "{incoming}");
}
