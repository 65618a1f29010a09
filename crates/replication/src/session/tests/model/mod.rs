//! All that two sessions can do to each other, in small: an exhaustive check of the handshake and of resending.
//!
//! The state space is that of two real [`Session`](crate::session::Session) values with the datagrams between them, not
//! of a description of them. From every state every action is taken that the configuration allows: any datagram in
//! flight is delivered, lost or doubled, a connection changes, ends or begins, a node's time comes (also late), a node
//! restarts with nothing, leaves, or asks for everything, the link fails for longer than the peer's timeout. States
//! that differ only in what the future does not depend on ([`normal`]) are one, which makes their number finite.
//!
//! [`Property`] lists what is checked at every step. That all comes to rest is checked from every state as well: the network
//! loses nothing more, and within a bounded number of steps both are synchronised and know the same ([`rest`]). [`sabotage`]
//! shows that the check detects faults.

mod normal;
mod rest;
mod sabotage;
mod scopes;
mod state;
mod steps;
mod trace;
mod wiring;

use std::collections::HashMap;
use std::sync::Mutex;
use std::vec::Vec;

use stateright::{Checker, HasDiscoveries, Model};

use self::sabotage::Sabotage;
use self::scopes::Scope;
use self::state::{Property, State};
use self::steps::Action;

/// A scope to be explored, and what was found on the way.
struct Exploration {
    scope: Scope,
    sabotage: Sabotage,
    /// Steps to rest from each state looked at, by its normal form.
    steps_to_rest: Mutex<HashMap<u64, u32>>,
}

impl Exploration {
    fn new(scope: Scope, sabotage: Sabotage) -> Self {
        Self { scope, sabotage, steps_to_rest: Mutex::default() }
    }
}

impl Model for Exploration {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        std::vec![self.begin()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_none() {
            self.possible(state, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(self.step(state, action))
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.broken.is_some() || state.wire.len() <= self.scope.wire_max
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        let mut properties = Property::ALL.map(|(name, holds)| stateright::Property::always(name, holds)).to_vec();
        properties.push(stateright::Property::always(rest::COMES_TO_REST, |model: &Self, state: &State| {
            state.broken.is_some() || model.comes_to_rest(state).is_some()
        }));
        properties
    }
}

/// The most transitions that are followed in a scope which is explored whole.
const TRANSITIONS_MAX: usize = 2_000_000;
/// The same in a deep scope, unless the environment sets it: what is kept of them takes some gigabytes of memory.
const DEEP_TRANSITIONS_MAX: usize = 3_000_000;
/// The same where a defect is to be found, which may make the scope endless.
const SABOTAGED_TRANSITIONS_MAX: usize = 300_000;

/// What came of an exploration.
struct ExplorationOutcome {
    states: usize,
    transitions: usize,
    depth: usize,
    steps_to_rest_max: u32,
    /// The property that does not hold, and the actions that show it.
    broken: Option<(&'static str, Vec<Action>)>,
}

fn explore(scope: Scope, sabotage: Sabotage, transitions_max: usize) -> ExplorationOutcome {
    let exploration = Exploration::new(scope, sabotage);
    let checker = exploration.checker().target_state_count(transitions_max).finish_when(HasDiscoveries::Any);
    let checker = checker.spawn_bfs().join();
    let broken =
        checker.discoveries().into_iter().min_by_key(|(name, path)| (path.clone().into_actions().len(), *name));
    let steps_to_rest = checker.model().steps_to_rest.lock().unwrap();
    ExplorationOutcome {
        states: checker.unique_state_count(),
        transitions: checker.state_count(),
        depth: checker.max_depth(),
        steps_to_rest_max: steps_to_rest.values().copied().max().unwrap_or(0),
        broken: broken.map(|(name, path)| (name, path.into_actions())),
    }
}

/// Explores a scope as far as `transitions_max`, the nearest states first, prints its size, and fails with the story of what
/// breaks a property. Whether all of it was explored.
fn holds(name: &str, scope: Scope, transitions_max: usize) -> bool {
    let outcome = explore(scope, Sabotage::None, transitions_max);
    let is_whole = outcome.transitions < transitions_max;
    std::println!(
        "{name}: {} states, {} transitions, depth {}, at rest after at most {} steps{}",
        outcome.states,
        outcome.transitions,
        outcome.depth,
        outcome.steps_to_rest_max,
        if is_whole { "" } else { " (not all of it)" },
    );
    if let Some((property, actions)) = outcome.broken {
        panic!("{name}: \"{property}\" does not hold.\n{}", Exploration::new(scope, Sabotage::None).describe(&actions));
    }
    is_whole
}

#[test]
fn all_properties_hold_in_every_scope() {
    for (name, scope) in scopes::EVERY_DAY {
        assert!(holds(name, scope, TRANSITIONS_MAX), "{name} is too large to be explored");
    }
    std::println!("held in all of them: {:?}, {:?}", Property::ALL.map(|(name, _)| name), rest::COMES_TO_REST);
}

/// `MAINSTAY_MODEL_TRANSITIONS=10000000 cargo test --release -p replication model -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes and some gigabytes"]
fn all_properties_hold_in_every_deep_scope() {
    let wanted = std::env::var("MAINSTAY_MODEL_TRANSITIONS").ok().and_then(|text| text.parse().ok());
    for (name, scope) in scopes::DEEP {
        holds(name, scope, wanted.unwrap_or(DEEP_TRANSITIONS_MAX));
    }
}

#[test]
fn every_sabotage_is_found() {
    for (sabotage, name, expected) in sabotage::FOUND_BY {
        let (_, scope) = scopes::EVERY_DAY.iter().find(|(each, _)| *each == name).expect("it is one of them");
        let outcome = explore(*scope, sabotage, SABOTAGED_TRANSITIONS_MAX);
        let Some((property, actions)) = outcome.broken else { panic!("{sabotage:?} is not found") };
        std::println!("{sabotage:?}: \"{property}\" does not hold after {} actions ({name})", actions.len());
        assert!(expected.contains(&property), "{sabotage:?}: {property}");
    }
}
