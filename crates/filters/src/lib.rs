//! Sets and maps in a few bits an item, which are sometimes wrong, and the mathematics of how often.
//!
//! A backup that holds the fingerprint and the state of each connection instead of its record needs five bytes for it
//! instead of hundreds. The structures are those of MLCBF and what one would take instead today:
//!
//! | module | holds | wrong in that |
//! |---|---|---|
//! | [`bloom`] | a set that only grows | it says yes of what is not in it |
//! | [`counting_bloom`] | a multiset, in 4-bit counters | the same |
//! | [`stateful_bloom`] | states, in cells with counters | the same, or it does not know the state |
//! | [`d_left`] | a multiset or states, in subtables of the same size | yes of what is not in it |
//! | [`multi_level`] | the same, in levels that become smaller | the same |
//!
//! All take a [`KeyHash`], made from a key by one computation under a [`Secret`], and lie in words of 32 bits in whole cache
//! lines ([`memory`]), so that all of them can be told to another node: whole, or what changed since a mark, compared by
//! digests ([`exchange`]). What they should cost and how often they should be wrong is computed by [`theory`]. How they ask for
//! memory before they read it ([`prefetch`]), the rooms below do as well.
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
//! It knows no clock, socket, thread or randomness: where a choice is to be random, it comes from the key's hash.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bloom;
pub mod counting_bloom;
pub mod d_left;
pub mod exchange;
pub mod hash;
pub mod memory;
pub mod multi_level;
pub mod prefetch;
pub mod scan;
pub mod shape;
pub mod stateful_bloom;
pub mod theory;

pub use bloom::Bloom;
pub use counting_bloom::CountingBloom;
pub use d_left::DLeft;
pub use exchange::{Exchange, ExchangeError, Update};
pub use hash::{KeyHash, Secret};
pub use memory::{Change, MarkId, Memory};
pub use multi_level::{Counters, MultiLevel, States};
pub use shape::{BloomShape, CountingBloomShape, Insertion, MultiLevelShape, Shape, ShapeError, StatefulBloomShape};
pub use stateful_bloom::StatefulBloom;

/// There is no room for the key where it would be looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("every cell that could hold the key is taken: the filter needs more cells for so many items")]
pub struct Full;

/// What became of an item that was to be inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// It got a cell of its own.
    Placed,
    /// Its fingerprint was there already, with this state or count: the key itself, or one that looks like it.
    Matched(u16),
}
