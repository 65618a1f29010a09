//! Of two nodes that both hold the addresses, the one that served keeps them. A node that was away (it restarted, or
//! was paused) takes nothing from one that took over meanwhile.

use std::time::Duration;

use flow::Instant;

use super::{Conditions, View};
use crate::report::{Outcome, Problem};
use crate::topology::NODES;

/// A pause too short to matter.
const SHORT_PAUSE: Duration = Duration::from_millis(50);

/// The time after which a node counts as known to be alive, over the worst link.
const REACHABLE_FOR: Duration = Duration::from_millis(500);

/// The node that holds the addresses, and since when.
#[derive(Default)]
pub(super) struct Claims {
    /// Since when a node has held the addresses, and whether it was resynchronised when it took them.
    held: [Option<(Instant, bool)>; NODES],
    /// When a node started, or resumed after a pause.
    returned_at: [Instant; NODES],
    paused_at: [Instant; NODES],
    /// Since when a node has been running and reachable, if it is.
    reachable_since: [Option<Instant>; NODES],
    /// When a node last reached less than the other.
    reached_less_at: [Option<Instant>; NODES],
}

impl Claims {
    pub(super) const fn returned(&mut self, now: Instant, node: usize) {
        self.returned_at[node] = now;
        self.held[node] = None;
    }

    pub(super) const fn stopped(&mut self, node: usize) {
        self.held[node] = None;
    }

    pub(super) fn conditions(&mut self, now: Instant, conditions: Conditions) {
        for node in 0..NODES {
            let is_reachable = conditions.reachable[node] && conditions.works[node] && conditions.prompt;
            self.reachable_since[node] = is_reachable.then(|| self.reachable_since[node].unwrap_or(now));
        }
    }

    /// Records which of two nodes reaches fewer of the tracked objects.
    pub(super) fn reach(&mut self, now: Instant, unreached: [u16; NODES]) {
        for node in 0..NODES {
            if unreached[node] > unreached[1 - node] {
                self.reached_less_at[node] = Some(now);
            }
        }
    }

    pub(super) const fn paused(&mut self, now: Instant, node: usize) {
        self.paused_at[node] = now;
    }

    pub(super) fn resumed(&mut self, now: Instant, node: usize) {
        if self.paused_at[node] + SHORT_PAUSE <= now {
            self.returned_at[node] = now;
        }
    }

    pub(super) fn role_changed(
        &mut self,
        now: Instant,
        node: usize,
        holds: bool,
        was_informed: bool,
        view: &View<'_>,
        outcome: &mut Outcome,
    ) {
        if holds {
            self.held[node] = Some((now, was_informed));
            self.check_premature_take_over(now, node, view, outcome);
            return;
        }
        let former = self.held[node].take();
        let left = view.nodes[node].as_ref().is_some_and(|value| value.status(now).role == cluster::role::State::Left);
        let (Some((since, knew)), Some((theirs_since, they_knew))) = (former, self.held[1 - node]) else { return };
        let returned_at = self.returned_at[1 - node];
        // It was paused, this node took over with complete state, and it never released the addresses;
        let away = self.paused_at[1 - node]..=returned_at;
        let came_back = theirs_since < since && away.contains(&since) && knew;
        // or it restarted, and took them without state.
        let knew_nothing = returned_at > since && theirs_since > returned_at && !they_knew;
        if (came_back || knew_nothing) && !left {
            let text = format!(
                "node {node} has held the addresses since {since:?} and yields them to node {}, which came back at {returned_at:?}",
                1 - node
            );
            outcome.problem(now, Problem::Usurped, text);
        }
    }

    /// A node must not take the addresses from a node that serves and is reachable.
    fn check_premature_take_over(&self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        let other = 1 - node;
        let (Some((since, _)), Some(peer)) = (self.held[other], view.nodes[other]) else { return };
        let is_reachable =
            self.reachable_since[other].is_some_and(|reachable| reachable.max(since) + REACHABLE_FOR <= now);
        let leaves = peer.role() != cluster::role::State::Active;
        let reached_less = self.reached_less_at[other].is_some_and(|at| now <= at + REACHABLE_FOR);
        if is_reachable && !leaves && !reached_less {
            let text = format!(
                "node {node} takes the addresses from node {other}, which has held them since {since:?} and is reachable"
            );
            outcome.problem(now, Problem::PrematureTakeOver, text);
        }
    }
}
