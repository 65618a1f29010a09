//! Connections that are put off: whether one is, and how old it is.

use flow::connection::flags;
use flow::table::Slot;
use flow::wire::ip_protocol;
use flow::{Instant, Tuple};
use replication::Handle;
use replication::lazy::{Age, LazyInsertion};

use super::Pipeline;

/// What a node that puts connections off keeps of it.
#[derive(Debug)]
pub(crate) struct Lazily {
    pub(crate) insertion: LazyInsertion,
    /// The connection of this node's that ended last, until another change comes: whether the next took its place.
    pub(crate) ended: Option<Tuple>,
}

impl Pipeline {
    /// Whether peers are not told of the connection in the slot for now: it is too young, or was over before it was not.
    #[must_use]
    pub fn is_put_off(&self, slot: Slot) -> bool {
        self.lazily.as_ref().is_some_and(|lazily| lazily.insertion.is_put_off(Handle(slot.0)))
    }

    /// Whether the connection, which has just begun or changed, is of use to others before it is old: connections are
    /// expected on its behalf, or it was expected, or its packets come to other nodes as well.
    pub(crate) fn is_needed_by_others(&self, slot: Slot) -> bool {
        let related = |flags: u8| flags & (flags::RELATED | flags::EXPECTS | flags::SHARED) != 0;
        self.is_sharing() || self.connection(slot).is_some_and(|connection| related(connection.flags))
    }

    /// How old a connection of this node's is that began at `began`. One whose ends have both spoken, and will say so when
    /// they have no more to say, is open until then; what others last is from their first packet to the last.
    pub(crate) fn age(&self, slot: Slot, began: Instant) -> Age {
        let Some(connection) = self.connection(slot).filter(|connection| connection.owner == self.node) else {
            return Age::Gone;
        };
        if connection.original.protocol == ip_protocol::TCP && connection.flags & flags::REPLIED != 0 {
            return Age::Open;
        }
        let timeout = self.tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
        let last_packet_ns = connection.expires_at_nanos.saturating_sub(timeout.as_nanos() as u64);
        Age::Heard(Instant::from_nanos(last_packet_ns).saturating_since(began))
    }
}
