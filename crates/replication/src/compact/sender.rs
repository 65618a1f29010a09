//! The filter of a node's own connections, and its streams to the peers.

use alloc::vec::Vec;

use filters::Shape;
use filters::memory::MARKS_MAX;
use flow::{Instant, NodeId, Tuple};

use super::cell::CellState;
use super::common::Common;
use super::config::{CompactConfig, CompactConfigError};
use super::error::CompactError;
use super::outgoing::Outgoing;
use super::schedule::Schedule;
use super::source::Source;
use super::status::CompactSenderStatus;
use super::wire::{self, Announcement};
use crate::symbol::Coding;

/// Sends the filter of this node's connections to every peer, and keeps theirs equal to it.
///
/// The owner calls [`CompactSender::insert`], [`CompactSender::modify`] and [`CompactSender::remove`] as connections
/// change, and at the end of a batch [`CompactSender::poll_transmit`] for each peer until it is false. Peers' answers go to
/// [`CompactSender::handle_datagram`], and when [`CompactSender::poll_timeout`] has come, [`CompactSender::handle_timeout`] is
/// called; after each of the two, `poll_transmit` again.
pub struct CompactSender {
    config: CompactConfig,
    common: Common,
    pub(super) source: Source,
    schedule: Schedule,
    peers: Vec<Outgoing>,
    bad_datagrams: u64,
}

impl CompactSender {
    /// An empty filter that is replicated to these nodes.
    ///
    /// # Errors
    /// There is no such filter, or there are too many peers.
    pub fn new(config: CompactConfig, peers: &[NodeId]) -> Result<Self, CompactConfigError> {
        config.check()?;
        Self::with_source(config, config.shape(), Source::new(&config)?, peers)
    }

    /// As [`CompactSender::new`], with a filter that exists already.
    pub(super) fn with_source(
        config: CompactConfig,
        shape: Shape,
        source: Source,
        peers: &[NodeId],
    ) -> Result<Self, CompactConfigError> {
        if peers.len() > MARKS_MAX {
            return Err(CompactConfigError::TooManyPeers(peers.len()));
        }
        let CompactConfig { representation, symbols, secret, .. } = config;
        let announcement = Announcement { representation, symbols, secret, shape };
        let words = shape.words()? as u32;
        let common = Common {
            announcement,
            epoch: announcement.epoch(),
            coding: Coding::of(shape, config.symbols),
            words,
            section_words: wire::section_words(words),
            datagram_bytes_max: config.datagram_bytes_max,
            budget_of_a_peer: config.budget_bytes_per_second.map(|bytes| bytes / peers.len().max(1) as u64),
        };
        let mut source = source;
        let mark = |source: &mut Source| source.memory_mut().mark().expect("as many peers as there are marks");
        let peers = peers.iter().map(|peer| Outgoing::new(*peer, &common, mark(&mut source))).collect();
        let schedule = Schedule::new(config.update);
        Ok(Self { config, common, source, schedule, peers, bad_datagrams: 0 })
    }

    /// Its configuration.
    #[must_use]
    pub const fn config(&self) -> &CompactConfig {
        &self.config
    }

    pub(super) const fn common(&self) -> &Common {
        &self.common
    }

    /// These bytes were sent to each peer by other means. They count against the budget.
    pub fn charge(&mut self, now: Instant, bytes: usize) {
        self.peers.iter_mut().for_each(|outgoing| outgoing.charge(now, bytes));
    }

    /// From when on others may use the rest of the budget: no word of the filter waits then. `None` while words wait, without a
    /// peer that receives changes, and without a budget.
    #[must_use]
    pub fn spare_budget_at(&self) -> Option<Instant> {
        let mut complete = self.peers.iter().filter(|outgoing| outgoing.is_complete());
        let first = complete.next()?.spare_budget_at(self.source.memory())?;
        complete.try_fold(first, |at, outgoing| Some(at.max(outgoing.spare_budget_at(self.source.memory())?)))
    }

    /// A connection begins. One for which the filter has no room is counted, and inserted once there is room.
    pub fn insert(&mut self, original: &Tuple, state: CellState) {
        self.note_urgency(original, None, state);
        self.source.insert(original, state);
    }

    /// A connection's state changes. `before` is the state that was last given here.
    pub fn modify(&mut self, original: &Tuple, before: CellState, after: CellState) {
        self.note_urgency(original, Some(before), after);
        self.source.modify(original, before, after);
    }

    fn note_urgency(&mut self, original: &Tuple, before: Option<CellState>, after: CellState) {
        if self.source.is_establishment(original.protocol, before, after) {
            self.schedule.note_establishment();
        }
    }

    /// Whether this change of state establishes the connection for the peers.
    #[must_use]
    pub fn is_establishment(&self, original: &Tuple, before: CellState, after: CellState) -> bool {
        self.source.is_establishment(original.protocol, Some(before), after)
    }

    /// A connection ends. `state` is the one that was last given here.
    pub fn remove(&mut self, original: &Tuple, state: CellState) {
        self.source.remove(original, state);
    }

    /// A peer's answer.
    ///
    /// # Errors
    /// It cannot be used; nothing of it was.
    pub fn handle_datagram(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), CompactError> {
        let Self { common, source, peers, .. } = self;
        let result = match peers.iter_mut().find(|outgoing| outgoing.peer == from) {
            Some(outgoing) => outgoing.handle(now, common, source, datagram),
            None => Err(CompactError::UnknownPeer(from)),
        };
        self.bad_datagrams += u64::from(result.is_err());
        result
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Self { source, schedule, peers, .. } = self;
        let waiting = peers.iter().filter(|outgoing| outgoing.has_changes(source.memory()));
        let changes = waiting.map(|outgoing| outgoing.changes(source)).max();
        if schedule.is_due(now, changes, source.entries) {
            self.flush(now);
        }
    }

    /// Sends all changes up to now, whatever the update rule: for example before the node leaves.
    pub fn flush(&mut self, now: Instant) {
        let Self { common, source, peers, .. } = self;
        for outgoing in peers.iter_mut().filter(|outgoing| outgoing.is_complete()) {
            outgoing.begin_update(now, common, source);
        }
        self.schedule.note(now);
    }

    /// Writes a datagram for a peer to `out`, replacing what is there; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, to: NodeId, out: &mut Vec<u8>) -> bool {
        out.clear();
        self.handle_timeout(now);
        let Self { common, source, peers, .. } = self;
        let outgoing = peers.iter_mut().find(|outgoing| outgoing.peer == to);
        outgoing.is_some_and(|outgoing| outgoing.poll(now, common, source, out))
    }

    /// When [`CompactSender::handle_timeout`] is to be called, if nothing comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let has_changes = self.peers.iter().any(|outgoing| outgoing.has_changes(self.source.memory()));
        let update_at = self.schedule.at().filter(|_| has_changes);
        self.peers.iter().filter_map(Outgoing::timeout).chain(update_at).min()
    }

    /// A peer is unreachable: nothing is sent to it until it is back.
    pub fn peer_lost(&mut self, peer: NodeId) {
        self.peers.iter_mut().filter(|outgoing| outgoing.peer == peer).for_each(|outgoing| outgoing.is_away = true);
    }

    /// A peer is reachable again. If it still has the filter, it receives the changes since; if not, it asks for the whole filter.
    pub fn peer_back(&mut self, now: Instant, peer: NodeId) {
        let outgoing = self.peers.iter_mut().find(|outgoing| outgoing.peer == peer);
        outgoing.into_iter().filter(|outgoing| outgoing.is_away).for_each(|outgoing| outgoing.return_at(now));
    }

    /// A peer has restarted: it has no filter, and late answers of its former process do not count.
    pub fn peer_restarted(&mut self, now: Instant, peer: NodeId) {
        let Self { common, source, peers, .. } = self;
        for outgoing in peers.iter_mut().filter(|outgoing| outgoing.peer == peer) {
            outgoing.is_away = false;
            outgoing.restart(now, common, source, 0);
        }
    }

    /// Whether a peer has the whole filter and is reachable.
    #[must_use]
    pub fn is_complete_at(&self, peer: NodeId) -> bool {
        self.peers.iter().any(|outgoing| outgoing.peer == peer && outgoing.is_complete())
    }

    /// Whether a peer has acknowledged the filter as it is.
    #[must_use]
    pub fn is_settled(&self, peer: NodeId) -> bool {
        let outgoing = self.peers.iter().find(|outgoing| outgoing.peer == peer);
        outgoing.is_some_and(|outgoing| outgoing.is_settled(self.source.memory()))
    }

    /// Insertions for which there was no room, in all.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.source.refused
    }

    /// The share of cells taken in each level, the largest level first; empty for filters without levels. Reads all cells.
    #[must_use]
    pub fn loads_by_level(&self) -> Vec<f64> {
        let Shape::MultiLevel(shape, _) = self.config.shape() else { return Vec::new() };
        let (Some(items), Ok(buckets)) = (self.source.items_by_level(), shape.buckets()) else { return Vec::new() };
        let cells = buckets.into_iter().map(|buckets| buckets * u64::from(shape.cells_per_bucket));
        items.zip(cells).filter(|(_, cells)| *cells > 0).map(|(items, cells)| items as f64 / cells as f64).collect()
    }

    /// Its figures.
    #[must_use]
    pub fn status(&self) -> CompactSenderStatus {
        let of_peers: usize = self.peers.iter().map(|outgoing| outgoing.bytes(&self.common)).sum();
        let status = CompactSenderStatus {
            entries: self.source.entries,
            refused: self.source.refused,
            absent: self.source.absent,
            beyond: self.source.beyond,
            bad_datagrams: self.bad_datagrams,
            memory_bytes: (self.source.bytes() + of_peers) as u64,
            ..CompactSenderStatus::default()
        };
        self.peers.iter().fold(status, |status, outgoing| {
            let counters = &outgoing.counters;
            CompactSenderStatus {
                bytes: status.bytes + counters.bytes,
                datagrams: status.datagrams + counters.datagrams,
                whole_updates: status.whole_updates + counters.whole_updates,
                incremental_updates: status.incremental_updates + counters.incremental_updates,
                words: status.words + counters.words,
                lost: status.lost + counters.lost,
                probes: status.probes + counters.probes,
                drifts: status.drifts + counters.drifts,
                beginnings: status.beginnings + counters.beginnings,
                peers_with_filter: status.peers_with_filter + u64::from(outgoing.is_complete()),
                peers_refusing: status.peers_refusing + u64::from(outgoing.is_refused),
                ..status
            }
        })
    }
}
