//! What the demo on kernel tracking found out, and how people read it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::super::report::{KindReport, RunReport};
use super::super::table::{self, bytes, ms, survived_of};
use super::manager::TakenOver;
use super::network::{self, Path};
use crate::testbed::clock::Epoch;
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::client;
use crate::testbed::traffic::outcome::Outcome;
use api::{Event, EventKind};
use console::{Table, count};

/// Who moves the addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Manager {
    /// The demo itself, which finds the death by BFD.
    Demo,
    /// keepalived, by VRRP.
    Keepalived,
}

/// The result: with replication, and without it for comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KernelReport {
    /// The program's version.
    pub program_version: String,
    /// The kernel's release.
    pub kernel: String,
    /// Who moved the addresses.
    pub manager: Manager,
    /// Seconds of traffic asked for.
    pub seconds: f64,
    /// Connections that were opened while the router was killed.
    pub ramp: usize,
    /// The run that the promises are about.
    #[serde(flatten)]
    pub replicated: KernelRun,
    /// The same without `mainstay sync`.
    pub without_replication: KernelRun,
}

/// What became of the connections of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct KernelRun {
    /// As in the demo of gateways.
    #[serde(flatten)]
    pub run: RunReport,
    /// How long `mainstay sync primary` took at the take-over.
    pub hook_ms: Option<f64>,
    /// TCP connections established in the last tenth of a second before the kill that the standby did not have: no promise is
    /// made for them, and they are not among `connections`.
    pub not_yet_replicated: usize,
    /// Of those, the ones that went on all the same.
    pub not_yet_replicated_survived: usize,
    /// TCP connections by the way they took. Datagrams are left out: they go on without state.
    pub by_path: Vec<PathReport>,
}

/// What became of the TCP connections that took one way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PathReport {
    /// The way.
    pub path: Path,
    /// Over IPv6.
    pub is_ipv6: bool,
    /// Established before the kill.
    pub connections: usize,
    /// Those that went on afterwards.
    pub survived: usize,
}

impl KernelRun {
    /// Sums a run up.
    pub(super) fn new(
        killed_at: Epoch,
        mut traffic: client::TrafficReport,
        taken_over: TakenOver,
        replicated: Option<&HashSet<(SocketAddr, SocketAddr)>>,
    ) -> Self {
        let events = events(taken_over);
        let taken_over_at = taken_over.announced_ns.map_or(0.0, |at| killed_at.ms_to_event(at));
        let not_yet = leave_out_not_replicated(killed_at, &mut traffic.outcomes, replicated);
        let survived = not_yet.iter().filter(|outcome| outcome.survived(killed_at.after_ms(taken_over_at))).count();
        let run = RunReport::new(killed_at, &traffic.outcomes, &traffic.timeline, &events);
        let by_path = by_path(killed_at, &traffic.outcomes, run.takeover_ms.unwrap_or(0.0));
        Self {
            run,
            hook_ms: taken_over.hook.map(|(_, took)| took.as_secs_f64() * 1e3),
            not_yet_replicated: not_yet.len(),
            not_yet_replicated_survived: survived,
            by_path,
        }
    }

    /// After so many runs that proved nothing.
    pub(super) fn repeated(self, repeated: usize) -> Self {
        Self { run: RunReport { repeated, ..self.run }, ..self }
    }
}

/// Takes the connections out of the count for which no promise is made ([`Outcome::is_promised`]), and returns them.
fn leave_out_not_replicated(
    killed_at: Epoch,
    outcomes: &mut [Outcome],
    replicated: Option<&HashSet<(SocketAddr, SocketAddr)>>,
) -> Vec<Outcome> {
    let Some(replicated) = replicated else { return Vec::new() };
    let killed_at = killed_at.instant();
    let is_left_out =
        |outcome: &Outcome| outcome.was_established_before(killed_at) && !outcome.is_promised(killed_at, replicated);
    let mut left_out = Vec::new();
    for outcome in outcomes.iter_mut().filter(|outcome| is_left_out(outcome)) {
        left_out.push(outcome.clone());
        outcome.established_at = None;
    }
    left_out
}

/// The take-over in the words of the gateways' events.
fn events(taken_over: TakenOver) -> Vec<Event> {
    let TakenOver { detected_ns, hook, announced_ns, first_packet_ns } = taken_over;
    let took = |took: Duration| format!("mainstay sync primary took {:.1} ms", took.as_secs_f64() * 1e3);
    let moments = [
        (EventKind::PeerDown, detected_ns, String::new()),
        (EventKind::BecameActive, hook.map(|(at, _)| at), hook.map(|(_, hook)| took(hook)).unwrap_or_default()),
        (EventKind::Announced, announced_ns, String::new()),
        (EventKind::FirstPacketForwarded, first_packet_ns, String::new()),
    ];
    let moments = moments.into_iter().filter_map(|(kind, at, detail)| Some((kind, at?, detail)));
    let numbered = moments.zip(0..);
    numbered
        .map(|((kind, monotonic_ns, detail), number)| Event { number, monotonic_ns, time: String::new(), kind, detail })
        .collect()
}

/// The client takes its targets in turn, so a connection's number gives its path.
fn by_path(killed_at: Epoch, outcomes: &[Outcome], takeover_ms: f64) -> Vec<PathReport> {
    let targets = network::targets();
    let taken_over_at = killed_at.after_ms(takeover_ms);
    let of_path = |path: Path, is_ipv6: bool| {
        let of_target = outcomes.iter().zip(targets.iter().cycle());
        let counted = of_target.filter(|(outcome, (taken, address))| {
            let is_counted = outcome.kind != Kind::Udp && outcome.was_established_before(killed_at.instant());
            is_counted && *taken == path && address.is_ipv6() == is_ipv6
        });
        let counted: Vec<&Outcome> = counted.map(|(outcome, _)| outcome).collect();
        let survived = counted.iter().filter(|outcome| outcome.survived(taken_over_at)).count();
        PathReport { path, is_ipv6, connections: counted.len(), survived }
    };
    Path::ALL.into_iter().flat_map(|path| [false, true].map(|is_ipv6| of_path(path, is_ipv6))).collect()
}

impl KernelReport {
    /// As people read it.
    #[must_use]
    pub fn describe(&self) -> String {
        let run = &self.replicated.run;
        let mut text = table::headline(run);
        for table in [self.summary(), self.kinds(), self.paths()] {
            text.push('\n');
            text.push_str(&table.render());
        }
        if !run.broken_by_reason.is_empty() {
            text.push_str("\nWhy connections broke although they were replicated:\n");
            let reasons = run.broken_by_reason.iter();
            text.extend(reasons.map(|(reason, number)| format!("  {:>6}  {reason}\n", count(*number as u64))));
        }
        text
    }

    fn summary(&self) -> Table {
        let mut table = Table::of("|>REPLICATED|>NOT REPLICATED");
        let mut row = |label: &str, cell: &dyn Fn(&KernelRun) -> String| {
            table.row([label.to_owned(), cell(&self.replicated), cell(&self.without_replication)]);
        };
        row("established before the kill", &|run| count(run.run.connections as u64));
        row("survived", &|run| count(run.run.survived as u64));
        row("not yet replicated at the kill, not counted", &|run| count(run.not_yet_replicated as u64));
        row("broken", &|run| count(run.run.broken as u64));
        if self.manager == Manager::Demo {
            row("kill to detection", &|run| ms(run.run.detection_ms));
            row("mainstay sync primary", &|run| ms(run.hook_ms));
        }
        row("kill to addresses moved", &|run| ms(run.run.takeover_ms));
        row("kill to first packet forwarded", &|run| ms(run.run.first_packet_ms));
        row("longest pause of a survivor", &|run| ms((run.run.survived > 0).then_some(run.run.longest_gap_ms)));
        row("bytes verified", &|run| bytes(run.run.bytes_verified));
        table
    }

    fn kinds(&self) -> Table {
        let mut table = Table::of("KIND|>SURVIVED|>LONGEST PAUSE|>MEDIAN|>VERIFIED|>NOT REPLICATED: SURVIVED");
        for kind in Kind::ALL {
            let Some(with) = self.replicated.run.kind(kind) else { continue };
            let KindReport { longest_gap_ms, median_gap_ms, bytes_verified, .. } = with;
            table.row([
                kind.label().to_owned(),
                survived_of(Some(with)),
                ms(*longest_gap_ms),
                ms(*median_gap_ms),
                bytes(*bytes_verified),
                survived_of(self.without_replication.run.kind(kind)),
            ]);
        }
        table
    }

    fn paths(&self) -> Table {
        let mut table = Table::of("TCP BY WAY|>SURVIVED|>NOT REPLICATED: SURVIVED");
        let survived =
            |report: &PathReport| format!("{} of {}", count(report.survived as u64), count(report.connections as u64));
        for (with, without) in self.replicated.by_path.iter().zip(&self.without_replication.by_path) {
            let family = if with.is_ipv6 { "IPv6" } else { "IPv4" };
            table.row([format!("{family}, {}", with.path.label()), survived(with), survived(without)]);
        }
        table
    }
}
