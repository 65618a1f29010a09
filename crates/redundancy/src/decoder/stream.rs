//! The stream that a decoder follows, and the cookies that open one.

use crate::wire::control::Parent;

/// The open stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stream {
    pub(super) epoch: u32,
    /// The stream that it continues, whose last blocks may still be in flight.
    pub(super) former: Option<Parent>,
}

/// The last cookie issued, and its receiver; and the one used last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cookies {
    pub(super) given: u32,
    pub(super) epoch: u32,
    pub(super) used: Option<u32>,
}
