//! Keys: one computation under a secret gives all that any of the structures needs of a key.
//!
//! Who does not know the secret cannot choose keys that meet in the same cells. A [`KeyHash`] is two words: where the
//! key's first cell is, and how far it is from there to each of the others (double hashing, which does to balanced
//! allocations and Bloom filters what independent functions do: Kirsch and Mitzenmacher, "Less hashing, same performance",
//! 2006; Mitzenmacher, "Balanced allocations and double hashing", 2012). The fingerprint is the low end of the second word,
//! which the places do not depend on.

use core::fmt;

/// The secret under which keys are hashed. Nodes that exchange filters must share it.
#[derive(Clone, Copy)]
pub struct Secret {
    sip: [u64; 2],
    /// What a 64-bit hash is changed by, and multiplied with: at first, for the place, for the step.
    whitening: [u64; 3],
    multipliers: [u64; 3],
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The secret with this key.
    #[must_use]
    pub fn new(key: [u64; 2]) -> Self {
        let words = [*b"spread 1", *b"spread 2", *b"spread 3"].map(|purpose| siphash128(key, &purpose));
        Self { sip: key, whitening: words.map(|[first, _]| first), multipliers: words.map(|[_, second]| second | 1) }
    }

    /// The hash of a key in bytes: SipHash-1-3 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast
    /// short-input PRF", 2012).
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> KeyHash {
        let [place, step] = siphash128(self.sip, bytes);
        KeyHash { place, step }
    }

    /// Makes of a 64-bit keyed hash all that is needed, by three multiplications. That nobody can choose keys which meet is
    /// the hash's promise, as SipHash makes it: this only spreads it, evenly even where the hashes are numbers in a row.
    #[must_use]
    #[inline]
    pub fn spread(&self, hash: u64) -> KeyHash {
        let hash = fold(hash ^ self.whitening[0], self.multipliers[0]);
        let [place, step] = [1, 2].map(|round| fold(hash ^ self.whitening[round], self.multipliers[round]));
        KeyHash { place, step }
    }

    /// A number that is the same for the same secret and betrays nothing of it: by it a filter's receiver knows that it can
    /// look up its own keys.
    #[must_use]
    pub fn check(&self) -> u64 {
        siphash128(self.sip, b"the same secret?")[0]
    }
}

/// Both halves of the product, as one.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Spreads a word that no attacker chooses: fingerprints, and the words of a digest.
#[inline]
#[must_use]
pub const fn mix(word: u64) -> u64 {
    fold(word ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93)
}

/// The hash of a key: all that the structures know of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyHash {
    place: u64,
    step: u64,
}

impl KeyHash {
    /// Which of `range` places is the key's with number `number`.
    #[must_use]
    #[inline(always)]
    pub const fn index(self, number: u64, range: u64) -> usize {
        let place = self.place.wrapping_add(self.step.wrapping_mul(number));
        ((place as u128 * range as u128) >> 64) as usize
    }

    /// So many bits of the key, 31 at most, that its places tell nothing about.
    #[must_use]
    #[inline(always)]
    pub const fn fingerprint(self, bits: u32) -> u32 {
        self.step as u32 & ((1 << bits) - 1)
    }

    /// The 64 bits by which an exact table tells keys apart.
    #[must_use]
    #[inline(always)]
    pub const fn whole(self) -> u64 {
        self.place
    }
}

fn siphash128(key: [u64; 2], bytes: &[u8]) -> [u64; 2] {
    let mut state = SipState::new(key);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state.compress(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // SipHash ends with the length's low byte.
    last[7] = bytes.len() as u8;
    state.compress(u64::from_le_bytes(last));
    state.finish()
}

struct SipState([u64; 4]);

impl SipState {
    fn new(key: [u64; 2]) -> Self {
        Self([
            key[0] ^ u64::from_be_bytes(*b"somepseu"),
            // What tells 128 bits of output from 64.
            key[1] ^ u64::from_be_bytes(*b"dorandom") ^ 0xee,
            key[0] ^ u64::from_be_bytes(*b"lygenera"),
            key[1] ^ u64::from_be_bytes(*b"tedbytes"),
        ])
    }

    #[inline]
    fn compress(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    fn finish(mut self) -> [u64; 2] {
        self.0[2] ^= 0xee;
        let first = self.last_rounds();
        self.0[1] ^= 0xdd;
        [first, self.last_rounds()]
    }

    fn last_rounds(&mut self) -> u64 {
        self.round();
        self.round();
        self.round();
        self.0.iter().fold(0, |all, word| all ^ word)
    }

    #[inline]
    const fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v1);
        v0 = v0.wrapping_add(v3);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.rotate_left(32);
        self.0 = [v0, v1, v2, v3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hash::Hasher;
    use proptest::prelude::*;
    use siphasher::sip128::{Hasher128, SipHasher13};

    proptest! {
        #[test]
        fn bytes_are_hashed_by_siphash_1_3_128(bytes: std::vec::Vec<u8>, key: [u64; 2]) {
            let mut reference = SipHasher13::new_with_keys(key[0], key[1]);
            reference.write(&bytes);
            let expected = reference.finish128();
            let hash = Secret::new(key).hash(&bytes);
            prop_assert_eq!((hash.place, hash.step), (expected.h1, expected.h2));
        }

        #[test]
        fn another_secret_gives_another_hash(key: [u64; 2], hash: u64) {
            let (one, other) = (Secret::new(key), Secret::new([key[0], key[1] ^ 1]));
            prop_assert_ne!(one.spread(hash), other.spread(hash));
            prop_assert_ne!(one.check(), other.check());
        }
    }

    /// Numbers that follow each other are the least random keys there are.
    #[test]
    fn places_and_fingerprints_of_numbers_in_a_row_are_spread_evenly() {
        const KEYS: u64 = 1 << 20;
        const BINS: u64 = 1 << 10;
        let secret = Secret::new([3, 4]);
        let mut counts = [[0_u32; BINS as usize]; 5];
        for number in 0..KEYS {
            let key = secret.spread(number);
            for place in 0..4 {
                counts[place][key.index(place as u64, BINS)] += 1;
            }
            counts[4][key.fingerprint(10) as usize] += 1;
        }
        for bins in counts {
            let expected = (KEYS / BINS) as f64;
            let chi_squared: f64 = bins.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
            // 1023 degrees of freedom: 1023 on average, with a standard deviation of 45.
            assert!((1023.0 - 180.0..1023.0 + 180.0).contains(&chi_squared), "{chi_squared}");
        }
    }
}
