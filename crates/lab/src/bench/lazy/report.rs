//! What `mainstay bench lazy` prints.

use serde::Serialize;

use super::Figures;
use crate::args::BenchLazyArgs;
use crate::bench::rounds::rounded;
use api::LazyStatus;
use console::{Table, count};

/// A figure of each side.
#[derive(Debug, Serialize)]
pub(super) struct Sides<T> {
    /// No connection is replicated.
    pub(super) no_replication: T,
    /// Every connection is replicated as soon as it begins.
    pub(super) no_dli: T,
    /// The load decides.
    pub(super) dli: T,
}

impl<T> Sides<T> {
    fn of(figures: &[Figures; 3], figure: impl Fn(&Figures) -> T) -> Self {
        let [no_replication, no_dli, dli] = figures.each_ref().map(figure);
        Self { no_replication, no_dli, dli }
    }
}

/// A ratio and what it is to reach.
#[derive(Debug, Serialize)]
pub(super) struct Goal {
    /// The median of the rounds' ratios.
    pub(super) ratio: f64,
    pub(super) goal: f64,
    pub(super) is_reached: bool,
}

impl Goal {
    fn new(ratio: f64, goal: f64) -> Self {
        Self { ratio: rounded(ratio, 3), goal, is_reached: ratio >= goal }
    }

    fn describe(&self) -> String {
        let verdict = if self.is_reached { "reached" } else { "NOT reached" };
        format!("{:.3} (goal: at least {}, {verdict})", self.ratio, self.goal)
    }
}

/// Throughput with deferral over that of the other sides.
#[derive(Debug, Serialize)]
pub(super) struct Goals {
    pub(super) dli_over_no_replication: Goal,
    pub(super) dli_over_no_dli: Goal,
}

/// What became of the connections that were older than the threshold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Survival {
    pub(super) survived: usize,
    pub(super) of: usize,
    /// How lazy insertion stood before the node was killed.
    pub(super) before: LazyStatus,
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Processors of the machine, which nodes, flood and streams share.
    pub(super) processors: usize,
    /// Both nodes of a pair run on one of them.
    pub(super) nodes_on_one_processor: bool,
    pub(super) rounds: u32,
    pub(super) seconds_per_round: f64,
    pub(super) streams: u16,
    /// Short connections a second that were asked for.
    pub(super) flood_per_s: u32,
    /// Those that were sent.
    pub(super) offered_per_s: Sides<f64>,
    /// Those that the active node began.
    pub(super) begun_per_s: Sides<f64>,
    /// TCP that passed through, in megabits a second.
    pub(super) throughput: Sides<f64>,
    /// Least and greatest of the rounds.
    pub(super) throughput_spans: Sides<[f64; 2]>,
    /// Throughput over that without replication: the medians of the rounds' ratios.
    pub(super) share_of_no_replication: Sides<f64>,
    /// Shares of a processor.
    pub(super) active_cpu: Sides<f64>,
    pub(super) standby_cpu: Sides<f64>,
    pub(super) messages_per_connection: Sides<f64>,
    /// How busy the active node that put connections off was: its thread, or a processor that served its ports.
    pub(super) utilisation: f64,
    /// The threshold and the level that the load led to.
    pub(super) threshold_ms: f64,
    pub(super) level: f64,
    /// The greatest level at any reading.
    pub(super) level_max: u8,
    /// What deferral is to save: throughput over that of the other sides.
    pub(super) goals: Goals,
    pub(super) long_connections: usize,
    pub(super) long_connections_survived: usize,
    /// Connections that were deferred when the node was killed, and so were lost.
    pub(super) deferred_when_killed: u64,
}

impl Report {
    pub(super) fn new(args: &BenchLazyArgs, figures: &[Figures; 3], survival: &Survival) -> Self {
        let without = &figures[0].megabits_per_s;
        let deferred = &figures[2];
        Self {
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            nodes_on_one_processor: !args.spread,
            rounds: args.rounds,
            seconds_per_round: args.seconds,
            streams: args.streams,
            flood_per_s: args.rate,
            offered_per_s: Sides::of(figures, |side| side.offered_per_s.median().round()),
            begun_per_s: Sides::of(figures, |side| side.begun_per_s.median().round()),
            throughput: Sides::of(figures, |side| rounded(side.megabits_per_s.median(), 1)),
            throughput_spans: Sides::of(figures, |side| side.megabits_per_s.span().map(|it| rounded(it, 1))),
            share_of_no_replication: Sides::of(figures, |side| rounded(side.megabits_per_s.median_ratio(without), 3)),
            active_cpu: Sides::of(figures, |side| rounded(side.active_cpu.median(), 2)),
            standby_cpu: Sides::of(figures, |side| rounded(side.standby_cpu.median(), 2)),
            messages_per_connection: Sides::of(figures, |side| rounded(side.messages_per_connection.median(), 2)),
            utilisation: rounded(deferred.utilisation.median(), 2),
            threshold_ms: deferred.threshold_ms.median(),
            level: deferred.level.median(),
            level_max: deferred.level_max,
            goals: Goals {
                dli_over_no_replication: Goal::new(deferred.megabits_per_s.median_ratio(without), 0.9),
                dli_over_no_dli: Goal::new(deferred.megabits_per_s.median_ratio(&figures[1].megabits_per_s), 1.0),
            },
            long_connections: survival.of,
            long_connections_survived: survival.survived,
            deferred_when_killed: survival.before.deferred,
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let mut table =
            Table::of("UNDER THE FLOOD|>MBIT/S|>LEAST|>MOST|>OF NONE|>BEGUN/S|>SENT EACH|>CPU ACTIVE|>CPU STANDBY");
        macro_rules! row {
            ($name:literal, $side:ident) => {
                let [least, most] = self.throughput_spans.$side;
                table.row([
                    $name.to_owned(),
                    format!("{:.1}", self.throughput.$side),
                    format!("{least:.1}"),
                    format!("{most:.1}"),
                    format!("{:.3}", self.share_of_no_replication.$side),
                    count(self.begun_per_s.$side as u64),
                    format!("{:.2}", self.messages_per_connection.$side),
                    format!("{:.0} %", self.active_cpu.$side * 100.0),
                    format!("{:.0} %", self.standby_cpu.$side * 100.0),
                ]);
            };
        }
        row!("no replication", no_replication);
        row!("each at once", no_dli);
        row!("the load decides", dli);
        format!(
            "{} TCP streams through a pair of nodes under {} short connections a second, {} rounds of {} s each; {} \
             processors\nfor nodes, flood and streams{}\n\n{}\n\
             The node was {:.0} % busy, which led to a threshold of {:.0} ms (level {:.0}, at most {}). Where the load decides, as much \
             passes as\nwithout replication times {}, and as with each at once times {}.\n\
             When the active node was killed in the midst of the flood, {}\nof {} connections older than the threshold went on, and {} that were deferred were lost.\n",
            self.streams,
            count(self.flood_per_s.into()),
            self.rounds,
            self.seconds_per_round,
            self.processors,
            if self.nodes_on_one_processor { ", both nodes of a pair on one of them" } else { "" },
            table.render(),
            self.utilisation * 100.0,
            self.threshold_ms,
            self.level,
            self.level_max,
            self.goals.dli_over_no_replication.describe(),
            self.goals.dli_over_no_dli.describe(),
            self.long_connections_survived,
            self.long_connections,
            count(self.deferred_when_killed),
        )
    }
}
