//! What checkers are shown.

use cluster::node::Node;

use crate::host::Host;
use crate::scenario::Scenario;
use crate::topology::NODES;

/// What checkers may look at.
pub(crate) struct View<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) hosts: &'a [Host],
    pub(crate) nodes: [&'a Option<Node>; 2],
}

/// What the nodes have to work with: what is promised depends on it, and on nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conditions {
    /// What either node tells of connections reaches the other, and is understood.
    pub(crate) tell: bool,
    /// What either node says of its role, and its signs of life, reach the other.
    pub(crate) hear: bool,
    /// Nodes and their link do things at once.
    pub(crate) prompt: bool,
    /// They speak one version of the protocol.
    pub(crate) understand: bool,
    /// What the node says of its role, and its signs of life, are not lost on their way.
    pub(crate) heard: [bool; NODES],
    /// The node runs.
    pub(crate) works: [bool; NODES],
}
