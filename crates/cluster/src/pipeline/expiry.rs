//! Connections whose time has come.

use core::time::Duration;

use flow::connection::flags;
use flow::{Instant, NodeId};
use network_functions::function::CloseReason;

use super::connections::{Connections, record_mut};

/// What becomes of copies whose own timer runs out. A copy sees no packets, so its timer says nothing while its master
/// lives: the master ends the connection and says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyExpiry {
    /// Their master is alive: look again after this time.
    PutOff(Duration),
    /// Their master is gone since this point: each has its state's whole timeout from there.
    Since(Instant),
}

/// Ends connections whose time has come by `now`, at most `connections_max` a call. True when more may be waiting.
pub(super) fn expire(
    connections: &mut Connections,
    now: Instant,
    connections_max: usize,
    copies: impl Fn(NodeId) -> CopyExpiry,
) -> bool {
    for _ in 0..connections_max {
        let Some(slot) = connections.table.poll_expired(now) else { return false };
        let Connections { node, table, tracker, .. } = &mut *connections;
        let connection = record_mut(table, slot);
        // A copy that this node has become master of ends like a connection of its own: nobody else would end it.
        if connection.flags & flags::REPLICA != 0 && connection.owner != *node {
            let timeout = tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
            let look_again_at = match copies(connection.owner) {
                CopyExpiry::PutOff(delay) => now + delay,
                CopyExpiry::Since(orphaned_at) => orphaned_at + timeout,
            };
            if look_again_at > now {
                connection.expires_at_nanos = look_again_at.as_nanos();
                continue;
            }
        }
        connections.end(slot, CloseReason::Timeout);
    }
    true
}
