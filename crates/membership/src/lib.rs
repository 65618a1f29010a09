//! Which gateways belong to a cluster.
//!
//! ```text
//!   configuration file ──┐                       ┌──► joined, left, changed: the list of peers is applied as by a reload
//!   etcd, by watch ──────┼─► records ─► Membership
//!   gossip (SWIM) ───────┘                       └──► settings: number of backups, version of the configuration
//! ```
//!
//! - [`record`] is what a member publishes of itself, and the settings that all have in common, as one line of text.
//! - [`Membership`] merges records. A record with a higher version replaces one with a lower version, so the order in which records
//!   arrive does not matter. Versions come from wall clocks, so none counts for ever.
//! - [`OwnRecord`] is what a node publishes of itself.
//! - [`gossip`] is the source of records where there is no other: SWIM, as a value.
//!
//! Membership decides which nodes may be peers. Whether a peer is alive is decided by failure detection alone: a member whose record has
//! disappeared (its lease expired, or nodes of the source were lost) remains a peer for as long as failure detection reports it up.
//!
//! ```
//! use flow::{Instant, NodeId};
//! use membership::{Change, Limits, Member, Membership};
//!
//! let mut membership = Membership::new(NodeId(0), Limits::default());
//! let record = "name=b replication=192.0.2.2:3780 detection=192.0.2.2:3784 version=1";
//! let member = Member::parse(NodeId(1), record).unwrap();
//! membership.handle_record(Instant::ZERO, member).unwrap();
//! assert_eq!(membership.poll_change(Instant::ZERO, |_| true), Some(Change::Joined(NodeId(1))));
//! ```
//!
//! The crate knows no clock, socket or file: time, datagrams and randomness are arguments.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod gossip;
mod list;
mod own;
pub mod record;

pub use list::{Change, Departure, Limits, Membership, Presence, Refused};
pub use own::OwnRecord;
pub use record::{
    MEMBERS_MAX, Member, MemberState, NAME_BYTES_MAX, RECORD_BYTES_MAX, RecordError, Settings, VERSION_END,
    version_above,
};
