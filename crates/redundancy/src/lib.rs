//! Redundancy elimination: bytes that the far side already holds are replaced by pointers to them (seed, chapters 2 to 4).
//!
//! An [`Encoder`] and a [`Decoder`] keep equal caches of what passed. The encoder finds places of a block that stand for it
//! ([`fingerprint`]), looks up where it saw them last, and writes a block with pointers in place of what was there before
//! ([`wire::shim`]). The decoder puts the bytes back, exactly. Beside the blocks the two say little to each other
//! ([`wire::control`]): that they begin, what the decoder holds and what it lacks.
//!
//! Both are values: blocks and messages go in by `handle_*` and `encode_*`, messages, events and deadlines come out by
//! `poll_*`. What carries them may lose, repeat and reorder; either side may start anew or move to another node
//! ([`Encoder::take_over`]). Whoever carries the messages makes sure who they are from.
//!
//! The room knows no packet: what of one is redundant enough to be encoded, and how a packet says that it is, is decided by
//! those who use it. [`second_stage`] compresses what is left, [`period_control`] gives
//! processor time back when there is none to spare.
//!
//! ```
//! use redundancy::{Decoder, DecoderConfig, Encoder, EncoderConfig, Handled, Ticket};
//!
//! # fn main() -> Result<(), Box<dyn core::error::Error>> {
//! // Both ends begin together, so that there is nothing to agree on.
//! let config = EncoderConfig { cache_bytes: 1 << 20, epoch: 7, ..EncoderConfig::default() };
//! let mut decoder = Decoder::open_at_once(DecoderConfig { cache_bytes: 1 << 20, id: 0 }, config.epoch)?;
//! let mut encoder = Encoder::open_at_once(config)?;
//!
//! let block: Vec<u8> = (0..1460_u32).map(|at| (at * at >> 5) as u8).collect();
//! let (mut wire, mut restored) = (Vec::new(), Vec::new());
//! for _ in 0..2 {
//!     assert!(encoder.encode_block(&block, &mut wire).has_shim());
//!     let handled = decoder.handle_block(flow::Instant::ZERO, Ticket(0), &wire, &mut restored)?;
//!     assert_eq!(handled, Handled::Decoded);
//!     assert_eq!(restored, block);
//! }
//! assert_eq!(wire.len(), 18, "the second time there is but one pointer");
//! # Ok(())
//! # }
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod chunk_index;
pub mod decoder;
pub mod encoder;
pub mod fingerprint;
mod fingerprint_index;
pub mod limits;
mod matching;
mod packet_cache;
pub mod period_control;
mod reference_check;
mod scan;
pub mod second_stage;
pub mod wire;

pub use decoder::{DecodeError, Decoder, DecoderConfig, Event, Handled, Held, Opening, Ticket};
pub use encoder::{Encoder, EncoderConfig, Encoding, FlowPosition, Matcher, Segment, Trust};
pub use fingerprint::{Fingerprinter, Marks, Method, Period, SampleTable, Sampling, Window};
pub use packet_cache::CacheSizeError;
pub use scan::Scan;
