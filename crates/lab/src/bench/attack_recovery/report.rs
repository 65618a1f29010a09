//! What `mainstay bench attack-recovery` prints.

use serde::Serialize;

use super::{Figures, setting};
use crate::args::BenchAttackRecoveryArgs;
use crate::bench::rounds::{median_table, rounded};
use console::count;

/// A figure of either side.
#[derive(Debug, Serialize)]
pub(super) struct Sides<T> {
    pub(super) without_flood: T,
    pub(super) with_flood: T,
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) rounds: u32,
    /// Legitimate packets of a turn.
    pub(super) packets: u64,
    /// Connections whose packets are the legitimate ones.
    pub(super) connections: u32,
    /// Inside ports that one outside port stands for.
    pub(super) inside_ports_per_outside_port: u32,
    /// Bogus replies in a second of the node's work.
    pub(super) bogus_per_s: u32,
    /// Legitimate packets in a second of the node's work.
    pub(super) legitimate_per_s: Sides<f64>,
    /// Least and greatest of the rounds.
    pub(super) legitimate_per_s_spans: Sides<[f64; 2]>,
    /// With the flood over without: the median of the rounds' ratios.
    pub(super) legitimate_share: f64,
    /// Bogus replies of all rounds, and those of them that were dropped because the work was over its budget.
    pub(super) bogus: u64,
    pub(super) over_budget: u64,
    /// Tuples that were made again or looked for, for each second of the node's work under the flood.
    pub(super) tuples_per_s: f64,
}

impl Report {
    pub(super) fn new(args: &BenchAttackRecoveryArgs, figures: &Figures) -> Self {
        let [without, with] = &figures.legitimate_per_s;
        let sides = |rounds: [&super::Rounds; 2]| rounds.map(|rounds| rounds.median().round());
        let [without_flood, with_flood] = sides([without, with]);
        let spans = [without, with].map(|rounds| rounds.span().map(f64::round));
        let flood = &figures.flood;
        Self {
            rounds: args.rounds,
            packets: args.packets,
            connections: args.connections,
            inside_ports_per_outside_port: (u32::from(u16::MAX) + 1) / u32::from(setting::BLOCK_PORTS),
            bogus_per_s: args.rate,
            legitimate_per_s: Sides { without_flood, with_flood },
            legitimate_per_s_spans: Sides { without_flood: spans[0], with_flood: spans[1] },
            legitimate_share: rounded(with.median_ratio(without), 3),
            bogus: flood.bogus,
            over_budget: flood.over_budget,
            tuples_per_s: (flood.tuples as f64 / flood.spent.as_secs_f64().max(f64::MIN_POSITIVE)).round(),
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let Sides { without_flood, with_flood } = &self.legitimate_per_s;
        let spans = &self.legitimate_per_s_spans;
        let table = median_table(
            "LEGITIMATE PACKETS A SECOND",
            0,
            [
                ("without the flood", *without_flood, spans.without_flood),
                ("with the flood", *with_flood, spans.with_flood),
            ],
        );
        format!(
            "{} connections through a node that recovers, {} bogus replies a second, each of which may belong to {} inside\n\
             ports; {} rounds of {} packets a side, processor time\n\n{table}\n\
             {:.3} of the legitimate throughput is left. Of {} bogus replies, {} were dropped over the budget; {} tuples a second\n\
             were made again or looked for.\n",
            count(self.connections.into()),
            count(self.bogus_per_s.into()),
            self.inside_ports_per_outside_port,
            self.rounds,
            count(self.packets),
            self.legitimate_share,
            count(self.bogus),
            count(self.over_budget),
            count(self.tuples_per_s as u64),
        )
    }
}
