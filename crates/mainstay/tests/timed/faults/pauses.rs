//! A node's process stands still for a while, and does not know it.

use std::time::Instant;

use api::DetectorState;

use super::cluster::Cluster;
use super::traffic::Traffic;
use super::{turn, wait_for};

#[test]
fn an_active_node_that_was_paused_finds_its_peer_active_and_one_of_them_yields() {
    let Some(_turn) = turn() else { return };
    let cluster = Cluster::ready("paused-active");
    let traffic = Traffic::mixed(&cluster);
    cluster.pause(0);
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.role(1));
    traffic.all_go_on(&cluster);

    let resumed_at = Instant::now();
    cluster.resume(0);
    // It holds the addresses as it did before, until it receives its peer, which took them later and keeps them.
    cluster.wait_for_roles(["standby", "active"]);
    println!("both held the addresses for at most {} ms", resumed_at.elapsed().as_millis());
    cluster.wait_until_ready(1);
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}

#[test]
fn a_standby_that_was_paused_disturbs_nothing_and_catches_up() {
    let Some(_turn) = turn() else { return };
    let mut cluster = Cluster::ready("paused-standby");
    let traffic = Traffic::mixed(&cluster);
    cluster.pause(1);
    wait_for("node a to miss its peer", || cluster.peer(0).detector == DetectorState::Down, || cluster.story());
    traffic.all_go_on(&cluster);
    cluster.resume(1);
    cluster.wait_until_ready(0);
    traffic.all_go_on(&cluster);
    cluster.kill(0);
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.story());
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}
