//! Too little of something: of the link's rate, of room in the standby's table, of time before the standby is needed.

use super::cluster::{CONNECTIONS_MAX, Cluster};
use super::traffic::Traffic;
use super::{turn, wait_for};

/// Silent connections that are replicated.
const CONNECTIONS: usize = 300;
/// Room in the table of the smaller node.
const SMALL_TABLE: usize = 100;
/// Failure detection and heartbeats take a third of this.
const THROTTLED_KILOBITS_PER_S: u32 = 400;

#[test]
fn a_slow_link_delays_what_the_standby_knows_and_loses_nothing() {
    let Some(_turn) = turn() else { return };
    let mut cluster = Cluster::ready("slow");
    if !cluster.throttle_link(Some(THROTTLED_KILOBITS_PER_S)) {
        packet_io::namespace::skip("no token bucket filter here");
        return;
    }
    let traffic = Traffic::with_churn(&cluster, 500, 250);
    wait_for("connections to begin", || traffic.established() >= 500, || cluster.story());
    traffic.all_go_on(&cluster);
    assert!(cluster.throttle_link(None));
    cluster.wait_until_ready(0);
    let is_complete = || cluster.connections(1) >= cluster.connections(0);
    wait_for("node b to know them all", is_complete, || cluster.story());
    cluster.kill(0);
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.story());
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}

#[test]
fn a_standby_with_too_small_a_table_is_reported_and_what_it_has_survives() {
    let Some(_turn) = turn() else { return };
    let mut cluster = Cluster::new("small-table");
    cluster.start(0);
    cluster.start_with(1, SMALL_TABLE, &[]);
    cluster.wait_until_ready(0);
    let traffic = Traffic::silent(&cluster, CONNECTIONS);
    let full = || cluster.connections(1) == SMALL_TABLE as u64;
    wait_for("node b's table to be full", full, || cluster.story());
    let hindrance = || cluster.status(0).map(|status| status.takeover.obstacles.join("; ")).unwrap_or_default();
    wait_for("node a to know that its peer lacks some", || hindrance().contains("lacks connections"), hindrance);

    cluster.kill(0);
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.story());
    let received = usize::try_from(cluster.connections(1)).expect("a small number");
    traffic.survivors_answer(received);
    println!(
        "node b had room for {SMALL_TABLE} of {CONNECTIONS} connections; {received} were there when needed and went on"
    );
    traffic.finish();
}

#[test]
fn what_a_standby_received_survives_a_take_over_that_comes_too_early() {
    let Some(_turn) = turn() else { return };
    let mut cluster = Cluster::ready("too-early");
    let traffic = Traffic::silent(&cluster, CONNECTIONS);
    cluster.kill(1);
    if !cluster.throttle_link(Some(THROTTLED_KILOBITS_PER_S)) {
        packet_io::namespace::skip("no token bucket filter here");
        return;
    }
    cluster.start_with(1, CONNECTIONS_MAX, &[]);
    wait_for("node b to receive some", || cluster.connections(1) > 0, || cluster.story());
    cluster.kill(0);
    let received = usize::try_from(cluster.connections(1)).expect("a small number");
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.story());
    traffic.survivors_answer(received);
    println!(
        "node b had received {received} of {CONNECTIONS} connections when it was needed, and all of those went on"
    );
    traffic.finish();
}
