//! A TCP sender: slow start, congestion avoidance, selective acknowledgements, fast recovery, a probe and timeouts.

use super::super::config::FailoverConfig;
use super::super::schedule::RetransmissionSchedule;
use super::super::window::THRESHOLD_MIN;
use super::path::{Nanos, nanos};

/// Transmissions that are delivered out of order before an earlier one counts as lost (RFC 6675 section 2).
const DUPLICATES: u64 = 3;
/// The share of a round trip that a transmission may be overtaken by (RFC 8985 section 6.2).
const REORDERING_DIVISOR: u64 = 4;

/// One transmission of a segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Transmission {
    /// Which segment, from 0.
    pub(super) segment: u32,
    /// Transmissions before this one.
    order: u64,
    /// When it was sent.
    sent_at: Nanos,
}

/// An acknowledgement: all segments below `next_expected`, and the one that caused it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ack {
    pub(super) next_expected: u32,
    pub(super) data: Transmission,
}

/// What the sender does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Syn,
    Data(Transmission),
    /// A timer of a generation; a later one replaces it.
    Timer {
        after: Nanos,
        generation: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight(Transmission),
    Delivered,
    Lost,
}

/// What the sender does about losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// A SYN is not answered yet.
    Connecting,
    /// No losses are known.
    Open,
    /// Fast recovery, until everything below this segment is acknowledged.
    Recovery(u32),
    /// After a timeout, until everything below this segment is acknowledged.
    Loss(u32),
}

pub(super) struct Sender<'a> {
    schedule: &'a RetransmissionSchedule,
    segments: u32,
    window_max: f64,
    reordering: Nanos,
    phase: Phase,
    window: f64,
    threshold: f64,
    /// Acknowledgements above the threshold since the window grew, where the schedule counts them.
    acknowledged: f64,
    /// The state of each segment that was sent, all that are acknowledged below `unacknowledged`.
    sent: Vec<State>,
    unacknowledged: u32,
    transmissions: u64,
    generation: u64,
    /// Timeouts since the last acknowledgement of new data.
    timeouts: usize,
    is_probe_pending: bool,
}

impl<'a> Sender<'a> {
    pub(super) fn new(
        schedule: &'a RetransmissionSchedule,
        config: &FailoverConfig,
        segments: u32,
        round_trip: Nanos,
    ) -> Self {
        Self {
            schedule,
            segments,
            window_max: config.window_max.into(),
            reordering: round_trip / REORDERING_DIVISOR,
            phase: Phase::Connecting,
            window: config.initial_window.into(),
            threshold: f64::INFINITY,
            acknowledged: 0.0,
            sent: Vec::with_capacity(segments as usize),
            unacknowledged: 0,
            transmissions: 0,
            generation: 0,
            timeouts: 0,
            is_probe_pending: false,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.unacknowledged == self.segments
    }

    /// Sends the first SYN.
    pub(super) fn connect(&mut self) -> Vec<Action> {
        vec![Action::Syn, self.arm(0)]
    }

    /// Handles the answer to the SYN.
    pub(super) fn handle_syn_ack(&mut self, now: Nanos) -> Vec<Action> {
        if self.phase != Phase::Connecting {
            return Vec::new();
        }
        if self.timeouts > 0 {
            self.window = 1.0;
            self.threshold = if self.schedule.collapses_threshold { THRESHOLD_MIN } else { self.threshold };
        }
        self.phase = Phase::Open;
        self.timeouts = 0;
        let mut actions = self.transmit(now);
        actions.push(self.arm(0));
        actions
    }

    /// Handles an acknowledgement.
    pub(super) fn handle_ack(&mut self, now: Nanos, ack: Ack) -> Vec<Action> {
        let has_advanced = ack.next_expected > self.unacknowledged;
        let first = self.unacknowledged as usize;
        if has_advanced {
            self.sent[first..ack.next_expected as usize].fill(State::Delivered);
            self.unacknowledged = ack.next_expected;
            self.timeouts = 0;
            self.leave_phase();
            self.grow();
        }
        self.sent[ack.data.segment as usize] = State::Delivered;
        self.detect_losses(ack.data);
        let mut actions = self.transmit(now);
        if has_advanced && !self.is_complete() {
            actions.push(self.arm(0));
        }
        actions
    }

    /// Handles a timer, unless a later one replaced it.
    pub(super) fn handle_timer(&mut self, now: Nanos, generation: u64) -> Vec<Action> {
        if generation != self.generation {
            return Vec::new();
        }
        if self.phase == Phase::Connecting {
            self.timeouts += 1;
            return vec![Action::Syn, self.arm(self.timeouts)];
        }
        if self.is_probe_pending {
            return self.probe(now);
        }
        self.time_out();
        let mut actions = self.transmit(now);
        actions.push(self.arm(self.timeouts));
        actions
    }

    /// Sends a tail-loss probe: new data, or the last segment that is in flight (RFC 8985 section 7.3).
    fn probe(&mut self, now: Nanos) -> Vec<Action> {
        let has_new = self.sent.len() < self.segments as usize && self.outstanding() < self.window_max;
        let last = self.sent.iter().rposition(|state| matches!(state, State::InFlight(_)));
        let segment = if has_new { Some(self.sent.len()) } else { last };
        let mut actions: Vec<Action> = segment.map(|segment| self.send(now, segment)).into_iter().collect();
        self.is_probe_pending = false;
        actions.push(self.arm_timeout(0));
        actions
    }

    fn time_out(&mut self) {
        let is_repeated = matches!(self.phase, Phase::Loss(_));
        let outstanding = self.outstanding();
        if !is_repeated {
            self.threshold = f64::max(outstanding / 2.0, THRESHOLD_MIN);
        } else if self.schedule.collapses_threshold {
            self.threshold = THRESHOLD_MIN;
        }
        self.timeouts += 1;
        self.window = 1.0;
        self.acknowledged = 0.0;
        self.phase = Phase::Loss(self.sent.len() as u32);
        let in_flight = self.sent.iter_mut().filter(|state| matches!(state, State::InFlight(_)));
        in_flight.for_each(|state| *state = State::Lost);
    }

    /// Marks what was sent well before a transmission that was delivered, and enters fast recovery.
    fn detect_losses(&mut self, delivered: Transmission) {
        let mut found = false;
        for state in &mut self.sent[self.unacknowledged as usize..] {
            let State::InFlight(earlier) = *state else { continue };
            let is_overtaken =
                delivered.order >= earlier.order + DUPLICATES || delivered.sent_at > earlier.sent_at + self.reordering;
            if is_overtaken {
                *state = State::Lost;
                found = true;
            }
        }
        if found && self.phase == Phase::Open {
            self.threshold = (self.window.floor().min(self.outstanding()) / 2.0).max(THRESHOLD_MIN);
            self.window = self.threshold;
            self.phase = Phase::Recovery(self.sent.len() as u32);
        }
    }

    /// Segments that were sent and are not acknowledged in order.
    fn outstanding(&self) -> f64 {
        f64::from(self.sent.len() as u32 - self.unacknowledged)
    }

    fn leave_phase(&mut self) {
        if let Phase::Recovery(until) | Phase::Loss(until) = self.phase
            && self.unacknowledged >= until
        {
            self.phase = Phase::Open;
        }
    }

    /// Opens the window for an acknowledgement of new data (RFC 5681 section 3.1).
    fn grow(&mut self) {
        if matches!(self.phase, Phase::Recovery(_)) {
            return;
        }
        if self.window < self.threshold {
            self.window += 1.0;
        } else if !self.schedule.counts_acknowledgements {
            self.window += 1.0 / self.window;
        } else {
            self.acknowledged += 1.0;
            if self.acknowledged >= self.window.floor() {
                self.acknowledged = 0.0;
                self.window += 1.0;
            }
        }
        self.window = self.window.min(self.window_max);
    }

    /// Sends what the window allows: lost segments first.
    fn transmit(&mut self, now: Nanos) -> Vec<Action> {
        let first = self.unacknowledged as usize;
        let mut in_flight = self.sent[first..].iter().filter(|state| matches!(state, State::InFlight(_))).count();
        let mut actions = Vec::new();
        while in_flight < self.window as usize {
            let lost = self.sent[first..].iter().position(|state| *state == State::Lost).map(|at| first + at);
            let is_in_window = self.outstanding() < self.window_max;
            let new = (self.sent.len() < self.segments as usize && is_in_window).then_some(self.sent.len());
            let Some(segment) = lost.or(new) else { break };
            actions.push(self.send(now, segment));
            in_flight += 1;
        }
        actions
    }

    fn send(&mut self, now: Nanos, segment: usize) -> Action {
        let data = Transmission { segment: segment as u32, order: self.transmissions, sent_at: now };
        self.transmissions += 1;
        if segment == self.sent.len() {
            self.sent.push(State::InFlight(data));
        } else {
            self.sent[segment] = State::InFlight(data);
        }
        Action::Data(data)
    }

    /// Arms the timer after so many timeouts; without any and without known losses, that of the probe.
    fn arm(&mut self, timeouts: usize) -> Action {
        self.is_probe_pending = self.phase == Phase::Open && timeouts == 0 && self.schedule.data.probe_s.is_some();
        match self.schedule.data.probe_s.filter(|_| self.is_probe_pending) {
            Some(probe_s) => self.timer(probe_s),
            None => self.arm_timeout(timeouts),
        }
    }

    fn arm_timeout(&mut self, timeouts: usize) -> Action {
        let is_connecting = self.phase == Phase::Connecting;
        let backoff = if is_connecting { &self.schedule.syn } else { &self.schedule.data };
        let interval_s = backoff.intervals_s().nth(timeouts).unwrap_or(backoff.interval_s_max);
        self.timer(interval_s)
    }

    fn timer(&mut self, after_s: f64) -> Action {
        self.generation += 1;
        Action::Timer { after: nanos(after_s), generation: self.generation }
    }
}
