//! The link between the nodes is cut while both are well.

use std::time::Duration;

use cluster::forwarding::PATH_ETHER_TYPE;
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};

use api::{DetectorState, PathState, SessionState, SplitBrain};

use super::cluster::Cluster;
use super::traffic::Traffic;
use super::{holds_within, turn, wait_for};

/// The interface of the client, which is a switch for both nodes.
const CLIENTS_INTERFACE: &str = "bridge";
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
        paths.len() == 3 && paths.iter().all(|path| path.state == PathState::Up)
    };
    wait_for("all paths to be up", || is_up(&cluster, 0) && is_up(&cluster, 1), || cluster.story());
    let traffic = Traffic::mixed(&cluster);
    traffic.all_go_on(&cluster);

    cluster.set_link(false);
    let is_degraded = |number: usize| {
        let peer = cluster.peer(number);
        let is_down = peer.paths.iter().any(|path| path.path == "replication" && path.state == PathState::Down);
        is_down
            && peer.detector == DetectorState::Up
            && peer.split_brain == SplitBrain::None
            && peer.session != SessionState::Open
    };
    wait_for("both to be degraded", || is_degraded(0) && is_degraded(1), || cluster.story());
    // This is the fault itself: so long does it last, and no node may take over meanwhile.
    let has_moved = holds_within(PARTITION, || cluster.roles() != ["active", "standby"]);
    assert!(!has_moved, "{}", cluster.story());
    traffic.all_go_on(&cluster);
    assert!(cluster.log(1).contains("detection continues over service ports"), "{}", cluster.story());

    cluster.kill(0);
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.story());
    assert_eq!(cluster.peer(1).split_brain, SplitBrain::Suspected);
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}

/// Both nodes receive each other on every path.
fn wait_for_all_paths(cluster: &Cluster) {
    let is_up = |number: usize| {
        let paths = cluster.peer(number).paths;
        paths.len() == 3 && paths.iter().all(|path| path.state == PathState::Up)
    };
    wait_for("all paths to be up", || is_up(0) && is_up(1), || cluster.story());
}

#[test]
fn connections_begun_while_the_replication_link_is_down_outlive_their_node() {
    let Some(_turn) = turn() else { return };
    let mut cluster = Cluster::ready_and_encrypted("uncovered");
    wait_for_all_paths(&cluster);
    cluster.set_link(false);
    let is_down =
        || cluster.peer(0).paths.iter().any(|path| path.path == "replication" && path.state == PathState::Down);
    wait_for("the cut to be noticed", is_down, || cluster.story());

    let traffic = Traffic::mixed(&cluster);
    let is_covered = || {
        let status = cluster.status(0).expect("node a runs");
        status.peers[0].uncovered == 0
            && status.takeover.ready
            && cluster.connections(1) >= traffic.established() as u64
    };
    wait_for("the standby to have all connections", is_covered, || cluster.story());
    cluster.kill(0);
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.story());
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}

/// Frames between nodes that a host receives in so long.
fn frames_at_an_idle_host(cluster: &Cluster, time: Duration) -> usize {
    let config =
        PortConfig { promiscuous: false, ether_types: vec![PATH_ETHER_TYPE], ..PortConfig::new(CLIENTS_INTERFACE) };
    let open = || AfPacketIo::open(&[config]).expect("a socket can be opened");
    let mut socket = cluster.topology.client.run(open).expect("the namespace can be entered");
    let mut frames = 0;
    let ended_early = holds_within(time, || {
        socket.poll(&mut |batch| frames += batch.len()).expect("the socket can be read");
        false
    });
    assert!(!ended_early);
    frames
}

#[test]
fn an_idle_host_of_a_healthy_pair_receives_hardly_any_frame_between_the_nodes_and_they_count_as_no_traffic() {
    let Some(_turn) = turn() else { return };
    let mut cluster = Cluster::ready_and_encrypted("idle");
    wait_for_all_paths(&cluster);
    let frames = frames_at_an_idle_host(&cluster, Duration::from_secs(5));
    println!("frames between the nodes in 5 s at an idle host: {frames}");
    assert!(frames <= 20, "{frames} frames in 5 s");
    for number in 0..2 {
        let status = cluster.status(number).expect("it runs");
        let sent: u64 = status.ports.iter().map(|port| port.sent_packets).sum();
        // Announcements, ARP and neighbour discovery.
        assert!(sent < 200, "{:#?}", status.ports);
        let is_between_nodes = |reason: &str| ["other_host", "local_unhandled"].contains(&reason);
        let dropped: u64 =
            status.drops.iter().filter(|drop| is_between_nodes(&drop.reason)).map(|drop| drop.packets).sum();
        assert!(dropped < 20, "{:?}", status.drops);
    }
    // The paths to a dead peer are down, and frames go to the group again.
    cluster.kill(0);
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.story());
    assert!(frames_at_an_idle_host(&cluster, Duration::from_secs(1)) > 0, "the host would receive them");
}

#[test]
fn replication_resumes_when_the_link_is_back_and_no_connection_noticed() {
    let Some(_turn) = turn() else { return };
    let cluster = Cluster::ready("degraded-back");
    let traffic = Traffic::mixed(&cluster);
    cluster.set_link(false);
    wait_for("replication to be silent", || cluster.peer(0).session != SessionState::Open, || cluster.story());
    cluster.set_link(true);
    cluster.wait_until_ready(0);
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}
