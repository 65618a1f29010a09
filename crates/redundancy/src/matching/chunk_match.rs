//! Chunk-Match: the chunk between two markers is looked up by its hash (RE, figure 4.4).

use alloc::vec::Vec;

use super::{Match, Reach};
use crate::chunk_index::{Chunk, ChunkIndex};
use crate::fingerprint::Marks;
use crate::limits::MATCHES_MAX;

/// The minimum length of a chunk that is worth a pointer.
const CHUNK_BYTES_MIN: usize = 16;

/// The chunk-hash store, and buffers reused from block to block.
#[derive(Clone, Debug)]
pub(crate) struct ChunkMatch {
    index: ChunkIndex,
    /// The start, length and hash of each chunk.
    chunks: Vec<(usize, usize, [u64; 2])>,
}

impl ChunkMatch {
    pub(crate) const fn new(index: ChunkIndex) -> Self {
        Self { index, chunks: Vec::new() }
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.index.memory_bytes()
    }

    /// Finds chunks of the block that the decoder holds, and stores the block's. Chunks that are adjacent in both
    /// become one match.
    /// become one match.
    pub(crate) fn find(&mut self, reach: &Reach<'_>, (block, marks): (&[u8], &Marks), matches: &mut Vec<Match>) {
        self.split(block, marks);
        let base = reach.base();
        for (start, length, hash) in &self.chunks {
            let here = Chunk { position: base + *start as u64, length: *length };
            let Some(chunk) = self.index.replace(*hash, here) else { continue };
            // A source in the block itself needs no cache.
            let is_own = chunk.position >= base;
            if !is_own && !is_held(reach, chunk) {
                continue;
            }
            let is_full = matches.len() == MATCHES_MAX;
            match matches.last_mut() {
                Some(last)
                    if last.start + last.length == *start
                        && last.source + last.length as u64 == chunk.position
                        && (last.source >= base) == is_own =>
                {
                    last.length += length;
                }
                _ if is_full => {}
                _ => matches.push(Match { start: *start, length: *length, source: chunk.position }),
            }
        }
    }

    fn split(&mut self, block: &[u8], marks: &Marks) {
        self.chunks.clear();
        let mut start = 0;
        for end in marks.offsets().iter().map(|offset| *offset as usize).chain([block.len()]) {
            if end - start >= CHUNK_BYTES_MIN {
                let hash = self.index.hash(&block[start..end]);
                self.index.prefetch(hash);
                self.chunks.push((start, end - start, hash));
            }
            start = end;
        }
    }
}

/// Whether the chunk is still at its position, and the decoder holds all of it.
fn is_held(reach: &Reach<'_>, chunk: Chunk) -> bool {
    let offset = (chunk.position % reach.ring_bytes as u64) as usize;
    let range = offset..offset + chunk.length;
    reach.run_of(offset).is_some_and(|run| range.end <= run.end)
        && reach.position(offset) == chunk.position
        && reach.usable_around(offset, range.clone()) == range
}
