//! The lookup of a connection that a packet belongs to [TRIPOD, algorithm 1].
//!
//! ```text
//!  packet ─► in the table? ── own ──► processed          ── replica ──► taken over
//!               │ no
//!            in a peer's index? ── yes ──► pull ── state ──► the connection is here, its packets are processed
//!               │ no                        │ not held, or no answer: the next peer with a hit; after the last ─┐
//!            may it begin a connection? ── yes ──► begins                                                        │
//!               │ no                                                                                            │
//!            batch ◄─────────────────────────────────────────────────────── once for each connection ──────────┘
//!               │ full, or old enough, and within the rate
//!            query of all peers' increments ── hit ──► pull
//!               │ no hit in any answer
//!            dropped: unknown
//! ```
//!
//! A packet of no connection costs a place in the batch, and its share of one query for the whole batch. Queries are limited in
//! rate, one is open at a time, and so are pulls, which false positives of the indexes cause. So a flood of such packets
//! causes no more messages than these limits, and displaces no connection.
//!
//! The index of a peer that becomes alive is requested whole. An update that was lost is requested again. A packet that may begin a connection
//! does so at once only if the index of every live peer is known; else it waits for the missing ones, within limits.
//!
//! Without the broadcast of indexes ([`Limits::broadcast`]), the state of each connection that is not in the table is requested from all live
//! peers. This is the variant that \[TRIPOD\] compares with.

mod peers;
mod service;
mod transmits;
mod waiting;

use core::time::Duration;

use alloc::vec::Vec;
use flow::{NodeId, RateLimit};

use crate::message::{Key, Loads};

pub use service::StateService;

/// The limits of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Indexes are advertised and looked into. Without that, states are requested from all live peers.
    pub broadcast: bool,
    /// Packets that wait for an answer. When it is reached, further ones are dropped. Of connections that no index has, half as many wait.
    pub packets_max: usize,
    /// Packets of one connection that wait.
    pub packets_per_connection_max: usize,
    /// Connections that are queried together.
    pub batch_max: usize,
    /// So long a batch that is not full waits for more.
    pub batch_delay: Duration,
    /// So long a pull or a query waits for its answer.
    pub answer_timeout: Duration,
    /// Between two advertisements of the index.
    pub advertise_interval: Duration,
    /// Requests for the state of a connection.
    pub pulls: RateLimit,
    /// Queries for increments.
    pub queries: RateLimit,
    /// Parts of indexes. They wait for their turn: a peer could not receive a whole index at once.
    pub index_parts: RateLimit,
    /// So long after the last part of a requested index it is requested again.
    pub index_timeout: Duration,
    /// So long connections that begin wait for the missing index of a new peer, each at most [`Limits::answer_timeout`].
    pub index_patience: Duration,
    /// Messages and increments that wait to be sent. When it is reached, further ones are not sent: time-outs repair that.
    pub transmits_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            broadcast: true,
            packets_max: 4096,
            packets_per_connection_max: 8,
            batch_max: 64,
            batch_delay: Duration::from_millis(1),
            answer_timeout: Duration::from_millis(20),
            advertise_interval: Duration::from_millis(50),
            pulls: RateLimit::new(100_000, 10_000),
            queries: RateLimit::new(200, 20),
            index_parts: RateLimit::new(20_000, 128),
            index_timeout: Duration::from_millis(250),
            index_patience: Duration::from_secs(1),
            transmits_max: 16_384,
        }
    }
}

/// What the table of this node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// The connection, and this node is its owner.
    Owned,
    /// A replica of it.
    Replica,
    /// Nothing.
    Nothing,
}

/// What becomes of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lookup<P> {
    /// The connection is processed here.
    Process(P),
    /// This node becomes the owner of the connection, then processes it.
    TakeOver(P),
    /// It begins a connection, if the rules permit it.
    Begin(P),
    /// It waits: an [`Outcome`] follows.
    Waits,
    /// It is dropped.
    Dropped(P, LookupDrop),
}

/// Why a packet is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LookupDrop {
    /// No node has its connection.
    Unknown,
    /// Too many packets wait.
    WaitingFull,
    /// The rate of pulls is reached.
    PullBudget,
    /// The rate of queries is reached.
    QueryBudget,
}

impl LookupDrop {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::WaitingFull, Self::PullBudget, Self::QueryBudget];

    /// Its name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::WaitingFull => "waiting_full",
            Self::PullBudget => "pull_budget",
            Self::QueryBudget => "query_budget",
        }
    }
}

/// What has become of packets that waited, and what peers have sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<P> {
    /// A peer has sent the state of a connection: it enters the table, and its packets are processed.
    Pulled {
        /// The connection.
        key: Key,
        /// The peer.
        from: NodeId,
        /// The state, as the peer's [`Table`] gave it.
        state: Vec<u8>,
        /// The packets, in their order.
        packets: Vec<P>,
    },
    /// A peer has sent a copy of a connection, whose owner stays: it enters the table as a replica, and its packets are processed.
    Copied {
        /// The connection.
        key: Key,
        /// The peer.
        from: NodeId,
        /// The state, as the peer's [`Table`] gave it.
        state: Vec<u8>,
        /// The packets, in their order.
        packets: Vec<P>,
    },
    /// No other node has the connection, and its first packet may begin one.
    Begin {
        /// The connection.
        key: Key,
        /// The packets, in their order.
        packets: Vec<P>,
    },
    /// Packets are dropped.
    Dropped {
        /// Their connection.
        key: Key,
        /// The packets.
        packets: Vec<P>,
        /// Why.
        reason: LookupDrop,
    },
    /// A forged packet of a peer has arrived here: the peer waits for its rank.
    Forged {
        /// The peer.
        from: NodeId,
        /// The connection.
        hash: u64,
        /// The group that the packet came by.
        failures: u8,
    },
    /// The answer to a forged packet, for [`crate::prediction::Sampled::handle_answer`].
    Answer {
        /// The connection.
        hash: u64,
        /// The group.
        failures: u8,
        /// The entry of the group.
        rank: u8,
    },
    /// The loads that a peer has placed.
    Loads {
        /// The peer.
        from: NodeId,
        /// Its loads.
        loads: Loads,
    },
}

/// The table of connections, for the pulls of peers.
pub trait Table {
    /// Appends the state of a connection to `state`, at most [`crate::message::STATE_BYTES_MAX`] bytes, and makes `to` its owner.
    /// Returns whether this node has it, as owner or as replica.
    fn hand_over(&mut self, to: NodeId, key: &Key, state: &mut Vec<u8>) -> bool;

    /// As [`Table::hand_over`], without a change of the owner.
    fn copy(&mut self, key: &Key, state: &mut Vec<u8>) -> bool;
}

/// Who receives a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    /// One node.
    Node(NodeId),
    /// All live peers.
    All,
}

/// What the service has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LookupCounters {
    /// Requests for states that were sent.
    pub pulls: u64,
    /// States that were received for one.
    pub pulled: u64,
    /// Connections whose state a requested peer did not have, or did not send in time.
    pub pulls_failed: u64,
    /// Answers of peers that do not have a requested state: their index is old, or had a false positive.
    pub not_held: u64,
    /// States that were sent to peers that requested them.
    pub handed_over: u64,
    /// Requests for the whole index of a peer, or for what was lost of it.
    pub index_requests: u64,
    /// Queries for increments.
    pub queries: u64,
    /// Updates of indexes that came after a lost one.
    pub gaps: u64,
    /// Messages that found no room.
    pub transmits_refused: u64,
    /// Dropped packets, in the order of [`LookupDrop::ALL`].
    pub dropped: [u64; 4],
}

#[cfg(test)]
mod tests;
