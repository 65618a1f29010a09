//! What `mainstay bench workers` prints.

use serde::Serialize;

use super::Figures;
use crate::args::BenchWorkersArgs;
use crate::bench::rounds::{Rounds, rounded};
use console::{Table, count};

/// One measurement of either side.
#[derive(Debug, Serialize)]
pub(super) struct Scaling {
    /// With one worker, and with several.
    pub(super) medians: [f64; 2],
    /// Least and greatest figure of the rounds, of either.
    pub(super) spans: [[f64; 2]; 2],
    /// Several over one: the median of the rounds' ratios.
    pub(super) ratio: f64,
}

impl Scaling {
    fn new(rounds: &[Rounds; 2], places: i32) -> Self {
        let [alone, together] = rounds;
        Self {
            medians: [alone, together].map(|rounds| rounded(rounds.median(), places)),
            spans: [alone, together].map(|rounds| rounds.span().map(|figure| rounded(figure, places))),
            ratio: rounded(together.median_ratio(alone), 3),
        }
    }
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) workers: u8,
    pub(super) processors: usize,
    pub(super) connections: u32,
    pub(super) rounds: u32,
    pub(super) packets_per_round: u64,
    /// The pipeline over memory, in packets a second.
    pub(super) pipeline_packets_per_s: Scaling,
    /// A packet that came to the right worker, and one that was handed over, in nanoseconds.
    pub(super) ns_per_packet_direct_and_handed_over: [f64; 2],
    pub(super) streams: u16,
    /// Bulk TCP through a node, in gigabits a second; `None` when it was not measured.
    pub(super) bulk_gbit_per_s: Option<Scaling>,
    /// Of the packets of the bulk streams, those that came to the wrong worker.
    pub(super) handed_over_share: Option<f64>,
}

impl Report {
    pub(super) fn new(args: &BenchWorkersArgs, figures: &Figures) -> Self {
        let has_bulk = !args.pipeline_only;
        Self {
            workers: args.workers,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            connections: args.connections,
            rounds: args.rounds,
            packets_per_round: args.packets,
            pipeline_packets_per_s: Scaling::new(&figures.pipeline, 0),
            ns_per_packet_direct_and_handed_over: [0, 1].map(|at| rounded(figures.handed_over[at].median(), 1)),
            streams: args.streams,
            bulk_gbit_per_s: has_bulk.then(|| Scaling::new(&figures.bulk, 2)),
            handed_over_share: has_bulk.then(|| rounded(figures.handed_share, 5)),
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let mut table = Table::of("|>MEDIAN|>LEAST|>MOST|>RATIO");
        let mut rows = |what: &str, scaling: &Scaling, scale: f64| {
            for (side, workers) in [1, self.workers].into_iter().enumerate() {
                let figure = |value: f64| format!("{:.2}", value / scale);
                let [least, most] = scaling.spans[side];
                let ratio = if side == 0 { String::new() } else { format!("{:.2}", scaling.ratio) };
                let plural = if workers == 1 { "" } else { "s" };
                let name = format!("{what}, {workers} worker{plural}");
                table.row([name, figure(scaling.medians[side]), figure(least), figure(most), ratio]);
            }
        };
        rows("pipeline, million packets a second", &self.pipeline_packets_per_s, 1e6);
        if let Some(bulk) = &self.bulk_gbit_per_s {
            rows("bulk TCP, Gbit/s", bulk, 1.0);
        }
        let [direct, handed_over] = self.ns_per_packet_direct_and_handed_over;
        let share = self.handed_over_share.map_or_else(String::new, |share| {
            format!("Of the packets of {} streams {:.2} % came to the wrong worker.\n", self.streams, share * 100.0)
        });
        format!(
            "{} processors, {} TCP connections behind firewall and source NAT, {} rounds of {} packets of 64 bytes\n\n\
             {}\n\
             A packet takes {direct:.1} ns at the right worker, {handed_over:.1} ns when it comes to another first.\n{share}",
            self.processors,
            count(self.connections.into()),
            self.rounds,
            count(self.packets_per_round),
            table.render(),
        )
    }
}
