//! The filter whose cells hold states: a map from keys to states.

use super::probe::{BATCH_KEYS, Spot, TAKEN};
#[cfg(target_arch = "x86_64")]
use super::search::Search;
use super::{MultiLevel, States};
use crate::hash::KeyHash;
use crate::{Full, Inserted};

impl MultiLevel<States> {
    /// Sets a key's state; inserts the key if it is absent.
    ///
    /// # Errors
    /// None of the key's buckets has a free cell; nothing changes.
    ///
    /// # Panics
    /// The state is beyond [`MultiLevel::content_max`].
    #[inline]
    pub fn insert(&mut self, key: KeyHash, state: u16) -> Result<Inserted, Full> {
        self.check(state);
        match self.spot(key) {
            Spot::Found(index) => {
                let previous = self.content(index);
                self.set_content(index, state.into());
                Ok(Inserted::Matched(previous as u16))
            }
            Spot::Free(index) => {
                self.take_cell(index, key, state.into());
                Ok(Inserted::Placed)
            }
            Spot::None => Err(Full),
        }
    }

    /// Gives an absent key a new cell even if another key has the same fingerprint; the caller knows that the key is
    /// new. Two colliding items both remain until both are removed, though a lookup of one may return the other's
    /// state.
    ///
    /// # Errors
    /// None of the key's buckets has a free cell; nothing changes.
    ///
    /// # Panics
    /// The state is beyond [`MultiLevel::content_max`].
    #[inline]
    pub fn insert_distinct(&mut self, key: KeyHash, state: u16) -> Result<(), Full> {
        self.check(state);
        let index = self.free_cell(key).ok_or(Full)?;
        self.take_cell(index, key, state.into());
        Ok(())
    }

    #[inline(always)]
    fn check(&self, state: u16) {
        assert!(state <= self.content_max(), "a state of {} bits", self.shape.content_bits);
    }

    /// The key's state; none if the filter does not contain it.
    #[must_use]
    #[inline]
    pub fn lookup(&self, key: KeyHash) -> Option<u16> {
        self.find_cell(key).map(|cell| self.content_of(cell.get()) as u16)
    }

    /// Looks up many keys; `states` receives the state of each, up to the shorter length. A batch is faster than single
    /// lookups once the filter exceeds the processor's caches.
    pub fn lookup_batch(&self, keys: &[KeyHash], states: &mut [Option<u16>]) {
        #[cfg(target_arch = "x86_64")]
        if let Search::Wide(levels) = &self.search {
            return levels.lookup_batch(&self.memory, keys, states);
        }
        for (keys, states) in keys.chunks(BATCH_KEYS).zip(states.chunks_mut(BATCH_KEYS)) {
            keys.iter().for_each(|key| self.prefetch(*key));
            for (key, state) in keys.iter().zip(states) {
                *state = self.lookup(*key);
            }
        }
    }

    /// Changes a key's state. Returns the former one; none if the filter does not contain the key.
    ///
    /// # Panics
    /// The state is beyond [`MultiLevel::content_max`].
    #[inline]
    pub fn modify(&mut self, key: KeyHash, state: u16) -> Option<u16> {
        self.check(state);
        let index = self.find(key)?;
        let previous = self.content(index);
        self.set_content(index, state.into());
        Some(previous as u16)
    }

    /// Changes a key's state from `before` to `after`. Among colliding items it changes one in state `before`. Returns
    /// whether there was one; if not, nothing changes.
    ///
    /// # Panics
    /// A state is beyond [`MultiLevel::content_max`].
    pub fn modify_state(&mut self, key: KeyHash, before: u16, after: u16) -> bool {
        self.check(after);
        let found = self.find_state(key, before);
        if let Some(index) = found {
            self.set_content(index, after.into());
        }
        found.is_some()
    }

    /// The first cell with the key's fingerprint and this state.
    fn find_state(&self, key: KeyHash, state: u16) -> Option<usize> {
        let probe = self.probe(key);
        let mut matches = probe.matches;
        while matches != 0 {
            let index = self.word_at(&probe, matches.trailing_zeros());
            if self.content(index) == u32::from(state) {
                return Some(index);
            }
            matches &= matches - 1;
        }
        None
    }

    /// Removes a key. Returns its state; none if the filter did not contain it.
    #[inline]
    pub fn remove(&mut self, key: KeyHash) -> Option<u16> {
        let index = self.find(key)?;
        let state = self.content(index);
        self.free(index);
        Some(state as u16)
    }

    /// Removes a key whose state is known. Among colliding items it removes one in that state. Returns whether there
    /// was one; if not, nothing changes.
    pub fn remove_state(&mut self, key: KeyHash, state: u16) -> bool {
        let Some(index) = self.find_state(key, state) else { return false };
        self.free(index);
        true
    }

    /// Keeps the items whose states `keeps` accepts, and frees the cells of the others. Returns how many were freed. It reads every cell.
    pub fn retain_states(&mut self, keeps: impl Fn(u16) -> bool) -> usize {
        let before = self.items;
        for index in 0..self.memory.words().len() {
            let cell = self.memory.word(index);
            if cell & TAKEN != 0 && !keeps(self.content_of(cell) as u16) {
                self.free(index);
            }
        }
        before - self.items
    }
}
