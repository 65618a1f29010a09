//! The kernel's connection tracking: its events, its table, and changes to it (ctnetlink).
//!
//! [`EventSocket`] receives events of connections, [`Dump`] reads the whole table in parts, and [`TableSocket`]
//! creates, changes and deletes connections, many in one system call. They use the types of [`flow::netfilter`] and act
//! on the network namespace of the thread that opens the socket. [`support`] reports missing features of the kernel and
//! the namespace.
//!
//! A namespace tracks connections only if a rule requires it (for example nftables' `ct state`). The kernel sends events for a
//! connection only if a listener existed when it began (`net.netfilter.nf_conntrack_events = 2`, the default), always
//! (`= 1`), or never (`= 0`).
//!
//! [`Cause`] distinguishes events caused by a program's requests from those caused by packets. A program that injects
//! connections must ignore the events of its own requests: [`EventSocket::ignore_program`] filters them in the kernel.

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

/// The cause of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// Packets, or a timeout.
    Packets,
    /// A request of the program with this netlink port, possibly of another process such as conntrack(8).
    Program(u32),
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection was created.
    Began(Entry),
    /// Fields of a connection changed; the entry contains them. It may be the first event of a connection.
    Changed(Entry),
    /// A connection ended.
    Ended(Entry),
    /// A helper created an expectation.
    Expected(Expectation),
    /// An expectation ended: its connection began, or it expired.
    ExpectationEnded(Expectation),
}

/// A placeholder for a tuple that is read later.
const NO_TUPLE: Tuple = Tuple {
    source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    protocol: 0,
    discriminator: Discriminator::Nothing,
};
