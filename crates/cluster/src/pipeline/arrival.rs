//! What is known of a packet before its connection is.

use flow::wire::{Headers, Transport};
use flow::{Instant, Tuple};

/// How packets have come to the pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// Each packet is handed to the worker that it belongs to. Not so packets that were handed over already.
    pub(crate) is_steering: bool,
    /// They have waited for a peer's update, and may wait until then.
    pub(crate) waits_until: Option<Instant>,
    /// Their connections have been looked up at other nodes.
    pub(crate) is_looked_up: bool,
    /// They were counted when they came first: they have waited for an answer, and have a connection since.
    pub(crate) is_counted: bool,
}

impl Origin {
    /// They come in on a port.
    pub(crate) const PORT: Self = Self { is_steering: true, waits_until: None, is_looked_up: false, is_counted: false };
    /// They were steered already: handed over by another worker, or held here.
    pub(crate) const STEERED: Self =
        Self { is_steering: false, waits_until: None, is_looked_up: false, is_counted: false };
}

/// See the [module](self).
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) now: Instant,
    pub(super) origin: Origin,
    /// Of the tuple that is looked up.
    pub(super) hash: u64,
    /// It is for one of the node's own addresses, unless a function sends it elsewhere.
    pub(super) is_local: bool,
}

/// The tuple under which a packet's connection is looked up.
pub(super) fn wanted(headers: &Headers) -> Tuple {
    match &headers.transport {
        // The error goes against the packet that it quotes.
        Transport::IcmpError(error) => error.inner.inverse(),
        _ => headers.tuple,
    }
}
