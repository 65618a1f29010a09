//! What `mainstay bench cluster` prints.

use serde::Serialize;

use super::super::rounds::{Rounds, rounded};
use super::network::{SIDES, Side};
use super::throughput::{self, FlowRules, Throughput};
use crate::args::BenchClusterArgs;
use console::Table;

/// Median and 99th percentile of latencies in microseconds, before the failure and after it, and what became of connections.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Figures {
    pub(super) before: [Option<f64>; 2],
    pub(super) after: [Option<f64>; 2],
    /// Connections that broke.
    pub(super) broken: f64,
    /// Connections that the failure moved.
    pub(super) moved: f64,
    /// Records that were read from the remote store for a request and its answer, before the failure.
    pub(super) reads_per_request: Option<f64>,
}

/// Shares of a replicated cluster.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Shares {
    /// Bytes between the nodes over bytes that entered the cluster.
    pub(super) control: f64,
    /// Bytes between the nodes in a second before there are connections.
    pub(super) idle_bytes_per_s: f64,
    /// Connections that were pulled, of those that the failure moved.
    pub(super) pulls: f64,
}

/// The rounds of one side.
#[derive(Clone, Debug, Default)]
struct Measured {
    before: [Rounds; 2],
    after: [Rounds; 2],
    broken: Rounds,
    moved: Rounds,
    reads_per_request: Rounds,
}

/// A figure of each side; `None`: it was not measured.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
struct OfSides {
    mainstay: Option<f64>,
    baseline: Option<f64>,
    remote_store: Option<f64>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
struct LatencyUs {
    p50: OfSides,
    p99: OfSides,
}

/// The share of moved connections whose state had to be pulled.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
struct PullsShare {
    /// With predicted backups, measured here.
    predictive: f64,
    /// With as many backups on random nodes, from a simulation of the same cluster.
    random: f64,
}

/// Throughput of each side; `None`: it was not measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
struct ThroughputOfSides {
    mainstay: Option<Throughput>,
    baseline: Option<Throughput>,
    remote_store: Option<Throughput>,
}

/// What is not measured, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
struct Reasons {
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_store: Option<String>,
}

/// The result.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Report {
    /// Processors of the machine, which all processes share.
    processors: usize,
    nodes: u8,
    /// Nodes that were killed at once, and backups of each connection.
    kill: u8,
    connections: u16,
    rounds: u32,
    /// Medians of the rounds before the failure.
    latency_us: LatencyUs,
    /// The same on the connections that went on after it.
    latency_after_us: LatencyUs,
    /// Connections that broke.
    broken: OfSides,
    /// Connections that the failure moved, at the inside edge.
    moved: OfSides,
    /// Records that were read from the remote store for a request and its answer: one for each packet.
    store_reads_per_request: Option<f64>,
    /// Bytes between the nodes over bytes that entered the cluster, from before the first connection until the failure.
    control_share: f64,
    /// Bytes between the nodes in a second before there are connections: heartbeats, keep-alives and acknowledgements.
    idle_control_bytes_per_s: f64,
    pulls_share: PullsShare,
    flow_rules: FlowRules,
    throughput: ThroughputOfSides,
    reasons: Reasons,
    #[serde(skip)]
    measured: [Measured; 3],
    #[serde(skip)]
    control: Rounds,
    #[serde(skip)]
    idle: Rounds,
    #[serde(skip)]
    pulls: Rounds,
    #[serde(skip)]
    throughput_rounds: [Vec<Throughput>; 3],
}

impl Report {
    /// A report without figures but that of random backups.
    pub(super) fn new(args: &BenchClusterArgs, random: f64, no_store: Option<String>) -> Self {
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            nodes: args.nodes,
            kill: args.kill,
            connections: args.connections,
            rounds: args.rounds,
            pulls_share: PullsShare { predictive: 0.0, random: rounded(random, 4) },
            flow_rules: FlowRules::of(args.nodes),
            reasons: Reasons { remote_store: no_store },
            ..Self::default()
        }
    }

    /// Adds a round of a side.
    pub(super) fn push(&mut self, side: Side, figures: Figures, shares: Option<Shares>) {
        let measured = &mut self.measured[side as usize];
        for (quantile, (before, after)) in figures.before.into_iter().zip(figures.after).enumerate() {
            before.into_iter().for_each(|figure| measured.before[quantile].push(figure));
            after.into_iter().for_each(|figure| measured.after[quantile].push(figure));
        }
        measured.broken.push(figures.broken);
        measured.moved.push(figures.moved);
        figures.reads_per_request.into_iter().for_each(|reads| measured.reads_per_request.push(reads));
        if let Some(shares) = shares {
            self.control.push(shares.control);
            self.idle.push(shares.idle_bytes_per_s);
            self.pulls.push(shares.pulls);
        }
    }

    /// Adds what the transfers of a side came to in a round.
    pub(super) fn push_throughput(&mut self, side: Side, throughput: Throughput) {
        self.throughput_rounds[side as usize].push(throughput);
    }

    /// With the medians of all rounds.
    pub(super) fn finished(self) -> Self {
        let [mainstay, baseline, remote_store] =
            SIDES.map(|side| Throughput::median(&self.throughput_rounds[side as usize]));
        let quantiles = |of: fn(&Measured) -> &[Rounds; 2]| LatencyUs {
            p50: self.of_sides(|measured| &of(measured)[0], 1),
            p99: self.of_sides(|measured| &of(measured)[1], 1),
        };
        Self {
            latency_us: quantiles(|measured| &measured.before),
            latency_after_us: quantiles(|measured| &measured.after),
            broken: self.of_sides(|measured| &measured.broken, 0),
            moved: self.of_sides(|measured| &measured.moved, 0),
            store_reads_per_request: self.of_sides(|measured| &measured.reads_per_request, 2).remote_store,
            control_share: rounded(self.control.median(), 4),
            idle_control_bytes_per_s: rounded(self.idle.median(), 0),
            pulls_share: PullsShare { predictive: rounded(self.pulls.median(), 4), ..self.pulls_share },
            throughput: ThroughputOfSides { mainstay, baseline, remote_store },
            ..self.clone()
        }
    }

    fn of_sides(&self, rounds: impl Fn(&Measured) -> &Rounds, places: i32) -> OfSides {
        let median = |side: Side| {
            let rounds = rounds(&self.measured[side as usize]);
            (!rounds.is_empty()).then(|| rounded(rounds.median(), places))
        };
        let [mainstay, baseline, remote_store] = SIDES.map(median);
        OfSides { mainstay, baseline, remote_store }
    }

    pub(super) fn describe(&self) -> String {
        let mut table = Table::of("LATENCY OF A REQUEST|>MAINSTAY|>BASELINE|>REMOTE STORE");
        let mut row = |what: &str, sides: OfSides, unit: &str| {
            let figure =
                |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure}{unit}"));
            table.row([what.to_owned(), figure(sides.mainstay), figure(sides.baseline), figure(sides.remote_store)]);
        };
        row("median", self.latency_us.p50, " µs");
        row("99 of 100", self.latency_us.p99, " µs");
        row("median after the failure", self.latency_after_us.p50, " µs");
        row("99 of 100 after the failure", self.latency_after_us.p99, " µs");
        row("connections moved by the failure", self.moved, "");
        row("connections broken", self.broken, "");
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let PullsShare { predictive, random } = self.pulls_share;
        let ThroughputOfSides { mainstay, baseline, remote_store } = &self.throughput;
        let sides = [("mainstay", mainstay), ("baseline", baseline), ("remote store", remote_store)];
        format!(
            "{}\n{}\nBytes between the nodes, of those of the workload: {}. States pulled, of the connections that moved: {} with \
             predicted\nbackups, {} with random ones (simulated). Nodes, edges, hosts and store share this machine's processors.\n{}",
            table.render(),
            throughput::describe(&sides.map(|(name, side)| (name, side.as_ref()))),
            percent(self.control_share),
            percent(predictive),
            percent(random),
            self.reasons.remote_store.as_ref().map_or_else(String::new, |reason| format!("{reason}\n")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_medians_and_a_missing_store_has_its_reason() {
        let args = BenchClusterArgs { nodes: 4, kill: 1, connections: 64, seconds: 1.0, rounds: 3, json: true };
        let mut report = Report::new(&args, 0.66, Some("install the package".into()));
        for round in [100.0, 300.0, 200.0] {
            let figures = Figures {
                before: [Some(round), Some(2.0 * round)],
                after: [Some(round + 1.0), None],
                broken: 0.0,
                moved: 16.0,
                reads_per_request: None,
            };
            report.push(Side::Mainstay, figures, Some(Shares { control: 0.08, idle_bytes_per_s: 2e5, pulls: 0.0 }));
            report.push(Side::Baseline, Figures { broken: 16.0, ..figures }, None);
        }
        let report = report.finished();
        let json = serde_json::to_value(&report).expect("it is plain data");
        assert_eq!(json["latency_us"]["p50"]["mainstay"], 200.0);
        assert_eq!(json["latency_us"]["p99"]["baseline"], 400.0);
        assert!(json["latency_us"]["p50"]["remote_store"].is_null() && json["reasons"]["remote_store"].is_string());
        assert!(json["store_reads_per_request"].is_null());
        assert!(json["latency_after_us"]["p99"]["mainstay"].is_null());
        assert_eq!((&json["broken"]["baseline"], &json["pulls_share"]["random"]), (&16.0.into(), &0.66.into()));
        assert_eq!((&json["control_share"], &json["pulls_share"]["predictive"]), (&0.08.into(), &0.0.into()));
        assert!(report.describe().contains("install the package"));
    }
}
