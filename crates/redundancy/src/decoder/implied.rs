//! The numbers of blocks that carry none; see [`super::order`].

use core::ops::Range;

use crate::packet_cache::Placement;

/// The number that follows from the order, and the unconfirmed run.
#[derive(Clone, Debug, Default)]
pub(super) struct Implied {
    /// The next block's number. None: unknown until a block carries one.
    pub(super) placement: Option<Placement>,
    /// Numbers of blocks since the last one that carried its number.
    pub(super) run: Range<u64>,
}

impl Implied {
    /// Whether the data at this number is unconfirmed.
    pub(super) fn is_unconfirmed(&self, number: u64) -> bool {
        self.run.contains(&number)
    }
}
