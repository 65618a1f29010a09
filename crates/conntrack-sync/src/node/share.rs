//! Looks now and then whether the filter leaves out nearly everything that this kernel forwards.

use core::time::Duration;

use flow::Instant;
use flow::netfilter::Entry;

use super::SyncNode;
use crate::event::SyncEvent;
use crate::share::{Share, is_nearly_none};

/// The table is read for this at most so often.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);

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
