//! Filters and distributions of flows that no node or edge can be configured with. Studies, benchmarks and tests compare those of the
//! product with them.

pub mod d_left;
pub mod flow_distribution;
pub mod stateful_bloom;

pub use stateful_bloom::{StatefulBloom, StatefulBloomShape};
