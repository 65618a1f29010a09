//! How a node names its connections to a session.

/// A connection of this node: its slot in the table, below [`SessionConfig::connections_max`](crate::SessionConfig::connections_max). Another connection
/// may have it later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub u32);
