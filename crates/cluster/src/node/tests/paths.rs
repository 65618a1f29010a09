//! Failure detection over every path: the replication link, and the links of both ports.

use alloc::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use flow::{DropReason, NodeId, PortId};
use proptest::prelude::*;
use replication::secure::{Credentials, PreSharedKey, Security};

use super::cluster::{Cluster, INSIDE, OUTSIDE, Options, rules, security};
use super::operations::{reload, with_rules};
use super::{events, exchange};
use crate::failure_detector::State;
use crate::node::{NodeEvent, Path, Reconfiguration, SplitBrain};
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
        assert!(!peer.could_take_over(), "its copies grow old");
        let states = states(&cluster, id);
        let expected =
            [(Path::Replication, State::Down), (Path::Port(INSIDE), State::Up), (Path::Port(OUTSIDE), State::Up)];
        assert_eq!(states, expected);
        let reported = events(&mut cluster, id);
        let other = NodeId(1 - id);
        assert!(reported.contains(&NodeEvent::PathDown { peer: other, path: Path::Replication }), "{reported:?}");
        assert_eq!(reported.iter().filter(|event| **event == NodeEvent::Degraded(other)).count(), 1, "{reported:?}");
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
    fail_replication(&mut cluster, false);
    cluster.run_until("the copy to be there", |cluster| cluster.connections(1) == 1);
    cluster.run_until("node 1 to be ready", |cluster| cluster.node(0).status(cluster.now).peers[0].could_take_over());
    assert!(!cluster.node(0).status(cluster.now).peers[0].is_degraded());
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
        cluster.run(Duration::from_millis(50));
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
    assert!(cluster.dropped(0, DropReason::LocalUnhandled) > 0, "frames that are not the peer's");
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
