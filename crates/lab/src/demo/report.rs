//! What the demo found out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

use super::replication::ReplicationReport;
use super::stalls::EdgesReport;
use crate::args::DemoArgs;
use crate::testbed::clock::Epoch;
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::outcome::{Outcome, Timeline};
use api::{Event, EventKind, Status};
use config::validated::Representation;

/// What is drawn of the time before the kill, in milliseconds.
pub const WINDOW_BEFORE_MS: f64 = 300.0;
/// What is drawn of the time after the kill, in milliseconds.
pub const WINDOW_AFTER_MS: f64 = 900.0;

/// How the demo was asked to run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Settings {
    /// Share of the packets that the link between the nodes lost.
    pub link_loss: f64,
    /// Round trip that the network added between client and server, in milliseconds.
    pub rtt_ms: f64,
    /// Connections that were opened while the node was killed.
    pub ramp: usize,
    /// Seconds of traffic asked for.
    pub seconds: f64,
    /// Workers of each node.
    pub workers: u8,
    /// How connections are replicated to the other node.
    #[serde(serialize_with = "by_name")]
    pub representation: Representation,
}

fn by_name<S: Serializer>(representation: &Representation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(representation.name())
}

impl Settings {
    /// As the command line has it.
    #[must_use]
    pub const fn new(args: &DemoArgs) -> Self {
        Self {
            link_loss: args.link_loss,
            rtt_ms: args.rtt_ms,
            ramp: args.ramp,
            seconds: args.seconds,
            workers: args.workers,
            representation: args.representation,
        }
    }
}

/// The demo's result: what became of the connections with replication, and without it for comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DemoReport {
    /// The program's version.
    pub program_version: String,
    /// Seconds since 1970 when the demo began.
    pub began_unix_s: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The processors that the program may use.
    pub processors: usize,
    /// How it was asked to run.
    pub settings: Settings,
    /// The run that the promises are about.
    #[serde(flatten)]
    pub replicated: RunReport,
    /// The same without replication.
    pub without_replication: RunReport,
}

impl DemoReport {
    /// Every connection that was established before the kill outlived it, and every byte was right; or the representation is
    /// experimental, and that was not promised.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.replicated.broken == 0 || !self.is_promised()
    }

    /// Whether no connection may break.
    #[must_use]
    pub fn is_promised(&self) -> bool {
        self.replicated.replication.as_ref().is_none_or(|replication| replication.promised)
    }
}

/// What became of the connections of one run. Only those established before the kill count.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RunReport {
    /// Connections established before the kill, datagram flows among them.
    pub connections: usize,
    /// Those that went on afterwards.
    pub survived: usize,
    /// Those that did not.
    pub broken: usize,
    /// From the kill until the standby detected that the node was down.
    pub detection_ms: Option<f64>,
    /// From the kill until the standby had announced the addresses.
    pub takeover_ms: Option<f64>,
    /// From the kill until the standby forwarded the first packet of a connection that it had taken over.
    pub first_packet_ms: Option<f64>,
    /// The longest pause of any connection that survived.
    pub longest_gap_ms: f64,
    /// Bytes that arrived and were compared with what was sent.
    pub bytes_verified: u64,
    /// Runs before this one that proved nothing, because the standby took over before the kill.
    pub repeated: usize,
    /// How late all but one in a hundred packets were at most on emulated links, in microseconds.
    pub link_lateness_p99_us: Option<u64>,
    /// The same for each kind of traffic.
    pub by_kind: Vec<KindReport>,
    /// Why connections broke, and how many each.
    pub broken_by_reason: BTreeMap<String, usize>,
    /// How the nodes forwarded, where they are gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterReport>,
    /// What the function that the run is about did before the kill.
    #[serde(skip)]
    pub handled: u64,
    /// SYNs with spoofed sources that were sent.
    #[serde(skip)]
    pub flooded: u64,
    /// How edges switched over, if there are edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges: Option<EdgesReport>,
    /// What replication cost, and how exact it was, if it was measured.
    #[serde(flatten)]
    pub replication: Option<ReplicationReport>,
    /// The standby's events of the take-over.
    pub events: Vec<TimedEvent>,
    /// Progress around the kill, for the charts.
    #[serde(skip)]
    pub slices: Vec<Slice>,
}

/// How the nodes forwarded.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ClusterReport {
    /// Share of the packets that the active node's kernel forwarded before the kill; a frame of many segments is one.
    pub fast_path_share: f64,
}

impl ClusterReport {
    /// Of the node that forwarded most. `None`: no node answered, or none forwarded.
    #[must_use]
    pub fn of(statuses: &[Status]) -> Option<Self> {
        let forwarded = |status: &Status| {
            let by_kernel = status.fast_path.as_ref().map_or(0, |path| path.packets);
            (by_kernel, status.ports.iter().map(|port| port.sent_packets).sum::<u64>())
        };
        let (by_kernel, all) =
            statuses.iter().map(forwarded).max_by_key(|(_, all)| *all).filter(|(_, all)| *all > 0)?;
        Some(Self { fast_path_share: by_kernel as f64 / all as f64 })
    }
}

/// What became of the connections of one kind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KindReport {
    /// The kind.
    pub kind: Kind,
    /// Connections established before the kill.
    pub connections: usize,
    /// Those that went on afterwards.
    pub survived: usize,
    /// Those that did not.
    pub broken: usize,
    /// The longest pause of any that survived; nothing when none did.
    pub longest_gap_ms: Option<f64>,
    /// The longest pause of the connection in the middle, of those that survived.
    pub median_gap_ms: Option<f64>,
    /// Bytes that arrived and were compared with what was sent.
    pub bytes_verified: u64,
}

/// An event of the standby.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TimedEvent {
    /// When, from the kill on.
    pub after_kill_ms: f64,
    /// What.
    pub kind: EventKind,
    /// Particulars, for people.
    pub detail: String,
}

/// Progress of one kind within [`Timeline::SLICE`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Slice {
    /// Start of the slice, from the kill on.
    pub after_kill_ms: f64,
    /// What progressed.
    pub kind: Kind,
    /// Bytes verified in it.
    pub bytes: u64,
    /// Answers in it.
    pub answers: u64,
}

impl RunReport {
    /// Sums up a run: the outcomes of its connections, and the standby's events after the kill.
    #[must_use]
    pub fn new(killed_at: Epoch, outcomes: &[Outcome], timeline: &Timeline, standby_events: &[Event]) -> Self {
        let events = events_after(killed_at, standby_events);
        let first = |kind| events.iter().find(|event| event.kind == kind).map(|event| event.after_kill_ms);
        let takeover_ms = first(EventKind::Announced);
        // What arrived between the kill and the take-over was already in flight and proves nothing.
        let taken_over_at = killed_at.after_ms(takeover_ms.unwrap_or(0.0));
        let counted: Vec<&Outcome> =
            outcomes.iter().filter(|outcome| outcome.was_established_before(killed_at.instant())).collect();
        let by_kind: Vec<KindReport> =
            Kind::ALL.into_iter().filter_map(|kind| KindReport::new(kind, &counted, taken_over_at)).collect();
        Self {
            connections: counted.len(),
            survived: by_kind.iter().map(|kind| kind.survived).sum(),
            broken: by_kind.iter().map(|kind| kind.broken).sum(),
            detection_ms: first(EventKind::PeerDown),
            takeover_ms,
            first_packet_ms: first(EventKind::FirstPacketForwarded),
            longest_gap_ms: by_kind.iter().filter_map(|kind| kind.longest_gap_ms).fold(0.0, f64::max),
            bytes_verified: outcomes.iter().map(|outcome| outcome.verified_bytes).sum(),
            repeated: 0,
            link_lateness_p99_us: None,
            broken_by_reason: reasons(&counted, taken_over_at),
            cluster: None,
            handled: 0,
            flooded: 0,
            edges: None,
            replication: None,
            by_kind,
            events,
            slices: slices_around(killed_at, timeline),
        }
    }

    /// The report of one kind, if there was any of it.
    #[must_use]
    pub fn kind(&self, kind: Kind) -> Option<&KindReport> {
        self.by_kind.iter().find(|report| report.kind == kind)
    }

    /// From the kill until bytes of connections flowed again, to the slice.
    #[must_use]
    pub fn resumption_ms(&self) -> Option<f64> {
        let taken_over_ms = self.takeover_ms?;
        let is_steady = |kind| matches!(kind, Kind::Download | Kind::Upload | Kind::Ticks);
        let resumed = self
            .slices
            .iter()
            .filter(|slice| is_steady(slice.kind) && slice.bytes > 0 && slice.after_kill_ms + SLICE_MS > taken_over_ms);
        resumed.map(|slice| slice.after_kill_ms.max(taken_over_ms)).min_by(f64::total_cmp)
    }
}

/// Length of a slice in milliseconds.
pub const SLICE_MS: f64 = Timeline::SLICE.as_millis() as f64;

impl KindReport {
    fn new(kind: Kind, counted: &[&Outcome], taken_over_at: Instant) -> Option<Self> {
        let of_kind: Vec<&&Outcome> = counted.iter().filter(|outcome| outcome.kind == kind).collect();
        let mut gaps: Vec<Duration> = of_kind
            .iter()
            .filter(|outcome| outcome.survived(taken_over_at))
            .map(|outcome| outcome.longest_gap)
            .collect();
        gaps.sort_unstable();
        let ms = |gap: &Duration| gap.as_secs_f64() * 1e3;
        (!of_kind.is_empty()).then(|| Self {
            kind,
            connections: of_kind.len(),
            survived: gaps.len(),
            broken: of_kind.len() - gaps.len(),
            longest_gap_ms: gaps.last().map(ms),
            median_gap_ms: gaps.get(gaps.len() / 2).map(ms),
            bytes_verified: of_kind.iter().map(|outcome| outcome.verified_bytes).sum(),
        })
    }
}

fn reasons(counted: &[&Outcome], taken_over_at: Instant) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for outcome in counted.iter().filter(|outcome| !outcome.survived(taken_over_at)) {
        let reason = outcome.broken.clone().unwrap_or_else(|| "nothing came back after the take-over".into());
        *reasons.entry(reason).or_default() += 1;
    }
    reasons
}

fn events_after(killed_at: Epoch, events: &[Event]) -> Vec<TimedEvent> {
    let timed = events.iter().map(|event| TimedEvent {
        after_kill_ms: killed_at.ms_to_event(event.monotonic_ns),
        kind: event.kind,
        detail: event.detail.clone(),
    });
    timed.filter(|event| event.after_kill_ms >= 0.0).collect()
}

fn slices_around(killed_at: Epoch, timeline: &Timeline) -> Vec<Slice> {
    let slices = timeline.samples().map(|sample| Slice {
        after_kill_ms: killed_at.ms_to(sample.at),
        kind: sample.kind,
        bytes: sample.bytes,
        answers: sample.events,
    });
    slices.filter(|slice| (-WINDOW_BEFORE_MS..WINDOW_AFTER_MS).contains(&slice.after_kill_ms)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn outcome(kind: Kind, established_at: Option<Instant>, last_progress_at: Instant, gap_ms: u64) -> Outcome {
        Outcome {
            ends: None,
            established_at,
            last_progress_at: Some(last_progress_at),
            longest_gap: Duration::from_millis(gap_ms),
            verified_bytes: 1000,
            ..Outcome::new(kind, false)
        }
    }

    fn event(killed_at: Epoch, after_ms: u64, kind: EventKind) -> Event {
        // The nodes' clock and the epoch's are the same; its reading is found by its distance from zero.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let kill_ns = (-killed_at.ms_to_event(0) * 1e6) as u64;
        Event {
            number: 0,
            monotonic_ns: kill_ns + after_ms * 1_000_000,
            time: String::new(),
            kind,
            detail: String::new(),
        }
    }

    #[test]
    fn only_connections_established_before_the_kill_count_and_progress_must_come_after_the_take_over() {
        let start = Instant::now();
        let killed_at = Epoch::now();
        let after = |ms| killed_at.instant() + Duration::from_millis(ms);
        let broken = Outcome { broken: Some("reset".into()), ..outcome(Kind::Ticks, Some(start), after(700), 1) };
        let outcomes = [
            outcome(Kind::Download, Some(start), after(700), 180),
            outcome(Kind::Download, Some(start), after(700), 230),
            outcome(Kind::Upload, Some(start), after(90), 10),
            broken,
            outcome(Kind::Ramp, Some(after(5)), after(700), 3000),
            outcome(Kind::Ramp, None, after(0), 0),
        ];
        let events = [
            event(killed_at, 101, EventKind::PeerDown),
            event(killed_at, 102, EventKind::BecameActive),
            event(killed_at, 103, EventKind::Announced),
        ];
        let mut timeline = Timeline::new(start);
        timeline.note(after(50), Kind::Download, 5000);
        timeline.note(after(240), Kind::Download, 7000);
        let report = RunReport::new(killed_at, &outcomes, &timeline, &events);

        assert_eq!((report.connections, report.survived, report.broken), (4, 2, 2));
        assert!((report.detection_ms.unwrap() - 101.0).abs() < 0.01, "{report:?}");
        assert!((report.takeover_ms.unwrap() - 103.0).abs() < 0.01, "{report:?}");
        assert_eq!(report.first_packet_ms, None);
        assert!((report.longest_gap_ms - 230.0).abs() < 1e-9);
        assert_eq!(report.broken_by_reason["reset"], 1);
        assert_eq!(report.broken_by_reason["nothing came back after the take-over"], 1);
        assert!(report.kind(Kind::Ramp).is_none());
        assert_eq!(report.kind(Kind::Upload).unwrap().longest_gap_ms, None);
        let resumed = report.resumption_ms().unwrap();
        assert!((220.0..=250.0).contains(&resumed), "{resumed}");
    }
}
