//! A node that gives its addresses up in good order.
//!
//! It first replicates all that its peers would need and waits until they have acknowledged it: connections that are deferred,
//! what changed of its filter, and messages that are on their way or were lost. Until then it goes on as before. Every worker
//! waits for its own connections, and the lead for all workers.

use core::time::Duration;

use flow::Instant;
use replication::{Link, Session, SessionStatus};

use super::peer::{self, Peer};
use super::{DRAIN_HANDOVER_MAX, Node};
use crate::role::State;

/// How long a node that is about to leave waits for acknowledgements. A node under load always has messages on their way: what
/// was lost of earlier ones has been sent again, and acknowledged, in this time. Shorter than it waits for others to take its
/// addresses.
pub const REPLICATED_WITHIN: Duration = Duration::from_secs(1);
/// When acknowledgements are waited for, it looks for them this often.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

const _: () = assert!(REPLICATED_WITHIN.as_millis() < DRAIN_HANDOVER_MAX.as_millis());

/// Whether a node is leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Leaving {
    /// It stays.
    #[default]
    No,
    /// It waits for acknowledgements, at most until then.
    Replicating(Instant),
    /// It waits for nothing any more.
    Ready,
}

impl Node {
    /// Gives the addresses up in good order, so that the peer takes them before this node ends.
    pub fn leave(&mut self, now: Instant) {
        self.drain_given_up_at = None;
        self.begin_leaving(now);
    }

    /// Replicates what is not yet, and leaves then.
    pub(super) fn begin_leaving(&mut self, now: Instant) {
        let limit = if self.holds_addresses() { now + REPLICATED_WITHIN } else { now };
        self.replicate_all(now);
        self.leaving = Leaving::Replicating(limit);
        self.leave_when_replicated(now);
    }

    /// This node stays.
    pub(super) fn stay(&mut self) {
        self.leaving = Leaving::No;
        self.replication.defer_again();
    }

    /// It is about to leave, or has left: nothing is deferred.
    pub(super) const fn is_leaving(&self) -> bool {
        !matches!(self.leaving, Leaving::No)
    }

    /// It still holds its addresses, because its peers have not acknowledged everything.
    pub(super) const fn is_replicating_before_leaving(&self) -> bool {
        matches!(self.leaving, Leaving::Replicating(_))
    }

    /// Leaves once its peers have everything, or it took too long.
    pub(super) fn leave_when_replicated(&mut self, now: Instant) {
        let Leaving::Replicating(until) = self.leaving else { return };
        if until <= now || (self.has_replicated_all() && self.others.have_replicated_all()) {
            self.leaving = Leaving::Ready;
            if self.place().leads() {
                self.give_addresses_up(now);
            }
        }
    }

    /// When [`Node::leave_when_replicated`] has something to do.
    pub(super) fn poll_leaving(&self) -> Option<Instant> {
        let Leaving::Replicating(until) = self.leaving else { return None };
        Some(until.min(self.served_at + LOOK_AGAIN))
    }

    /// The lead of this worker's node is about to leave, or is not.
    pub(super) fn follow_leaving(&mut self, now: Instant, is_leaving: bool) {
        match (is_leaving, self.is_leaving()) {
            (true, false) => {
                self.replicate_all(now);
                self.leaving = Leaving::Replicating(now + REPLICATED_WITHIN);
            }
            (false, true) => self.stay(),
            _ => {}
        }
    }

    /// Whether a peer that listens has not acknowledged yet all that this node has to send it: who ends before that takes
    /// connections with him that nobody else knows.
    #[must_use]
    pub fn has_last_words(&self) -> bool {
        let statuses = self.replication.peers.iter().filter_map(|peer| peer.session.as_ref()).map(Session::status);
        let has_words =
            statuses.into_iter().any(|status| status.link == Link::Open && (status.queued > 0 || status.in_flight > 0));
        has_words || self.replication.has_compact_words()
    }

    /// Whether the peers that are there have acknowledged all that they need of this worker's connections.
    pub(super) fn has_replicated_all(&self) -> bool {
        self.has_replicated_to(Peer::is_up)
    }

    /// A group's role as operators see it: a node that only waits for acknowledgements before it gives an address up is leaving.
    pub(super) const fn role_shown(&self, role: State) -> State {
        match role {
            State::Active if self.is_replicating_before_leaving() => State::Leaving,
            _ => role,
        }
    }

    /// The automata of the roles learn whether a holder of the addresses that outranks this node has its connections: one that
    /// was heard again just now may still be said to be down.
    pub(super) fn note_replicated(&mut self, now: Instant) {
        if self.holds_addresses() {
            let has_replicated = self.has_replicated_to(|_| true) && self.others.have_replicated_all();
            self.roles.set_replicated(now, has_replicated);
        }
    }

    fn has_replicated_to(&self, is_meant: impl Fn(&Peer) -> bool) -> bool {
        let statuses =
            self.replication.peers.iter().filter(|peer| is_meant(peer)).filter_map(|peer| peer.session.as_ref());
        let has_all = |status: SessionStatus| {
            status.link == Link::Open && status.told && status.queued == 0 && status.in_flight == 0
        };
        self.replication.deferred() == 0
            && statuses.map(Session::status).all(has_all)
            && !self.replication.has_compact_words()
    }

    fn replicate_all(&mut self, now: Instant) {
        self.replication.replicate_deferred(now, &self.pipeline);
        if let Some(compact) = &mut self.replication.compact {
            compact.sender.flush(now);
        }
        peer::sessions(&mut self.replication.peers).for_each(Session::ask_for_acknowledgement);
    }

    fn give_addresses_up(&mut self, now: Instant) {
        self.roles.leave(now);
        self.handle_role_events(now);
        self.look_for_other_forwarders(now);
    }
}
