//! Replicas that differ from what their owner sent, and connections that ended while no peer could receive it.

use std::time::Duration;
use std::vec::Vec;

use flow::connection::flags;
use flow::table::Slot;
use flow::wire::{build, ip_protocol, tcp_flags};
use flow::{Connection, Direction, Instant, NodeId, Tuple};
use replication::AntiEntropyStatus;

use super::cluster::{
    CLIENT, CLIENT_MAC, Cluster, INSIDE, OUTSIDE, Options, SERVER, SERVER_MAC, SHARED_OUTSIDE, port_mac, segment, syn,
};
use super::{ACK, FIN_ACK, events, exchange};
use crate::node::NodeEvent;

const RST_ACK: u8 = tcp_flags::RST | tcp_flags::ACK;
/// Longer than a connection that was reset is remembered.
const CLOSED_AFTER: Duration = Duration::from_secs(11);
/// What is wrong is found and put right within this.
const REPAIRED_WITHIN: Duration = Duration::from_secs(10);

fn anti_entropy(cluster: &Cluster, id: u8) -> AntiEntropyStatus {
    cluster.node(id).status(cluster.now).peers[0].session.expect("they replicate").anti_entropy
}

/// Whether the node has found, since `since`, that its replicas are what the other sent.
fn has_agreed_since(cluster: &Cluster, id: u8, since: Instant) -> bool {
    anti_entropy(cluster, id).agreed_at.is_some_and(|at| at > since)
}

fn run_until_agreed(cluster: &mut Cluster) {
    let since = cluster.now;
    cluster.run_until("both nodes to agree", |cluster| (0..2).all(|id| has_agreed_since(cluster, id, since)));
}

/// The record that the node has of the client's connection from `port`.
fn known(cluster: &Cluster, id: u8, port: u16) -> Option<(Slot, Connection)> {
    let pipeline = cluster.node(id).pipeline();
    let (slot, direction) = pipeline.lookup(&Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80)))?;
    assert_eq!(direction, Direction::Original);
    Some((slot, *pipeline.connection(slot)?))
}

fn known_ports(cluster: &Cluster, id: u8) -> Vec<u16> {
    (40_000..41_001).filter(|port| known(cluster, id, *port).is_some()).collect()
}

/// A cluster with connections from these ports, each with the port that the server sees it under.
fn with_connections(ports: std::ops::Range<u16>, options: Options) -> (Cluster, Vec<(u16, u16)>) {
    let mut cluster = Cluster::start(options);
    let seen = ports.map(|port| (port, cluster.connect(port))).collect();
    (cluster, seen)
}

fn partition(cluster: &mut Cluster, is_partitioned: bool) {
    (cluster.is_replication_down, cluster.is_detection_down) = (is_partitioned, is_partitioned);
}

/// Data passes through the node both ways on these connections (the client's port and the one that the server sees), the
/// server resets them, and their time in CLOSE passes.
fn reset_at(cluster: &mut Cluster, node: u8, connections: &[(u16, u16)]) {
    for (port, seen_port) in connections {
        client_sends_to(cluster, node, *port, segment(ACK, 1001, 5001));
        server_sends_to(cluster, node, *seen_port, segment(ACK, 5001, 1003));
        server_sends_to(cluster, node, *seen_port, segment(RST_ACK, 5001, 1003));
    }
    cluster.run(CLOSED_AFTER);
    forget_received(cluster);
}

/// A segment of the server reaches the node, whether or not the other is active.
fn server_sends_to(cluster: &mut Cluster, node: u8, to_port: u16, segment: build::Tcp<'_>) {
    let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (SHARED_OUTSIDE, to_port));
    let destination = port_mac(node, OUTSIDE);
    let envelope = build::Envelope { source: SERVER_MAC, destination, ..build::Envelope::default() };
    cluster.hand_in(OUTSIDE, envelope.tcp(&tuple, segment, b""));
}

/// A segment of the client, with two bytes of data, reaches the node, whether or not the other is active.
fn client_sends_to(cluster: &mut Cluster, node: u8, port: u16, segment: build::Tcp<'_>) {
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80));
    let destination = port_mac(node, INSIDE);
    let envelope = build::Envelope { source: CLIENT_MAC, destination, ..build::Envelope::default() };
    cluster.hand_in(INSIDE, envelope.tcp(&tuple, segment, b"on"));
}

fn forget_received(cluster: &mut Cluster) {
    while cluster.server_receives().is_some() || cluster.client_receives().is_some() {}
}

/// The link between the nodes is cut, for so long that each believes the other dead.
fn both_become_active(cluster: &mut Cluster) {
    partition(cluster, true);
    cluster.run_until("both nodes to be active", |cluster| (0..2).all(|id| cluster.node(id).holds_addresses()));
    cluster.run(Duration::from_secs(2));
}

/// The link is whole again. The second node took the addresses later, and keeps them.
fn heal(cluster: &mut Cluster) {
    partition(cluster, false);
    cluster.via = None;
    cluster.run_until("the first node to yield", |cluster| !cluster.node(0).holds_addresses());
    run_until_agreed(cluster);
    assert!(cluster.node(1).holds_addresses());
    forget_received(cluster);
}

#[test]
fn a_copy_that_was_changed_removed_or_made_up_behind_the_nodes_back_is_put_right() {
    let (mut cluster, _) = with_connections(40_000..40_010, Options::default());
    run_until_agreed(&mut cluster);
    let (changed, _) = known(&cluster, 1, 40_001).unwrap();
    let (removed, _) = known(&cluster, 1, 40_002).unwrap();
    let (_, mut made_up) = known(&cluster, 1, 40_003).unwrap();
    let now = cluster.now;
    let table = cluster.node_mut(1).pipeline_mut().table_to_break();
    table.get_mut(changed).unwrap().version ^= 1 << 20;
    table.remove(removed).unwrap();
    made_up.original.source_port = 50_000;
    made_up.reply = made_up.original.inverse();
    table.insert(made_up, now).unwrap();
    events(&mut cluster, 1);

    let began = cluster.now;
    run_until_agreed(&mut cluster);
    assert!(cluster.now.saturating_since(began) < REPAIRED_WITHIN);
    let status = anti_entropy(&cluster, 1);
    assert_eq!((status.divergent_found, status.repaired, status.extra_removed, status.divergent), (3, 2, 1, 0));
    assert_eq!(cluster.connections(1), 10);
    for port in 40_000..40_010 {
        let (master, copy) = (known(&cluster, 0, port).unwrap().1, known(&cluster, 1, port).unwrap().1);
        assert_eq!((copy.version, copy.reply, copy.owner), (master.version, master.reply, NodeId(0)));
    }
    let reported = events(&mut cluster, 1);
    let repaired: u32 = reported
        .iter()
        .map(|event| if let NodeEvent::ReplicasAgree { repaired, .. } = event { *repaired } else { 0 })
        .sum();
    assert_eq!(repaired, 3, "{reported:?}");
}

#[test]
fn connections_that_found_no_room_on_the_standby_come_when_there_is_room() {
    let options = Options { standby_connections_max: Some(8), ..Options::default() };
    let (mut cluster, seen) = with_connections(40_000..40_012, options);
    cluster.run_until("the standby to know what it lacks", |cluster| anti_entropy(cluster, 1).divergent_found == 4);
    cluster.run(Duration::from_millis(10));
    assert_eq!(anti_entropy(&cluster, 1).divergent, 4);
    assert_eq!(anti_entropy(&cluster, 1).agreed_at, None);
    assert!(!cluster.node(1).status(cluster.now).synchronised, "it lacks four");
    let reported = events(&mut cluster, 1);
    assert!(reported.contains(&NodeEvent::ReplicaIncomplete(NodeId(0))), "{reported:?}");
    assert!(reported.contains(&NodeEvent::ReplicasDiffer { peer: NodeId(0), connections: 4 }), "{reported:?}");
    let rounds = cluster.node(0).status(cluster.now).peers[0].session.unwrap().rounds;

    reset_at(&mut cluster, 0, &seen[..6]);
    run_until_agreed(&mut cluster);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (6, 6));
    let status = anti_entropy(&cluster, 1);
    assert_eq!((status.divergent, status.repaired), (0, 4));
    assert_eq!(cluster.node(0).status(cluster.now).peers[0].session.unwrap().rounds, rounds, "without a new round");
    assert!(cluster.node(1).status(cluster.now).synchronised, "it has all once more, and reports it");
    cluster.run(Duration::from_millis(500));
    assert!(
        cluster.node(0).status(cluster.now).readiness.is_ready(),
        "{:?}",
        cluster.node(0).status(cluster.now).readiness
    );

    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    for (port, seen_port) in &seen[6..] {
        exchange(&mut cluster, *port, *seen_port, 1001, 5001);
    }
}

#[test]
fn replicas_take_the_places_of_what_the_standby_forwarded_in_vain_while_it_was_active() {
    let mut cluster = Cluster::start(Options { connections_max: 8, ..Options::default() });
    cluster.connect(39_000);
    for port in 40_000..40_020 {
        cluster.client_sends(port, syn(), b"");
        assert!(cluster.server_receives().is_some(), "port {port}");
    }
    assert_eq!((cluster.connections(0), cluster.connections(1)), (8, 1), "nobody answers a flood");
    let now = cluster.now;
    cluster.node_mut(0).drain(now, false).expect("the other has everything");
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    let seen: Vec<u16> = (41_000..41_007).map(|port| cluster.connect(port)).collect();
    run_until_agreed(&mut cluster);
    let reported = events(&mut cluster, 0);
    assert!(!reported.contains(&NodeEvent::ReplicaIncomplete(NodeId(1))), "{reported:?}");
    assert_eq!(known_ports(&cluster, 0), known_ports(&cluster, 1));
    let now = cluster.now;
    cluster.node_mut(0).undrain(now);
    cluster.kill(1);
    cluster.run_until("node 0 to take over", |cluster| cluster.node(0).holds_addresses());
    for (port, seen_port) in (41_000..).zip(seen) {
        exchange(&mut cluster, port, seen_port, 1001, 5001);
    }
}

#[test]
fn what_ended_where_the_addresses_stay_does_not_come_back_from_the_other_node() {
    let (mut cluster, seen) = with_connections(40_000..40_006, Options::default());
    both_become_active(&mut cluster);
    // Packets reach the second node, which keeps the addresses in the end. The first believes itself the owner of all.
    reset_at(&mut cluster, 1, &seen[..3]);
    cluster.via = Some(1);
    let _ = cluster.connect(41_000);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (6, 4));
    assert_eq!(cluster.node(1).pipeline().tombstones().held, 3);

    heal(&mut cluster);
    for id in 0..2 {
        assert_eq!(known_ports(&cluster, id), [40_003, 40_004, 40_005, 41_000], "node {id}");
    }
    assert_eq!(cluster.node(1).pipeline().tombstones().refused, 3);
    for (port, seen_port) in &seen[3..] {
        exchange(&mut cluster, *port, *seen_port, 1001, 5001);
    }
}

#[test]
fn what_ended_at_the_node_that_yields_does_not_come_back_from_where_the_addresses_stay() {
    let (mut cluster, seen) = with_connections(40_000..40_006, Options::default());
    both_become_active(&mut cluster);
    // Packets reach the first node. The second has replicas, of which it has seen no packet, and replicates them.
    reset_at(&mut cluster, 0, &seen[..3]);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (3, 6));
    assert_eq!(cluster.node(0).pipeline().tombstones().held, 3);

    heal(&mut cluster);
    for id in 0..2 {
        assert_eq!(known_ports(&cluster, id), [40_003, 40_004, 40_005], "node {id}");
    }
    assert_eq!(cluster.node(0).pipeline().tombstones().refused, 3);
    for (port, seen_port) in &seen[3..] {
        exchange(&mut cluster, *port, *seen_port, 1001, 5001);
    }
}

#[test]
fn what_ended_on_both_sides_of_a_partition_is_gone() {
    let (mut cluster, seen) = with_connections(40_000..40_002, Options::default());
    both_become_active(&mut cluster);
    reset_at(&mut cluster, 1, &seen[..1]);
    reset_at(&mut cluster, 0, &seen[..1]);
    assert!((0..2).all(|id| known(&cluster, id, 40_000).is_none()));
    heal(&mut cluster);
    assert!((0..2).all(|id| known(&cluster, id, 40_000).is_none() && known(&cluster, id, 40_001).is_some()));
}

#[test]
fn a_connection_that_ended_on_one_side_and_goes_on_on_the_other_goes_on() {
    let (mut cluster, seen) = with_connections(40_000..40_002, Options::default());
    both_become_active(&mut cluster);
    // For example an attacker's reset that the end points never saw; packets reach node 1.
    reset_at(&mut cluster, 0, &seen[..1]);
    client_sends_to(&mut cluster, 1, 40_000, segment(ACK, 1001, 5001));
    assert_eq!(known(&cluster, 1, 40_000).unwrap().1.flags & flags::REPLICA, 0, "node 1 has seen a packet");
    assert!(known(&cluster, 0, 40_000).is_none());
    cluster.run(Duration::from_secs(2));

    heal(&mut cluster);
    assert!((0..2).all(|id| known(&cluster, id, 40_000).is_some()));
    forget_received(&mut cluster);
    exchange(&mut cluster, 40_000, seen[0].1, 1003, 5001);
}

#[test]
fn a_tuple_used_during_a_partition_is_the_new_connection_on_both_nodes() {
    let (mut cluster, seen) = with_connections(40_000..40_001, Options::default());
    both_become_active(&mut cluster);
    reset_at(&mut cluster, 0, &seen[..1]);
    assert!(known(&cluster, 0, 40_000).is_none());
    // A tombstone of the end is kept, as node 1 could not receive it: a new connection is distinguished from the old.
    let reopened = cluster.connect(40_000);
    assert!(known(&cluster, 0, 40_000).unwrap().1.version > 0xffff);

    heal(&mut cluster);
    let (master, copy) = (known(&cluster, 0, 40_000).unwrap().1, known(&cluster, 1, 40_000).unwrap().1);
    assert_eq!((copy.owner, copy.version, copy.reply), (master.owner, master.version, master.reply));
    exchange(&mut cluster, 40_000, reopened, 1001, 5001);
}

#[test]
fn a_tuple_used_after_a_take_over_is_the_new_connection_on_both_nodes() {
    let (mut cluster, seen) = with_connections(40_000..40_001, Options::default());
    cluster.client_sends(40_000, segment(FIN_ACK, 1001, 5001), b"");
    cluster.server_sends(seen[0].1, segment(FIN_ACK, 5001, 1002), b"");
    cluster.client_sends(40_000, segment(ACK, 1002, 5002), b"");
    forget_received(&mut cluster);
    let now = cluster.now;
    cluster.node_mut(0).leave(now);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.client_sends(40_000, build::Tcp { sequence: 900_000, ..syn() }, b"");
    let seen_port = cluster.server_receives().expect("a SYN in TIME_WAIT begins anew").tuple.source_port;
    let answer = build::Tcp { acknowledgement: 900_001, ..super::cluster::syn_ack() };
    cluster.server_sends(seen_port, answer, b"");
    assert!(cluster.client_receives().is_some(), "and is replicated with its answer");
    run_until_agreed(&mut cluster);
    let (copy, master) = (known(&cluster, 0, 40_000).unwrap().1, known(&cluster, 1, 40_000).unwrap().1);
    assert_eq!((copy.owner, copy.version, copy.protocol.state), (NodeId(1), master.version, master.protocol.state));
    assert_eq!(copy.reply.destination_ip(), SHARED_OUTSIDE);
}

#[test]
fn ends_are_remembered_only_while_a_peer_that_knows_of_them_is_away() {
    let (mut cluster, seen) = with_connections(40_000..40_004, Options::default());
    reset_at(&mut cluster, 0, &seen[..1]);
    assert_eq!((cluster.connections(0), cluster.node(0).pipeline().tombstones().held), (3, 0), "node 1 received it");
    cluster.kill(1);
    cluster.run(Duration::from_secs(2));
    let later = cluster.connect(40_010);
    reset_at(&mut cluster, 0, &[seen[1], (40_010, later)]);
    assert_eq!(cluster.connections(0), 2);
    assert_eq!(cluster.node(0).pipeline().tombstones().held, 1, "of the later one node 1 never knew");
}
