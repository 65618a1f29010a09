//! The bytes that the demo's connections carry: a stream that either end can make and check at any offset.

use flow::random::mix;

/// A reproducible stream of bytes: block `i` of eight bytes is a mix of the seed and `i`.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    seed: u64,
    offset_bytes: u64,
}

impl Stream {
    /// The stream of `seed`, from its beginning.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, offset_bytes: 0 }
    }

    /// How far the stream has been made or checked, in bytes.
    #[must_use]
    pub const fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Moves on by `count` bytes.
    pub const fn advance(&mut self, count: usize) {
        self.offset_bytes += count as u64;
    }

    /// Writes the next `out.len()` bytes, without moving on.
    pub fn fill(&self, out: &mut [u8]) {
        let mut position = self.offset_bytes;
        let mut rest = out;
        while !rest.is_empty() {
            let block = self.block(position / 8).to_le_bytes();
            let within = usize::try_from(position % 8).unwrap_or(0);
            let count = rest.len().min(8 - within);
            let (head, tail) = rest.split_at_mut(count);
            head.copy_from_slice(&block[within..within + count]);
            position += count as u64;
            rest = tail;
        }
    }

    /// Checks that `bytes` are the next ones and moves past them.
    ///
    /// # Errors
    /// The offset in the stream of the first byte that is wrong.
    pub fn check(&mut self, bytes: &[u8]) -> Result<(), u64> {
        let mut expected = [0; 4096];
        for part in bytes.chunks(expected.len()) {
            let expected = &mut expected[..part.len()];
            self.fill(expected);
            if let Some(wrong) = part.iter().zip(expected.iter()).position(|(got, want)| got != want) {
                return Err(self.offset_bytes + wrong as u64);
            }
            self.advance(part.len());
        }
        Ok(())
    }

    const fn block(&self, index: u64) -> u64 {
        mix(self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_pieces_of_any_size_check_and_a_changed_one_is_found() {
        let mut bytes = [0; 1000];
        Stream::new(7).fill(&mut bytes);
        let mut reader = Stream::new(7);
        for part in bytes.chunks(37) {
            assert_eq!(reader.check(part), Ok(()));
        }
        assert_eq!(reader.offset_bytes(), 1000);

        bytes[517] ^= 1;
        assert_eq!(Stream::new(7).check(&bytes), Err(517));
    }

    #[test]
    fn streams_of_different_seeds_differ() {
        let (mut one, mut other) = ([0; 64], [0; 64]);
        Stream::new(1).fill(&mut one);
        Stream::new(2).fill(&mut other);
        assert_ne!(one, other);
    }
}
