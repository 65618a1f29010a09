//! What `mainstay bench replication` found out.

use std::collections::BTreeMap;

use serde::Serialize;

use super::experiment::{FlowOutcome, Outcome, Rejected, Sample};
use super::statistics::{Spread, wilson_interval};
use crate::args::replication::Subject;
use crate::bench::rounds::rounded;

/// How it was asked to run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Settings {
    /// Kills for each combination.
    pub(super) rounds: u32,
    /// Both gateways were at work, and one of them was killed; only flows through that one count.
    pub(super) multi_primary: bool,
    /// Flows at a time, over all sizes.
    pub(super) at_once: usize,
    pub(super) object_kb: Vec<u32>,
    /// What a flow is paced at.
    pub(super) flow_bytes_per_s: u64,
    /// How long after the kill a flow is given up.
    pub(super) give_up_s: f64,
    /// Runs with more than one packet in a hundred later than this on an emulated link were thrown away.
    pub(super) lateness_ms_max: f64,
    pub(super) seed: u64,
}

impl Settings {
    /// What was killed, in words.
    pub(super) const fn killed(&self) -> &'static str {
        if self.multi_primary { "one of two active gateways" } else { "the active gateway" }
    }
}

/// The whole result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Report {
    pub(super) program_version: String,
    pub(super) kernel: String,
    pub(super) processors: usize,
    pub(super) began_unix_s: u64,
    pub(super) settings: Settings,
    /// What recovered, by what carried the changes and by the size of the objects.
    pub(super) rows: Vec<Row>,
    /// What is the same for all sizes.
    pub(super) cells: Vec<CellReport>,
    /// What was left out, and why.
    pub(super) left_out: Vec<String>,
}

/// Flows of one size.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Row {
    pub(super) subject: &'static str,
    /// Share of the packets on the dedicated link that were lost.
    pub(super) loss: f64,
    /// Round trip between client and server.
    pub(super) rtt_ms: u32,
    pub(super) object_kb: u32,
    /// Flows that the dead gateway had established, and that needed a gateway after the kill.
    pub(super) at_risk: usize,
    /// Share of them that got their whole object; nothing if there were none.
    pub(super) recovered: Option<f64>,
    /// In which the share lies with a confidence of 95 %.
    pub(super) recovered_interval: Option<[f64; 2]>,
    /// From the kill until a recovered flow got its next bytes.
    pub(super) time_to_recover_ms: Option<Spread>,
    /// Of that, what came after the survivor knew.
    pub(super) beyond_detection_ms: Option<Spread>,
    /// Flows that it had not established, and those of them that got their object through the other.
    pub(super) connecting: [usize; 2],
    /// Flows whose every byte had left the gateway before the kill.
    pub(super) unaffected: usize,
    /// Why flows were lost.
    pub(super) lost_by_reason: BTreeMap<String, usize>,
}

/// What is the same for all sizes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct CellReport {
    pub(super) subject: &'static str,
    pub(super) loss: f64,
    pub(super) rtt_ms: u32,
    pub(super) kills: usize,
    /// Runs that were thrown away because an emulated link was late.
    pub(super) rejected_late: usize,
    /// Runs that were thrown away because the standby took over before the kill.
    pub(super) rejected_early: usize,
    pub(super) at_risk: usize,
    pub(super) recovered: Option<f64>,
    /// From the kill until the survivor knew.
    pub(super) detection_ms: Option<Spread>,
    /// From then until it had announced the addresses.
    pub(super) announcement_ms: Option<Spread>,
    /// From the detection until it forwarded the first packet of a connection that it had taken over.
    pub(super) first_packet_ms: Option<Spread>,
    /// From the announcement until a flow got its next bytes: what TCP itself waits before it tries again, and the round trip.
    pub(super) tcp_wait_ms: Option<Spread>,
    pub(super) time_to_recover_ms: Option<Spread>,
    pub(super) beyond_detection_ms: Option<Spread>,
    /// Time that a connection took to be established while nothing was wrong.
    pub(super) connect_ms: Option<Spread>,
}

/// All kills of one combination.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) subject: Subject,
    pub(super) loss: f64,
    pub(super) rtt_ms: u32,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) rejected: Vec<Rejected>,
}

impl Cell {
    pub(super) const fn new(subject: Subject, loss: f64, rtt_ms: u32) -> Self {
        Self { subject, loss, rtt_ms, outcomes: Vec::new(), rejected: Vec::new() }
    }

    /// Its rows, one for each size.
    pub(super) fn rows(&self, object_kilobytes: &[u32]) -> Vec<Row> {
        object_kilobytes.iter().map(|size| self.row(*size)).collect()
    }

    fn row(&self, object_kb: u32) -> Row {
        let tally = Tally::of(self.outcomes.iter(), |sample| sample.object_kilobytes == object_kb);
        Row {
            subject: self.subject.name(),
            loss: self.loss,
            rtt_ms: self.rtt_ms,
            object_kb,
            at_risk: tally.at_risk(),
            recovered: tally.share(),
            recovered_interval: wilson_interval(tally.resumed_ms.len(), tally.at_risk()),
            time_to_recover_ms: Spread::of(tally.resumed_ms),
            beyond_detection_ms: Spread::of(tally.beyond_detection_ms),
            connecting: tally.connecting,
            unaffected: tally.unaffected,
            lost_by_reason: tally.lost_by_reason,
        }
    }

    pub(super) fn report(&self) -> CellReport {
        let tally = Tally::of(self.outcomes.iter(), |_| true);
        let take_overs = || self.outcomes.iter().map(|outcome| outcome.take_over);
        let late = self.rejected.iter().filter(|reason| matches!(reason, Rejected::Late { .. })).count();
        CellReport {
            subject: self.subject.name(),
            loss: self.loss,
            rtt_ms: self.rtt_ms,
            kills: self.outcomes.len(),
            rejected_late: late,
            rejected_early: self.rejected.len() - late,
            at_risk: tally.at_risk(),
            recovered: tally.share(),
            detection_ms: Spread::of(take_overs().filter_map(|it| it.detected_ms).collect()),
            announcement_ms: Spread::of(
                take_overs().filter_map(|it| Some(it.announced_ms? - it.detected_ms?)).collect(),
            ),
            first_packet_ms: Spread::of(
                take_overs().filter_map(|it| Some(it.first_packet_ms? - it.detected_ms?)).collect(),
            ),
            tcp_wait_ms: Spread::of(tally.tcp_wait_ms),
            time_to_recover_ms: Spread::of(tally.resumed_ms),
            beyond_detection_ms: Spread::of(tally.beyond_detection_ms),
            connect_ms: connect_ms(&self.outcomes),
        }
    }
}

/// Connecting takes fractions of a millisecond where the server is near: to a hundredth.
fn connect_ms(outcomes: &[Outcome]) -> Option<Spread> {
    let hundredfold = outcomes.iter().flat_map(|outcome| &outcome.connect_ms).map(|ms| ms * 100.0).collect();
    let spread = Spread::of(hundredfold)?;
    Some(Spread { median: rounded(spread.median / 100.0, 2), p99: rounded(spread.p99 / 100.0, 2) })
}

/// What became of some flows.
#[derive(Default)]
struct Tally {
    resumed_ms: Vec<f64>,
    beyond_detection_ms: Vec<f64>,
    tcp_wait_ms: Vec<f64>,
    lost_by_reason: BTreeMap<String, usize>,
    unaffected: usize,
    connecting: [usize; 2],
}

impl Tally {
    fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>, counts: impl Fn(&Sample) -> bool) -> Self {
        let mut tally = Self::default();
        for outcome in outcomes {
            for sample in outcome.samples.iter().filter(|sample| counts(sample)) {
                tally.add(outcome, &sample.flow_outcome);
            }
        }
        tally
    }

    fn add(&mut self, outcome: &Outcome, flow_outcome: &FlowOutcome) {
        match flow_outcome {
            FlowOutcome::Recovered { resumed_ms } => {
                self.resumed_ms.push(*resumed_ms);
                self.beyond_detection_ms.extend(outcome.take_over.detected_ms.map(|ms| resumed_ms - ms));
                self.tcp_wait_ms.extend(outcome.take_over.announced_ms.map(|ms| resumed_ms - ms));
            }
            FlowOutcome::Lost(reason) => *self.lost_by_reason.entry(reason.clone()).or_default() += 1,
            FlowOutcome::Unaffected => self.unaffected += 1,
            FlowOutcome::Connecting { finished } => {
                self.connecting[0] += 1;
                self.connecting[1] += usize::from(*finished);
            }
        }
    }

    fn at_risk(&self) -> usize {
        self.resumed_ms.len() + self.lost_by_reason.values().sum::<usize>()
    }

    fn share(&self) -> Option<f64> {
        let at_risk = self.at_risk();
        (at_risk > 0).then(|| rounded(self.resumed_ms.len() as f64 / at_risk as f64, 4))
    }
}
