//! From counts to results.

use std::collections::BTreeMap;
use std::time::Duration;

use flow::{Connection, Instant};

use super::book::{Book, OfThreshold};
use super::config::{Method, StudyConfig};
use super::lane::LaneOutcome;
use super::outcome::{Cost, LevelLoads, MethodOutcome, NotStudied, Outcome, Traffic};
use super::precise::Sent;
use super::workers::Outcomes;
use crate::trace::Trace;
use crate::trace::connections::{End, Untracked};

/// Bytes of a message as the paper's simulation counts them: a tuple and a flag, without any header (section 2.1.4).
const SEED_MESSAGE_BYTES: u64 = 13;
const LIFETIME_QUANTILES: [f64; 6] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99];
/// Points of the distribution of lifetimes: four a decade, from 1 ms to about 3 hours.
const LIFETIME_POINTS: i32 = 29;

/// What was counted.
pub(super) struct Found<'a> {
    pub(super) config: &'a StudyConfig,
    pub(super) book: &'a Book,
    pub(super) lanes: Outcomes,
    pub(super) began: Option<Instant>,
    pub(super) duration: Duration,
    pub(super) busy: Duration,
    pub(super) failovers: u64,
}

impl Found<'_> {
    pub(super) fn outcome(&self) -> Outcome {
        let methods = self.config.methods.iter().map(|method| (method.name(), self.method(*method)));
        Outcome { traffic: self.traffic(), methods: methods.collect(), failovers: self.failovers, ..Outcome::default() }
    }

    fn method(&self, method: Method) -> MethodOutcome {
        let mut by_threshold: Vec<Cost> =
            (0..self.config.thresholds_of(method)).map(|index| self.cost(method, index)).collect();
        let at_zero = by_threshold.first().map_or(0, |cost| cost.bytes);
        for cost in &mut by_threshold {
            cost.reduction_by_threshold = saved(cost.bytes, at_zero);
        }
        let level_loads = self.level_loads(method);
        MethodOutcome { cost: by_threshold.first().cloned().unwrap_or_default(), by_threshold, level_loads }
    }

    fn level_loads(&self, method: Method) -> Vec<LevelLoads> {
        let began = self.began.unwrap_or_default();
        let of_method = self.lanes.iter().filter(|(of, threshold, _)| (*of, *threshold) == (method, 0));
        let loads = of_method.flat_map(|(_, _, lane)| &lane.loads);
        let level_loads = |(at, loads): &(Instant, Vec<f64>)| LevelLoads {
            at_s: at.saturating_since(began).as_secs_f64(),
            loads: loads.clone(),
        };
        loads.map(level_loads).collect()
    }

    fn cost(&self, method: Method, index: usize) -> Cost {
        let of = &self.book.of_threshold[index];
        let mut cost = match method {
            Method::PreciseEager => precise(of, of.eager()),
            Method::PreciseSelective => precise(of, of.selective()),
            _ => {
                let lane =
                    self.lanes.iter().find(|(of, threshold, _)| *of == method && usize::from(*threshold) == index);
                compact(method, of, &lane.map(|(_, _, lane)| lane.clone()).unwrap_or_default())
            }
        };
        cost.threshold_ms = self.config.thresholds_ms[index];
        cost.reduction = saved(cost.bytes, of.selective().bytes);
        cost.reduction_from_13_bytes = saved(cost.bytes, cost.changes * SEED_MESSAGE_BYTES);
        cost.reduction_without_headers = saved(cost.content_bytes, cost.changes * SEED_MESSAGE_BYTES);
        let bytes_protected = self.book.bytes_protected(index);
        cost.overhead = ratio(cost.bytes, bytes_protected);
        cost.protected_share = ratio(bytes_protected, self.book.payload_bytes);
        cost
    }

    fn traffic(&self) -> Traffic {
        let (book, statistics) = (self.book, &self.book.statistics);
        let (duration_s, busy_s) = (self.duration.as_secs_f64(), self.busy.as_secs_f64());
        let points: Vec<f64> = (0..LIFETIME_POINTS).map(|point| 1e-3 * 10_f64.powf(f64::from(point) / 4.0)).collect();
        let share = |seconds: &f64| statistics.lifetimes.share_up_to(Duration::from_secs_f64(*seconds));
        Traffic {
            duration_s,
            busy_s,
            packets: book.packets,
            payload_bytes: book.payload_bytes,
            connections: statistics.begun,
            tcp: statistics.tcp,
            udp: statistics.udp,
            connections_per_second: if busy_s > 0.0 { statistics.begun as f64 / busy_s } else { 0.0 },
            connections_max: statistics.open_max,
            one_way: statistics.one_way,
            one_way_share: ratio(statistics.one_way, statistics.ended).unwrap_or(0.0),
            ended: End::ALL.into_iter().map(|end| (end.label(), statistics.ended_by(end))).collect(),
            lifetime_quantiles_s: LIFETIME_QUANTILES.map(|share| statistics.lifetimes.quantile_s(share)),
            lifetime_shares: points.iter().map(share).collect(),
            lifetime_points_s: points,
            host_pairs_max: book.hosts.pairs_max as u64,
            parallel: book.hosts.by_lifetime.to_vec(),
        }
    }
}

/// What of `whole` is saved where `part` is needed.
fn saved(part: u64, whole: u64) -> Option<f64> {
    ratio(part, whole).map(|share| 1.0 - share)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Precise messages on a link without loss: the backup has what the primary has.
fn precise(of: &OfThreshold, sent: Sent) -> Cost {
    Cost {
        bytes: sent.bytes,
        content_bytes: sent.content_bytes,
        messages: sent.messages,
        datagrams: sent.datagrams,
        changes: of.changes,
        entries_at_backup: of.entries_max,
        backup_bytes: of.entries_max * size_of::<Connection>() as u64,
        false_positive: Some(0.0),
        false_positive_same_hosts: Some(0.0),
        false_negative: Some(0.0),
        inaccurate_state: Some(0.0),
        ..Cost::default()
    }
}

fn compact(method: Method, of: &OfThreshold, lane: &LaneOutcome) -> Cost {
    let answers = &lane.answers;
    Cost {
        bytes: lane.exchanged.bytes,
        content_bytes: lane.exchanged.content_bytes,
        messages: lane.messages,
        datagrams: lane.exchanged.datagrams,
        changes: if method.is_membership() { of.changes_of_membership } else { of.changes },
        entries_at_backup: lane.entries_max,
        backup_bytes: lane.backup_bytes,
        false_positive: ratio(answers.false_positives, answers.absent),
        false_positive_same_hosts: ratio(answers.same_host_hits, answers.same_hosts),
        false_negative: ratio(answers.false_negatives, answers.due),
        inaccurate_state: if method.is_membership() { None } else { ratio(answers.inaccurate_states, answers.due) },
        deferred: ratio(answers.deferred, answers.deferred + answers.due),
        refused: lane.refused,
        filter_bytes: lane.filter_bytes,
        whole_updates: lane.whole_updates,
        incremental_updates: lane.incremental_updates,
        initial_bytes: lane.initial_bytes,
        checking_bytes: lane.exchanged.checking_bytes,
        bytes_back: lane.exchanged.bytes_back,
        ..Cost::default()
    }
}

/// What was left out of the study, and why.
pub(super) fn not_studied(trace: Option<&Trace>, untracked: &Untracked) -> NotStudied {
    let skips = trace.into_iter().flat_map(|trace| trace.skips().iter());
    let frames: BTreeMap<&'static str, u64> =
        skips.filter(|(_, frames, _)| *frames > 0).map(|(skip, frames, _)| (skip.label(), frames)).collect();
    NotStudied {
        frames,
        without_connection: untracked.without_connection,
        refused: untracked.refused,
        fragments: untracked.fragments,
        table_full: untracked.table_full,
        displaced: untracked.displaced,
        damaged: trace.into_iter().flat_map(Trace::damages).map(ToString::to_string).collect(),
    }
}
