//! Replicates a node's connections to its peers, so that their packets can go on through another machine.
//!
//! * [`session`]: the FT-FW protocol (FT-FW, section 5) between two nodes, as a value. A [`Session`] takes which connections
//!   changed, the peer's datagrams and the time, and yields datagrams to send.
//! * [`message`]: what the datagrams look like; `docs/protocol.md` describes the protocol as a whole.
//! * [`compact`]: connections as entries of a filter instead of messages each (MLCBF), and how a peer's replica is kept equal.
//! * [`loss_recovery`]: numbers in flight, probes and delayed acknowledgements, as far as several protocols have them in common.
//! * [`symbol`]: how changes of a filter look in datagrams, the constant parts left out.
//! * [`conntrackd`]: conntrackd's FTFW protocol, with a conntrackd as the peer.
//! * [`deferral`]: connections that are replicated only once they have lived for a while, and how long that is.
//! * [`representation`]: what a connection looks like within a message, and which changes are worth replicating.
//! * [`Resync`]: which replicas are removed after a peer's full synchronisation.
//! * [`secure`]: the channel that datagrams travel in between nodes that trust only each other.
//!
//! It knows no socket, clock, thread or unseeded randomness, and not what a connection is: a [`Store`] turns handles
//! into attributes and attributes into connections.
//!
//! ```
//! use flow::{Instant, NodeId};
//! use replication::{ApplyError, Handle, Kind, Session, SessionConfig, Store};
//!
//! struct Numbers(Vec<Option<u8>>); // "connections" that are a byte each, named by their slot
//! impl Store for Numbers {
//!     fn encode(&mut self, _: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
//!         let Some(value) = self.0[handle.0 as usize] else { return false };
//!         out.extend([handle.0 as u8, value]);
//!         true
//!     }
//!     fn apply(&mut self, _: Instant, _: NodeId, _: Kind, attributes: &[u8]) -> Result<(), ApplyError> {
//!         self.0[usize::from(attributes[0])] = Some(attributes[1]);
//!         Ok(())
//!     }
//!     fn delete(&mut self, _: Instant, _: NodeId, attributes: &[u8]) -> Result<(), ApplyError> {
//!         self.0[usize::from(attributes[0])] = None;
//!         Ok(())
//!     }
//!     fn find(&self, attributes: &[u8]) -> Option<Handle> {
//!         self.0[usize::from(attributes[0])].map(|_| Handle(attributes[0].into()))
//!     }
//!     fn next_for_resync(&self, from: Handle) -> Option<Handle> {
//!         (from.0..self.0.len() as u32).find(|slot| self.0[*slot as usize].is_some()).map(Handle)
//!     }
//! }
//!
//! let config = SessionConfig { connections_max: 4, ..SessionConfig::default() };
//! let mut left = (Session::new(config, NodeId(0), NodeId(1), 7)?, Numbers(vec![None, Some(42), None, None]));
//! let mut right = (Session::new(config, NodeId(1), NodeId(0), 8)?, Numbers(vec![None; 4]));
//! let mut datagram = Vec::new();
//! for millis in 0..100 {
//!     let now = Instant::from_millis(millis);
//!     left.0.handle_timeout(now);
//!     right.0.handle_timeout(now);
//!     while left.0.poll_transmit(now, &mut left.1, &mut datagram) {
//!         right.0.handle_datagram(now, &datagram, &mut right.1)?;
//!     }
//!     while right.0.poll_transmit(now, &mut right.1, &mut datagram) {
//!         left.0.handle_datagram(now, &datagram, &mut left.1)?;
//!     }
//! }
//! assert_eq!(right.1.0[1], Some(42));
//! assert!(left.0.status().is_synchronised() && right.0.status().is_synchronised());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod compact;
pub mod conntrackd;
pub mod deferral;
mod handle;
mod item;
pub mod loss_recovery;
pub mod message;
pub mod representation;
mod resync;
pub mod secure;
pub mod session;
pub mod symbol;

pub use message::{Kind, PROTOCOL_VERSION};
pub use resync::Resync;
pub use session::{
    AntiEntropyStatus, ApplyError, ConfigError, Handle, Holding, Item, Link, PeerError, Session, SessionConfig,
    SessionEvent, SessionStatus, Store,
};
