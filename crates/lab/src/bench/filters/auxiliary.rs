//! A filter with a counting Bloom filter beside it (the ACBF of MLCBF, section 3.1), which rejects most absent keys
//! before any bucket is read.

use ::filters::multi_level::SearchCost;
use ::filters::{
    CountingBloom, CountingBloomShape, Exchange, Full, Inserted, KeyHash, Memory, MultiLevel, MultiLevelShape,
    ShapeError, States,
};

/// Both filters.
pub(super) struct WithAuxiliary {
    cells: MultiLevel<States>,
    auxiliary: CountingBloom,
}

impl WithAuxiliary {
    /// Empty ones.
    ///
    /// # Errors
    /// A shape is invalid.
    pub(super) fn new(shape: MultiLevelShape, auxiliary: CountingBloomShape) -> Result<Self, ShapeError> {
        Ok(Self { cells: MultiLevel::new(shape)?, auxiliary: CountingBloom::new(auxiliary)? })
    }

    /// As [`MultiLevel::insert`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(super) fn insert(&mut self, key: KeyHash, state: u16) -> Result<Inserted, Full> {
        let inserted = if self.auxiliary.contains(key) {
            self.cells.insert(key, state)?
        } else {
            self.cells.insert_distinct(key, state)?;
            Inserted::Placed
        };
        if inserted == Inserted::Placed {
            self.auxiliary.insert(key);
        }
        Ok(inserted)
    }

    /// As [`MultiLevel::lookup`].
    #[inline]
    pub(super) fn lookup(&self, key: KeyHash) -> Option<u16> {
        if self.auxiliary.contains(key) { self.cells.lookup(key) } else { None }
    }

    /// As [`MultiLevel::modify`].
    #[inline]
    pub(super) fn modify(&mut self, key: KeyHash, state: u16) -> Option<u16> {
        self.cells.modify(key, state)
    }

    /// As [`MultiLevel::remove`].
    #[inline]
    pub(super) fn remove(&mut self, key: KeyHash) -> Option<u16> {
        let state = self.cells.remove(key)?;
        self.auxiliary.remove(key);
        Some(state)
    }

    /// As [`MultiLevel::search_cost`]; zero where the auxiliary filter rejects the key.
    pub(super) fn search_cost(&self, key: KeyHash) -> SearchCost {
        if self.auxiliary.contains(key) {
            return self.cells.search_cost(key);
        }
        SearchCost { cells: 0, is_found: false }
    }

    /// The filter without the one beside it.
    pub(super) const fn cells(&self) -> &MultiLevel<States> {
        &self.cells
    }

    /// The words of the filter without the one beside it.
    pub(super) fn memory_mut(&mut self) -> &mut Memory {
        self.cells.memory_mut()
    }

    /// What both take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.cells.bytes() + self.auxiliary.memory().bytes()
    }
}

#[cfg(test)]
mod tests {
    use ::filters::Secret;

    use super::*;

    #[test]
    fn an_auxiliary_filter_changes_no_answer() {
        let (shape, secret) = (MultiLevelShape::for_items(1000, 8), Secret::new([1, 2]));
        let auxiliary = CountingBloomShape { counters: 4000, hashes: 2 };
        let mut filter = WithAuxiliary::new(shape, auxiliary).expect("shapes");
        let mut plain = MultiLevel::<States>::new(shape).expect("a shape");
        for number in 0..3000_u64 {
            let key = secret.spread(number * 7 % 900);
            match number % 3 {
                2 => assert_eq!(filter.remove(key), plain.remove(key)),
                _ => assert_eq!(filter.insert(key, (number % 256) as u16), plain.insert(key, (number % 256) as u16)),
            }
            assert_eq!(filter.lookup(key), plain.lookup(key));
            assert_eq!(filter.search_cost(key).is_found, plain.lookup(key).is_some());
        }
        assert!(plain.len() > 100 && filter.cells().len() == plain.len());
    }
}
