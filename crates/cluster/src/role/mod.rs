//! Which of the nodes holds the shared addresses.
//!
//! Every node runs a [`RoleAutomaton`]. Its inputs are which peers are alive (from the failure detector) and their states (from
//! [`Heartbeat`]s); its outputs are [`Event`]s for its owner. The rules:
//!
//! 1. A node that starts listens first, for `startup_hold` or until it has received heartbeats and all connections of each of
//!    its peers: a peer that has the connections takes the addresses before one that starts without them.
//! 2. While a reachable node holds the addresses, no other node takes them, with two exceptions: with `preempt`, a higher
//!    priority does; and a synchronised node does that has reached more of its tracked ports and next hops than the active node
//!    for `reach_hold`. Equal reach moves nothing, so addresses do not move back by themselves.
//! 3. When no node holds them, the best node takes them at once: synchronised before not synchronised, then the one that
//!    reaches more, then the higher priority, then the lower [`NodeId`](flow::NodeId). If the best does not within
//!    `heartbeat_timeout`, the next does. A passive node (see [`Heartbeat::passive`]) takes nothing.
//! 4. Two nodes that both hold them (a split that healed, or one that stood still and goes on): the one that took over later
//!    keeps them and announces them again; the other yields. It is the later one to which packets went last, and it is the
//!    earlier one that may have been away. A take-over by a node without knowledge counts as none until another node is standby
//!    to it: such a node has never received a heartbeat, or never received the connections. A node that restarts behind a
//!    failed link takes nothing from one that serves. Between equals the higher priority decides, then the lower
//!    [`NodeId`](flow::NodeId).
//! 5. Addresses are announced after the state that they need is usable, never before:
//!    [`Event::BecomeActive`] → [`RoleAutomaton::handle_state_usable`] → [`Event::AnnounceAddresses`].
//!
//! 6. What a node reads after a pause is as old as the pause. It takes nothing, and yields to nothing, by heartbeats that do not
//!    answer one which it has sent since: see [`RoleAutomaton::handle_absence`] and [`Roles::admits`]. A time limits this.
//!
//! Where the shared addresses are of several groups, each group has an automaton of its own ([`Roles`]), so that a node can
//! hold some groups and back others up.
//!
//! A peer is present while the failure detector reports it up, or while its heartbeats come. Two nodes that receive nothing
//! from each other both become active: no rule can distinguish a dead peer from a failed link.

mod automaton;
mod capabilities;
mod following;
mod groups;
mod heartbeat;
mod order;
mod roles;
mod state;
#[cfg(test)]
mod tests;
mod workers;

pub use automaton::{Config, EVENTS_PENDING_MAX, Event, PEERS_MAX, RoleAutomaton, UnknownPeer};
pub use capabilities::Capabilities;
pub use groups::{GroupConfig, GroupHeartbeat, Heartbeats};
pub use heartbeat::{Heartbeat, HeartbeatError, is_heartbeat};
pub use order::Order;
pub use roles::Roles;
pub use state::State;
pub use workers::Division;
