//! Both nodes at work: each holds a group of addresses and backs the other up.

use std::time::Duration;

use flow::wire::{build, ip_protocol};
use flow::{NodeId, Tuple, WorkerId};

use super::cluster::{CLIENT, Cluster, Options, SERVER, rules, segment, syn, syn_ack};
use super::operations::{reload, with_rules};
use super::site::Site;
use super::{ACK, events};
use crate::group::{GroupId, GroupSet};
use crate::node::{NodeEvent, Reconfiguration, Reevaluation, ReloadError};
use crate::role::State;

const FIRST: GroupSet = GroupSet::EMPTY.with(GroupId::FIRST);
const SECOND: GroupSet = GroupSet::EMPTY.with(GroupId(1));
const BOTH: GroupSet = FIRST.or(SECOND);

/// Addresses are not translated: then a connection keeps to the node that its client and server choose.
fn options() -> Options {
    Options { is_translated: false, has_groups: true, ..Options::default() }
}

fn is_held_by_each(cluster: &Cluster) -> bool {
    cluster.node(0).roles().held() == FIRST && cluster.node(1).roles().held() == SECOND
}

fn started() -> Cluster {
    let mut cluster = Cluster::start(options());
    cluster.run_until("each node to hold its group", is_held_by_each);
    cluster
}

fn server_sends(cluster: &mut Cluster, port: u16, segment: build::Tcp<'_>) {
    let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (CLIENT, port));
    cluster.server_sends_frame(|envelope| envelope.tcp(&tuple, segment, b""));
}

/// A connection whose packets go by way of the node.
fn connect(cluster: &mut Cluster, via: u8, port: u16) {
    cluster.via = Some(via);
    cluster.client_sends(port, syn(), b"");
    assert_eq!(cluster.server_receives().expect("the SYN passes").tuple.source_port, port);
    server_sends(cluster, port, syn_ack());
    cluster.client_receives().expect("the SYN/ACK passes");
    cluster.client_sends(port, segment(ACK, 1001, 5001), b"");
    cluster.server_receives().expect("the ACK passes");
}

/// Segments pass by way of the node, both ways.
fn exchange(cluster: &mut Cluster, via: u8, port: u16) {
    cluster.via = Some(via);
    cluster.client_sends(port, segment(ACK, 1001, 5001), b"");
    cluster.server_receives().expect("a segment of the client's passes");
    server_sends(cluster, port, segment(ACK, 5001, 1001));
    cluster.client_receives().expect("a segment of the server's passes");
}

/// The owner of the connection, as the node knows it.
fn owner(cluster: &Cluster, id: u8, port: u16) -> Option<NodeId> {
    let pipeline = cluster.node(id).pipeline();
    let (slot, _) = pipeline.lookup(&Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80)))?;
    pipeline.connection(slot).map(|connection| connection.owner)
}

#[test]
fn each_node_forwards_its_own_and_has_copies_of_the_others() {
    let mut cluster = started();
    connect(&mut cluster, 0, 40_000);
    connect(&mut cluster, 1, 40_001);
    for id in 0..2 {
        assert_eq!(cluster.connections(id), 2);
        assert_eq!((owner(&cluster, id, 40_000), owner(&cluster, id, 40_001)), (Some(NodeId(0)), Some(NodeId(1))));
    }
    exchange(&mut cluster, 0, 40_000);
    exchange(&mut cluster, 1, 40_001);
    let status = cluster.node(0).status(cluster.now);
    assert_eq!(status.role, State::Active);
    assert_eq!((status.groups[0].role, status.groups[1].role), (State::Active, State::Standby));
    assert!(status.peers[0].holds(GroupId(1)) && !status.peers[0].holds(GroupId::FIRST));
    assert_eq!(cluster.node(0).pipeline().counters().taken_over, 0);
}

#[test]
fn when_one_dies_the_other_carries_all_until_it_comes_back_for_its_group() {
    let mut cluster = started();
    connect(&mut cluster, 0, 40_000);
    connect(&mut cluster, 1, 40_001);
    connect(&mut cluster, 1, 40_002);
    events(&mut cluster, 0);

    cluster.kill(1);
    cluster.run_until("node 0 to hold both groups", |cluster| cluster.node(0).roles().held() == BOTH);
    exchange(&mut cluster, 0, 40_000);
    exchange(&mut cluster, 0, 40_001);
    let reported = events(&mut cluster, 0);
    let taken = |group: GroupId| {
        let is_it = |event: &NodeEvent| matches!(event, NodeEvent::BecameActive { group: of, .. } if *of == group);
        reported.iter().any(is_it)
    };
    assert!(taken(GroupId(1)) && !taken(GroupId::FIRST), "{reported:?}");

    cluster.restart(1);
    cluster.run_until("node 1 to have its group back", is_held_by_each);
    assert_eq!(cluster.connections(1), 3, "the one that was silent among them");
    exchange(&mut cluster, 0, 40_000);
    exchange(&mut cluster, 1, 40_001);
    exchange(&mut cluster, 1, 40_002);
    assert_eq!(owner(&cluster, 0, 40_002), Some(NodeId(1)));
}

#[test]
fn a_drained_node_gives_its_group_away_and_takes_it_back() {
    let mut cluster = started();
    connect(&mut cluster, 0, 40_000);
    connect(&mut cluster, 1, 40_001);
    let now = cluster.now;
    cluster.node_mut(0).drain(now, false).expect("the other has everything");
    cluster.run_until("node 1 to hold both groups", |cluster| {
        cluster.node(1).roles().held() == BOTH && !cluster.node(0).holds_addresses()
    });
    assert_eq!(cluster.node(0).status(cluster.now).role, State::Left);
    exchange(&mut cluster, 1, 40_000);
    exchange(&mut cluster, 1, 40_001);
    let now = cluster.now;
    assert!(cluster.node_mut(1).drain(now, false).is_err(), "nobody could take over");
    cluster.node_mut(0).undrain(now);
    cluster.run_until("each to have its group again", is_held_by_each);
    exchange(&mut cluster, 0, 40_000);
    exchange(&mut cluster, 1, 40_001);
}

#[test]
fn a_living_peers_connections_are_neither_claimed_nor_ended() {
    let mut cluster = started();
    connect(&mut cluster, 1, 40_001);
    // A session that begins anew synchronises fully; a node that claims all would claim it on the way.
    cluster.is_replication_down = true;
    cluster.run(Duration::from_secs(5));
    cluster.is_replication_down = false;
    cluster.run(Duration::from_secs(5));
    assert_eq!((owner(&cluster, 0, 40_001), owner(&cluster, 1, 40_001)), (Some(NodeId(1)), Some(NodeId(1))));
}

#[test]
fn a_replica_lives_as_long_as_its_living_owner_receives_packets() {
    let mut cluster = started();
    cluster.via = Some(1);
    let question = Tuple::v4(ip_protocol::UDP, (CLIENT, 40_000), (SERVER, 53));
    for _ in 0..4 {
        cluster.client_sends_frame(|envelope| envelope.udp(&question, b"question"));
        cluster.server_receives().expect("the question passes");
        // Less than the thirty seconds after which an unanswered question is forgotten; three times that is more.
        cluster.run(Duration::from_secs(20));
    }
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 1));
    cluster.run(Duration::from_secs(15));
    assert_eq!((cluster.connections(0), cluster.connections(1)), (0, 0), "its master ends it for both");
}

#[test]
fn each_node_reevaluates_its_own_connections_and_the_survivor_those_of_the_dead() {
    let mut cluster = started();
    connect(&mut cluster, 0, 40_000);
    connect(&mut cluster, 1, 40_001);
    let new =
        Reconfiguration { reevaluation: Reevaluation::Reevaluate, ..with_rules(&cluster, 0, rules(Some(40_001))) };
    assert!(reload(&mut cluster, 0, new).reevaluates);
    cluster.run_until("node 0 to have re-evaluated its own", |cluster| !cluster.node(0).pipeline().is_reevaluating());
    cluster.run(Duration::from_millis(100));
    assert_eq!(cluster.connections(1), 2, "the other node allows it still");
    exchange(&mut cluster, 1, 40_001);

    cluster.kill(1);
    cluster.run_until("node 0 to end it", |cluster| cluster.connections(0) == 1);
    exchange(&mut cluster, 0, 40_000);
}

#[test]
fn other_groups_need_a_restart_and_priorities_do_not() {
    let mut cluster = started();
    let now = cluster.now;
    let mut renamed = with_rules(&cluster, 0, rules(None));
    renamed.role.groups[1].identity = 77;
    assert_eq!(cluster.node_mut(0).reload(now, renamed), Err(ReloadError::GroupsDiffer));
    let mut fewer = with_rules(&cluster, 0, rules(None));
    fewer.role.groups.pop();
    assert_eq!(cluster.node_mut(0).reload(now, fewer), Err(ReloadError::GroupsDiffer));
    let mut unknown = with_rules(&cluster, 0, rules(None));
    unknown.forwarding.ports[0].shared[0].group = GroupId(2);
    assert!(matches!(cluster.node_mut(0).reload(now, unknown), Err(ReloadError::Config(_))));

    let mut higher = with_rules(&cluster, 0, rules(None));
    higher.role.groups[1].priority = 250;
    reload(&mut cluster, 0, higher);
    cluster.run_until("node 0 to hold both groups", |cluster| {
        cluster.node(0).roles().held() == BOTH && !cluster.node(1).holds_addresses()
    });
}

#[test]
fn all_workers_of_a_node_hold_what_their_lead_holds() {
    let mut site = Site::start([2, 2], options()).ready();
    let holds = |site: &Site, id: u8, groups: GroupSet| {
        (0..2).map(WorkerId).all(|worker| site.worker(id, worker).roles().held() == groups)
    };
    site.run_until("each node to hold its group", |site| holds(site, 0, FIRST) && holds(site, 1, SECOND));
    site.kill(1);
    site.are_messages_held = true;
    site.run(Duration::from_millis(150));
    assert!(holds(&site, 0, FIRST), "the other worker has not received it, and is waited for");
    site.are_messages_held = false;
    site.run_until("node 0 to hold both", |site| holds(site, 0, BOTH));
}
