//! What can change while a node works.

use alloc::sync::Arc;

use flow::Instant;
use replication::secure::SecurityReconfiguration;

use super::SyncNode;
use crate::filter::SyncFilter;

impl SyncNode {
    /// From now on the peers are told of what this filter lets through. What they were told of stays with them until it ends, or
    /// changes into what they are not to be told of.
    pub fn set_filter(&mut self, filter: SyncFilter) {
        self.connections.filter = filter;
    }

    /// The channels with the peers go over to these keys and certificates. Where there is no channel, nothing changes.
    pub fn renew_security(&mut self, now: Instant, new: &SecurityReconfiguration) {
        for channel in self.peers.iter_mut().filter_map(|peer| peer.channel.as_mut()) {
            channel.set_rotation(new.rotation);
            channel.set_credentials(now, Arc::clone(&new.credentials));
        }
    }
}
