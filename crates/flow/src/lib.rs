//! Packets, connections and the table that holds them.
//!
//! `flow` reads and rewrites frames ([`wire`]), identifies connections ([`key`]), advances their protocol automata
//! ([`conntrack`]), and keeps millions of them in a bounded table with batched lookup ([`table`], [`timer_wheel`]).
//! [`steering`] assigns packets to workers, and [`ecmp`] assigns them to nodes.
//!
//! Fragments find their connection through [`fragments`]; [`source_counts`] counts resources per source. [`netfilter`]
//! describes connections as the Linux kernel's tracking does. [`fast_path`] describes those that something below the node
//! forwards. [`held`] holds packets that may be resent. [`serial`] compares wrapping numbers, and [`random`]
//! derives jitter from a seed.
//!
//! It knows no clock, socket, thread or unseeded randomness: time comes in as [`Instant`], bytes as slices.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod affinity;
pub mod connection;
pub mod conntrack;
pub mod drop_reason;
pub mod ecmp;
pub mod fast_path;
pub mod fragments;
pub mod frame;
pub mod held;
pub mod ip_protocol;
pub mod key;
pub mod list;
pub mod netfilter;
pub mod node_set;
pub mod prefix;
mod protocol_state;
pub mod random;
pub mod serial;
pub mod source_counts;
pub mod source_rates;
pub mod steering;
pub mod table;
pub mod time;
pub mod timer_wheel;
pub mod token_bucket;
pub mod wire;

pub use affinity::{AddressOf, Affinity};
pub use connection::{Connection, ConnectionRole, Direction, NodeId};
pub use drop_reason::DropReason;
pub use ecmp::Ecmp;
pub use frame::{
    BATCH_FRAMES_MAX, Checksum, Disposition, Frame, OwnedFrame, PacketBatch, PortId, Segmentation, SegmentationKind,
};
pub use key::{HashKey, IpFamily, QUERY_REPLY, Tuple};
pub use node_set::{NODES_MAX, NodeSet};
pub use prefix::Prefix;
pub use steering::{Steering, WorkerId};
pub use time::Instant;
pub use token_bucket::{RateLimit, TokenBucket};
