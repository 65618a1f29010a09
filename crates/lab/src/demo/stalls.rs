//! How long connections stall after edges have switched over.

use serde::Serialize;

use crate::testbed::clock::Epoch;
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::outcome::Outcome;
use api::{Event, EventKind};

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
    fn of(stalls_ms: &[f64]) -> Self {
        let mut stalls_ms = stalls_ms.to_vec();
        stalls_ms.sort_by(f64::total_cmp);
        Self {
            connections: stalls_ms.len(),
            median_ms: stalls_ms.get(stalls_ms.len() / 2).copied(),
            longest_ms: stalls_ms.last().copied(),
        }
    }
}

/// How the edges switched over, and how connections stalled after that.
#[derive(Clone, PartialEq, Debug, Serialize)]
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
    /// All of them.
    #[serde(skip)]
    pub stalls_ms: StallsByKind,
}

/// Stalls after the switch-over, in milliseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StallsByKind {
    /// Of downloads.
    pub bulk_down: Vec<f64>,
    /// Of uploads.
    pub bulk_up: Vec<f64>,
    /// Of connections that were opened between the kill and the switch-over.
    pub syn: Vec<f64>,
    /// Of short flows: connections that were open and waited for the answer to their first request.
    pub short: Vec<f64>,
    /// From the first SYN to the answer to the first request, of the connections of `syn`.
    pub syn_completion: Vec<f64>,
    /// The same of those of `short`.
    pub short_completion: Vec<f64>,
}

impl StallsByKind {
    /// Adds those of another run.
    pub fn extend(&mut self, other: &Self) {
        self.bulk_down.extend(&other.bulk_down);
        self.bulk_up.extend(&other.bulk_up);
        self.syn.extend(&other.syn);
        self.short.extend(&other.short);
        self.syn_completion.extend(&other.syn_completion);
        self.short_completion.extend(&other.short_completion);
    }
}

/// What the outage interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The handshake, begun between the kill and the switch-over.
    Syn,
    /// The answer to the first request.
    Short,
}

/// A connection that asked once as soon as it was open, and whose handshake or answer the outage interrupted.
struct Interrupted {
    phase: Phase,
    stall_ms: f64,
    completion_ms: f64,
}

impl Interrupted {
    /// `None`: the connection was not interrupted. The longest gap is that of its first answer.
    fn of(outcome: &Outcome, killed_at: Epoch, switch_over_ms: f64) -> Option<Self> {
        let opened_ms = killed_at.ms_to(outcome.opened_at);
        let established_ms = killed_at.ms_to(outcome.established_at?);
        let answered_ms = established_ms + outcome.longest_gap.as_secs_f64() * 1e3;
        let completion_ms = answered_ms - opened_ms;
        if established_ms > switch_over_ms && (0.0..switch_over_ms).contains(&opened_ms) {
            return Some(Self { phase: Phase::Syn, stall_ms: established_ms - switch_over_ms, completion_ms });
        }
        let is_short = established_ms < switch_over_ms && answered_ms > switch_over_ms && opened_ms < switch_over_ms;
        // A request that was sent long before the failure was answered before it.
        let is_recent = established_ms > -REQUESTED_BEFORE_MS_MAX;
        let stall_ms = answered_ms - switch_over_ms;
        (is_short && is_recent).then_some(Self { phase: Phase::Short, stall_ms, completion_ms })
    }
}

/// A figure of the connections that were interrupted in `phase`.
fn figures(interrupted: &[Interrupted], phase: Phase, figure: fn(&Interrupted) -> f64) -> Vec<f64> {
    interrupted.iter().filter(|flow| flow.phase == phase).map(figure).collect()
}

/// The longest round trip of these measurements: a request that is older when the node fails has been answered.
const REQUESTED_BEFORE_MS_MAX: f64 = 500.0;

/// A transfer that made no progress for this share of the time until the switch-over passed the killed node.
const STALLED_SHARE_MIN: f64 = 0.8;

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
        let bulk = |kind| {
            let is_counted =
                move |outcome: &&Outcome| outcome.kind == kind && outcome.was_established_before(killed_at.instant());
            let gaps_ms = outcomes.iter().filter(is_counted).map(|outcome| outcome.longest_gap.as_secs_f64() * 1e3);
            let stalled = gaps_ms.filter(|gap_ms| *gap_ms >= switch_over_ms * STALLED_SHARE_MIN);
            stalled.map(|gap_ms| (gap_ms - switch_over_ms).max(0.0)).collect::<Vec<_>>()
        };
        let ramp = outcomes.iter().filter(|outcome| outcome.kind == Kind::Ramp);
        let interrupted: Vec<_> =
            ramp.filter_map(|outcome| Interrupted::of(outcome, killed_at, switch_over_ms)).collect();
        let stalls_ms = |phase| figures(&interrupted, phase, |flow| flow.stall_ms);
        let completions_ms = |phase| figures(&interrupted, phase, |flow| flow.completion_ms);
        let stalls_ms = StallsByKind {
            bulk_down: bulk(Kind::Download),
            bulk_up: bulk(Kind::Upload),
            syn: stalls_ms(Phase::Syn),
            short: stalls_ms(Phase::Short),
            syn_completion: completions_ms(Phase::Syn),
            short_completion: completions_ms(Phase::Short),
        };
        Some(Self {
            switch_over_ms,
            resent_ms: after(EventKind::Resent).min_by(f64::total_cmp),
            resent_packets,
            bulk: Stalls::of(&[&stalls_ms.bulk_down[..], &stalls_ms.bulk_up].concat()),
            syn: Stalls::of(&stalls_ms.syn),
            stalls_ms,
        })
    }
}
