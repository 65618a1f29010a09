//! The expectations of this node's connections with the handles that conntrackd needs: it treats them separately.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flow::netfilter::{Expectation, Tuple};
use replication::Handle;

/// The maximum number of this node's expectations replicated to conntrackd; further ones are omitted, and counted.
pub(crate) const EXPECTATIONS_REPLICATED_MAX: u32 = 1 << 16;

/// The key of an expectation, which is unique.
type Name = (u16, Tuple, Tuple);

fn name(expectation: &Expectation) -> Name {
    (expectation.zone, expectation.expected, expectation.mask)
}

pub(crate) fn is_same(one: &Expectation, other: &Expectation) -> bool {
    name(one) == name(other)
}

/// The expectations of this node's connections, each with a handle.
#[derive(Debug, Default)]
pub(crate) struct ExpectationTable {
    slots: Vec<Option<Expectation>>,
    free: Vec<u32>,
    index: BTreeMap<Name, u32>,
}

impl ExpectationTable {
    pub(crate) fn get(&self, handle: Handle) -> Option<&Expectation> {
        self.slots.get(handle.0 as usize)?.as_ref()
    }

    pub(crate) fn next(&self, from: Handle) -> Option<Handle> {
        (from.0..self.slots.len() as u32).map(Handle).find(|handle| self.get(*handle).is_some())
    }

    pub(super) fn set(&mut self, expectation: &Expectation) -> Option<Handle> {
        let slot = match self.index.get(&name(expectation)) {
            Some(slot) => *slot,
            None => {
                let slot = match self.free.pop() {
                    Some(slot) => slot,
                    None if (self.slots.len() as u32) < EXPECTATIONS_REPLICATED_MAX => {
                        self.slots.push(None);
                        self.slots.len() as u32 - 1
                    }
                    None => return None,
                };
                self.index.insert(name(expectation), slot);
                slot
            }
        };
        self.slots[slot as usize] = Some(expectation.clone());
        Some(Handle(slot))
    }

    pub(super) fn remove(&mut self, expectation: &Expectation) -> Option<(Handle, Expectation)> {
        let slot = self.index.remove(&name(expectation))?;
        self.free.push(slot);
        self.slots[slot as usize].take().map(|ended| (Handle(slot), ended))
    }
}
