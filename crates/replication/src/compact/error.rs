//! What can be wrong with a datagram.

use filters::ExchangeError;
use flow::NodeId;

/// A datagram that cannot be used. Nothing of it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompactError {
    /// Not of a compact stream.
    #[error("the datagram is not one of a compact stream")]
    NotOurs,
    /// Of another version.
    #[error("the peer sends its filter in version {0}, this node knows version 1: update the older one")]
    Version(u8),
    /// From a node that no filter is sent to.
    #[error("an answer of node {}, which receives nothing: its configuration names this node as a peer, ours does not", .0.0)]
    UnknownPeer(NodeId),
    /// Of a kind that is not known, or for the other side.
    #[error("a datagram of kind {0}, which is not known here")]
    Kind(u8),
    /// Of more streams than a node re-advertises.
    #[error("a datagram of stream {0}, which no node of this release sends: update this node")]
    Stream(u8),
    /// The bytes cannot be read.
    #[error("the datagram cannot be read: {0}")]
    Malformed(&'static str),
    /// A representation that is not known.
    #[error("the peer's representation has number {0}, which is not known: update this node")]
    Representation(u8),
    /// A filter too large to be taken.
    #[error(
        "the peer's filter has {words} words, this node takes {words_max}: raise the limit, or lower the peer's items"
    )]
    TooLarge {
        /// Words of the peer's filter.
        words: usize,
        /// [`super::ReceiverLimits::words_max`].
        words_max: usize,
    },
    /// Numbers that cannot be.
    #[error(
        "a datagram with number {number}, where numbers below {next} are expected: the peer does not do as it should"
    )]
    Number {
        /// The number.
        number: u32,
        /// Which numbers are possible.
        next: u32,
    },
    /// What was sent cannot be taken over.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}
