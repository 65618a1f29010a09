//! Deferred replication: how old a connection is.

use flow::connection::flags;
use flow::conntrack::Tracker;
use flow::wire::ip_protocol;
use flow::{Connection, Instant, Tuple};
use replication::lazy::{Age, LazyInsertion};

/// What a node that defers the replication of connections keeps of it.
#[derive(Debug)]
pub(crate) struct Lazily {
    pub(crate) insertion: LazyInsertion,
    /// The connection of this node's that ended last, until another change comes: whether the next took its place.
    pub(crate) ended: Option<Tuple>,
}

/// How old a connection of this node's is that began at `began`. One whose ends have both spoken, and will say so when
/// they have no more to say, is open until then; what others last is from their first packet to the last.
pub(super) fn age(tracker: &Tracker, connection: &Connection, began: Instant) -> Age {
    if connection.original.protocol == ip_protocol::TCP && connection.flags & flags::REPLIED != 0 {
        return Age::Open;
    }
    let timeout = tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
    let last_packet_ns = connection.expires_at_nanos.saturating_sub(timeout.as_nanos() as u64);
    Age::Heard(Instant::from_nanos(last_packet_ns).saturating_since(began))
}
