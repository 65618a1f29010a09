//! Of two nodes that both hold the addresses, the one keeps them that has served: a node that was away and comes back (it
//! started anew, or stood still) takes nothing from one that took over meanwhile.

use std::time::Duration;

use flow::Instant;

use super::{Conditions, View};
use crate::report::{Outcome, Problem};
use crate::topology::NODES;

/// A pause that nobody need notice.
const SHORT_PAUSE: Duration = Duration::from_millis(50);

/// A node that was heard for so long is known to live, over the worst link.
const HEARD_FOR: Duration = Duration::from_millis(500);

/// Who claims the addresses, and since when.
#[derive(Default)]
pub(super) struct Claims {
    /// Since when a node has held the addresses, and whether it knew the connections when it took them.
    held: [Option<(Instant, bool)>; NODES],
    /// When a node started, or went on after having stood still.
    returned_at: [Instant; NODES],
    paused_at: [Instant; NODES],
    /// Since when a node has run and been heard, if it is.
    heard_since: [Option<Instant>; NODES],
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
            let is_heard = conditions.heard[node] && conditions.works[node] && conditions.prompt;
            self.heard_since[node] = is_heard.then(|| self.heard_since[node].unwrap_or(now));
        }
    }

    /// Notes which of two nodes reaches less of what both track.
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

    pub(super) fn went_on(&mut self, now: Instant, node: usize) {
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
            self.judge_haste(now, node, view, outcome);
            return;
        }
        let former = self.held[node].take();
        let left = view.nodes[node].as_ref().is_some_and(|value| value.status(now).role == cluster::role::State::Left);
        let (Some((since, knew)), Some((theirs_since, they_knew))) = (former, self.held[1 - node]) else { return };
        let returned_at = self.returned_at[1 - node];
        // It stood still, this node took over knowing all that it did, and it never gave the addresses up;
        let away = self.paused_at[1 - node]..=returned_at;
        let came_back = theirs_since < since && away.contains(&since) && knew;
        // or it started anew, and took them knowing nothing.
        let knew_nothing = returned_at > since && theirs_since > returned_at && !they_knew;
        if (came_back || knew_nothing) && !left {
            let text = format!(
                "node {node} has held the addresses since {since:?} and gives them up to node {}, which came back at {returned_at:?}",
                1 - node
            );
            outcome.problem(now, Problem::Usurped, text);
        }
    }

    /// Whoever takes the addresses from a node that serves and is heard has not listened.
    fn judge_haste(&self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        let other = 1 - node;
        let (Some((since, _)), Some(partner)) = (self.held[other], view.nodes[other]) else { return };
        let is_heard = self.heard_since[other].is_some_and(|heard| heard.max(since) + HEARD_FOR <= now);
        let leaves = partner.role() != cluster::role::State::Active;
        let reached_less = self.reached_less_at[other].is_some_and(|at| now <= at + HEARD_FOR);
        if is_heard && !leaves && !reached_less {
            let text = format!(
                "node {node} takes the addresses from node {other}, which has held them since {since:?} and is heard"
            );
            outcome.problem(now, Problem::Hasty, text);
        }
    }
}
