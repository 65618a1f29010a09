//! Failure detection over every path: the replication link, and the links of both ports.

use alloc::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use flow::wire::ethernet::ETHERNET_HEADER_BYTES;
use flow::{DropReason, NodeId, PortId};
use proptest::prelude::*;
use replication::secure::{Credentials, PreSharedKey, Security, is_channel};

use super::cluster::{Cluster, INSIDE, OUTSIDE, Options, rules, security, segment};
use super::operations::{reload, with_rules};
use super::{FIN_ACK, events, exchange};
use crate::failure_detector::State;
use crate::forwarding::PATH_HEADER_BYTES;
use crate::node::{NodeEvent, NodeObstacle, Obstacle, Path, Reconfiguration, SplitBrain};
use crate::pipeline::Place;

/// A dead node is found within this time: the detection time, an interval, and a step of the test.
const FOUND_WITHIN: Duration = Duration::from_millis(115);
/// Bits of [`Cuts`]: the replication path and both ports', each way.
const WAYS: u8 = 6;

fn with_paths() -> Options {
    Options { has_service_paths: true, ..Options::default() }
}

/// Both nodes run, and all paths between them are up.
fn started(options: Options) -> Cluster {
    let mut cluster = Cluster::start(options);
    cluster.run_until("all paths to be up", |cluster| {
        let is_up = |id| states(cluster, id).iter().all(|(_, state)| *state == State::Up);
        is_up(0) && is_up(1)
    });
    cluster
}

fn states(cluster: &Cluster, id: u8) -> Vec<(Path, State)> {
    let status = cluster.node(id).status(cluster.now);
    status.peers[0].paths.iter().map(|path| (path.path, path.state)).collect()
}

fn fail_replication(cluster: &mut Cluster, is_partitioned: bool) {
    (cluster.is_replication_down, cluster.is_detection_down) = (is_partitioned, is_partitioned);
}

fn fail_all_paths(cluster: &mut Cluster, is_partitioned: bool) {
    fail_replication(cluster, is_partitioned);
    cluster.one_way_ports =
        [0, 1].iter().flat_map(|id| [(*id, INSIDE), (*id, OUTSIDE)]).filter(|_| is_partitioned).collect();
}

fn split_brains(cluster: &Cluster) -> [SplitBrain; 2] {
    [0, 1].map(|id| cluster.node(id).status(cluster.now).peers[0].split_brain)
}

fn replication_link_failure_is_survived(options: Options) {
    let mut cluster = started(options);
    let seen_port = cluster.connect(40_000);
    let (_, _) = (events(&mut cluster, 0), events(&mut cluster, 1));

    fail_replication(&mut cluster, true);
    cluster.run(Duration::from_secs(3));
    assert!(cluster.node(0).holds_addresses() && !cluster.node(1).holds_addresses(), "nobody takes over");
    for id in 0..2 {
        let peer = &cluster.node(id).status(cluster.now).peers[0];
        assert!(peer.is_degraded() && peer.down_since.is_none() && peer.heartbeats.iter().all(Option::is_some));
        assert_eq!(peer.could_take_over(), options.keys.is_some(), "encrypted updates go on over a service path");
        let states = states(&cluster, id);
        let expected =
            [(Path::Replication, State::Down), (Path::Port(INSIDE), State::Up), (Path::Port(OUTSIDE), State::Up)];
        assert_eq!(states, expected);
        let reported = events(&mut cluster, id);
        let other = NodeId(1 - id);
        assert!(reported.contains(&NodeEvent::PathDown { peer: other, path: Path::Replication }), "{reported:?}");
        let degraded = NodeEvent::Degraded { peer: other, carries_updates: options.keys.is_some() };
        assert_eq!(reported.iter().filter(|event| **event == degraded).count(), 1, "{reported:?}");
        assert!(!reported.contains(&NodeEvent::PeerDown(other)), "{reported:?}");
    }

    // Now it dies indeed.
    let killed_at = cluster.now;
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    assert!(cluster.now.saturating_since(killed_at) <= FOUND_WITHIN, "in the detection time");
    exchange(&mut cluster, 40_000, seen_port, 1_000_009, 2_000_007);
}

#[test]
fn a_failed_replication_link_causes_no_take_over_and_a_death_after_it_is_found() {
    replication_link_failure_is_survived(with_paths());
}

#[test]
fn encrypted_nodes_survive_a_failed_replication_link_as_well() {
    replication_link_failure_is_survived(Options { keys: Some([1, 1]), ..with_paths() });
}

#[test]
fn replication_goes_on_and_the_nodes_are_synchronised_once_the_link_is_back() {
    let mut cluster = started(with_paths());
    fail_replication(&mut cluster, true);
    cluster.run(Duration::from_secs(2));
    let _ = cluster.connect(40_000);
    assert_eq!(cluster.connections(1), 0);
    let status = cluster.node(0).status(cluster.now);
    assert_eq!(status.peers[0].uncovered(), 1, "a failover now would lose it");
    assert_eq!(status.readiness.obstacles, [NodeObstacle { node: NodeId(1), obstacle: Obstacle::Uncovered(1) }]);
    fail_replication(&mut cluster, false);
    cluster.run_until("the copy to be there", |cluster| cluster.connections(1) == 1);
    cluster.run_until("node 1 to be ready", |cluster| cluster.node(0).status(cluster.now).peers[0].could_take_over());
    let peer = &cluster.node(0).status(cluster.now).peers[0];
    assert!(!peer.is_degraded() && peer.uncovered() == 0);
}

/// Encrypted nodes whose replication link has been down for so long that both know.
fn degraded(options: Options) -> Cluster {
    let mut cluster = started(Options { keys: Some([1, 1]), ..options });
    fail_replication(&mut cluster, true);
    cluster.run_until("both to be degraded", |cluster| {
        (0..2).all(|id| cluster.node(id).status(cluster.now).peers[0].is_degraded())
    });
    cluster
}

#[test]
fn connections_begun_while_the_replication_link_is_down_survive_their_node() {
    let mut cluster = degraded(with_paths());
    let seen_ports: Vec<u16> = (0..15).map(|number| cluster.connect(40_000 + number)).collect();
    cluster.run(Duration::from_millis(20));
    let status = cluster.node(0).status(cluster.now);
    assert_eq!((status.peers[0].uncovered(), cluster.connections(1)), (0, 15));
    assert!(status.readiness.is_ready(), "{:?}", status.readiness.obstacles);
    let datagrams = cluster.path_frames.iter().map(|(_, _, frame)| &frame[ETHERNET_HEADER_BYTES + PATH_HEADER_BYTES..]);
    assert!(datagrams.into_iter().all(is_channel), "nothing goes in plain text");

    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    for (number, seen_port) in (0..).zip(seen_ports) {
        exchange(&mut cluster, 40_000 + number, seen_port, 1_000_009, 2_000_007);
    }
}

#[test]
fn the_session_outlasts_a_failure_of_the_replication_link_and_its_end() {
    let mut cluster = degraded(with_paths());
    let session = |cluster: &Cluster| cluster.node(0).status(cluster.now).peers[0].session.unwrap();
    let (rounds, number) = (session(&cluster).rounds, session(&cluster).session);
    cluster.run(Duration::from_secs(3));
    let _ = cluster.connect(40_000);
    fail_replication(&mut cluster, false);
    cluster.run_until("the replication path to be up", |cluster| states(cluster, 0)[0].1 == State::Up);
    let _ = cluster.connect(40_001);
    cluster.run(Duration::from_millis(50));
    let after = session(&cluster);
    assert_eq!((after.rounds, after.session, after.uncovered), (rounds, number, 0), "no full synchronisation");
    assert_eq!(cluster.connections(1), 2);
}

#[test]
fn updates_over_service_paths_keep_to_their_rate_and_new_connections_go_first() {
    const RATE: u32 = 16_000;
    let mut cluster = started(Options { keys: Some([1, 1]), connections_max: 512, ..with_paths() });
    for number in 0..200 {
        let _ = cluster.connect(41_000 + number);
    }
    cluster.node_mut(0).set_service_path_rate(RATE);
    cluster.node_mut(1).set_service_path_rate(RATE);
    fail_replication(&mut cluster, true);
    cluster.run(Duration::from_millis(300));
    // All connections end, which is more than the rate allows for at once.
    for number in 0..200 {
        cluster.client_sends(41_000 + number, segment(FIN_ACK, 1001, 5001), b"");
        let _ = cluster.server_receives().expect("the FIN passes");
    }
    cluster.path_frames.clear();
    let _ = cluster.connect(40_000);
    let begun_at = cluster.now;
    cluster.run_until("the new connection to be there", |cluster| {
        cluster.node(0).status(cluster.now).peers[0].uncovered() == 0
    });
    assert!(cluster.now.saturating_since(begun_at) < Duration::from_millis(300), "it overtakes the others");
    assert!(cluster.node(0).status(cluster.now).peers[0].session.unwrap().queued > 0, "the others wait");
    cluster.path_frames.clear();
    cluster.run(Duration::from_secs(1));
    // Failure detection and heartbeats are short.
    let updates = cluster.path_frames.iter().filter(|(to, _, frame)| *to == 1 && frame.len() > 200);
    let sent_bytes: usize = updates.map(|(_, _, frame)| frame.len()).sum();
    assert!((RATE / 2..=RATE * 11 / 10).contains(&(sent_bytes as u32)), "{sent_bytes}");
}

#[test]
fn without_a_rate_nothing_goes_over_service_paths_and_the_connections_are_counted() {
    let mut cluster = started(Options { keys: Some([1, 1]), ..with_paths() });
    cluster.node_mut(0).set_service_path_rate(0);
    fail_replication(&mut cluster, true);
    cluster.run(Duration::from_secs(2));
    for number in 0..3 {
        let _ = cluster.connect(40_000 + number);
    }
    cluster.run(Duration::from_millis(100));
    let status = cluster.node(0).status(cluster.now);
    assert_eq!((status.peers[0].uncovered(), cluster.connections(1)), (3, 0));
    assert!(!status.readiness.is_ready());
}

/// Frames between the nodes on the links of the ports in so long.
fn frames_within(cluster: &mut Cluster, time: Duration) -> Vec<(u8, PortId, Vec<u8>)> {
    cluster.path_frames.clear();
    cluster.run(time);
    core::mem::take(&mut cluster.path_frames)
}

#[test]
fn healthy_nodes_send_each_other_two_frames_a_second_on_a_service_path_and_none_to_other_hosts() {
    for options in [with_paths(), Options { keys: Some([1, 1]), ..with_paths() }] {
        let mut cluster = started(options);
        cluster.run(Duration::from_secs(2));
        let frames = frames_within(&mut cluster, Duration::from_secs(5));
        for (id, port) in [(0, INSIDE), (0, OUTSIDE), (1, INSIDE), (1, OUTSIDE)] {
            let count = frames.iter().filter(|(to, on, _)| (*to, *on) == (id, port)).count();
            // RFC 5880 section 6.8.7: an interval may be a quarter shorter.
            assert!((8..=14).contains(&count), "{count} frames to node {id} on port {}", port.0);
        }
        assert!(frames.iter().all(|(_, _, frame)| frame[0] & 1 == 0), "they are addressed to the peer");
    }
}

#[test]
fn a_service_path_that_fails_alone_is_found_within_two_seconds_and_back_soon_after() {
    let mut cluster = started(with_paths());
    cluster.run(Duration::from_secs(2));
    cluster.one_way_ports = std::vec![(1, INSIDE)];
    let failed_at = cluster.now;
    let state = |cluster: &Cluster| states(cluster, 0)[1].1;
    cluster.run_until("the path to be down", |cluster| state(cluster) != State::Up);
    assert!(cluster.now.saturating_since(failed_at) <= Duration::from_secs(2));
    cluster.one_way_ports.clear();
    let repaired_at = cluster.now;
    cluster.run_until("the path to be up", |cluster| state(cluster) == State::Up);
    assert!(cluster.now.saturating_since(repaired_at) <= Duration::from_secs(2));
    assert!(cluster.node(0).holds_addresses() && !cluster.node(1).holds_addresses());
}

#[test]
fn a_death_is_found_in_the_detection_time_however_long_the_service_paths_were_slow() {
    for options in [with_paths(), Options { keys: Some([1, 1]), ..with_paths() }] {
        for late_ms in [0, 130, 370, 610, 990] {
            let mut cluster = started(options);
            cluster.run(Duration::from_millis(3000 + late_ms));
            let killed_at = cluster.now;
            cluster.kill(0);
            cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
            assert!(cluster.now.saturating_since(killed_at) <= FOUND_WITHIN);
        }
    }
}

#[test]
fn an_outage_of_the_replication_link_that_only_one_node_notices_takes_nobody_down() {
    let mut cluster = started(Options { keys: Some([1, 1]), ..with_paths() });
    cluster.run(Duration::from_secs(3));
    let _ = (events(&mut cluster, 0), events(&mut cluster, 1));
    // So short that no path is found down: the live peer answers what is asked over the service paths.
    for lasts_ms in [20, 60, 90] {
        fail_replication(&mut cluster, true);
        cluster.run(Duration::from_millis(lasts_ms));
        fail_replication(&mut cluster, false);
        cluster.run(Duration::from_secs(1));
        for id in 0..2 {
            let reported = events(&mut cluster, id);
            assert!(!reported.contains(&NodeEvent::PeerDown(NodeId(1 - id))), "{reported:?}");
        }
    }
    let frames = frames_within(&mut cluster, Duration::from_secs(5));
    assert!(frames.len() < 60, "the paths are slow again: {}", frames.len());
}

#[test]
fn nodes_that_start_without_a_replication_link_find_each_other_over_their_ports() {
    for options in [with_paths(), Options { keys: Some([1, 1]), ..with_paths() }] {
        let mut cluster = Cluster::begin(options);
        fail_replication(&mut cluster, true);
        for _ in 0..2000 {
            cluster.run(Duration::from_millis(1));
            assert!(!(cluster.node(0).holds_addresses() && cluster.node(1).holds_addresses()), "{:?}", cluster.now);
        }
        assert!(cluster.node(0).holds_addresses() || cluster.node(1).holds_addresses());
    }
}

#[test]
fn when_all_paths_fail_both_serve_and_a_split_brain_is_reported_until_one_yields() {
    for options in [with_paths(), Options { keys: Some([1, 1]), ..with_paths() }] {
        let mut cluster = started(options);
        assert_eq!(split_brains(&cluster), [SplitBrain::None; 2]);
        fail_all_paths(&mut cluster, true);
        cluster.run_until("both to be active", |cluster| {
            cluster.node(0).holds_addresses() && cluster.node(1).holds_addresses()
        });
        assert_eq!(split_brains(&cluster), [SplitBrain::Suspected; 2]);
        cluster.run(Duration::from_secs(2));
        let (_, _) = (events(&mut cluster, 0), events(&mut cluster, 1));

        fail_all_paths(&mut cluster, false);
        cluster.run_until("one to yield", |cluster| {
            cluster.node(0).holds_addresses() != cluster.node(1).holds_addresses()
        });
        cluster.run(Duration::from_millis(500));
        assert!(cluster.node(0).holds_addresses() != cluster.node(1).holds_addresses());
        assert_eq!(split_brains(&cluster), [SplitBrain::None; 2]);
        let reported: Vec<NodeEvent> = (0..2).flat_map(|id| events(&mut cluster, id)).collect();
        let begins = reported.iter().filter(|event| matches!(event, NodeEvent::SplitBrain(_))).count();
        let ends = reported.iter().filter(|event| matches!(event, NodeEvent::SplitBrainEnded(_))).count();
        assert!(begins >= 1 && begins == ends, "{reported:?}");
    }
}

#[test]
fn a_peer_that_handed_over_and_went_is_not_suspected() {
    let mut cluster = started(with_paths());
    let now = cluster.now;
    cluster.node_mut(0).leave(now);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.run(Duration::from_millis(100));
    cluster.kill(0);
    cluster.run(Duration::from_secs(1));
    let peer = &cluster.node(1).status(cluster.now).peers[0];
    assert!(peer.down_since.is_some());
    assert_eq!(peer.split_brain, SplitBrain::None);
}

#[test]
fn recorded_moved_and_forged_frames_do_not_keep_a_dead_node_alive() {
    let mut cluster = started(Options { keys: Some([1, 1]), ..with_paths() });
    cluster.run(Duration::from_millis(200));
    // Of a cluster with another key, and of one without: a stranger's frames.
    let mut other = started(Options { keys: Some([7, 7]), ..with_paths() });
    let mut plain = started(with_paths());
    let frames_of = |cluster: &mut Cluster| {
        cluster.run(Duration::from_secs(5));
        let frames = core::mem::take(&mut cluster.path_frames).into_iter();
        frames.filter(|(to, ..)| *to == 0).map(|(_, port, frame)| (port, frame)).collect::<Vec<_>>()
    };
    let mut frames: Vec<(PortId, Vec<u8>)> = frames_of(&mut other);
    frames.extend(frames_of(&mut plain));
    // Lost on the one link, so that they are new, and moved to the other.
    cluster.one_way_ports = std::vec![(1, INSIDE)];
    let replayed = frames_of(&mut cluster);
    frames.extend(replayed.iter().map(|(port, frame)| (PortId(1 - port.0), frame.clone())));
    frames.extend(replayed);
    assert!(frames.len() > 50);
    cluster.kill(1);
    let killed_at = cluster.now;
    for number in 0..400 {
        for (port, frame) in frames.iter().cycle().skip(number).take(3) {
            cluster.hand_to(0, *port, frame);
        }
        cluster.run(Duration::from_millis(1));
    }
    let down_since = cluster.node(0).status(cluster.now).peers[0].down_since.expect("it is found dead all the same");
    assert!(down_since.saturating_since(killed_at) <= FOUND_WITHIN);
    assert!(cluster.dropped(0, DropReason::OtherHost) > 0, "frames of the other link");
    assert!(cluster.dropped(0, DropReason::ControlUnauthenticated) > 0, "frames that are not the peer's");
}

#[test]
fn a_wrong_key_lets_no_path_come_up() {
    let mut cluster = Cluster::begin(Options { keys: Some([1, 2]), ..with_paths() });
    cluster.run(Duration::from_secs(2));
    for id in 0..2 {
        let status = cluster.node(id).status(cluster.now);
        assert!(status.peers[0].paths.iter().all(|path| path.since.is_none() && path.state == State::Down));
        assert!(status.peers[0].heartbeats.iter().all(Option::is_none));
    }
}

#[test]
fn keys_are_exchanged_over_service_paths_while_the_replication_link_is_down() {
    let mut cluster = started(Options { keys: Some([1, 1]), ..with_paths() });
    fail_replication(&mut cluster, true);
    cluster.run(Duration::from_secs(1));
    let _ = (events(&mut cluster, 0), events(&mut cluster, 1));
    let keys = [1, 9].map(|key| PreSharedKey::new([key; 32])).to_vec();
    let credentials = Arc::new(Credentials::new(keys, None).unwrap());
    for id in 0..2 {
        let now = cluster.now;
        let security = Some(Security { credentials: Arc::clone(&credentials), ..security(1, id, now) });
        let new = Reconfiguration { security, ..with_rules(&cluster, id, rules(None)) };
        reload(&mut cluster, id, new);
    }
    cluster.run(Duration::from_secs(2));
    for id in 0..2 {
        let reported = events(&mut cluster, id);
        assert!(reported.contains(&NodeEvent::SessionKeysExchanged(NodeId(1 - id))), "{reported:?}");
        assert!(!reported.contains(&NodeEvent::PeerDown(NodeId(1 - id))), "{reported:?}");
    }
    assert!(cluster.node(0).holds_addresses() && !cluster.node(1).holds_addresses());
    assert_eq!(cluster.node(0).place(), Place::ALONE);
}

/// Fails the ways whose bits are set, except on the paths in `whole`.
fn fail_paths(cluster: &mut Cluster, failed: u8, whole: [u8; 2]) {
    let is_partitioned = |path: u8, way: u8| !whole.contains(&path) && failed & 1 << (2 * path + way) != 0;
    fail_replication(cluster, is_partitioned(0, 0) || is_partitioned(0, 1));
    let ports = [(1, INSIDE), (2, OUTSIDE)];
    let ways = ports.iter().flat_map(|(path, port)| [0, 1].map(|way| (*path, way, *port)));
    cluster.one_way_ports =
        ways.filter(|(path, way, _)| is_partitioned(*path, *way)).map(|(_, way, port)| (way, port)).collect();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn while_one_path_is_whole_one_node_at_most_is_active(
        phases in proptest::collection::vec((0_u8..1 << WAYS, 0_u8..3, 500_u64..900), 1..8),
    ) {
        let mut cluster = started(with_paths());
        let mut whole = phases[0].1;
        for (failed, next, lasts_ms) in phases {
            // The path that was whole stays so until the next one is up.
            fail_paths(&mut cluster, failed, [whole, next]);
            for _ in 0..lasts_ms {
                cluster.run(Duration::from_millis(1));
                prop_assert!(cluster.node(0).holds_addresses() != cluster.node(1).holds_addresses());
            }
            whole = next;
        }
    }
}
