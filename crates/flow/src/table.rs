//! The bounded table of connections.

use crate::connection::Connection;
use crate::{Direction, HashKey, Instant, Tuple};

/// Where a connection lies in the table; valid until the connection is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// Why a connection could not be entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InsertError {
    /// The table holds as many connections as it may.
    #[error("the connection table is full")]
    Full,
    /// One of the two tuples is already that of another connection.
    #[error("the tuple belongs to another connection")]
    TupleInUse,
}

/// The bounded table of connections: one record a connection, found by either of its two tuples.
pub struct Table {
    key: HashKey,
}

impl Table {
    /// A table for at most `connections_max` connections (1 to 2^31), hashed under `key`.
    #[must_use]
    pub fn new(connections_max: u32, key: HashKey) -> Self {
        let _ = connections_max;
        Self { key }
    }

    /// The hash of a tuple, the same for its inverse.
    #[must_use]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        self.key.hash(tuple)
    }

    /// Connections held.
    #[must_use]
    pub fn len(&self) -> u32 {
        0
    }

    /// Finds a connection by a tuple of its own and its hash.
    #[must_use]
    pub fn lookup(&self, hash: u64, tuple: &Tuple) -> Option<(Slot, Direction)> {
        let _ = (hash, tuple);
        None
    }

    /// Finds a batch of connections in stages, so that the cache misses of all overlap. `found[i]` answers `wanted[i]`.
    pub fn lookup_batch(&self, wanted: &[(u64, Tuple)], found: &mut [Option<(Slot, Direction)>]) {
        for ((hash, tuple), found) in wanted.iter().zip(found) {
            *found = self.lookup(*hash, tuple);
        }
    }

    /// Enters a connection under both of its tuples and arms its timer at `connection.expires_at_nanos`.
    ///
    /// # Errors
    /// [`InsertError`]; the table is then as it was.
    pub fn insert(&mut self, connection: Connection) -> Result<Slot, InsertError> {
        let _ = connection;
        Err(InsertError::Full)
    }

    /// The connection in `slot`, if there is one.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Option<&Connection> {
        let _ = slot;
        None
    }

    /// The connection in `slot`, to be changed. Its tuples must stay as they are; its expiry may be put off freely (the
    /// timer looks again), but is brought forward only by [`Table::expire_sooner`].
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Connection> {
        let _ = slot;
        None
    }

    /// Sets the expiry of a connection to a point earlier than its timer may stand at.
    pub fn expire_sooner(&mut self, slot: Slot, at: Instant) {
        let _ = (slot, at);
    }

    /// Removes a connection.
    pub fn remove(&mut self, slot: Slot) -> Option<Connection> {
        let _ = slot;
        None
    }

    /// The next connection whose time has come by `now`; call until `None` (or until the caller's budget is spent).
    /// The connection is still in the table: the caller removes it or puts its expiry off with [`Table::expire_sooner`]
    /// or a change of `expires_at_nanos` before calling again.
    pub fn poll_expired(&mut self, now: Instant) -> Option<Slot> {
        let _ = now;
        None
    }

    /// When `poll_expired` has something to do next at the earliest.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        None
    }

    /// The first connection in a slot at or after `from`, for walking the table a part at a time while it changes.
    #[must_use]
    pub fn next_occupied(&self, from: Slot) -> Option<Slot> {
        let _ = from;
        None
    }
}
