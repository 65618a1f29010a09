//! Configuration that can change at run time.

use alloc::sync::Arc;

use flow::Instant;
use replication::secure::SecurityReconfiguration;

use super::SyncNode;
use crate::filter::SyncFilter;

impl SyncNode {
    /// Replaces the filter. Connections that were replicated before stay on the peers until they end, or change into an
    /// excluded state.
    pub fn set_filter(&mut self, filter: SyncFilter) {
        self.connections.filter = filter;
        self.connections.count_all_unreplicated();
    }

    /// Replaces the keys and certificates of the channels with the peers. Without channels, nothing changes.
    pub fn renew_security(&mut self, now: Instant, new: &SecurityReconfiguration) {
        for channel in self.peers.iter_mut().filter_map(|peer| peer.channel.as_mut()) {
            channel.set_rotation(new.rotation);
            channel.set_credentials(now, Arc::clone(&new.credentials));
        }
    }
}
