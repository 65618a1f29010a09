//! How a run is made.

use replication::compact::Representation;

use crate::sabotage::Sabotage;
use crate::scenario::FaultSet;

/// How a run is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Keep a line for everything that happens, in [`crate::report::Outcome::trace`].
    pub trace: bool,
    /// Kinds of trouble that a seed's run is drawn from.
    pub faults: FaultSet,
    /// By which filter the nodes tell each other of connections; `None`: as the seed draws it.
    pub representation: Option<Representation>,
    /// Nodes are to end connections of which a node that they could not hear saw the end.
    pub expects_no_zombies: bool,
    /// Break something on purpose.
    pub sabotage: Option<Sabotage>,
}
