//! MODP: Rabin fingerprints of all windows of a block (Rabin 1981; RE, figure 4.2).

use super::Marks;

/// An irreducible polynomial over GF(2) of degree 63, bit i for the coefficient of x^i.
pub(super) const POLYNOMIAL: u64 = 0xbfe6_b8a5_bf37_8d83;
const DEGREE: u32 = 63;
/// Bits of a fingerprint that a byte pushes out.
const SHIFT: u32 = DEGREE - 8;
/// Mixes a fingerprint: chosen ones end in zeros.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fingerprints of a window that slides over bytes.
#[derive(Clone, Debug)]
pub struct Rabin {
    window_bytes: usize,
    /// The value of the bits shifted out, modulo the polynomial.
    reduce: [u64; 256],
    /// The contribution of the byte that leaves the window, by its value.
    leave: [u64; 256],
}

/// `value` times x modulo the polynomial.
const fn times_x(value: u64) -> u64 {
    let doubled = value << 1;
    if doubled >> DEGREE == 1 { doubled ^ POLYNOMIAL } else { doubled }
}

/// `value` times x to the `power` modulo the polynomial.
fn shifted(value: u64, power: usize) -> u64 {
    (0..power).fold(value, |value, _| times_x(value))
}

impl Rabin {
    /// For windows of `bytes` bytes.
    #[must_use]
    pub fn new(window_bytes: usize) -> Self {
        let table = |power| core::array::from_fn(|byte| shifted(byte as u64, power));
        Self { window_bytes, reduce: table(DEGREE as usize), leave: table(8 * window_bytes.saturating_sub(1)) }
    }

    /// The fingerprint with one more byte at the end.
    #[inline(always)]
    #[must_use]
    pub const fn push(&self, fingerprint: u64, byte: u8) -> u64 {
        let out = (fingerprint >> SHIFT) as usize;
        (((fingerprint & ((1 << SHIFT) - 1)) << 8) | byte as u64) ^ self.reduce[out & 0xff]
    }

    /// The fingerprint of the next window: without `first`, with `byte`.
    #[inline(always)]
    #[must_use]
    pub const fn slide(&self, fingerprint: u64, first: u8, byte: u8) -> u64 {
        self.push(fingerprint ^ self.leave[first as usize], byte)
    }

    /// Calls `visit` with the place and fingerprint of every window of `block`.
    #[inline(always)]
    pub fn each_window(&self, block: &[u8], mut visit: impl FnMut(usize, u64)) {
        if block.len() < self.window_bytes {
            return;
        }
        let (first, rest) = block.split_at(self.window_bytes);
        let mut fingerprint = first.iter().fold(0, |fingerprint, byte| self.push(fingerprint, *byte));
        visit(0, fingerprint);
        for (at, (leaving, coming)) in block.iter().zip(rest).enumerate() {
            fingerprint = self.slide(fingerprint, *leaving, *coming);
            visit(at + 1, fingerprint);
        }
    }

    /// Marks the windows whose fingerprint is 0 modulo p; if there is none, the one with the least.
    pub(super) fn mark(&self, block: &[u8], period_bytes: usize, marks: &mut Marks) {
        let mask = period_bytes as u64 - 1;
        let Marks { offsets, fingerprints, .. } = marks;
        self.each_window(block, |at, fingerprint| {
            if fingerprint & mask == 0 {
                offsets.push(at as u32);
                fingerprints.push(spread(fingerprint));
            }
        });
        if offsets.is_empty() {
            let mut least = (u64::MAX, 0);
            self.each_window(block, |at, fingerprint| least = least.min((fingerprint, at)));
            offsets.push(least.1 as u32);
            fingerprints.push(spread(least.0));
        }
    }
}

/// All bits of the result depend on all of the fingerprint.
const fn spread(fingerprint: u64) -> u64 {
    let product = fingerprint.wrapping_mul(SPREAD);
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multiply(a: u64, b: u64) -> u64 {
        let mut a = a;
        (0..DEGREE).fold(0, |sum, bit| {
            let sum = if b >> bit & 1 == 1 { sum ^ a } else { sum };
            a = times_x(a);
            sum
        })
    }

    /// x to the power of 2^n.
    fn x_squared_times(n: u32) -> u64 {
        (0..n).fold(2, |value, _| multiply(value, value))
    }

    fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
        while b != 0 {
            while a != 0 && a.leading_zeros() <= b.leading_zeros() {
                a ^= b << (b.leading_zeros() - a.leading_zeros());
            }
            (a, b) = (b, a);
        }
        a
    }

    #[test]
    fn the_polynomial_is_irreducible() {
        // Rabin's test: x^(2^63) is x, and x^(2^(63/q)) - x has no factor in common for the primes q of 63.
        assert_eq!(x_squared_times(63), 2);
        for prime in [3, 7] {
            let difference = x_squared_times(63 / prime) ^ 2;
            assert_eq!(greatest_common_divisor(POLYNOMIAL, difference), 1);
        }
    }

    #[test]
    fn a_sliding_window_equals_a_fresh_one() {
        let rabin = Rabin::new(16);
        let bytes: [u8; 200] = core::array::from_fn(|at| (at * at * 7 + at) as u8);
        rabin.each_window(&bytes, |at, fingerprint| {
            let fresh = bytes[at..at + 16].iter().fold(0, |fingerprint, byte| rabin.push(fingerprint, *byte));
            assert_eq!(fingerprint, fresh, "at {at}");
        });
    }
}
