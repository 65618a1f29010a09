//! Addresses move to the node that reaches more.

use std::time::Duration;
use std::vec;
use std::vec::Vec;

use flow::{NodeId, PortId};

use super::cluster::{Cluster, INSIDE, OUTSIDE, Options, SERVER};
use super::{events, exchange};
use crate::group::{GroupId, GroupSet};
use crate::node::{Consequence, LinkState, NodeEvent, Target, Tracked, TrackingConfig};

const HOP: Target = Target::NextHop(OUTSIDE, core::net::IpAddr::V4(SERVER));

fn weighing(targets: &[(Target, u16)]) -> Vec<Tracked> {
    targets.iter().map(|(target, weight)| Tracked { target: *target, weight: *weight }).collect()
}

/// Both nodes track their ports and the server, which is a next hop here, and reach all of them.
fn tracking(cluster: &mut Cluster, groups: &[Vec<Tracked>]) {
    for id in 0..2 {
        let now = cluster.now;
        let config = TrackingConfig { groups: groups.to_vec(), ..TrackingConfig::default() };
        cluster.node_mut(id).set_tracking(now, config);
        for port in [INSIDE, OUTSIDE] {
            link(cluster, id, port, true);
        }
    }
    cluster.run(Duration::from_secs(1));
    for id in 0..2 {
        assert_eq!(events(cluster, id).iter().filter(|event| is_about_reach(event)).count(), 0, "all is reached");
    }
}

fn started() -> Cluster {
    let mut cluster = Cluster::start(Options::default());
    let all = [(Target::Port(INSIDE), 100), (Target::Port(OUTSIDE), 100), (HOP, 50)];
    tracking(&mut cluster, &[weighing(&all)]);
    cluster
}

const fn is_about_reach(event: &NodeEvent) -> bool {
    matches!(event, NodeEvent::Unreached { .. } | NodeEvent::Reached { .. })
}

fn link(cluster: &mut Cluster, id: u8, port: PortId, is_up: bool) {
    let now = cluster.now;
    cluster.node_mut(id).handle_link(now, port, LinkState { is_up, speed_mbps: Some(10_000) });
}

fn active_nodes(cluster: &Cluster) -> [bool; 2] {
    [0, 1].map(|id| cluster.node(id).holds_addresses())
}

#[test]
fn port_down_on_the_active_node_moves_the_addresses_and_connections_go_on() {
    let mut cluster = started();
    let seen_port = cluster.connect(40_000);
    link(&mut cluster, 0, OUTSIDE, false);
    let before = cluster.now;
    cluster.run_until("node 1 to take over", |cluster| active_nodes(cluster) == [false, true]);
    assert!(cluster.now.saturating_since(before) < Duration::from_millis(200), "after {:?}", cluster.now);
    let consequence = Consequence::PeerReachesMore(NodeId(1));
    assert!(events(&mut cluster, 0).contains(&NodeEvent::Unreached { target: Target::Port(OUTSIDE), consequence }));
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);

    // It comes back: equal reach moves nothing.
    link(&mut cluster, 0, OUTSIDE, true);
    cluster.run(Duration::from_secs(5));
    assert_eq!(active_nodes(&cluster), [false, true]);
    assert!(events(&mut cluster, 0).contains(&NodeEvent::Reached { target: Target::Port(OUTSIDE) }));
    exchange(&mut cluster, 40_000, seen_port, 1009, 5007);
}

#[test]
fn standby_whose_port_goes_up_and_down_attracts_nothing_until_it_stays_up() {
    let mut cluster = started();
    link(&mut cluster, 1, INSIDE, false);
    cluster.run(Duration::from_millis(10));
    link(&mut cluster, 0, OUTSIDE, false);
    let consequence = Consequence::NoPeerReachesMore;
    assert!(events(&mut cluster, 0).contains(&NodeEvent::Unreached { target: Target::Port(OUTSIDE), consequence }));
    for _ in 0..10 {
        cluster.run(Duration::from_millis(500));
        link(&mut cluster, 1, INSIDE, true);
        cluster.run(Duration::from_millis(1500));
        assert_eq!(active_nodes(&cluster), [true, false]);
        link(&mut cluster, 1, INSIDE, false);
    }
    link(&mut cluster, 1, INSIDE, true);
    cluster.run_until("node 1 to take over", |cluster| active_nodes(cluster) == [false, true]);
}

#[test]
fn next_hop_that_the_active_node_alone_has_lost_moves_the_addresses() {
    let mut cluster = started();
    cluster.isolated_ports = vec![(0, OUTSIDE)];
    let before = cluster.now;
    cluster.run_until("node 1 to take over", |cluster| active_nodes(cluster) == [false, true]);
    assert!(cluster.now.saturating_since(before) < Duration::from_millis(1500));
    let consequence = Consequence::PeerReachesMore(NodeId(1));
    assert!(events(&mut cluster, 0).contains(&NodeEvent::Unreached { target: HOP, consequence }));
}

#[test]
fn a_next_hop_that_both_nodes_lose_and_reach_once_more_moves_nothing() {
    let mut cluster = started();
    for _ in 0..5 {
        // The nodes probe at different times, so one notices before the other.
        cluster.isolated_ports = vec![(0, OUTSIDE), (1, OUTSIDE)];
        cluster.run(Duration::from_millis(3100));
        cluster.isolated_ports = Vec::new();
        cluster.run(Duration::from_millis(4270));
        assert_eq!(active_nodes(&cluster), [true, false]);
    }
    let lost = events(&mut cluster, 1).iter().filter(|event| is_about_reach(event)).count();
    assert_eq!(lost, 10, "node 1 lost it and had it back five times");
}

#[test]
fn a_group_moves_for_what_it_tracks() {
    let mut cluster = Cluster::start(Options { is_translated: false, has_groups: true, ..Options::default() });
    cluster.run_until("each node to hold its group", |cluster| active_nodes(cluster) == [true, true]);
    tracking(&mut cluster, &[weighing(&[(Target::Port(INSIDE), 100)]), weighing(&[(Target::Port(OUTSIDE), 100)])]);
    link(&mut cluster, 1, INSIDE, false);
    cluster.run(Duration::from_secs(1));
    assert_eq!(active_nodes(&cluster), [true, true], "node 1 holds the second group, which does not track the port");
    link(&mut cluster, 1, OUTSIDE, false);
    cluster.run_until("node 0 to take the second group", |cluster| {
        cluster.node(0).roles().held() == GroupSet::EMPTY.with(GroupId::FIRST).with(GroupId(1))
    });
}
