//! The connections for a session with a native peer.

use alloc::vec::Vec;

use flow::{Instant, NodeId};
use replication::representation::kernel;
use replication::{ApplyError, Handle, Holding, Item, Kind, Resync, Store};

use super::config::SyncRole;
use super::connections::{Connections, origin};
use super::mirror::{Record, flag};

/// The connections for the session with one peer.
pub(super) struct NativeStore<'a> {
    pub(super) connections: &'a mut Connections,
    pub(super) resync: &'a mut Resync,
}

pub(super) fn item(key: u64, record: &Record) -> Item {
    kernel::item(key, &record.original(), &record.reply(), record.zone(), record.version)
}

/// The content of a slot for the session of `node` with `peer`.
pub(super) fn holding(connections: &Connections, key: u64, peer: NodeId, handle: Handle) -> Holding {
    match connections.mirror.get(handle) {
        None => Holding::Nothing,
        Some(record) if record.is_any(flag::GONE | flag::ENDING) => Holding::Nothing,
        Some(record) if connections.is_own(record) => Holding::Own,
        Some(record) if record.owner() == peer => Holding::Peers(item(key, record)),
        Some(_) => Holding::Others,
    }
}

impl Store for NativeStore<'_> {
    fn encode(&mut self, _now: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
        let Some(record) = self.connections.mirror.get(handle) else { return false };
        if !self.connections.is_own(record) || !record.is_any(flag::REPLICATED) {
            return false;
        }
        kernel::encode(&record.entry(), origin(record), record.expectations(), out);
        true
    }

    fn apply(&mut self, now: Instant, from: NodeId, _kind: Kind, attributes: &[u8]) -> Result<(), ApplyError> {
        let update = kernel::decode(attributes)?;
        let result = self.connections.apply(now, from, self.resync.epoch(), &update);
        result.inspect_err(|_| self.resync.note_refused(now))
    }

    fn delete(&mut self, _now: Instant, from: NodeId, attributes: &[u8]) -> Result<(), ApplyError> {
        let ended = kernel::decode_ended(attributes)?;
        self.connections.delete(from, &ended);
        Ok(())
    }

    fn find(&self, attributes: &[u8]) -> Option<Handle> {
        let ended = kernel::decode_ended(attributes).ok()?;
        let handle = self.connections.mirror.find(&ended.original, ended.zone)?;
        self.connections.mirror.get(handle).filter(|record| self.connections.is_own(record)).map(|_| handle)
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        self.connections.next_replicated(from)
    }

    fn resync_started(&mut self, _now: Instant, _from: NodeId) {
        self.resync.start();
    }

    fn resync_completed(&mut self, _now: Instant, _from: NodeId) {
        self.resync.complete();
    }

    fn item(&self, key: u64, handle: Handle) -> Item {
        self.connections.mirror.get(handle).map_or(Item::NONE, |record| item(key, record))
    }

    fn holding(&self, key: u64, peer: NodeId, handle: Handle) -> Holding {
        holding(self.connections, key, peer, handle)
    }

    fn slots_used(&self) -> u32 {
        self.connections.mirror.slots_used()
    }

    fn room(&self) -> u32 {
        self.connections.mirror.room()
    }

    fn name_copy(&self, handle: Handle, out: &mut Vec<u8>) -> bool {
        let Some(record) = self.connections.mirror.get(handle) else { return false };
        kernel::encode_ended(&self.connections.name(record), out);
        true
    }

    fn answer_for(&mut self, _now: Instant, peer: NodeId, attributes: &[u8]) -> Option<Handle> {
        let ended = kernel::decode_ended(attributes).ok()?;
        let handle = self.connections.mirror.find(&ended.original, ended.zone)?;
        let is_the_peers = self.connections.mirror.get(handle)?.owner() == peer;
        if is_the_peers {
            // Each would consider the other its owner. Where both would claim it, versions decide.
            let is_primary = self.connections.role == SyncRole::Primary;
            self.connections.take_over(handle, !is_primary);
        }
        self.find(attributes)
    }
}
