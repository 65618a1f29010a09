//! What the session needs of the node whose connections it replicates.

use flow::netfilter::{Entry, Expectation, Tuple};
use flow::{Instant, NodeId};

use crate::session::{ApplyError, Handle};

/// Where the kernel's connections are: implemented by the node.
///
/// Handles name the node's own connections, below [`super::FtfwConfig::connections_max`], and its own expectations, below
/// [`super::FtfwConfig::expectations_max`]: two number spaces. What comes from the peer comes in the order in which it was sent
/// (some may be left out, none comes late), and replaces whatever the same peer said of the same connection before.
pub trait Table {
    /// A connection's current state, to be sent; `None` if the handle is free.
    fn connection(&mut self, now: Instant, handle: Handle) -> Option<Entry>;

    /// The connection of this node with the original tuple, in the zone. The end of an earlier connection with its tuple is not
    /// sent while it is there.
    fn find(&self, original: &Tuple, zone: u16) -> Option<Handle>;

    /// Takes a connection's state over, creating it if it is not there. What `entry` leaves out the peer did not send.
    ///
    /// # Errors
    /// The session counts it and goes on.
    fn apply(&mut self, now: Instant, from: NodeId, entry: &Entry) -> Result<(), ApplyError>;

    /// The connection ended at the peer: removes it if it is there and the peer is its master.
    ///
    /// # Errors
    /// The session counts it and goes on.
    fn remove(&mut self, now: Instant, from: NodeId, entry: &Entry) -> Result<(), ApplyError>;

    /// The first connection at or after `from` that this node must send to the peer (being its owner).
    fn next_for_resync(&self, from: Handle) -> Option<Handle>;

    /// An expectation's current state, to be sent; `None` if the handle is free.
    fn expectation(&mut self, now: Instant, handle: Handle) -> Option<Expectation>;

    /// Takes an expectation over.
    ///
    /// # Errors
    /// The session counts it and goes on.
    fn apply_expectation(&mut self, now: Instant, from: NodeId, expectation: &Expectation) -> Result<(), ApplyError>;

    /// The expectation ended at the peer.
    ///
    /// # Errors
    /// The session counts it and goes on.
    fn remove_expectation(&mut self, now: Instant, from: NodeId, expectation: &Expectation) -> Result<(), ApplyError>;

    /// The first expectation at or after `from` that this node must send to the peer.
    fn next_expectation_for_resync(&self, from: Handle) -> Option<Handle>;
}
