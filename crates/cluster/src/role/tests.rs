//! A cluster in memory: automata, the links between them, and a failure detector that takes 100 ms.

mod harness;

use core::time::Duration;
use std::vec::Vec;

use flow::{Instant, NodeId};
use proptest::prelude::*;

use super::*;
use harness::*;

#[test]
fn of_two_nodes_that_start_together_the_lower_identifier_becomes_active() {
    let mut cluster = Cluster::of(2, |_| {});
    let took_ms = cluster.run_until(1000, |cluster| !cluster.active_nodes().is_empty());
    assert_eq!(cluster.active_nodes(), [0]);
    assert!(took_ms < 50, "heartbeats of both were received, nobody need be waited for: {took_ms} ms");
    assert_eq!(cluster.state(1), Some(State::Standby));
}

#[test]
fn of_two_nodes_that_start_together_the_higher_priority_becomes_active() {
    let mut cluster = Cluster::of(2, |config| config.priority = 100 + config.node.0);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [1]);
}

#[test]
fn a_node_alone_listens_for_the_startup_hold_before_it_becomes_active() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.kill(1);
    cluster.run_ms(299);
    assert_eq!(cluster.state(0), Some(State::Init));
    cluster.run_ms(10);
    assert_eq!(cluster.state(0), Some(State::Active));
    let events = [Event::BecomeActive { term: 1 }, Event::AnnounceAddresses { term: 1 }];
    assert_eq!(cluster.nodes[0].events, events, "the state first, then the addresses");
}

#[test]
fn a_node_without_peers_becomes_active_too() {
    let mut cluster = Cluster::of(1, |_| {});
    cluster.run_ms(310);
    assert_eq!(cluster.active_nodes(), [0]);
}

#[test]
fn when_the_active_dies_the_standby_takes_over_as_soon_as_it_is_detected() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    cluster.kill(0);
    let took_ms = cluster.run_until(1000, |cluster| cluster.active_nodes() == [1]);
    assert!(took_ms <= 105, "{took_ms} ms");
    assert_eq!(cluster.automaton(1).term(), 2);
}

#[test]
fn a_node_that_comes_back_stands_by_even_if_it_ranks_higher() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    cluster.kill(0);
    cluster.run_ms(1000);
    cluster.start(0);
    cluster.run_ms(3000);
    assert_eq!(cluster.active_nodes(), [1]);
    assert_eq!(cluster.state(0), Some(State::Standby));
}

#[test]
fn with_preemption_a_higher_priority_takes_the_addresses_back_once_it_is_synchronised() {
    let mut cluster = Cluster::of(2, |config| {
        config.priority = 200 - config.node.0;
        config.preempt = true;
    });
    cluster.run_ms(1000);
    cluster.kill(0);
    cluster.run_ms(1000);
    cluster.start(0);
    let now = cluster.now();
    cluster.automaton(0).set_synchronised(now, false);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [1], "it knows no connection yet");
    let now = cluster.now();
    cluster.automaton(0).set_synchronised(now, true);
    cluster.run_ms(100);
    assert_eq!(cluster.active_nodes(), [0]);
}

#[test]
fn with_preemption_a_higher_priority_waits_for_the_tunnels_caches_unless_the_active_node_dies() {
    for does_holder_die in [false, true] {
        let mut cluster = Cluster::of(2, |config| {
            config.priority = 200 - config.node.0;
            config.preempt = true;
        });
        cluster.run_ms(1000);
        cluster.kill(0);
        cluster.run_ms(1000);
        cluster.start(0);
        let now = cluster.now();
        cluster.automaton(0).set_filling(now, true);
        cluster.run_ms(1000);
        assert_eq!(cluster.active_nodes(), [1], "the caches are still being copied");
        if does_holder_die {
            cluster.kill(1);
        } else {
            let now = cluster.now();
            cluster.automaton(0).set_filling(now, false);
        }
        cluster.run_ms(200);
        assert_eq!(cluster.active_nodes(), [0]);
    }
}

#[test]
fn after_a_split_the_later_take_over_keeps_the_addresses_and_announces_them_once_more() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    cluster.set_partitioned(true);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [0, 1], "neither can know that the other lives");
    cluster.nodes[1].events.clear();
    cluster.set_partitioned(false);
    cluster.run_ms(100);
    assert_eq!(cluster.active_nodes(), [1]);
    assert!(matches!(cluster.nodes[1].events[..], [Event::AnnounceAddresses { .. }]), "{:?}", cluster.nodes[1].events);
    assert_eq!(cluster.nodes[0].events.last(), Some(&Event::BecomeStandby));
}

#[test]
fn a_node_that_has_just_begun_to_stand_by_knows_the_number_to_take_over_with() {
    let mut cluster = Cluster::of(2, |_| {});
    // It has just started, as the other has, and neither has received the other's connections.
    cluster.automaton(0).set_informed(Instant::ZERO, false);
    cluster.automaton(1).set_informed(Instant::ZERO, false);
    cluster.automaton(1).set_synchronised(Instant::ZERO, false);
    cluster.run_until(1000, |cluster| cluster.active_nodes() == [0] && cluster.state(1) == Some(State::Standby));
    let now = cluster.now();
    cluster.automaton(1).set_informed(now, true);
    cluster.automaton(1).set_synchronised(now, true);
    cluster.run_ms(5);
    cluster.set_partitioned(true);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [0, 1]);
    cluster.set_partitioned(false);
    cluster.run_ms(100);
    assert_eq!(cluster.active_nodes(), [1], "it took over later, though both began moments before");
}

#[test]
fn a_node_that_starts_behind_a_failed_link_takes_nothing_from_one_that_serves() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.kill(0);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [1], "it was alone from the start");
    cluster.start(0);
    cluster.run_ms(1000);
    cluster.kill(0);
    cluster.set_partitioned(true);
    cluster.start(0);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [0, 1], "neither receives the other's heartbeats");
    cluster.set_partitioned(false);
    cluster.run_ms(100);
    assert_eq!(cluster.active_nodes(), [1], "though node 0 ranks higher, and either has taken over once");
}

#[test]
fn a_take_over_by_a_node_that_received_nothing_yields() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(1).set_informed(now, false);
    cluster.set_partitioned(true);
    cluster.run_ms(1000);
    cluster.set_partitioned(false);
    cluster.run_ms(100);
    assert_eq!(cluster.active_nodes(), [0]);
}

#[test]
fn a_node_that_starts_empty_lets_one_that_has_left_send_the_connections_first() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(1).leave(now);
    cluster.kill(0);
    cluster.run_ms(500);
    cluster.start(0);
    let now = cluster.now();
    cluster.automaton(0).set_informed(now, false);
    cluster.run_ms(100);
    assert_eq!(cluster.active_nodes(), [], "it learns that the other has left, and waits for its connections");
    let now = cluster.now();
    cluster.automaton(0).set_informed(now, true);
    cluster.run_until(5, |cluster| cluster.active_nodes() == [0]);
}

#[test]
fn a_node_that_starts_empty_leaves_the_addresses_to_a_standby_that_has_the_connections() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    // It is back before the other has found it dead, and ranks first.
    cluster.kill(0);
    cluster.run_ms(50);
    cluster.start(0);
    let now = cluster.now();
    cluster.automaton(0).set_informed(now, false);
    cluster.automaton(0).set_synchronised(now, false);
    cluster.run_until(250, |cluster| cluster.active_nodes() == [1]);
    let now = cluster.now();
    cluster.automaton(0).set_informed(now, true);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [1]);
}

#[test]
fn after_a_pause_a_standby_takes_nothing_until_a_heartbeat_counts_or_the_peer_is_down() {
    let back = Instant::from_millis(1500);
    let absence = Duration::from_millis(500);
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let mut standby = cluster.nodes[1].automaton.take().unwrap();
    let left = Heartbeat { state: State::Left, ..cluster.automaton(0).poll_heartbeat(back).unwrap() };
    let after = |millis| back + Duration::from_millis(millis);
    assert_eq!(standby.handle_absence(back, absence), Some(after(200)));
    assert!(standby.poll_heartbeat(back).is_some(), "the peers can answer only what they receive");
    for is_answered in [true, false] {
        let mut standby = standby.clone();
        standby.handle_peer_deaf(after(1), NodeId(0)).unwrap();
        standby.handle_timeout(after(199));
        assert_eq!(standby.state(), State::Standby);
        if is_answered {
            standby.handle_heartbeat(after(199), &left).unwrap();
        } else {
            standby.handle_timeout(after(200));
        }
        assert_eq!(standby.state(), State::TakingOver, "answered: {is_answered}");
    }
    standby.handle_peer_down(after(100), NodeId(0)).unwrap();
    assert_eq!(standby.state(), State::TakingOver, "as fast as without the pause");
}

#[test]
fn a_node_that_has_left_and_sends_nothing_is_waited_for_no_longer_than_one_that_is_away() {
    let mut cluster = Cluster::of(2, |_| {});
    let now = cluster.now();
    cluster.automaton(1).leave(now);
    cluster.automaton(0).set_informed(now, false);
    let took_ms = cluster.run_until(1000, |cluster| cluster.active_nodes() == [0]);
    assert!((300..320).contains(&took_ms), "after the time to listen: {took_ms} ms");
}

#[test]
fn two_that_end_listening_at_once_without_heartbeats_do_not_both_take_the_addresses() {
    let mut cluster = Cluster::of(3, |_| {});
    cluster.kill(0);
    cluster.run_ms(207);
    cluster.set_partitioned(true);
    cluster.run_ms(95);
    assert_eq!((cluster.state(1), cluster.state(2)), (Some(State::Active), Some(State::Standby)));
    cluster.set_partitioned(false);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [1]);
}

#[test]
fn a_node_whose_packets_do_not_arrive_takes_nothing() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let heartbeat = cluster.automaton(0).poll_heartbeat(Instant::from_millis(2000)).unwrap();
    let mut standby = cluster.nodes[1].automaton.take().unwrap();
    standby.handle_heartbeat(Instant::from_millis(1001), &heartbeat).unwrap();
    standby.handle_peer_deaf(Instant::from_millis(1002), NodeId(0)).unwrap();
    assert_eq!(standby.state(), State::Standby, "the active node lives: it has said so a moment ago");
    standby.handle_timeout(Instant::from_millis(1202));
    assert_eq!(standby.state(), State::TakingOver, "its last heartbeat counts no longer");
}

#[test]
fn heartbeats_that_wait_to_be_read_after_an_absence_are_waited_for_once() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let mut standby = cluster.nodes[1].automaton.take().unwrap();
    standby.handle_peer_deaf(Instant::from_millis(1001), NodeId(0)).unwrap();
    let absence = Duration::from_secs(5);
    let back = Instant::from_millis(1001) + absence;
    standby.handle_absence(back, absence);
    standby.handle_timeout(back);
    assert_eq!(standby.state(), State::Standby);
    let late = back + absence;
    standby.handle_absence(late, absence);
    standby.handle_timeout(late);
    assert_eq!(standby.state(), State::TakingOver, "a node that is always late still notices that nothing comes");
}

#[test]
fn a_leaving_node_holds_the_addresses_until_they_are_taken() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(0).leave(now);
    for _ in 0..100 {
        cluster.step();
        assert!(!cluster.active_nodes().is_empty(), "at every moment somebody holds the addresses");
    }
    assert_eq!((cluster.state(0), cluster.state(1)), (Some(State::Left), Some(State::Active)));
    let now = cluster.now();
    cluster.automaton(0).rejoin(now);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [1]);
    cluster.kill(1);
    cluster.run_until(200, |cluster| cluster.active_nodes() == [0]);
}

#[test]
fn a_node_that_is_given_a_higher_priority_and_may_preempt_takes_the_addresses() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(1).reconfigure(now, Config { priority: 101, ..Config::new(NodeId(1), Vec::new()) });
    cluster.run_ms(500);
    assert_eq!(cluster.active_nodes(), [0], "a priority alone takes nothing from a node that works");
    let now = cluster.now();
    let config = Config { priority: 101, preempt: true, ..Config::new(NodeId(1), Vec::new()) };
    cluster.automaton(1).reconfigure(now, config);
    cluster.run_ms(100);
    assert_eq!(cluster.active_nodes(), [1]);
}

#[test]
fn a_leaving_node_that_nobody_relieves_goes_after_the_limit() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(1).set_synchronised(now, false);
    cluster.run_ms(10);
    let now = cluster.now();
    cluster.automaton(0).leave(now);
    cluster.run_ms(4900);
    assert_eq!(cluster.active_nodes(), [0], "the other knows no connection yet");
    cluster.run_ms(300);
    assert_eq!(cluster.active_nodes(), [1]);
}

#[test]
fn of_three_the_synchronised_one_takes_over() {
    let mut cluster = Cluster::of(3, |_| {});
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(1).set_synchronised(now, false);
    cluster.run_ms(100);
    cluster.kill(0);
    cluster.run_until(200, |cluster| cluster.active_nodes() == [2]);
}

#[test]
fn a_heartbeat_from_a_stranger_is_refused() {
    let mut automaton = RoleAutomaton::new(Config::new(NodeId(0), std::vec![NodeId(1)]), Instant::ZERO);
    let stranger = Heartbeat {
        unreached: 0,
        passive: false,
        node: NodeId(9),
        state: State::Active,
        priority: 255,
        synchronised: true,
        term: u64::MAX,
        configuration: None,
    };
    assert_eq!(automaton.handle_heartbeat(Instant::ZERO, &stranger), Err(UnknownPeer(NodeId(9))));
    assert_eq!(automaton.term(), 0);
}

#[test]
fn a_peer_that_is_up_but_mute_delays_the_start_only_for_a_time() {
    let mut automaton = RoleAutomaton::new(Config::new(NodeId(0), std::vec![NodeId(1)]), Instant::ZERO);
    automaton.handle_peer_up(Instant::from_millis(250), NodeId(1)).unwrap();
    automaton.handle_timeout(Instant::from_millis(300));
    assert_eq!(automaton.state(), State::Standby);
    let _ = automaton.poll_heartbeat(Instant::from_millis(300));
    let _ = automaton.poll_heartbeat(Instant::from_millis(440));
    assert_eq!(automaton.poll_timeout(), Some(Instant::from_millis(450)));
    automaton.handle_timeout(Instant::from_millis(450));
    assert_eq!(automaton.state(), State::TakingOver);
}

#[derive(Clone, Debug)]
enum Fault {
    Kill(usize),
    Start(usize),
    Leave(usize),
    Rejoin(usize),
    Partition,
    Heal,
}

fn fault() -> impl Strategy<Value = (Fault, u64)> {
    let fault = prop_oneof![
        (0usize..3).prop_map(Fault::Kill),
        (0usize..3).prop_map(Fault::Start),
        (0usize..3).prop_map(Fault::Leave),
        (0usize..3).prop_map(Fault::Rejoin),
        Just(Fault::Partition),
        Just(Fault::Heal),
    ];
    (fault, 1u64..700)
}

proptest! {
    /// On the way, `step` checks that nodes that receive each other's heartbeats are not both active.
    #[test]
    fn whatever_fails_one_node_holds_the_addresses_in_the_end(
        faults in proptest::collection::vec(fault(), 1..20), priorities in [0u8..3, 0..3, 0..3], preempt in any::<bool>(),
    ) {
        let mut cluster = Cluster::of(3, |config| {
            config.priority = priorities[usize::from(config.node.0)];
            config.preempt = preempt;
        });
        for (fault, then_ms) in faults {
            let now = cluster.now();
            match fault {
                Fault::Kill(node) => cluster.kill(node),
                Fault::Start(node) if cluster.state(node).is_none() => cluster.start(node),
                Fault::Leave(node) if cluster.state(node).is_some() => cluster.automaton(node).leave(now),
                Fault::Rejoin(node) if cluster.state(node).is_some() => cluster.automaton(node).rejoin(now),
                Fault::Partition => cluster.set_partitioned(true),
                Fault::Heal => cluster.set_partitioned(false),
                _ => {}
            }
            cluster.run_ms(then_ms);
        }
        cluster.set_partitioned(false);
        cluster.run_ms(7000);
        let takes_part = |node: &usize| cluster.state(*node).is_some_and(|state| state != State::Left);
        let expected = usize::from((0..3).any(|node| takes_part(&node)));
        prop_assert_eq!(cluster.active_nodes().len(), expected);
    }
}

#[test]
fn addresses_move_to_the_standby_that_reaches_more_after_the_hold_and_do_not_move_back() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(0).set_unreached(now, 10);
    let took_ms = cluster.run_until(1000, |cluster| cluster.active_nodes() == [1]);
    assert!((100..=110).contains(&took_ms), "the hold, and no more: {took_ms} ms");
    let now = cluster.now();
    cluster.automaton(0).set_unreached(now, 0);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [1], "equal reach moves nothing");
}

#[test]
fn addresses_stay_when_both_nodes_lose_the_same_or_the_standby_is_not_synchronised() {
    let mut cluster = Cluster::of(2, |_| {});
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(0).set_unreached(now, 10);
    cluster.run_ms(60);
    let now = cluster.now();
    cluster.automaton(1).set_unreached(now, 10);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [0], "what both use failed");
    let now = cluster.now();
    cluster.automaton(1).set_synchronised(now, false);
    cluster.automaton(1).set_unreached(now, 0);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [0], "a node without the connections would lose them");
}

#[test]
fn preemption_by_priority_waits_until_the_higher_node_reaches_as_much() {
    let mut cluster = Cluster::of(2, |config| {
        config.priority = 200 - config.node.0;
        config.preempt = true;
    });
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(0).set_unreached(now, 1);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [1]);
    let now = cluster.now();
    cluster.automaton(0).set_unreached(now, 0);
    cluster.run_ms(1000);
    assert_eq!(cluster.active_nodes(), [0]);
}

#[test]
fn a_passive_node_takes_nothing_and_is_not_waited_for() {
    let mut cluster = Cluster::of(3, |_| {});
    cluster.run_ms(1000);
    let now = cluster.now();
    cluster.automaton(1).set_passive(now, true);
    cluster.run_ms(50);
    cluster.kill(0);
    let took_ms = cluster.run_until(1000, |cluster| cluster.active_nodes() == [2]);
    assert!(took_ms <= 105, "{took_ms} ms");
    cluster.kill(2);
    cluster.run_ms(1000);
    assert!(cluster.active_nodes().is_empty());
    let now = cluster.now();
    cluster.automaton(1).set_passive(now, false);
    cluster.run_ms(10);
    assert_eq!(cluster.active_nodes(), [1]);
}

/// A node that took the addresses knowing nothing, while the one that should hold them could not be reached, at this time.
fn uninformed_active(now: Instant) -> RoleAutomaton {
    let mut automaton = RoleAutomaton::new(Config::new(NodeId(0), std::vec![NodeId(1)]), Instant::ZERO);
    automaton.set_informed(Instant::ZERO, false);
    automaton.handle_timeout(now);
    automaton.handle_state_usable(now);
    assert_eq!(automaton.state(), State::Active);
    automaton
}

#[test]
fn who_took_the_addresses_knowing_nothing_yields_them_once_its_connections_are_replicated_or_time_is_over() {
    let (began, limit) = (Instant::from_millis(600), Duration::from_millis(200));
    let rightful = Heartbeat {
        node: NodeId(1),
        state: State::Active,
        priority: 100,
        synchronised: true,
        term: 2,
        configuration: None,
        unreached: 0,
        passive: false,
    };
    let outranked = || {
        let mut automaton = uninformed_active(began);
        automaton.set_replicated(began, false);
        automaton.handle_heartbeat(began, &rightful).unwrap();
        assert!(automaton.is_outranked() && automaton.state() == State::Active, "its connections are not replicated");
        automaton
    };
    let mut automaton = outranked();
    automaton.set_replicated(began, true);
    assert_eq!(automaton.state(), State::Standby);
    let mut automaton = outranked();
    assert_eq!(automaton.poll_timeout().map(|at| at <= began + limit), Some(true));
    automaton.handle_timeout(began + (limit - Duration::from_millis(1)));
    assert_eq!(automaton.state(), State::Active);
    automaton.handle_heartbeat(began + limit, &rightful).unwrap();
    assert_eq!(automaton.state(), State::Standby);
}

#[test]
fn an_active_node_that_stood_still_awaits_its_peers_answer_for_a_limited_time() {
    let follower = |state| Heartbeat {
        node: NodeId(1),
        state,
        priority: 100,
        synchronised: true,
        term: 0,
        configuration: None,
        unreached: 0,
        passive: false,
    };
    let (now, absence) = (Instant::from_millis(600), Duration::from_millis(500));
    let mut automaton = uninformed_active(now);
    assert_eq!(
        (automaton.handle_absence(now, absence).is_some(), automaton.is_unconfirmed(now)),
        (true, false),
        "no heartbeat received"
    );
    automaton.handle_heartbeat(now, &follower(State::Standby)).unwrap();
    let back = now + absence;
    let until = automaton.handle_absence(back, absence).expect("that is long");
    assert!(automaton.is_unconfirmed(back) && !automaton.is_unconfirmed(until));
    automaton.handle_heartbeat(back, &follower(State::Standby)).unwrap();
    assert!(!automaton.is_unconfirmed(back), "it still follows");
}
