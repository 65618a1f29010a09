//! A master's filter, and the peers that are told it.

use alloc::vec::Vec;

use filters::Shape;
use filters::memory::MARKS_MAX;
use flow::{Instant, NodeId, Tuple};

use super::cell::CellState;
use super::common::Common;
use super::config::{CompactConfig, CompactConfigError};
use super::error::CompactError;
use super::schedule::Schedule;
use super::source::Source;
use super::status::CompactSenderStatus;
use super::telling::Telling;
use super::wire::{self, Announcement};
use crate::symbol::Coding;

/// Tells every peer the filter of this node's connections, and keeps theirs equal to it.
///
/// Whoever owns it calls [`CompactSender::insert`], [`CompactSender::modify`] and [`CompactSender::remove`] as connections
/// change, and at the end of a batch [`CompactSender::poll_transmit`] for each peer until it is false. Peers' answers go to
/// [`CompactSender::handle_datagram`], and when [`CompactSender::poll_timeout`] has come, [`CompactSender::handle_timeout`] is
/// called; after each of the two, `poll_transmit` again.
pub struct CompactSender {
    config: CompactConfig,
    common: Common,
    pub(super) source: Source,
    schedule: Schedule,
    tellings: Vec<Telling>,
    bad_datagrams: u64,
}

impl CompactSender {
    /// An empty filter that these nodes are to be told.
    ///
    /// # Errors
    /// There is no such filter, or there are too many peers.
    pub fn new(config: CompactConfig, peers: &[NodeId]) -> Result<Self, CompactConfigError> {
        config.check()?;
        Self::with_source(config, config.shape(), Source::new(&config)?, peers)
    }

    /// Tells these nodes a filter that is there already.
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
        let tellings = peers.iter().map(|peer| Telling::new(*peer, &common, mark(&mut source))).collect();
        let schedule = Schedule::new(config.update);
        Ok(Self { config, common, source, schedule, tellings, bad_datagrams: 0 })
    }

    /// Its configuration.
    #[must_use]
    pub const fn config(&self) -> &CompactConfig {
        &self.config
    }

    pub(super) const fn common(&self) -> &Common {
        &self.common
    }

    /// These bytes were told each peer by other means, and count as if they had been told here: they come off the budget.
    pub fn charge(&mut self, now: Instant, bytes: usize) {
        self.tellings.iter_mut().for_each(|telling| telling.charge(now, bytes));
    }

    /// From when on others may use what this filter leaves of its budget: nothing of it waits to be told then. `None` while
    /// something waits for it, or nobody is told, and without a budget.
    #[must_use]
    pub fn spare_budget_at(&self) -> Option<Instant> {
        let mut told = self.tellings.iter().filter(|telling| telling.is_told());
        let first = told.next()?.spare_budget_at(self.source.memory())?;
        told.try_fold(first, |at, telling| Some(at.max(telling.spare_budget_at(self.source.memory())?)))
    }

    /// A connection begins. One that finds no room is counted, and is not in the filter until it does.
    pub fn insert(&mut self, original: &Tuple, state: CellState) {
        self.source.insert(original, state);
    }

    /// A connection's state changes. `before` is the one that was last said here.
    pub fn modify(&mut self, original: &Tuple, before: CellState, after: CellState) {
        self.source.modify(original, before, after);
    }

    /// A connection ends. `state` is the one that was last said here.
    pub fn remove(&mut self, original: &Tuple, state: CellState) {
        self.source.remove(original, state);
    }

    /// A peer's answer.
    ///
    /// # Errors
    /// It cannot be used; nothing of it was.
    pub fn handle_datagram(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), CompactError> {
        let Self { common, source, tellings, .. } = self;
        let result = match tellings.iter_mut().find(|telling| telling.peer == from) {
            Some(telling) => telling.handle(now, common, source, datagram),
            None => Err(CompactError::UnknownPeer(from)),
        };
        self.bad_datagrams += u64::from(result.is_err());
        result
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Self { source, schedule, tellings, .. } = self;
        let waiting = tellings.iter().filter(|telling| telling.has_changes(source.memory()));
        let changes = waiting.map(|telling| telling.changes(source)).max();
        if schedule.is_due(now, changes, source.entries) {
            self.flush(now);
        }
    }

    /// Tells what has changed up to now, whatever the rule: before the node leaves, say.
    pub fn flush(&mut self, now: Instant) {
        let Self { common, source, tellings, .. } = self;
        for telling in tellings.iter_mut().filter(|telling| telling.is_told()) {
            telling.begin_update(now, common, source);
        }
        self.schedule.note(now);
    }

    /// Writes a datagram for a peer to `out`, replacing what is there; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, to: NodeId, out: &mut Vec<u8>) -> bool {
        out.clear();
        self.handle_timeout(now);
        let Self { common, source, tellings, .. } = self;
        let telling = tellings.iter_mut().find(|telling| telling.peer == to);
        telling.is_some_and(|telling| telling.poll(now, common, source, out))
    }

    /// When [`CompactSender::handle_timeout`] is to be called, if nothing comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let has_changes = self.tellings.iter().any(|telling| telling.has_changes(self.source.memory()));
        let update_at = self.schedule.at().filter(|_| has_changes);
        self.tellings.iter().filter_map(Telling::timeout).chain(update_at).min()
    }

    /// A peer is away: it is told nothing until it is back. What it had is kept in mind.
    pub fn peer_lost(&mut self, peer: NodeId) {
        self.tellings.iter_mut().filter(|telling| telling.peer == peer).for_each(|telling| telling.is_away = true);
    }

    /// A peer is back. If it still has its filter, it is told what changed since; if not, it says so and is told everything.
    pub fn peer_back(&mut self, now: Instant, peer: NodeId) {
        let telling = self.tellings.iter_mut().find(|telling| telling.peer == peer);
        telling.into_iter().filter(|telling| telling.is_away).for_each(|telling| telling.return_at(now));
    }

    /// A peer is back that was started anew: it has nothing, and late answers of its former self count no more.
    pub fn peer_restarted(&mut self, now: Instant, peer: NodeId) {
        let Self { common, source, tellings, .. } = self;
        for telling in tellings.iter_mut().filter(|telling| telling.peer == peer) {
            telling.is_away = false;
            telling.restart(now, common, source, 0);
        }
    }

    /// Whether a peer has been told a whole filter and is there.
    #[must_use]
    pub fn is_told(&self, peer: NodeId) -> bool {
        self.tellings.iter().any(|telling| telling.peer == peer && telling.is_told())
    }

    /// Whether nothing waits to be told to a peer, and nothing that was told waits for its acknowledgement.
    #[must_use]
    pub fn is_settled(&self, peer: NodeId) -> bool {
        let telling = self.tellings.iter().find(|telling| telling.peer == peer);
        telling.is_some_and(|telling| telling.is_settled(self.source.memory()))
    }

    /// Insertions that found no room, since it was made.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.source.refused
    }

    /// The share of its cells that is taken in each level of the filter, the largest level first; nothing for filters without levels.
    /// All cells are looked at.
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
        let of_peers: usize = self.tellings.iter().map(|telling| telling.bytes(&self.common)).sum();
        let status = CompactSenderStatus {
            entries: self.source.entries,
            refused: self.source.refused,
            absent: self.source.absent,
            beyond: self.source.beyond,
            bad_datagrams: self.bad_datagrams,
            memory_bytes: (self.source.bytes() + of_peers) as u64,
            ..CompactSenderStatus::default()
        };
        self.tellings.iter().fold(status, |status, telling| {
            let counters = &telling.counters;
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
                peers_told: status.peers_told + u64::from(telling.is_told()),
                peers_refusing: status.peers_refusing + u64::from(telling.is_refused),
                ..status
            }
        })
    }
}
