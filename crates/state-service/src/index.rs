//! The connections of each node as cuckoo filters, advertised to all nodes [TRIPOD, section IV-B].
//!
//! A node has an [`OwnIndex`] and a [`PeerIndex`] of each other node. Changes are numbered by epochs. An advertisement has the words
//! that changed since the one before it. A receiver that missed one queries the words that changed since the epoch that it knows.
//! Words are sent with their present value, so an update that arrives twice or late does no harm.
//!
//! ```text
//!  node a                                                 node b
//!    │ ── index, since 4, epoch 5 ──────────────────────► │ knows 5
//!    │ ── index, since 5, epoch 6 ────────✗               │
//!    │ ── index, since 6, epoch 7 ──────────────────────► │ gap: still knows 5
//!    │ ◄────────────────────────────── query, knows 5 ─── │ when a packet matches no index
//!    │ ── index, since 5, epoch 7, parts 1 to n ────────► │ knows 7
//! ```

mod own;
mod peer;

pub use filters::ShapeError;
use filters::{KeyHash, Secret};
use flow::{HashKey, Tuple};

pub use own::{Increment, OwnIndex};
pub use peer::{Applied, PeerIndex};

use crate::message::{Key, Side};

/// The most changed words in a part of an update, so that it fits a message: of at most six bytes each, and a seventh in
/// filters beyond two million cells.
pub const PART_WORDS_MAX: usize = 170;
/// The most parts of an update, of filters with 22 million cells. A larger index is refused.
pub const PARTS_MAX: usize = u16::MAX as usize;
/// The most connections of a node in an index.
pub const ITEMS_MAX: u64 = 4 << 20;

/// The secret under which all nodes of the cluster hash connections for their indexes.
#[derive(Clone, Copy, Debug)]
pub struct IndexSecret {
    key: HashKey,
    side: HashKey,
    secret: Secret,
}

impl IndexSecret {
    /// The secret with this key.
    #[must_use]
    pub fn new(key: [u64; 2]) -> Self {
        Self { key: HashKey(key), side: HashKey([key[0], !key[1]]), secret: Secret::new([!key[0], key[1]]) }
    }

    /// The key of the connection that packets with this tuple belong to, for nodes that do not know from which side packets come: a tuple
    /// and its inverse have different sides, and half of all tuples have each. So a translated connection, whose two tuples
    /// are independent, fills both indexes alike.
    #[must_use]
    pub fn key(&self, tuple: Tuple) -> Key {
        let begins_low = (tuple.source, tuple.source_port) <= (tuple.destination, tuple.destination_port);
        let is_odd = self.side.hash(&tuple) & 1 != 0;
        Key { side: if begins_low == is_odd { Side::Incoming } else { Side::Outgoing }, tuple }
    }

    /// The hash of a connection.
    #[must_use]
    pub fn hash(&self, key: &Key) -> KeyHash {
        self.secret.spread(self.key.hash(&key.tuple))
    }
}

#[cfg(test)]
mod tests;
