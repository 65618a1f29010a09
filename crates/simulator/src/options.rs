//! How a run is made.

use replication::compact::Representation;

use crate::sabotage::Sabotage;
use crate::scenario::FaultSet;

/// The options of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Keep a line for every event, in [`crate::report::Outcome::trace`].
    pub trace: bool,
    /// Kinds of faults that a seed's run is drawn from.
    pub faults: FaultSet,
    /// The filter for replication; `None`: as drawn from the seed.
    pub representation: Option<Representation>,
    /// Require nodes to end connections whose end was seen only by an unreachable node.
    pub expects_no_zombies: bool,
    /// A deliberate defect.
    pub sabotage: Option<Sabotage>,
}
