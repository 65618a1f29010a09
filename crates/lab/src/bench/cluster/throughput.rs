//! Bytes through the cluster while nodes join and while nodes fail \[TRIPOD, figures 10 and 13\].

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use flow::{Affinity, Ecmp};
use serde::Serialize;

use super::super::BenchError;
use super::super::rounds::{Rounds, rounded};
use super::network::{Network, Side, server_addresses};
use crate::args::BenchClusterArgs;
use crate::testbed::session::Session;
use crate::testbed::topology::NODES_MAX;
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::client::Plan;
use crate::testbed::traffic::outcome::{Outcome, Timeline};
use crate::testbed::watch::{Waited, Watch};
use console::Table;

/// Transfers in each direction.
const TRANSFERS: usize = 12;
/// Connections of a trial.
pub(super) const CONNECTIONS: usize = 2 * TRANSFERS;
/// Rate of each, in bytes a second. All processes share this machine's processors, and the remote store has to keep up.
const TRANSFER_BYTES_PER_S: u64 = 100_000;
/// Nodes that join, if the network has room for them.
const JOINING_MAX: usize = 2;
/// How long transfers may take until they are established.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(5);
/// Throughput is looked at in slices of this length, as in the paper (section VI-A).
const SLICE: Duration = Duration::from_millis(100);
/// Throughput has recovered when it is this share of what it was.
const RECOVERED_SHARE: f64 = 0.9;

/// Nodes that join a cluster of so many.
pub(super) fn joining(side: Side, nodes: usize) -> usize {
    // Only the replicated cluster promises that a further node breaks nothing.
    if side == Side::Mainstay { JOINING_MAX.min(NODES_MAX - nodes) } else { 0 }
}

/// Throughput of the hosts' transfers in a phase.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(super) struct Phase {
    /// Bytes a second that arrived.
    bytes_per_s: f64,
    /// The same in the slice of 100 ms in which the fewest arrived.
    lowest_bytes_per_s: f64,
    /// Bytes a second that entered each node from the edges, in the nodes' order; a killed node has none.
    node_bytes_per_s: Vec<f64>,
}

/// Throughput of one side.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(super) struct Throughput {
    /// Before anything happens.
    before: Phase,
    /// After each node that joined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    joined: Vec<Phase>,
    /// From the failure on.
    failing: Phase,
    /// After that.
    after: Phase,
    /// From the failure until a slice had 90 % of the throughput before it, in milliseconds; `None`: none had.
    recovered_ms: Option<f64>,
    /// Transfers that had stopped by the end.
    stopped: f64,
    /// Bytes between the nodes over bytes that entered the cluster, from before the first transfer until the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    control_share: Option<f64>,
}

/// Entries of the tables by which an edge selects nodes \[TRIPOD, section VI-B\].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct FlowRules {
    /// Entries that select a node by the hash of a flow.
    first_stage: usize,
    /// Failover groups, one for each node.
    second_stage: usize,
    /// Entries for each connection: its node, with learned affinity.
    per_connection: usize,
}

impl FlowRules {
    /// Of edges before so many nodes, with the affinity that edges have unless configured otherwise.
    pub(super) fn of(nodes: u8) -> Self {
        let per_connection = usize::from(Affinity::default() == Affinity::Learned);
        Self { first_stage: Ecmp::ENTRIES, second_stage: nodes.into(), per_connection }
    }
}

/// A phase while it is measured.
struct Observed {
    span: Range<Instant>,
    /// Bytes that entered each node in it, by the node's name.
    entered: BTreeMap<String, u64>,
}

/// Runs transfers through the network: before a failure, while nodes join, through the failure and after it.
pub(super) fn trial(
    args: &BenchClusterArgs,
    network: &mut Network,
    joining: usize,
    watch: &Watch,
) -> Result<Throughput, BenchError> {
    let lasting = Duration::from_secs_f64(args.seconds / 2.0);
    let began = network.many.passed();
    let session = open(network, watch)?;
    let mut phases = vec![observe(network, lasting, watch)?];
    for _ in 0..joining {
        network.many.add_node(watch)?;
        phases.push(observe(network, lasting, watch)?);
    }
    let control_share = network.is_replicated.then(|| network.many.passed().since(began).control_share());
    let before_kill = entered(network);
    let killed_at = network.kill(args.kill, watch)?.instant();
    // The time until the edges have noticed is part of the phase.
    phases.push(observe_since(network, (killed_at, before_kill), lasting, watch)?);
    phases.push(observe(network, lasting, watch)?);
    let traffic = session.finish()?;

    let nodes = network.many.cluster.node_names();
    let mut measured: Vec<Phase> = phases.iter().map(|phase| phase.measured(&traffic.timeline, &nodes)).collect();
    let (after, failing) = (measured.pop().unwrap_or_default(), measured.pop().unwrap_or_default());
    let normal = measured.last().map_or(0.0, |phase| phase.bytes_per_s);
    let end = phases.last().map_or(killed_at, |phase| phase.span.end);
    let recovered = slices(&traffic.timeline, &(killed_at..end))
        .into_iter()
        .position(|bytes| bytes as f64 / SLICE.as_secs_f64() >= normal * RECOVERED_SHARE);
    let stopped_since = phases.last().map_or(killed_at, |phase| phase.span.start);
    let has_stopped = |outcome: &&Outcome| !outcome.survived(stopped_since);
    Ok(Throughput {
        before: measured.remove(0),
        joined: measured,
        failing,
        after,
        recovered_ms: recovered.map(|slice| (SLICE.as_millis() as usize * slice) as f64),
        stopped: traffic.outcomes.iter().filter(has_stopped).count() as f64,
        control_share,
    })
}

fn open(network: &Network, watch: &Watch) -> Result<Session, BenchError> {
    let plan = Plan {
        servers: server_addresses(),
        connections: vec![(Kind::Download, TRANSFERS), (Kind::Upload, TRANSFERS)],
        bulk_bytes_per_s: TRANSFER_BYTES_PER_S,
        ramp_per_s: 1,
    };
    let session = Session::start(&network.many.topology, plan)?;
    let waited = watch.until(Instant::now() + ESTABLISHED_WITHIN, || -> Result<bool, BenchError> {
        Ok(session.progress().established >= CONNECTIONS)
    })?;
    if waited == Waited::TooLate {
        let reason = format!("{} of {} are established", session.progress().established, CONNECTIONS);
        return Err(BenchError::NotReady { what: "the transfers", reason });
    }
    Ok(session)
}

fn observe(network: &Network, lasting: Duration, watch: &Watch) -> Result<Observed, BenchError> {
    observe_since(network, (Instant::now(), entered(network)), lasting, watch)
}

/// From a moment in the past on, at which so many bytes had entered each node, until `lasting` from now.
fn observe_since(
    network: &Network,
    (start, before): (Instant, BTreeMap<String, u64>),
    lasting: Duration,
    watch: &Watch,
) -> Result<Observed, BenchError> {
    watch.pass_until(Instant::now() + lasting)?;
    let end = Instant::now();
    let since = |(name, bytes): (String, u64)| {
        let bytes = bytes.saturating_sub(before.get(&name).copied().unwrap_or_default());
        (name, bytes)
    };
    Ok(Observed { span: start..end, entered: entered(network).into_iter().map(since).collect() })
}

/// Bytes that the ports of each node have received.
fn entered(network: &Network) -> BTreeMap<String, u64> {
    let statuses = network.many.cluster.statuses().into_iter();
    let received = statuses.map(|status| {
        let bytes = status.ports.iter().map(|port| port.received_bytes).sum();
        (status.node.name, bytes)
    });
    received.collect()
}

impl Observed {
    fn measured(&self, timeline: &Timeline, nodes: &[&str]) -> Phase {
        let slices = slices(timeline, &self.span);
        let per_s = |bytes: u64, span: Duration| rounded(bytes as f64 / span.as_secs_f64(), 0);
        let whole = SLICE * slices.len().max(1) as u32;
        let span = self.span.end - self.span.start;
        let entered = |name: &&str| per_s(self.entered.get(*name).copied().unwrap_or_default(), span);
        Phase {
            bytes_per_s: per_s(slices.iter().sum(), whole),
            lowest_bytes_per_s: per_s(slices.iter().min().copied().unwrap_or_default(), SLICE),
            node_bytes_per_s: nodes.iter().map(entered).collect(),
        }
    }
}

/// Bytes that arrived in each whole slice of `span`.
fn slices(timeline: &Timeline, span: &Range<Instant>) -> Vec<u64> {
    let whole = (span.end - span.start).as_nanos() / SLICE.as_nanos();
    let mut slices = vec![0; whole as usize];
    for sample in timeline.samples().filter(|sample| sample.at >= span.start) {
        let slice = (sample.at - span.start).as_nanos() / SLICE.as_nanos();
        if let Some(bytes) = slices.get_mut(slice as usize) {
            *bytes += sample.bytes;
        }
    }
    slices
}

impl Throughput {
    /// Each figure is the median of the rounds. `None`: there were none.
    pub(super) fn median(rounds: &[Self]) -> Option<Self> {
        let first = rounds.first()?;
        let phase = |of: &dyn Fn(&Self) -> &Phase| Phase::median(&rounds.iter().map(of).collect::<Vec<_>>());
        let recovered: Vec<f64> = rounds.iter().filter_map(|round| round.recovered_ms).collect();
        let shares: Vec<f64> = rounds.iter().filter_map(|round| round.control_share).collect();
        let some = |figures: Vec<f64>, places| (!figures.is_empty()).then(|| rounded(median(figures), places));
        Some(Self {
            before: phase(&|round| &round.before),
            joined: (0..first.joined.len()).map(|node| phase(&|round| &round.joined[node])).collect(),
            failing: phase(&|round| &round.failing),
            after: phase(&|round| &round.after),
            // A round in which throughput did not recover would be hidden by the others.
            recovered_ms: if recovered.len() == rounds.len() { some(recovered, 0) } else { None },
            stopped: median(rounds.iter().map(|round| round.stopped)),
            control_share: some(shares, 4),
        })
    }
}

impl Phase {
    fn median(rounds: &[&Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(rounds.iter().map(|round| figure(round)));
        let nodes = rounds.first().map_or(0, |round| round.node_bytes_per_s.len());
        Self {
            bytes_per_s: of(&|round| round.bytes_per_s),
            lowest_bytes_per_s: of(&|round| round.lowest_bytes_per_s),
            node_bytes_per_s: (0..nodes).map(|node| of(&|round| round.node_bytes_per_s[node])).collect(),
        }
    }
}

fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut rounds = Rounds::default();
    figures.into_iter().for_each(|figure| rounds.push(figure));
    rounds.median()
}

/// A table of the sides that were measured.
pub(super) fn describe(sides: &[(&str, Option<&Throughput>)]) -> String {
    let mut table = Table::of("THROUGHPUT|>KB A SECOND|>LEAST IN 100 MS|>INTO EACH NODE");
    for (name, side) in sides.iter().filter_map(|(name, side)| Some((name, (*side)?))) {
        let joined = side.joined.iter().enumerate().map(|(number, phase)| (format!("{} joined", number + 1), phase));
        let phases = [("before".to_owned(), &side.before)].into_iter().chain(joined);
        let phases = phases.chain([("failing".to_owned(), &side.failing), ("after".to_owned(), &side.after)]);
        for (what, phase) in phases {
            let kilo = |bytes: f64| format!("{:.0}", bytes / 1e3);
            let nodes: Vec<String> = phase.node_bytes_per_s.iter().map(|bytes| kilo(*bytes)).collect();
            let [all, least] = [phase.bytes_per_s, phase.lowest_bytes_per_s].map(kilo);
            table.row([format!("{name}, {what}"), all, least, nodes.join(" ")]);
        }
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_hold_what_arrived_within_the_span() {
        let start = Instant::now();
        let mut timeline = Timeline::new(start);
        let at = |ms| start + Duration::from_millis(ms);
        for (ms, bytes) in [(5, 1), (105, 10), (195, 20), (205, 300), (399, 4000)] {
            timeline.note(at(ms), Kind::Download, bytes);
        }
        assert_eq!(slices(&timeline, &(at(100)..at(350))), [30, 300]);
        let observed = Observed { span: at(100)..at(300), entered: [("a".to_owned(), 50)].into() };
        let phase = observed.measured(&timeline, &["a", "b"]);
        assert_eq!((phase.bytes_per_s, phase.lowest_bytes_per_s), (1650.0, 300.0));
        assert_eq!(phase.node_bytes_per_s, [250.0, 0.0]);
    }

    #[test]
    fn figures_are_medians_and_a_round_without_recovery_is_not_hidden() {
        let round = |bytes_per_s, recovered_ms| {
            let phase = Phase { bytes_per_s, node_bytes_per_s: vec![bytes_per_s], ..Phase::default() };
            Throughput { before: phase.clone(), joined: vec![phase], recovered_ms, ..Throughput::default() }
        };
        let rounds = [round(3.0, Some(300.0)), round(1.0, Some(200.0)), round(2.0, Some(100.0))];
        let median = Throughput::median(&rounds).expect("there are rounds");
        assert_eq!((median.before.bytes_per_s, median.joined[0].node_bytes_per_s[0]), (2.0, 2.0));
        assert_eq!((median.recovered_ms, median.control_share), (Some(200.0), None));
        assert!(describe(&[("mainstay", Some(&median)), ("baseline", None)]).contains("mainstay, 1 joined"));
        assert_eq!(Throughput::median(&[round(1.0, None), round(1.0, Some(1.0))]).unwrap().recovered_ms, None);
        assert_eq!(Throughput::median(&[]), None);
    }
}
