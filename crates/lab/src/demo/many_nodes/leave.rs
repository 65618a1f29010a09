//! The demo of nodes that leave a cluster in good order: a node ends, or is drained and ends, and comes back or not. After that another node
//! dies. Each connection has an owner and backups all the time, so none is lost.
//!
//! ```text
//!   connections stand ─► node a leaves ─► all are ready ─► each connection is used
//!                                             │
//!                                             └─► node b is killed ─► each connection is used
//! ```

use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;

use super::super::DemoError;
use super::super::operations::ask_silent;
use super::super::run::RunError;
use super::{PHASE_MIN, open, plan_of};
use crate::args::{DemoArgs, Way};
use crate::testbed::cluster::BackupsPlan;
use crate::testbed::many_nodes::{ManyNodes, ManyNodesPlan, MembersFrom};
use crate::testbed::topology::SERVER_PORTS;
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::outcome::Outcome;
use crate::testbed::watch::Watch;
use console::{Progress, Table, count};

/// Connections that stand when the node leaves. Most are idle: no packet moves them to another node.
const CONNECTIONS: [(Kind, usize); 5] =
    [(Kind::Download, 4), (Kind::Upload, 4), (Kind::Ticks, 16), (Kind::Idle, 400), (Kind::Udp, 2)];
/// The node that leaves, and the one that dies after that.
const LEAVES: usize = 0;
const DIES: usize = 1;
/// A node that comes back later comes back when its lease has ended.
const LATER: Duration = Duration::from_secs(4);

/// What became of the connections.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct LeaveRow {
    /// Where the nodes had their lists of peers from.
    membership: MembersFrom,
    /// How the node left and returned.
    way: Way,
    /// Backups of each connection.
    k: usize,
    /// Connections that stood before.
    connections: usize,
    /// Those that did not go on after the node had left, or after another node had died.
    lost: usize,
    /// Those of them that did not go on already before the other node died.
    lost_before_death: usize,
    /// From the end of the process, or its new start, until all nodes said that a failure would lose nothing; the longest of a rolling restart.
    ready_after_ms: f64,
}

/// The demo's result.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct LeaveReport {
    /// The program's version.
    program_version: String,
    /// Nodes.
    nodes: usize,
    /// A row for each membership, way and number of backups.
    rows: Vec<LeaveRow>,
}

impl LeaveReport {
    fn describe(&self) -> String {
        let mut table = Table::of("MEMBERS|WAY|BACKUPS>|CONNECTIONS>|LOST>|READY AFTER>");
        for row in &self.rows {
            table.row([
                name(row.membership),
                name(row.way),
                row.k.to_string(),
                count(row.connections as u64),
                count(row.lost as u64),
                format!("{:.0} ms", row.ready_after_ms),
            ]);
        }
        table.render()
    }
}

fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Does it all and prints it.
///
/// # Errors
/// It could not be done, or a connection was lost.
pub(super) fn run(args: &DemoArgs, nodes: u8, watch: &Watch) -> Result<(), DemoError> {
    let progress = Progress::new();
    let ways = if args.way.is_empty() { Way::value_variants() } else { &args.way };
    let members = if args.members.is_empty() { MembersFrom::value_variants() } else { &args.members };
    let mut rows = Vec::new();
    for membership in members {
        for k in [1, 2] {
            for way in ways.iter().filter(|way| way.is_possible_with(*membership)) {
                progress.show(&format!("{}, {k} backups, {}", name(*membership), name(*way)));
                rows.push(make_row(args, (nodes.into(), k), *membership, *way, watch)?);
            }
        }
    }
    progress.show("");
    if rows.is_empty() {
        return Err(DemoError::Missing("no source of members that was asked for has this way to leave".into()));
    }
    let report = LeaveReport { program_version: env!("CARGO_PKG_VERSION").into(), nodes: nodes.into(), rows };
    console::print_as(args.json, &report, || report.describe())?;
    let sum = |what: fn(&LeaveRow) -> usize| report.rows.iter().map(what).sum();
    let (broken, connections) = (sum(|row| row.lost), sum(|row| row.connections));
    if broken == 0 { Ok(()) } else { Err(DemoError::Broken { broken, connections }) }
}

fn make_row(
    args: &DemoArgs,
    (nodes, k): (usize, usize),
    membership: MembersFrom,
    way: Way,
    watch: &Watch,
) -> Result<LeaveRow, RunError> {
    let connections = CONNECTIONS.iter().map(|(_, number)| number).sum();
    let plan = plan_of(args, nodes, connections);
    let backups = Some(BackupsPlan { count: k, broadcast: true });
    let mut many = ManyNodes::start(ManyNodesPlan { backups, members: membership, ..plan }, watch)?;
    if args.keep_logs {
        many.keep_files();
    }
    let phase = PHASE_MIN.max(Duration::from_secs_f64(args.seconds / 2.0));
    let session = open(&many, watch, &SERVER_PORTS[..2], CONNECTIONS.to_vec())?;
    watch.pass_until(Instant::now() + phase)?;
    many.cluster.wait_until_safe(watch)?;
    let left_at = Instant::now();
    let ready_after = leave(&mut many, way, watch)?;
    session.mark()?;
    ask_silent(&session, watch, phase)?;
    session.mark()?;
    many.cluster.kill_silently(DIES)?;
    many.edges.wait_until_stopped(watch, &[DIES])?;
    session.mark()?;
    ask_silent(&session, watch, phase)?;
    session.mark()?;
    let outcomes = session.finish()?.outcomes;
    let counted: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.was_established_before(left_at)).collect();
    let lost = |phases: &[[usize; 2]]| {
        let is_lost = |outcome: &&&Outcome| phases.iter().any(|marks| outcome.bytes_between(*marks) == 0);
        counted.iter().filter(is_lost).count()
    };
    Ok(LeaveRow {
        membership,
        way,
        k,
        connections: counted.len(),
        lost: lost(&[[0, 1], [2, 3]]),
        lost_before_death: lost(&[[0, 1]]),
        ready_after_ms: ready_after.as_secs_f64() * 1e3,
    })
}

/// The node leaves, and returns or not. Returns how long it took until all were ready.
fn leave(many: &mut ManyNodes, way: Way, watch: &Watch) -> Result<Duration, RunError> {
    if matches!(way, Way::DrainStop | Way::DrainStopStart) {
        many.cluster.drain(LEAVES, watch)?;
    }
    match way {
        Way::Stop | Way::DrainStop => Ok(many.stop(LEAVES, watch)?),
        Way::StopStart | Way::DrainStopStart => restart(many, LEAVES, watch),
        Way::StopStartLater => {
            many.cluster.stop(LEAVES, watch)?;
            watch.pass_until(Instant::now() + LATER)?;
            Ok(many.start_ended(LEAVES, watch)?)
        }
        Way::Rolling => {
            let mut longest = Duration::ZERO;
            for node in 0..many.cluster.node_names().len() {
                longest = longest.max(restart(many, node, watch)?);
            }
            Ok(longest)
        }
        Way::Move => {
            many.cluster.stop(LEAVES, watch)?;
            many.cluster.move_node(&many.topology, LEAVES)?;
            Ok(many.start_ended(LEAVES, watch)?)
        }
        Way::Remove => {
            many.remove(LEAVES)?;
            many.cluster.wait_until_others_are_safe(LEAVES, watch)?;
            watch.pass_until(Instant::now() + LATER)?;
            many.restore(LEAVES)?;
            Ok(many.wait_until_whole(watch)?)
        }
        Way::KillRemoveStart => {
            many.cluster.kill_silently(LEAVES)?;
            many.remove_dead(LEAVES, watch)?;
            many.cluster.wait_until_safe(watch)?;
            watch.pass_until(Instant::now() + LATER)?;
            many.restore(LEAVES)?;
            Ok(many.start_ended(LEAVES, watch)?)
        }
        Way::LeaseLost => {
            many.set_separated_from_etcd(LEAVES, true)?;
            many.cluster.wait_for_record(LEAVES, false, watch)?;
            watch.pass_until(Instant::now() + LATER)?;
            many.cluster.wait_until_safe(watch)?;
            many.set_separated_from_etcd(LEAVES, false)?;
            many.cluster.wait_for_record(LEAVES, true, watch)?;
            Ok(many.wait_until_whole(watch)?)
        }
    }
}

fn restart(many: &mut ManyNodes, node: usize, watch: &Watch) -> Result<Duration, RunError> {
    many.cluster.stop(node, watch)?;
    Ok(many.start_ended(node, watch)?)
}
