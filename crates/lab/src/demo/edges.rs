//! The demo with an edge on either side of two nodes that both forward: one is killed, and the edges move its flows and resend what
//! it lost. The same without local recovery shows what that saves.

use serde::Serialize;

use super::DemoError;
use super::report::{RunReport, Settings};
use super::run::Stage;
use super::table::{self, ms};
use crate::args::DemoArgs;
use crate::testbed::clock::Epoch;
use crate::testbed::cluster::Shape;
use crate::testbed::topology::SERVER_PORTS;
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::outcome::Outcome;
use crate::testbed::watch::Watch;
use crate::testbed::ways;
use api::{Event, EventKind};
use console::{Progress, Table, count};

/// Connections that are opened while the node is killed, if nothing else is asked for: some of their SYNs are lost.
const RAMP_DEFAULT: usize = 600;

/// How connections stalled after the switch-over.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Stalls {
    /// Connections that stalled.
    pub connections: usize,
    /// The median of their stalls.
    pub median_ms: Option<f64>,
    /// The longest.
    pub longest_ms: Option<f64>,
}

impl Stalls {
    fn of(mut stalls_ms: Vec<f64>) -> Self {
        stalls_ms.sort_by(f64::total_cmp);
        Self {
            connections: stalls_ms.len(),
            median_ms: stalls_ms.get(stalls_ms.len() / 2).copied(),
            longest_ms: stalls_ms.last().copied(),
        }
    }
}

/// How the edges switched over, and how connections stalled after that.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct EdgesReport {
    /// From the kill until both edges had moved the flows.
    pub switch_over_ms: f64,
    /// From the kill until an edge had resent what was lost to one node.
    pub resent_ms: Option<f64>,
    /// Packets that the edges resent.
    pub resent_packets: u64,
    /// Stalls of transfers that passed the killed node.
    pub bulk: Stalls,
    /// Stalls of connections that were being opened.
    pub syn: Stalls,
}

impl EdgesReport {
    /// Sums up what the edges did after the kill. `None`: they did not switch over.
    ///
    /// A transfer makes progress every few milliseconds. One that passed the killed node made none from the kill to the switch-over; the
    /// others did. A connection that was being opened counts if it was opened in this time and established after it.
    pub(super) fn new(killed_at: Epoch, events: &[Event], outcomes: &[Outcome], resent_packets: u64) -> Option<Self> {
        let after = |kind| {
            let of_kind = events.iter().filter(move |event| event.kind == kind);
            of_kind.map(|event| killed_at.ms_to_event(event.monotonic_ns)).filter(|ms| *ms > 0.0)
        };
        let switch_over_ms = after(EventKind::PeerDown).max_by(f64::total_cmp)?;
        let bulk = outcomes.iter().filter(|outcome| {
            matches!(outcome.kind, Kind::Download | Kind::Upload) && outcome.was_established_before(killed_at.instant())
        });
        let gaps_ms = bulk.map(|outcome| outcome.longest_gap.as_secs_f64() * 1e3);
        let bulk = gaps_ms.filter(|gap_ms| *gap_ms >= switch_over_ms / 2.0);
        let opening = outcomes.iter().filter(|outcome| outcome.kind == Kind::Ramp).filter_map(|outcome| {
            let opened_ms = killed_at.ms_to(outcome.opened_at);
            let established_ms = killed_at.ms_to(outcome.established_at?);
            let is_stalled = (0.0..switch_over_ms).contains(&opened_ms) && established_ms > switch_over_ms;
            is_stalled.then_some(established_ms - switch_over_ms)
        });
        Some(Self {
            switch_over_ms,
            resent_ms: after(EventKind::Resent).min_by(f64::total_cmp),
            resent_packets,
            bulk: Stalls::of(bulk.map(|gap_ms| (gap_ms - switch_over_ms).max(0.0)).collect()),
            syn: Stalls::of(opening.collect()),
        })
    }

    fn medians(report: Option<&Self>) -> MedianStalls {
        MedianStalls {
            bulk: report.and_then(|report| report.bulk.median_ms),
            syn: report.and_then(|report| report.syn.median_ms),
        }
    }
}

/// Medians of stalls after the switch-over, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct MedianStalls {
    /// Of transfers.
    pub bulk: Option<f64>,
    /// Of connections that were being opened.
    pub syn: Option<f64>,
}

/// The run without local recovery.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WithoutRecovery {
    /// Medians of its stalls.
    pub median_stall_ms: MedianStalls,
    /// What became of its connections.
    #[serde(flatten)]
    pub run: RunReport,
}

/// What became of the connections, with local recovery and without.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct EdgesDemoReport {
    /// The program's version.
    pub program_version: String,
    /// How it was asked to run.
    pub settings: Settings,
    /// Medians of the stalls after the switch-over.
    pub median_stall_ms: MedianStalls,
    /// What became of the connections when one node was killed.
    #[serde(flatten)]
    pub run: RunReport,
    /// The same without local recovery.
    pub without_recovery: WithoutRecovery,
}

impl EdgesDemoReport {
    fn describe(&self) -> String {
        let (with, without) = (&self.run, &self.without_recovery.run);
        let mut table = Table::of("EDGES|>LOCAL RECOVERY|>WITHOUT");
        let stall =
            |of: fn(&EdgesReport) -> Option<f64>| [with, without].map(|run| ms(run.edges.as_ref().and_then(of)));
        let number = |of: fn(&EdgesReport) -> u64| {
            [with, without].map(|run| run.edges.as_ref().map_or_else(|| "-".to_owned(), |edges| count(of(edges))))
        };
        let rows = [
            ("established before the kill", [with, without].map(|run| count(run.connections as u64))),
            ("survived", [with, without].map(|run| count(run.survived as u64))),
            ("broken", [with, without].map(|run| count(run.broken as u64))),
            ("kill to switch-over", stall(|edges| Some(edges.switch_over_ms))),
            ("kill to packets resent", stall(|edges| edges.resent_ms)),
            ("packets resent", number(|edges| edges.resent_packets)),
            ("stalled transfers", number(|edges| edges.bulk.connections as u64)),
            ("their stall after the switch-over, median", stall(|edges| edges.bulk.median_ms)),
            ("longest", stall(|edges| edges.bulk.longest_ms)),
            ("stalled connections being opened", number(|edges| edges.syn.connections as u64)),
            ("their stall after the switch-over, median", stall(|edges| edges.syn.median_ms)),
            ("longest", stall(|edges| edges.syn.longest_ms)),
        ];
        for (what, [with, without]) in rows {
            table.row([what.to_owned(), with, without]);
        }
        format!("{}\n{}", table::headline(with), table.render())
    }
}

/// Does it all and prints it.
///
/// # Errors
/// It could not be done, or a connection broke.
pub(super) fn run(args: &DemoArgs, watch: &Watch) -> Result<(), DemoError> {
    let report = make_report(args, watch)?;
    console::print_as(args.json, &report, || report.describe())?;
    let RunReport { broken, connections, .. } = report.run;
    if broken == 0 { Ok(()) } else { Err(DemoError::Broken { broken, connections }) }
}

fn make_report(args: &DemoArgs, watch: &Watch) -> Result<EdgesDemoReport, DemoError> {
    let settings = Settings { ramp: if args.ramp == 0 { RAMP_DEFAULT } else { args.ramp }, ..Settings::new(args) };
    let progress = Progress::new();
    let ways = ways::chosen(false);
    let ports = SERVER_PORTS.into_iter().take(SERVER_PORTS.len() / ways.len());
    let servers = ways::server_addresses(ways, ports);
    let run = |policy: &str| {
        let stage = Stage {
            watch,
            progress: &progress,
            settings: &settings,
            keep_logs: args.keep_logs,
            shape: Shape::BothActive,
            servers: servers.clone(),
            edges: Some(format!("[recovery]\npolicy = \"{policy}\"\n")),
        };
        stage.run(true)
    };
    let (with, without) = (run("always")?, run("off")?);
    Ok(EdgesDemoReport {
        program_version: env!("CARGO_PKG_VERSION").into(),
        settings,
        median_stall_ms: EdgesReport::medians(with.edges.as_ref()),
        run: with,
        without_recovery: WithoutRecovery {
            median_stall_ms: EdgesReport::medians(without.edges.as_ref()),
            run: without,
        },
    })
}
