//! Serial number arithmetic modulo 2^32: sequence numbers (RFC 9293 section 3.4), message numbers and versions (RFC
//! 1982). Comparisons are valid while the numbers are less than 2^31 apart.

/// Whether `a` lies before `b`.
#[must_use]
pub const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether `a` lies behind `b`.
#[must_use]
pub const fn is_after(a: u32, b: u32) -> bool {
    is_before(b, a)
}

/// The later of the two.
#[must_use]
pub const fn later(a: u32, b: u32) -> u32 {
    if is_before(a, b) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_end_of_the_numbers() {
        for base in [0, 1, u32::MAX, 0x7fff_ffff, 0x8000_0000] {
            let next = base.wrapping_add(1);
            assert!(is_before(base, next) && !is_before(next, base) && !is_before(base, base));
            assert!(is_after(next, base) && !is_after(base, next) && !is_after(base, base));
            assert_eq!(later(base, next), next);
            assert_eq!(later(next, base), next);
        }
    }
}
