//! Scenarios in which nodes join the cluster and leave it while packets pass.

use std::time::Duration;
use std::vec::Vec;

use flow::NodeId;

use super::cluster::{Cluster, Compactly, Options, rules, syn};
use super::compact::MULTI_LEVEL;
use super::operations::{reload, with_rules};
use super::{events, exchange};
use crate::node::{NodeEvent, Reconfiguration, ReloadError};

/// Node 0 has no peer from now on.
fn remove_peer(cluster: &mut Cluster) {
    let alone = Reconfiguration { peers: Vec::new(), ..with_rules(cluster, 0, rules(None)) };
    reload(cluster, 0, alone);
}

/// Node 0 has its configured peer, from now on.
fn add_peer(cluster: &mut Cluster) {
    let both = with_rules(cluster, 0, rules(None));
    reload(cluster, 0, both);
}

fn join_after_leave(options: Options) {
    let mut cluster = Cluster::start(options);
    let seen_port = cluster.connect(40_000);
    cluster.kill(1);
    cluster.run(Duration::from_millis(300));
    remove_peer(&mut cluster);
    assert_eq!(cluster.node(0).status(cluster.now).peers.len(), 0);
    assert!(cluster.node(0).holds_addresses(), "the addresses stay where they are");
    let other_port = cluster.connect(40_001);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    assert!(cluster.node(0).status(cluster.now).synchronised, "there is nothing to wait for");

    events(&mut cluster, 0);
    // Node 0 has no socket for it.
    (cluster.is_replication_down, cluster.is_detection_down) = (true, true);
    cluster.restart(1);
    cluster.run(Duration::from_millis(100));
    add_peer(&mut cluster);
    (cluster.is_replication_down, cluster.is_detection_down) = (false, false);
    assert!(cluster.node(0).holds_addresses());
    cluster.run_until("node 1 to have all connections", |cluster| cluster.connections(1) == 2);
    assert!(events(&mut cluster, 0).contains(&NodeEvent::PeerUp(NodeId(1))));
    exchange(&mut cluster, 40_000, seen_port, 1009, 5007);

    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    exchange(&mut cluster, 40_000, seen_port, 1017, 5013);
    exchange(&mut cluster, 40_001, other_port, 1001, 5001);
}

#[test]
fn a_node_that_joins_is_sent_all_connections_and_takes_over() {
    join_after_leave(Options::default());
}

#[test]
fn a_node_that_joins_is_reached_over_an_encrypted_channel() {
    join_after_leave(Options { keys: Some([1, 1]), ..Options::default() });
}

#[test]
fn connections_of_a_removed_owner_go_on_and_expire_at_the_node_that_stays() {
    let mut cluster = Cluster::start(Options { has_groups: true, ..Options::default() });
    cluster.via = Some(1);
    let seen_port = cluster.connect(40_000);
    cluster.client_sends(40_001, syn(), b"");
    assert!(cluster.server_receives().is_some());
    cluster.run(Duration::from_millis(50));
    assert_eq!((cluster.node(1).pipeline().counters().begun, cluster.connections(0)), (2, 2));

    cluster.kill(1);
    cluster.via = None;
    cluster.run(Duration::from_millis(500));
    remove_peer(&mut cluster);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    // A SYN without an answer.
    let after = cluster.now + Duration::from_secs(130);
    while cluster.now < after {
        cluster.run(Duration::from_millis(500));
    }
    assert_eq!(cluster.connections(0), 1);
}

#[test]
fn peers_of_a_filter_stay() {
    let compact = Some(Compactly::of(MULTI_LEVEL));
    let mut cluster = Cluster::start(Options { compact, is_translated: false, ..Options::default() });
    let alone = Reconfiguration { peers: Vec::new(), ..with_rules(&cluster, 0, rules(None)) };
    let now = cluster.now;
    assert_eq!(cluster.node_mut(0).reload(now, alone), Err(ReloadError::PeersOfFilter));
}
