//! What a function shares with the same function of other nodes, beside the states of connections: the nodes carry the datagrams, whose content is the
//! function's.

use alloc::vec::Vec;

use flow::{Instant, NodeId};

const MAGIC: u8 = 0xa0;
const MAGIC_MASK: u8 = 0xf0;
/// The first byte of datagrams, with their version: nodes with the same one share values.
pub const VERSION: u8 = MAGIC | 1;

/// Why a datagram of a peer is not used: the peer's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SharingError {
    /// It has another version.
    #[error("the peer shares values by version {} of the messages, this node by {}: run the same release on both", .0 & !MAGIC_MASK, VERSION & !MAGIC_MASK)]
    Version(u8),
    /// It is cut off, or has a field that none has.
    #[error("the peer's message with shared values is malformed at byte {0}")]
    Malformed(usize),
}

/// Whether a datagram has shared values, or is about them.
#[must_use]
pub fn is_shared_values(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & MAGIC_MASK == MAGIC)
}

/// Values of a function that its node shares.
pub trait SharedValues {
    /// The number by which peers know these values: another one after each start. It is not 0.
    fn run(&self) -> u64;

    /// A datagram of a peer.
    ///
    /// # Errors
    /// It cannot be used.
    fn handle(&self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), SharingError>;

    /// The next datagram for a peer whose values have this number, in `out`, which is empty. False if there is none now.
    fn poll(&self, now: Instant, to: (NodeId, u64), out: &mut Vec<u8>) -> bool;
}
