//! Connections as entries of a filter, which a peer is told and keeps equal (seed 000, chapters 2 and 3).
//!
//! Instead of a message with all that a connection is, a backup gets a few bytes: that there is one, and in which state. A
//! [`CompactSender`] holds the filter of a node's own connections and tells it to the peers; a [`CompactReceiver`] holds what
//! one peer tells, and is asked only when that peer is gone and packets of its connections come here.
//!
//! What is promised, whatever the network loses, doubles, delays or turns round:
//! * once the network and the connections are quiet, the receiver's filter is the sender's, word by word;
//! * of one cell, the receiver never takes over an older content after a newer one;
//! * what differs all the same (memory, a defect) is found and mended within [`COMPARE_INTERVAL`] and a round trip;
//! * while a peer that was started anew tells its filter, the former one can be looked up;
//! * memory is bounded by [`CompactConfig`] and [`ReceiverLimits`], whatever the peer sends.
//!
//! Asynchronous, as the native protocol: datagrams are numbered and acknowledged, what was lost is told again *as it is then*,
//! and no cell is told twice at a time, so that order does not matter. `docs/protocol.md` has the datagrams.
//!
//! ```
//! use flow::{Instant, NodeId, Tuple};
//! use replication::compact::{CellState, CompactConfig, CompactReceiver, CompactSender, ReceiverLimits, Representation};
//!
//! let config = CompactConfig::new(Representation::ALL[2], 1000, [1, 2]);
//! let mut sender = CompactSender::new(config, &[NodeId(1)])?;
//! let mut receiver = CompactReceiver::new(ReceiverLimits::default(), 3);
//! let tuple = Tuple::v4(6, ([10, 0, 0, 1].into(), 4000), ([192, 0, 2, 1].into(), 80));
//! sender.insert(&tuple, CellState::from_number(3));
//! let mut datagram = Vec::new();
//! for millis in 0..100 {
//!     let now = Instant::from_millis(millis);
//!     while sender.poll_transmit(now, NodeId(1), &mut datagram) {
//!         receiver.handle_datagram(now, &datagram)?;
//!     }
//!     while receiver.poll_transmit(now, &mut datagram) {
//!         sender.handle_datagram(now, NodeId(1), &datagram)?;
//!     }
//! }
//! assert!(receiver.is_complete());
//! assert_eq!(receiver.lookup(&tuple).and_then(|known| known.state), Some(CellState::from_number(3)));
//! assert_eq!(receiver.lookup(&tuple.inverse()), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod cell;
mod common;
mod config;
mod error;
mod hearing;
mod heirloom;
mod held;
mod in_flight;
mod key;
mod receiver;
mod schedule;
mod sender;
mod source;
mod status;
mod telling;
#[cfg(test)]
mod tests;
mod wire;

pub use cell::{CellState, STATE_BITS};
pub use config::{
    ACK_DELAY, CompactConfig, CompactConfigError, DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, HEIRLOOMS_MAX,
    Representation, UpdateRule,
};
pub use error::CompactError;
pub use heirloom::Heirloom;
pub use held::Known;
pub use receiver::{CompactReceiver, ReceiverLimits};
pub use sender::CompactSender;
pub use status::{CompactReceiverStatus, CompactSenderStatus};
pub use telling::COMPARE_INTERVAL;
pub use wire::{Addressee, addressee, is_compact, set_stream, stream, telling_bytes, tells_entries};
