//! The filter whose cells hold counters: a multiset.

use super::probe::Spot;
use super::{Counters, MultiLevel};
use crate::hash::KeyHash;
use crate::{Full, Inserted};

impl MultiLevel<Counters> {
    /// Adds a key once. A counter that reaches [`MultiLevel::content_max`] saturates.
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

    /// The key's count: insertions less removals, or more by a collision.
    #[must_use]
    #[inline]
    pub fn count(&self, key: KeyHash) -> u16 {
        self.find_cell(key).map_or(0, |cell| self.content_of(cell.get()) as u16)
    }

    /// Whether the filter contains the key, or a false positive.
    #[must_use]
    #[inline]
    pub fn contains(&self, key: KeyHash) -> bool {
        self.count(key) > 0
    }

    /// Removes a key once. Returns whether the filter contained it; if not, nothing changes.
    #[inline]
    pub fn remove(&mut self, key: KeyHash) -> bool {
        let Some(index) = self.find(key) else { return false };
        let count = self.content(index);
        match count {
            1 => self.free(index),
            count if count < self.content_max().into() => self.set_content(index, count - 1),
            // A saturated counter stays, as its true count is unknown.
            _ => {}
        }
        true
    }
}
