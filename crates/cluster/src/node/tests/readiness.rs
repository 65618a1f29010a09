//! What stands in the way of a take-over.

use std::time::Duration;
use std::vec;
use std::vec::Vec;

use flow::{Instant, NodeId};

use super::cluster::{Cluster, Options};
use crate::node::readiness::{NodeObstacle, Obstacle, readiness};
use crate::node::stall::{SERVICE_GAP_COUNTS_FOR, SERVICE_GAP_MAX, ServiceGap};
use crate::role::{Heartbeat, State};

/// The obstacles that node 0 sees of its peer after `change` of the peer's heartbeat.
fn obstacles_after(change: impl Fn(&mut Heartbeat)) -> Vec<Obstacle> {
    let mut cluster = Cluster::start(Options::default());
    cluster.run_until("node 0 to be ready", |cluster| cluster.node(0).status(cluster.now).readiness.is_ready());
    let mut status = cluster.node(0).status(cluster.now);
    status.peers[0].heartbeats.iter_mut().flatten().for_each(change);
    readiness(&status, NodeId(0)).obstacles.into_iter().map(|found| found.obstacle).collect()
}

#[test]
fn each_thing_that_a_take_over_needs_is_an_obstacle_while_it_is_missing() {
    assert_eq!(obstacles_after(|_| {}), []);
    assert_eq!(obstacles_after(|said| said.passive = true), [Obstacle::Passive]);
    assert_eq!(obstacles_after(|said| said.state = State::Left), [Obstacle::Drained]);
    assert_eq!(obstacles_after(|said| said.state = State::Init), [Obstacle::NotStandby]);
    assert_eq!(obstacles_after(|said| said.synchronised = false), [Obstacle::LacksConnections]);
    let reaches_less = Obstacle::ReachesLess { theirs: 7, ours: 0 };
    assert_eq!(obstacles_after(|said| said.unreached = 7), [reaches_less]);
}

#[test]
fn a_node_without_peers_is_not_ready_and_a_gap_in_service_counts_for_a_time() {
    let alone = NodeObstacle { node: NodeId(3), obstacle: Obstacle::NoPeer };
    let mut cluster = Cluster::start(Options::default());
    cluster.run(Duration::from_millis(1));
    let mut status = cluster.node(0).status(cluster.now);
    status.peers.clear();
    assert_eq!(readiness(&status, NodeId(3)).obstacles, vec![alone]);

    let late = Instant::from_millis(1000);
    let mut gap = ServiceGap::new(late);
    gap.note(late, SERVICE_GAP_MAX / 2);
    assert_eq!(gap.counting(late), None);
    gap.note(late, SERVICE_GAP_MAX);
    assert_eq!(gap.counting(late), Some(SERVICE_GAP_MAX));
    assert_eq!(gap.counting(late + SERVICE_GAP_COUNTS_FOR), None);
}
