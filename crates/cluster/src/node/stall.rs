//! A node whose process or machine stood still must not take its own silence for its peers'.

use core::time::Duration;

use flow::Instant;

use super::peers::Peers;
use crate::role::Roles;

/// A node that stalled for this long cannot be relied on to detect a failure in time …
pub const SERVICE_GAP_MAX: Duration = Duration::from_millis(100);
/// … until it has been served in time for so long.
pub const SERVICE_GAP_COUNTS_FOR: Duration = Duration::from_secs(5);
/// A stall that is noted even if packets are handled first. Shorter than any failure detection.
const NOTED_BEFORE_PACKETS: Duration = Duration::from_millis(10);

/// When the node was last served, and its latest long stall.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceGap {
    served_at: Instant,
    last: Option<(Instant, Duration)>,
}

impl ServiceGap {
    /// Of a node that starts at `now`.
    pub(super) const fn new(now: Instant) -> Self {
        Self { served_at: now, last: None }
    }

    /// To be called before packets are handled. Packets that waited during a stall are as old as the stall.
    pub(super) fn note_packets(&mut self, now: Instant, roles: &mut Roles, peers: &mut Peers) {
        if now.saturating_since(self.served_at) >= NOTED_BEFORE_PACKETS {
            self.note_service(now, roles, peers);
        }
    }

    /// To be called before anything that measures how long a peer was silent.
    pub(super) fn note_service(&mut self, now: Instant, roles: &mut Roles, peers: &mut Peers) {
        let gap = now.saturating_since(self.served_at);
        self.served_at = now;
        if !peers.is_empty() {
            self.note(now, gap);
        }
        roles.handle_absence(now, gap);
        peers.iter_mut().for_each(|peer| peer.handle_stall(now, gap));
    }

    /// The node was not served for `gap` until `now`.
    pub(super) fn note(&mut self, now: Instant, gap: Duration) {
        if gap >= SERVICE_GAP_MAX {
            self.last = Some((now, gap));
        }
    }

    /// The gap that still counts against the node.
    pub(super) fn counting(&self, now: Instant) -> Option<Duration> {
        self.last.filter(|(at, _)| now < *at + SERVICE_GAP_COUNTS_FOR).map(|(_, gap)| gap)
    }

    /// When the node was last served.
    pub(super) const fn served_at(&self) -> Instant {
        self.served_at
    }
}
