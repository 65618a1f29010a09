//! Datagrams that no honest node sends.

use core::time::Duration;
use std::vec::Vec;

use flow::{Instant, NodeId};
use proptest::prelude::*;

use super::harness::{FINE, Pair};
use crate::message::{Ack, Header, flags};
use crate::session::{PeerError, Session};

fn header_of(pair: &Pair) -> Header {
    let status = pair.nodes[1].session.status();
    Header {
        flags: 0,
        sender: NodeId(1),
        round: 1,
        session: status.session,
        peer_session: pair.nodes[0].session.status().session,
        first: 0,
        unresolved: 0,
        count: 0,
    }
}

fn hand(pair: &mut Pair, datagram: &[u8]) -> Result<(), PeerError> {
    let now = pair.now;
    let node = &mut pair.nodes[0];
    node.session.handle_datagram(now, datagram, &mut node.table)
}

/// A pair whose replicas can be anything: the checks of the tables are for honest peers.
fn recovers(mut pair: Pair) {
    for node in &mut pair.nodes {
        node.table.forget_copies();
    }
    pair.weather = FINE;
    pair.restart(1);
    pair.run_until_synchronised();
    pair.open(0, 0, 1);
    pair.run_until(Duration::from_secs(5), |pair| pair.nodes[1].table.copies.contains_key(&1));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let mut pair = Pair::synchronised(1);
        for datagram in &datagrams {
            let _ = hand(&mut pair, datagram);
        }
        recovers(pair);
    }

    #[test]
    fn valid_datagrams_with_bytes_changed_do_no_harm(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..60),
    ) {
        let mut pair = Pair::synchronised(2);
        for slot in 0..40 {
            pair.open(1, slot, slot);
            pair.run_for(Duration::from_micros(100));
        }
        let sent: Vec<Vec<u8>> = pair.sent.iter().filter(|(to, _)| *to == 0).map(|(_, bytes)| bytes.clone()).collect();
        for (which, at, value) in changes {
            let mut datagram = which.get(&sent).clone();
            let at = at.index(datagram.len());
            datagram[at] = value;
            // Tuples that make no sense to the table's checks are not what is tried here.
            pair.nodes[0].table.forget_copies();
            let _ = hand(&mut pair, &datagram);
        }
        recovers(pair);
    }

    #[test]
    fn any_header_of_the_right_sessions_does_no_harm(
        headers in proptest::collection::vec((0..32u8, any::<u8>(), any::<u32>(), any::<u16>(), any::<u16>()), 1..30),
        next: u32,
        ranges in proptest::collection::vec(any::<(u32, u32)>(), 0..60),
    ) {
        let mut pair = Pair::synchronised(3);
        pair.open(0, 0, 1);
        for (flags, round, first, unresolved, count) in headers {
            let header = Header { flags, round, first, unresolved, count, ..header_of(&pair) };
            let mut datagram = header.emit().to_vec();
            let missing = ranges.iter().map(|(start, end)| crate::message::NumberRange { start: *start, end: *end }).collect();
            Ack { next, held: Duration::ZERO, missing }.emit(&mut datagram);
            let _ = hand(&mut pair, &datagram);
        }
        recovers(pair);
    }
}

#[test]
fn another_version_is_reported_once_for_each_change() {
    let mut pair = Pair::synchronised(4);
    let mut datagram = header_of(&pair).emit();
    let mut hand_version = |pair: &mut Pair, version: u8| {
        datagram[0] = 0xf0 | version;
        hand(pair, &datagram)
    };
    assert_eq!(hand_version(&mut pair, 9), Err(PeerError::Incompatible { theirs: 9, ours: 1 }));
    assert_eq!(hand_version(&mut pair, 9), Ok(()));
    assert_eq!(hand_version(&mut pair, 3), Err(PeerError::Incompatible { theirs: 3, ours: 1 }));
    assert_eq!(pair.nodes[0].session.status().bad_datagrams, 3);
}

#[test]
fn a_datagram_of_another_node_is_refused() {
    let mut pair = Pair::synchronised(5);
    let header = Header { sender: NodeId(7), ..header_of(&pair) };
    let expected = PeerError::WrongSender { sender: NodeId(7), expected: NodeId(1) };
    assert_eq!(hand(&mut pair, &header.emit()), Err(expected));
}

#[test]
fn numbers_far_away_make_the_peer_begin_anew() {
    let mut pair = Pair::synchronised(6);
    let status = pair.nodes[1].session.status();
    let true_header = Header::parse(&pair.sent.iter().rfind(|(to, _)| *to == 0).unwrap().1).unwrap().0;
    let forged = Header { first: true_header.first.wrapping_add(1 << 30), ..header_of(&pair) };
    assert_eq!(hand(&mut pair, &forged.emit()), Err(PeerError::OutOfSync));
    pair.run_until(Duration::from_millis(10), |pair| pair.nodes[1].session.status().session != status.session);
    pair.run_until_synchronised();
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_makes_this_node_begin_anew() {
    let mut pair = Pair::synchronised(7);
    let true_header = Header::parse(&pair.sent.iter().rfind(|(to, _)| *to == 0).unwrap().1).unwrap().0;
    let mut datagram = Header { flags: flags::PROBE, ..true_header }.emit().to_vec();
    let own_next = Header::parse(&pair.sent.iter().rfind(|(to, _)| *to == 1).unwrap().1).unwrap().0.first;
    let next = own_next.wrapping_add(100);
    Ack { next, held: Duration::ZERO, missing: arrayvec::ArrayVec::new() }.emit(&mut datagram);
    assert_eq!(hand(&mut pair, &datagram), Err(PeerError::AcknowledgesUnsent));
    pair.run_until_synchronised();
}

#[test]
fn datagrams_of_a_session_that_is_over_change_nothing() {
    let mut pair = Pair::synchronised(8);
    pair.open(1, 0, 5);
    pair.run_until_equal();
    let old: Vec<Vec<u8>> = pair.sent.iter().filter(|(to, _)| *to == 0).map(|(_, bytes)| bytes.clone()).collect();
    pair.restart(1);
    pair.run_until_synchronised();
    let before = pair.nodes[0].session.status();
    for datagram in old {
        assert_eq!(hand(&mut pair, &datagram), Ok(()));
    }
    let after = pair.nodes[0].session.status();
    assert_eq!((after.peer_session, after.link), (before.peer_session, before.link));
    assert!(after.stale_datagrams > before.stale_datagrams);
    assert!(pair.nodes[0].table.copies.is_empty());
}

#[test]
fn a_session_without_an_answer_sends_hello_ever_more_seldom() {
    let mut pair = Pair::new(9);
    let mut session = Session::new(pair.config, NodeId(0), NodeId(1), 1).unwrap();
    let mut buf = Vec::new();
    let mut hellos = 0;
    while let Some(at) = session.poll_timeout().filter(|at| *at < Instant::from_millis(60_000)) {
        session.handle_timeout(at);
        while session.poll_transmit(at, &mut pair.nodes[0].table, &mut buf) {
            hellos += 1;
        }
    }
    assert!((60..80).contains(&hellos), "{hellos}");
}

#[test]
fn a_late_hello_of_a_session_that_is_over_puts_the_true_one_off_but_not_for_good() {
    let mut pair = Pair::new(10);
    pair.lose = |_| true;
    pair.run_for(Duration::from_micros(1));
    pair.lose = |_| false;
    let late_hello = pair.sent.iter().find(|(to, _)| *to == 0).unwrap().1.clone();
    pair.restart(1);
    pair.restart(0);
    pair.run_until_synchronised();
    assert_eq!(hand(&mut pair, &late_hello), Ok(()));
    assert!(!pair.nodes[0].session.status().is_synchronised());
    pair.run_until(3 * pair.config.peer_timeout, |pair| {
        pair.nodes.iter().all(|node| node.session.status().is_synchronised())
    });
}
