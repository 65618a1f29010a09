//! Keys: one keyed computation yields all hash values that the structures need.
//!
//! Without the secret, an attacker cannot choose keys that collide. A [`KeyHash`] is two words: the index of the key's
//! first cell, and the distance to each further cell.
//!
//! This is double hashing, which serves balanced allocations and Bloom filters as well as independent functions do
//! (Kirsch and Mitzenmacher, "Less hashing, same performance", 2006; Mitzenmacher, "Balanced allocations and double
//! hashing", 2012). The fingerprint is the low end of the second word, which does not influence the indices.

use core::fmt;

/// The secret under which keys are hashed. Nodes that exchange filters must share it.
#[derive(Clone, Copy)]
pub struct Secret {
    sip: [u64; 2],
    /// Values XORed into a 64-bit hash before each multiplication: first, for the index, for the step.
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

    /// Expands a 64-bit keyed hash by three multiplications. The caller's hash, such as SipHash, must prevent chosen
    /// collisions; this function only spreads the values, also those of consecutive numbers.
    #[must_use]
    #[inline]
    pub fn spread(&self, hash: u64) -> KeyHash {
        let hash = fold(hash ^ self.whitening[0], self.multipliers[0]);
        let [place, step] = [1, 2].map(|round| fold(hash ^ self.whitening[round], self.multipliers[round]));
        KeyHash { place, step }
    }

    /// A number derived from the secret that does not disclose it. Receivers compare it to verify that both ends hash
    /// keys alike.
    #[must_use]
    pub fn check(&self) -> u64 {
        siphash128(self.sip, b"the same secret?")[0]
    }
}

/// XOR of both halves of the product.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Mixes a word that no attacker chooses: fingerprints, and the words of a digest.
#[inline]
#[must_use]
pub const fn mix(word: u64) -> u64 {
    fold(word ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93)
}

/// The hash of a key, from which every structure derives indices and fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyHash {
    place: u64,
    step: u64,
}

impl KeyHash {
    /// The key's index with number `number`, below `range`.
    #[must_use]
    #[inline(always)]
    pub const fn index(self, number: u64, range: u64) -> usize {
        let place = self.place.wrapping_add(self.step.wrapping_mul(number));
        ((place as u128 * range as u128) >> 64) as usize
    }

    /// The lowest `bits` bits of the key's second word, at most 31. They are independent of the indices.
    #[must_use]
    #[inline(always)]
    pub const fn fingerprint(self, bits: u32) -> u32 {
        self.step as u32 & ((1 << bits) - 1)
    }

    /// The 64 bits that distinguish keys in an exact table.
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
            // Selects 128 bits of output instead of 64.
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

    /// Consecutive numbers are the least random keys.
    #[test]
    fn consecutive_numbers_are_spread_evenly() {
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
