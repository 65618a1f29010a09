//! Whether a connection's replication can be deferred: who needs it, and how old it is.

use flow::Instant;
use flow::connection::flags;
use flow::table::Slot;
use flow::wire::ip_protocol;
use replication::lazy::Age;

use super::Pipeline;

impl Pipeline {
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
