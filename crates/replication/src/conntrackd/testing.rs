//! A table in memory, for tests of sessions and for small peers of a real conntrackd.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flow::netfilter::{Entry, Expectation, Tuple};
use flow::{Instant, NodeId};

use super::Table;
use crate::session::{ApplyError, Handle};

/// A node's own connections and expectations, by handle, and its replicas of the peer's.
#[derive(Clone, Default, Debug)]
pub struct MemoryTable {
    /// This node's connections.
    pub connections: Vec<Option<Entry>>,
    /// This node's expectations.
    pub expectations: Vec<Option<Expectation>>,
    /// The peer's connections, by original tuple and zone.
    pub copies: BTreeMap<(Tuple, u16), Entry>,
    /// The peer's expectations, by expected tuple.
    pub expected: BTreeMap<Tuple, Expectation>,
    /// The most replicas that there is room for, if that is limited.
    pub copies_max: Option<usize>,
    /// Where each connection is.
    handles: BTreeMap<(Tuple, u16), Handle>,
    /// How many ends of connections came that were not there.
    pub strange_ends: usize,
}

impl MemoryTable {
    /// Enters a connection of this node, or its newer state.
    pub fn put(&mut self, entry: Entry) -> Handle {
        let key = (entry.original, entry.zone);
        let handle = *self.handles.entry(key).or_insert_with(|| {
            let free = self.connections.iter().position(Option::is_none);
            let index = free.unwrap_or(self.connections.len());
            Handle(index as u32)
        });
        let index = handle.0 as usize;
        if index == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[index] = Some(entry);
        handle
    }

    /// Ends a connection of this node.
    pub fn take(&mut self, original: &Tuple, zone: u16) -> Option<(Handle, Entry)> {
        let handle = self.handles.remove(&(*original, zone))?;
        Some((handle, self.connections[handle.0 as usize].take()?))
    }

    /// Enters an expectation of this node.
    pub fn put_expectation(&mut self, expectation: Expectation) -> Handle {
        let free = self.expectations.iter().position(Option::is_none);
        let index = free.unwrap_or(self.expectations.len());
        if index == self.expectations.len() {
            self.expectations.push(None);
        }
        self.expectations[index] = Some(expectation);
        Handle(index as u32)
    }

    /// Ends an expectation of this node.
    pub fn take_expectation(&mut self, handle: Handle) -> Option<Expectation> {
        self.expectations.get_mut(handle.0 as usize)?.take()
    }

    /// The replica of the peer's connection with the original tuple, in the default zone.
    #[must_use]
    pub fn copy(&self, original: &Tuple) -> Option<&Entry> {
        self.copies.get(&(*original, 0))
    }
}

/// The first handle from `from` on whose place is taken.
fn next<T>(slots: &[Option<T>], from: Handle) -> Option<Handle> {
    let rest = slots.get(from.0 as usize..)?;
    rest.iter().position(Option::is_some).map(|offset| Handle(from.0 + offset as u32))
}

impl Table for MemoryTable {
    fn connection(&mut self, _: Instant, handle: Handle) -> Option<Entry> {
        self.connections.get(handle.0 as usize)?.clone()
    }

    fn find(&self, original: &Tuple, zone: u16) -> Option<Handle> {
        self.handles.get(&(*original, zone)).copied()
    }

    fn apply(&mut self, _: Instant, _: NodeId, entry: &Entry) -> Result<(), ApplyError> {
        let key = (entry.original, entry.zone);
        let is_full = self.copies_max.is_some_and(|max| self.copies.len() >= max);
        if is_full && !self.copies.contains_key(&key) {
            return Err(ApplyError::Full);
        }
        self.copies.insert(key, entry.clone());
        Ok(())
    }

    fn remove(&mut self, _: Instant, _: NodeId, entry: &Entry) -> Result<(), ApplyError> {
        self.strange_ends += usize::from(self.copies.remove(&(entry.original, entry.zone)).is_none());
        Ok(())
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        next(&self.connections, from)
    }

    fn expectation(&mut self, _: Instant, handle: Handle) -> Option<Expectation> {
        self.expectations.get(handle.0 as usize)?.clone()
    }

    fn apply_expectation(&mut self, _: Instant, _: NodeId, expectation: &Expectation) -> Result<(), ApplyError> {
        self.expected.insert(expectation.expected, expectation.clone());
        Ok(())
    }

    fn remove_expectation(&mut self, _: Instant, _: NodeId, expectation: &Expectation) -> Result<(), ApplyError> {
        self.expected.remove(&expectation.expected);
        Ok(())
    }

    fn next_expectation_for_resync(&self, from: Handle) -> Option<Handle> {
        next(&self.expectations, from)
    }
}
