//! What came of a run, and of many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::node::NodeEvent;
use flow::Instant;
use replication::compact::Representation;

use crate::scenario::{Family, Scenario};

/// What a run is counted by whose nodes tell each other of connections as they are.
const PRECISE: &str = "precise";
/// A run ends when it has met so many problems.
pub const PROBLEMS_MAX: usize = 8;

/// Which promise was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Problem {
    /// A connection that should have survived did not come to its end.
    NotSurvived,
    /// A connection that should have survived was reset.
    Reset,
    /// A conversation's translation changed.
    Moved,
    /// First replies are held, and still a connection was established that the backup did not know.
    Untold,
    /// The two nodes' tables differ when all is quiet.
    ReplicasDiffer,
    /// A connection that has ended stays in a table.
    Leaked,
    /// An older word of a connection replaced a newer one.
    Backwards,
    /// Both nodes hold the addresses though they hear each other.
    TwoActive,
    /// No node holds the addresses though one could.
    NoneActive,
    /// The addresses stay with a node that reaches less than one that could take them over.
    Stranded,
    /// A node took the addresses from one that it could hear.
    Hasty,
    /// A node that was away took the addresses from the one that had taken over.
    Usurped,
    /// A node took what a node of another version said of connections, or did not say that it cannot.
    Misunderstood,
    /// A node said again what it had said.
    SaidAgain,
    /// A connection that both its ends have closed is held for open.
    Zombie,
    /// A host got bytes that were not meant for it, or not in their place.
    WrongContent,
    /// A node sent a frame that cannot be read.
    MalformedFrame,
    /// A node left a frame undecided.
    Undecided,
    /// A node holds more than it may.
    Limit,
    /// A node asks to be woken again and again without getting anywhere.
    Spinning,
    /// The program panicked.
    Panic,
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// When.
    pub at: Instant,
    /// Which promise.
    pub problem: Problem,
    /// What was seen.
    pub text: String,
}

/// How well a filter knew the connections of nodes that died, held against their tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filtered {
    /// Connections of nodes that died.
    pub asked: u64,
    /// Of those, the ones that the other node's filter did not know (some may have begun a moment ago).
    pub unknown: u64,
    /// Of those that it knew, the ones whose state was another (some may have changed a moment ago).
    pub inaccurate_states: u64,
    /// Tuples of no connection that the filter was asked for.
    pub strangers_asked: u64,
    /// Of those, the ones that it seemed to know.
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

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Broken promises, at most [`PROBLEMS_MAX`].
    pub problems: Vec<Failure>,
    /// Conversations of all kinds.
    pub conversations: u64,
    /// Conversations that were under way when an active node died.
    pub connections: u64,
    /// Of those, the ones that came to their end.
    pub survived: u64,
    /// Kinds of trouble that were played.
    pub families: BTreeSet<Family>,
    /// How the nodes told each other of connections.
    pub representation: &'static str,
    /// Nodes that stopped dead.
    pub kills: u64,
    /// Nodes that stood still for a while.
    pub pauses: u64,
    /// Take-overs of the addresses, the first included.
    pub failovers: u64,
    /// Replication messages of the nodes alive at the end that had to be told again.
    pub messages_lost: u64,
    /// Datagrams between the nodes that a wrong checksum cost.
    pub datagrams_lost: u64,
    /// Copies that were broken on purpose, to be put right.
    pub copies_broken: u64,
    /// Copies that the nodes alive at the end found not to be what their master told.
    pub copies_differing: u64,
    /// Of those, the ones that they put right.
    pub copies_repaired: u64,
    /// What filters knew, where connections are told by them.
    pub filtered: Filtered,
    /// Events simulated.
    pub events: u64,
    /// Time simulated.
    pub simulated: Duration,
    /// A digest of everything that happened: equal seeds give equal digests.
    pub digest: u64,
    /// What happened, line by line, if that was asked for.
    pub trace: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            seed: scenario.seed,
            problems: Vec::new(),
            conversations: 0,
            connections: 0,
            survived: 0,
            families: scenario.families(),
            representation: scenario.representation.map_or(PRECISE, Representation::name),
            kills: 0,
            pauses: 0,
            failovers: 0,
            messages_lost: 0,
            datagrams_lost: 0,
            copies_broken: 0,
            copies_differing: 0,
            copies_repaired: 0,
            filtered: Filtered::default(),
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

    /// Whether every promise was kept.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// How often something was played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Played {
    /// Runs with it.
    pub played: u64,
    /// Of these, runs in which a promise was broken.
    pub failures: u64,
}

impl Played {
    fn note(&mut self, outcome: &Outcome) {
        self.played += 1;
        self.failures += u64::from(!outcome.is_sound());
    }
}

/// What came of many runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Runs.
    pub seeds: u64,
    /// Runs in which a promise was broken.
    pub failures: u64,
    /// Conversations of all kinds.
    pub conversations: u64,
    /// Conversations that were under way when an active node died.
    pub connections: u64,
    /// Of those, the ones that came to their end.
    pub survived: u64,
    /// Nodes that stopped dead.
    pub kills: u64,
    /// Nodes that stood still for a while.
    pub pauses: u64,
    /// In how many runs each kind of trouble was played, and how many of these broke a promise.
    pub by_fault: BTreeMap<Family, Played>,
    /// The same for each way to tell of connections.
    pub by_representation: BTreeMap<&'static str, Played>,
    /// Take-overs of the addresses.
    pub failovers: u64,
    /// Replication messages that had to be told again.
    pub messages_lost: u64,
    /// What filters knew, where connections are told by them.
    pub filtered: Filtered,
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
        self.conversations += outcome.conversations;
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
        self.events += outcome.events;
        self.simulated += outcome.simulated;
    }
}
