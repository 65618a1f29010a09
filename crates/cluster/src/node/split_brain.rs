//! Split brain: two nodes hold the same addresses, because neither receives the other.
//!
//! While all paths are silent, no node can know whether its peer is dead or cut off: a split brain is suspected of each peer that
//! went silent without handing over. It is confirmed once the peer says that it holds what this node holds, which is when a path
//! is back; then the one with the lower take-over number yields, and the split brain is over.

use core::time::Duration;

use flow::{Instant, NodeId};

use super::peer::Peer;
use super::{Node, NodeEvent};
use crate::group::GroupSet;
use crate::role::{Heartbeats, State};

/// How long both may say that they hold the same addresses without being suspected of it: when addresses move from one node to
/// another, the one gives them up a moment after the other took them.
const SPLIT_AFTER: Duration = Duration::from_secs(1);

/// Whether a peer may hold the same addresses as this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SplitBrain {
    /// No: this node holds none, or the peer says what it holds, or it handed over before it went silent.
    #[default]
    None,
    /// This node holds addresses, and the peer is silent on all paths without having handed over: it is dead, or cut off and
    /// active too.
    Suspected,
    /// The peer says that it holds what this node holds.
    Confirmed,
}

/// What a node knows of a peer in this respect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SplitWatch {
    /// The last that it said is that it takes no part any more.
    has_left: bool,
    /// It was silent, and a split brain suspected, until it was up again; it has not said since what it holds.
    was_suspected: bool,
    /// Since when both say that they hold the same.
    both_since: Option<Instant>,
    is_confirmed: bool,
}

impl Node {
    /// The groups for which this node is active.
    pub(super) fn active_groups(&self) -> GroupSet {
        self.roles.active()
    }

    /// A split brain with a peer, as far as this node can know.
    pub(super) fn split_brain_with(&self, peer: &Peer) -> SplitBrain {
        if peer.split.is_confirmed {
            return SplitBrain::Confirmed;
        }
        let is_suspect = !peer.is_up() && !peer.split.has_left && !self.active_groups().is_empty();
        if is_suspect { SplitBrain::Suspected } else { SplitBrain::None }
    }

    /// To be called before the peer counts as up.
    pub(super) fn remember_suspicion(&mut self, index: usize) {
        self.replication.peers[index].split.was_suspected =
            self.split_brain_with(&self.replication.peers[index]) == SplitBrain::Suspected;
    }

    /// A peer has said how it stands; before that, this node was active for these groups.
    pub(super) fn note_peer_roles(
        &mut self,
        now: Instant,
        from: NodeId,
        active_before: GroupSet,
        heartbeats: &Heartbeats,
    ) {
        let holds = |group| self.roles.peer(now, from, group).is_some_and(|said| said.state == State::Active);
        let theirs: GroupSet = self.roles.groups().filter(|group| holds(*group)).collect();
        let are_both = !theirs.and(active_before).is_empty();
        let Ok(index) = self.replication.peers.place(from) else { return };
        let was_silent = !self.replication.peers[index].is_up()
            && !self.replication.peers[index].split.has_left
            && !active_before.is_empty();
        let split = &mut self.replication.peers[index].split;
        let has_left = |state| matches!(state, State::Leaving | State::Left);
        split.has_left =
            has_left(heartbeats.first.state) && heartbeats.groups.iter().all(|group| has_left(group.state));
        let is_suspect = core::mem::take(&mut split.was_suspected) || was_silent;
        split.both_since = are_both.then(|| split.both_since.unwrap_or(now));
        let is_late = split.both_since.is_some_and(|since| since + SPLIT_AFTER <= now);
        if are_both && (is_suspect || is_late) && !split.is_confirmed {
            split.is_confirmed = true;
            self.events.push(now, NodeEvent::SplitBrain(from));
        }
        if !are_both {
            self.end_split_brain(now, index);
        }
    }

    /// A split brain is over when this node has yielded.
    pub(super) fn note_split_brain(&mut self, now: Instant) {
        if self.active_groups().is_empty() {
            (0..self.replication.peers.len()).for_each(|index| self.end_split_brain(now, index));
        }
    }

    fn end_split_brain(&mut self, now: Instant, index: usize) {
        let peer = &mut self.replication.peers[index];
        peer.split.both_since = None;
        if core::mem::take(&mut peer.split.is_confirmed) {
            self.events.push(now, NodeEvent::SplitBrainEnded(peer.id));
        }
    }
}
