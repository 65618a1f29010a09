//! What `mainstay bench sync` prints.

mod text;

use std::collections::BTreeMap;

use serde::Serialize;

use super::routers::{ACTIVE, STANDBY};
use super::{buffer, loss, rate, stale, table};
use crate::args::BenchSyncArgs;
use crate::args::sync_bench::Subject;
use crate::bench::rounds::{Rounds, rounded};

/// Bytes of a megabyte here.
const MEGABYTE: f64 = 1e6;

/// What was measured of each that was.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) rate: BTreeMap<Subject, rate::Figures>,
    pub(super) loss: BTreeMap<Subject, loss::Figures>,
    pub(super) table: BTreeMap<Subject, table::Figures>,
    pub(super) buffer: BTreeMap<Subject, Vec<buffer::Outcome>>,
    pub(super) stale: BTreeMap<Subject, Vec<stale::Outcome>>,
}

/// A figure of each that is compared; none where it was not measured.
pub(super) type Figures = BTreeMap<&'static str, Option<f64>>;

/// A figure of either of the two that are held against each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Both<T> {
    pub(super) mainstay: T,
    pub(super) conntrackd: T,
}

impl<T> Both<T> {
    fn of(figure: impl Fn(Subject) -> T) -> Self {
        Self { mainstay: figure(Subject::Mainstay), conntrackd: figure(Subject::Conntrackd) }
    }
}

impl Both<Option<f64>> {
    /// The first over the second.
    fn ratio(&self) -> Option<f64> {
        let (ours, theirs) = (self.mainstay?, self.conntrackd?);
        (theirs > 0.0).then(|| rounded(ours / theirs, 3))
    }
}

/// A figure of either side of replication.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Sides<T> {
    /// The daemon of the router that connections pass.
    pub(super) sender: T,
    /// The daemon of the router that stands by.
    pub(super) receiver: T,
}

impl<T> Sides<T> {
    fn of(figure: impl Fn(usize) -> T) -> Self {
        Self { sender: figure(ACTIVE), receiver: figure(STANDBY) }
    }
}

/// What was measured with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Settings {
    pub(super) rounds: u32,
    pub(super) seconds_per_round: f64,
    pub(super) in_flight: u16,
    pub(super) kills: u32,
    pub(super) connections: u32,
    pub(super) ramp_per_s: u32,
    pub(super) tables: u32,
    pub(super) entries: u32,
    /// How conntrackd is run where nothing else is said.
    pub(super) conntrackd: &'static str,
}

/// conntrackd's settings, in its own words.
const CONNTRACKD: &str = "Mode FTFW, DisableExternalCache no, UDP on the dedicated link, NetlinkBufferSize 4 MiB growing to \
                          32 MiB, Filter From Kernelspace with Protocol Accept and Address Ignore, all states";

/// Ratios; none where one of the two was not measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ratios {
    /// Connections a second over those without replication: the median of the rounds' ratios.
    pub(super) per_s: Figures,
    /// `mainstay sync` over conntrackd.
    pub(super) cpu_us_per_connection: Sides<Option<f64>>,
    pub(super) takeover_ms: Option<f64>,
    pub(super) bytes_per_entry: Option<f64>,
}

/// The result: medians over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) program_version: &'static str,
    pub(super) kernel: String,
    pub(super) processors: usize,
    pub(super) settings: Settings,
    pub(super) per_s: Figures,
    /// Least and greatest of the rounds.
    pub(super) spans_per_s: BTreeMap<&'static str, [f64; 2]>,
    /// Processor time of the daemons, user and system.
    pub(super) cpu_us_per_connection: Sides<Figures>,
    pub(super) broken_at_20_percent_loss: Both<Option<f64>>,
    /// Of each kill.
    pub(super) broken_by_kill: Both<Vec<usize>>,
    /// Of those, the ones that replication promises to keep.
    pub(super) broken_though_promised_by_kill: Both<Vec<usize>>,
    pub(super) takeover_ms_200k: Both<Option<f64>>,
    /// Of the daemon that needs more.
    pub(super) rss_mb_200k: Both<Option<f64>>,
    pub(super) rss_mb_200k_by_side: Sides<Both<Option<f64>>>,
    /// What a connection adds to the memory, of the side that needs more.
    pub(super) bytes_per_entry: Both<Option<f64>>,
    /// Connections that the two kernels differ by in the end.
    pub(super) netlink_8k_buffer: Both<Option<f64>>,
    /// Of how many, and after how many seconds of quiet.
    pub(super) netlink_8k_buffer_entries: Both<Option<f64>>,
    pub(super) netlink_8k_buffer_repaired_s: Both<Option<f64>>,
    /// The most of any take-over, and of how many closed connections at least.
    pub(super) ghosts_after_takeover: Both<Option<usize>>,
    pub(super) ghosts_after_takeover_closed: Both<Option<usize>>,
    pub(super) ratios: Ratios,
    pub(super) left_out: Vec<String>,
}

impl Report {
    pub(super) fn new(args: &BenchSyncArgs, kernel: &str, measured: &Measured, left_out: Vec<String>) -> Self {
        let cpu = Sides::of(|side| {
            measured
                .all(|figures| (!figures.cpu_us[side].is_empty()).then(|| rounded(figures.cpu_us[side].median(), 1)))
        });
        let (takeover_ms, bytes_per_entry) = (measured.takeover_ms(), measured.bytes_per_entry(args.entries()));
        let ratios = Ratios {
            per_s: measured.rate_ratios(),
            cpu_us_per_connection: Sides { sender: ratio_of(&cpu.sender), receiver: ratio_of(&cpu.receiver) },
            takeover_ms: takeover_ms.ratio(),
            bytes_per_entry: bytes_per_entry.ratio(),
        };
        let by_side = Sides::of(|side| measured.resident_mb(side));
        let spans = measured.rate.iter().map(|(subject, it)| (subject.name(), it.per_s.span().map(f64::round)));
        Self {
            program_version: env!("CARGO_PKG_VERSION"),
            kernel: kernel.to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            settings: Settings {
                rounds: args.rounds(),
                seconds_per_round: args.seconds(),
                in_flight: args.in_flight,
                kills: args.kills(),
                connections: args.connections(),
                ramp_per_s: args.ramp_per_s,
                tables: args.tables(),
                entries: args.entries(),
                conntrackd: CONNTRACKD,
            },
            per_s: measured.all(|figures| Some(figures.per_s.median().round())),
            spans_per_s: spans.collect(),
            cpu_us_per_connection: cpu,
            broken_at_20_percent_loss: Both::of(|subject| median(&measured.broken(subject, |broken| broken.all))),
            broken_by_kill: Both::of(|subject| measured.broken(subject, |broken| broken.all)),
            broken_though_promised_by_kill: Both::of(|subject| measured.broken(subject, |broken| broken.promised)),
            takeover_ms_200k: takeover_ms,
            rss_mb_200k: Both {
                mainstay: greater(by_side.sender.mainstay, by_side.receiver.mainstay),
                conntrackd: greater(by_side.sender.conntrackd, by_side.receiver.conntrackd),
            },
            rss_mb_200k_by_side: by_side,
            bytes_per_entry,
            netlink_8k_buffer: measured.of_outcomes(|outcome| (outcome.missing + outcome.superfluous) as f64),
            netlink_8k_buffer_entries: measured.of_outcomes(|outcome| outcome.there as f64),
            netlink_8k_buffer_repaired_s: measured.of_outcomes(|outcome| rounded(outcome.repaired_s, 1)),
            ghosts_after_takeover: Both::of(|subject| measured.stale_of(subject).map(|it| it.stale).max()),
            ghosts_after_takeover_closed: Both::of(|subject| measured.stale_of(subject).map(|it| it.closed).min()),
            ratios,
            left_out,
        }
    }
}

impl Measured {
    /// A figure of each that connections a second can be measured of.
    fn all(&self, figure: impl Fn(&rate::Figures) -> Option<f64>) -> Figures {
        Subject::ALL.into_iter().map(|subject| (subject.name(), self.rate.get(&subject).and_then(&figure))).collect()
    }

    fn broken(&self, subject: Subject, figure: impl Fn(&loss::Broken) -> usize) -> Vec<usize> {
        self.loss.get(&subject).into_iter().flatten().map(figure).collect()
    }

    fn stale_of(&self, subject: Subject) -> impl Iterator<Item = &stale::Outcome> {
        self.stale.get(&subject).into_iter().flatten()
    }

    fn rate_ratios(&self) -> Figures {
        let off = self.rate.get(&Subject::Off);
        self.all(|figures| off.map(|off| rounded(figures.per_s.median_ratio(&off.per_s), 3)))
    }

    fn takeover_ms(&self) -> Both<Option<f64>> {
        Both::of(|subject| self.table.get(&subject).map(|it| rounded(it.take_over_ms.median(), 1)))
    }

    fn resident_mb(&self, side: usize) -> Both<Option<f64>> {
        Both::of(|subject| self.table.get(&subject).map(|it| rounded(it.resident_bytes[side].median() / MEGABYTE, 1)))
    }

    fn bytes_per_entry(&self, entries: u32) -> Both<Option<f64>> {
        let grown = |it: &table::Figures, side: usize| {
            (it.resident_bytes[side].median() - it.resident_empty_bytes[side].median()) / f64::from(entries)
        };
        Both::of(|subject| self.table.get(&subject).map(|it| grown(it, 0).max(grown(it, 1)).round()))
    }

    fn of_outcomes(&self, figure: impl Fn(&buffer::Outcome) -> f64) -> Both<Option<f64>> {
        Both::of(|subject| {
            let mut figures = Rounds::default();
            self.buffer.get(&subject)?.iter().for_each(|outcome| figures.push(figure(outcome)));
            (!figures.is_empty()).then(|| figures.median())
        })
    }
}

fn ratio_of(figures: &Figures) -> Option<f64> {
    Both::of(|subject| figures.get(subject.name()).copied().flatten()).ratio()
}

fn median(counts: &[usize]) -> Option<f64> {
    let mut figures = Rounds::default();
    counts.iter().for_each(|count| figures.push(*count as f64));
    (!figures.is_empty()).then(|| figures.median())
}

fn greater(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one?.max(other?))
}
