//! Filters of nodes that are gone, told on: a connection that has sent nothing since the last failover outlives the next one.
//!
//! ```text
//!   a dies                b takes over: connections come back as they speak        b dies: a asks both
//!   F(a) ════════════════► b ── F(b): what came back ──────────────────────────────► a, started anew
//!                            ╘═ F(a), without what came back: an heirloom ═════════► a
//! ```
//!
//! A node that recovers tells on what those have told that are gone, and what these told on in their turn: the newest
//! [`HEIRLOOMS_MAX`], until its recovery ends. Who hears one asks for it as for its peer's own filter. One that the peer has
//! stopped telling is forgotten.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId, Tuple};
use replication::compact::{
    self, Addressee, CompactConfig, CompactError, CompactReceiver, CompactSender, HEIRLOOMS_MAX, Heirloom, Known,
    ReceiverLimits, Representation,
};

use super::status::HeirloomStatus;
use crate::node::peer::Peer;
use crate::node::replication_set::ReplicationSet;

/// What a peer tells on is forgotten when nothing was heard of it for so much longer than of the peer itself: it is compared
/// several times in this time while it is told.
const SILENT_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(SILENT_MAX.as_millis() > 4 * compact::COMPARE_INTERVAL.as_millis());

/// What this node tells on.
#[derive(Default)]
pub(in crate::node) struct Heirlooms {
    /// By stream, with the time of adoption.
    kept: [Option<(Instant, CompactSender)>; HEIRLOOMS_MAX],
    /// No recovery is under way here: they are kept for a peer's until then.
    kept_until: Option<Instant>,
}

impl Heirlooms {
    /// They are kept until `until` at the latest, although this node recovers nothing.
    pub(in crate::node) const fn keep_until(&mut self, until: Instant) {
        self.kept_until = Some(until);
    }

    /// They were kept for long enough.
    pub(in crate::node) fn are_over(&self, now: Instant) -> bool {
        self.kept_until.is_some_and(|until| until <= now)
    }

    fn senders(&self) -> impl Iterator<Item = &CompactSender> {
        self.kept.iter().flatten().map(|(_, sender)| sender)
    }

    fn senders_mut(&mut self) -> impl Iterator<Item = &mut CompactSender> {
        self.kept.iter_mut().flatten().map(|(_, sender)| sender)
    }

    fn has(&self, epoch: u64) -> bool {
        self.senders().any(|sender| sender.epoch() == epoch)
    }

    /// Tells `heirloom` on to those of `peers` that listen, in the place of the oldest if there are too many.
    fn adopt(&mut self, now: Instant, heirloom: Heirloom, own: &CompactConfig, peers: &[(NodeId, bool)]) {
        let ids: Vec<NodeId> = peers.iter().map(|(peer, _)| *peer).collect();
        // As many peers as are told this node's own filter are not too many.
        let Ok(mut sender) = CompactSender::of_heirloom(heirloom, own, &ids) else { return };
        peers.iter().filter(|(_, listens)| !listens).for_each(|(peer, _)| sender.peer_lost(*peer));
        let place = self.kept.iter_mut().min_by_key(|kept| kept.as_ref().map(|(adopted_at, _)| *adopted_at));
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

    /// The connection is this node's now, and in its own filter.
    pub(in crate::node) fn take(&mut self, original: &Tuple) {
        self.senders_mut().for_each(|sender| sender.take_inherited(original));
    }

    pub(in crate::node) fn handle_timeout(&mut self, now: Instant) {
        self.senders_mut().for_each(|sender| sender.handle_timeout(now));
    }

    /// A peer's answer.
    pub(in crate::node) fn handle_datagram(
        &mut self,
        now: Instant,
        from: NodeId,
        stream: u8,
        datagram: &[u8],
    ) -> Result<(), CompactError> {
        let place = usize::from(stream).checked_sub(1).and_then(|place| self.kept.get_mut(place));
        // One that is told no longer may be answered still.
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

    pub(in crate::node) fn status(&self) -> HeirloomStatus {
        self.senders().map(CompactSender::status).fold(HeirloomStatus::default(), |sum, told| HeirloomStatus {
            filters: sum.filters + 1,
            entries: sum.entries + told.entries,
            bytes: sum.bytes + told.bytes,
            memory_bytes: sum.memory_bytes + told.memory_bytes,
        })
    }
}

/// What one peer tells on.
pub(in crate::node) struct ToldOn {
    limits: ReceiverLimits,
    seed: u64,
    /// By stream, with the time at which it was heard of last.
    heard: [Option<(Instant, CompactReceiver)>; HEIRLOOMS_MAX],
}

impl ToldOn {
    /// Nothing as yet. `seed` must differ from start to start.
    pub(in crate::node) fn new(limits: ReceiverLimits, seed: u64) -> Self {
        Self { limits, seed, heard: Default::default() }
    }

    pub(in crate::node) fn receivers(&self) -> impl Iterator<Item = &CompactReceiver> {
        self.heard.iter().flatten().map(|(_, receiver)| receiver)
    }

    pub(in crate::node) fn handle_datagram(
        &mut self,
        now: Instant,
        stream: u8,
        datagram: &[u8],
    ) -> Result<(), CompactError> {
        let place = usize::from(stream).checked_sub(1).and_then(|place| self.heard.get_mut(place));
        let Some(place) = place else { return Err(CompactError::Stream(stream)) };
        let (limits, seed) = (self.limits, self.seed.rotate_left(stream.into()) ^ u64::from(stream));
        let (heard_at, receiver) = place.get_or_insert_with(|| (now, CompactReceiver::new(limits, seed)));
        *heard_at = now;
        receiver.handle_datagram(now, datagram)
    }

    pub(in crate::node) fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        for (receiver, stream) in self.heard.iter_mut().zip(1..) {
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

    /// What the peer has begun to tell on is here whole.
    pub(in crate::node) fn is_complete(&self) -> bool {
        self.receivers().all(CompactReceiver::is_complete)
    }

    /// Forgets what the peer, which was heard of at `peer_heard_at`, has stopped telling.
    fn forget_silent(&mut self, peer_heard_at: Instant) {
        for place in &mut self.heard {
            if place.as_ref().is_some_and(|(heard_at, _)| *heard_at + SILENT_MAX < peer_heard_at) {
                *place = None;
            }
        }
    }
}

impl ReplicationSet {
    /// The peer was started anew, with nothing, while this node forwards nothing: nobody has taken its connections over. What it
    /// told before is kept here, and told on to it.
    pub(in crate::node) fn keep_filter_of_restarted(&mut self, now: Instant, peer: NodeId) {
        let receiver = self.peers.get_mut(peer).and_then(|peer| peer.compact.as_mut());
        receiver.into_iter().for_each(|receiver| receiver.set_retaining(true));
        self.adopt_heirlooms(now, Some(peer));
        if let Some(compact) = &mut self.compact {
            compact.heirlooms.keep_until(now + compact.recovery.lasts);
        }
    }

    /// What the peers that are gone told, or `restarted` before it was started anew, and what any peer told on, is told on from
    /// here.
    pub(in crate::node) fn adopt_heirlooms(&mut self, now: Instant, restarted: Option<NodeId>) {
        let Some(compact) = &mut self.compact else { return };
        compact.heirlooms.kept_until = None;
        let listens = |peer: &Peer| peer.session.as_ref().is_some_and(replication::Session::is_open);
        let peers: Vec<_> = self.peers.iter().map(|peer| (peer.id, listens(peer))).collect();
        for peer in &self.peers {
            let own = peer.compact.as_ref().filter(|_| !peer.is_up() || restarted == Some(peer.id));
            let told_on = peer.told_on.iter().flat_map(ToldOn::receivers);
            for receiver in told_on.chain(own) {
                let Some(epoch) = receiver.heirloom_epoch() else { continue };
                if epoch == compact.sender.epoch() || compact.heirlooms.has(epoch) {
                    continue;
                }
                if let Some(heirloom) = receiver.heirloom() {
                    compact.heirlooms.adopt(now, heirloom, compact.sender.config(), &peers);
                }
            }
        }
    }

    /// What peers have stopped telling on is forgotten, unless it is asked for.
    pub(in crate::node) fn forget_silent_heirlooms(&mut self, now: Instant) {
        for peer in &mut self.peers {
            let age = peer.compact.as_ref().and_then(|receiver| receiver.age(now));
            if let (Some(told_on), Some(age)) = (&mut peer.told_on, age) {
                told_on.forget_silent(Instant::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64)));
            }
        }
    }

    /// A datagram of a stream that is told on, or an answer to one.
    pub(in crate::node) fn handle_told_on(
        &mut self,
        now: Instant,
        from: NodeId,
        stream: u8,
        datagram: &[u8],
    ) -> Result<(), CompactError> {
        if compact::addressee(datagram) == Some(Addressee::Sender) {
            let heirlooms = self.compact.as_mut().map(|compact| &mut compact.heirlooms);
            return heirlooms.map_or(Ok(()), |heirlooms| heirlooms.handle_datagram(now, from, stream, datagram));
        }
        let peer = self.peers.get_mut(from).filter(|peer| peer.refused.is_none());
        let told_on = peer.and_then(|peer| peer.told_on.as_mut());
        told_on.map_or(Ok(()), |told_on| told_on.handle_datagram(now, stream, datagram))
    }
}
