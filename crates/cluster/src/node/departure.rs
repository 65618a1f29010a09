//! A node that hands its addresses over in good order: because it ends, or because an operator drains it.
//!
//! It first replicates all that its peers would need and waits until they have acknowledged it: connections that are deferred,
//! what changed of its filter, and messages that are in flight or were lost. Until then it goes on as before. Every worker
//! waits for its own connections, and the lead worker for all workers.
//!
//! A drained node holds no addresses and is not chosen to, but keeps replicas of its peers' connections: it can be upgraded, or
//! come back, without a connection noticing.

use core::time::Duration;

use flow::Instant;
use flow::table::Slot;

use super::readiness::obstacles_of_peer;
use super::replication_set::ReplicationSet;
use super::status::{GroupStatus, NodeStatus};
use crate::pipeline::Pipeline;
use crate::role::{Roles, State};

/// How long a node that is being drained waits for another to take its addresses, before it goes on as before. Shorter
/// than the time after which a leaving node gives them up even if no peer takes them.
pub const DRAIN_HANDOVER_MAX: Duration = Duration::from_secs(3);
/// How long a node that is about to leave waits for acknowledgements. A node under load always has messages in flight: what
/// was lost of earlier ones has been sent again, and acknowledged, in this time. Shorter than it waits for others to take its
/// addresses.
pub const REPLICATED_WITHIN: Duration = Duration::from_secs(1);
/// When acknowledgements are waited for, they are checked this often.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

const _: () = assert!(REPLICATED_WITHIN.as_millis() < DRAIN_HANDOVER_MAX.as_millis());

/// Why a node is not drained: connections would be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DrainRefused {
    /// This node is the only one.
    #[error("there is no peer that could take over")]
    NoPeer,
    /// No other node has all connections and may be chosen.
    #[error("no peer could take over without losing connections")]
    NobodyReady,
    /// This node is standby for no group: it may be the next that is needed.
    #[error("no peer holds the addresses, so that this node may have to")]
    NobodyHolds,
}

/// How far the departure is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    /// The node stays.
    #[default]
    None,
    /// It waits for acknowledgements, at most until then.
    Replicating(Instant),
    /// It waits for nothing any more.
    Ready,
}

/// Whether, and how, a node departs.
#[derive(Debug, Default)]
pub(super) struct Departure {
    phase: Phase,
    /// When a node that is being drained goes on if no peer has taken its addresses.
    given_up_at: Option<Instant>,
    /// Other nodes own the connections in the slots before this one; `None`: all that will be claimed.
    unclaimed: Option<Slot>,
}

impl Departure {
    /// Replicates what is not yet, and waits for acknowledgements until `until`.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        until: Instant,
        replication: &mut ReplicationSet,
        pipeline: &Pipeline,
    ) {
        replication.replicate_all(now, pipeline);
        self.phase = Phase::Replicating(until);
        self.unclaimed = Some(Slot(0));
    }

    /// The drain is given up at `at` unless a peer has taken the addresses; `None`: the node leaves even if none does.
    pub(super) const fn give_up_at(&mut self, at: Option<Instant>) {
        self.given_up_at = at;
    }

    /// The node stays.
    pub(super) fn end(&mut self, replication: &mut ReplicationSet) {
        self.phase = Phase::None;
        replication.resume_deferral();
    }

    /// The lead of this worker's node is about to leave, or is not.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        is_leaving: bool,
        replication: &mut ReplicationSet,
        pipeline: &Pipeline,
    ) {
        match (is_leaving, self.is_in_progress()) {
            (true, false) => self.begin(now, now + REPLICATED_WITHIN, replication, pipeline),
            (false, true) => self.end(replication),
            _ => {}
        }
    }

    /// The node is about to leave, or has left: nothing is deferred.
    pub(super) const fn is_in_progress(&self) -> bool {
        !matches!(self.phase, Phase::None)
    }

    /// The node still holds its addresses, because its peers have not acknowledged everything.
    pub(super) const fn is_replicating(&self) -> bool {
        matches!(self.phase, Phase::Replicating(_))
    }

    /// Whether the addresses are to be given up now: the peers have everything, or it took too long.
    pub(super) fn becomes_ready(&mut self, now: Instant, has_replicated_all: impl FnOnce() -> bool) -> bool {
        let Phase::Replicating(until) = self.phase else { return false };
        let is_ready = until <= now || has_replicated_all();
        if is_ready {
            self.phase = Phase::Ready;
        }
        is_ready
    }

    /// Looks whether other nodes have claimed this worker's connections.
    pub(super) fn note_claims(&mut self, replication: &ReplicationSet, pipeline: &Pipeline) {
        if self.phase == Phase::Ready {
            self.unclaimed = self.unclaimed.and_then(|from| replication.next_unclaimed(pipeline, from));
        }
    }

    /// Whether the node has given everything up: other nodes own the connections that this worker had, where they claim them.
    pub(super) fn has_handed_over(&self) -> bool {
        self.phase == Phase::Ready && self.unclaimed.is_none()
    }

    /// Whether a drain is to be given up now, because no peer has taken the addresses.
    pub(super) fn is_given_up(&mut self, now: Instant, roles: &Roles) -> bool {
        if roles.states().all(|state| state != State::Leaving) && !self.is_replicating() {
            self.given_up_at = None;
        }
        self.given_up_at.is_some_and(|at| at <= now)
    }

    /// When acknowledgements are to be looked for, or a drain is given up, of a node that was last served at `served_at`.
    pub(super) fn poll_timeout(&self, served_at: Instant) -> Option<Instant> {
        let looks_at = match self.phase {
            Phase::Replicating(until) => Some(until.min(served_at + CHECK_INTERVAL)),
            Phase::None | Phase::Ready => None,
        };
        looks_at.into_iter().chain(self.given_up_at).min()
    }

    /// A role as operators see it: a node that waits for acknowledgements before it gives an address up is leaving.
    pub(super) const fn role_shown(&self, role: State) -> State {
        match role {
            State::Active if self.is_replicating() => State::Leaving,
            _ => role,
        }
    }
}

/// Whether the other nodes can do without this one.
///
/// # Errors
/// Why connections would be lost.
pub(super) fn check_drain(status: &NodeStatus) -> Result<(), DrainRefused> {
    status.groups.iter().try_for_each(|group| check_group(group, status))
}

fn check_group(group: &GroupStatus, status: &NodeStatus) -> Result<(), DrainRefused> {
    let peers = &status.peers;
    match group.role {
        State::Left | State::Leaving => Ok(()),
        _ if peers.is_empty() => Err(DrainRefused::NoPeer),
        State::Active | State::TakingOver => {
            let is_any_ready = peers.iter().any(|peer| obstacles_of_peer(peer, group, status).is_empty());
            if is_any_ready { Ok(()) } else { Err(DrainRefused::NobodyReady) }
        }
        State::Init | State::Standby => {
            let is_held = peers.iter().any(|peer| peer.holds(group.group));
            if is_held { Ok(()) } else { Err(DrainRefused::NobodyHolds) }
        }
    }
}
