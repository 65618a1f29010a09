//! The link between the nodes is cut while both are well.

use super::cluster::Cluster;
use super::traffic::Traffic;
use super::turn;

#[test]
fn nodes_that_part_both_serve_and_when_they_meet_one_yields_and_all_connections_go_on() {
    let Some(_turn) = turn() else { return };
    let cluster = Cluster::ready("split");
    let traffic = Traffic::mixed(&cluster);
    traffic.all_go_on(&cluster);

    // Neither can tell a dead peer from a cut link, so each serves.
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
    let cluster = Cluster::ready("flapping");
    let traffic = Traffic::mixed(&cluster);
    for holder in [1, 0, 1, 0] {
        cluster.set_link(false);
        cluster.wait_for_roles(["active", "active"]);
        // No time to become synchronised before the next cut. Whoever stood by took the addresses last, and keeps them.
        cluster.set_link(true);
        cluster.wait_for_roles(if holder == 0 { ["active", "standby"] } else { ["standby", "active"] });
    }
    cluster.wait_until_ready(0);
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}
