//! The last position of each chunk, by its hash alone (RE, section 4.3, Chunk-Match). The encoder keeps no payload,
//! so a hash stands for the bytes: 128 bits of SipHash-2-4 under a secret key, without which no collision can be
//! constructed. (The paper uses SHA-1, for which collisions can be constructed today.)

use alloc::boxed::Box;
use alloc::vec;

use flow::table::prefetch::prefetch;

use crate::limits::GRANULE_BYTES;

/// An entry of 24 bytes for every 64 bytes of the cache: 38 % of it, whatever the period.
const CACHE_BYTES_PER_ENTRY: usize = 64;
const LENGTH_BITS: u32 = 16;

/// A chunk in the decoder's cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    /// The position of its first byte: the numbering of granules, in bytes.
    pub(crate) position: u64,
    pub(crate) length: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: [u64; 2],
    /// Position and length.
    place: u64,
}

const _: () = assert!(size_of::<Entry>() == 24);

/// The chunk-hash store.
#[derive(Clone, Debug)]
pub(crate) struct ChunkIndex {
    entries: Box<[Entry]>,
    key: [u64; 2],
}

impl ChunkIndex {
    pub(crate) fn new(granules: u64, key: [u64; 2]) -> Self {
        let entries = granules as usize * GRANULE_BYTES / CACHE_BYTES_PER_ENTRY;
        Self { entries: vec![Entry::default(); entries].into_boxed_slice(), key }
    }

    pub(crate) fn hash(&self, chunk: &[u8]) -> [u64; 2] {
        siphash_2_4_128(self.key, chunk)
    }

    const fn slot(&self, hash: [u64; 2]) -> usize {
        (((hash[0] >> 32) * self.entries.len() as u64) >> 32) as usize
    }

    pub(crate) fn prefetch(&self, hash: [u64; 2]) {
        prefetch(&self.entries, self.slot(hash), 0);
    }

    /// Stores a chunk's position, and returns the former one, if it was of the same bytes.
    pub(crate) fn replace(&mut self, hash: [u64; 2], chunk: Chunk) -> Option<Chunk> {
        let slot = self.slot(hash);
        let place = chunk.position << LENGTH_BITS | chunk.length as u64;
        let former = core::mem::replace(self.entries.get_mut(slot)?, Entry { hash, place });
        let length = (former.place & ((1 << LENGTH_BITS) - 1)) as usize;
        (former.hash == hash && length == chunk.length)
            .then_some(Chunk { position: former.place >> LENGTH_BITS, length })
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }
}

const fn round([a, b, c, d]: [u64; 4]) -> [u64; 4] {
    let a = a.wrapping_add(b);
    let b = b.rotate_left(13) ^ a;
    let a = a.rotate_left(32);
    let c = c.wrapping_add(d);
    let d = d.rotate_left(16) ^ c;
    let a = a.wrapping_add(d);
    let d = d.rotate_left(21) ^ a;
    let c = c.wrapping_add(b);
    let b = b.rotate_left(17) ^ c;
    [a, b, c.rotate_left(32), d]
}

/// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein 2012, and the authors' reference for 128 bits).
pub(crate) fn siphash_2_4_128([k0, k1]: [u64; 2], bytes: &[u8]) -> [u64; 2] {
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let absorb = |state: &mut [u64; 4], word: u64| {
        state[3] ^= word;
        *state = round(round(*state));
        state[0] ^= word;
    };
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| absorb(&mut state, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    absorb(&mut state, u64::from_le_bytes(last));
    let squeeze = |mut state: [u64; 4]| {
        for _ in 0..4 {
            state = round(state);
        }
        (state, state[0] ^ state[1] ^ state[2] ^ state[3])
    };
    state[2] ^= 0xee;
    let (mut state, first) = squeeze(state);
    state[1] ^= 0xdd;
    [first, squeeze(state).1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hash::Hasher;
    use siphasher::sip128::{Hasher128, SipHasher24};

    #[test]
    fn the_hash_equals_the_reference() {
        let bytes: [u8; 100] = core::array::from_fn(|at| at as u8);
        for length in 0..100 {
            let mut reference = SipHasher24::new_with_keys(3, 5);
            reference.write(&bytes[..length]);
            let expected = reference.finish128();
            assert_eq!(siphash_2_4_128([3, 5], &bytes[..length]), [expected.h1, expected.h2], "{length} bytes");
        }
    }

    #[test]
    fn its_size_is_38_percent_of_the_cache() {
        let index = ChunkIndex::new((16 << 20) / GRANULE_BYTES as u64, [1, 2]);
        assert_eq!(index.memory_bytes() * 1000 / (16 << 20), 375);
    }

    #[test]
    fn a_chunk_is_found_at_its_last_position() {
        let mut index = ChunkIndex::new(1024, [1, 2]);
        let hash = index.hash(b"a chunk of some bytes");
        let chunk = |position| Chunk { position, length: 21 };
        assert_eq!(index.replace(hash, chunk(640)), None);
        assert_eq!(index.replace(hash, chunk(1280)), Some(chunk(640)));
        assert_eq!(index.replace(hash, Chunk { position: 0, length: 20 }), None, "never of another length");
    }
}
