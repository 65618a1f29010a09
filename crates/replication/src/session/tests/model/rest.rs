//! Whether all comes to rest when the network does: nothing more is lost, doubled or turned round, and nodes are called
//! when they asked to be.

use std::collections::BTreeMap;
use std::vec::Vec;

use super::Exploration;
use super::state::State;
use super::steps::Action;
use crate::session::Link;

/// The property's name.
pub(super) const COMES_TO_REST: &str = "comes to rest, synchronised and equal";

/// Steps after which what goes on is held to go on for ever. A step is a datagram's delivery or a node's time.
const STEPS_MAX: usize = 300;

impl Exploration {
    /// The number of steps until everything is at rest; `None` if it never is.
    pub(super) fn comes_to_rest(&self, state: &State) -> Option<u32> {
        let mut state = state.clone();
        let mut passed = Vec::new();
        let steps = loop {
            if let Some(steps) = self.steps_to_rest.lock().unwrap().get(&state.normal) {
                break *steps;
            }
            passed.push(state.normal);
            if is_at_rest(&state) {
                passed.pop();
                self.steps_to_rest.lock().unwrap().insert(state.normal, 0);
                break 0;
            }
            if passed.len() > STEPS_MAX || state.broken.is_some() {
                return None;
            }
            state = self.next_when_quiet(&state)?;
        };
        let mut known = self.steps_to_rest.lock().unwrap();
        for (distance, normal) in (steps + 1..).zip(passed.into_iter().rev()) {
            known.insert(normal, distance);
        }
        Some(steps)
    }

    /// Runs a state until it is at rest.
    pub(super) fn run_to_rest(&self, state: &mut State) -> Option<usize> {
        self.normalise(state);
        for steps in 0..STEPS_MAX {
            if is_at_rest(state) {
                return Some(steps);
            }
            *state = self.next_when_quiet(state)?;
        }
        None
    }

    /// What is on the wire comes first, the oldest before the others; then time goes on.
    pub(super) fn next_when_quiet(&self, state: &State) -> Option<State> {
        let action = if state.wire.is_empty() { Action::Time(Self::earliest(state)?.1) } else { Action::Deliver(0) };
        Some(self.step(state, action))
    }
}

/// Nothing is in flight or queued, and both know what they must: everything of each other, or that the other left.
fn is_at_rest(state: &State) -> bool {
    if !state.wire.is_empty() {
        return false;
    }
    let [first, second] = [0, 1].map(|index| state.nodes[index].session.status());
    match (first.link, second.link) {
        (Link::Closed, other) | (other, Link::Closed) => other != Link::Open,
        _ => {
            [first, second].iter().all(|status| status.is_synchronised() && status.queued == 0 && status.in_flight == 0)
                && (0..2).all(|index| knows_the_others(state, index))
        }
    }
}

fn knows_the_others(state: &State, index: usize) -> bool {
    let own = &state.nodes[1 - index].table.slots;
    let own: BTreeMap<_, _> = own.iter().flatten().map(|connection| (connection.tuple, *connection)).collect();
    own == state.nodes[index].table.copies
}
