//! Connections that are a name and a value.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use flow::wire::tlv::TlvError;
use flow::{Instant, NodeId};

use crate::message::Kind;
use crate::session::{ApplyError, Handle, SessionConfig, Store};

pub(super) const SLOTS: u32 = 64;

pub(super) fn small_config() -> SessionConfig {
    SessionConfig { connections_max: SLOTS, ..SessionConfig::default() }
}

/// A node's own connections by slot, and its copies of the peer's by name.
pub(super) struct Table {
    pub(super) slots: Vec<Option<(u32, u32)>>,
    pub(super) copies: BTreeMap<u32, u32>,
    /// What came, in the order in which it came.
    pub(super) applied: Vec<(Kind, u32, u32)>,
    unrefreshed: BTreeSet<u32>,
    pub(super) padding_bytes: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            slots: std::vec![None; SLOTS as usize],
            copies: BTreeMap::new(),
            applied: Vec::new(),
            unrefreshed: BTreeSet::new(),
            padding_bytes: 0,
        }
    }
}

impl Table {
    /// The own connections by name.
    pub(super) fn own(&self) -> BTreeMap<u32, u32> {
        self.slots.iter().flatten().copied().collect()
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, ApplyError> {
    let bytes = bytes.get(at..at + 4).ok_or(ApplyError::Malformed(TlvError::Length))?;
    Ok(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
}

impl Store for Table {
    fn encode(&mut self, _: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
        let Some((name, value)) = self.slots[handle.0 as usize] else { return false };
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
        out.resize(out.len() + self.padding_bytes, 0);
        true
    }

    fn apply(&mut self, _: Instant, _: NodeId, kind: Kind, bytes: &[u8]) -> Result<(), ApplyError> {
        let (name, value) = (word(bytes, 0)?, word(bytes, 4)?);
        self.copies.insert(name, value);
        self.unrefreshed.remove(&name);
        self.applied.push((kind, name, value));
        Ok(())
    }

    fn delete(&mut self, _: Instant, _: NodeId, bytes: &[u8]) -> Result<(), ApplyError> {
        self.copies.remove(&word(bytes, 0)?);
        Ok(())
    }

    fn find(&self, bytes: &[u8]) -> Option<Handle> {
        let name = word(bytes, 0).ok()?;
        let slot = self.slots.iter().position(|slot| slot.is_some_and(|(own, _)| own == name))?;
        Some(Handle(slot as u32))
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        (from.0..SLOTS).find(|slot| self.slots[*slot as usize].is_some()).map(Handle)
    }

    fn resync_started(&mut self, _: Instant, _: NodeId) {
        self.unrefreshed = self.copies.keys().copied().collect();
    }

    fn resync_completed(&mut self, _: Instant, _: NodeId) {
        for name in core::mem::take(&mut self.unrefreshed) {
            self.copies.remove(&name);
        }
    }
}
