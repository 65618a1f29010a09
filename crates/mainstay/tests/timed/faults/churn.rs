//! The link is cut for long, while connections begin.

use std::time::{Duration, Instant};

use lab::testbed::traffic::outcome::Outcome;

use super::cluster::{CONNECTIONS_MAX, Cluster};
use super::traffic::Traffic;
use super::{holds_within, turn};

/// Connections that begin each second.
const PER_S: u64 = 50;
/// How long the link is down, in seconds, unless the environment sets it.
const LINK_DOWN_S: u64 = 20;
/// A pause that is no failover's.
const LONG_GAP: Duration = Duration::from_secs(5);
/// How long a connection's beginning may take on a busy machine.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);
/// Connections beside those that begin, most of which are not silent.
const STEADY: usize = 30;

#[test]
fn connections_begun_in_a_long_partition_are_known_to_both_after_it_heals() {
    let Some(_turn) = turn() else { return };
    let seconds =
        std::env::var("MAINSTAY_FAULT_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(LINK_DOWN_S);
    let planned = usize::try_from(seconds * PER_S).expect("a small number").min(CONNECTIONS_MAX / 2);
    let mut cluster = Cluster::ready_with_one_path("churn");
    let traffic = Traffic::with_churn(&cluster, planned, PER_S);
    cluster.set_link(false);
    cluster.wait_for_roles(["active", "active"]);
    let both_active_at = Instant::now();
    let at_first = traffic.established();
    // This is the fault itself: so long does it last, and nothing may break meanwhile.
    let all_began = holds_within(Duration::from_secs(seconds + 10), || traffic.established() >= at_first.max(planned));
    assert!(all_began, "{} of {planned} began\n{}", traffic.established(), cluster.story());
    // Those that began at node a between the cut and node b's taking over are known to a only, and stand still while
    // their packets go to b.
    traffic.survivors_answer(traffic.established() * 9 / 10 - STEADY);

    cluster.set_link(true);
    cluster.wait_until_ready(1);
    traffic.all_go_on(&cluster);
    // That both know all of them shows when the other is alone.
    cluster.kill(1);
    super::wait_for("node a to be active", || cluster.role(0) == "active", || cluster.story());
    traffic.all_go_on(&cluster);
    let outcomes = traffic.finish_whole();
    let stood_still: Vec<_> = outcomes.iter().filter(|outcome| outcome.longest_gap > LONG_GAP).collect();
    let began_in_between =
        |outcome: &&Outcome| outcome.established_at.is_some_and(|at| at < both_active_at + BEGINS_WITHIN);
    assert!(stood_still.iter().all(began_in_between), "{stood_still:?}");
    println!("{} of {} connections stood still while the link was cut", stood_still.len(), outcomes.len());
}
