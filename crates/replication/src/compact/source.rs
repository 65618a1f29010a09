//! The owner's own filter: what it must be able to take out again, and of that what peers receive.

use core::hash::{BuildHasherDefault, Hasher};

use filters::{Bloom, CountingBloom, Exchange, KeyHash, Memory, MultiLevel, Secret, Shape, ShapeError, States};
use flow::Tuple;
use hashbrown::HashMap;

use super::cell::CellState;
use super::config::{CompactConfig, Representation};
use super::held::Held;
use super::key;

/// A cell's state for a pair of hosts.
const TALKING: u16 = 1;

/// Keys are hashes already, under a secret.
#[derive(Clone, Copy, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 ^= word;
    }
}

/// A pair of hosts that has connections.
#[derive(Default)]
struct Pair {
    /// How many, also of those that began when there was no room for the pair.
    connections: u32,
    /// It is in the filter.
    is_in_filter: bool,
}

/// As many as there are connections at most: their owner bounds both.
type Pairs = HashMap<KeyHash, Pair, BuildHasherDefault<Hashed>>;

enum Structure {
    Hosts {
        pairs: Pairs,
        filter: MultiLevel<States>,
    },
    Digest(CountingBloom),
    Cells(MultiLevel<States>),
    /// That of a node that is gone, as it was: of its connections no more is known than their entries.
    Inherited {
        representation: Representation,
        held: Held,
    },
}

/// The filter of a node's own connections.
pub(super) struct Source {
    secret: Secret,
    items_max: u64,
    structure: Structure,
    /// What is in it: connections, or pairs of hosts.
    pub(super) entries: u64,
    /// Changes of any kind, ever.
    pub(super) changes: u64,
    /// Insertions that found no room.
    pub(super) refused: u64,
    /// Of those, what is still not in it.
    pub(super) absent: u64,
    /// Insertions into a Bloom filter that had `items_max` already.
    pub(super) beyond: u64,
}

impl Source {
    pub(super) fn new(config: &CompactConfig) -> Result<Self, ShapeError> {
        let structure = match (config.shape(), config.representation.has_states()) {
            (Shape::Bloom(_), _) => Structure::Digest(CountingBloom::with_digest(config.counting_shape())?),
            (shape, false) => Structure::Hosts { pairs: Pairs::default(), filter: MultiLevel::empty(shape)? },
            (shape, true) => Structure::Cells(MultiLevel::empty(shape)?),
        };
        let secret = Secret::new(config.secret);
        let items_max = config.items_max;
        Ok(Self { secret, items_max, structure, entries: 0, changes: 0, refused: 0, absent: 0, beyond: 0 })
    }

    /// The filter of a node that is gone.
    pub(super) fn inherited(secret: Secret, representation: Representation, held: Held) -> Self {
        let entries = held.occupied();
        let structure = Structure::Inherited { representation, held };
        Self { secret, items_max: entries, structure, entries, changes: 0, refused: 0, absent: 0, beyond: 0 }
    }

    pub(super) const fn secret(&self) -> &Secret {
        &self.secret
    }

    pub(super) const fn inherited_filter(&self) -> Option<(Representation, &Held)> {
        match &self.structure {
            Structure::Inherited { representation, held } => Some((*representation, held)),
            _ => None,
        }
    }

    /// A connection of a node that is gone is another's now.
    pub(super) fn take_inherited(&mut self, tuple: &Tuple) {
        let Structure::Inherited { representation, held } = &mut self.structure else { return };
        if held.take(*representation, &self.secret, tuple) {
            self.note_removed();
        }
    }

    /// The words that are sent to peers.
    pub(super) fn memory(&self) -> &Memory {
        match &self.structure {
            Structure::Hosts { filter, .. } | Structure::Cells(filter) => filter.memory(),
            Structure::Digest(counting) => counting.digest().map_or(counting.memory(), Bloom::memory),
            Structure::Inherited { held, .. } => held.memory(),
        }
    }

    pub(super) fn memory_mut(&mut self) -> &mut Memory {
        match &mut self.structure {
            Structure::Hosts { filter, .. } | Structure::Cells(filter) => filter.memory_mut(),
            Structure::Digest(counting) => {
                counting.digest_mut().expect("it was made with a digest, which is never taken away").memory_mut()
            }
            Structure::Inherited { held, .. } => held.memory_mut(),
        }
    }

    /// Cells taken in each level of a filter that has levels.
    pub(super) fn items_by_level(&self) -> Option<impl Iterator<Item = usize> + use<>> {
        match &self.structure {
            Structure::Hosts { filter, .. } | Structure::Cells(filter) => Some(filter.items_by_level().into_iter()),
            Structure::Digest(_) | Structure::Inherited { .. } => None,
        }
    }

    /// What the whole takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match &self.structure {
            Structure::Hosts { pairs, filter } => filter.bytes() + pairs.allocation_size(),
            Structure::Digest(counting) => counting.memory().bytes() + self.memory().bytes(),
            Structure::Cells(filter) => filter.bytes(),
            Structure::Inherited { held, .. } => held.memory().bytes(),
        }
    }

    pub(super) fn insert(&mut self, tuple: &Tuple, state: CellState) {
        let number = u16::from(state.number());
        if self.holds_states() {
            let key = key::of_connection(&self.secret, tuple);
            let is_placed = self.place(key, number);
            self.refused += u64::from(!is_placed);
            self.absent += u64::from(!is_placed);
        } else if state.is_established(tuple.protocol) {
            self.insert_member(tuple);
        }
    }

    pub(super) fn modify(&mut self, tuple: &Tuple, before: CellState, after: CellState) {
        let Structure::Cells(filter) = &mut self.structure else {
            match (before.is_established(tuple.protocol), after.is_established(tuple.protocol)) {
                (false, true) => self.insert_member(tuple),
                (true, false) => self.remove_member(tuple),
                _ => {}
            }
            return;
        };
        if before == after {
            return;
        }
        let key = key::of_connection(&self.secret, tuple);
        let [before, after] = [before, after].map(|state| u16::from(state.number()));
        let is_known = filter.modify_state(key, before, after);
        self.changes += u64::from(is_known);
        // There was no room for it: perhaps there is now.
        if !is_known && self.place(key, after) {
            self.absent = self.absent.saturating_sub(1);
        }
    }

    pub(super) fn remove(&mut self, tuple: &Tuple, state: CellState) {
        let Structure::Cells(filter) = &mut self.structure else {
            if state.is_established(tuple.protocol) {
                self.remove_member(tuple);
            }
            return;
        };
        if filter.remove_state(key::of_connection(&self.secret, tuple), state.number().into()) {
            self.note_removed();
        } else {
            self.absent = self.absent.saturating_sub(1);
        }
    }

    /// Whether an entry in the state `after` establishes the connection for the peers. `before`: the state of its entry until now.
    pub(super) fn is_establishment(&self, protocol: u8, before: Option<CellState>, after: CellState) -> bool {
        let is_one = |state: CellState| {
            if self.holds_states() { state.is_answered(protocol) } else { state.is_established(protocol) }
        };
        is_one(after) && !before.is_some_and(is_one)
    }

    const fn holds_states(&self) -> bool {
        matches!(self.structure, Structure::Cells(_))
    }

    /// Gives a key that is not in the filter a cell. False if there is none.
    fn place(&mut self, key: KeyHash, state: u16) -> bool {
        let Structure::Cells(filter) = &mut self.structure else { return false };
        let is_placed = filter.insert_distinct(key, state).is_ok();
        if is_placed {
            self.note_inserted();
        }
        is_placed
    }

    fn insert_member(&mut self, tuple: &Tuple) {
        match &mut self.structure {
            Structure::Digest(counting) => {
                counting.insert(key::of_connection(&self.secret, tuple));
                self.beyond += u64::from(self.entries >= self.items_max);
                self.note_inserted();
            }
            Structure::Hosts { pairs, filter } => {
                let key = key::of_hosts(&self.secret, tuple);
                let pair = pairs.entry(key).or_default();
                pair.connections = pair.connections.saturating_add(1);
                if pair.is_in_filter {
                    return;
                }
                let is_first = pair.connections == 1;
                pair.is_in_filter = self.entries < self.items_max && filter.insert_distinct(key, TALKING).is_ok();
                if pair.is_in_filter {
                    self.absent -= u64::from(!is_first);
                    self.note_inserted();
                } else {
                    self.refused += 1;
                    self.absent += u64::from(is_first);
                }
            }
            Structure::Cells(_) | Structure::Inherited { .. } => {}
        }
    }

    fn remove_member(&mut self, tuple: &Tuple) {
        match &mut self.structure {
            Structure::Digest(counting) => {
                if counting.remove(key::of_connection(&self.secret, tuple)) {
                    self.note_removed();
                }
            }
            Structure::Hosts { pairs, filter } => {
                let key = key::of_hosts(&self.secret, tuple);
                let Some(pair) = pairs.get_mut(&key) else { return };
                pair.connections -= 1;
                if pair.connections > 0 {
                    return;
                }
                let was_in_filter = pair.is_in_filter;
                pairs.remove(&key);
                if was_in_filter {
                    filter.remove_state(key, TALKING);
                    self.note_removed();
                } else {
                    self.absent -= 1;
                }
            }
            Structure::Cells(_) | Structure::Inherited { .. } => {}
        }
    }

    const fn note_inserted(&mut self) {
        self.entries += 1;
        self.changes += 1;
    }

    const fn note_removed(&mut self) {
        self.entries = self.entries.saturating_sub(1);
        self.changes += 1;
    }
}
