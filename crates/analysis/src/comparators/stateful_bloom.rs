//! States in the cells of a counting Bloom filter (Bonomi et al., "Beyond Bloom filters: from approximate membership checks
//! to approximate state machines", 2006: the "stateful Bloom filter").
//!
//! A cell has a four-bit counter and the state that all its items share, or "several". It is a comparator in MLCBF: a
//! change of state changes each of the key's cells, and the state of an item is unknown if it shares all its cells with
//! items in other states.

use filters::counting_bloom::COUNTER_MAX;
use filters::shape::WORDS_MAX;
use filters::{KeyHash, Memory, ShapeError};

/// The shape of a counting Bloom filter with states in its cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatefulBloomShape {
    /// Its cells (m).
    pub cells: u64,
    /// Cells a key (k).
    pub hashes: u8,
    /// Bits of a state, whose highest value means "several": 4 (four cells a word) or 12 (two).
    pub state_bits: u8,
}

impl StatefulBloomShape {
    /// The number of words of a filter of this shape.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn words(self) -> Result<usize, ShapeError> {
        let out_of_range = |what, value, least, most| Err(ShapeError::OutOfRange { what, value, least, most });
        let per_word = match self.state_bits {
            4 => 4,
            12 => 2,
            other => return out_of_range("state bits, 4 or 12", other.into(), 4, 12),
        };
        if !(1..=WORDS_MAX * per_word).contains(&self.cells) {
            return out_of_range("cells", self.cells, 1, WORDS_MAX * per_word);
        }
        Ok(self.cells.div_ceil(per_word) as usize)
    }
}

/// The result of looking up a key's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// This is its state.
    State(u16),
    /// The filter contains it, but all its cells are shared with items in other states.
    Several,
}

/// A counting Bloom filter with states.
#[derive(Clone)]
pub struct StatefulBloom {
    memory: Memory,
    shape: StatefulBloomShape,
}

/// A cell: the number of its items, and their state, or [`StatefulBloom::several`] where they differ.
#[derive(Clone, Copy)]
struct Cell {
    count: u32,
    state: u32,
}

impl StatefulBloom {
    /// An empty one.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn new(shape: StatefulBloomShape) -> Result<Self, ShapeError> {
        Ok(Self { memory: Memory::new(shape.words()?), shape })
    }

    /// The highest permitted state.
    #[must_use]
    pub const fn state_max(&self) -> u16 {
        (1 << self.shape.state_bits) - 2
    }

    /// The state value that means "several".
    const fn several(&self) -> u32 {
        (1 << self.shape.state_bits) - 1
    }

    /// Its words.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Its words, to set marks and take changes.
    pub const fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn cells(&self, key: KeyHash) -> impl Iterator<Item = usize> + use<> {
        let StatefulBloomShape { cells, hashes, .. } = self.shape;
        (0..u64::from(hashes)).map(move |number| key.index(number, cells))
    }

    /// The index of the cell's word, and the bit offset in it.
    const fn place(&self, cell: usize) -> (usize, u32) {
        let bits = 4 + self.shape.state_bits as usize;
        let per_word = 32 / bits;
        (cell / per_word, (cell % per_word * bits) as u32)
    }

    fn cell(&self, cell: usize) -> Cell {
        let (index, shift) = self.place(cell);
        let bits = self.memory.word(index) >> shift;
        Cell { count: bits & 0xf, state: bits >> 4 & self.several() }
    }

    fn set(&mut self, cell: usize, Cell { count, state }: Cell) {
        let (index, shift) = self.place(cell);
        let mask = self.several() << 4 | 0xf;
        let word = self.memory.word(index);
        let changed = word & !(mask << shift) | (state << 4 | count) << shift;
        if changed != word {
            self.memory.set(index, changed);
        }
    }

    /// Inserts a key with its state. It must be absent; [`StatefulBloom::modify`] changes a present one.
    ///
    /// # Panics
    /// The state is beyond [`StatefulBloom::state_max`].
    pub fn insert(&mut self, key: KeyHash, state: u16) {
        assert!(state <= self.state_max(), "a state of {} bits", self.shape.state_bits);
        let state = u32::from(state);
        for place in self.cells(key) {
            let cell = self.cell(place);
            let is_same = cell.count == 0 || cell.state == state;
            let state = if is_same { state } else { self.several() };
            self.set(place, Cell { count: (cell.count + 1).min(COUNTER_MAX), state });
        }
    }

    /// Changes the state of a key. Returns whether the filter may contain it; if not, nothing changes.
    ///
    /// # Panics
    /// The state is beyond [`StatefulBloom::state_max`].
    pub fn modify(&mut self, key: KeyHash, state: u16) -> bool {
        assert!(state <= self.state_max(), "a state of {} bits", self.shape.state_bits);
        if self.lookup(key).is_none() {
            return false;
        }
        let state = u32::from(state);
        for place in self.cells(key) {
            let cell = self.cell(place);
            let is_own = cell.count == 1 || cell.state == state;
            self.set(place, Cell { state: if is_own { state } else { self.several() }, ..cell });
        }
        true
    }

    /// The key's state, or none if the filter does not contain it. Cells with two different states show that the key is
    /// absent.
    #[must_use]
    pub fn lookup(&self, key: KeyHash) -> Option<Known> {
        let mut known = Known::Several;
        for place in self.cells(key) {
            let cell = self.cell(place);
            if cell.count == 0 {
                return None;
            }
            match known {
                _ if cell.state == self.several() => {}
                Known::Several => known = Known::State(cell.state as u16),
                Known::State(state) if u32::from(state) == cell.state => {}
                Known::State(_) => return None,
            }
        }
        Some(known)
    }

    /// Removes a key. Returns whether the filter may have contained it; if not, nothing changes.
    pub fn remove(&mut self, key: KeyHash) -> bool {
        if self.lookup(key).is_none() {
            return false;
        }
        for place in self.cells(key) {
            let cell = self.cell(place);
            match cell.count {
                // Saturated, or already decremented because two hashes of the key share the cell.
                COUNTER_MAX | 0 => {}
                1 => self.set(place, Cell { count: 0, state: 0 }),
                count => self.set(place, Cell { count: count - 1, ..cell }),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use filters::Secret;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> KeyHash {
        Secret::new([9, 10]).spread(number)
    }

    fn filter(cells: u64, hashes: u8, state_bits: u8) -> StatefulBloom {
        StatefulBloom::new(StatefulBloomShape { cells, hashes, state_bits }).expect("a shape")
    }

    #[test]
    fn items_sharing_all_cells_have_an_unknown_state() {
        let mut filter = filter(1, 1, 12);
        filter.insert(key(1), 5);
        filter.insert(key(2), 5);
        assert_eq!(filter.lookup(key(1)), Some(Known::State(5)), "both have it");
        assert!(filter.modify(key(2), 6));
        assert_eq!(filter.lookup(key(1)), Some(Known::Several));
        assert!(filter.remove(key(1)) && filter.remove(key(2)));
        assert_eq!(filter.lookup(key(1)), None);
        assert!(!filter.remove(key(1)) && !filter.modify(key(1), 1));
    }

    #[test]
    fn few_states_are_inaccurate_at_a_load_factor_of_10() {
        let items = 5000;
        let mut filter = filter(10 * items, 4, 12);
        (0..items).for_each(|number| filter.insert(key(number), (number % 100) as u16));
        let unknown = (0..items).filter(|number| filter.lookup(key(*number)) == Some(Known::Several)).count();
        let wrong = (0..items).filter(|number| {
            !matches!(filter.lookup(key(*number)), Some(Known::Several))
                && filter.lookup(key(*number)) != Some(Known::State((number % 100) as u16))
        });
        assert_eq!(wrong.count(), 0, "a state that is known is right");
        // All four cells are shared with probability (1 - (1 - 1/m)^(kn))^4 = 1.2 %.
        let share = unknown as f64 / items as f64;
        assert!((0.007..0.017).contains(&share), "{share}");
    }

    proptest! {
        #[test]
        fn inserted_keys_are_found_and_known_states_are_right(
            steps in proptest::collection::vec((0_u64..30, 0_u8..3, 0_u16..4), 0..120),
            hashes in 1_u8..5, wide: bool,
        ) {
            let mut filter = filter(97, hashes, if wide { 12 } else { 4 });
            let mut model = BTreeMap::new();
            for (number, operation, state) in steps {
                match (operation, model.contains_key(&number)) {
                    (0, false) => {
                        filter.insert(key(number), state);
                        model.insert(number, state);
                    }
                    (1, true) => {
                        prop_assert!(filter.modify(key(number), state));
                        model.insert(number, state);
                    }
                    (2, true) => {
                        prop_assert!(filter.remove(key(number)));
                        model.remove(&number);
                    }
                    _ => {}
                }
                // A saturated counter stays, and may keep the state of a removed item.
                prop_assume!((0..97).all(|cell| filter.cell(cell).count < COUNTER_MAX));
                for (number, state) in &model {
                    let found = filter.lookup(key(*number));
                    prop_assert!(found == Some(Known::Several) || found == Some(Known::State(*state)), "{:?}", found);
                }
            }
            model.keys().for_each(|number| { filter.remove(key(*number)); });
            prop_assert!(filter.memory.words().iter().all(|word| *word == 0));
        }
    }
}
