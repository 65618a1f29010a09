//! Runs whose nodes tell each other of connections by a filter.

use std::time::Duration;

use replication::compact::Representation;

use super::Scenario;

/// There is no such representation: whoever asked for it made a mistake.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no representation `{0}`; give one of {names}", names = NAMES.join(", "))]
pub struct UnknownRepresentation(String);

/// The representations that a run can be played with, beside the precise one.
pub const NAMES: [&str; 6] = {
    let mut names = [""; 6];
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
    /// The same, with nodes that tell each other of connections so. First replies do not wait where nobody confirms single
    /// connections.
    #[must_use]
    pub fn told_by(self, representation: Option<Representation>) -> Self {
        let hold_first_reply = if representation.is_some() { Duration::ZERO } else { self.hold_first_reply };
        Self { representation, hold_first_reply, ..self }
    }
}
