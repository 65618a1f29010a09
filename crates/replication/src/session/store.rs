//! What a session needs of the node whose connections it replicates.

use alloc::vec::Vec;

use flow::wire::tlv::TlvError;
use flow::{Instant, NodeId};

use crate::handle::Handle;
use crate::item::Item;
use crate::message::Kind;

/// Why a message about a connection was not taken. Its number counts as received all the same: it would not be taken
/// the next time either.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    /// The attributes cannot be read: the peer's fault.
    #[error("a message about a connection cannot be read: {0}")]
    Malformed(#[from] TlvError),
    /// A needed attribute is not there: the peer's fault.
    #[error("a message about a connection lacks attribute {0}")]
    Missing(u16),
    /// An attribute has a value that it cannot have: the peer's fault.
    #[error("attribute {0} has a value that it cannot have")]
    Value(u16),
    /// This node has no room: raise the table's limit to the peer's.
    #[error("there is no room for the peer's connection")]
    Full,
}

/// What a slot holds, as the session with one peer sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holding {
    /// Nothing.
    Nothing,
    /// A connection that this node owns.
    Own,
    /// A replica of a connection of the peer's.
    Peers(Item),
    /// A replica of a third node's.
    Others,
}

/// Where the connections are: implemented by the node.
///
/// The peer's messages come in the order in which it sent them (some may be left out, none comes late). So whatever comes
/// replaces what the same peer sent of the same connection before, **whatever the versions are**: a tuple may be used again by
/// a new connection whose versions begin again at 1. Versions decide between *different* owners.
pub trait Store {
    /// Appends the attributes of a connection's current state; false, with nothing appended, when `handle` is free.
    fn encode(&mut self, now: Instant, handle: Handle, out: &mut Vec<u8>) -> bool;

    /// Takes a connection's state over. Creates the connection if it is not there, whatever `kind` is. A replica of the same
    /// peer that shares either tuple with it and is another connection is replaced.
    ///
    /// # Errors
    /// [`ApplyError`]; the session counts it and goes on.
    fn apply(&mut self, now: Instant, from: NodeId, kind: Kind, attributes: &[u8]) -> Result<(), ApplyError>;

    /// Removes the connection that `attributes` (as handed to [`super::Session::mark_deleted`] by the peer) name, if it
    /// is there and `from` is its owner.
    ///
    /// # Errors
    /// [`ApplyError`]; the session counts it and goes on.
    fn delete(&mut self, now: Instant, from: NodeId, attributes: &[u8]) -> Result<(), ApplyError>;

    /// The connection of *this* node that has the original tuple named in `attributes` (as handed to
    /// [`super::Session::mark_deleted`] by this node) now.
    fn find(&self, attributes: &[u8]) -> Option<Handle>;

    /// The first connection at or after `from` that this node must send to the peer (being its owner).
    fn next_for_resync(&self, from: Handle) -> Option<Handle>;

    /// The full synchronisation of the peer `from` begins: unmark its replicas.
    fn resync_started(&mut self, now: Instant, from: NodeId) {
        let _ = (now, from);
    }

    /// The full synchronisation of the peer `from` is complete: replicas of its connections that were not sent since
    /// [`Store::resync_started`] are gone there.
    fn resync_completed(&mut self, now: Instant, from: NodeId) {
        let _ = (now, from);
    }

    /// What the two nodes must agree on of the connection in the slot, under `key`. [`Item::NONE`]: this store takes no part
    /// in comparisons.
    fn item(&self, key: u64, handle: Handle) -> Item {
        let _ = (key, handle);
        Item::NONE
    }

    /// What the slot holds, seen from the session with `peer`.
    fn holding(&self, key: u64, peer: NodeId, handle: Handle) -> Holding {
        let _ = (key, peer, handle);
        Holding::Nothing
    }

    /// Every slot that holds something is below this.
    fn slots_used(&self) -> u32 {
        0
    }

    /// How many more connections there is room for.
    fn room(&self) -> u32 {
        u32::MAX
    }

    /// Appends attributes that name the replica in the slot, as those of [`Store::delete`] do; false, with nothing appended, if
    /// there is none.
    fn name_copy(&self, handle: Handle, out: &mut Vec<u8>) -> bool {
        let _ = (handle, out);
        false
    }

    /// The peer holds a replica of the connection that `attributes` name, as one of this node's, and asks whether it is still
    /// there. This node becomes its owner if it holds it as one of the peer's: else each would believe it the other's.
    fn answer_for(&mut self, now: Instant, peer: NodeId, attributes: &[u8]) -> Option<Handle> {
        let _ = (now, peer);
        self.find(attributes)
    }
}
