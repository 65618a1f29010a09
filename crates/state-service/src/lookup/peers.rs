//! The live peers, and what is known of their indexes.

use alloc::collections::BTreeMap;
use core::time::Duration;

use filters::{ExchangeError, KeyHash};
use flow::{Instant, NodeId, NodeSet};

use crate::index::{Applied, PeerIndex};
use crate::message::{IndexPart, Known, Side};

/// A live peer.
#[derive(Default)]
struct Peer {
    index: PeerIndex,
    alive_since: Instant,
    /// An update of its index was lost.
    is_behind: bool,
    /// When its index was requested, or a part of the answer arrived.
    awaited_since: Option<Instant>,
}

impl Peer {
    /// An index of both sides is known.
    fn is_known(&self) -> bool {
        self.index.known().iter().all(|known| known.incarnation != 0)
    }

    /// When the index must be requested. `None`: it is up to date, as far as this node knows.
    fn request_at(&self, timeout: Duration) -> Option<Instant> {
        let is_needed = self.is_behind || !self.is_known();
        is_needed.then(|| self.awaited_since.map_or(Instant::ZERO, |since| since + timeout))
    }
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Peers {
    peers: BTreeMap<NodeId, Peer>,
}

impl Peers {
    /// The peers that are alive.
    pub(super) fn alive(&self) -> NodeSet {
        self.peers.keys().copied().collect()
    }

    /// A peer is alive, or dead: the index of a dead one is forgotten. Returns whether that is new.
    pub(super) fn set_alive(&mut self, now: Instant, node: NodeId, is_alive: bool) -> bool {
        if !is_alive {
            return self.peers.remove(&node).is_some();
        }
        let is_new = NodeSet::from_iter([node]).contains(node) && !self.peers.contains_key(&node);
        if is_new {
            self.peers.insert(node, Peer { alive_since: now, ..Peer::default() });
        }
        is_new
    }

    /// Whether the peer's index has a connection, or a false positive.
    pub(super) fn has(&self, node: NodeId, side: Side, key: KeyHash) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.index.contains(side, key))
    }

    /// The peers whose index has a connection, or a false positive.
    pub(super) fn having(&self, side: Side, key: KeyHash) -> NodeSet {
        self.peers.iter().filter(|(_, peer)| peer.index.contains(side, key)).map(|(node, _)| *node).collect()
    }

    /// Whether an index of both sides of this peer is known.
    pub(super) fn is_known(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(Peer::is_known)
    }

    /// Whether that is so of all peers that have been alive for less than `patience`.
    pub(super) fn are_known(&self, now: Instant, patience: Duration) -> bool {
        self.peers.values().all(|peer| peer.is_known() || now >= peer.alive_since + patience)
    }

    /// What is known of the indexes, of the peers of which something is.
    pub(super) fn known(&self) -> impl Iterator<Item = (NodeId, [Known; 2])> {
        self.peers.iter().filter(|(_, peer)| peer.is_known()).map(|(node, peer)| (*node, peer.index.known()))
    }

    /// Applies a part of an update of a peer's index. `None`: the peer is not alive.
    ///
    /// # Errors
    /// See [`PeerIndex::apply`].
    pub(super) fn apply(
        &mut self,
        now: Instant,
        from: NodeId,
        part: &IndexPart<'_>,
    ) -> Result<Option<Applied>, ExchangeError> {
        let Some(peer) = self.peers.get_mut(&from) else { return Ok(None) };
        let applied = peer.index.apply(part)?;
        let is_answer = part.query != 0;
        match applied {
            Applied::Gap => peer.is_behind = true,
            Applied::Part if is_answer => peer.awaited_since = Some(now),
            // An answer has both sides, and reaches back to the epoch that is known of each.
            Applied::Complete if is_answer => peer.is_behind = false,
            Applied::Part | Applied::Complete => {}
        }
        Ok(Some(applied))
    }

    /// The next peer whose index must be requested by `now`, and what is known of it.
    pub(super) fn poll_request(&mut self, now: Instant, timeout: Duration) -> Option<(NodeId, [Known; 2])> {
        let is_due = |peer: &Peer| peer.request_at(timeout).is_some_and(|at| at <= now);
        let (node, peer) = self.peers.iter_mut().find(|(_, peer)| is_due(peer))?;
        peer.awaited_since = Some(now);
        Some((*node, peer.index.known()))
    }

    /// When [`Peers::poll_request`] has the next one.
    pub(super) fn poll_timeout(&self, timeout: Duration) -> Option<Instant> {
        self.peers.values().filter_map(|peer| peer.request_at(timeout)).min()
    }
}
