//! One filter at one threshold.

use std::time::Duration;

use flow::Instant;
use replication::compact::{CellState, CompactConfigError};

use super::compared::ComparedPair;
use super::config::{Method, StudyConfig};
use super::ops::{Kind, Op, Probes};
use super::pair::{Exchanged, NodePair, Pair};

/// The most stops of the clock between two changes. Messages of filters in a silence of hours, or of years between two
/// captures, are no cost of the traffic.
const STOPS_MAX: usize = 16;
/// So often at most it is noted how full a filter's levels are.
const LOADS_MAX: usize = 1000;
/// So long before the capture the backup is there.
const BEFORE: Duration = Duration::from_secs(5);

/// What backups answered at simulated failovers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Answers {
    /// Tuples of no connection, and those that were taken for one.
    pub(super) absent: u64,
    pub(super) false_positives: u64,
    /// The same of tuples between hosts that have a connection.
    pub(super) same_hosts: u64,
    pub(super) same_host_hits: u64,
    /// Connections that the backup should know, those that it did not, and those whose state it had wrong.
    pub(super) due: u64,
    pub(super) false_negatives: u64,
    pub(super) inaccurate_states: u64,
    /// Connections in progress that were still deferred.
    pub(super) deferred: u64,
}

/// What became of a filter.
#[derive(Clone, Default, Debug)]
pub(super) struct LaneOutcome {
    /// When the primary failed, and the loads of the filter's levels then.
    pub(super) loads: Vec<(Instant, Vec<f64>)>,
    pub(super) exchanged: Exchanged,
    pub(super) messages: u64,
    /// Bytes of the whole filter as it is sent.
    pub(super) filter_bytes: u64,
    pub(super) initial_bytes: u64,
    pub(super) entries_max: u64,
    pub(super) backup_bytes: u64,
    pub(super) refused: u64,
    pub(super) whole_updates: u64,
    pub(super) incremental_updates: u64,
    pub(super) answers: Answers,
}

/// The filter.
pub(super) struct Lane {
    pub(super) method: Method,
    /// The index of its threshold.
    pub(super) threshold: u8,
    pair: Box<dyn Pair>,
    due: Instant,
    outcome: LaneOutcome,
    has_begun: bool,
    /// Something changed since datagrams were last asked for.
    is_waiting: bool,
    batch: Duration,
    /// What had been sent before the capture: words, whole updates, incremental ones.
    before: [u64; 3],
}

impl Lane {
    pub(super) fn new(config: &StudyConfig, method: Method, threshold: u8) -> Result<Self, CompactConfigError> {
        let pair: Box<dyn Pair> = match method {
            Method::DLeft | Method::CountingBloom => Box::new(ComparedPair::new(config, method)?),
            _ => Box::new(NodePair::new(config, method)?),
        };
        let outcome = LaneOutcome { filter_bytes: pair.filter_bytes() as u64, ..LaneOutcome::default() };
        Ok(Self {
            method,
            threshold,
            pair,
            due: Instant::ZERO,
            outcome,
            has_begun: false,
            is_waiting: false,
            batch: Duration::from_millis(config.batch_ms.into()),
            before: [0; 3],
        })
    }

    /// A connection changed.
    pub(super) fn handle(&mut self, op: &Op) {
        if !(op.first..op.end).contains(&self.threshold) {
            return;
        }
        self.turn_to(op.at);
        let tuple = &op.tuple;
        let is_member =
            |state: CellState| self.method != Method::MultiLevelFaEstablished || state.is_established(tuple.protocol);
        // A representation of membership holds all connections in one state, whatever their own.
        let cell_state = |state| if self.method == Method::MultiLevelFaEstablished { established() } else { state };
        match op.kind {
            Kind::Insert(state) if is_member(state) => {
                self.pair.insert(tuple, cell_state(state));
            }
            Kind::Modify(before, after) => match (is_member(before), is_member(after)) {
                // A representation of membership has no states of an established connection.
                (true, true) if self.method == Method::MultiLevelFaEstablished => {}
                (true, true) => {
                    self.pair.modify(tuple, before, after);
                }
                (false, true) => {
                    self.pair.insert(tuple, established());
                }
                (true, false) => self.pair.remove(tuple, established()),
                (false, false) => {}
            },
            Kind::Remove(state) if is_member(state) => {
                self.pair.remove(tuple, cell_state(state));
            }
            Kind::Insert(_) | Kind::Remove(_) => {}
        }
        self.outcome.entries_max = self.outcome.entries_max.max(self.pair.status().entries);
        if !self.is_waiting {
            // The first change since the last datagrams: its batch begins.
            self.is_waiting = true;
            self.pair.handle_timeout(op.at);
            self.due = self.next_due().min(op.at + self.batch);
        }
    }

    /// Time passes: what is due by then is sent and received.
    pub(super) fn turn_to(&mut self, at: Instant) {
        if !self.has_begun {
            self.begin(at);
        }
        let mut stops = 0;
        while self.due <= at {
            let now = if stops < STOPS_MAX { self.due } else { at };
            self.exchange(now);
            let next = self.next_due();
            // Whatever is still due at the same moment is due to be asked again, but not for ever.
            self.due = if next <= now { now + Duration::from_nanos(1) } else { next };
            stops += 1;
        }
    }

    /// The backup gets an empty filter in the time before the capture, which is not part of what the traffic costs.
    fn begin(&mut self, at: Instant) {
        self.has_begun = true;
        self.due = Instant::from_nanos(at.as_nanos().saturating_sub(BEFORE.as_nanos() as u64));
        self.exchange(self.due);
        self.due = self.next_due();
        let just_before = Instant::from_nanos(at.as_nanos().saturating_sub(1));
        self.turn_to(just_before);
        let LaneOutcome { exchanged: Exchanged { bytes, checking_bytes, .. }, filter_bytes, .. } = self.outcome;
        self.outcome = LaneOutcome { initial_bytes: bytes + checking_bytes, filter_bytes, ..LaneOutcome::default() };
        self.before = self.sent();
    }

    /// What has been sent up to here: words, whole updates, incremental ones.
    fn sent(&self) -> [u64; 3] {
        let status = self.pair.status();
        [status.words, status.whole_updates, status.incremental_updates]
    }

    fn next_due(&self) -> Instant {
        self.pair.poll_timeout().unwrap_or(Instant::FAR_FUTURE)
    }

    fn exchange(&mut self, now: Instant) {
        self.is_waiting = false;
        self.pair.exchange(now, &mut self.outcome.exchanged);
    }

    /// The primary fails now: what has not been sent is lost. Asks the backup.
    pub(super) fn probe(&mut self, probes: &Probes) {
        self.turn_to(probes.at);
        if self.outcome.loads.len() < LOADS_MAX && self.threshold == 0 && !self.method.is_precise() {
            let loads = self.pair.loads_by_level();
            self.outcome.loads.extend((!loads.is_empty()).then_some((probes.at, loads)));
        }
        let answers = &mut self.outcome.answers;
        for tuple in &probes.absent {
            answers.absent += 1;
            answers.false_positives += u64::from(self.pair.lookup(tuple).is_some());
        }
        for tuple in &probes.same_hosts {
            answers.same_hosts += 1;
            answers.same_host_hits += u64::from(self.pair.lookup(tuple).is_some());
        }
        for active in &probes.active {
            let is_member = active.state.is_established(active.tuple.protocol);
            if active.replicated <= self.threshold || self.method.is_membership() && !is_member {
                answers.deferred += 1;
                continue;
            }
            answers.due += 1;
            match self.pair.lookup(&active.tuple) {
                None => answers.false_negatives += 1,
                Some(_) if self.method.is_membership() => {}
                Some(known) => answers.inaccurate_states += u64::from(known.state != Some(active.state)),
            }
        }
    }

    pub(super) fn finish(mut self) -> LaneOutcome {
        let status = self.pair.status();
        let [words, whole_updates, incremental_updates] = self.before;
        self.outcome.messages = status.words - words;
        self.outcome.refused = status.refused;
        self.outcome.whole_updates = status.whole_updates - whole_updates;
        self.outcome.incremental_updates = status.incremental_updates - incremental_updates;
        self.outcome.backup_bytes = self.pair.backup_bytes() as u64;
        self.outcome
    }
}

/// The state under which a representation of membership holds every connection.
const fn established() -> CellState {
    CellState::from_number(flow::conntrack::TcpState::Established as u8)
}
