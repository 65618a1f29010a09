//! The failures, each with what is promised of it.

use std::time::Duration;

use super::super::run::RunError;
use super::laboratory::Laboratory;
use super::network::{self, Claimant, Side};
use super::words::NodeStatus;
use crate::testbed::cluster::Identity;

/// How long a failure lasts where nothing else ends it.
const LASTS: Duration = Duration::from_secs(4);
/// How long a starting node is watched: many times as long as it listens before it may take the addresses.
const STARTING: Duration = Duration::from_secs(5);
/// How long both nodes are active before one dies: long enough for the other's windows to be far behind.
const APART: Duration = Duration::from_secs(3);

/// How a row begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    /// Two nodes, one active and one ready to take over.
    Pair,
    /// The same, with the server as a next hop of the nodes.
    PairWithNextHop,
    /// One node, which serves alone.
    FirstAlone,
    /// Two nodes that announce their addresses again every few seconds.
    PairThatAnnounces,
}

/// A failure.
pub(super) struct Row {
    /// Its name.
    pub(super) failure: &'static str,
    /// What is promised, beside that no connection breaks.
    pub(super) promised: &'static str,
    pub(super) beginning: Beginning,
    /// Makes the failure and ends it, and looks at what comes of it.
    pub(super) play: fn(&mut Laboratory<'_>) -> Result<(), RunError>,
}

/// All rows.
pub(super) const ROWS: [Row; 11] = [
    Row {
        failure: "port-down-on-active",
        promised: "the peer takes over while the client's side of the active node is switched off; no connection breaks",
        beginning: Beginning::Pair,
        play: |laboratory| port_down_on_active(laboratory, Side::Client, network::set_port),
    },
    Row {
        failure: "port-down-on-active-server-side",
        promised: "the peer takes over while the active node's cable to the servers is out; no connection breaks",
        beginning: Beginning::Pair,
        play: |laboratory| port_down_on_active(laboratory, Side::Server, network::set_cable),
    },
    Row {
        failure: "port-down-on-standby-then-drain",
        promised: "no node is ready, the active node refuses to be drained and reports the reason; no connection breaks",
        beginning: Beginning::Pair,
        play: port_down_on_standby_then_drain,
    },
    Row {
        failure: "replication-link-down",
        promised: "the addresses stay, status is degraded, replicas are complete afterwards; no connection breaks",
        beginning: Beginning::Pair,
        play: replication_link_down,
    },
    Row {
        failure: "replication-link-down-then-active-killed",
        promised: "the standby takes over; no connection from before the cut breaks",
        beginning: Beginning::Pair,
        play: replication_link_down_then_active_killed,
    },
    Row {
        failure: "partition-then-peer-that-took-over-killed",
        promised: "the node that is left announces the addresses again within announce_refresh; no connection breaks",
        beginning: Beginning::PairThatAnnounces,
        play: partition_then_peer_that_took_over_killed,
    },
    Row {
        failure: "partition-then-healed",
        promised: "both nodes are active and report it, one is afterwards; no connection breaks",
        beginning: Beginning::Pair,
        play: partition_then_healed,
    },
    Row {
        failure: "wrong-key-on-starting-standby",
        promised: "the starting node stays passive and reports the reason; no connection is interrupted",
        beginning: Beginning::FirstAlone,
        play: |laboratory| wrong_standby_starts(laboratory, Identity::OtherKey, "replication.security"),
    },
    Row {
        failure: "same-id-on-starting-standby",
        promised: "the starting node stays passive and reports the reason; no connection is interrupted",
        beginning: Beginning::FirstAlone,
        play: |laboratory| wrong_standby_starts(laboratory, Identity::FirstNodesId, "node.id"),
    },
    Row {
        failure: "foreign-address-claim",
        promised: "the addresses are defended, the claim is logged and counted; no connection breaks",
        beginning: Beginning::Pair,
        play: foreign_address_claim,
    },
    Row {
        failure: "next-hop-gone",
        promised: "the addresses move to the peer, which reaches the next hop; no connection breaks",
        beginning: Beginning::PairWithNextHop,
        play: next_hop_gone,
    },
];

type SetPort = fn(&crate::testbed::topology::Topology, usize, Side, bool) -> Result<(), packet_io::IoError>;

fn port_down_on_active(laboratory: &mut Laboratory<'_>, side: Side, set: SetPort) -> Result<(), RunError> {
    let (active, standby) = laboratory.roles();
    laboratory.fail(true)?;
    set(&laboratory.topology, active, side, false)?;
    laboratory.all_go_on("while the port was down")?;
    let has_moved = laboratory.wait(|nodes| nodes[standby].role() == "active" && nodes[active].role() != "active")?;
    laboratory.promise(has_moved, "the peer did not take the addresses over");
    let is_named = laboratory.wait(|nodes| nodes[active].has_port_down(side.port()))?;
    laboratory.promise(is_named, "the node's status does not show that its port is down");
    let is_reserved = laboratory.wait(|nodes| nodes[standby].is_ready() == Some(false))?;
    laboratory.promise(is_reserved, "the node that took over calls a peer ready that has a port down");
    laboratory.note_status();
    set(&laboratory.topology, active, side, true)?;
    laboratory.wait_until_whole()?;
    laboratory.all_go_on("after the port was up again")
}

fn port_down_on_standby_then_drain(laboratory: &mut Laboratory<'_>) -> Result<(), RunError> {
    let (active, standby) = laboratory.roles();
    laboratory.fail(true)?;
    network::set_port(&laboratory.topology, standby, Side::Client, false)?;
    let is_unready = laboratory.wait(|nodes| nodes.iter().all(|status| status.is_ready() == Some(false)))?;
    laboratory.promise(is_unready, "a node reports that it is ready although the standby's port is down");
    let has_reason = laboratory.wait(|nodes| !nodes[active].not_ready().is_empty())?;
    laboratory.promise(has_reason, "the active node does not report the reason why it is not ready");
    laboratory.note_status();
    let drained = laboratory.cluster.drain_by_command(active)?;
    let refused = !drained.status.success();
    laboratory.promise(refused, "the drain was not refused");
    laboratory.promise(refused && !drained.stderr.is_empty(), "the refusal names no reason");
    laboratory.all_go_on("while the standby's port was down")?;
    network::set_port(&laboratory.topology, standby, Side::Client, true)?;
    if !refused {
        laboratory.cluster.undrain(active)?;
    }
    laboratory.wait_until_whole()?;
    if refused {
        // A node that was kept from its processor a moment ago is not counted on for some seconds.
        let reason = laboratory.drain(active)?;
        laboratory.promise(reason.is_empty(), &format!("afterwards the drain is refused still: {reason}"));
    }
    laboratory.all_go_on("after the drain")
}

fn replication_link_down(laboratory: &mut Laboratory<'_>) -> Result<(), RunError> {
    let (active, standby) = laboratory.roles();
    let since_ns = laboratory.statuses()[active].role_since_ns();
    laboratory.fail(true)?;
    network::set_replication_link(&laboratory.topology, false)?;
    let is_degraded =
        laboratory.wait_within(LASTS, |nodes| nodes.iter().all(|status| status.degraded() == Some(true)))?;
    laboratory.promise(is_degraded, "status is not degraded");
    let has_moved = laboratory.wait_within(LASTS, |nodes| nodes[standby].role() != "standby")?;
    laboratory.promise(!has_moved, "the standby took over from a node that was alive");
    laboratory.note_status();
    laboratory.all_go_on("while the link was cut")?;
    network::set_replication_link(&laboratory.topology, true)?;
    laboratory.wait_until_whole()?;
    let stayed = laboratory.statuses()[active].role_since_ns() == since_ns && !laboratory.has_announced(standby);
    laboratory.promise(stayed, "the addresses did not stay where they were");
    laboratory.all_go_on("after the link was whole again")
}

fn replication_link_down_then_active_killed(laboratory: &mut Laboratory<'_>) -> Result<(), RunError> {
    let (active, standby) = laboratory.roles();
    laboratory.fail(true)?;
    network::set_replication_link(&laboratory.topology, false)?;
    // The windows that the standby knows are far behind when it takes over.
    let has_moved = laboratory.wait_within(APART, |nodes| nodes[standby].role() != "standby")?;
    laboratory.promise(!has_moved, "the standby took over from a node that was alive");
    laboratory.note_status();
    laboratory.cluster.kill(active)?;
    let took_over = laboratory.wait(|nodes| nodes[standby].role() == "active")?;
    laboratory.promise(took_over, "the standby did not take over");
    laboratory.all_go_on("after the active node was killed")
}

fn partition_then_peer_that_took_over_killed(laboratory: &mut Laboratory<'_>) -> Result<(), RunError> {
    let (active, standby) = laboratory.roles();
    laboratory.fail(true)?;
    network::set_all_paths(&laboratory.topology, false)?;
    let both = laboratory.wait(|nodes| nodes.iter().all(|status| status.role() == "active"))?;
    laboratory.promise(both, "the nodes were not both active");
    laboratory.all_go_on("by the node that took over")?;
    laboratory.pass(APART)?;
    laboratory.note_status();
    laboratory.cluster.kill(standby)?;
    laboratory.all_go_on("by the node that was left")?;
    let is_left = laboratory.statuses()[active].role() == "active";
    laboratory.promise(is_left, "the node that was left is not active");
    Ok(())
}

fn partition_then_healed(laboratory: &mut Laboratory<'_>) -> Result<(), RunError> {
    laboratory.fail(true)?;
    network::set_all_paths(&laboratory.topology, false)?;
    let both = laboratory.wait(|nodes| nodes.iter().all(|status| status.role() == "active"))?;
    laboratory.promise(both, "the nodes were not both active");
    laboratory.all_go_on("while both nodes were active")?;
    let named = laboratory.wait_within(LASTS, |nodes| nodes.iter().all(NodeStatus::names_split_brain))?;
    laboratory.promise(named, "a node's status does not name the split brain");
    laboratory.note_status();
    network::set_all_paths(&laboratory.topology, true)?;
    laboratory.wait_until_whole()?;
    laboratory.all_go_on("after the paths were whole again")
}

fn wrong_standby_starts(laboratory: &mut Laboratory<'_>, identity: Identity, remedy: &str) -> Result<(), RunError> {
    laboratory.fail(false)?;
    laboratory.start_second(identity)?;
    let has_taken =
        laboratory.wait_within(STARTING, |nodes| nodes[1].role() == "active" || nodes[0].role() != "active")?;
    laboratory.promise(!has_taken, "the starting node took the addresses from one that serves");
    laboratory.promise(!laboratory.has_announced(1), "the starting node announced the addresses");
    // Either the peer's packets are rejected, with the remedy, or the addresses are found defended by another host.
    let has_remedy = |reason: &str| reason.contains(remedy) || reason.contains("the same configuration");
    let has_reason = laboratory.wait(|nodes| nodes[1].passive().is_some_and(has_remedy))?;
    laboratory.note_status();
    laboratory.promise(has_reason, "the starting node's status does not show the reason why it stays passive");
    laboratory.all_go_on("beside the starting node")?;
    laboratory.start_second(Identity::Own)?;
    laboratory.wait_until_whole()?;
    laboratory.all_go_on("after the node was started as it should be")
}

fn foreign_address_claim(laboratory: &mut Laboratory<'_>) -> Result<(), RunError> {
    let (active, standby) = laboratory.roles();
    laboratory.fail(true)?;
    let claimant = Claimant::start(&laboratory.topology)?;
    laboratory.pass(LASTS)?;
    laboratory.note_status();
    claimant.end()?;
    laboratory.all_go_on("after the claim had ended")?;
    let stayed = laboratory.wait(|nodes| nodes[active].role() == "active" && nodes[standby].role() == "standby")?;
    laboratory.promise(stayed, "the addresses did not stay where they were");
    let counters = laboratory.cluster.raw_counters(active);
    let is_counted = |name: &str| {
        let mut of_name =
            counters.iter().filter(|sample| sample["name"].as_str().is_some_and(|found| found.contains(name)));
        of_name.any(|sample| sample["value"].as_f64().is_some_and(|value| value > 0.0))
    };
    laboratory.promise(is_counted("address_conflicts"), "the claim is not counted");
    laboratory
        .promise(is_counted("address_defences"), "the active node did not announce the addresses against the claim");
    let is_logged = laboratory.cluster.log_of(active).lines().any(|line| line.contains("address conflict"));
    laboratory.promise(is_logged, "the claim is not in the active node's log");
    Ok(())
}

fn next_hop_gone(laboratory: &mut Laboratory<'_>) -> Result<(), RunError> {
    let (active, standby) = laboratory.roles();
    laboratory.fail(true)?;
    network::set_next_hop(&laboratory.topology, active, false)?;
    laboratory.all_go_on("while the next hop was gone")?;
    let has_moved = laboratory.wait(|nodes| nodes[standby].role() == "active" && nodes[active].role() != "active")?;
    laboratory.promise(has_moved, "the peer did not take the addresses over");
    let is_named = laboratory.wait(|nodes| nodes[active].next_hops_lost().is_some_and(|lost| !lost.is_empty()))?;
    laboratory.promise(is_named, "the node's status does not show that its next hop is lost");
    laboratory.note_status();
    network::set_next_hop(&laboratory.topology, active, true)?;
    laboratory.wait_until_whole()?;
    laboratory.all_go_on("after the next hop was there again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_different_names_that_can_be_typed() {
        for (number, row) in ROWS.iter().enumerate() {
            assert!(row.failure.chars().all(|character| character.is_ascii_lowercase() || character == '-'));
            assert!(ROWS[..number].iter().all(|earlier| earlier.failure != row.failure), "{}", row.failure);
        }
    }
}
