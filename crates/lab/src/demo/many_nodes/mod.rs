//! The demo with many nodes between two edges. Each connection has as many backups as nodes are killed. Connections go on at the survivors,
//! and go on when the killed nodes have returned.
//! Before that, further nodes may join. The nodes may find each other through etcd, of which a member is killed before nodes are.

mod leave;
mod report;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use self::report::{Joined, ManyNodesReport, ManyNodesSettings, MembershipReport, Observed, Phase, Rejoined};
use super::DemoError;
use super::operations::ask_silent;
use super::run::{MIX, REPETITIONS_MAX, RunError};
use crate::args::DemoArgs;
use crate::testbed::cluster::{BackupsPlan, ClusterError};
use crate::testbed::many_nodes::{ManyNodes, ManyNodesPlan, MembersFrom, StateService};
use crate::testbed::session::Session;
use crate::testbed::topology::SERVER_PORTS;
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::client::Plan;
use crate::testbed::watch::Watch;
use crate::testbed::ways;
use console::Progress;

/// Rate of each transfer, in bytes a second: all processes of the cluster share this machine's processors.
const BULK_BYTES_PER_S: u64 = 500_000;
/// Connections that are opened once the killed nodes have returned.
const LATER: [(Kind, usize); 2] = [(Kind::Ticks, 16), (Kind::Idle, 32)];
/// The least time for a phase: a delayed transfer makes progress within it.
const PHASE_MIN: Duration = Duration::from_millis(1500);

/// Does it all and prints it.
///
/// # Errors
/// It could not be done, or a connection broke.
pub(super) fn run(args: &DemoArgs, nodes: u8, watch: &Watch) -> Result<(), DemoError> {
    if args.leave {
        return leave::run(args, nodes, watch);
    }
    let settings = ManyNodesSettings::new(args, nodes)?;
    let progress = Progress::new();
    let report = make_report(args, &settings, watch, &progress)?;
    progress.show("");
    console::print_as(args.json, &report, || report.describe())?;
    let (broken, connections) = report.broken_of();
    if broken == 0 { Ok(()) } else { Err(DemoError::Broken { broken, connections }) }
}

/// Runs again where a node was taken for dead before the kill, which on a busy machine it may be.
fn make_report(
    args: &DemoArgs,
    settings: &ManyNodesSettings,
    watch: &Watch,
    progress: &Progress,
) -> Result<ManyNodesReport, RunError> {
    let mut repeated = 0;
    loop {
        match run_once(args, settings, watch, progress) {
            Err(RunError::Cluster(ClusterError::TookOverEarly)) if repeated < REPETITIONS_MAX => repeated += 1,
            result => return result.map(|report| report.repeated(repeated)),
        }
    }
}

fn run_once(
    args: &DemoArgs,
    settings: &ManyNodesSettings,
    watch: &Watch,
    progress: &Progress,
) -> Result<ManyNodesReport, RunError> {
    let show = |what: &str| progress.show(&format!("{} nodes: {what}", settings.nodes));
    show("building the network");
    let mut many = ManyNodes::start(plan(args, settings), watch)?;
    if args.keep_logs {
        progress.show("");
        many.keep_files();
    }
    let phase = PHASE_MIN.max(Duration::from_secs_f64(args.seconds / 2.0));
    let killed: Vec<usize> = (0..settings.kill).collect();

    show("opening connections");
    let began = many.passed();
    let session = open(&many, watch, &SERVER_PORTS[..2], planned(args.ramp))?;
    watch.pass_until(Instant::now() + phase)?;
    let before = many.passed().since(began);

    for _ in 0..settings.add {
        show("adding a node");
        many.add_node(watch)?;
    }
    session.mark()?;
    if settings.add > 0 {
        ask_silent(&session, watch, phase)?;
    }
    session.mark()?;
    let pulled_by_join = StateService::of(&many.cluster).pulls;

    show("killing");
    let members = many.kill_etcd_member(watch)?;
    let at_kill = many.passed();
    let killed_at = many.kill(&killed, settings.kill_interval(), watch)?;
    session.mark()?;
    ask_silent(&session, watch, phase)?;
    session.mark()?;
    let after = many.passed().since(at_kill);
    let (edge_events, moved) = (many.edges.events(), many.moved());
    let pulled = StateService::of(&many.cluster).pulls.saturating_sub(pulled_by_join);

    show("starting the killed nodes again");
    many.restart_killed(&killed, watch)?;
    session.mark()?;
    let later = open(&many, watch, &SERVER_PORTS[2..], LATER.to_vec())?;
    ask_silent(&session, watch, phase)?;
    ask_silent(&later, watch, Duration::ZERO)?;
    session.mark()?;
    let all_pulled = StateService::of(&many.cluster).pulls;

    let (traffic, later) = (session.finish()?, later.finish()?);
    let outcomes = Phase::counted(&traffic.outcomes, killed_at);
    let rejoined =
        Rejoined::new(killed.len(), all_pulled.saturating_sub(pulled + pulled_by_join), &outcomes, &later.outcomes);
    let joined = (settings.add > 0).then(|| Joined::new(settings.add, pulled_by_join, &outcomes));
    let membership = members.map(MembershipReport::of_etcd);
    let observed = Observed {
        killed_at,
        edge_events: &edge_events,
        before,
        after,
        moved,
        pulls: pulled,
        idle_control_bytes_per_s: many.idle_control_bytes_per_s,
    };
    Ok(ManyNodesReport::new(settings, &observed, &outcomes, rejoined).with(joined, membership))
}

fn plan(args: &DemoArgs, settings: &ManyNodesSettings) -> ManyNodesPlan {
    let expected: usize = planned(args.ramp).iter().chain(&LATER).map(|(_, number)| number).sum();
    ManyNodesPlan {
        backups: Some(BackupsPlan { count: settings.kill, broadcast: true }),
        may_join: settings.add,
        members: if args.etcd { MembersFrom::Etcd } else { MembersFrom::Static },
        ..plan_of(args, settings.nodes, expected)
    }
}

/// So many nodes that replicate, for so many connections.
fn plan_of(args: &DemoArgs, nodes: usize, connections: usize) -> ManyNodesPlan {
    ManyNodesPlan {
        nodes,
        is_replicated: true,
        accepts: true,
        backups: None,
        connections,
        workers: args.workers,
        may_join: 0,
        members: MembersFrom::Static,
        believes_all_sources: false,
    }
}

fn planned(ramp: usize) -> Vec<(Kind, usize)> {
    // A silent connection is as good as one of a ramp, and all stand when the nodes are killed.
    let idle = |(kind, number)| if kind == Kind::Idle { (kind, number + ramp) } else { (kind, number) };
    MIX.into_iter().map(idle).collect()
}

/// Opens connections through the cluster, and waits until they stand.
pub(super) fn open(
    many: &ManyNodes,
    watch: &Watch,
    ports: &[u16],
    connections: Vec<(Kind, usize)>,
) -> Result<Session, RunError> {
    let servers: Vec<SocketAddr> = ways::server_addresses(ways::chosen(false), ports.iter().copied());
    let plan = Plan { servers, connections, bulk_bytes_per_s: BULK_BYTES_PER_S, ramp_per_s: 1 };
    super::run::open(&many.topology, plan, watch)
}
