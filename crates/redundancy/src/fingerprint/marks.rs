//! What fingerprinting finds in a block.

use alloc::vec::Vec;

/// The markers of a block and their fingerprints, to be used again for the next.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// The markers' places, and behind them what a method left there.
    pub(super) offsets: Vec<u32>,
    pub(super) found: usize,
    pub(super) fingerprints: Vec<u64>,
    /// Flags by byte that a method works with.
    pub(super) scratch: Vec<u8>,
    /// Maxima by byte that a method works with.
    pub(super) maxima: Vec<u8>,
}

impl Marks {
    /// Where the markers are, ascending.
    #[must_use]
    pub fn offsets(&self) -> &[u32] {
        &self.offsets[..self.found]
    }

    /// What the windows at the markers hash to, in the same order.
    #[must_use]
    pub fn fingerprints(&self) -> &[u64] {
        &self.fingerprints
    }
}
