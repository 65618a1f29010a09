//! The traffic-aware state service of a cluster of many nodes [TRIPOD, sections III-B, IV and V]: where the state of a
//! connection is, and where it will be needed.
//!
//! ```text
//!                    prediction ──► backups of a connection ──► replication to these nodes only
//!  packet without    ┌───────┐ index hit ┌──────┐ state
//!  a connection ───► │ lookup│ ────────► │ pull │ ────► the connection is here
//!                    └───────┘           └──────┘
//!                        │ no hit    ┌───────────────────┐ still no hit
//!                        └─────────► │ query of increments│ ───────────► unknown: dropped
//!                                    └───────────────────┘
//! ```
//!
//! - [`prediction`] computes the node where packets of a connection land when nodes fail: for the edges' two-stage ECMP, or for
//!   another distribution from answers to forged packets.
//! - [`index`] is the set of connections of each node, advertised to all nodes as cuckoo filters.
//! - [`lookup`] is the automaton for packets whose connection is not in the table.
//! - [`message`] is the encoding of everything that nodes send for this.
//!
//! A wrong prediction, an old index and a lost message cost time and messages, never a connection that some node still has:
//! the state is pulled.
//!
//! ```
//! use flow::{Ecmp, NodeId, NodeSet};
//! use state_service::prediction::Prediction;
//!
//! let nodes: NodeSet = (0..8).map(NodeId).collect();
//! let ecmp = Ecmp::new(nodes);
//! let backups = ecmp.backups(0x0123_4567_89ab_cdef, 2);
//! // The packets land on the first backup when their node fails.
//! let owner = ecmp.select(0x0123_4567_89ab_cdef).into_iter().collect();
//! assert_eq!(ecmp.predict(0x0123_4567_89ab_cdef, owner), Some(backups[0]));
//! ```
//!
//! The crate knows no clock, socket or table of connections: time, datagrams and the table are arguments.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod index;
pub mod lookup;
pub mod message;
pub mod prediction;
