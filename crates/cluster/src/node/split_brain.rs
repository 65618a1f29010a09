//! Split brain: two nodes hold the same addresses, because neither receives the other.
//!
//! While all paths are silent, no node can know whether its peer is dead or partitioned: a split brain is suspected of each
//! peer that went silent without handing over. It is confirmed once a heartbeat shows that the peer holds what this node holds,
//! which is when a path is back; then the one with the lower take-over number yields, and the split brain is over.

use core::time::Duration;

use flow::{Instant, NodeId};

use super::event::{Events, NodeEvent};
use crate::group::{GroupId, GroupSet};
use crate::role::{Heartbeats, Roles, State};

/// How long the heartbeats of both may have the same addresses held without being suspected of it: when addresses move from one
/// node to another, the one gives them up a moment after the other took them.
const SPLIT_AFTER: Duration = Duration::from_secs(1);

/// Whether a peer may hold the same addresses as this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SplitBrain {
    /// No: this node holds none, or the peer's heartbeat shows its addresses, or it handed over before it went silent.
    #[default]
    None,
    /// This node holds addresses, and the peer is silent on all paths without having handed over: it is dead, or cut off and
    /// active too.
    Suspected,
    /// The peer holds what this node holds, by its heartbeat.
    Confirmed,
}

/// What a node knows of a peer in this respect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SplitWatch {
    /// The last that it said is that it takes no part any more.
    has_left: bool,
    /// It was silent, and a split brain suspected, until it was up again; it has not said since what it holds.
    was_suspected: bool,
    /// Since when both hold the same, by their heartbeats.
    both_since: Option<Instant>,
    is_confirmed: bool,
}

impl SplitWatch {
    /// Whether there is a split brain with the peer, as far as this node can know. `is_active`: for any group.
    pub(super) const fn status(&self, is_up: bool, is_active: bool) -> SplitBrain {
        if self.is_confirmed {
            SplitBrain::Confirmed
        } else if !is_up && !self.has_left && is_active {
            SplitBrain::Suspected
        } else {
            SplitBrain::None
        }
    }

    /// To be called before the peer, which is down, counts as up.
    pub(super) fn remember_suspicion(&mut self, is_active: bool) {
        self.was_suspected = self.status(false, is_active) == SplitBrain::Suspected;
    }

    /// The roles have read the heartbeats of the peer, which is up or down; before that, this node was active for the groups `active_before`.
    pub(super) fn handle_heartbeats(
        &mut self,
        now: Instant,
        is_up: bool,
        active_before: GroupSet,
        roles: &Roles,
        heartbeats: &Heartbeats,
        events: &mut Events,
    ) {
        let id = heartbeats.first.node;
        let is_active = |group: &GroupId| roles.peer(now, id, *group).is_some_and(|said| said.state == State::Active);
        let theirs: GroupSet = roles.groups().filter(is_active).collect();
        let are_both = !theirs.and(active_before).is_empty();
        let was_silent = !is_up && !self.has_left && !active_before.is_empty();
        let has_left = |state| matches!(state, State::Leaving | State::Left);
        self.has_left = has_left(heartbeats.first.state) && heartbeats.groups.iter().all(|group| has_left(group.state));
        let is_suspect = core::mem::take(&mut self.was_suspected) || was_silent;
        self.both_since = are_both.then(|| self.both_since.unwrap_or(now));
        let is_late = self.both_since.is_some_and(|since| since + SPLIT_AFTER <= now);
        if are_both && (is_suspect || is_late) && !self.is_confirmed {
            self.is_confirmed = true;
            events.push(now, NodeEvent::SplitBrain(id));
        }
        if !are_both {
            self.end(now, id, events);
        }
    }

    /// One of the two nodes has yielded.
    pub(super) fn end(&mut self, now: Instant, peer: NodeId, events: &mut Events) {
        self.both_since = None;
        if core::mem::take(&mut self.is_confirmed) {
            events.push(now, NodeEvent::SplitBrainEnded(peer));
        }
    }
}
