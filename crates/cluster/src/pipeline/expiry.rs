//! Connections whose time has come.

use core::time::Duration;

use flow::connection::flags;
use flow::{Instant, NodeId};
use network_functions::function::CloseReason;

use super::connections::{Connections, record_mut};
use super::fast_path::expiry_after;

/// The expiry of replicas whose own timer runs out. A replica sees no packets, so its timer means nothing while its owner
/// lives: the owner ends the connection and sends the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaExpiry {
    /// Their owner is alive: look again after this time.
    Recheck(Duration),
    /// Their owner is gone since this point: each has its state's whole timeout from there.
    Since(Instant),
}

/// Ends connections whose time has come by `now`, at most `connections_max` a call. True when more may be waiting.
pub(super) fn expire(
    connections: &mut Connections,
    now: Instant,
    connections_max: usize,
    copies: impl Fn(NodeId) -> ReplicaExpiry,
) -> bool {
    for _ in 0..connections_max {
        let Some(slot) = connections.table.poll_expired(now) else { return false };
        let Connections { node, table, tracker, fast_path, .. } = &mut *connections;
        let connection = record_mut(table, slot);
        if let Some(fast_path) = fast_path
            && let Some(activity) = fast_path.take_seen(slot, connection, tracker)
        {
            // Whether data is unacknowledged may have changed below.
            connection.expires_at_nanos = expiry_after(&activity, connection, tracker).as_nanos();
            if connection.expires_at() > now {
                continue;
            }
        }
        // A replica that this node has come to own ends like a connection of its own: no other node would end it.
        if connection.flags & flags::REPLICA != 0 && connection.owner != *node {
            let timeout = tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
            let recheck_at = match copies(connection.owner) {
                ReplicaExpiry::Recheck(delay) => now + delay,
                ReplicaExpiry::Since(orphaned_at) => orphaned_at + timeout,
            };
            if recheck_at > now {
                connection.expires_at_nanos = recheck_at.as_nanos();
                continue;
            }
        }
        connections.end(slot, CloseReason::Timeout);
    }
    true
}
