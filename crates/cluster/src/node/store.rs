//! The node's connections as a replication session sees them.

use alloc::vec::Vec;

use flow::connection::flags;
use flow::table::Slot;
use flow::{Direction, Instant, NodeId, Tuple};
use replication::representation::precise::{self, EndCause, Ended};
use replication::{ApplyError, Handle, Holding, Item, Kind, Resync, Store, representation};

use super::replication_set::compact::Cells;
use super::replication_set::{Backups, Deferral, Unanswered};
use crate::pipeline::{Applied, ChainStates, Pipeline};

/// Counters of what peers replicated.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaCounters {
    /// Replicas entered or renewed.
    pub taken: u64,
    /// Replicas removed because their owner ended them.
    pub removed: u64,
    /// Word that was older than what is known.
    pub stale: u64,
    /// Replicas that contradict a connection of which this node knows better.
    pub conflicts: u64,
    /// Replicas for which the table had no room.
    pub no_room: u64,
    /// Word of connections that have ended here.
    pub ended: u64,
}

/// The table, seen by the session with one peer.
pub(super) struct ReplicaStore<'a> {
    pub(super) node: NodeId,
    pub(super) peer: NodeId,
    pub(super) pipeline: &'a mut Pipeline,
    pub(super) resync: &'a mut Resync,
    pub(super) counters: &'a mut ReplicaCounters,
    /// This node holds the addresses: it claims all connections, also those that no packet came for yet.
    pub(super) claims_all: bool,
    /// With compact replication: which connections are replicated precisely. The session knows nothing of the others.
    pub(super) cells: Option<&'a mut Cells>,
    /// The backups of each connection; `None`: all peers.
    pub(super) backups: Option<&'a mut Backups>,
    /// Which connections are not replicated yet, for their age.
    pub(super) deferral: Option<&'a Deferral>,
    /// As above, because they are not answered.
    pub(super) unanswered: &'a Unanswered,
}

impl ReplicaStore<'_> {
    /// The connection in the slot is replicated precisely.
    fn is_carried(&self, slot: Slot) -> bool {
        self.cells.as_ref().is_none_or(|cells| cells.is_precise(slot))
    }

    /// The connection in the slot is replicated precisely, and to this peer.
    fn is_carried_to_peer(&self, slot: Slot) -> bool {
        let connection = || self.pipeline.connection(slot);
        let is_meant =
            |backups: &Backups| connection().is_some_and(|it| backups.is_meant(self.node, self.peer, slot, it));
        self.is_carried(slot) && self.backups.as_deref().is_none_or(is_meant)
    }

    /// The peer has another state of a connection that this node owns: it must learn of this node's, backup or not.
    fn note_contradicted(&mut self, original: &Tuple) {
        let Some(backups) = self.backups.as_deref_mut() else { return };
        let Some((slot, Direction::Original)) = self.pipeline.lookup(original) else { return };
        if self.pipeline.connection(slot).is_some_and(|connection| connection.owner == self.node) {
            backups.add(slot, self.peer);
        }
    }

    /// No live node owns the connection.
    fn may_claim(&self, slot: Slot) -> bool {
        !self.pipeline.connection(slot).is_some_and(|connection| self.pipeline.has_live_owner(connection))
    }
}

impl Store for ReplicaStore<'_> {
    fn encode(&mut self, now: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
        let slot = Slot(handle.0);
        if !self.is_carried(slot) {
            return false;
        }
        if self.claims_all && self.may_claim(slot) {
            self.pipeline.claim(now, slot);
        }
        let Some(connection) = self.pipeline.connection(slot) else { return false };
        if connection.owner != self.node {
            return false;
        }
        precise::encode(now, connection, &ChainStates(self.pipeline.chain()), out);
        self.pipeline.encode_relations(now, connection, out);
        true
    }

    fn apply(&mut self, now: Instant, from: NodeId, _kind: Kind, attributes: &[u8]) -> Result<(), ApplyError> {
        let mut copy = precise::decode(now, attributes, &ChainStates(self.pipeline.chain()))?;
        let relations = precise::relations(attributes)?;
        if self.resync.epoch() {
            copy.flags |= flags::RESYNCED;
        }
        let mut applied = self.pipeline.replicas().apply(now, from, copy);
        // One of two connections with a tuple in common has to go: packets go to that of the node that holds the addresses,
        // and where both hold some, that of the lower number stays.
        let yields = if self.pipeline.is_sharing() { from < self.node } else { !self.claims_all };
        if applied == Applied::Conflict && yields {
            self.counters.conflicts += 1;
            self.pipeline.replicas().end_conflicting(&copy);
            applied = self.pipeline.replicas().apply(now, from, copy);
        }
        self.note_contradicted(&copy.original);
        match applied {
            Applied::Taken => {
                self.counters.taken += 1;
                self.pipeline.apply_relations(now, &copy.original, &relations)?;
            }
            Applied::Stale => self.counters.stale += 1,
            Applied::Conflict => self.counters.conflicts += 1,
            Applied::Ended => self.counters.ended += 1,
            Applied::Full => {
                self.counters.no_room += 1;
                self.resync.note_refused(now);
                return Err(ApplyError::Full);
            }
        }
        Ok(())
    }

    fn delete(&mut self, now: Instant, from: NodeId, attributes: &[u8]) -> Result<(), ApplyError> {
        let ended = precise::decode_ended(attributes)?;
        if ended.cause == EndCause::TimedOut && self.pipeline.replicas().refuse_end(now, from, &ended.original) {
            return Ok(());
        }
        if self.pipeline.replicas().delete(now, from, &ended) {
            self.counters.removed += 1;
        }
        Ok(())
    }

    fn find(&self, attributes: &[u8]) -> Option<Handle> {
        let ended = precise::decode_ended(attributes).ok()?;
        let (slot, direction) = self.pipeline.lookup(&ended.original)?;
        let is_ours = self.pipeline.connection(slot).is_some_and(|connection| connection.owner == self.node);
        let is_own = is_ours && direction == Direction::Original && self.is_carried_to_peer(slot);
        is_own.then_some(Handle(slot.0))
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        let mut slot = Slot(from.0);
        loop {
            slot = self.pipeline.table().next_occupied(slot)?;
            let is_ours = self.pipeline.connection(slot).is_some_and(|connection| connection.owner == self.node);
            let is_own = is_ours || (self.claims_all && self.may_claim(slot));
            if is_own
                && self.is_carried_to_peer(slot)
                && !self.unanswered.is_withheld(slot)
                && !self.deferral.is_some_and(|deferral| deferral.is_deferred(slot))
            {
                return Some(Handle(slot.0));
            }
            slot = Slot(slot.0 + 1);
        }
    }

    fn resync_started(&mut self, _now: Instant, _from: NodeId) {
        self.resync.start();
    }

    fn resync_completed(&mut self, _now: Instant, _from: NodeId) {
        self.resync.complete();
    }

    fn item(&self, key: u64, handle: Handle) -> Item {
        self.pipeline.connection(Slot(handle.0)).map_or(Item::NONE, |connection| representation::item(key, connection))
    }

    fn holding(&self, key: u64, peer: NodeId, handle: Handle) -> Holding {
        holding(self.pipeline, self.node, peer, key, Slot(handle.0))
    }

    fn slots_used(&self) -> u32 {
        self.pipeline.table().slots_used()
    }

    fn room(&self) -> u32 {
        self.pipeline.table().capacity() - self.pipeline.table().len()
    }

    fn name_copy(&self, handle: Handle, out: &mut Vec<u8>) -> bool {
        let Some(connection) = self.pipeline.connection(Slot(handle.0)) else { return false };
        precise::encode_ended(&Ended::from(connection), out);
        true
    }

    fn answer_for(&mut self, now: Instant, peer: NodeId, attributes: &[u8]) -> Option<Handle> {
        let original = precise::decode_ended(attributes).ok()?.original;
        let (slot, direction) = self.pipeline.lookup(&original)?;
        let owner = self.pipeline.connection(slot)?.owner;
        if direction == Direction::Original && owner == peer {
            self.pipeline.claim(now, slot);
            self.note_contradicted(&original);
        }
        self.find(attributes)
    }
}

/// What lies in a slot, as the session of `node` with `peer` sees it.
pub(super) fn holding(pipeline: &Pipeline, node: NodeId, peer: NodeId, key: u64, slot: Slot) -> Holding {
    match pipeline.connection(slot) {
        None => Holding::Nothing,
        Some(connection) if connection.owner == node => Holding::Own,
        Some(connection) if connection.owner == peer => Holding::Peers(representation::item(key, connection)),
        Some(_) => Holding::Others,
    }
}
