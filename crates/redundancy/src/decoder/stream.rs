//! The stream that a decoder follows, and what it takes to open one.

use crate::wire::control::Parent;

/// The stream that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stream {
    pub(super) epoch: u32,
    /// The stream that it continues, whose last blocks may still be on the way.
    pub(super) former: Option<Parent>,
}

/// The last cookie given, and for whom; and the one that was used last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cookies {
    pub(super) given: u32,
    pub(super) epoch: u32,
    pub(super) used: Option<u32>,
}
