//! A check of the referenced bytes: four parallel chains of double-width products, so that it costs less than copying
//! the bytes.
//!
//! Numbers alone identify the referenced bytes. The check detects bad memory, a wrong peer, and delayed packets. It
//! guards against accidents, not against forgery.

const LANES: usize = 4;
/// Each lane takes two words of a stripe.
const STRIPE_BYTES: usize = 16 * LANES;
const KEYS: [u64; LANES] = [0xbe4b_a423_396c_feb8, 0x1cad_2175_2bae_6c9e, 0x9f0b_35d1_7c44_e2a3, 0x5d3f_6e81_42b7_c90d];
const FINAL: u64 = 0x9fb2_1c65_1e98_df25;

/// The check of several successive runs of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReferenceCheck(u64);

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn absorb(lanes: &mut [u64; LANES], stripe: &[u8; STRIPE_BYTES]) {
    let (words, _) = stripe.as_chunks::<8>();
    for (at, lane) in lanes.iter_mut().enumerate() {
        let [first, second] = [words[2 * at], words[2 * at + 1]].map(u64::from_le_bytes);
        *lane = fold(first ^ KEYS[at], second ^ *lane);
    }
}

impl ReferenceCheck {
    /// Adds a run.
    #[inline]
    pub(crate) fn add(&mut self, run: &[u8]) {
        let mut lanes = [FINAL, !FINAL, KEYS[0] ^ FINAL, KEYS[1] ^ FINAL];
        let (stripes, rest) = run.as_chunks::<STRIPE_BYTES>();
        for stripe in stripes {
            absorb(&mut lanes, stripe);
        }
        if !rest.is_empty() {
            let mut last = [0; STRIPE_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            absorb(&mut lanes, &last);
        }
        let [a, b, c, d] = lanes;
        let folded = fold(a ^ b.rotate_left(32) ^ KEYS[2], c ^ d.rotate_left(32) ^ run.len() as u64);
        self.0 = fold(self.0 ^ folded ^ KEYS[3], FINAL ^ b ^ d);
    }

    /// The check of all runs.
    pub(crate) const fn finish(self) -> u32 {
        (self.0 ^ (self.0 >> 32)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn check(runs: &[&[u8]]) -> u32 {
        let mut check = ReferenceCheck::default();
        runs.iter().for_each(|run| check.add(run));
        check.finish()
    }

    #[test]
    fn every_bit_every_place_and_every_boundary_counts() {
        let bytes: Vec<u8> = (0..1460_u32).map(|at| ((at * 31) >> 3) as u8).collect();
        let expected = check(&[&bytes]);
        for bit in 0..8 * bytes.len() {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check(&[&changed]), expected, "bit {bit}");
        }
        for stripe in 0..21 {
            let mut swapped = bytes.clone();
            swapped[stripe * 64..(stripe + 2) * 64].rotate_left(64);
            if swapped != bytes {
                assert_ne!(check(&[&swapped]), expected, "stripe {stripe}");
            }
        }
        assert_ne!(check(&[&bytes[..700], &bytes[700..]]), expected);
        assert_ne!(check(&[&bytes[..64], &[0; 64]]), check(&[&bytes[..64], &[0; 65]]));
    }
}
