//! The kernel's connection tracking: its events, its table, and changes to it (ctnetlink).
//!
//! [`EventSocket`] hears what happens to connections, [`Dump`] reads the whole table in pieces, [`TableSocket`] puts
//! connections there, changes and deletes them, many in one system call. What they speak of are the types of
//! [`flow::netfilter`]. All of it is about the network namespace of the thread that opens the socket: each has a
//! table of its own. [`support`] says what the kernel and the namespace lack.
//!
//! A namespace tracks connections only if a rule asks for it (`ct state` of nftables, say), and the kernel makes events for a
//! connection only if somebody listened when it began (`net.netfilter.nf_conntrack_events = 2`, the default), or always
//! (`= 1`), or never (`= 0`).
//!
//! Who caused an event is said by [`Cause`]: the requests of a program, or the packets. A program that injects connections must
//! not take its own injections for news: [`EventSocket::ignore_program`] keeps them away within the kernel.

mod attributes;
mod dump;
mod entry;
mod event;
mod expectation;
pub mod filter;
mod message;
mod nat;
mod numbers;
mod protocol_info;
mod request;
mod ring;
mod socket;
mod support;
#[cfg(test)]
mod tests;
mod tuple;

use std::net::{IpAddr, Ipv4Addr};

use flow::netfilter::{Discriminator, Entry, Expectation, Tuple};

pub use dump::{Dump, DumpFilter, DumpProgress};
pub use event::{EventOptions, EventSocket, RECEIVE_BUFFER_BYTES, Received};
pub use filter::EventFilter;
pub use message::{decode_events, encode_event};
pub use request::{REQUESTS_MAX, Request, RequestError, TableSocket};
pub use support::{Lack, Support, support};

/// Who caused an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The packets themselves, or their absence: a timeout.
    Packets,
    /// A request of the program that has this netlink port. It may be of another process (conntrack(8), say).
    Program(u32),
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection is in the table that was not there.
    Began(Entry),
    /// Something of a connection has changed; it is said what. The first that is heard of a connection may be this.
    Changed(Entry),
    /// A connection is in the table no more.
    Ended(Entry),
    /// A helper expects a connection.
    Expected(Expectation),
    /// It does no more: the connection came, or the time ran out.
    ExpectationEnded(Expectation),
}

/// Stands where a tuple is still to be read.
const NO_TUPLE: Tuple = Tuple {
    source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    protocol: 0,
    discriminator: Discriminator::Nothing,
};
