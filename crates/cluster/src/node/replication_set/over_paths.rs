//! Updates over service paths, while the replication path to a peer is down.
//!
//! The session with the peer goes on: only the way of its datagrams differs. They are encrypted, or there are none. Their rate is limited,
//! because service paths lie in the networks of hosts; connections that the peer does not have yet go first. Whatever is queued when the
//! rate is used up waits, and newer state replaces older.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId, PortId};
use replication::secure::OVERHEAD_BYTES;

use super::ReplicationSet;
use crate::node::paths::ServiceRoute;
use crate::pipeline::Pipeline;

/// Bytes per second of updates over service paths, unless configured otherwise.
pub const SERVICE_PATH_BYTES_PER_S_DEFAULT: u32 = 1_000_000;
/// What was not used of the rate for so long may be used at once.
const BURST: Duration = Duration::from_millis(20);
/// Bytes of a frame around the sealed datagram: those of the link, and the number of a worker.
const FRAME_BYTES: usize = 14 + crate::forwarding::PATH_HEADER_BYTES + 1;

/// The rate of updates over service paths.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct PathBudget {
    bytes_per_s_max: u32,
    /// When what was sent has used up its time.
    free_at: Instant,
}

impl Default for PathBudget {
    fn default() -> Self {
        Self { bytes_per_s_max: SERVICE_PATH_BYTES_PER_S_DEFAULT, free_at: Instant::ZERO }
    }
}

impl PathBudget {
    /// Updates take so many bytes per second from now on; 0: there are none.
    pub(in crate::node) const fn set_rate(&mut self, bytes_per_s_max: u32) {
        (self.bytes_per_s_max, self.free_at) = (bytes_per_s_max, Instant::ZERO);
    }

    /// Updates may go over service paths.
    pub(in crate::node) const fn has_rate(self) -> bool {
        self.bytes_per_s_max > 0
    }

    /// When the next datagram may be sent.
    pub(in crate::node) const fn free_at(self) -> Instant {
        self.free_at
    }

    fn charge(&mut self, now: Instant, bytes: usize) {
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / u64::from(self.bytes_per_s_max.max(1));
        let unused_since = Instant::from_nanos(now.as_nanos().saturating_sub(BURST.as_nanos() as u64));
        self.free_at = self.free_at.max(unused_since) + Duration::from_nanos(nanos);
    }
}

impl ReplicationSet {
    /// The service path that carries the updates to the peer at this place; `None`: the replication path does.
    pub(super) fn route_of(&self, place: usize) -> Option<ServiceRoute> {
        self.peers[place].service_route().filter(|_| self.path_budget.has_rate())
    }

    /// Whether any peer is sent its updates over a service path.
    pub(super) fn uses_service_paths(&self) -> bool {
        (0..self.peers.len()).any(|place| self.route_of(place).is_some())
    }

    /// The next datagram of a session or a filter that goes over a service path, not yet encrypted. `bytes_max` returns what a frame of a
    /// port has room for.
    pub(in crate::node) fn poll_path_update(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        claims_all: bool,
        bytes_max: impl Fn(PortId) -> usize,
        buffer: &mut Vec<u8>,
    ) -> Option<(NodeId, ServiceRoute)> {
        if now < self.path_budget.free_at() {
            return None;
        }
        for place in 0..self.peers.len() {
            let Some(route) = self.route_of(place).filter(|_| self.peers[place].takes_updates()) else { continue };
            let bytes_max = bytes_max(route.port).saturating_sub(OVERHEAD_BYTES + 1);
            let Some((session, mut store)) = self.session(pipeline, claims_all, place) else { continue };
            session.set_prefers_new(true);
            if session.poll_transmit_within(now, bytes_max, &mut store, buffer) {
                self.path_budget.charge(now, buffer.len() + OVERHEAD_BYTES + FRAME_BYTES);
                return Some((self.peers[place].id, route));
            }
        }
        let Self { compact, peers, path_budget, .. } = self;
        let is_routed = |peer: &super::Peer| peer.service_route().is_some() && path_budget.has_rate();
        let id = compact.as_mut()?.poll_transmit(now, peers, is_routed, buffer)?;
        let route = peers.get(id)?.service_route()?;
        path_budget.charge(now, buffer.len() + OVERHEAD_BYTES + FRAME_BYTES);
        Some((id, route))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_within_a_second_keep_to_the_rate_and_an_unused_second_allows_one_burst() {
        let mut budget = PathBudget::default();
        budget.set_rate(100_000);
        let mut sent_bytes = 0;
        for millis in 5_000..6_000 {
            let now = Instant::from_millis(millis);
            while budget.free_at() <= now {
                budget.charge(now, 1000);
                sent_bytes += 1000;
            }
        }
        assert!((100_000..=103_000).contains(&sent_bytes), "{sent_bytes}");
        budget.set_rate(0);
        assert!(!budget.has_rate());
    }
}
