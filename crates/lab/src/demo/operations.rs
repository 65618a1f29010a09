//! A day of operators' work under real traffic: the configuration reloaded again and again, a node drained and undrained,
//! both restarted one after the other. No connection is to notice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::DemoError;
use super::multi_primary;
use super::run::{BULK_BYTES_PER_S, MIX, RunError};
use crate::args::DemoArgs;
use crate::testbed::cluster::{Cluster, ClusterPlan, Shape, Tuning};
use crate::testbed::distance::Distances;
use crate::testbed::session::Session;
use crate::testbed::topology::Topology;
use crate::testbed::traffic::client::Plan;
use crate::testbed::traffic::outcome::Outcome;
use crate::testbed::watch::{Waited, Watch};
use crate::testbed::ways;
use config::validated::Backend;
use console::{Progress, Table, count};

/// How often the configuration is changed, and changed back.
pub const RELOADS: usize = 20;
/// Connections that a node has room for.
const CONNECTIONS_MAX: usize = 4096;
/// How long the connections may take at first.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(5);
/// How long at least traffic flows after the last step.
const LAST_PAUSE_MIN: Duration = Duration::from_millis(500);
/// How long silent connections may take to answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(6);

/// Rules and timeouts that come and go. The rules allow all existing connections, so a re-evaluation keeps them.
const CHANGED: &str = "\
    [firewall]\non_reload = \"reevaluate\"\n\n\
    [[firewall.rule]]\nname = \"no-discard\"\nprotocol = \"tcp\"\ndestination_ports = [9]\naction = \"drop\"\n\n\
    [timeouts]\ntcp_established = \"4d\"\nudp_stream = \"90s\"\n";

/// What was done, and what became of the connections meanwhile.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OperationsReport {
    /// Reloads of either node.
    pub reloads: usize,
    /// Times that the active node was drained.
    pub drains: usize,
    /// Nodes restarted.
    pub restarts: usize,
    /// Connections of all kinds.
    pub connections: usize,
    /// Those that went on to the end.
    pub survived: usize,
    /// Those that broke.
    pub broken: usize,
    /// Why the first of them broke.
    pub first_broken: Option<String>,
    /// Bytes that came back and were right.
    pub bytes_verified: u64,
    /// The longest time that a connection waited for progress, in milliseconds.
    pub longest_gap_ms: f64,
    /// The longest time that a node's answer to a reload took, in milliseconds.
    pub longest_reload_ms: f64,
}

impl OperationsReport {
    fn new(outcomes: &[Outcome], last_step_at: Instant, longest_reload: Duration) -> Self {
        let broken: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.broken.is_some()).collect();
        let gap = outcomes.iter().map(|outcome| outcome.longest_gap).max().unwrap_or_default();
        Self {
            reloads: 2 * RELOADS,
            drains: 1,
            restarts: 2,
            connections: outcomes.len(),
            survived: outcomes.iter().filter(|outcome| outcome.survived(last_step_at)).count(),
            broken: broken.len(),
            first_broken: broken.first().and_then(|outcome| {
                outcome.broken.as_ref().map(|reason| format!("{}: {reason}", outcome.kind.label()))
            }),
            bytes_verified: outcomes.iter().map(|outcome| outcome.verified_bytes).sum(),
            longest_gap_ms: gap.as_secs_f64() * 1e3,
            longest_reload_ms: longest_reload.as_secs_f64() * 1e3,
        }
    }

    /// As people read it.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut table = Table::of("UNDER TRAFFIC|>");
        let rows = [
            ("configurations reloaded", self.reloads.to_string()),
            ("nodes drained and undrained", self.drains.to_string()),
            ("nodes restarted", self.restarts.to_string()),
            ("connections", count(self.connections as u64)),
            ("survived", count(self.survived as u64)),
            ("broken", count(self.broken as u64)),
            ("longest gap", format!("{:.1} ms", self.longest_gap_ms)),
            ("longest reload, with reading the file", format!("{:.1} ms", self.longest_reload_ms)),
        ];
        for (what, value) in rows {
            table.row([what.to_owned(), value]);
        }
        table.render()
    }
}

/// Does it all and prints what became of the connections.
///
/// # Errors
/// It could not be done, or a connection broke.
pub(super) fn run(args: &DemoArgs, watch: &Watch) -> Result<(), DemoError> {
    let report = work(args, watch)?;
    console::print_as(args.json, &report, || report.describe())?;
    let OperationsReport { broken, connections, survived, .. } = report;
    if survived == connections {
        Ok(())
    } else {
        Err(DemoError::Broken { broken: broken.max(connections - survived), connections })
    }
}

fn work(args: &DemoArgs, watch: &Watch) -> Result<OperationsReport, RunError> {
    let progress = Progress::new();
    let show = |what: &str| progress.show(&format!("operations: {what}"));
    show("building the network");
    let mut topology = Topology::build()?;
    let _distances = Distances::lay(&mut topology, args.link_loss, 0.0)?;
    let topology = Arc::new(topology);
    let plan = ClusterPlan {
        nodes: 2,
        is_replicated: true,
        connections_max: CONNECTIONS_MAX,
        workers: args.workers,
        backend: Backend::default(),
        tuning: Tuning::default(),
    };
    let (shape, servers) = multi_primary::shape_and_servers(args);
    if shape == Shape::AllActive {
        ways::build(&topology)?;
    }
    let mut cluster = Cluster::start_as(shape, &topology, plan)?;
    if args.keep_logs {
        eprintln!("configurations and logs are in {}", cluster.keep_files().display());
    }
    cluster.wait_until_ready(watch)?;
    let plan = Plan { servers, connections: MIX.to_vec(), bulk_bytes_per_s: BULK_BYTES_PER_S, ramp_per_s: 1 };
    let session = Session::start(&topology, plan)?;
    await_established(&session, watch)?;
    let mut longest_reload = Duration::ZERO;
    for round in 0..RELOADS {
        show(&format!("reload {} of {RELOADS}", round + 1));
        for node in [0, 1] {
            let begun = Instant::now();
            cluster.reload(node, if round % 2 == 0 { CHANGED } else { "" })?;
            longest_reload = longest_reload.max(begun.elapsed());
        }
        watch.pass_until(Instant::now() + Duration::from_secs_f64(args.seconds / RELOADS as f64))?;
    }
    let pause = Duration::from_secs_f64(args.seconds / 8.0);
    ask_silent(&session, watch, pause)?;
    show("draining the active node");
    cluster.drain_and_undrain_active(watch)?;
    ask_silent(&session, watch, pause)?;
    // The one that stands by first, as one would: the addresses then move but once.
    let active = cluster.active()?;
    for node in [1 - active, active] {
        show("restarting a node");
        cluster.restart(&topology, node, watch)?;
        ask_silent(&session, watch, pause)?;
    }
    let last_step_at = Instant::now();
    // Long enough for a delayed transfer to make progress.
    ask_silent(&session, watch, pause.max(LAST_PAUSE_MIN))?;
    let outcomes = session.finish()?.outcomes;
    Ok(OperationsReport::new(&outcomes, last_step_at, longest_reload))
}

fn await_established(session: &Session, watch: &Watch) -> Result<(), RunError> {
    // Datagram flows and all others.
    let planned: usize = MIX.iter().map(|(_, number)| number).sum();
    let deadline = Instant::now() + ESTABLISHED_WITHIN;
    let waited =
        watch.until(deadline, || -> Result<bool, RunError> { Ok(session.progress().established >= planned) })?;
    if waited == Waited::Met {
        return Ok(());
    }
    let (established, within_s) = (session.progress().established, ESTABLISHED_WITHIN.as_secs());
    Err(RunError::NotEstablished { established, planned, within_s })
}

/// Has every connection that was silent ask something, waits for the answers (one that never comes shows in the report)
/// and lets traffic flow for a while.
pub(super) fn ask_silent(session: &Session, watch: &Watch, pause: Duration) -> Result<(), RunError> {
    let ends_at = Instant::now() + pause;
    let before = session.progress().wakes;
    session.wake_silent()?;
    watch.until(Instant::now() + ANSWERED_WITHIN, || -> Result<bool, RunError> {
        let progress = session.progress();
        Ok(progress.wakes > before && progress.unanswered == 0)
    })?;
    Ok(watch.pass_until(ends_at)?)
}
