//! What happens to a filter, scenario by scenario.

use core::time::Duration;
use std::vec::Vec;

use flow::conntrack::TcpState;
use flow::random::SplitMix64;
use flow::{Instant, NodeId};

use super::harness::{FAIR, FOUL, PEER, Pair, Weather, config, tcp, tuple};
use crate::compact::{CompactConfig, CompactReceiver, CompactSender, ReceiverLimits, Representation, UpdateRule};

const SECOND: Duration = Duration::from_secs(1);

/// Connections come, change and go.
fn churn(pair: &mut Pair, rounds: u32) {
    for round in 0..rounds {
        for number in round * 20..round * 20 + 20 {
            pair.set(number, tcp(TcpState::SynSent));
        }
        pair.run(Duration::from_millis(5));
        for number in round * 20..round * 20 + 20 {
            pair.set(number, tcp(TcpState::Established));
        }
        if round > 5 {
            ((round - 5) * 20..(round - 5) * 20 + 15).for_each(|number| pair.end(number));
        }
        pair.run(Duration::from_millis(5));
    }
}

#[test]
fn every_representation_comes_to_what_the_sender_has() {
    for representation in Representation::ALL {
        for weather in [FAIR, FOUL] {
            let mut pair = Pair::new(config(representation, 2000), weather);
            churn(&mut pair, 40);
            pair.until_equal(10 * SECOND);
            pair.assert_no_errors();
            for (tuple, state) in pair.connections.clone() {
                let known = pair.receiver.lookup(&tuple).expect("all are established, none may be missed");
                assert!(known.state.is_none_or(|known| known == state), "{representation:?}");
                assert_eq!(known.state.is_some(), representation.has_states() && known.state.is_some());
            }
            let status = pair.sender.status();
            assert_eq!((status.refused, status.beyond, status.peers_with_filter), (0, 0, 1), "{representation:?}");
            assert_eq!(pair.receiver.status().drifts, 0, "nothing that was only in flight is taken for a drift");
        }
    }
}

#[test]
fn whoever_keeps_to_the_timers_misses_nothing() {
    let at_once = UpdateRule::Immediate { batch: Duration::ZERO, establishment_at_once: true };
    let rules = [
        at_once,
        UpdateRule::Immediate { batch: Duration::from_millis(10), establishment_at_once: true },
        UpdateRule::Periodic(SECOND),
        UpdateRule::Threshold { changes_per_mille: 5, at_most_every: SECOND / 2 },
    ];
    for (update, budget_bytes_per_second) in rules.into_iter().zip([None, Some(20_000), None, Some(50_000)]) {
        let config = CompactConfig { update, budget_bytes_per_second, ..config(Representation::ALL[2], 2000) };
        let mut pair = Pair::new(config, FOUL);
        let (mut number, mut leaps) = (0, 0);
        let mut inserted_at = pair.now;
        while number < 2000 || !pair.is_equal() {
            if leaps % 3 == 0 && number < 2000 {
                (number..number + 10).for_each(|number| pair.set(number, tcp(TcpState::Established)));
                number += 10;
                inserted_at = pair.now;
            }
            pair.leap();
            leaps += 1;
            assert!(leaps < 20_000, "it wakes up for nothing: {update:?}");
        }
        let taken = pair.now.saturating_since(inserted_at);
        assert!(taken < 5 * SECOND, "equal {taken:?} after the last insertion: {update:?}");
        pair.assert_no_errors();
    }
}

#[test]
fn a_restarted_receiver_gets_the_whole_filter() {
    let mut pair = Pair::new(config(Representation::ALL[2], 2000), FOUL);
    churn(&mut pair, 10);
    pair.until_equal(10 * SECOND);
    pair.restart_receiver();
    assert_eq!(pair.receiver.lookup(&tuple(5)), None);
    // It learns of the filter from whatever the sender sends next: its digests at the latest.
    pair.until_equal(10 * SECOND);
    assert_eq!(pair.sender.status().beginnings, 2);
}

#[test]
fn what_was_received_of_a_filter_is_retained_though_it_never_became_whole() {
    let mut pair = Pair::new(config(Representation::ALL[2], 2000), FAIR);
    (0..50).for_each(|number| pair.set(number, tcp(TcpState::Established)));
    while pair.receiver.lookup(&tuple(5)).is_none() {
        pair.step();
    }
    assert!(!pair.receiver.is_complete());
    // The peer dies, this node takes over, and the peer comes back with nothing.
    pair.receiver.set_retaining(true);
    pair.in_flight.clear();
    pair.connections.clear();
    pair.restart_sender();
    pair.run(SECOND);
    assert!(pair.receiver.is_complete());
    assert!(pair.receiver.lookup(&tuple(5)).is_some());
    pair.receiver.set_retaining(false);
    assert_eq!(pair.receiver.lookup(&tuple(5)), None);
}

#[test]
fn the_former_filter_stays_until_the_new_one_is_whole() {
    let mut pair = Pair::new(config(Representation::ALL[2], 2000), FAIR);
    (0..500).for_each(|number| pair.set(number, tcp(TcpState::Established)));
    pair.until_equal(SECOND);
    pair.restart_sender();
    let mut steps = 0;
    while !pair.is_equal() {
        assert!((0..500).all(|number| pair.receiver.lookup(&tuple(number)).is_some()));
        pair.step();
        steps += 1;
    }
    assert!((3..100).contains(&steps), "{steps}");
    assert_eq!(pair.receiver.status().filters, 2);
    assert!(pair.receiver.memory_bytes() < 2 * pair.sender.config().filter_bytes().expect("sound"));
}

#[test]
fn a_peer_that_was_away_gets_what_changed_meanwhile() {
    let mut pair = Pair::new(config(Representation::ALL[2], 2000), FAIR);
    (0..500).for_each(|number| pair.set(number, tcp(TcpState::Established)));
    pair.until_equal(SECOND);
    pair.sender.peer_lost(PEER);
    let before = pair.sender.status();
    (490..510).for_each(|number| pair.set(number, tcp(TcpState::FinWait)));
    pair.run(10 * SECOND);
    assert_eq!(pair.sender.status().bytes, before.bytes, "nobody receives");
    assert_eq!(pair.sender.poll_timeout(), None);
    pair.sender.peer_back(pair.now, PEER);
    pair.until_equal(SECOND);
    let after = pair.sender.status();
    assert_eq!(after.beginnings, 1, "it still had its filter");
    assert!(after.words - before.words <= 20);
}

#[test]
fn a_peer_that_was_restarted_has_the_filter_at_once_though_nothing_changes_and_much_is_lost() {
    let mut pair = Pair::new(config(Representation::HostAggregate, 2000), Weather { lost: 300, ..FAIR });
    (0..50).for_each(|number| pair.set(number, tcp(TcpState::Established)));
    pair.until_equal(SECOND);
    pair.restart_receiver();
    pair.sender.peer_restarted(pair.now, PEER);
    pair.until_equal(SECOND);
    assert_eq!(pair.sender.status().beginnings, 2);
}

#[test]
fn each_peer_is_updated_at_its_own_pace() {
    let peers = [NodeId(1), NodeId(2), NodeId(3)];
    let mut sender = CompactSender::new(config(Representation::ALL[2], 2000), &peers).expect("sound");
    let mut receivers = [1, 2, 3].map(|seed| CompactReceiver::new(ReceiverLimits::default(), seed));
    let mut datagram = Vec::new();
    let mut random = SplitMix64::new(9);
    for millis in 1..4000_u64 {
        let now = Instant::from_millis(millis);
        if millis < 1000 {
            sender.insert(&tuple(millis as u32), tcp(TcpState::Established));
        }
        if millis == 500 {
            sender.peer_lost(NodeId(3));
        }
        if millis == 2000 {
            assert!(receivers[2].lookup(&tuple(900)).is_none() && receivers[2].lookup(&tuple(400)).is_some());
            sender.peer_back(now, NodeId(3));
        }
        for (peer, receiver) in peers.into_iter().zip(&mut receivers) {
            while sender.poll_transmit(now, peer, &mut datagram) {
                // The second one loses every third datagram, at first.
                if peer != NodeId(2) || millis > 2500 || !random.next().is_multiple_of(3) {
                    receiver.handle_datagram(now, &datagram).expect("the sender's own");
                }
            }
            while receiver.poll_transmit(now, &mut datagram) {
                sender.handle_datagram(now, peer, &datagram).expect("the receiver's own");
            }
        }
    }
    let words = sender.source.memory().words();
    for receiver in &receivers {
        assert!(receiver.current.as_ref().is_some_and(|current| current.held.memory().words() == words));
        assert_eq!((receiver.entries(), receiver.status().drifts), (999, 0));
    }
    assert!(sender.status().lost > 0 && sender.status().peers_with_filter == 3);
}
