//! Runs whose nodes replicate connections by a filter.

use std::time::Duration;

use flow::random::mix;
use replication::compact::Representation;

use super::{FaultSet, Scenario};

/// With all faults enabled, one in so many seeds replicates by a filter.
const ONE_IN: u64 = 3;
/// A separate draw, which does not shift the others.
const DRAW: u64 = 0xf117_e250;

/// An unknown name of a representation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no representation `{0}`; give one of {names}", names = NAMES.join(", "))]
pub struct UnknownRepresentation(String);

/// The representations available for runs, beside the precise one.
pub const NAMES: [&str; 4] = {
    let mut names = [""; 4];
    let mut index = 0;
    while index < names.len() {
        names[index] = Representation::ALL[index].name();
        index += 1;
    }
    names
};

/// The representation with this name.
///
/// # Errors
/// The name is unknown.
pub fn representation_named(name: &str) -> Result<Representation, UnknownRepresentation> {
    let found = Representation::ALL.into_iter().find(|representation| representation.name() == name);
    found.ok_or_else(|| UnknownRepresentation(name.to_owned()))
}

impl Scenario {
    /// The same scenario with this representation; `None`: as drawn. First replies are not held where single
    /// connections are not acknowledged.
    #[must_use]
    pub fn with_representation(self, representation: Option<Representation>) -> Self {
        if representation.is_none() {
            return self;
        }
        Self { representation, hold_first_reply: Duration::ZERO, ..self }
    }

    /// The same scenario with a filter, if the seed draws one: only with all faults.
    pub(super) fn draw_representation(self, faults: FaultSet) -> Self {
        let drawn = mix(self.seed ^ DRAW);
        if faults != FaultSet::ALL || !drawn.is_multiple_of(ONE_IN) {
            return self;
        }
        let which = (drawn / ONE_IN) % Representation::ALL.len() as u64;
        self.with_representation(Some(Representation::ALL[which as usize]))
    }
}
