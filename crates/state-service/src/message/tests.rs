//! What is encoded is parsed as the same; whatever else arrives is rejected.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::vec;

fn tuple() -> Tuple {
    Tuple::v4(6, (Ipv4Addr::new(10, 0, 0, 2), 4000), (Ipv4Addr::new(192, 0, 2, 1), 80))
}

fn messages() -> Vec<Message<'static>> {
    let key = Key { side: Side::Incoming, tuple: tuple() };
    let six = Tuple::v6(17, (Ipv6Addr::LOCALHOST, 53), (Ipv6Addr::LOCALHOST, 9));
    let known = Known { incarnation: 7, epoch: 8 };
    vec![
        Message::Predict { hash: 1 << 60, failures: 3 },
        Message::Confirm { hash: 2, failures: 0, rank: 60 },
        Message::Pull(key),
        Message::State { key: Key { side: Side::Outgoing, tuple: six }, state: b"state" },
        Message::NotHeld(key),
        Message::Query { number: 5, known: [known, Known::default()] },
        Message::Index(IndexPart {
            query: 0,
            side: Side::Outgoing,
            incarnation: 3,
            since: 4,
            epoch: 5,
            part: 1,
            parts: 2,
            shape: CuckooShape { buckets: 100 },
            update: &[6, 0, 1, 0, 2],
        }),
        Message::Loads([(NodeId(0), 5), (NodeId(63), u64::MAX)].into_iter().collect()),
    ]
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

#[test]
fn encoded_messages_are_parsed_as_the_same() {
    for message in messages() {
        assert_eq!(Message::parse(&encoded(&message)), Ok(message));
    }
}

#[test]
fn truncated_and_extended_messages_are_rejected() {
    for message in messages() {
        let bytes = encoded(&message);
        // The state, the words and the loads of any length end where the datagram ends.
        let is_open = matches!(message, Message::State { .. } | Message::Index(_) | Message::Loads(_));
        for length in 0..bytes.len() {
            let parsed = Message::parse(&bytes[..length]);
            assert!(parsed.is_err() || is_open, "{message:?} of {length} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Message::parse(&longer).is_err() || matches!(message, Message::State { .. }), "{message:?}");
    }
}

#[test]
fn contradictions_are_rejected_with_their_reason() {
    let part = IndexPart {
        query: 0,
        side: Side::Incoming,
        incarnation: 1,
        since: 0,
        epoch: 1,
        part: 0,
        parts: 1,
        shape: CuckooShape { buckets: 4 },
        update: &[],
    };
    let refused = [
        (Message::Index(IndexPart { since: 2, ..part }), "contradict"),
        (Message::Index(IndexPart { part: 1, ..part }), "contradict"),
        (Message::Index(IndexPart { shape: CuckooShape { buckets: u64::MAX }, ..part }), "size"),
        (Message::Index(IndexPart { update: &[16, 0, 0, 0, 1], ..part }), "larger"),
        (Message::Index(IndexPart { incarnation: 0, ..part }), "zero"),
        (Message::Pull(Key { side: Side::Incoming, tuple: Tuple { version: 5, ..tuple() } }), "family"),
        (Message::Pull(Key { side: Side::Incoming, tuple: Tuple { source: [1; 16], ..tuple() } }), "family"),
        (Message::Predict { hash: 0, failures: 9 }, "more failures"),
        (Message::Loads([(NodeId(64), 5)].into_iter().collect()), "loads"),
        (Message::Loads([(NodeId(1), 5), (NodeId(1), 6)].into_iter().collect()), "twice"),
    ];
    for (message, reason) in refused {
        let error = Message::parse(&encoded(&message)).map_err(|error| std::format!("{error}")).expect_err("refused");
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(Message::parse(&[0xb2, 1, 0, 0]), Err(MessageError::Version(0xb2)));
    assert_eq!(Message::parse(&[VERSION, 99, 0, 0]), Err(MessageError::Type(99)));
    assert!(Message::parse(&[]).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic_and_each_message_has_one_form(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0_u8..10, is_framed: bool,
    ) {
        if is_framed && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[VERSION, kind, 0, 0]);
        }
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(encoded(&message), bytes);
        }
    }
}
