//! Connections as entries of a filter that is replicated to the peers (MLCBF, chapters 2 and 3).
//!
//! A backup receives a few bytes of a connection instead of its record: that it exists, and its state. A [`CompactSender`] holds the filter
//! of a node's own connections and sends it to the peers. A [`CompactReceiver`] holds the filter of one peer. It is asked only when
//! that peer is dead and packets of its connections arrive here.
//!
//! Guarantees, whatever the network loses, duplicates, delays or reorders:
//! * once network and connections are quiet, the receiver's filter equals the sender's, word by word;
//! * the receiver never replaces a cell's newer content by an older one;
//! * a difference from another cause (memory, a defect) is found and repaired within [`COMPARE_INTERVAL`] and a round trip;
//! * while a restarted peer sends its new filter, its former one can be looked up;
//! * memory is bounded by [`CompactConfig`] and [`ReceiverLimits`], whatever the peer sends.
//!
//! Datagrams are numbered and acknowledged, as in the native protocol. A lost word is sent again with its *present* content, and no word is in
//! flight twice, so that order does not matter. `docs/protocol.md` describes the datagrams.
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
mod held;
mod in_flight;
mod incoming;
mod inherited;
mod key;
mod outgoing;
mod receiver;
mod schedule;
mod sender;
mod source;
mod status;
#[cfg(test)]
mod tests;
mod wire;

pub use cell::{CLASSES_MAX, CellState, STATE_BITS};
pub use config::{
    ACK_DELAY, BATCH_DEFAULT, CompactConfig, CompactConfigError, DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN,
    INHERITED_FILTERS_MAX, Representation, UpdateRule,
};
pub use error::CompactError;
pub use held::Known;
pub use inherited::InheritedFilter;
pub use outgoing::COMPARE_INTERVAL;
pub use receiver::{CompactReceiver, ReceiverLimits};
pub use sender::CompactSender;
pub use status::{CompactReceiverStatus, CompactSenderStatus};
pub use wire::{Addressee, addressee, carries_entries, filter_content_bytes, is_compact, set_stream, stream};
