//! A check of the bytes that pointers stand for, in the manner of NH (UMAC, RFC 4418): sums of products of halves of words.
//!
//! Numbers alone say which bytes are meant. The check is for what numbers cannot know: memory that went bad, a peer that is
//! not what it was taken for, a packet that comes from another time. It guards against accidents, not against forgery.

const LANES: usize = 8;
const STRIPE_BYTES: usize = 8 * LANES;
const KEYS: [u64; LANES] = [
    0xbe4b_a423_396c_feb8,
    0x1cad_2175_2bae_6c9e,
    0x9f0b_35d1_7c44_e2a3,
    0x5d3f_6e81_42b7_c90d,
    0xe708_91c5_3da2_6bf4,
    0x3b96_f24a_85d1_70ec,
    0x78c2_0de9_f613_a45b,
    0xc4a1_583e_0b97_2fd6,
];
/// By how much the keys of a stripe differ from those of the one before.
const SALT_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const FINAL: u64 = 0x9fb2_1c65_1e98_df25;

/// The check of several runs of bytes, one after another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReferenceCheck(u64);

#[inline(always)]
fn absorb(lanes: &mut [u64; LANES], stripe: &[u8; STRIPE_BYTES], salt: u64) {
    let (words, _) = stripe.as_chunks::<8>();
    for ((lane, word), key) in lanes.iter_mut().zip(words).zip(KEYS) {
        let word = u64::from_le_bytes(*word);
        let keyed = word ^ key.wrapping_add(salt);
        // The word itself is added with its halves exchanged: a half that is zero after the key hides nothing.
        *lane = lane.wrapping_add((keyed & 0xffff_ffff) * (keyed >> 32)).wrapping_add(word.rotate_left(32));
    }
}

impl ReferenceCheck {
    /// Adds a run.
    #[inline]
    pub(crate) fn add(&mut self, run: &[u8]) {
        let mut lanes = KEYS;
        // Every stripe has keys of its own: where bytes stand counts.
        let mut salt = 0_u64;
        let (stripes, rest) = run.as_chunks::<STRIPE_BYTES>();
        for stripe in stripes {
            absorb(&mut lanes, stripe, salt);
            salt = salt.wrapping_add(SALT_STEP);
        }
        if !rest.is_empty() {
            let mut last = [0; STRIPE_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            absorb(&mut lanes, &last, salt);
        }
        let folded = lanes.iter().fold(run.len() as u64, |sum, lane| {
            let mixed = (sum.rotate_left(29) ^ lane ^ (lane >> 32)).wrapping_mul(FINAL);
            mixed ^ (mixed >> 29)
        });
        self.0 = (self.0.rotate_left(31) ^ folded).wrapping_mul(FINAL);
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
        let bytes: Vec<u8> = (0..1460_u32).map(|at| (at * 31 >> 3) as u8).collect();
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
