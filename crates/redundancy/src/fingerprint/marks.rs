//! The result of fingerprinting a block.

use alloc::vec::Vec;

/// The markers of a block and their fingerprints, reused for the next.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// The markers' positions, followed by scratch data of the method.
    pub(super) offsets: Vec<u32>,
    pub(super) found: usize,
    pub(super) fingerprints: Vec<u64>,
    /// Scratch flags by byte.
    pub(super) scratch: Vec<u8>,
    /// Scratch maxima by byte.
    pub(super) maxima: Vec<u8>,
}

impl Marks {
    /// The markers' positions, ascending.
    #[must_use]
    pub fn offsets(&self) -> &[u32] {
        &self.offsets[..self.found]
    }

    /// The hashes of the windows at the markers, in the same order.
    #[must_use]
    pub fn fingerprints(&self) -> &[u64] {
        &self.fingerprints
    }
}
