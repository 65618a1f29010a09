//! What is measured: each structure with the same verbs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use ::filters::{CountingBloom, CountingBloomShape};
use ::filters::{
    Exchange, Insertion, KeyHash, MarkId, Memory, MultiLevel, MultiLevelShape, Secret, ShapeError, States,
};
use analysis::comparators::d_left;
use xorf::{BinaryFuse8, Filter};

use super::auxiliary::WithAuxiliary;
use super::cuckoo::Cuckoo;
use super::exact::Exact;
use super::keys::SECRET;
use crate::bench::BenchError;

/// A structure of keys with states, as far as it has states.
pub(super) trait Subject {
    fn name(&self) -> &'static str;
    fn insert(&mut self, key: u64, state: u8) -> bool;
    fn contains(&self, key: u64) -> bool;
    fn modify(&mut self, key: u64, state: u8) -> bool;
    fn remove(&mut self, key: u64) -> bool;
    fn bytes(&self) -> usize;
    /// Begins to count the words that change, and returns how many have.
    fn words_changed(&mut self) -> Option<usize>;
}

/// A structure of the room, its secret, and the mark by which it counts what changes.
pub(super) struct OfRoom<F> {
    name: &'static str,
    structure: F,
    secret: Secret,
    mark: Option<MarkId>,
}

/// A structure that lies in words, which can be marked.
pub(super) trait Words {
    fn memory_mut(&mut self) -> &mut Memory;
}

impl Words for MultiLevel<States> {
    fn memory_mut(&mut self) -> &mut Memory {
        Exchange::memory_mut(self)
    }
}

impl Words for WithAuxiliary {
    fn memory_mut(&mut self) -> &mut Memory {
        self.memory_mut()
    }
}

impl Words for CountingBloom {
    fn memory_mut(&mut self) -> &mut Memory {
        Exchange::memory_mut(self)
    }
}

impl Words for Cuckoo {
    fn memory_mut(&mut self) -> &mut Memory {
        self.memory_mut()
    }
}

impl Words for Exact {
    fn memory_mut(&mut self) -> &mut Memory {
        self.memory_mut()
    }
}

impl<F: Words> OfRoom<F> {
    pub(super) fn new(name: &'static str, structure: F) -> Self {
        Self { name, structure, secret: Secret::new(SECRET), mark: None }
    }

    #[inline(always)]
    fn key(&self, key: u64) -> KeyHash {
        self.secret.spread(key)
    }

    /// The words that changed since the last call; a first call begins.
    fn changed(&mut self) -> usize {
        let memory = self.structure.memory_mut();
        let changed = self.mark.take().map_or(0, |mark| {
            let changed = memory.changed(mark);
            memory.unmark(mark);
            changed
        });
        self.mark = memory.mark().ok();
        changed
    }

    /// Stops counting, so that it does not take time.
    pub(super) fn stop_counting(&mut self) {
        if let Some(mark) = self.mark.take() {
            self.structure.memory_mut().unmark(mark);
        }
    }
}

macro_rules! subject_of_room {
    ($type:ty, |$structure:ident, $key:ident, $state:ident| $insert:expr, $contains:expr, $modify:expr, $remove:expr, $bytes:expr) => {
        impl Subject for OfRoom<$type> {
            fn name(&self) -> &'static str {
                self.name
            }

            #[inline]
            fn insert(&mut self, key: u64, $state: u8) -> bool {
                let ($key, $structure) = (self.key(key), &mut self.structure);
                $insert
            }

            #[inline]
            fn contains(&self, key: u64) -> bool {
                let ($key, $structure) = (self.key(key), &self.structure);
                $contains
            }

            #[inline]
            fn modify(&mut self, key: u64, $state: u8) -> bool {
                let ($key, $structure) = (self.key(key), &mut self.structure);
                $modify
            }

            #[inline]
            fn remove(&mut self, key: u64) -> bool {
                let ($key, $structure) = (self.key(key), &mut self.structure);
                $remove
            }

            fn bytes(&self) -> usize {
                ($bytes)(&self.structure)
            }

            fn words_changed(&mut self) -> Option<usize> {
                Some(self.changed())
            }
        }
    };
}

subject_of_room!(
    MultiLevel<States>,
    |filter, key, state| filter.insert(key, state.into()).is_ok(),
    filter.lookup(key).is_some(),
    filter.modify(key, state.into()).is_some(),
    filter.remove(key).is_some(),
    MultiLevel::<States>::bytes
);
subject_of_room!(
    WithAuxiliary,
    |filter, key, state| filter.insert(key, state.into()).is_ok(),
    filter.lookup(key).is_some(),
    filter.modify(key, state.into()).is_some(),
    filter.remove(key).is_some(),
    WithAuxiliary::bytes
);
subject_of_room!(
    Cuckoo,
    |filter, key, state| filter.insert(key, state).is_ok(),
    filter.lookup(key).is_some(),
    filter.modify(key, state).is_some(),
    filter.remove(key).is_some(),
    Cuckoo::bytes
);
subject_of_room!(
    Exact,
    |table, key, state| table.insert(key, state).is_ok(),
    table.lookup(key).is_some(),
    table.modify(key, state).is_some(),
    table.remove(key).is_some(),
    Exact::bytes
);
subject_of_room!(
    CountingBloom,
    // It has no states: what would be a change of state is a look.
    |filter, key, _state| {
        filter.insert(key);
        true
    },
    filter.contains(key),
    filter.contains(key),
    filter.remove(key),
    |filter: &CountingBloom| filter.memory().bytes()
);

/// Keys that are hashes already.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are written whole");
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The standard library's map, which is hashbrown's, without its hash.
#[derive(Default)]
pub(super) struct Map(HashMap<u64, u8, BuildHasherDefault<AsItIs>>);

impl Subject for Map {
    fn name(&self) -> &'static str {
        "hash_map"
    }

    #[inline]
    fn insert(&mut self, key: u64, state: u8) -> bool {
        self.0.insert(key, state);
        true
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.0.contains_key(&key)
    }

    #[inline]
    fn modify(&mut self, key: u64, state: u8) -> bool {
        self.0.get_mut(&key).map(|known| *known = state).is_some()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> bool {
        self.0.remove(&key).is_some()
    }

    fn bytes(&self) -> usize {
        // Seven eighths of its slots are its capacity; a slot has key, state (padded) and a byte of control.
        self.0.capacity() * 8 / 7 * 17
    }

    fn words_changed(&mut self) -> Option<usize> {
        None
    }
}

/// The shape whose speed and errors are promised: FA(4,8) with states of eight bits.
pub(in crate::bench) const fn first_available(items: u64) -> MultiLevelShape {
    MultiLevelShape::for_items(items, 8)
}

/// All that are measured, empty, each with room for so many items.
pub(super) struct Subjects {
    pub(super) first_available: OfRoom<MultiLevel<States>>,
    pub(super) with_auxiliary: OfRoom<WithAuxiliary>,
    pub(super) least_load: OfRoom<MultiLevel<States>>,
    pub(super) d_left: OfRoom<MultiLevel<States>>,
    pub(super) counting_bloom: OfRoom<CountingBloom>,
    pub(super) cuckoo: OfRoom<Cuckoo>,
    pub(super) exact: OfRoom<Exact>,
    pub(super) map: Map,
}

impl Subjects {
    pub(super) fn new(items: u64) -> Result<Self, ShapeError> {
        let first = first_available(items);
        let least = MultiLevelShape { insertion: Insertion::LeastLoad, ..first };
        let auxiliary = CountingBloomShape { counters: 4 * items, hashes: 2 };
        Ok(Self {
            first_available: OfRoom::new("fa_4_8", MultiLevel::new(first)?),
            with_auxiliary: OfRoom::new("fa_4_8_auxiliary", WithAuxiliary::new(first, auxiliary)?),
            least_load: OfRoom::new("ll_4_8", MultiLevel::new(least)?),
            d_left: OfRoom::new("d_left_4_8", MultiLevel::new(d_left::shape(first.cells, 4, 8, 8))?),
            counting_bloom: OfRoom::new(
                "counting_bloom",
                CountingBloom::new(CountingBloomShape { counters: 10 * items, hashes: 4 })?,
            ),
            cuckoo: OfRoom::new("cuckoo", Cuckoo::new(items * 100 / 92 + 128, 23)),
            exact: OfRoom::new("exact", Exact::new(items * 100 / 92 + 128)),
            map: Map::default(),
        })
    }

    /// Does the same with each of them.
    pub(super) fn each(
        &mut self,
        mut work: impl FnMut(usize, &mut dyn Visit) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        work(0, &mut self.first_available)?;
        work(1, &mut self.with_auxiliary)?;
        work(2, &mut self.least_load)?;
        work(3, &mut self.d_left)?;
        work(4, &mut self.counting_bloom)?;
        work(5, &mut self.cuckoo)?;
        work(6, &mut self.exact)?;
        work(7, &mut self.map)
    }
}

/// How many subjects there are.
pub(super) const SUBJECTS: usize = 8;

/// What is done with a subject, whole passes at a time, so that one call in between costs nothing.
pub(super) trait Visit {
    fn name(&self) -> &'static str;
    fn insert_all(&mut self, keys: &[u64], state: u8) -> u64;
    fn count(&self, keys: &[u64]) -> u64;
    fn modify_all(&mut self, keys: &[u64], state: u8) -> u64;
    fn remove_all(&mut self, keys: &[u64]) -> u64;
    fn bytes(&self) -> usize;
    fn words_changed(&mut self) -> Option<usize>;
}

impl<S: Subject> Visit for S {
    fn name(&self) -> &'static str {
        Subject::name(self)
    }

    fn insert_all(&mut self, keys: &[u64], state: u8) -> u64 {
        keys.iter().map(|key| u64::from(self.insert(*key, state))).sum()
    }

    fn count(&self, keys: &[u64]) -> u64 {
        keys.iter().map(|key| u64::from(self.contains(*key))).sum()
    }

    fn modify_all(&mut self, keys: &[u64], state: u8) -> u64 {
        keys.iter().map(|key| u64::from(self.modify(*key, state))).sum()
    }

    fn remove_all(&mut self, keys: &[u64]) -> u64 {
        keys.iter().map(|key| u64::from(self.remove(*key))).sum()
    }

    fn bytes(&self) -> usize {
        Subject::bytes(self)
    }

    fn words_changed(&mut self) -> Option<usize> {
        Subject::words_changed(self)
    }
}

/// The static filter.
pub(super) struct Fuse(BinaryFuse8);

impl Fuse {
    pub(super) fn new(keys: &[u64]) -> Result<Self, BenchError> {
        let expected = keys.len() as u64;
        let failed = |_| BenchError::Filtered { what: "BinaryFuse8, building".into(), done: 0, expected };
        BinaryFuse8::try_from(keys).map(Self).map_err(failed)
    }

    pub(super) fn count(&self, keys: &[u64]) -> u64 {
        keys.iter().map(|key| u64::from(self.0.contains(key))).sum()
    }

    /// What it takes: a byte a fingerprint.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }
}
