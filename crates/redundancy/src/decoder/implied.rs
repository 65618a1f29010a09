//! What follows of blocks that came without a number; see [`super::order`].

use core::ops::Range;

use crate::packet_cache::Placement;

/// What follows from the order.
#[derive(Clone, Debug, Default)]
pub(super) struct Implied {
    /// Where the next block goes. None: not known before the next number.
    pub(super) placement: Option<Placement>,
    /// Numbers of blocks since the last that brought its own.
    pub(super) run: Range<u64>,
}

impl Implied {
    /// Whether what has this number may be another's.
    pub(super) fn is_unsure(&self, number: u64) -> bool {
        self.run.contains(&number)
    }
}
