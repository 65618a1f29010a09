//! Filters that no node can be configured with. Studies and benchmarks compare the node's filters with them.

pub mod d_left;
pub mod stateful_bloom;

pub use stateful_bloom::{StatefulBloom, StatefulBloomShape};
