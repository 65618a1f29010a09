//! Lookups in the multi-level filter FA(4,8), by instruction set.

use std::array;
use std::hint::black_box;

use ::filters::{KeyHash, MultiLevel, Secret, States};

use super::operation::{Made, Operation};
use crate::bench::BenchError;
use crate::bench::filters::keys::{SECRET, key};
use crate::bench::filters::subjects;

/// Items in the filter: so few that it lies in the second-level cache.
const ITEMS: u64 = 50_000;
/// Keys of a run.
const KEYS: u64 = 4096;
/// Keys that are looked up together.
const BATCH: usize = 32;

enum Work {
    OneByOne,
    Batched,
    Modify,
}

struct Lookups {
    filter: MultiLevel<States>,
    secret: Secret,
    keys: Vec<u64>,
    /// How many of the keys are in the filter.
    held: u64,
    work: Work,
    /// The state that the next run sets.
    state: u16,
}

impl Lookups {
    fn operation(first: u64, is_portable: bool, work: Work) -> Made {
        let secret = Secret::new(SECRET);
        let mut filter = MultiLevel::<States>::new(subjects::first_available(ITEMS))?;
        for number in 0..ITEMS {
            // A key without a free cell is looked up like one that is not there.
            let _ = filter.insert(secret.spread(key(number)), 1);
        }
        if is_portable {
            filter = filter.with_portable_search();
        } else if !filter.has_wide_search() {
            return Ok(None);
        }
        let keys: Vec<u64> = (first..first + KEYS).map(key).collect();
        let held = keys.iter().filter(|key| filter.lookup(secret.spread(**key)).is_some()).count() as u64;
        Ok(Some(Box::new(Self { filter, secret, keys, held, work, state: 2 })))
    }

    fn one_by_one(&self) -> u64 {
        self.keys.iter().map(|key| u64::from(self.filter.lookup(self.secret.spread(*key)).is_some())).sum()
    }

    fn batched(&self) -> u64 {
        let mut states = [None; BATCH];
        let mut found = 0;
        for batch in self.keys.as_chunks::<BATCH>().0 {
            let keys: [KeyHash; BATCH] = array::from_fn(|index| self.secret.spread(batch[index]));
            self.filter.lookup_batch(&keys, &mut states);
            found += states.iter().flatten().count() as u64;
        }
        found
    }

    fn modify(&mut self) -> u64 {
        let (filter, state) = (&mut self.filter, self.state);
        self.keys.iter().map(|key| u64::from(filter.modify(self.secret.spread(*key), state).is_some())).sum()
    }
}

impl Operation for Lookups {
    fn times(&self) -> u64 {
        self.keys.len() as u64
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        self.state = 3 - self.state;
        Ok(())
    }

    fn run(&mut self) -> Result<(), BenchError> {
        let found = match self.work {
            Work::OneByOne => self.one_by_one(),
            Work::Batched => self.batched(),
            Work::Modify => self.modify(),
        };
        match black_box(found) {
            found if found == self.held => Ok(()),
            done => Err(BenchError::Filtered { what: "FA(4,8)".to_owned(), done, expected: self.held }),
        }
    }
}

pub(super) fn hit_portable() -> Made {
    Lookups::operation(0, true, Work::OneByOne)
}

pub(super) fn hit_avx2() -> Made {
    Lookups::operation(0, false, Work::OneByOne)
}

pub(super) fn miss_portable() -> Made {
    Lookups::operation(ITEMS, true, Work::OneByOne)
}

pub(super) fn miss_avx2() -> Made {
    Lookups::operation(ITEMS, false, Work::OneByOne)
}

pub(super) fn batch_portable() -> Made {
    Lookups::operation(0, true, Work::Batched)
}

pub(super) fn batch_avx2() -> Made {
    Lookups::operation(0, false, Work::Batched)
}

pub(super) fn modify_avx2() -> Made {
    Lookups::operation(0, false, Work::Modify)
}
