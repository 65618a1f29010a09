//! The connections whose packets wait.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use flow::{Instant, NodeId, NodeSet};

use super::{Limits, LookupDrop};
use crate::message::Key;

/// What the packets of a connection wait for.
#[derive(Clone, Copy)]
pub(super) enum Awaited {
    /// The state, from any of `asked`; then from each of `candidates`.
    State { asked: NodeSet, candidates: NodeSet, deadline: Instant },
    /// A query of increments.
    Increments,
}

/// A connection whose packets wait.
pub(super) struct Waiting<P> {
    pub(super) awaited: Awaited,
    /// A query has found nothing before: there is no second one.
    pub(super) is_queried: bool,
    /// A pull has failed before: the same index is not believed twice without a query.
    pub(super) has_failed: bool,
    /// The first packet may begin a connection.
    pub(super) may_begin: bool,
    /// This node becomes the owner; else a copy is enough.
    pub(super) takes_over: bool,
    packets: Vec<P>,
}

/// See the [module](self).
pub(super) struct WaitingConnections<P> {
    connections: BTreeMap<Key, Waiting<P>>,
    packets: usize,
    /// When requests for states are answered at the latest, in rising order.
    deadlines: VecDeque<(Instant, Key)>,
}

impl<P> Default for WaitingConnections<P> {
    fn default() -> Self {
        Self { connections: BTreeMap::new(), packets: 0, deadlines: VecDeque::new() }
    }
}

impl<P> WaitingConnections<P> {
    /// Packets that wait.
    pub(super) const fn packets(&self) -> usize {
        self.packets
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.connections.keys().copied().collect()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Waiting<P>> {
        self.connections.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Waiting<P>> {
        self.connections.get_mut(key)
    }

    /// Why a further packet of this connection cannot wait. `is_found`: a peer may have its connection.
    pub(super) fn refusal(&self, limits: &Limits, key: &Key, is_found: bool) -> Option<LookupDrop> {
        let of_connection = self.get(key).map_or(0, |waiting| waiting.packets.len());
        // Packets of no connection leave room for others.
        let packets_max = if is_found { limits.packets_max } else { limits.packets_max.div_ceil(2) };
        let is_full = self.packets >= packets_max || of_connection >= limits.packets_per_connection_max;
        is_full.then_some(LookupDrop::WaitingFull)
    }

    /// The first packet of a connection begins to wait.
    pub(super) fn enter(&mut self, key: Key, awaited: Awaited, (may_begin, takes_over): (bool, bool), packet: P) {
        let (is_queried, has_failed, packets) = (false, false, Vec::new());
        let waiting = Waiting { awaited, is_queried, has_failed, may_begin, takes_over, packets };
        self.connections.insert(key, waiting);
        self.hold(&key, packet);
    }

    /// A further packet of a connection waits.
    pub(super) fn hold(&mut self, key: &Key, packet: P) {
        if let Some(waiting) = self.connections.get_mut(key) {
            waiting.packets.push(packet);
            self.packets += 1;
        }
    }

    /// The packets of a connection wait no longer.
    pub(super) fn release(&mut self, key: &Key) -> Option<Vec<P>> {
        let packets = self.connections.remove(key)?.packets;
        self.packets -= packets.len();
        Some(packets)
    }

    pub(super) fn set_awaited(&mut self, key: &Key, awaited: Awaited) {
        if let Some(waiting) = self.connections.get_mut(key) {
            waiting.awaited = awaited;
        }
    }

    pub(super) fn awaits_increments(&self, key: &Key) -> bool {
        self.get(key).is_some_and(|waiting| matches!(waiting.awaited, Awaited::Increments))
    }

    /// Whether the node was asked for the connection's state, and may still send it.
    pub(super) fn is_asked(&self, key: &Key, node: NodeId) -> bool {
        let is_asked =
            |waiting: &Waiting<P>| matches!(waiting.awaited, Awaited::State { asked, .. } if asked.contains(node));
        self.get(key).is_some_and(is_asked)
    }

    /// The state of a connection was requested, and is to arrive by then.
    pub(super) fn note_requested(&mut self, deadline: Instant, key: Key) {
        self.deadlines.push_back((deadline, key));
    }

    /// The next connection whose state has not arrived in time.
    pub(super) fn poll_late(&mut self, now: Instant) -> Option<Key> {
        while let Some((deadline, key)) = self.deadlines.front().copied().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.pop_front();
            // It may have arrived, and another one may have been requested since.
            let of_pull = self.get(&key).map(|waiting| waiting.awaited);
            if matches!(of_pull, Some(Awaited::State { deadline: awaited, .. }) if awaited == deadline) {
                return Some(key);
            }
        }
        None
    }

    /// When [`WaitingConnections::poll_late`] has the next one, at the earliest.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }
}
