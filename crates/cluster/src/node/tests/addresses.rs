//! Who has the shared addresses when the nodes cannot agree on it: misconfigured nodes, foreign hosts, cut links.

use std::time::Duration;
use std::vec::Vec;

use flow::wire::arp::ArpOperation;
use flow::wire::{MacAddress, build};
use flow::{DropReason, Instant, NodeId};

use super::cluster::{Cluster, INSIDE, Options, SHARED_INSIDE, port_mac, segment};
use super::{ACK, events, exchange};
use crate::forwarding::AddressConflict;
use crate::node::{NodeEvent, PassiveReason, Rejection};
use crate::role::{GroupHeartbeat, Heartbeat, Heartbeats, State};

const FOREIGN_MAC: MacAddress = MacAddress([2, 9, 9, 9, 9, 9]);

/// Node 0 is active, node 1 is not running.
fn node_0_alone(options: Options) -> Cluster {
    let mut cluster = Cluster::begin(options);
    cluster.kill(1);
    cluster.run_until("node 0 to be active", |cluster| cluster.node(0).holds_addresses());
    cluster
}

fn partition_nodes(cluster: &mut Cluster, is_partitioned: bool) {
    (cluster.is_replication_down, cluster.is_detection_down) = (is_partitioned, is_partitioned);
}

fn passive(cluster: &Cluster, id: u8) -> Option<PassiveReason> {
    cluster.node(id).status(cluster.now).passive
}

/// Runs for the time, during which node 1 takes no addresses.
fn stays_passive(cluster: &mut Cluster, time: Duration) {
    let until = cluster.now + time;
    while cluster.now < until {
        cluster.run(Duration::from_millis(20));
        assert!(!cluster.node(1).holds_addresses(), "node 1 took the addresses at {:?}", cluster.now);
    }
}

/// When node 1 has the addresses, after so much time.
fn takes_over_after(cluster: &mut Cluster) -> Duration {
    let from = cluster.now;
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.now.saturating_since(from)
}

#[test]
fn a_starting_standby_with_another_key_leaves_the_addresses_where_they_are() {
    let mut cluster = node_0_alone(Options { keys: Some([1, 2]), ..Options::default() });
    let announced = cluster.announced.len();
    cluster.restart(1);
    stays_passive(&mut cluster, Duration::from_secs(8));
    assert!(cluster.announced[announced..].iter().all(|(from, _)| *from == 0), "node 1 announced an address");
    let reported = events(&mut cluster, 1);
    assert!(matches!(reported[0], NodeEvent::Passive(Some(_))), "{reported:?}");
    assert!(passive(&cluster, 0).is_none() && cluster.node(0).holds_addresses());
    cluster.kill(0);
    let after = takes_over_after(&mut cluster);
    assert!(after > Duration::from_secs(1) && after < Duration::from_secs(5), "{after:?}");
    assert_eq!(passive(&cluster, 1), None);
}

#[test]
fn a_peer_that_cannot_be_authenticated_keeps_a_starting_node_passive_though_no_probe_reaches_it() {
    let mut cluster = node_0_alone(Options { keys: Some([1, 2]), ..Options::default() });
    cluster.is_link_partitioned = true;
    cluster.restart(1);
    stays_passive(&mut cluster, Duration::from_secs(8));
    let reason = PassiveReason::PeerRejected { peer: NodeId(0), reason: Rejection::NotAuthenticated };
    assert_eq!(passive(&cluster, 1), Some(reason));
    assert_eq!(events(&mut cluster, 1), [NodeEvent::Passive(Some(reason))], "it is reported once");
    cluster.kill(0);
    assert!(takes_over_after(&mut cluster) < Duration::from_secs(4));
    assert!(events(&mut cluster, 1).contains(&NodeEvent::Passive(None)));
}

#[test]
fn a_starting_node_that_reaches_nobody_takes_no_address_that_is_defended() {
    let mut cluster = node_0_alone(Options::default());
    partition_nodes(&mut cluster, true);
    cluster.restart(1);
    stays_passive(&mut cluster, Duration::from_secs(8));
    let Some(PassiveReason::AddressDefended { port, mac, .. }) = passive(&cluster, 1) else {
        panic!("{:?}", passive(&cluster, 1))
    };
    assert_eq!(mac, port_mac(0, port));
    let conflicts = cluster.node(0).status(cluster.now).forwarding.address_conflicts;
    assert_eq!(conflicts, 0, "node 1 claimed nothing");
    // As soon as the nodes reach each other, node 1 is standby.
    partition_nodes(&mut cluster, false);
    cluster.run_until("node 1 to know its peer", |cluster| passive(cluster, 1).is_none() && cluster.is_settled());
    cluster.kill(0);
    assert!(takes_over_after(&mut cluster) < Duration::from_millis(130));
}

#[test]
fn a_defended_address_is_taken_when_its_owner_is_gone() {
    let mut cluster = node_0_alone(Options::default());
    partition_nodes(&mut cluster, true);
    cluster.restart(1);
    stays_passive(&mut cluster, Duration::from_secs(3));
    cluster.kill(0);
    let after = takes_over_after(&mut cluster);
    assert!(after > Duration::from_secs(1) && after < Duration::from_secs(5), "{after:?}");
}

#[test]
fn a_standby_that_has_the_connections_waits_for_no_heartbeat_of_a_peer_that_has_died() {
    let mut cluster = node_0_alone(Options::default());
    // It receives all connections, but no heartbeat that shows who has the defended addresses.
    cluster.are_heartbeats_lost = true;
    cluster.restart(1);
    cluster.run_until("node 1 to be passive", |cluster| {
        matches!(passive(cluster, 1), Some(PassiveReason::AddressDefended { .. }))
    });
    cluster.kill(0);
    assert!(takes_over_after(&mut cluster) < Duration::from_millis(2600), "two probes without an answer are enough");
}

#[test]
fn a_failover_to_a_node_that_knows_its_peer_waits_for_no_probe() {
    let mut cluster = node_0_alone(Options::default());
    cluster.restart(1);
    cluster.run_until("node 1 to know its peer", |cluster| cluster.is_settled() && passive(cluster, 1).is_none());
    cluster.kill(0);
    assert!(takes_over_after(&mut cluster) < Duration::from_millis(130));
    let reported = events(&mut cluster, 1);
    assert!(!reported.iter().any(|event| matches!(event, NodeEvent::Passive(_))), "{reported:?}");
}

#[test]
fn two_nodes_that_start_together_and_reach_nobody_do_not_both_stay_passive() {
    let mut cluster = Cluster::begin(Options::default());
    partition_nodes(&mut cluster, true);
    cluster.run(Duration::from_secs(6));
    assert!(cluster.node(0).holds_addresses() && !cluster.node(1).holds_addresses());
    assert!(matches!(passive(&cluster, 1), Some(PassiveReason::AddressDefended { .. })));
}

fn heartbeat(node: u8) -> Heartbeat {
    Heartbeat {
        node: NodeId(node),
        state: State::Active,
        priority: 100,
        synchronised: true,
        term: 1,
        configuration: None,
        unreached: 0,
        passive: false,
    }
}

/// Node 1 starts alone and receives such a datagram of node 0 every 500 ms for five seconds.
fn receives(datagram: &[u8], options: Options) -> (Option<PassiveReason>, Duration) {
    let mut cluster = Cluster::begin(options);
    cluster.kill(0);
    for _ in 0..10 {
        let now = cluster.now;
        let _ = cluster.node_mut(1).handle_replication(now, NodeId(0), datagram);
        stays_passive(&mut cluster, Duration::from_millis(500));
    }
    (passive(&cluster, 1), takes_over_after(&mut cluster))
}

#[test]
fn unacceptable_heartbeats_keep_a_starting_node_passive_for_three_seconds_and_name_the_reason() {
    let grouped = Options { is_translated: false, has_groups: true, ..Options::default() };
    let group = GroupHeartbeat { identity: 77, state: State::Active, priority: 1, term: 1, unreached: 0 };
    let of_other_groups =
        Heartbeats { first: heartbeat(0), groups: std::vec![group, group], order: None, answers: None };
    let of_another_node = Heartbeats { first: heartbeat(7), groups: Vec::new(), order: None, answers: None };
    let (mut others, mut another) = (Vec::new(), Vec::new());
    of_other_groups.encode(&mut others);
    of_another_node.encode(&mut another);
    let cases = [
        (&others[..], grouped, Rejection::GroupsDiffer),
        (&another, Options::default(), Rejection::NamesAnotherNode(NodeId(7))),
        (&[0, 1, 0, 200], Options::default(), Rejection::Unreadable),
    ];
    for (datagram, options, expected) in cases {
        let (reason, after) = receives(datagram, options);
        assert_eq!(reason, Some(PassiveReason::PeerRejected { peer: NodeId(0), reason: expected }));
        assert!(after > Duration::from_secs(2) && after < Duration::from_millis(2600), "{reason:?} {after:?}");
    }
}

#[test]
fn a_claim_of_a_foreign_host_is_reported_and_defended() {
    let mut cluster = Cluster::start(Options::default());
    cluster.run(Duration::from_secs(4));
    (0..2).for_each(|id| drop(events(&mut cluster, id)));
    cluster.announced.clear();
    cluster.hand_in(INSIDE, build::gratuitous_arp(ArpOperation::Reply, FOREIGN_MAC, SHARED_INSIDE));
    let claimed_at = cluster.now;
    cluster.run(Duration::from_secs(6));
    let conflict = AddressConflict { port: INSIDE, address: SHARED_INSIDE.into(), mac: FOREIGN_MAC };
    assert_eq!(events(&mut cluster, 0), [NodeEvent::AddressConflict(conflict)]);
    assert_eq!(events(&mut cluster, 1), [], "a standby has nothing to defend");
    let after: Vec<u128> =
        cluster.announced.iter().map(|(_, at)| at.saturating_since(claimed_at).as_millis()).collect();
    assert_eq!(after, [0, 1000, 3000]);
}

/// Both nodes are active as they cannot reach each other, and the connection's packets go by way of node 1.
fn split(cluster: &mut Cluster) -> u16 {
    let seen_port = cluster.connect(40_000);
    exchange(cluster, 40_000, seen_port, 1001, 5001);
    partition_nodes(cluster, true);
    cluster.run_until("both nodes to be active", |cluster| cluster.node(1).holds_addresses());
    assert!(cluster.node(0).holds_addresses());
    cluster.via = Some(1);
    exchange(cluster, 40_000, seen_port, 1009, 5007);
    cluster.run(Duration::from_secs(5));
    exchange(cluster, 40_000, seen_port, 3_000_000, 4_000_000);
    seen_port
}

/// Node 1 is the first to find that it does not receive the other. Node 0 contests what node 1 claims until it finds the same.
#[test]
fn what_was_contested_before_a_peers_silence_was_found_is_contested_no_more() {
    let mut cluster = Cluster::start(Options::default());
    cluster.run(Duration::from_secs(5));
    partition_nodes(&mut cluster, true);
    cluster.announced.clear();
    let claim = build::gratuitous_arp(ArpOperation::Reply, port_mac(1, INSIDE), SHARED_INSIDE);
    cluster.hand_to(0, INSIDE, &claim);
    let claimed_at = cluster.now;
    cluster.run_until("both nodes to be active", |cluster| cluster.node(1).holds_addresses());
    cluster.run(Duration::from_secs(20));
    let of_node_0 = cluster.announced.iter().filter(|(from, _)| *from == 0);
    let after: Vec<_> = of_node_0.map(|(_, at)| at.saturating_since(claimed_at)).collect();
    assert_eq!(after.len(), 1, "the defence before the silence was found: {after:?}");
}

/// The client's packets come by way of node 0 for a moment, and show it a segment just beyond the window that it knows.
#[test]
fn windows_are_relearnt_though_the_last_segment_was_slightly_beyond_them() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    partition_nodes(&mut cluster, true);
    cluster.via = Some(0);
    let mut sequence = 1001;
    while !cluster.node(1).holds_addresses() {
        exchange(&mut cluster, 40_000, seen_port, sequence, 5001);
        cluster.client_sends(40_000, segment(ACK, sequence + 8, 5007), b"");
        assert!(cluster.server_receives().is_some());
        cluster.run(Duration::from_millis(10));
        sequence += 8;
    }
    // Node 1 forwards a little more than a window meanwhile.
    cluster.client_sends(40_000, segment(ACK, sequence + 70_000, 5007), b"beyond");
    assert!(cluster.server_receives().is_some(), "it is passed on");
    cluster.run(Duration::from_secs(2));
    exchange(&mut cluster, 40_000, seen_port, 3_000_000, 4_000_000);
}

fn announced_since(cluster: &Cluster, id: u8, since: Instant) -> Option<Duration> {
    let mut of_node = cluster.announced.iter().filter(|(from, at)| *from == id && *at >= since);
    of_node.next().map(|(_, at)| at.saturating_since(since))
}

#[test]
fn the_survivor_of_a_partition_announces_and_its_connections_go_on_when_the_other_active_node_dies() {
    for is_link_partitioned in [false, true] {
        let mut cluster = Cluster::start(Options::default());
        cluster.is_link_partitioned = is_link_partitioned;
        let seen_port = split(&mut cluster);
        cluster.kill(1);
        let died_at = cluster.now;
        cluster.run(Duration::from_secs(5));
        let after = announced_since(&cluster, 0, died_at).expect("node 0 announces the addresses");
        // Node 0 yields to node 1 until two of its claims are missing.
        let limit_ms = if is_link_partitioned { 1_200 } else { 3_700 };
        assert!(after < Duration::from_millis(limit_ms), "{after:?}");
        // Far beyond what node 0 has seen of the connection.
        cluster.via = None;
        exchange(&mut cluster, 40_000, seen_port, 3_000_008, 4_000_006);
        assert_eq!(cluster.dropped(0, DropReason::OutOfWindow), 0);
        assert!(cluster.node(0).pipeline().counters().relearnt >= 1);
    }
}

#[test]
fn two_active_nodes_do_not_flood_the_link() {
    let mut cluster = Cluster::start(Options::default());
    let _ = split(&mut cluster);
    cluster.announced.clear();
    cluster.run(Duration::from_secs(20));
    let announced = |id| cluster.announced.iter().filter(|(from, _)| *from == id).count();
    assert_eq!(announced(0), 0, "the node that was active before yields");
    assert!((10..=40).contains(&announced(1)), "{} times in 20 s", announced(1));
}

#[test]
fn the_active_node_announces_when_a_silent_peer_returns() {
    let mut cluster = Cluster::start(Options::default());
    cluster.kill(1);
    cluster.run(Duration::from_secs(70));
    cluster.announced.clear();
    cluster.restart(1);
    let from = cluster.now;
    cluster.run(Duration::from_millis(400));
    assert!(announced_since(&cluster, 0, from).is_some());
    assert!(announced_since(&cluster, 1, from).is_none());
}

#[test]
fn windows_are_checked_strictly_where_no_peer_may_have_forwarded() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    cluster.run(Duration::from_secs(5));
    cluster.client_sends(40_000, segment(ACK, 3_000_000, 4_000_000), b"");
    assert!(cluster.server_receives().is_none());
    assert_eq!(cluster.dropped(0, DropReason::OutOfWindow), 1);
    assert_eq!(cluster.node(0).pipeline().counters().relearnt, 0);
}

#[test]
fn after_a_partition_windows_are_relearnt_once_and_then_checked_strictly() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    cluster.kill(1);
    cluster.run(Duration::from_secs(2));
    cluster.restart(1);
    cluster.run_until("node 1 to be back", |cluster| cluster.is_settled() && passive(cluster, 1).is_none());
    cluster.run(Duration::from_secs(1));
    for round in 0..3 {
        exchange(&mut cluster, 40_000, seen_port, 1009 + 8 * round, 5007 + 6 * round);
        cluster.run(Duration::from_secs(1));
    }
    assert_eq!(cluster.node(0).pipeline().counters().relearnt, 1);
}

#[test]
fn a_reset_after_a_partition_does_not_end_a_connection_whose_windows_are_not_known() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = split(&mut cluster);
    cluster.kill(1);
    cluster.run(Duration::from_secs(4));
    cluster.via = None;
    // It passes, as at a take-over: its receiver can decide whether it is genuine.
    cluster.server_sends(seen_port, segment(flow::wire::tcp_flags::RST | ACK, 4_000_006, 3_000_008), b"");
    assert!(cluster.client_receives().is_some());
    exchange(&mut cluster, 40_000, seen_port, 3_000_008, 4_000_006);
}
