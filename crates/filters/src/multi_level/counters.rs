//! The filter whose cells count: a multiset.

use super::probe::Spot;
use super::{Counters, MultiLevel};
use crate::hash::KeyHash;
use crate::{Full, Inserted};

impl MultiLevel<Counters> {
    /// Adds a key once. A counter that has come to [`MultiLevel::content_max`] stays there for good.
    ///
    /// # Errors
    /// The key is new and none of its buckets has a free cell; nothing changes.
    #[inline]
    pub fn insert(&mut self, key: KeyHash) -> Result<Inserted, Full> {
        match self.spot(key) {
            Spot::Found(index) => {
                let count = self.content(index);
                if count < self.content_max().into() {
                    self.set_content(index, count + 1);
                }
                Ok(Inserted::Matched(count as u16))
            }
            Spot::Free(index) => {
                self.take_cell(index, key, 1);
                Ok(Inserted::Placed)
            }
            Spot::None => Err(Full),
        }
    }

    /// How often the key was inserted and not removed, at most.
    #[must_use]
    #[inline]
    pub fn count(&self, key: KeyHash) -> u16 {
        self.find_cell(key).map_or(0, |cell| self.content_of(cell.get()) as u16)
    }

    /// Whether the key is in it, or looks so.
    #[must_use]
    #[inline]
    pub fn contains(&self, key: KeyHash) -> bool {
        self.count(key) > 0
    }

    /// Takes a key out once. Returns whether it can have been in it; if not, nothing changes.
    #[inline]
    pub fn remove(&mut self, key: KeyHash) -> bool {
        let Some(index) = self.find(key) else { return false };
        let count = self.content(index);
        match count {
            1 => self.free(index),
            count if count < self.content_max().into() => self.set_content(index, count - 1),
            // It is not known how many it has counted.
            _ => {}
        }
        true
    }
}
