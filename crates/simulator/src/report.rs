//! The results of a run, and of many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::node::NodeEvent;
use flow::Instant;
use replication::compact::Representation;

use crate::scenario::{Family, Fault, Scenario};

/// The label of runs with precise replication.
const PRECISE: &str = "precise";
/// A run ends after this many violations.
pub const PROBLEMS_MAX: usize = 8;

/// The violated guarantee.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Problem {
    /// A connection that should have survived did not finish.
    NotSurvived,
    /// A connection that should have survived was reset.
    Reset,
    /// A transfer's translation changed.
    Moved,
    /// First replies are held, but a connection was established that the backup lacks.
    Unreplicated,
    /// The two nodes' tables differ in a quiet state.
    ReplicasDiffer,
    /// A connection that has ended stays in a table.
    Leaked,
    /// An older update of a connection replaced a newer state.
    StaleUpdate,
    /// Both nodes hold the addresses although they reach each other.
    TwoActive,
    /// No node holds the addresses though one could.
    NoneActive,
    /// The addresses stay with a node that reaches less than one that could take them over.
    Stranded,
    /// A node took the addresses from one that it could reach.
    PrematureTakeOver,
    /// A node that was away took the addresses from the one that had taken over.
    Usurped,
    /// A node applied updates of another protocol version, or did not report the mismatch.
    VersionMismatchMissed,
    /// A node repeated a report.
    RepeatedReport,
    /// A connection that both its ends have closed is held as open.
    Zombie,
    /// A host received bytes of another transfer, or in a wrong position.
    WrongContent,
    /// A node sent a malformed frame.
    MalformedFrame,
    /// A node left a frame undecided.
    Undecided,
    /// A node exceeds a limit.
    Limit,
    /// A node requests timeouts repeatedly without progress.
    Spinning,
    /// A gateway does not know another one that runs, although it could.
    MemberLost,
    /// Other settings are in force than the operator's.
    SettingsLost,
    /// A quota stopped for good.
    QuotaStopped,
    /// More passed than a quota allows.
    QuotaExceeded,
    /// Nodes do not report ready, though nothing disturbs them.
    NeverReady,
    /// All nodes report ready, and a connection has not one owner and its backups.
    NotBackedUp,
    /// The program panicked.
    Panic,
}

/// A violated guarantee.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The time of the violation.
    pub at: Instant,
    /// The guarantee.
    pub problem: Problem,
    /// The observation.
    pub text: String,
}

/// The accuracy of a filter for the connections of nodes that failed, compared with their tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filtered {
    /// Connections of nodes that died.
    pub asked: u64,
    /// Of those, the ones that the other node's filter did not contain (some may have begun a moment ago).
    pub unknown: u64,
    /// Of those that it contained, the ones with another state (some may have changed a moment ago).
    pub inaccurate_states: u64,
    /// Absent tuples that were looked up in the filter.
    pub strangers_asked: u64,
    /// Of those, the ones that it seemed to contain.
    pub false_hits: u64,
}

impl Filtered {
    fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.unknown += other.unknown;
        self.inaccurate_states += other.inaccurate_states;
        self.strangers_asked += other.strangers_asked;
        self.false_hits += other.false_hits;
    }
}

/// What was wrong with wall clocks, and what depended on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClockFaults {
    /// Clocks that were wrong from the beginning.
    pub skews: u64,
    /// Clocks that were set forward.
    pub steps_forward: u64,
    /// Clocks that were set back.
    pub steps_back: u64,
    /// The longest distance, in seconds.
    pub longest_s: u64,
    /// Starts of gateways that publish records by such clocks.
    pub gateways_started: u64,
    /// Periods of quotas by such clocks.
    pub quota_periods: u64,
}

impl ClockFaults {
    fn of(scenario: &Scenario) -> Self {
        let mut counted = Self::default();
        for (at, fault) in scenario.schedule() {
            let Fault::WallClock { by_s, .. } = fault else { continue };
            let count = match (at, by_s) {
                (Instant::ZERO, _) => &mut counted.skews,
                (_, 0..) => &mut counted.steps_forward,
                _ => &mut counted.steps_back,
            };
            *count += 1;
            counted.longest_s = counted.longest_s.max(by_s.unsigned_abs());
        }
        counted
    }

    fn add(&mut self, other: &Self) {
        self.skews += other.skews;
        self.steps_forward += other.steps_forward;
        self.steps_back += other.steps_back;
        self.longest_s = self.longest_s.max(other.longest_s);
        self.gateways_started += other.gateways_started;
        self.quota_periods += other.quota_periods;
    }
}

/// Nodes that left a larger cluster, and its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leaves {
    /// Nodes that left, most of which returned.
    pub departures: u64,
    /// Connections that stood meanwhile.
    pub connections: u64,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its RNG seed.
    pub seed: u64,
    /// Violated guarantees, at most [`PROBLEMS_MAX`].
    pub problems: Vec<Failure>,
    /// Transfers of all kinds.
    pub transfers: u64,
    /// Transfers in progress when an active node died.
    pub connections: u64,
    /// Of those, the ones that finished.
    pub survived: u64,
    /// Kinds of faults in the run.
    pub families: BTreeSet<Family>,
    /// The representation of connections in replication.
    pub representation: &'static str,
    /// Nodes that failed.
    pub kills: u64,
    /// Nodes that were paused.
    pub pauses: u64,
    /// Take-overs of the addresses, the first included.
    pub failovers: u64,
    /// Replication messages of the surviving nodes that were retransmitted.
    pub messages_lost: u64,
    /// Datagrams between the nodes that were lost to a wrong checksum.
    pub datagrams_lost: u64,
    /// Replicas that were corrupted on purpose, to be repaired.
    pub replicas_corrupted: u64,
    /// Replicas that the surviving nodes found to differ from their owner's state.
    pub replicas_differing: u64,
    /// Of those, the ones that were repaired.
    pub replicas_repaired: u64,
    /// The accuracy of filters, where replication uses them.
    pub filtered: Filtered,
    /// What was wrong with wall clocks.
    pub clocks: ClockFaults,
    /// Nodes that left a larger cluster.
    pub leaves: Leaves,
    /// Events simulated.
    pub events: u64,
    /// Time simulated.
    pub simulated: Duration,
    /// A digest of all events: equal seeds give equal digests.
    pub digest: u64,
    /// The events, line by line, if requested.
    pub trace: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            seed: scenario.seed,
            problems: Vec::new(),
            transfers: 0,
            connections: 0,
            survived: 0,
            families: scenario.families(),
            representation: scenario.representation.map_or(PRECISE, Representation::name),
            kills: 0,
            pauses: 0,
            failovers: 0,
            messages_lost: 0,
            datagrams_lost: 0,
            replicas_corrupted: 0,
            replicas_differing: 0,
            replicas_repaired: 0,
            filtered: Filtered::default(),
            clocks: ClockFaults::of(scenario),
            leaves: Leaves::default(),
            events: 0,
            simulated: Duration::ZERO,
            digest: 0,
            trace: Vec::new(),
        }
    }

    pub(crate) fn problem(&mut self, at: Instant, problem: Problem, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Failure { at, problem, text });
        }
    }

    pub(crate) const fn count(&mut self, event: NodeEvent) {
        if let NodeEvent::BecameActive { .. } = event {
            self.failovers += 1;
        }
    }

    /// Whether every guarantee held.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// The number of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Played {
    /// Runs with it.
    pub played: u64,
    /// Of these, runs with a violated guarantee.
    pub failures: u64,
}

impl Played {
    fn note(&mut self, outcome: &Outcome) {
        self.played += 1;
        self.failures += u64::from(!outcome.is_sound());
    }
}

/// The results of many runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Runs.
    pub seeds: u64,
    /// Runs with a violated guarantee.
    pub failures: u64,
    /// Transfers of all kinds.
    pub transfers: u64,
    /// Transfers in progress when an active node died.
    pub connections: u64,
    /// Of those, the ones that finished.
    pub survived: u64,
    /// Nodes that failed.
    pub kills: u64,
    /// Nodes that were paused.
    pub pauses: u64,
    /// The number of runs with each kind of fault, and how many of these violated a guarantee.
    pub by_fault: BTreeMap<Family, Played>,
    /// The same for each representation.
    pub by_representation: BTreeMap<&'static str, Played>,
    /// Take-overs of the addresses.
    pub failovers: u64,
    /// Replication messages that were retransmitted.
    pub messages_lost: u64,
    /// The accuracy of filters, where replication uses them.
    pub filtered: Filtered,
    /// What was wrong with wall clocks.
    pub clocks: ClockFaults,
    /// Nodes that left a larger cluster.
    pub leaves: Leaves,
    /// Events simulated.
    pub events: u64,
    /// Time simulated.
    pub simulated: Duration,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.failures += u64::from(!outcome.is_sound());
        self.transfers += outcome.transfers;
        self.connections += outcome.connections;
        self.survived += outcome.survived;
        self.kills += outcome.kills;
        self.pauses += outcome.pauses;
        for family in &outcome.families {
            self.by_fault.entry(*family).or_default().note(outcome);
        }
        self.by_representation.entry(outcome.representation).or_default().note(outcome);
        self.failovers += outcome.failovers;
        self.messages_lost += outcome.messages_lost;
        self.filtered.add(&outcome.filtered);
        self.clocks.add(&outcome.clocks);
        self.leaves.departures += outcome.leaves.departures;
        self.leaves.connections += outcome.leaves.connections;
        self.events += outcome.events;
        self.simulated += outcome.simulated;
    }
}
