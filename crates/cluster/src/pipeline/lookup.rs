//! The state service of a worker: which node has a connection that is not in the table [TRIPOD, section IV].
//!
//! [`state_service`] decides. Here are its messages to and from peers, and the index of this worker's connections, which has both tuples of each
//! record, replicas included.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use flow::{Connection, DropReason, Instant, NodeId, NodeSet, Tuple};
use state_service::index::{ITEMS_MAX, IndexSecret, ShapeError};
use state_service::lookup::{Held, Lookup, LookupCounters, Receiver, StateService};
pub use state_service::lookup::{Limits as LookupLimits, LookupDrop};

/// How connections are looked up at other nodes.
#[derive(Clone, Copy, Debug)]
pub struct StateServiceConfig {
    /// The secret under which indexes hash connections: alike on all nodes.
    pub key: [u64; 2],
    /// Its limits. No more packets wait than [`WAITING_FRAMES_MAX`](super::WAITING_FRAMES_MAX), whatever they permit.
    pub limits: LookupLimits,
}

/// What the state service of a worker has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateServiceStatus {
    /// What was counted of lookups.
    pub lookup: LookupCounters,
    /// Packets that wait for a state.
    pub waiting: usize,
    /// Live peers that have a state service.
    pub peers: u32,
    /// Of those, the ones whose index is known.
    pub indexes: u32,
    /// Tuples of connections that found no room in the index: peers cannot find them here.
    pub unindexed: usize,
    /// Messages that were sent.
    pub sent: u64,
    /// Bytes of them, without headers.
    pub sent_bytes: u64,
    /// Messages that were received.
    pub received: u64,
    /// Bytes of them, without headers.
    pub received_bytes: u64,
}

/// The size of the index of a node with so many connections: the two tuples of a connection are on one side by chance, so a side may
/// have more tuples than there are connections.
const fn index_items(connections_max: u64) -> u64 {
    /// Six standard deviations of the number of tuples on a side, √(n / 2), and room for few connections.
    const SLACK: u64 = 64;
    connections_max + (18 * connections_max).isqrt() + SLACK
}

/// The most connections of a worker whose connections can be looked up.
#[must_use]
pub const fn state_service_connections_max() -> u64 {
    let mut connections = ITEMS_MAX;
    while index_items(connections) > ITEMS_MAX {
        connections -= 1024;
    }
    connections
}

/// See the [module](self).
pub(super) struct StateLookup {
    pub(super) service: StateService<()>,
    secret: IndexSecret,
    /// Live peers that have a state service.
    peers: NodeSet,
    unindexed: BTreeSet<Tuple>,
    /// The message that is being sent, and who has not received it yet.
    sending: Vec<u8>,
    receivers: NodeSet,
    status: StateServiceStatus,
}

impl StateLookup {
    /// That of a worker without connections, where so many packets may wait. `incarnation` differs from that of former runs of the process.
    ///
    /// # Errors
    /// There are more connections than [`state_service_connections_max`].
    pub(super) fn new(
        config: StateServiceConfig,
        connections_max: u32,
        packets_max: usize,
        incarnation: u32,
    ) -> Result<Self, ShapeError> {
        let secret = IndexSecret::new(config.key);
        let limits = LookupLimits { packets_max: config.limits.packets_max.min(packets_max), ..config.limits };
        let items = index_items(connections_max.into());
        Ok(Self {
            service: StateService::new(secret, items, incarnation, limits)?,
            secret,
            peers: NodeSet::EMPTY,
            unindexed: BTreeSet::new(),
            sending: Vec::new(),
            receivers: NodeSet::EMPTY,
            status: StateServiceStatus::default(),
        })
    }

    /// Whether there is a peer to look connections up at.
    pub(super) const fn has_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Whether messages of this peer count.
    pub(super) const fn is_peer(&self, node: NodeId) -> bool {
        self.peers.contains(node)
    }

    /// The live peers that have a state service are these from now on.
    pub(super) fn set_peers(&mut self, now: Instant, peers: NodeSet) {
        let (gone, new) = (self.peers.without(peers), peers.without(self.peers));
        self.peers = peers;
        self.receivers = self.receivers.without(gone);
        gone.iter().for_each(|node| self.service.set_alive(now, node, false));
        new.iter().for_each(|node| self.service.set_alive(now, node, true));
    }

    /// Looks up the connection of a packet with this tuple, which is not in the table. `is_fragment`: the packet shows too little of itself
    /// to move the connection here.
    pub(super) fn look_up(&mut self, now: Instant, wanted: Tuple, may_begin: bool, is_fragment: bool) -> Lookup<()> {
        let key = self.secret.key(wanted);
        if is_fragment {
            self.service.lookup_copy(now, key, (), may_begin)
        } else {
            self.service.lookup(now, key, (), Held::Nothing, may_begin)
        }
    }

    /// A connection has entered the table.
    pub(super) fn note_entered(&mut self, connection: &Connection) {
        for tuple in [connection.original, connection.reply] {
            if self.service.note_entered(&self.secret.key(tuple)).is_err() {
                self.unindexed.insert(tuple);
            }
        }
    }

    /// A connection has left the table.
    pub(super) fn note_left(&mut self, connection: &Connection) {
        for tuple in [connection.original, connection.reply] {
            if !self.unindexed.remove(&tuple) {
                self.service.note_left(&self.secret.key(tuple));
            }
        }
    }

    /// A message of a peer has been received.
    pub(super) const fn note_received(&mut self, message: &[u8]) {
        self.status.received += 1;
        self.status.received_bytes += message.len() as u64;
    }

    /// Writes the next message over `buffer`, and returns who receives it.
    pub(super) fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<NodeId> {
        while self.receivers.is_empty() {
            self.sending.clear();
            self.receivers = match self.service.poll_transmit(now, &mut self.sending)? {
                Receiver::All => self.peers,
                Receiver::Node(node) if self.peers.contains(node) => [node].into_iter().collect(),
                Receiver::Node(_) => NodeSet::EMPTY,
            };
        }
        let to = self.receivers.iter().next()?;
        self.receivers.remove(to);
        buffer.clear();
        buffer.extend_from_slice(&self.sending);
        self.status.sent += 1;
        self.status.sent_bytes += buffer.len() as u64;
        Some(to)
    }

    /// How it stands.
    pub(super) fn status(&self) -> StateServiceStatus {
        let indexes = self.peers.iter().filter(|node| self.service.has_index(*node)).count();
        StateServiceStatus {
            lookup: self.service.counters(),
            waiting: self.service.waiting(),
            peers: self.peers.len(),
            indexes: indexes as u32,
            unindexed: self.unindexed.len(),
            ..self.status
        }
    }
}

/// As which a packet is dropped that the state service drops.
pub(super) const fn drop_reason(reason: LookupDrop) -> DropReason {
    match reason {
        LookupDrop::Unknown => DropReason::UnknownConnection,
        LookupDrop::WaitingFull | LookupDrop::PullBudget | LookupDrop::QueryBudget => DropReason::LookupLimit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_has_room_for_the_most_connections_and_not_for_more() {
        let most = state_service_connections_max();
        let config = StateServiceConfig { key: [1, 2], limits: LookupLimits::default() };
        assert!(index_items(most) <= ITEMS_MAX && most > ITEMS_MAX - ITEMS_MAX / 100);
        assert!(StateLookup::new(config, u32::try_from(ITEMS_MAX).unwrap(), 16, 1).is_err());
    }
}
