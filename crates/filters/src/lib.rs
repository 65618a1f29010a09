//! Approximate sets and maps of a few bits an item, and the mathematics of their error rates.
//!
//! A backup that holds the fingerprint and the state of each connection instead of its record needs five bytes for it
//! instead of hundreds. The structures are:
//!
//! | module | holds | error |
//! |---|---|---|
//! | [`bloom`] | a set that only grows | false positives |
//! | [`counting_bloom`] | a multiset, in 4-bit counters | false positives |
//! | [`cuckoo`] | a set with removal, in cells of 16 bits | false positives |
//! | [`multi_level`] | a multiset or states, in levels of decreasing size | false positives |
//!
//! All take a [`KeyHash`], computed from a key once under a [`Secret`]. They store 32-bit words in whole cache lines
//! ([`memory`]), so a sender can replicate any of them: whole, or the words that changed since a mark; receivers
//! compare digests ([`exchange`]).
//!
//! [`theory`] computes expected cost and error rates. [`prefetch`] loads cache lines ahead of use, here and in other
//! crates.
//!
//! ```
//! use filters::{MultiLevel, MultiLevelShape, Secret, States};
//!
//! let secret = Secret::new([1, 2]);
//! let mut filter = MultiLevel::<States>::new(MultiLevelShape::for_items(1000, 8)).expect("a shape that can be built");
//! let key = secret.hash(b"10.0.0.2:4000 > 192.0.2.1:80");
//! filter.insert(key, 7).expect("there is room for a thousand");
//! assert_eq!(filter.lookup(key), Some(7));
//! filter.remove(key);
//! assert_eq!(filter.lookup(key), None);
//! ```
//!
//! The crate knows no clock, socket, thread or randomness: random choices derive from the key's hash.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bloom;
pub mod counting_bloom;
pub mod cuckoo;
pub mod exchange;
pub mod hash;
pub mod memory;
pub mod multi_level;
pub mod prefetch;
pub mod scan;
pub mod shape;
pub mod theory;

pub use bloom::Bloom;
pub use counting_bloom::CountingBloom;
pub use cuckoo::Cuckoo;
pub use exchange::{Exchange, ExchangeError, Update};
pub use hash::{KeyHash, Secret};
pub use memory::{Change, MarkId, Memory};
pub use multi_level::{Counters, MultiLevel, States};
pub use shape::{BloomShape, CountingBloomShape, CuckooShape, Insertion, MultiLevelShape, Shape, ShapeError};

/// None of the key's buckets has a free cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("every cell that could hold the key is taken: the filter needs more cells for so many items")]
pub struct Full;

/// The result of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// It occupies a new cell.
    Placed,
    /// Its fingerprint was present, with this state or count: the key itself, or a colliding one.
    Matched(u16),
}
