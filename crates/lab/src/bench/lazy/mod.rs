//! `mainstay bench lazy`: what passes through a pair of nodes under a flood of short connections (MLCBF, figure 26a).
//!
//! Three pairs stand side by side in networks of their own: one does not replicate, one replicates every connection at
//! once, one lets the load decide how long connections are deferred. They are measured in turns, either rests while
//! another is measured. A turn is a flood of short connections (a question each, over UDP, at a fixed rate) and, once
//! the threshold has had time to find its level, the throughput of a few TCP streams.
//!
//! Then the active node of the third pair is killed in the midst of the flood: connections that were older than the threshold
//! must go on. If the load never led to a level of degradation, nothing was deferred, and there is no result.
//!
//! All ends of the networks and all nodes share this machine's processors. By default both nodes of a pair are
//! kept on one of them, so that theirs is what is short, as in the paper's testbed, and the flood and the ends of the
//! streams have the others.

mod flood;
mod long;
mod report;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packet_io::limits;
use replication::deferral::{Config as Lazy, Dynamic};

use self::flood::Flood;
use self::long::LongConnections;
use self::report::{Report, Survival};
use super::BenchError;
use super::bulk::streams::Streams;
use super::rounds::{self, Rounds};
use super::setup_rate::server::Server;
use crate::args::BenchLazyArgs;
use crate::testbed;
use crate::testbed::cluster::{Cluster, ClusterPlan, Tuning};
use crate::testbed::topology::{SERVER, Topology};
use crate::testbed::watch::{Waited, Watch};
use api::{LazyStatus, NodeRole, Status};
use config::validated::Backend;
use console::Progress;

/// Connections that a node has room for.
const CONNECTIONS_MAX: usize = 1 << 18;
/// What a connection that is a question alone stays in the table for: as long as a node's table is to bear the flood.
const UDP_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two decisions: short, so that a round need not be long.
const DECISION_INTERVAL: Duration = Duration::from_millis(250);
/// The port that long connections are answered on.
const LONG_PORT: u16 = 7200;
/// How long the standby may take until it holds the addresses.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(10);
/// Descriptors that are needed beside those of the connections.
const SPARE_DESCRIPTORS: u64 = 512;

/// The sides, in the order of the report.
const SIDES: [Side; 3] = [Side::NoReplication, Side::AtOnce, Side::Deferred];

/// What a pair does about connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    NoReplication,
    AtOnce,
    Deferred,
}

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, nothing gets through, the load is too low, or the result cannot be printed.
pub fn run(args: &BenchLazyArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// What is measured of one pair, each with a figure a round.
#[derive(Default)]
struct Figures {
    megabits_per_s: Rounds,
    /// Short connections a second that the flood sent, and that the active node began.
    offered_per_s: Rounds,
    begun_per_s: Rounds,
    /// Shares of a processor.
    active_cpu: Rounds,
    standby_cpu: Rounds,
    /// Messages that the active node sent for each connection that it began.
    messages_per_connection: Rounds,
    /// How busy the active node's thread or processors were, by which it decided.
    utilisation: Rounds,
    threshold_ms: Rounds,
    level: Rounds,
    /// The greatest level at any reading.
    level_max: u8,
}

fn measure(args: &BenchLazyArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    limits::raise_open_files(SPARE_DESCRIPTORS + 2 * u64::from(args.long_connections))?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    progress.show("building the networks");
    let mut pairs = SIDES.iter().map(|side| Pair::start(*side, args, &watch)).collect::<Result<Vec<_>, _>>()?;
    let mut figures = SIDES.map(|_| Figures::default());
    rounds::repeat(&progress, "flood", args.rounds, |round| {
        // Each side is the first, the second and the third in turn.
        for place in 0..SIDES.len() {
            let side = (place + round as usize) % SIDES.len();
            pairs[side].measure(args, &watch, &mut figures[side])?;
        }
        Ok::<_, BenchError>(())
    })?;
    let [.., of_deferred] = &figures;
    if of_deferred.level_max == 0 {
        let utilisation_max = f64::from(Dynamic::default().utilisation_per_mille_max) / 1e3;
        return Err(BenchError::NeverDegraded { utilisation: of_deferred.utilisation.median(), utilisation_max });
    }
    progress.show("killing the active node in the midst of the flood");
    let deferred = pairs.pop().ok_or(BenchError::NothingPassed)?;
    // The others need no processor any more.
    drop(pairs);
    let survival = deferred.survive(args, &watch)?;
    Ok(Report::new(args, &figures, &survival))
}

/// A pair of nodes between a client and a server.
struct Pair {
    topology: Arc<Topology>,
    cluster: Cluster,
}

/// The meters' readings at a moment.
struct Reading {
    at: Instant,
    received_bytes: u64,
    sent: u64,
    cpu_times: Vec<Duration>,
    active: Status,
}

impl Pair {
    fn start(side: Side, args: &BenchLazyArgs, watch: &Watch) -> Result<Self, BenchError> {
        let topology = Arc::new(Topology::build()?);
        let dynamic = Dynamic { interval: DECISION_INTERVAL, ..Dynamic::default() };
        let plan = ClusterPlan {
            nodes: 2,
            is_replicated: side != Side::NoReplication,
            connections_max: CONNECTIONS_MAX,
            workers: 1,
            backend: Backend::default(),
            tuning: Tuning {
                holds_first_reply: false,
                lazy: (side == Side::Deferred).then_some(Lazy::Dynamic(dynamic)),
                udp_timeout: Some(UDP_TIMEOUT),
                ..Tuning::default()
            },
        };
        let mut cluster = Cluster::start(&topology, plan)?;
        cluster.wait_until_ready(watch)?;
        if !args.spread {
            // On a machine with one processor they are on it anyway.
            let _ = cluster.keep_on_processor(0);
        }
        Ok(Self { topology, cluster })
    }

    /// Lets the flood pass for the time asked for, and adds a figure of each kind.
    fn measure(&mut self, args: &BenchLazyArgs, watch: &Watch, into: &mut Figures) -> Result<(), BenchError> {
        let Topology { client, server, .. } = &*self.topology;
        let streams = Streams::open(client, server, Topology::server_addresses()[0], args.streams)?;
        let flood = Flood::start(client, SERVER[0], args.rate)?;
        watch.pass_until(Instant::now() + Duration::from_secs_f64(args.settle_seconds))?;
        let before = self.read(&streams, &flood)?;
        watch.pass_until(before.at + Duration::from_secs_f64(args.seconds))?;
        let after = self.read(&streams, &flood)?;
        drop((flood, streams));
        self.cluster.check_roles()?;
        into.add(&before, &after)
    }

    fn read(&self, streams: &Streams, flood: &Flood) -> Result<Reading, BenchError> {
        // What asks the nodes comes first: it takes time, the rest none.
        let active = self.active()?;
        Ok(Reading {
            at: Instant::now(),
            received_bytes: streams.received_bytes(),
            sent: flood.sent(),
            cpu_times: self.cluster.cpu_times(),
            active,
        })
    }

    fn active(&self) -> Result<Status, BenchError> {
        let statuses = self.cluster.statuses();
        statuses.into_iter().find(|status| status.node.role == NodeRole::Active).ok_or(BenchError::NothingPassed)
    }

    /// Kills the active node while the flood passes: how many of the connections that are older than the threshold go on.
    fn survive(mut self, args: &BenchLazyArgs, watch: &Watch) -> Result<Survival, BenchError> {
        let topology = Arc::clone(&self.topology);
        let address = SocketAddr::new(SERVER[0], LONG_PORT);
        let _server = Server::start(&topology.server, &[address])?;
        let flood = Flood::start(&topology.client, SERVER[0], args.rate)?;
        // They begin in the midst of the flood, while connections are deferred.
        watch.pass_until(Instant::now() + Duration::from_secs_f64(args.settle_seconds))?;
        let mut long = LongConnections::open(&topology.client, address, args.long_connections)?;
        let oldest = Dynamic::default().threshold_max + DECISION_INTERVAL;
        watch.pass_until(Instant::now() + oldest)?;
        let lazy = self.active()?.lazy.unwrap_or_default();
        let _ = self.cluster.kill_active_unchecked()?;
        let taken_over = watch
            .until(Instant::now() + TAKEN_OVER_WITHIN, || -> Result<bool, BenchError> { Ok(self.active().is_ok()) })?;
        // The flood goes on until the other node holds the addresses; what is asked then is about connections alone.
        drop(flood);
        let survived = if taken_over == Waited::Met { long.answered() } else { 0 };
        Ok(Survival { survived, of: args.long_connections.into(), before: lazy })
    }
}

impl Figures {
    fn add(&mut self, before: &Reading, after: &Reading) -> Result<(), BenchError> {
        let seconds = (after.at - before.at).as_secs_f64();
        let bytes = after.received_bytes - before.received_bytes;
        if bytes == 0 || after.sent == before.sent {
            return Err(BenchError::NothingPassed);
        }
        self.megabits_per_s.push(bytes as f64 * 8e-6 / seconds);
        self.offered_per_s.push((after.sent - before.sent) as f64 / seconds);
        self.begun_per_s.push(after.active.rates.connections_per_s);
        let spent = |node: usize| {
            let of = |reading: &Reading| reading.cpu_times.get(node).copied().unwrap_or_default();
            of(after).saturating_sub(of(before)).as_secs_f64() / seconds
        };
        self.active_cpu.push(spent(0));
        self.standby_cpu.push(spent(1));
        let sent = |status: &Status| status.peers.iter().map(|peer| peer.sent).sum::<u64>();
        let messages = sent(&after.active).saturating_sub(sent(&before.active)) as f64;
        self.messages_per_connection.push(messages / (after.active.rates.connections_per_s * seconds).max(1.0));
        let LazyStatus { threshold_ms, level, utilisation, .. } = after.active.lazy.unwrap_or_default();
        self.utilisation.push(utilisation.unwrap_or_default());
        self.threshold_ms.push(threshold_ms);
        self.level.push(level.into());
        self.level_max = self.level_max.max(level).max(before.active.lazy.unwrap_or_default().level);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
