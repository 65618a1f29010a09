//! The link between the nodes is cut while both are well.

use std::time::Duration;

use super::cluster::Cluster;
use super::traffic::Traffic;
use super::{holds_within, turn, wait_for};

/// How long the replication link is cut: many detection times.
const PARTITION: Duration = Duration::from_secs(4);

#[test]
fn nodes_that_part_both_serve_and_when_they_meet_one_yields_and_all_connections_go_on() {
    let Some(_turn) = turn() else { return };
    let cluster = Cluster::ready_with_one_path("split");
    let traffic = Traffic::mixed(&cluster);
    traffic.all_go_on(&cluster);

    // Neither can distinguish a dead peer from a partition, so each serves.
    cluster.set_link(false);
    cluster.wait_for_roles(["active", "active"]);
    traffic.all_go_on(&cluster);

    // The one that announced them last keeps the addresses: the packets go there.
    cluster.set_link(true);
    cluster.wait_until_ready(1);
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}

#[test]
fn a_link_that_comes_and_goes_leaves_one_active_node_and_all_connections() {
    let Some(_turn) = turn() else { return };
    let cluster = Cluster::ready_with_one_path("flapping");
    let traffic = Traffic::mixed(&cluster);
    for holder in [1, 0, 1, 0] {
        cluster.set_link(false);
        cluster.wait_for_roles(["active", "active"]);
        // No time to become synchronised before the next cut. The node that stood by took the addresses last, and keeps them.
        cluster.set_link(true);
        cluster.wait_for_roles(if holder == 0 { ["active", "standby"] } else { ["standby", "active"] });
    }
    cluster.wait_until_ready(0);
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}

#[test]
fn loss_of_the_replication_link_moves_no_addresses_and_a_death_meanwhile_is_detected() {
    let Some(_turn) = turn() else { return };
    let mut cluster = Cluster::ready("degraded");
    let is_up = |cluster: &Cluster, number: usize| {
        let paths = cluster.peer(number).paths;
        paths.len() == 3 && paths.iter().all(|path| path.state == "up")
    };
    wait_for("all paths to be up", || is_up(&cluster, 0) && is_up(&cluster, 1), || cluster.story());
    let traffic = Traffic::mixed(&cluster);
    traffic.all_go_on(&cluster);

    cluster.set_link(false);
    let is_degraded = |number: usize| {
        let peer = cluster.peer(number);
        let is_down = peer.paths.iter().any(|path| path.path == "replication" && path.state == "down");
        is_down && peer.detector == "up" && peer.split_brain == "none" && peer.session != "open"
    };
    wait_for("both to be degraded", || is_degraded(0) && is_degraded(1), || cluster.story());
    // This is the fault itself: so long does it last, and no node may take over meanwhile.
    let has_moved = holds_within(PARTITION, || cluster.roles() != ["active", "standby"]);
    assert!(!has_moved, "{}", cluster.story());
    traffic.all_go_on(&cluster);
    assert!(cluster.log(1).contains("detection continues over service ports"), "{}", cluster.story());

    cluster.kill(0);
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.story());
    assert_eq!(cluster.peer(1).split_brain, "suspected");
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}

#[test]
fn replication_resumes_when_the_link_is_back_and_no_connection_noticed() {
    let Some(_turn) = turn() else { return };
    let cluster = Cluster::ready("degraded-back");
    let traffic = Traffic::mixed(&cluster);
    cluster.set_link(false);
    wait_for("replication to be silent", || cluster.peer(0).session != "open", || cluster.story());
    cluster.set_link(true);
    cluster.wait_until_ready(0);
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}
