//! Restoring connections of which another node replicated only the existence.
//!
//! A compact representation contains a connection's original tuple and its protocol's state, but not the functions'
//! states. A node that takes over such a connection has the chain recompute them
//! ([`Chain::restore`](crate::chain::Chain::restore)), as if the connection began now. That suffices for functions
//! whose state follows from the tuple and the configuration ([`NetworkFunction::restorable`]).
//!
//! Single connections may be exceptions: the preferred tuple was in use when they began, or a helper reads their
//! payload. Their owner recognises them ([`Chain::is_restorable`](crate::chain::Chain::is_restorable)) and replicates
//! them precisely.
//!
//! [`NetworkFunction::restorable`]: crate::function::NetworkFunction::restorable

use flow::connection::FUNCTION_STATE_BYTES_MAX;
use flow::{PortId, Tuple};

use crate::class::Class;

/// The maximum number of original tuples that a reply may belong to; replies with more are not recovered. (One outside
/// port maps to at most 512 inside ones, and each of those may have addressed the server itself or a forwarded
/// address.)
pub const ORIGINALS_MAX: usize = 2048;

/// The maximum number of candidate tuples: the work is done for a packet, which may be an attacker's.
pub const CANDIDATES_MAX: usize = 2 * ORIGINALS_MAX;

/// Why a function's state of a connection does not follow from its tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unrestorable {
    /// The reason, as the end of a sentence that begins with the function's name.
    pub reason: &'static str,
    /// The operator's remedy.
    pub remedy: &'static str,
}

/// A chain with a function whose state does not follow from tuples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{function}` {}: {}", cause.reason, cause.remedy)]
pub struct ChainUnrestorable {
    /// The function.
    pub function: &'static str,
    /// The reason and the remedy.
    pub cause: Unrestorable,
}

/// A connection that is being restored, after the functions called so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restoring {
    /// Its incoming tuple in the original direction.
    pub original: Tuple,
    /// Its incoming tuple in the reply direction. A function that translates changes it.
    pub reply: Tuple,
    /// The ingress of packets in the original direction, if one has arrived.
    pub ingress: Option<PortId>,
    /// Its class, by its port if it is not known otherwise. The classifier writes it, functions behind it read it.
    pub class: Class,
    /// Its class, where the representation holds it.
    pub known_class: Option<Class>,
}

impl Restoring {
    /// A connection before translation.
    #[must_use]
    pub const fn new(original: Tuple, ingress: Option<PortId>) -> Self {
        Self { original, reply: original.inverse(), ingress, class: Class::Unknown, known_class: None }
    }

    /// Its tuple as its packets in the original direction leave the functions called so far.
    #[must_use]
    pub const fn outgoing(&self) -> Tuple {
        self.reply.inverse()
    }
}

/// The functions' states of a connection, recomputed from its tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Its tuple in the reply direction.
    pub reply: Tuple,
    /// The functions' states, in the form of [`Connection::functions`](flow::Connection).
    pub functions: [u8; FUNCTION_STATE_BYTES_MAX],
}
