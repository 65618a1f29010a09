//! What the protocol promises, case by case.

use core::time::Duration;
use std::vec;
use std::vec::Vec;

use super::harness::{FINE, Pair, SLOTS, Weather, small_config};
use crate::message::Kind;
use crate::session::{Handle, Link, SessionConfig, SessionEvent};

const MILLISECOND: Duration = Duration::from_millis(1);

fn lose_all(pair: &mut Pair) {
    pair.lose = |_| true;
}

fn lose_what_the_first_sends(pair: &mut Pair) {
    pair.lose = |(to, _)| *to == 1;
}

fn lose_what_the_second_sends(pair: &mut Pair) {
    pair.lose = |(to, _)| *to == 0;
}

fn lose_nothing(pair: &mut Pair) {
    pair.lose = |_| false;
}

#[test]
fn two_nodes_find_each_other_and_are_synchronised_within_milliseconds() {
    let mut pair = Pair::new(1);
    let took = pair.run_until_synchronised();
    assert!(took < 10 * MILLISECOND, "{took:?}");
    assert_eq!(
        pair.nodes[0].events,
        vec![
            SessionEvent::PeerUp,
            SessionEvent::ResyncStarted,
            SessionEvent::ResyncCompleted,
            SessionEvent::Synchronised
        ]
    );
}

#[test]
fn a_change_is_sent_at_once_and_first_as_new_then_as_update() {
    let mut pair = Pair::synchronised(2);
    pair.open(0, 3, 77);
    pair.run_until(MILLISECOND, |pair| pair.nodes[1].table.copies.contains_key(&77));
    pair.run_until_equal();
    pair.change(0, 3);
    pair.run_until_equal();
    let kinds: Vec<Kind> = pair.nodes[1].table.applied.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, vec![Kind::New, Kind::Update]);
}

#[test]
fn changes_that_wait_become_one_message() {
    let mut pair = Pair::synchronised(3);
    pair.open(0, 0, 1);
    for _ in 0..1000 {
        pair.change(0, 0);
    }
    pair.run_until_equal();
    assert_eq!(pair.nodes[1].table.applied.len(), 1);
    assert_eq!(pair.nodes[1].table.copies[&1].version, 1001);
}

#[test]
fn a_lost_tail_is_recovered_within_milliseconds() {
    let mut pair = Pair::synchronised(4);
    lose_what_the_first_sends(&mut pair);
    pair.open(0, 0, 1);
    pair.run_for(MILLISECOND);
    lose_nothing(&mut pair);
    let took = pair.run_until_equal();
    assert!(took < 12 * MILLISECOND, "{took:?}");
    assert_eq!(pair.nodes[0].session.status().resent, 1);
}

#[test]
fn a_lost_acknowledgement_costs_nothing() {
    let mut pair = Pair::synchronised(5);
    pair.open(0, 0, 1);
    lose_what_the_second_sends(&mut pair);
    pair.run_for(4 * MILLISECOND);
    assert_eq!(pair.nodes[0].session.status().in_flight, 1);
    lose_nothing(&mut pair);
    pair.open(0, 1, 2);
    pair.run_until_equal();
    assert_eq!(pair.nodes[0].session.status().resent, 0);
    assert_eq!(pair.nodes[1].table.applied.len(), 2);
}

#[test]
fn a_change_while_the_first_message_is_in_flight_resends_only_the_newest() {
    let mut pair = Pair::synchronised(6);
    lose_what_the_first_sends(&mut pair);
    pair.open(0, 0, 1);
    pair.run_for(MILLISECOND / 2);
    lose_nothing(&mut pair);
    pair.change(0, 0);
    pair.run_until_equal();
    let status = pair.nodes[0].session.status();
    assert_eq!((status.lost, status.resent), (1, 0), "the message after the lost one carries all");
    assert_eq!(pair.nodes[1].table.applied.len(), 1);
}

#[test]
fn a_resent_message_carries_the_current_state() {
    let mut pair = Pair::synchronised(7);
    lose_what_the_first_sends(&mut pair);
    pair.open(0, 0, 1);
    pair.run_for(MILLISECOND);
    // The connection goes on without a change worth replicating.
    pair.nodes[0].table.slots[0].as_mut().unwrap().version = 40;
    lose_nothing(&mut pair);
    pair.run_until_equal();
    assert_eq!(pair.nodes[1].table.copies[&1].version, 40);
}

#[test]
fn a_lost_end_of_a_connection_does_not_end_the_next_one_with_its_tuple() {
    for slot_of_the_next in [0, 9] {
        let mut pair = Pair::synchronised(8);
        pair.open(0, 0, 1);
        pair.run_until_equal();
        lose_what_the_first_sends(&mut pair);
        pair.close(0, 0);
        pair.run_for(MILLISECOND / 2);
        lose_nothing(&mut pair);
        pair.open(0, slot_of_the_next, 1);
        pair.run_until_equal();
        pair.run_for(50 * MILLISECOND);
        assert!(pair.is_equal() && pair.nodes[1].table.copies.len() == 1);
        assert_eq!(pair.nodes[0].session.status().lost, 1);
    }
}

#[test]
fn an_end_and_a_beginning_that_are_both_lost_are_both_made_good() {
    let mut pair = Pair::synchronised(9);
    pair.open(0, 0, 1);
    pair.run_until_equal();
    lose_what_the_first_sends(&mut pair);
    pair.close(0, 0);
    pair.run_for(MILLISECOND / 2);
    pair.open(0, 0, 2);
    pair.run_for(MILLISECOND / 2);
    lose_nothing(&mut pair);
    pair.run_until_equal();
    assert_eq!(pair.nodes[1].table.copies.keys().copied().collect::<Vec<_>>(), vec![2]);
}

#[test]
fn the_end_of_a_connection_that_was_never_sent_is_not_sent() {
    let mut pair = Pair::synchronised(10);
    let sent = pair.nodes[0].session.status().messages_sent;
    pair.nodes[0].session.mark_deleted(crate::Handle(5), &[0, 0, 0, 1, 0, 0, 0, 1]);
    pair.run_for(10 * MILLISECOND);
    assert_eq!(pair.nodes[0].session.status().messages_sent, sent);
}

#[test]
fn a_late_joiner_is_fully_synchronised_while_traffic_flows() {
    let config = SessionConfig { connections_max: 5000, ..SessionConfig::default() };
    let mut pair = Pair::with_config(11, config);
    pair.nodes[1].down = true;
    for slot in 0..5000 {
        pair.open(0, slot, slot);
    }
    pair.run_for(100 * MILLISECOND);
    pair.nodes[1].down = false;
    for slot in 0..3000 {
        pair.change(0, slot * 7 % 5000);
        pair.run_for(MILLISECOND / 100);
    }
    pair.run_until_synchronised();
    pair.run_until_equal();
    let applied = pair.nodes[1].table.applied.len();
    assert!(applied <= 5000 + 3000, "each connection once, and once for each change: {applied}");
    assert_eq!(pair.nodes[0].session.status().left_out, 0);
}

#[test]
fn what_ended_while_the_peer_was_away_is_swept_when_it_is_back() {
    let mut pair = Pair::synchronised(12);
    for slot in 0..10 {
        pair.open(0, slot, slot);
    }
    pair.run_until_equal();
    pair.weather = Weather { partition: true, ..FINE };
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.nodes[0].session.status().link, Link::Seeking);
    assert_eq!(pair.nodes[0].events.last(), Some(&SessionEvent::PeerSilent));
    for slot in 0..5 {
        pair.close(0, slot);
    }
    pair.change(0, 7);
    assert_eq!(pair.nodes[0].session.status().queued, 0, "nothing is kept for a peer that is away");
    pair.weather = FINE;
    pair.run_until_synchronised();
    assert!(pair.is_equal());
    assert_eq!(pair.nodes[1].table.swept, 5);
}

#[test]
fn a_restarted_node_is_noticed_at_once_and_fully_synchronised() {
    for restarted in 0..2 {
        let mut pair = Pair::synchronised(13);
        for slot in 0..SLOTS {
            pair.open(0, slot, slot);
        }
        pair.run_until_equal();
        pair.restart(restarted);
        let took = pair.run_until_synchronised();
        assert!(took < 20 * MILLISECOND, "{took:?}");
        assert!(pair.is_equal());
        assert!(pair.nodes[1 - restarted].events.contains(&SessionEvent::PeerRestarted));
    }
}

#[test]
fn a_queue_that_overflows_is_made_good_by_a_resynchronisation() {
    let config = SessionConfig { changes_queued_max: 4, deletions_max: 2, ..small_config() };
    let mut pair = Pair::with_config(14, config);
    pair.run_until_synchronised();
    for slot in 0..SLOTS {
        pair.open(0, slot, slot);
    }
    pair.run_until_equal();
    for slot in 0..20 {
        pair.close(0, slot);
    }
    pair.run_until_equal();
    assert!(pair.nodes[0].session.status().left_out > 60);
    assert_eq!(pair.nodes[1].table.copies.len() as u32, SLOTS - 20);
}

#[test]
fn a_full_window_holds_changes_back_and_sends_the_newest_when_it_opens() {
    let config = SessionConfig {
        in_flight_messages_max: 8,
        resync_in_flight_messages_max: 8,
        ack_every_messages: 4,
        ..small_config()
    };
    let mut pair = Pair::with_config(15, config);
    pair.run_until_synchronised();
    lose_what_the_second_sends(&mut pair);
    for slot in 0..20 {
        pair.open(0, slot, slot);
    }
    pair.run_for(5 * MILLISECOND);
    assert_eq!(pair.nodes[0].session.status().in_flight, 8);
    for _ in 0..100 {
        pair.change(0, 19);
        pair.run_for(MILLISECOND / 10);
    }
    lose_nothing(&mut pair);
    pair.run_until_equal();
    assert_eq!(pair.nodes[1].table.applied.len(), 20);
}

#[test]
fn a_node_that_leaves_sends_goodbye() {
    let mut pair = Pair::synchronised(16);
    pair.nodes[1].session.close();
    pair.run_until(5 * MILLISECOND, |pair| pair.nodes[0].events.contains(&SessionEvent::PeerLeft));
    assert_eq!(pair.nodes[1].session.poll_timeout(), None);
    pair.restart(1);
    let took = pair.run_until_synchronised();
    assert!(took < 20 * MILLISECOND, "{took:?}");
}

#[test]
fn a_node_can_ask_for_a_full_synchronisation() {
    let mut pair = Pair::synchronised(17);
    for slot in 0..10 {
        pair.open(0, slot, slot);
    }
    pair.run_until_equal();
    pair.nodes[1].table.copies.clear();
    lose_all(&mut pair);
    pair.nodes[1].session.request_resync();
    pair.run_for(20 * MILLISECOND);
    lose_nothing(&mut pair);
    pair.run_until_equal();
    let rounds = pair.nodes[0].session.status().rounds;
    pair.run_for(Duration::from_secs(2));
    assert!(pair.nodes[0].session.status().rounds <= rounds.max(3), "it asks no longer than needed");
}

#[test]
fn a_quiet_pair_sends_an_alive_each_interval_and_compares_now_and_then() {
    let mut pair = Pair::synchronised(18);
    pair.run_for(Duration::from_secs(1));
    let before = pair.nodes[0].session.status().datagrams_sent;
    pair.run_for(Duration::from_secs(10));
    let sent = pair.nodes[0].session.status().datagrams_sent - before;
    assert!((95..=115).contains(&sent), "{sent}");
}

#[test]
fn a_batch_delay_lets_changes_share_a_datagram() {
    let config = SessionConfig { batch_delay: MILLISECOND, ..small_config() };
    let mut pair = Pair::with_config(19, config);
    pair.run_until_synchronised();
    let before = pair.nodes[0].session.status().datagrams_sent;
    for slot in 0..8 {
        pair.open(0, slot, slot);
        pair.run_for(MILLISECOND / 16);
    }
    assert_eq!(pair.nodes[0].session.status().datagrams_sent, before);
    pair.run_until_equal();
    assert_eq!(pair.nodes[0].session.status().datagrams_sent, before + 1);
}

#[test]
fn the_first_who_waits_is_asked_for_at_once_and_those_soon_after_share_a_datagram() {
    let config = SessionConfig { batch_delay: MILLISECOND, ..small_config() };
    let mut pair = Pair::with_config(20, config);
    pair.run_until_synchronised();
    let sent = |pair: &Pair| pair.nodes[0].session.status().datagrams_sent;
    let is_confirmed = |pair: &Pair, slot| pair.nodes[0].session.is_acknowledged(Handle(slot));
    let open = |pair: &mut Pair, slot| {
        pair.open(0, slot, slot);
        pair.nodes[0].session.ask_for_acknowledgement();
    };
    let before = sent(&pair);
    open(&mut pair, 0);
    let took = pair.run_until(MILLISECOND, |pair| is_confirmed(pair, 0));
    assert!(took <= 3 * FINE.delay, "{took:?}");
    assert_eq!(sent(&pair), before + 1);
    for slot in 1..8 {
        open(&mut pair, slot);
        pair.run_for(MILLISECOND / 16);
    }
    assert_eq!(sent(&pair), before + 1, "they wait for each other");
    let took = pair.run_until(2 * MILLISECOND, |pair| (1..8).all(|slot| is_confirmed(pair, slot)));
    assert!(took <= MILLISECOND, "{took:?}");
    assert_eq!(sent(&pair), before + 2);
}

#[test]
fn the_lag_is_the_age_of_the_oldest_unacknowledged_change() {
    let mut pair = Pair::synchronised(20);
    lose_what_the_second_sends(&mut pair);
    pair.open(0, 0, 1);
    pair.run_for(30 * MILLISECOND);
    let status = pair.nodes[0].session.status();
    assert_eq!(status.lag(pair.now), 30 * MILLISECOND);
    assert!(status.probes >= 2, "{}", status.probes);
    lose_nothing(&mut pair);
    pair.run_until_equal();
    assert_eq!(pair.nodes[0].session.status().lag(pair.now), Duration::ZERO);
}

#[test]
fn the_round_trip_is_measured_without_the_delay_of_acknowledgements() {
    let mut pair = Pair::synchronised(21);
    for slot in 0..50 {
        pair.open(0, slot, slot);
        pair.run_for(3 * MILLISECOND);
    }
    let round_trip = pair.nodes[0].session.status().round_trip.unwrap();
    assert!(round_trip.abs_diff(2 * FINE.delay) < MILLISECOND / 50, "{round_trip:?}");
}

#[test]
fn connections_too_long_for_any_datagram_are_counted_and_left() {
    let mut pair = Pair::synchronised(22);
    pair.nodes[0].table.padding_bytes = 2000;
    pair.open(0, 0, 1);
    pair.run_for(10 * MILLISECOND);
    let status = pair.nodes[0].session.status();
    assert_eq!((status.too_long, status.queued), (1, 0));
}

#[test]
fn a_late_answer_of_a_former_session_leaves_nobody_unsynchronised() {
    let mut pair = Pair::new(31);
    lose_what_the_second_sends(&mut pair);
    pair.run_for(MILLISECOND);
    let (_, late) = pair.sent.iter().rfind(|(to, _)| *to == 0).cloned().expect("the second node has answered");
    pair.restart(1);
    lose_nothing(&mut pair);
    pair.open(1, 0, 1);
    pair.run_until_synchronised();
    // The answer names the first node's session and one of the second's that the first does not know.
    let (now, first) = (pair.now, &mut pair.nodes[0]);
    first.session.handle_datagram(now, &late, &mut first.table).expect("it is a datagram of the peer");
    assert_eq!(first.session.status().link, Link::Seeking);
    pair.run_until_synchronised();
    pair.change(1, 0);
    pair.run_until_equal();
}
