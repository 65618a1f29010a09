//! Peers that do not do as they should, and filters that are too full or too large.

use core::time::Duration;
use std::vec::Vec;

use filters::ExchangeError;
use flow::conntrack::TcpState;
use flow::{Instant, NodeId};
use proptest::prelude::*;

use super::harness::{FAIR, PEER, Pair, config, tcp, tuple};
use crate::compact::{
    Addressee, CompactConfigError, CompactError, CompactReceiver, CompactSender, ReceiverLimits, Representation,
    addressee, is_compact,
};

const SECOND: Duration = Duration::from_secs(1);
const MULTI_LEVEL: Representation = Representation::ALL[2];

/// The first datagram of a kind that either of the two sends.
fn datagram_of_kind(pair: &mut Pair, kind: u8) -> Vec<u8> {
    let mut datagram = Vec::new();
    for _ in 0..1000 {
        pair.now = pair.now + Duration::from_millis(1);
        while pair.sender.poll_transmit(pair.now, PEER, &mut datagram) {
            if datagram[1] == kind {
                return datagram;
            }
            pair.receiver.handle_datagram(pair.now, &datagram).expect("the sender's own");
        }
        while pair.receiver.poll_transmit(pair.now, &mut datagram) {
            if datagram[1] == kind {
                return datagram;
            }
            pair.sender.handle_datagram(pair.now, PEER, &datagram).expect("the receiver's own");
        }
    }
    panic!("none of kind {kind}");
}

#[test]
fn a_filter_that_is_too_large_is_refused_and_the_sender_learns_of_it() {
    let mut pair = Pair::new(config(MULTI_LEVEL, 100_000), FAIR);
    pair.receiver = CompactReceiver::new(ReceiverLimits { words_max: 1000 }, 3);
    pair.run(5 * SECOND);
    assert_eq!((pair.receiver.memory_bytes(), pair.sender.status().peers_refusing), (0, 1));
    assert!(pair.receiver.status().bad_datagrams > 0 && !pair.sender.is_complete_at(PEER));
    assert!(pair.sender.status().bytes < 4000, "it asks ten times a second at most: {}", pair.sender.status().bytes);
    let mut shape = datagram_of_kind(&mut Pair::new(config(MULTI_LEVEL, 100_000), FAIR), 1);
    let error = pair.receiver.handle_datagram(pair.now, &shape).expect_err("too large");
    assert!(matches!(error, CompactError::TooLarge { words_max: 1000, .. }), "{error}");
    shape[6] = 77;
    assert_eq!(pair.receiver.handle_datagram(pair.now, &shape), Err(CompactError::Representation(77)));
}

#[test]
fn a_filter_that_is_full_reports_what_it_left_out() {
    for representation in Representation::ALL {
        let mut pair = Pair::new(config(representation, 100), FAIR);
        (0..2000).for_each(|number| pair.set(number, tcp(TcpState::Established)));
        let status = pair.sender.status();
        let is_bloom = representation == Representation::FlowDigest;
        assert_eq!((status.refused > 0, status.beyond > 0), (!is_bloom, is_bloom), "{representation:?}");
        (0..2000).for_each(|number| pair.end(number));
        pair.set(1, tcp(TcpState::Established));
        pair.until_equal(SECOND);
        assert!(pair.receiver.lookup(&tuple(1)).is_some(), "there is room again");
        if !is_bloom {
            assert_eq!((pair.sender.status().entries, pair.sender.status().absent), (1, 0));
        }
    }
}

#[test]
fn what_found_no_room_is_put_in_when_it_changes_and_there_is_room() {
    let mut pair = Pair::new(config(MULTI_LEVEL, 100), FAIR);
    (0..1000).for_each(|number| pair.set(number, tcp(TcpState::SynSent)));
    let absent = pair.sender.status().absent;
    assert!(absent > 700, "{absent}");
    (0..300).for_each(|number| pair.end(number));
    (300..1000).for_each(|number| pair.set(number, tcp(TcpState::Established)));
    let status = pair.sender.status();
    assert!(status.entries > 100 && status.entries + status.absent == 700, "{status:?}");
}

#[test]
fn a_pair_of_hosts_that_found_no_room_is_replicated_with_its_next_connection_and_until_its_last_ends() {
    /// The number of another connection between the same hosts.
    const ANOTHER: u32 = 1 << 24;
    let mut pair = Pair::new(config(Representation::HostAggregate, 1), FAIR);
    let established = tcp(TcpState::Established);
    pair.set(1, established);
    pair.set(2, established);
    assert_eq!((pair.sender.status().refused, pair.sender.status().absent), (1, 1));
    pair.end(1);
    pair.set(2 + ANOTHER, established);
    assert_eq!((pair.sender.status().entries, pair.sender.status().absent), (1, 0));
    // The one that there was no room for ends before the other.
    pair.end(2);
    pair.until_equal(SECOND);
    assert!(pair.receiver.lookup(&tuple(2 + ANOTHER)).is_some(), "it lives");
    pair.end(2 + ANOTHER);
    pair.until_equal(SECOND);
    assert!(pair.receiver.lookup(&tuple(2)).is_none() && pair.sender.status().entries == 0);
}

#[test]
fn what_cannot_be_used_is_not_acknowledged_and_may_come_as_it_should_be() {
    let mut pair = Pair::new(config(MULTI_LEVEL, 100), FAIR);
    pair.set(1, tcp(TcpState::Established));
    let changes = datagram_of_kind(&mut pair, 3);
    let damaged = &changes[..changes.len() - 1];
    pair.receiver.handle_datagram(pair.now, damaged).expect_err("it ends within a change");
    assert!(pair.receiver.lookup(&tuple(1)).is_none());
    assert_eq!(pair.receiver.handle_datagram(pair.now, &changes), Ok(()));
    assert!(pair.receiver.lookup(&tuple(1)).is_some() && pair.receiver.status().late == 0);
}

#[test]
fn numbers_that_were_never_sent_are_refused() {
    let mut pair = Pair::new(config(MULTI_LEVEL, 100), FAIR);
    pair.set(1, tcp(TcpState::SynSent));
    let mut ack = datagram_of_kind(&mut pair, 0x81);
    pair.sender.handle_datagram(pair.now, PEER, &ack).expect("the receiver's own");
    ack[6..10].copy_from_slice(&900_u32.to_be_bytes());
    let error = pair.sender.handle_datagram(pair.now, PEER, &ack).expect_err("900 were not sent");
    assert!(matches!(error, CompactError::Number { number: 900, .. }), "{error}");
    let mut changes = datagram_of_kind(&mut pair, 3);
    changes[6..10].copy_from_slice(&257_u32.to_be_bytes());
    let error = pair.receiver.handle_datagram(pair.now, &changes).expect_err("too far ahead");
    assert_eq!(error, CompactError::Number { number: 257, next: 256 });
    changes[6..10].copy_from_slice(&0_u32.to_be_bytes());
    changes[10..14].copy_from_slice(&[0xfe, 0xff, 0xff, 0x7f]);
    let error = pair.receiver.handle_datagram(pair.now, &changes).expect_err("far beyond the filter");
    assert!(matches!(error, CompactError::Exchange(ExchangeError::Beyond { .. })), "{error}");
    assert_eq!(pair.sender.handle_datagram(pair.now, NodeId(9), &ack), Err(CompactError::UnknownPeer(NodeId(9))));
    assert_eq!((pair.sender.status().bad_datagrams, pair.receiver.status().bad_datagrams), (2, 2));
}

#[test]
fn datagrams_name_their_receiver() {
    assert!(is_compact(&[0xc1]) && is_compact(&[0xc2, 0]) && !is_compact(&[0xf1, 0]) && !is_compact(&[]));
    assert_eq!(addressee(&[0xc1, 1]), Some(Addressee::Receiver));
    assert_eq!(addressee(&[0xc1, 0x81]), Some(Addressee::Sender));
    assert_eq!((addressee(&[0xc1]), addressee(&[0, 1])), (None, None));
    let mut receiver = CompactReceiver::new(ReceiverLimits::default(), 1);
    let handle = |receiver: &mut CompactReceiver, bytes: &[u8]| receiver.handle_datagram(Instant::ZERO, bytes);
    assert_eq!(handle(&mut receiver, &[0xc2, 1, 0, 0, 0, 0]), Err(CompactError::Version(2)));
    assert_eq!(handle(&mut receiver, &[0xc1, 0x81, 0, 0, 0, 0]), Err(CompactError::Kind(0x81)));
    assert_eq!(handle(&mut receiver, &[7]), Err(CompactError::NotOurs));
}

#[test]
fn there_are_not_more_peers_than_marks() {
    let peers: Vec<NodeId> = (0..9).map(NodeId).collect();
    let refused = CompactSender::new(config(MULTI_LEVEL, 100), &peers).err();
    assert_eq!(refused, Some(CompactConfigError::TooManyPeers(9)));
    assert!(CompactSender::new(config(MULTI_LEVEL, 100), &peers[..8]).is_ok());
}

proptest! {
    #[test]
    fn whatever_comes_is_used_or_refused(
        bodies in proptest::collection::vec((0_u8..10, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..40),
        representation in proptest::sample::select(&Representation::ALL[..]),
    ) {
        let mut pair = Pair::new(config(representation, 100), FAIR);
        (0..50).for_each(|number| pair.set(number, tcp(TcpState::Established)));
        pair.until_equal(SECOND);
        // The incoming_streams are known, as if a peer had gone mad.
        let stream_number = pair.receiver.current.as_ref().expect("it is equal").number;
        for (kind, is_answer, body) in bodies {
            let mut datagram = std::vec![0xc1, kind | u8::from(is_answer) << 7];
            datagram.extend_from_slice(&stream_number.to_be_bytes());
            datagram.extend_from_slice(&body);
            if is_answer {
                let _ = pair.sender.handle_datagram(pair.now, PEER, &datagram);
            } else {
                let _ = pair.receiver.handle_datagram(pair.now, &datagram);
            }
            pair.step();
        }
        prop_assert!(pair.receiver.memory_bytes() < 1 << 16);
    }
}
