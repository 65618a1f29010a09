//! The role of a worker that receives it from its node's lead.

use flow::Instant;

use super::{Config, RoleAutomaton, State};

impl RoleAutomaton {
    /// An automaton that decides nothing: it has the state that it receives.
    #[must_use]
    pub fn following(config: Config, now: Instant) -> Self {
        let mut automaton = Self::new(Config { peers: alloc::vec::Vec::new(), ..config }, now);
        automaton.follows = true;
        automaton
    }

    /// The lead's state, and the latest take-over that it knows of.
    pub fn follow(&mut self, now: Instant, state: State, term: u64) {
        debug_assert!(self.follows, "an automaton that decides receives no state");
        if self.state != state {
            self.since = now;
        }
        (self.state, self.term) = (state, term);
    }
}
