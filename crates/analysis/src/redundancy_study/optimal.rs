//! The maximum saving: the estimate of RE by a Bloom filter (section 2.2, "Optimal").
//!
//! A counting Bloom filter contains every window of every cached block, so every repeated run of w bytes is found. The
//! filter has no positions, so the estimate assumes that runs that overlap here overlapped there; it is an upper bound.
//! Eight hash functions and 16 counters for each byte of the cache keep false positives under 0.1 %.

use std::collections::VecDeque;

use redundancy::Window;
use redundancy::fingerprint::Rabin;
use redundancy::wire::shim::{ENCODED_SHIM_BYTES, LITERAL_SHIM_BYTES, POINTER_BYTES};

const HASH_FUNCTIONS: u64 = 8;
const COUNTERS_PER_BYTE: usize = 16;
/// The value at which a counter saturates.
const COUNT_MAX: u8 = 15;
/// The maximum cache size of the estimator; it takes eight times as much memory.
pub const OPTIMAL_CACHE_BYTES_MAX: usize = 1 << 26;

/// The estimator: blocks go in, the possible saving comes out.
#[derive(Clone, Debug)]
pub struct Optimal {
    rabin: Rabin,
    window_bytes: usize,
    cache_bytes: usize,
    /// Two counters a byte.
    counters: Box<[u8]>,
    cache: VecDeque<Box<[u8]>>,
    cached_bytes: usize,
    last_with_own: isize,
}

impl Optimal {
    /// An estimator for a cache of `cache_bytes`, at most [`OPTIMAL_CACHE_BYTES_MAX`].
    #[must_use]
    pub fn new(cache_bytes: usize, window: Window) -> Self {
        let cache_bytes = cache_bytes.clamp(1, OPTIMAL_CACHE_BYTES_MAX);
        Self {
            rabin: Rabin::new(window.bytes()),
            window_bytes: window.bytes(),
            cache_bytes,
            counters: vec![0; cache_bytes * COUNTERS_PER_BYTE / 2].into_boxed_slice(),
            cache: VecDeque::new(),
            cached_bytes: 0,
            last_with_own: 0,
        }
    }

    /// Adds a block. Returns the bytes of it that an optimal encoder would save at most, less shims and pointers at
    /// the cost of `redundancy`; negative for a shim without gain.
    pub fn handle_block(&mut self, block: &[u8]) -> isize {
        let mut found = Found::default();
        let (counters, window_bytes) = (&self.counters, self.window_bytes);
        self.rabin.each_window(block, |at, fingerprint| {
            if is_in(counters, fingerprint) {
                found.add(at, window_bytes);
            }
        });
        self.add(block);
        found.saved()
    }

    /// The same for the last block, including repetitions within it. The paper's bound excludes those and leaves them
    /// to compression; an encoder with pointers into the block itself saves them, too.
    #[must_use]
    pub const fn last_with_own(&self) -> isize {
        self.last_with_own
    }

    fn add(&mut self, block: &[u8]) {
        let counters = &mut self.counters;
        let (mut found, window_bytes) = (Found::default(), self.window_bytes);
        self.rabin.each_window(block, |at, fingerprint| {
            if is_in(counters, fingerprint) {
                found.add(at, window_bytes);
            }
            places(counters.len(), fingerprint).for_each(|place| change(counters, place, true));
        });
        self.last_with_own = found.saved();
        self.cached_bytes += block.len();
        self.cache.push_back(block.into());
        while self.cached_bytes > self.cache_bytes
            && let Some(oldest) = self.cache.pop_front()
        {
            self.cached_bytes -= oldest.len();
            self.rabin.each_window(&oldest, |_, fingerprint| {
                places(counters.len(), fingerprint).for_each(|place| change(counters, place, false));
            });
        }
    }
}

/// The windows of a block that were found, merged where they overlap.
#[derive(Default)]
struct Found {
    matched: usize,
    runs: usize,
    end: usize,
}

impl Found {
    fn add(&mut self, at: usize, window_bytes: usize) {
        self.runs += usize::from(at >= self.end);
        self.matched += at + window_bytes - self.end.max(at);
        self.end = at + window_bytes;
    }

    const fn saved(&self) -> isize {
        let shim_bytes = ENCODED_SHIM_BYTES + POINTER_BYTES * self.runs;
        if self.matched > shim_bytes { (self.matched - shim_bytes) as isize } else { -(LITERAL_SHIM_BYTES as isize) }
    }
}

fn is_in(counters: &[u8], fingerprint: u64) -> bool {
    places(counters.len(), fingerprint).all(|place| count(counters, place) > 0)
}

/// The counters of a fingerprint, by double hashing.
fn places(counter_bytes: usize, fingerprint: u64) -> impl Iterator<Item = usize> {
    let mixed = fingerprint.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let (first, step) = (mixed ^ (mixed >> 32), mixed.rotate_left(29) | 1);
    (0..HASH_FUNCTIONS).map(move |at| {
        let hash = first.wrapping_add(step.wrapping_mul(at)) >> 32;
        ((hash * (2 * counter_bytes as u64)) >> 32) as usize
    })
}

const fn count(counters: &[u8], place: usize) -> u8 {
    counters[place / 2] >> (place % 2 * 4) & 0xf
}

const fn change(counters: &mut [u8], place: usize, is_more: bool) {
    let count = count(counters, place);
    let next = match (count, is_more) {
        (COUNT_MAX, _) => COUNT_MAX,
        (0, false) => 0,
        (count, true) => count + 1,
        (count, false) => count - 1,
    };
    let shift = place % 2 * 4;
    counters[place / 2] = counters[place / 2] & !(0xf << shift) | next << shift;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u32) -> [u8; 1000] {
        std::array::from_fn(|at| {
            let mixed = (number * 1000 + at as u32).wrapping_mul(0x9e37_79b9);
            ((mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b) >> 24) as u8
        })
    }

    #[test]
    fn seen_bytes_are_saved_except_for_a_pointer_until_eviction() {
        let mut optimal = Optimal::new(3000, Window::DEFAULT);
        assert_eq!(optimal.handle_block(&block(0)), -4, "nothing was cached before");
        assert_eq!(optimal.handle_block(&block(0)), 1000 - 18);
        let mut part = block(99);
        part[300..400].copy_from_slice(&block(0)[700..800]);
        assert_eq!(optimal.handle_block(&part), 100 - 18);
        let repeated = [&block(50)[..300], &block(50)[..300]].concat();
        assert_eq!((optimal.handle_block(&repeated), optimal.last_with_own()), (-4, 300 - 18), "within the block");
        for other in 2..6 {
            optimal.handle_block(&block(other * 7));
        }
        assert_eq!(optimal.handle_block(&block(0)), -4, "it has left the cache");
    }
}
