//! What becomes of connections of which another node was told no more than that they are there.
//!
//! A compact representation tells a connection's original tuple and its protocol's state, not what the functions keep of it.
//! Whoever takes such a connection over asks the chain for the rest ([`Chain::restore`](crate::chain::Chain::restore)): what
//! the functions would decide if it began now. That is enough for functions whose state follows from the tuple and the
//! configuration, and for no others; a function says which it is ([`NetworkFunction::restorable`]).
//!
//! Single connections may differ from the rule: a tuple that was taken when they began, a helper that reads what they say. The
//! node that has one knows that ([`Chain::is_restorable`](crate::chain::Chain::is_restorable)), and tells it precisely.
//!
//! [`NetworkFunction::restorable`]: crate::function::NetworkFunction::restorable

use flow::connection::FUNCTION_STATE_BYTES_MAX;
use flow::{PortId, Tuple};

/// Original tuples that a reply may belong to, at most; what has more is not asked for. (One outside port stands for at most 512
/// inside ones, and each of those may have been sent to the server itself or to an address that is forwarded to it.)
pub const ORIGINALS_MAX: usize = 2048;

/// Tuples that are tried to find these, at most: it is done for a packet, which may be a stranger's.
pub const CANDIDATES_MAX: usize = 2 * ORIGINALS_MAX;

/// Why a function's state of a connection cannot be had from the connection's tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unrestorable {
    /// What in it cannot, as the end of a sentence that begins with the function's name.
    pub reason: &'static str,
    /// What an operator can do about it.
    pub cure: &'static str,
}

/// A chain with a function whose state cannot be had from tuples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{function}` {}: {}", why.reason, why.cure)]
pub struct ChainUnrestorable {
    /// The function.
    pub function: &'static str,
    /// Why.
    pub why: Unrestorable,
}

/// A connection that is being restored, as the functions so far have made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restoring {
    /// Its tuple in the original direction, as packets come in.
    pub original: Tuple,
    /// Its tuple in the reply direction, as packets come in. A function that translates changes it.
    pub reply: Tuple,
    /// Where packets of the original direction come in, if one has come in.
    pub ingress: Option<PortId>,
}

impl Restoring {
    /// A connection that no function has translated yet.
    #[must_use]
    pub const fn new(original: Tuple, ingress: Option<PortId>) -> Self {
        Self { original, reply: original.inverse(), ingress }
    }

    /// Its tuple as its packets in the original direction leave the functions that have been asked so far.
    #[must_use]
    pub const fn outgoing(&self) -> Tuple {
        self.reply.inverse()
    }
}

/// What the functions make of a connection of which only the tuple is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Its tuple in the reply direction.
    pub reply: Tuple,
    /// The functions' states, as [`Connection::functions`](flow::Connection) holds them.
    pub functions: [u8; FUNCTION_STATE_BYTES_MAX],
}
