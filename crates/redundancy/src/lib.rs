//! Redundancy elimination: bytes that the far end already holds are replaced by references (RE, chapters 2 to 4).
//!
//! An [`Encoder`] and a [`Decoder`] keep equal caches of transmitted blocks. The encoder selects markers of a block
//! ([`fingerprint`]), looks up their last positions, and replaces known runs by references ([`wire::shim`]). The
//! decoder restores the exact bytes.
//!
//! Beside the blocks they exchange control messages ([`wire::control`]): the opening of a stream, and held and missing
//! data.
//!
//! Both are values: blocks and messages go in by `handle_*` and `encode_*`, messages, events and deadlines come out by
//! `poll_*`. The transport may lose, duplicate and reorder; either end may restart or move to another node
//! ([`Encoder::take_over`]). The transport must authenticate the sender of messages.
//!
//! The crate knows no packets: its users select the packets to encode, and mark encoded ones. [`second_stage`] compresses
//! the remaining bytes, and [`period_control`] reduces the work under CPU load.
//!
//! ```
//! use redundancy::{Decoder, DecoderConfig, Encoder, EncoderConfig, Handled, Ticket};
//!
//! # fn main() -> Result<(), Box<dyn core::error::Error>> {
//! // Both ends begin together, so that no handshake is needed.
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

pub use decoder::{DecodeError, Decoder, DecoderConfig, Event, Handled, Held, StreamPosition, Ticket};
pub use encoder::{Encoder, EncoderConfig, Encoding, FlowPosition, Matcher, Segment, Trust};
pub use fingerprint::{Fingerprinter, Marks, Method, Period, SampleTable, Sampling, Window};
pub use packet_cache::CacheSizeError;
pub use scan::Scan;
