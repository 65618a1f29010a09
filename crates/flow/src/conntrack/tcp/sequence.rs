//! Sequence numbers, compared round their end (RFC 9293 section 3.4): right while they are less than 2^31 apart.

/// Whether `a` lies before `b`.
pub(super) const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether `a` lies behind `b`.
pub(super) const fn after(a: u32, b: u32) -> bool {
    before(b, a)
}

/// The one of the two that lies further on.
pub(super) const fn later(a: u32, b: u32) -> u32 {
    if after(a, b) { a } else { b }
}
