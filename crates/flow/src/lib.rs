//! Packets, connections and the table that holds them.
//!
//! `flow` knows how to read and rewrite frames ([`wire`]), how to name a connection ([`key`]), how a
//! connection's protocol automaton advances ([`conntrack`]), and how to keep millions of connections in a
//! bounded table that is looked up a batch at a time ([`table`], [`timer_wheel`]), and which of several workers a
//! packet belongs to ([`steering`]). Fragments find their connection through [`fragments`]; what one source has is counted in
//! [`source_counts`]. What the Linux kernel's own tracking says of a connection is [`netfilter`]'s. Numbers that go round are compared by
//! [`serial`], and [`random`] makes jitter of a seed.
//!
//! It knows no clock, socket, thread or unseeded randomness: time comes in as [`Instant`], bytes as slices.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod connection;
pub mod conntrack;
pub mod drop_reason;
pub mod fragments;
pub mod frame;
pub mod ip_protocol;
pub mod key;
pub mod netfilter;
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

pub use connection::{Connection, Direction, NodeId, Role};
pub use drop_reason::DropReason;
pub use frame::{
    BATCH_FRAMES_MAX, Checksum, Disposition, Frame, OwnedFrame, PacketBatch, PortId, Segmentation, SegmentationKind,
};
pub use key::{HashKey, IpFamily, QUERY_REPLY, Tuple};
pub use prefix::Prefix;
pub use steering::{Steering, WorkerId};
pub use time::Instant;
pub use token_bucket::{RateLimit, TokenBucket};
