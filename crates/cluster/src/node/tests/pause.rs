//! A node that did not run for a while, what began during a partition, and rounds that were given up.

use std::time::Duration;
use std::vec::Vec;

use flow::conntrack::ProtocolState;
use flow::wire::ip_protocol;
use flow::{Connection, Direction, NodeId, Tuple};
use replication::representation::precise;
use replication::{Kind, Store};

use super::cluster::{CLIENT, Cluster, Options, SERVER};
use super::exchange;
use crate::pipeline::ChainStates;
use crate::pipeline::{Applied, StaleReplicas};

#[test]
fn a_standby_that_stood_still_does_not_take_its_own_silence_for_the_active_nodes() {
    let mut cluster = Cluster::start(Options::default());
    let back = cluster.now + Duration::from_secs(5);
    cluster.node_mut(1).handle_timeout(back);
    assert!(!cluster.node(1).holds_addresses(), "what came meanwhile waits to be read");
    let still_nothing = back + Duration::from_millis(150);
    cluster.node_mut(1).handle_timeout(still_nothing);
    assert!(cluster.node(1).holds_addresses(), "a node that is always late notices a death all the same");
}

#[test]
fn connections_outlive_an_active_node_that_starts_anew_while_the_standby_stands_still() {
    let mut cluster = Cluster::start(Options::default());
    let ports: Vec<(u16, u16)> = (40_000..40_010).map(|port| (port, cluster.connect(port))).collect();
    assert_eq!(cluster.connections(1), 10, "the standby has copies");
    let standby = cluster.pause(1);
    cluster.run(Duration::from_millis(300));
    cluster.restart(0);
    cluster.run_until("node 0 to serve without any", |cluster| cluster.node(0).holds_addresses());
    cluster.run(Duration::from_secs(1));
    cluster.go_on(1, standby);
    cluster.run_until("node 0 to have them back", |cluster| cluster.connections(0) == 10);
    cluster.run(Duration::from_secs(1));
    assert!(cluster.node(0).holds_addresses() && !cluster.node(1).holds_addresses());
    assert_eq!(cluster.connections(1), 10);
    for (port, seen_port) in ports {
        exchange(&mut cluster, port, seen_port, 1001, 5001);
    }
}

#[test]
fn a_standby_whose_machine_was_suspended_stays_standby() {
    let mut cluster = Cluster::start(Options::default());
    cluster.now = cluster.now + Duration::from_secs(3600);
    cluster.run(Duration::from_secs(1));
    assert!(cluster.node(0).holds_addresses() && !cluster.node(1).holds_addresses());
}

#[test]
fn a_connection_that_began_during_a_split_is_replaced_by_one_of_the_node_that_serves() {
    let mut cluster = Cluster::start(Options::default());
    let _ = cluster.connect(40_000);
    let now = cluster.now;
    let standby = cluster.node_mut(1).pipeline_mut();
    let (slot, known) = standby.table().iter().next().map(|(slot, known)| (slot, *known)).expect("it has a copy");
    standby.claim(now, slot);
    let original = Tuple::v4(ip_protocol::TCP, (CLIENT, 41_000), (SERVER, 80));
    let mut copy = known;
    copy.original = original;
    assert_eq!(standby.replicas().apply(now, NodeId(0), copy), Applied::Conflict, "its answers come as the other's do");
    standby.replicas().end_conflicting(&copy);
    assert_eq!(standby.replicas().apply(now, NodeId(0), copy), Applied::Taken);
    assert!(standby.lookup(&known.original).is_none());
}

#[test]
fn a_copy_that_ended_is_cleared_out_though_a_round_was_given_up_for_another() {
    let mut cluster = Cluster::start(Options::default());
    let _ = cluster.connect(40_000);
    let now = cluster.now;
    let node = cluster.node_mut(1);
    assert_eq!(node.pipeline.table().len(), 1, "it has a copy");
    let resync = &mut node.replication.peers[0].resync;
    resync.start();
    // The round is given up for one that does not have the connection.
    resync.start();
    resync.complete();
    let pipeline = &mut node.pipeline;
    let remove =
        |epoch, cursor, slots| pipeline.replicas().sweep(now, NodeId(0), epoch, StaleReplicas::Remove, cursor, slots);
    assert!(resync.step(remove), "the replicas of the first round are still uncertain");
    assert_eq!(node.pipeline.table().len(), 0);
}

#[test]
fn a_stale_replica_in_the_other_direction_is_replaced_whether_the_node_claims_all_or_not() {
    for (node, claims_all) in [(0, true), (0, false), (1, true), (1, false)] {
        let mut cluster = Cluster::start(Options::default());
        let (now, peer) = (cluster.now, NodeId(1 - node));
        let there = Tuple::v4(ip_protocol::UDP, (CLIENT, 500), (SERVER, 500));
        let value = cluster.node_mut(node);
        let crate::node::Node { pipeline, replication, .. } = value;
        let (_, mut store) = replication.session(pipeline, claims_all, 0).expect("there is a session");
        for original in [there, there.inverse()] {
            let connection = Connection::new(original, peer, ProtocolState::default(), now + Duration::from_secs(30));
            let mut update = Vec::new();
            precise::encode(now, &connection, &ChainStates(store.pipeline.chain()), &mut update);
            store.apply(now, peer, Kind::Update, &update).expect("it is well-formed");
        }
        let counters = *store.counters;
        assert_eq!((counters.taken, counters.conflicts), (2, 0), "node {node}, claims all: {claims_all}");
        let found = pipeline.lookup(&there.inverse()).map(|(_, direction)| direction);
        assert_eq!((found, pipeline.table().len()), (Some(Direction::Original), 1), "the new connection's replica");
    }
}
