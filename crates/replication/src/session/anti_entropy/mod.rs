//! Anti-entropy: this node's replicas of the peer's connections are compared with what the peer sent, and repaired,
//! continuously.
//!
//! ```text
//!            time has come,            all digests came          listing complete
//!            or a replica was wrong    that differ: some
//!   Resting ───────────────► Comparing ────────────────► Listing ───────────────► Gathering
//!     ▲ ▲                       │   ▲                     │  │ ▲                      │
//!     │ └── none differs, or ───┘   │      the peer does  │  │ └ a part is lost       │ own copies in these
//!     │     the peer says nothing   │      not answer ────┘  └─ more buckets ◄──┐     ▼ buckets held against it
//!     │                             │                                           └─ Repairing
//!     └─────────────────────────────┴─── all asked for is there, or was asked for often enough ─┘
//! ```
//!
//! A scan over all slots, a part at a time, compares the table with what is known of it here. So it is the table that is
//! compared, and a change without a message shows as well.
//!
//! Nothing here changes a replica. A missing or wrong one is retransmitted by its owner, and one that its owner does not have
//! is ended by it, with the messages and in the order of all others: a wrong suspicion costs a message.

mod compare;
mod repair;
mod scan;
mod status;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;

use super::Handle;
use crate::item::{Buckets, Item};
use crate::message::anti_entropy::{Ask, Listed};
use scan::Scan;

pub use status::AntiEntropyStatus;

/// Time between two comparisons.
pub const COMPARE_INTERVAL: Duration = Duration::from_secs(4);
/// Time of a scan over all slots.
pub const SCAN_PERIOD: Duration = Duration::from_secs(4);
/// From both nodes' full synchronisation to the first comparison: what a round left over is being removed.
const FIRST_AFTER: Duration = Duration::from_secs(1);
/// Buckets without an answer, or with messages in flight, are asked for again after this time,
const ASK_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// this many times in all.
const ASKS_MAX: u32 = 12;
/// Connections listed at a time; as many buckets are listed together as have so many.
const LISTED_MAX: u32 = 8192;
/// A listing of which no part has come for so long is asked for again,
const LISTING_TIMEOUT: Duration = Duration::from_millis(300);
/// this many times in all.
const LISTINGS_MAX: u32 = 3;
/// Time that messages sent before a listing was complete have to arrive.
const LISTING_SETTLES: Duration = Duration::from_millis(100);
/// Slots looked at in one step for replicas in the listed buckets.
const GATHER_STEPS_MAX: u32 = 16_384;
/// Connections that are put right at a time.
const DIVERGENT_MAX: usize = 1024;
/// What was asked for and has not come is asked for again after this time,
const REPAIR_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// this many times in all.
const REPAIRS_MAX: u32 = 5;
/// Replicas that changed while they were being listed. When there are more, the listing is given up.
const TOUCHED_MAX: usize = 65_536;
/// When more than this many listings would be needed, a new round is less work.
const LISTINGS_BEFORE_ROUND: usize = 8;
/// Time between two rounds that are asked for because too much differs.
const ROUND_INTERVAL: Duration = Duration::from_secs(60);

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing, until it is time.
    Resting,
    /// The peer's digests are awaited.
    Comparing,
    /// The listing of some buckets is awaited.
    Listing,
    /// The own replicas in these buckets from this slot on are still to be gathered.
    Gathering(u32),
    /// What differs was asked for.
    Repairing,
}

/// How a replica differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Difference {
    /// It is not there.
    Missing,
    /// It is not what was sent.
    Wrong,
    /// Superfluous: its owner has no such connection.
    Extra,
}

/// A connection on which the two nodes differ. `listed` has the peer's handle, or for a ghost this node's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Divergent {
    difference: Difference,
    listed: Listed,
}

/// The comparison with one peer.
#[cfg_attr(test, derive(Clone))]
pub(super) struct AntiEntropy {
    phase: Phase,
    /// When the phase is looked at again; `None` while there is no peer to compare with.
    at: Option<Instant>,
    tries: u32,
    scan: Scan,
    /// The number of buckets compared in; 0 while the peer has not said.
    buckets: u16,
    /// The peer's connections, as it last said.
    peer_connections: u32,
    /// Buckets that were not compared yet.
    pending: Buckets,
    /// Buckets that differ.
    differing: Buckets,
    /// Those of them that are being listed.
    wanted: Buckets,
    question: u16,
    next_part: u16,
    /// Deletions were in flight when connections were listed: what is not listed may be ending.
    are_ends_unsettled: bool,
    listed: Vec<Listed>,
    gathered: Vec<Listed>,
    touched: BTreeSet<u32>,
    divergent: Vec<Divergent>,
    /// Divergences counted since the last time that there was none.
    found_at_once: u32,
    repaired_at_once: u32,
    /// Since the comparison began, a listing has shown something.
    is_productive: bool,
    /// So many connections at least are missing: what the peer has more than this node has of it.
    missing_min: u32,
    round_asked_at: Option<Instant>,
    questions: VecDeque<Ask>,
    status: AntiEntropyStatus,
    reports: VecDeque<ComparisonOutcome>,
    wants_round: bool,
}

/// A result of the comparison, for an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ComparisonOutcome {
    /// So many connections were found to differ.
    Diverged(u32),
    /// None differs any more, and so many were put right.
    Agreed(u32),
}

impl AntiEntropy {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Resting,
            at: None,
            tries: 0,
            scan: Scan::default(),
            buckets: 0,
            peer_connections: 0,
            pending: Buckets::EMPTY,
            differing: Buckets::EMPTY,
            wanted: Buckets::EMPTY,
            question: 0,
            next_part: 0,
            are_ends_unsettled: false,
            listed: Vec::new(),
            gathered: Vec::new(),
            touched: BTreeSet::new(),
            divergent: Vec::new(),
            found_at_once: 0,
            repaired_at_once: 0,
            is_productive: false,
            missing_min: 0,
            round_asked_at: None,
            questions: VecDeque::new(),
            status: AntiEntropyStatus::default(),
            reports: VecDeque::new(),
            wants_round: false,
        }
    }

    /// Both nodes have completed their full synchronisation.
    pub(super) fn start(&mut self, now: Instant) {
        self.rest(now + FIRST_AFTER);
        self.scan.start(now);
    }

    /// The peer is away, or its full synchronisation is running: there is nothing to compare.
    pub(super) fn stop(&mut self) {
        self.phase = Phase::Resting;
        self.at = None;
        self.scan.stop();
        self.questions.clear();
        self.forget_listing();
        self.touched.clear();
    }

    /// There is a peer to compare with.
    pub(super) const fn is_started(&self) -> bool {
        self.at.is_some()
    }

    fn rest(&mut self, until: Instant) {
        self.phase = Phase::Resting;
        self.at = Some(until);
        self.forget_listing();
        self.touched.clear();
    }

    fn forget_listing(&mut self) {
        self.listed = Vec::new();
        self.gathered = Vec::new();
    }

    /// When there is something to do next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.at, self.scan.at()].into_iter().flatten().min()
    }

    /// The next question, which goes out with the next datagram.
    pub(super) fn next_question(&self) -> Option<&Ask> {
        self.questions.front()
    }

    /// It has gone out.
    pub(super) fn asked(&mut self) {
        self.questions.pop_front();
    }

    /// The next result.
    pub(super) fn poll_report(&mut self) -> Option<ComparisonOutcome> {
        self.reports.pop_front()
    }

    /// Whether the peer is to be asked for a full synchronisation. Returns true once.
    pub(super) const fn takes_round(&mut self) -> bool {
        core::mem::replace(&mut self.wants_round, false)
    }

    pub(super) fn status(&self) -> AntiEntropyStatus {
        AntiEntropyStatus { divergent: self.missing_min.max(self.divergent.len() as u32), ..self.status }
    }

    /// A slot holds something else than it did, as far as the peer's connections go.
    pub(super) fn changed(&mut self, before: Item, after: Item) {
        if matches!(self.phase, Phase::Listing | Phase::Gathering(_)) {
            self.touch(before);
            self.touch(after);
        }
        if !self.divergent.is_empty() {
            self.note_repaired(before, after);
        }
    }

    fn touch(&mut self, item: Item) {
        let is_listed = !item.is_none() && self.wanted.contains(item.bucket(self.buckets));
        if is_listed && self.touched.len() < TOUCHED_MAX {
            self.touched.insert(item.name());
        }
    }
}

/// The handle of a slot of this node's.
const fn own(handle: u32, item: Item) -> Listed {
    Listed { handle: Handle(handle), is_unsettled: false, item }
}
