//! The state that checkers inspect.

use cluster::node::Node;

use crate::host::Host;
use crate::scenario::Scenario;
use crate::topology::NODES;

/// The state that checkers may inspect.
pub(crate) struct View<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) hosts: &'a [Host],
    pub(crate) nodes: [&'a Option<Node>; 2],
}

/// The conditions that the nodes work under: the guarantees depend on these alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conditions {
    /// Updates of connections reach the other node in both directions, and are understood.
    pub(crate) can_replicate: bool,
    /// Roles and failure detection work in both directions.
    pub(crate) can_detect: bool,
    /// Nodes and their link work without delay.
    pub(crate) prompt: bool,
    /// Both use the same version of the protocol.
    pub(crate) same_version: bool,
    /// Whether the node's roles and failure detection reach its peer.
    pub(crate) reachable: [bool; NODES],
    /// The node runs.
    pub(crate) works: [bool; NODES],
}
