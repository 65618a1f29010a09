//! Compact replication and deferral where both nodes are at work: each holds a group of addresses and has the other's filter, and both
//! directions of a connection come to one node.

use std::time::Duration;

use flow::DropReason;
use replication::compact::Representation;
use replication::deferral;

use super::cluster::{Cluster, Compactly, Options, syn, syn_ack};
use super::compact::{MULTI_LEVEL, client_segment_passes, connect, goes_on, is_replicated, options, outwards};
use super::{ACK, exchange};
use crate::group::{GroupId, GroupSet};
use crate::node::{ConfigError, Node};
use crate::pipeline::SharingConfig;

const FIRST: GroupSet = GroupSet::EMPTY.with(GroupId::FIRST);
const SECOND: GroupSet = GroupSet::EMPTY.with(GroupId(1));
const COUNT: u16 = 200;
/// Of the connections that come to node 1.
const SECOND_FROM: u16 = 30_000;

fn beside(options: Options) -> Options {
    Options { has_groups: true, is_symmetric: true, ..options }
}

fn is_held_by_each(cluster: &Cluster) -> bool {
    cluster.node(0).roles().held() == FIRST && cluster.node(1).roles().held() == SECOND
}

fn started(options: Options) -> Cluster {
    let mut cluster = Cluster::start(beside(options));
    cluster.run_until("each node to hold its group", |cluster| is_held_by_each(cluster) && cluster.is_settled());
    cluster
}

fn ports_of(id: u8) -> impl Iterator<Item = u16> + Clone {
    let first = if id == 0 { 20_000 } else { SECOND_FROM };
    first..first + COUNT
}

/// Each node forwards `COUNT` connections, which the other has as entries.
fn connected(representation: Representation) -> Cluster {
    let mut cluster = started(options(Compactly::of(representation)));
    for id in [0, 1] {
        cluster.via = Some(id);
        ports_of(id).for_each(|port| connect(&mut cluster, port));
    }
    cluster
        .run_until("everything to be replicated", |cluster| [0, 1].iter().all(|id| is_replicated(cluster.node(*id))));
    cluster
}

/// How many of the node's connections go on by way of `via`.
fn going_on(cluster: &mut Cluster, of: u8, via: u8) -> usize {
    cluster.via = Some(via);
    ports_of(of).filter(|port| goes_on(cluster, *port)).count()
}

fn entries(node: &Node) -> u64 {
    node.compact_status().expect("connections are replicated compactly").sender.entries
}

#[test]
fn connections_of_both_groups_survive_either_node_whatever_the_representation() {
    for representation in Representation::ALL {
        for dies in [0, 1] {
            let lives = 1 - dies;
            let mut cluster = connected(representation);
            let what = std::format!("{}, node {dies} dies", representation.name());
            assert_eq!(cluster.connections(lives), u32::from(COUNT), "{what}: each table holds the node's own");
            cluster.kill(dies);
            cluster.run_until("the other to hold both groups", |cluster| {
                cluster.node(lives).roles().held() == FIRST.or(SECOND)
            });
            assert_eq!(going_on(&mut cluster, dies, lives), usize::from(COUNT), "{what}");
            let own =
                ports_of(lives).filter(|port| client_segment_passes(&mut cluster, *port, ACK, 1001, 5001)).count();
            assert_eq!(own, usize::from(COUNT), "{what}: its own");
        }
    }
}

#[test]
fn a_node_that_comes_back_for_its_group_goes_on_with_its_connections() {
    for representation in Representation::ALL {
        let mut cluster = connected(representation);
        cluster.kill(1);
        cluster.run_until("node 0 to hold both groups", |cluster| cluster.node(0).roles().held() == FIRST.or(SECOND));
        cluster.via = Some(0);
        let sending = ports_of(1).step_by(2).filter(|port| goes_on(&mut cluster, *port)).count();
        assert_eq!(sending, usize::from(COUNT) / 2);
        cluster.restart(1);
        cluster.run_until("node 1 to have its group back", is_held_by_each);
        // Also those that were silent through both moves.
        assert_eq!(going_on(&mut cluster, 1, 1), usize::from(COUNT), "{}", representation.name());
        assert_eq!(going_on(&mut cluster, 0, 0), usize::from(COUNT), "{}", representation.name());
    }
}

#[test]
fn a_node_lets_the_connections_of_a_group_go_that_it_has_given_away_and_no_others() {
    let mut cluster = connected(MULTI_LEVEL);
    cluster.kill(1);
    cluster.run_until("node 0 to hold both groups", |cluster| cluster.node(0).roles().held() == FIRST.or(SECOND));
    assert_eq!(going_on(&mut cluster, 1, 0), usize::from(COUNT));
    cluster.restart(1);
    cluster.run_until("node 1 to have its group back", is_held_by_each);
    assert_eq!(going_on(&mut cluster, 1, 1), usize::from(COUNT));
    cluster.run_until("node 0 to let them go", |cluster| cluster.connections(0) == u32::from(COUNT));
    cluster.run(Duration::from_secs(5));
    assert_eq!((entries(cluster.node(0)), entries(cluster.node(1))), (COUNT.into(), COUNT.into()));
    // Those of node 0 have been silent meanwhile.
    assert_eq!(going_on(&mut cluster, 0, 0), usize::from(COUNT));
    cluster
        .run_until("everything to be replicated", |cluster| [0, 1].iter().all(|id| is_replicated(cluster.node(*id))));
    cluster.kill(0);
    cluster.run_until("node 1 to hold both groups", |cluster| cluster.node(1).roles().held() == FIRST.or(SECOND));
    assert_eq!((going_on(&mut cluster, 0, 1), going_on(&mut cluster, 1, 1)), (COUNT.into(), COUNT.into()));
}

#[test]
fn connections_that_are_silent_since_their_node_came_back_are_let_go_only_once_it_has_them() {
    for representation in Representation::ALL {
        let mut cluster = connected(representation);
        cluster.kill(1);
        cluster.run_until("node 0 to hold both groups", |cluster| cluster.node(0).roles().held() == FIRST.or(SECOND));
        assert_eq!(going_on(&mut cluster, 1, 0), usize::from(COUNT));
        cluster.restart(1);
        cluster.run_until("node 1 to have its group back", is_held_by_each);
        // Node 0 compares its connections with the filter of node 1 meanwhile.
        cluster.run(Duration::from_secs(15));
        assert_eq!(cluster.connections(0), 2 * u32::from(COUNT), "{}", representation.name());
        assert_eq!(going_on(&mut cluster, 1, 1), usize::from(COUNT), "{}", representation.name());
    }
}

#[test]
fn after_a_split_each_connection_is_at_its_node_and_none_is_lost() {
    let mut cluster = connected(MULTI_LEVEL);
    (cluster.is_replication_down, cluster.is_detection_down) = (true, true);
    cluster.run_until("both nodes to hold both groups", |cluster| {
        [0, 1].iter().all(|id| cluster.node(*id).roles().held() == FIRST.or(SECOND))
    });
    // Packets of both groups come to either node.
    let odd = |id: u8| ports_of(id).filter(|port| port % 2 == 1);
    for (of, via) in [(0, 1), (1, 0)] {
        cluster.via = Some(via);
        assert_eq!(odd(of).filter(|port| goes_on(&mut cluster, *port)).count(), usize::from(COUNT) / 2);
    }
    (cluster.is_replication_down, cluster.is_detection_down) = (false, false);
    cluster.run_until("each node to hold its group", is_held_by_each);
    // Both nodes have compared their connections, one after the other.
    cluster.run(Duration::from_secs(15));
    for id in [0, 1] {
        assert_eq!(going_on(&mut cluster, id, id), usize::from(COUNT), "those of node {id}");
    }
}

#[test]
fn a_connection_has_no_entry_before_it_is_answered_although_several_groups_forward() {
    let mut cluster = started(options(Compactly::of(MULTI_LEVEL)));
    cluster.via = Some(0);
    cluster.client_sends(20_000, syn(), b"");
    assert!(cluster.server_receives().is_some());
    assert_eq!(entries(cluster.node(0)), 0);
    cluster.server_sends_frame(|envelope| envelope.tcp(&outwards(20_000).inverse(), syn_ack(), b""));
    assert_eq!(entries(cluster.node(0)), 1);
}

#[test]
fn a_stray_segment_at_the_other_node_ends_nothing() {
    let mut cluster = started(options(Compactly::of(MULTI_LEVEL)));
    // Node 1 no longer expects entries of connections that its group had before.
    cluster.run(Duration::from_secs(5));
    cluster.via = Some(0);
    ports_of(0).for_each(|port| connect(&mut cluster, port));
    cluster.run_until("everything to be replicated", |cluster| is_replicated(cluster.node(0)));
    cluster.via = Some(1);
    assert!(!client_segment_passes(&mut cluster, 20_000, ACK, 1001, 5001), "both directions come to node 0");
    cluster.run(Duration::from_millis(50));
    assert_eq!(cluster.dropped(1, DropReason::NoConnection), 1);
    cluster.via = Some(0);
    let own = ports_of(0).filter(|port| client_segment_passes(&mut cluster, *port, ACK, 1001, 5001)).count();
    assert_eq!(own, usize::from(COUNT));
}

#[test]
fn a_filter_is_refused_where_packets_of_one_connection_come_to_several_nodes() {
    let config =
        super::cluster::node_config(0, Options { is_symmetric: false, ..beside(options(Compactly::of(MULTI_LEVEL))) });
    assert_eq!(config.sharing, Some(SharingConfig::default()));
    let refused = Node::new(config, flow::Instant::ZERO).err();
    assert!(matches!(refused, Some(ConfigError::NotWithCompact(_))), "{refused:?}");
}

#[test]
fn deferred_connections_of_a_group_are_replicated_once_they_are_old_enough_or_the_group_moves() {
    const THRESHOLD: Duration = Duration::from_millis(500);
    let lazy = Some(deferral::Config::Fixed(THRESHOLD));
    let mut cluster = started(Options { lazy, connections_max: 4096, ..Options::default() });
    cluster.via = Some(0);
    let old = cluster.connect(40_000);
    cluster.via = Some(1);
    let _ = cluster.connect(40_001);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 1), "each node has its own");
    cluster.run(THRESHOLD * 2);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (2, 2));
    // It has just begun when its group moves.
    cluster.via = Some(0);
    let young = cluster.connect(40_002);
    let now = cluster.now;
    cluster.node_mut(0).drain(now, false).expect("the other has everything");
    cluster.run_until("node 1 to hold both groups", |cluster| cluster.node(1).roles().held() == FIRST.or(SECOND));
    cluster.via = Some(1);
    for (port, seen) in [(40_000, old), (40_002, young)] {
        exchange(&mut cluster, port, seen, 1001, 5001);
    }
}
