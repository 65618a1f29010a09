//! Runs whose nodes tell each other of connections by a filter.

use std::time::Duration;

use flow::random::mix;
use replication::compact::Representation;

use super::{FaultSet, Scenario};

/// Of so many seeds of everything that can go wrong, one has nodes that tell each other of connections by a filter.
const ONE_IN: u64 = 3;
/// So that it is drawn without changing what else is.
const DRAW: u64 = 0xf117_e250;

/// There is no such representation: whoever asked for it made a mistake.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no representation `{0}`; give one of {names}", names = NAMES.join(", "))]
pub struct UnknownRepresentation(String);

/// The representations that a run can be played with, beside the precise one.
pub const NAMES: [&str; 4] = {
    let mut names = [""; 4];
    let mut index = 0;
    while index < names.len() {
        names[index] = Representation::ALL[index].name();
        index += 1;
    }
    names
};

/// The representation of this name.
///
/// # Errors
/// There is none.
pub fn representation_named(name: &str) -> Result<Representation, UnknownRepresentation> {
    let found = Representation::ALL.into_iter().find(|representation| representation.name() == name);
    found.ok_or_else(|| UnknownRepresentation(name.to_owned()))
}

impl Scenario {
    /// The same, with nodes that tell each other of connections so; `None`: as was drawn. First replies do not wait where nobody
    /// confirms single connections.
    #[must_use]
    pub fn told_by(self, representation: Option<Representation>) -> Self {
        if representation.is_none() {
            return self;
        }
        Self { representation, hold_first_reply: Duration::ZERO, ..self }
    }

    /// The same, told by one of the filters if the seed says so: where everything may go wrong.
    pub(super) fn draw_representation(self, faults: FaultSet) -> Self {
        let drawn = mix(self.seed ^ DRAW);
        if faults != FaultSet::ALL || !drawn.is_multiple_of(ONE_IN) {
            return self;
        }
        let which = (drawn / ONE_IN) % Representation::ALL.len() as u64;
        self.told_by(Some(Representation::ALL[which as usize]))
    }
}
