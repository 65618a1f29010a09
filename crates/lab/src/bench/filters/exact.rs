//! An exact table: 64-bit hashes with states of eight bits, in a little more than nine bytes a cell.
//!
//! What one would take where five bytes an item are not needed and no false positive is wanted: it is wrong only if two
//! keys have the same 64-bit hash. A bucket is a cache line of seven cells, and each key has two; items move as in a
//! [cuckoo filter](super::cuckoo).
//!
//! ```text
//! word    0 … 6                7 … 13                14                    15
//!         hashes, low halves   hashes, high halves   states of cells 0–3   states of cells 4–6, taken (8 bits)
//! ```

use ::filters::hash::mix;
use ::filters::memory::WORDS_PER_LINE;
use ::filters::{Full, Inserted, KeyHash, Memory};

/// Cells of a bucket.
const CELLS: usize = 7;
/// Items that an insertion moves at most, before it gives up and moves them all back.
const MOVES_MAX: usize = 500;
/// The word of a bucket whose top bits mark the cells that are taken.
const LAST: usize = 15;

/// A table of exact keys.
#[derive(Clone)]
pub(super) struct Exact {
    memory: Memory,
    buckets: u64,
}

/// What a cell holds.
#[derive(Clone, Copy)]
struct Item {
    hash: u64,
    state: u8,
}

impl Exact {
    /// An empty one with so many cells, rounded up to whole cache lines.
    pub(super) fn new(cells: u64) -> Self {
        let buckets = cells.div_ceil(CELLS as u64);
        Self { memory: Memory::new(buckets as usize * WORDS_PER_LINE), buckets }
    }

    pub(super) const fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// What it takes, in bytes, without marks.
    pub(super) const fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// The two buckets of a hash.
    #[inline(always)]
    fn buckets(&self, hash: u64) -> [usize; 2] {
        [hash, mix(hash)].map(|hash| ((u128::from(hash) * u128::from(self.buckets)) >> 64) as usize)
    }

    #[inline(always)]
    fn taken(&self, bucket: usize) -> u32 {
        self.memory.word(bucket * WORDS_PER_LINE + LAST) >> 24
    }

    /// The cell of a bucket that has this hash.
    #[inline(always)]
    fn find_in(&self, bucket: usize, hash: u64) -> Option<usize> {
        let line = self.memory.group::<WORDS_PER_LINE>(bucket);
        let (low, high) = (hash as u32, (hash >> 32) as u32);
        let same = (0..CELLS).fold(0, |same, cell| {
            let is_same = line[cell] == low && line[CELLS + cell] == high;
            same | u32::from(is_same) << cell
        });
        let found = same & line[LAST] >> 24;
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn find(&self, hash: u64) -> Option<(usize, usize)> {
        let buckets = self.buckets(hash);
        buckets.into_iter().find_map(|bucket| self.find_in(bucket, hash).map(|cell| (bucket, cell)))
    }

    fn item(&self, bucket: usize, cell: usize) -> Item {
        let line = self.memory.group::<WORDS_PER_LINE>(bucket);
        let hash = u64::from(line[CELLS + cell]) << 32 | u64::from(line[cell]);
        Item { hash, state: (line[14 + cell / 4] >> (cell % 4 * 8)) as u8 }
    }

    fn set_state(&mut self, bucket: usize, cell: usize, state: u8) {
        let (index, shift) = (bucket * WORDS_PER_LINE + 14 + cell / 4, cell % 4 * 8);
        let word = self.memory.word(index) & !(0xff << shift);
        self.memory.set(index, word | u32::from(state) << shift);
    }

    /// Writes a cell, taken or not; one that is not is zero.
    fn set_item(&mut self, bucket: usize, cell: usize, item: Option<Item>) {
        let first = bucket * WORDS_PER_LINE;
        let Item { hash, state } = item.unwrap_or(Item { hash: 0, state: 0 });
        self.memory.set(first + cell, hash as u32);
        self.memory.set(first + CELLS + cell, (hash >> 32) as u32);
        self.set_state(bucket, cell, state);
        let bit = 1 << (24 + cell);
        let last = self.memory.word(first + LAST) & !bit;
        self.memory.set(first + LAST, if item.is_some() { last | bit } else { last });
    }

    fn place(&mut self, bucket: usize, item: Item) -> bool {
        let cell = self.taken(bucket).trailing_ones() as usize;
        if cell >= CELLS {
            return false;
        }
        self.set_item(bucket, cell, Some(item));
        true
    }

    /// Gives a key its state: it is new, or has another one from now on.
    ///
    /// # Errors
    /// No row of moves makes room within [`MOVES_MAX`]; nothing changes.
    pub(super) fn insert(&mut self, key: KeyHash, state: u8) -> Result<Inserted, Full> {
        let item = Item { hash: key.whole(), state };
        if let Some((bucket, cell)) = self.find(item.hash) {
            let previous = self.item(bucket, cell).state;
            self.set_state(bucket, cell, state);
            return Ok(Inserted::Matched(previous.into()));
        }
        let [one, other] = self.buckets(item.hash);
        if !self.place(one, item) && !self.place(other, item) {
            self.make_room(one, item)?;
        }
        Ok(Inserted::Placed)
    }

    fn make_room(&mut self, mut bucket: usize, mut item: Item) -> Result<(), Full> {
        let mut path = [(0, 0); MOVES_MAX];
        let mut choice = item.hash;
        for moved in &mut path {
            choice = mix(choice.wrapping_add(1));
            let cell = choice as usize % CELLS;
            let evicted = self.item(bucket, cell);
            self.set_item(bucket, cell, Some(item));
            (*moved, item) = ((bucket, cell), evicted);
            let [one, other] = self.buckets(item.hash);
            bucket = if bucket == one { other } else { one };
            if self.place(bucket, item) {
                return Ok(());
            }
        }
        for (bucket, cell) in path.into_iter().rev() {
            let back = self.item(bucket, cell);
            self.set_item(bucket, cell, Some(item));
            item = back;
        }
        Err(Full)
    }

    /// The key's state; nothing if it is not in the table.
    #[inline]
    pub(super) fn lookup(&self, key: KeyHash) -> Option<u8> {
        let (bucket, cell) = self.find(key.whole())?;
        Some((self.memory.word(bucket * WORDS_PER_LINE + 14 + cell / 4) >> (cell % 4 * 8)) as u8)
    }

    /// Gives a key of the table another state. Returns the one that it had; nothing if it is not in the table.
    pub(super) fn modify(&mut self, key: KeyHash, state: u8) -> Option<u8> {
        let (bucket, cell) = self.find(key.whole())?;
        let previous = self.item(bucket, cell).state;
        self.set_state(bucket, cell, state);
        Some(previous)
    }

    /// Takes a key out. Returns its state; nothing if it was not in the table.
    pub(super) fn remove(&mut self, key: KeyHash) -> Option<u8> {
        let (bucket, cell) = self.find(key.whole())?;
        let state = self.item(bucket, cell).state;
        self.set_item(bucket, cell, None);
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::filters::Secret;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> KeyHash {
        Secret::new([15, 16]).spread(number)
    }

    #[test]
    fn it_is_filled_to_97_percent_and_never_wrong() {
        let mut table = Exact::new(10_000);
        let mut number = 0;
        while table.insert(key(number), (number % 256) as u8).is_ok() {
            number += 1;
        }
        assert!((9700..=10_003).contains(&number), "{number}");
        assert!((0..number).all(|number| table.lookup(key(number)) == Some((number % 256) as u8)));
        assert!((number..number + 100_000).all(|number| table.lookup(key(number)).is_none()));
        assert!((0..number).all(|number| table.remove(key(number)).is_some()));
        assert!(table.memory.words().iter().all(|word| *word == 0));
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0_u64..60, 0_u8..3, any::<u8>()), 0..200)) {
            let mut table = Exact::new(42);
            let mut model = BTreeMap::new();
            for (number, operation, state) in steps {
                match operation {
                    0 => match table.insert(key(number), state) {
                        Ok(Inserted::Placed) => prop_assert_eq!(model.insert(number, state), None),
                        Ok(Inserted::Matched(previous)) => {
                            prop_assert_eq!(model.insert(number, state).map(u16::from), Some(previous));
                        }
                        Err(Full) => prop_assert!(!model.contains_key(&number) && model.len() > 30),
                    },
                    1 => prop_assert_eq!(table.modify(key(number), state),
                        model.get_mut(&number).map(|known| std::mem::replace(known, state))),
                    _ => prop_assert_eq!(table.remove(key(number)), model.remove(&number)),
                }
                for number in 0..60 {
                    prop_assert_eq!(table.lookup(key(number)), model.get(&number).copied());
                }
            }
        }
    }
}
