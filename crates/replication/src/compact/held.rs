//! A peer's filter as a backup holds it. The owner keeps one for each peer, too: what that peer has.

use core::ops::Range;

use filters::{Bloom, Exchange, ExchangeError, KeyHash, Memory, MultiLevel, Secret, Shape, ShapeError, States, Update};
use flow::Tuple;

use super::cell::CellState;
use super::config::Representation;
use super::key;

/// What a filter knows of a connection that seems to be in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Its state; nothing where the representation has none.
    pub state: Option<CellState>,
}

/// Words that are sent: one of the structures.
#[allow(
    clippy::large_enum_variant,
    reason = "there are a few for each peer, and a look-up goes through no further pointer"
)]
pub(super) enum Held {
    Bits(Bloom),
    Cells(MultiLevel<States>),
}

impl Held {
    /// An empty one.
    pub(super) fn new(shape: Shape) -> Result<Self, ShapeError> {
        Ok(match shape {
            Shape::Bloom(shape) => Self::Bits(Bloom::new(shape)?),
            Shape::MultiLevel(..) => Self::Cells(MultiLevel::empty(shape)?),
            _ => return Err(ShapeError::OtherShape),
        })
    }

    pub(super) fn memory(&self) -> &Memory {
        match self {
            Self::Bits(filter) => filter.memory(),
            Self::Cells(filter) => filter.memory(),
        }
    }

    pub(super) fn memory_mut(&mut self) -> &mut Memory {
        match self {
            Self::Bits(filter) => filter.memory_mut(),
            Self::Cells(filter) => filter.memory_mut(),
        }
    }

    /// How much is in it at most: what has fingerprints and states has a cell for each, of a Bloom filter each sets a bit.
    pub(super) fn occupied(&self) -> u64 {
        let words = self.memory().words().iter();
        match self {
            Self::Bits(_) => words.map(|word| u64::from(word.count_ones())).sum(),
            Self::Cells(_) => words.filter(|word| **word != 0).count() as u64,
        }
    }

    pub(super) fn word(&self, index: u32) -> u32 {
        self.memory().words()[index as usize]
    }

    pub(super) fn admits(&self, index: u32, word: u32) -> bool {
        let index = index as usize;
        match self {
            Self::Bits(filter) => filter.admits(index, word),
            Self::Cells(filter) => filter.admits(index, word),
        }
    }

    pub(super) fn put(&mut self, index: u32, word: u32) {
        let index = index as usize;
        match self {
            Self::Bits(filter) => filter.put(index, word),
            Self::Cells(filter) => filter.put(index, word),
        }
    }

    /// Takes over words as they are: all of them or, if any cannot be, none.
    pub(super) fn apply(&mut self, update: &Update<'_>) -> Result<usize, ExchangeError> {
        match self {
            Self::Bits(filter) => filter.apply(update),
            Self::Cells(filter) => filter.apply(update),
        }
    }

    /// How many items are in it, where each has a cell.
    pub(super) const fn entries(&self) -> Option<u64> {
        match self {
            Self::Cells(filter) => Some(filter.len() as u64),
            Self::Bits(_) => None,
        }
    }

    /// The digest of a section as messages carry it.
    pub(super) fn digest(&self, words: Range<u32>) -> u32 {
        let sum = self.memory().digest(words.start as usize..words.end as usize);
        (sum ^ sum >> 32) as u32
    }

    pub(super) fn lookup(&self, representation: Representation, secret: &Secret, tuple: &Tuple) -> Option<Known> {
        let key = key_of(representation, secret, tuple);
        let known = |state: Option<u16>| Known { state: state.map(|state| CellState::from_number(state as u8)) };
        match self {
            Self::Bits(filter) => filter.contains(key).then(|| known(None)),
            Self::Cells(filter) => {
                filter.lookup(key).map(|state| known(Some(state).filter(|_| representation.has_states())))
            }
        }
    }

    /// Takes the connection out, where it has a cell of its own. Whether it had.
    pub(super) fn take(&mut self, representation: Representation, secret: &Secret, tuple: &Tuple) -> bool {
        match self {
            Self::Cells(filter) if representation.has_states() => {
                filter.remove(key_of(representation, secret, tuple)).is_some()
            }
            _ => false,
        }
    }
}

fn key_of(representation: Representation, secret: &Secret, tuple: &Tuple) -> KeyHash {
    match representation {
        Representation::HostAggregate => key::of_hosts(secret, tuple),
        _ => key::of_connection(secret, tuple),
    }
}
