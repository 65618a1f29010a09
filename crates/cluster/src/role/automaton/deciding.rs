//! What follows from all that is known: the table's inputs, and when to look again.

use core::cmp::Reverse;

use flow::Instant;

use super::{Peer, RoleAutomaton, YIELDS_WITHIN};
use crate::role::Heartbeat;
use crate::role::state::{Input, State};

impl RoleAutomaton {
    /// Gives the table the inputs that follow from what is known now, until there is none.
    pub(super) fn decide(&mut self, now: Instant) {
        if self.follows {
            return;
        }
        self.decided_at = now;
        let held = self.heartbeats(now).any(|peer| peer.state.holds_addresses()) || self.unknown_until(now).is_some();
        self.vacant_since = if held { None } else { self.vacant_since.or(Some(now)) };
        self.outreaches_since = if self.outreaches_active(now) { self.outreaches_since.or(Some(now)) } else { None };
        self.outranked_since = if self.is_outranked_now(now) { self.outranked_since.or(Some(now)) } else { None };
        while let Some(input) = self.next_input(now) {
            self.apply(now, input);
        }
    }

    fn next_input(&self, now: Instant) -> Option<Input> {
        let elapsed = now.saturating_since(self.since);
        match self.state {
            _ if self.must_yield(now) => Some(Input::PeerHolds),
            State::Init => {
                let all_received =
                    !self.peers.is_empty() && self.peers.iter().all(|peer| self.fresh(now, peer).is_some());
                // No peer holds the addresses, yet one may have the connections: it sends them first, or takes over.
                ((all_received && self.informed) || elapsed >= self.config.startup_hold)
                    .then_some(Input::StartupHoldOver)
            }
            State::Standby => self.is_chosen(now).then_some(Input::Chosen),
            State::Leaving => (elapsed >= self.config.handover_limit).then_some(Input::HandoverLimitReached),
            State::TakingOver | State::Active | State::Left => None,
        }
    }

    /// Whether a peer stands in the way of the state that this node is in.
    fn must_yield(&self, now: Instant) -> bool {
        let own = self.own_heartbeat();
        self.heartbeats(now).any(|peer| match self.state {
            State::Init => peer.state.holds_addresses(),
            // A leaving peer waits to be relieved; another is relieved only by preemption.
            State::TakingOver => match peer.state {
                State::Active => !self.may_preempt(now, &peer),
                State::TakingOver => outranks(&peer, &own),
                _ => false,
            },
            State::Active => prevails_as_active(&peer, &own) && self.yields_until().is_none_or(|until| until <= now),
            State::Leaving => peer.state == State::Active,
            State::Standby | State::Left => false,
        })
    }

    /// Whether another active node outranks this one.
    fn is_outranked_now(&self, now: Instant) -> bool {
        let own = self.own_heartbeat();
        self.state == State::Active && self.heartbeats(now).any(|peer| prevails_as_active(&peer, &own))
    }

    /// When this node yields at the latest to the one that outranks it; `None`: at once. A node that took the addresses knowing
    /// nothing has connections that the other has not, and the neighbours' packets until the other announces itself.
    pub(super) fn yields_until(&self) -> Option<Instant> {
        let waits = self.claim == 0 && !self.has_replicated;
        self.outranked_since.filter(|_| waits).map(|since| since + YIELDS_WITHIN)
    }

    /// Whether it is for this node to take the addresses now.
    fn is_chosen(&self, now: Instant) -> bool {
        if self.passive || self.awaits_answers(now) || self.unknown_until(now).is_some() {
            return false;
        }
        let mut someone_is_leaving = false;
        for peer in self.heartbeats(now) {
            match peer.state {
                State::Active | State::TakingOver if !self.may_preempt(now, &peer) => return false,
                State::Leaving => someone_is_leaving = true,
                _ => {}
            }
        }
        if someone_is_leaving && !self.synchronised {
            return false;
        }
        let own = self.own_heartbeat();
        let stands = |peer: &Heartbeat| !peer.passive && matches!(peer.state, State::Init | State::Standby);
        let is_best = !self.heartbeats(now).any(|peer| stands(&peer) && is_better(&peer, &own));
        is_best || self.best_is_waited_for_until().is_some_and(|until| until <= now)
    }

    /// Whether what is known of a peer may be as old as this node's last pause.
    fn awaits_answers(&self, now: Instant) -> bool {
        self.answers_awaited_until.is_some_and(|until| now < until) && self.peers.iter().any(|peer| peer.is_awaited)
    }

    /// Until when a better node is left to take addresses that no node holds. As long as this node only listened, the better
    /// one may have as well; so that time does not count.
    fn best_is_waited_for_until(&self) -> Option<Instant> {
        self.vacant_since.map(|vacant| vacant.max(self.since) + self.config.heartbeat_timeout)
    }

    /// Whether this node takes the addresses from a peer that holds them: it reaches more for long enough, or it is
    /// configured to and has the higher priority.
    fn may_preempt(&self, now: Instant, active: &Heartbeat) -> bool {
        let reaches_more =
            self.unreached < active.unreached && self.outreaches_until().is_some_and(|until| until <= now);
        let ranks_higher = self.config.preempt && !self.is_filling && self.config.priority > active.priority;
        self.could_serve() && (reaches_more || (ranks_higher && self.unreached <= active.unreached))
    }

    /// Whether this node could serve and reaches more than each node that holds the addresses, or is about to.
    fn outreaches_active(&self, now: Instant) -> bool {
        let is_active = |peer: &Heartbeat| matches!(peer.state, State::Active | State::TakingOver);
        let mut active_nodes = self.heartbeats(now).filter(is_active).peekable();
        self.could_serve()
            && active_nodes.peek().is_some()
            && active_nodes.all(|active| self.unreached < active.unreached)
    }

    /// When this node has reached more than the active one for long enough.
    fn outreaches_until(&self) -> Option<Instant> {
        self.outreaches_since.map(|since| since + self.config.reach_hold)
    }

    /// The heartbeats that count now.
    fn heartbeats(&self, now: Instant) -> impl Iterator<Item = Heartbeat> + '_ {
        self.peers.iter().filter_map(move |peer| self.fresh(now, peer))
    }

    /// A peer's heartbeat, if it counts: for a time, and for longer while the failure detector vouches for the peer,
    /// whose heartbeats may be lost while it holds the addresses.
    pub(super) fn fresh(&self, now: Instant, peer: &Peer) -> Option<Heartbeat> {
        let (at, heartbeat) = peer.last_heartbeat?;
        (peer.up_since.is_some() || now < at + self.config.heartbeat_timeout).then_some(heartbeat)
    }

    /// Until when a peer that is up without a heartbeat counts as unknown, not as absent.
    pub(super) fn unknown_until(&self, now: Instant) -> Option<Instant> {
        let silent = self.peers.iter().filter(|peer| peer.last_heartbeat.is_none());
        let limits = silent.filter_map(|peer| Some(peer.up_since? + self.config.heartbeat_timeout));
        limits.filter(|limit| now < *limit).max()
    }

    /// When a standby node must look again though nothing comes.
    pub(super) fn standby_deadline(&self) -> Option<Instant> {
        let timeout = self.config.heartbeat_timeout;
        let last_heartbeat = self.peers.iter().filter(|peer| peer.up_since.is_none());
        let expiries = last_heartbeat.filter_map(|peer| Some(peer.last_heartbeat?.0 + timeout));
        let unknown = self.peers.iter().filter(|peer| peer.last_heartbeat.is_none());
        let unknown_expiries = unknown.filter_map(|peer| Some(peer.up_since? + timeout));
        let own = [self.best_is_waited_for_until(), self.outreaches_until(), self.answers_awaited_until]
            .into_iter()
            .flatten();
        expiries.chain(unknown_expiries).chain(own).filter(|at| *at > self.decided_at).min()
    }
}

/// Rule 4: who keeps the addresses when both hold them. A strict order, the same seen from either side.
fn outranks(one: &Heartbeat, other: &Heartbeat) -> bool {
    (one.term, one.priority, Reverse(one.node)) > (other.term, other.priority, Reverse(other.node))
}

/// Whether the one holds the addresses and the other must yield them.
fn prevails_as_active(one: &Heartbeat, other: &Heartbeat) -> bool {
    one.state == State::Active && outranks(one, other)
}

/// Rule 3: which node takes the addresses when none holds them.
fn is_better(one: &Heartbeat, other: &Heartbeat) -> bool {
    let rank = |said: &Heartbeat| (said.synchronised, Reverse(said.unreached), said.priority, Reverse(said.node));
    rank(one) > rank(other)
}
