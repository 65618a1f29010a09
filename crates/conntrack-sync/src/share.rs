//! Whether the filter leaves out nearly everything that this kernel forwards.
//!
//! Connections that a filter leaves out reach nobody, so their absence cannot be seen in the table of what is known. The
//! kernel's own count shows it: where the kernel has many connections and few of them are known here, its table is read, and the
//! established ones are counted, replicated and left out.

use core::time::Duration;

use flow::Instant;
use flow::netfilter::{Entry, Status, TcpState};

use super::SyncNode;
use super::event::SyncEvent;

/// A kernel with fewer connections says nothing about a filter.
pub const CONNECTIONS_MANY: u32 = 100;
/// Nearly none: less than one part in so many.
const NEARLY_NONE: u32 = 20;
/// The table is read for this at most so often.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);

/// The established connections of this kernel, as one reading of its table shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Assured connections of protocols that are replicated; TCP only while it is established.
    pub established: u32,
    /// Of those, the ones that neither a rule nor a list leaves out.
    pub replicated: u32,
}

impl Share {
    /// Counts a connection of the kernel's table. `is_replicated`: nothing leaves it out.
    pub fn note(&mut self, entry: &Entry, is_replicated: bool) {
        let is_assured = entry.status.is_some_and(|status| status.contains(Status::ASSURED));
        if is_assured && entry.tcp().is_none_or(|info| info.state == TcpState::Established) {
            self.established = self.established.saturating_add(1);
            self.replicated = self.replicated.saturating_add(u32::from(is_replicated));
        }
    }

    /// Many connections are there, and nearly none is replicated.
    #[must_use]
    pub const fn is_nearly_none(self) -> bool {
        is_nearly_none(self.replicated, self.established)
    }
}

const fn is_nearly_none(part: u32, of: u32) -> bool {
    of >= CONNECTIONS_MANY && part.saturating_mul(NEARLY_NONE) < of
}

/// What is known of that, and when it was looked at.
#[derive(Debug, Default)]
pub(super) struct ShareState {
    pub(super) share: Share,
    count_at: Instant,
}

impl SyncNode {
    /// The kernel has so many connections, all told. Where few of them are known here, or few were replicated when they
    /// were counted last, its table is read.
    pub fn note_kernel_connections(&mut self, now: Instant, connections: u32) {
        let known = self.connections.mirror.len();
        let is_suspect = is_nearly_none(known, connections) || self.share.share.is_nearly_none();
        if is_suspect && now >= self.share.count_at {
            self.share.count_at = now + COUNT_INTERVAL;
            self.connections.want_dump(now);
        }
    }

    /// Whether the filter lets the peers know of a connection, in the state that it is in.
    #[must_use]
    pub fn replicates(&self, entry: &Entry) -> bool {
        !self.connections.filter.leaves_out(entry)
    }

    /// The kernel's table was read, and its established connections were counted.
    pub fn note_share(&mut self, now: Instant, share: Share) {
        let was_nearly_none = self.share.share.is_nearly_none();
        self.share.share = share;
        if share.is_nearly_none() && !was_nearly_none {
            self.connections.events.push(now, SyncEvent::FewReplicated(share));
        }
    }
}
