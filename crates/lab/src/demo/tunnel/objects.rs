//! What is transferred: files of incompressible bytes, and edited versions of them.

use std::fs;
use std::path::{Path, PathBuf};

use simulator::random::Random;

/// Objects, each with an edited version.
pub(super) const OBJECTS: usize = 4;
/// Places of an object that its later version has otherwise: one in so many bytes.
const EDIT_EVERY_BYTES: usize = 80 << 10;
/// Bytes that an edit takes out or puts in, at most.
const EDIT_BYTES_MAX: u64 = 600;

/// The files, and what each has for a checksum.
pub(super) struct Objects {
    pub(super) files: Vec<PathBuf>,
    pub(super) checksums: Vec<u64>,
    pub(super) bytes: Vec<usize>,
}

impl Objects {
    /// Writes them: first all objects, then their edited versions in the same order.
    pub(super) fn write(directory: &Path, object_bytes: usize, seed: u64) -> std::io::Result<Self> {
        let mut random = Random::new(seed);
        let first: Vec<Vec<u8>> = (0..OBJECTS).map(|_| random_bytes(&mut random, object_bytes)).collect();
        let edited: Vec<Vec<u8>> = first.iter().map(|object| edit(&mut random, object)).collect();
        let mut objects = Self { files: Vec::new(), checksums: Vec::new(), bytes: Vec::new() };
        for (number, bytes) in first.iter().chain(&edited).enumerate() {
            let path = directory.join(format!("object-{number}"));
            fs::write(&path, bytes)?;
            objects.files.push(path);
            let mut checksum = Checksum::default();
            checksum.add(bytes);
            objects.checksums.push(checksum.finish());
            objects.bytes.push(bytes.len());
        }
        Ok(objects)
    }
}

fn random_bytes(random: &mut Random, count: usize) -> Vec<u8> {
    std::iter::repeat_with(|| random.next().to_le_bytes()).flatten().take(count).collect()
}

/// A later version of a document: here and there something is replaced, inserted or left out.
fn edit(random: &mut Random, object: &[u8]) -> Vec<u8> {
    let mut edited = object.to_vec();
    for _ in 0..object.len().div_ceil(EDIT_EVERY_BYTES) {
        let at = random.between(0, edited.len() as u64 - EDIT_BYTES_MAX - 1) as usize;
        let out = random.between(0, EDIT_BYTES_MAX - 1) as usize;
        let length = random.between(0, EDIT_BYTES_MAX - 1) as usize;
        let new = random_bytes(random, length);
        edited.splice(at..at + out, new);
    }
    edited
}

/// A checksum of what came, whatever pieces it came in: FNV-1a over 64 bits, which no wrong byte leaves as it is.
pub(super) struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    }

    pub(super) const fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_version_is_mostly_what_it_was() {
        let mut random = Random::new(1);
        let object = random_bytes(&mut random, 100_000);
        let edited = edit(&mut random, &object);
        assert_ne!(object, edited);
        let known: std::collections::HashSet<&[u8]> = object.windows(32).collect();
        let kept = edited.windows(32).filter(|window| known.contains(window)).count();
        assert!(kept * 100 > edited.len() * 60, "{kept} of {}", edited.len());
    }

    #[test]
    fn a_checksum_does_not_depend_on_pieces_and_shows_a_wrong_byte() {
        let sum = |pieces: &[&[u8]]| {
            let mut checksum = Checksum::default();
            pieces.iter().for_each(|piece| checksum.add(piece));
            checksum.finish()
        };
        assert_eq!(sum(&[b"abc", b"", b"def"]), sum(&[b"abcdef"]));
        assert_ne!(sum(&[b"abcdef"]), sum(&[b"abcdeg"]));
    }
}
