//! The hash of a window: it replaces the paper's Jenkins hash by double-width multiplications, which cost less today.

use super::Marks;

const KEYS: [u64; 4] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

/// A keyed hash of windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowHash {
    keys: [u64; 4],
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

#[inline(always)]
fn pair(bytes: &[u8; 16]) -> [u64; 2] {
    let (low, high) = bytes.split_at(8);
    [low, high].map(|half| word(half.try_into().expect("half of sixteen bytes")))
}

impl WindowHash {
    pub(crate) fn new(key: u64) -> Self {
        Self { keys: KEYS.map(|own| own ^ fold(key ^ KEYS[0], own)) }
    }

    /// Hashes the windows at the markers, all of which lie within `block`. Windows have at least twelve bytes. A block
    /// without a marker gets one at its beginning.
    #[inline(always)]
    pub(super) fn finish(&self, block: &[u8], window_bytes: usize, marks: &mut Marks) {
        if marks.found == 0 {
            marks.offsets.clear();
            marks.offsets.push(0);
            marks.found = 1;
        }
        let Marks { offsets, found, fingerprints, .. } = marks;
        let offsets = &offsets[..*found];
        // The usual window without a loop.
        if window_bytes == 32 {
            fingerprints.extend(offsets.iter().map(|offset| {
                let offset = *offset as usize;
                let window: &[u8; 32] = block[offset..offset + 32].try_into().expect("it is cut to 32 bytes");
                self.hash_32(window)
            }));
        } else {
            fingerprints.extend(offsets.iter().map(|offset| {
                let offset = *offset as usize;
                self.hash(&block[offset..offset + window_bytes])
            }));
        }
    }

    #[inline(always)]
    fn hash_32(&self, window: &[u8; 32]) -> u64 {
        let [k0, k1, k2, k3] = self.keys;
        let (low, high) = window.split_at(16);
        let [a, b] = pair(low.try_into().expect("half of 32 bytes"));
        let [c, d] = pair(high.try_into().expect("half of 32 bytes"));
        fold(fold(a ^ k0, b ^ k1) ^ k2, fold(c ^ k2, d ^ k3) ^ k3)
    }

    fn hash(&self, window: &[u8]) -> u64 {
        let [k0, k1, k2, k3] = self.keys;
        let mut hash = k2;
        let (pairs, _) = window.as_chunks::<16>();
        for bytes in pairs {
            let [a, b] = pair(bytes);
            hash = fold(a ^ k0 ^ hash, b ^ k1);
        }
        // The last bytes overlap with bytes already hashed.
        let tail = window.last_chunk::<8>().map_or(0, word);
        fold(hash ^ tail ^ k3, k1 ^ window.first_chunk::<8>().map_or(0, word))
    }
}
