//! Replicas that differ from what was sent: found, repaired, and never suspected without cause.

use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::harness::{Connection, FINE, Pair, SLOTS, Weather, small_config};
use crate::session::{AntiEntropyStatus, COMPARE_INTERVAL, SCAN_PERIOD, SessionConfig, SessionEvent};

/// What is wrong in a table is found within a scan, a comparison in progress, and some round trips.
const FOUND_WITHIN: Duration = Duration::from_secs(5);
/// And put right within this.
const REPAIRED_WITHIN: Duration = Duration::from_secs(10);

const _: () =
    assert!(SCAN_PERIOD.as_secs() < FOUND_WITHIN.as_secs() && COMPARE_INTERVAL.as_secs() < FOUND_WITHIN.as_secs());

fn anti_entropy(pair: &Pair, node: usize) -> AntiEntropyStatus {
    pair.nodes[node].session.status().anti_entropy
}

/// The second node has replicas of `connections` connections, and both have compared once.
fn agreed(seed: u64, connections: u32) -> Pair {
    let mut pair = Pair::with_config(seed, SessionConfig { connections_max: connections.max(SLOTS), ..small_config() });
    pair.run_until_synchronised();
    for slot in 0..connections {
        pair.open(0, slot, slot);
    }
    pair.run_until_equal();
    pair.run_until(FOUND_WITHIN, |pair| anti_entropy(pair, 1).agreed_at.is_some());
    pair
}

fn repairs(pair: &mut Pair, expected_repaired: u64, expected_extra: u64) {
    pair.run_until(FOUND_WITHIN, |pair| anti_entropy(pair, 1).divergent_found > 0);
    pair.run_until(REPAIRED_WITHIN, |pair| {
        let status = anti_entropy(pair, 1);
        pair.is_equal() && status.divergent == 0 && status.agreed_at == Some(pair.now)
    });
    let status = anti_entropy(pair, 1);
    assert_eq!((status.repaired, status.extra_removed), (expected_repaired, expected_extra));
    assert_eq!(status.divergent_found, expected_repaired + expected_extra);
    assert_eq!(status.rounds_asked, 0);
}

#[test]
fn nodes_agree_after_their_full_synchronisation() {
    let mut pair = agreed(1, 40);
    pair.run_for(Duration::from_secs(60));
    for node in 0..2 {
        let status = anti_entropy(&pair, node);
        assert!((14..=17).contains(&status.rounds_compared), "every four seconds: {status:?}");
        assert!(pair.now.saturating_since(status.agreed_at.unwrap()) <= COMPARE_INTERVAL + Duration::from_millis(100));
        assert_eq!((status.divergent, status.divergent_found, status.unnoted_changes), (0, 0, 0));
    }
}

#[test]
fn a_replica_that_vanished_is_retransmitted() {
    let mut pair = agreed(2, 40);
    pair.nodes[1].table.take_copy(7, false);
    repairs(&mut pair, 1, 0);
    assert_eq!(anti_entropy(&pair, 1).unnoted_changes, 1);
    let events = &pair.nodes[1].events;
    assert!(events.contains(&SessionEvent::Diverged { connections: 1 }), "{events:?}");
    assert_eq!(events.last(), Some(&SessionEvent::Agreed { repaired: 1 }));
}

#[test]
fn a_replica_with_a_wrong_bit_is_retransmitted() {
    let mut pair = agreed(3, 40);
    let copy = pair.nodes[1].table.copies[&7];
    pair.nodes[1].table.put_copy(Connection { version: copy.version | 1 << 30, ..copy }, false);
    pair.nodes[1].table.forget_order();
    repairs(&mut pair, 1, 0);
}

#[test]
fn a_copy_of_a_connection_that_its_master_does_not_have_is_removed() {
    let mut pair = agreed(4, 40);
    pair.nodes[1].table.put_copy(Connection { tuple: 5000, incarnation: 1, version: 1 }, false);
    repairs(&mut pair, 0, 1);
}

#[test]
fn a_divergence_that_the_table_owned_up_to_is_found_as_well() {
    let mut pair = agreed(5, 40);
    for tuple in 0..5 {
        pair.nodes[1].table.take_copy(tuple, true);
    }
    pair.nodes[1].table.put_copy(Connection { tuple: 5000, incarnation: 1, version: 1 }, true);
    repairs(&mut pair, 5, 1);
    assert_eq!(anti_entropy(&pair, 1).unnoted_changes, 0);
}

#[test]
fn it_is_found_and_put_right_while_connections_change_and_datagrams_are_lost() {
    let mut pair = agreed(6, 1000);
    pair.weather = Weather { loss_percent: 5, jitter: Duration::from_micros(300), ..FINE };
    for tuple in [990, 991, 992] {
        pair.nodes[1].table.take_copy(tuple, false);
    }
    let began = pair.now;
    let mut round = 0;
    while anti_entropy(&pair, 1).repaired < 3 {
        round += 1;
        // Some change, some end, some begin.
        pair.change(0, round * 7 % 900);
        pair.open(0, round * 11 % 900, 1000 + round);
        pair.run_for(Duration::from_micros(500));
        assert!(pair.now.saturating_since(began) < REPAIRED_WITHIN, "{:?}", anti_entropy(&pair, 1));
    }
    assert_eq!(anti_entropy(&pair, 1).divergent_found, 3, "nothing else is suspected");
}

#[test]
fn what_there_is_no_room_for_is_known_and_comes_when_there_is_room() {
    let mut pair = Pair::with_config(7, small_config());
    pair.nodes[1].table.copies_max = Some(20);
    pair.run_until_synchronised();
    for slot in 0..30 {
        pair.open(0, slot, slot);
    }
    pair.run_until(FOUND_WITHIN, |pair| anti_entropy(pair, 1).divergent == 10);
    pair.run_for(Duration::from_secs(20));
    let status = anti_entropy(&pair, 1);
    assert_eq!((status.divergent, status.divergent_found, status.repaired), (10, 10, 0));
    assert_eq!(status.agreed_at, None, "{status:?}");
    let rounds = pair.nodes[0].session.status().rounds;

    pair.nodes[1].table.copies_max = Some(25);
    pair.run_until(REPAIRED_WITHIN, |pair| anti_entropy(pair, 1).divergent == 5);
    pair.nodes[1].table.copies_max = None;
    pair.run_until(REPAIRED_WITHIN, |pair| anti_entropy(pair, 1).agreed_at.is_some());
    assert!(pair.is_equal());
    assert_eq!(anti_entropy(&pair, 1).repaired, 10);
    assert_eq!(pair.nodes[0].session.status().rounds, rounds, "without a new round");
}

#[test]
fn too_many_differences_cause_a_full_synchronisation() {
    let mut pair = agreed(8, 6000);
    let tuples: Vec<u32> = pair.nodes[1].table.copies.keys().copied().collect();
    for tuple in tuples {
        assert!(pair.nodes[1].table.take_copy(tuple, true).is_some());
    }
    pair.run_until(REPAIRED_WITHIN, |pair| pair.is_equal() && anti_entropy(pair, 1).divergent == 0);
    let status = anti_entropy(&pair, 1);
    assert!(status.rounds_asked == 1 || status.repaired == 6000, "{status:?}");
}

#[test]
fn a_peer_of_a_release_that_does_not_compare_is_not_disturbed() {
    let mut pair = Pair::new(9);
    pair.is_second_older = true;
    pair.run_until_synchronised();
    for slot in 0..40 {
        pair.open(0, slot, slot);
        pair.open(1, slot, 100 + slot);
    }
    pair.run_until_equal();
    pair.run_for(Duration::from_secs(30));
    assert!(pair.is_equal());
    assert_eq!(pair.nodes[0].errors + pair.nodes[1].errors, 0);
    let status = anti_entropy(&pair, 0);
    assert_eq!((status.agreed_at, status.rounds_compared, status.divergent_found), (None, 0, 0));
    let sent = pair.nodes[0].session.status().datagrams_sent;
    pair.run_for(Duration::from_secs(10));
    assert!(pair.nodes[0].session.status().datagrams_sent - sent < 160, "questions are few");
}

#[test]
fn comparing_goes_on_after_a_restart_of_either_node() {
    for restarted in 0..2 {
        let mut pair = agreed(10, 40);
        pair.restart(restarted);
        if restarted == 0 {
            (0..20).for_each(|slot| pair.open(0, slot, slot));
        }
        pair.run_until_synchronised();
        pair.run_until(FOUND_WITHIN, |pair| {
            (0..2).all(|node| {
                anti_entropy(pair, node).agreed_at.is_some_and(|at| pair.now == at || at + FOUND_WITHIN > pair.now)
            })
        });
        assert_eq!(anti_entropy(&pair, 1).divergent_found, 0);
        pair.nodes[1].table.take_copy(3, false);
        repairs(&mut pair, 1, 0);
    }
}

/// What befalls a replica.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Vanishes(u32),
    IsChanged(u32),
    Appears(u32),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        (0..SLOTS).prop_map(Harm::Vanishes),
        (0..SLOTS).prop_map(Harm::IsChanged),
        (1000..2000_u32).prop_map(Harm::Appears),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_befalls_copies_is_put_right(
        seed: u64,
        harms in proptest::collection::vec((harm(), any::<bool>(), 0..3000_u64), 1..20),
        loss_percent in 0..=20_u8,
    ) {
        let mut pair = agreed(seed, SLOTS);
        pair.weather = Weather { loss_percent, ..FINE };
        for (harm, is_said, wait_ms) in harms {
            let table = &mut pair.nodes[1].table;
            match harm {
                Harm::Vanishes(tuple) => {
                    let _ = table.take_copy(tuple, is_said);
                }
                Harm::IsChanged(tuple) => {
                    if let Some(copy) = table.copies.get(&tuple).copied() {
                        table.put_copy(Connection { version: copy.version + 100, ..copy }, is_said);
                    }
                }
                Harm::Appears(tuple) => table.put_copy(Connection { tuple, incarnation: 1, version: 1 }, is_said),
            }
            table.forget_order();
            pair.run_for(Duration::from_millis(wait_ms));
        }
        pair.run_until(3 * REPAIRED_WITHIN, Pair::is_equal);
        pair.weather = FINE;
        let now = pair.now;
        pair.run_until(REPAIRED_WITHIN, |pair| anti_entropy(pair, 1).agreed_at.is_some_and(|at| at > now));
        prop_assert!(pair.is_equal());
        prop_assert_eq!(anti_entropy(&pair, 1).divergent, 0);
    }
}
