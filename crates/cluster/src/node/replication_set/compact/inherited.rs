//! Inherited filters: the filters of dead nodes, re-advertised, so that a connection that has sent nothing since the last failover survives
//! the next one.
//!
//! ```text
//!   a dies                b takes over: connections are restored by their packets    b dies: a looks up both
//!   F(a) ════════════════► b ── F(b): restored connections ──────────────────────────► a, restarted
//!                            ╘═ F(a) without these: an inherited filter ══════════════► a
//! ```
//!
//! A node that recovers re-advertises the filters of its dead peers, and those that these re-advertised: the newest
//! [`INHERITED_FILTERS_MAX`], until its recovery ends. A peer looks connections up in them as in the node's own filter, and drops one
//! that is no longer re-advertised.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId, Tuple};
use replication::compact::{
    self, CompactConfig, CompactError, CompactReceiver, CompactSender, INHERITED_FILTERS_MAX, InheritedFilter, Known,
    ReceiverLimits, Representation,
};

use super::status::InheritedStatus;

/// A re-advertised filter is dropped when no datagram of it has arrived for so much longer than of the peer's own filter. While it is
/// re-advertised, it is compared several times in this time.
const SILENT_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(SILENT_MAX.as_millis() > 4 * compact::COMPARE_INTERVAL.as_millis());

/// The inherited filters that this node re-advertises.
#[derive(Default)]
pub(in crate::node) struct InheritedFilters {
    /// By stream, with the time since when.
    kept: [Option<(Instant, CompactSender)>; INHERITED_FILTERS_MAX],
    /// Without a recovery of this node, they are kept for a peer's until then.
    kept_until: Option<Instant>,
}

impl InheritedFilters {
    /// Keeps them until `until`, although this node is not recovering.
    pub(in crate::node) const fn keep_until(&mut self, until: Instant) {
        self.kept_until = Some(until);
    }

    /// They are kept for as long as this node's recovery lasts.
    pub(super) const fn keep_while_recovering(&mut self) {
        self.kept_until = None;
    }

    /// Whether their time is over.
    pub(in crate::node) fn are_over(&self, now: Instant) -> bool {
        self.kept_until.is_some_and(|until| until <= now)
    }

    fn senders(&self) -> impl Iterator<Item = &CompactSender> {
        self.kept.iter().flatten().map(|(_, sender)| sender)
    }

    fn senders_mut(&mut self) -> impl Iterator<Item = &mut CompactSender> {
        self.kept.iter_mut().flatten().map(|(_, sender)| sender)
    }

    pub(super) fn has(&self, epoch: u64) -> bool {
        self.senders().any(|sender| sender.epoch() == epoch)
    }

    /// Re-advertises `inherited` to those of `peers` that are reachable, in place of the oldest if there are too many.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        inherited: InheritedFilter,
        own: &CompactConfig,
        peers: &[(NodeId, bool)],
    ) {
        let ids: Vec<NodeId> = peers.iter().map(|(peer, _)| *peer).collect();
        // There are no more peers than for this node's own filter.
        let Ok(mut sender) = CompactSender::of_inherited(inherited, own, &ids) else { return };
        peers.iter().filter(|(_, listens)| !listens).for_each(|(peer, _)| sender.peer_lost(*peer));
        let place = self.kept.iter_mut().min_by_key(|kept| kept.as_ref().map(|(since, _)| *since));
        if let Some(place) = place {
            *place = Some((now, sender));
        }
    }

    pub(in crate::node) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(in crate::node) fn peer_back(&mut self, now: Instant, peer: NodeId) {
        self.senders_mut().for_each(|sender| sender.peer_back(now, peer));
    }

    pub(in crate::node) fn peer_restarted(&mut self, now: Instant, peer: NodeId) {
        self.senders_mut().for_each(|sender| sender.peer_restarted(now, peer));
    }

    pub(in crate::node) fn peer_lost(&mut self, peer: NodeId) {
        self.senders_mut().for_each(|sender| sender.peer_lost(peer));
    }

    /// Removes a connection that this node now owns, and that is in its own filter.
    pub(in crate::node) fn take(&mut self, original: &Tuple) {
        self.senders_mut().for_each(|sender| sender.take_inherited(original));
    }

    pub(in crate::node) fn handle_timeout(&mut self, now: Instant) {
        self.senders_mut().for_each(|sender| sender.handle_timeout(now));
    }

    /// A datagram of a peer about one of them.
    pub(in crate::node) fn handle_datagram(
        &mut self,
        now: Instant,
        from: NodeId,
        stream: u8,
        datagram: &[u8],
    ) -> Result<(), CompactError> {
        let place = usize::from(stream).checked_sub(1).and_then(|place| self.kept.get_mut(place));
        // Answers may arrive after the filter was dropped.
        place.and_then(Option::as_mut).map_or(Ok(()), |(_, sender)| sender.handle_datagram(now, from, datagram))
    }

    /// The next datagram for a peer.
    pub(in crate::node) fn poll_transmit(&mut self, now: Instant, to: NodeId, buffer: &mut Vec<u8>) -> bool {
        for (sender, stream) in self.kept.iter_mut().zip(1..) {
            if let Some((_, sender)) = sender
                && sender.poll_transmit(now, to, buffer)
            {
                compact::set_stream(buffer, stream);
                return true;
            }
        }
        false
    }

    pub(in crate::node) fn poll_timeout(&self) -> Option<Instant> {
        self.senders().filter_map(CompactSender::poll_timeout).chain(self.kept_until).min()
    }

    /// Whether the peer has all of them.
    pub(in crate::node) fn is_settled(&self, peer: NodeId) -> bool {
        self.senders().all(|sender| sender.is_settled(peer))
    }

    pub(in crate::node) fn status(&self) -> InheritedStatus {
        self.senders().map(CompactSender::status).fold(InheritedStatus::default(), |sum, status| InheritedStatus {
            filters: sum.filters + 1,
            entries: sum.entries + status.entries,
            bytes: sum.bytes + status.bytes,
            memory_bytes: sum.memory_bytes + status.memory_bytes,
        })
    }
}

/// The inherited filters that one peer re-advertises.
pub(in crate::node) struct Readvertised {
    limits: ReceiverLimits,
    seed: u64,
    /// By stream, with the time of its last datagram.
    received: [Option<(Instant, CompactReceiver)>; INHERITED_FILTERS_MAX],
}

impl Readvertised {
    /// None yet. `seed` must differ from start to start.
    pub(in crate::node) fn new(limits: ReceiverLimits, seed: u64) -> Self {
        Self { limits, seed, received: Default::default() }
    }

    pub(in crate::node) fn receivers(&self) -> impl Iterator<Item = &CompactReceiver> {
        self.received.iter().flatten().map(|(_, receiver)| receiver)
    }

    pub(in crate::node) fn handle_datagram(
        &mut self,
        now: Instant,
        stream: u8,
        datagram: &[u8],
    ) -> Result<(), CompactError> {
        let place = usize::from(stream).checked_sub(1).and_then(|place| self.received.get_mut(place));
        let Some(place) = place else { return Err(CompactError::Stream(stream)) };
        let (limits, seed) = (self.limits, self.seed.rotate_left(stream.into()) ^ u64::from(stream));
        let (last_received_at, receiver) = place.get_or_insert_with(|| (now, CompactReceiver::new(limits, seed)));
        *last_received_at = now;
        receiver.handle_datagram(now, datagram)
    }

    pub(in crate::node) fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        for (receiver, stream) in self.received.iter_mut().zip(1..) {
            if let Some((_, receiver)) = receiver
                && receiver.poll_transmit(now, buffer)
            {
                compact::set_stream(buffer, stream);
                return true;
            }
        }
        false
    }

    pub(in crate::node) fn poll_timeout(&self) -> Option<Instant> {
        self.receivers().filter_map(CompactReceiver::poll_timeout).min()
    }

    pub(in crate::node) fn lookup(&self, original: &Tuple) -> Option<(Known, Option<Representation>)> {
        self.receivers().find_map(|receiver| Some((receiver.lookup(original)?, receiver.representation())))
    }

    /// Whether every one of them is whole.
    pub(in crate::node) fn is_complete(&self) -> bool {
        self.receivers().all(CompactReceiver::is_complete)
    }

    /// Drops filters that the peer no longer re-advertises. The last datagram of its own filter arrived at `peer_received_at`.
    pub(super) fn forget_silent(&mut self, peer_received_at: Instant) {
        for place in &mut self.received {
            if place.as_ref().is_some_and(|(last_received_at, _)| *last_received_at + SILENT_MAX < peer_received_at) {
                *place = None;
            }
        }
    }
}
