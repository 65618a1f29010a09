//! Message numbers go round at 2^32 and are compared as RFC 1982 says.

/// Whether `a` comes before `b`.
pub(crate) const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The later of the two.
pub(crate) const fn later(a: u32, b: u32) -> u32 {
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
            assert_eq!(later(base, next), next);
            assert_eq!(later(next, base), next);
        }
    }
}
