//! Connections whose time has come.

use core::time::Duration;

use flow::connection::flags;
use flow::{Instant, NodeId};
use network_functions::function::CloseReason;

use super::{Pipeline, record_mut};

/// What becomes of copies whose own timer runs out. A copy sees no packets, so its timer says nothing while its master
/// lives: the master ends the connection and says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyExpiry {
    /// Their master is alive: look again after this time.
    PutOff(Duration),
    /// Their master is gone since this point: each has its state's whole timeout from there.
    Since(Instant),
}

impl Pipeline {
    /// Ends connections whose time has come by `now`, at most `connections_max` a call, and gives up packets whose
    /// fragments did not all come. `copies` says what becomes of a master's copies. True when more may be waiting.
    pub fn expire(&mut self, now: Instant, connections_max: usize, copies: impl Fn(NodeId) -> CopyExpiry) -> bool {
        self.observation.set_now(now);
        self.expire_fragments(now);
        self.forget_old_tombstones(now);
        for _ in 0..connections_max {
            let Some(slot) = self.table.poll_expired(now) else { return false };
            let connection = record_mut(&mut self.table, slot);
            // A copy that this node has become master of ends like a connection of its own: nobody else would end it.
            if connection.flags & flags::COPY != 0 && connection.owner != self.node {
                let timeout =
                    self.tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
                let look_again_at = match copies(connection.owner) {
                    CopyExpiry::PutOff(delay) => now + delay,
                    CopyExpiry::Since(orphaned_at) => orphaned_at + timeout,
                };
                if look_again_at > now {
                    connection.expires_at_nanos = look_again_at.as_nanos();
                    continue;
                }
            }
            self.end(slot, CloseReason::Timeout);
        }
        true
    }

    /// When [`Pipeline::expire`] has something to do next, at the earliest.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        [self.table.next_expiry(), self.fragments().poll_timeout()].into_iter().flatten().min()
    }
}
