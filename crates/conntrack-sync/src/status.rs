//! A node's figures, for operators.

use alloc::vec::Vec;

use flow::netfilter::Entry;
use flow::{Instant, NodeId};
use replication::SessionStatus;
use replication::conntrackd::FtfwStatus;
use replication::secure::ChannelStatus;

use super::config::{Injection, Mode, SyncRole};
use super::readiness::Readiness;
use super::request::{InjectionCounters, KernelRefusal};

/// What is counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyncCounters {
    /// Events of the kernel.
    pub events: u64,
    /// Of those, the ones that changed nothing that another node must know of.
    pub idle_events: u64,
    /// Ends of connections that were not known: never told of, or left out.
    pub unknown_ends: u64,
    /// Ends of an earlier connection with the same tuple.
    pub stale_ends: u64,
    /// Events of connections that a rule leaves out.
    pub filtered: u64,
    /// Connections of this node's kernel that began.
    pub began: u64,
    /// Connections of this node's that ended.
    pub ended: u64,
    /// Changes told.
    pub told: u64,
    /// Changes of connections that were not far enough to be told.
    pub withheld: u64,
    /// Connections that ended before they were told: they cost nothing on the wire.
    pub never_told: u64,
    /// Copies that a packet made this node's.
    pub taken_over: u64,
    /// Copies that a role, or a peer's silence, made this node's.
    pub claimed: u64,
    /// Words of peers taken.
    pub copies_taken: u64,
    /// Words of peers that were older than what is known.
    pub words_stale: u64,
    /// Words of peers of connections that have ended.
    pub words_refused: u64,
    /// Connections that two nodes had each seen something of.
    pub merged: u64,
    /// Ends told by peers and taken.
    pub ends_taken: u64,
    /// Ends told by peers of connections that are not theirs any more.
    pub ends_stale: u64,
    /// Ends told by peers of connections that packets keep alive here.
    pub ends_refused: u64,
    /// Copies that their master did not tell again.
    pub remnants: u64,
    /// Copies that this kernel ended while their master has them; they are injected again.
    pub copies_ended_early: u64,
    /// Connections for which there was no room.
    pub no_room: u64,
    /// Announced connections left out: of connections that are not known, or too many of one.
    pub expectations_left_out: u64,
    /// Times that events of the kernel were lost.
    pub overruns: u64,
    /// Of those, the ones after which all that was missed is known.
    pub recoveries: u64,
    /// Times that the kernel's table was read.
    pub dumps: u64,
    /// Connections found by that to be otherwise than was known, or gone.
    pub repaired: u64,
    /// Datagrams of peers that could not be used.
    pub bad_datagrams: u64,
}

/// A peer, as this node sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncPeerStatus {
    /// The peer.
    pub id: NodeId,
    /// What it says that it is; `None` where it says nothing (any more).
    pub role: Option<SyncRole>,
    /// It is heard, and hears.
    pub is_up: bool,
    /// When it was last heard.
    pub last_heard: Option<Instant>,
    /// It has told all its connections, and there was room for them.
    pub has_told_all: bool,
    /// Copies of its connections did not all find room.
    pub lacks_room: bool,
    /// Both are primary, and one should be.
    pub is_split: bool,
    /// The native session.
    pub session: Option<SessionStatus>,
    /// The session with a conntrackd.
    pub conntrackd: Option<FtfwStatus>,
    /// The channel, if there is one.
    pub channel: Option<ChannelStatus>,
}

/// A node's figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncStatus {
    /// This node.
    pub node: NodeId,
    /// How many nodes forward.
    pub mode: Mode,
    /// What this one is.
    pub role: SyncRole,
    /// What is done with peers' connections.
    pub injection: Injection,
    /// Connections held.
    pub connections: u32,
    /// At most.
    pub connections_max: u32,
    /// Of those held, this node's.
    pub own: u32,
    /// And the peers'.
    pub copies: u32,
    /// Peers' connections that wait to be told to the kernel.
    pub pending: usize,
    /// Peers' connections that the kernel refused and does not have.
    pub not_in_kernel: u32,
    /// Requests that were refused and are to be tried again.
    pub retries: usize,
    /// Why the kernel does not take connections at present, if so.
    pub failing: Option<KernelRefusal>,
    /// Events were lost, and what was missed is not known yet.
    pub is_recovering: bool,
    /// All that the kernel had at the start is known.
    pub is_initialised: bool,
    /// Times that both this node and a peer were primary and one should have been.
    pub split_brains: u64,
    /// What is counted.
    pub counters: SyncCounters,
    /// What was asked of the kernel.
    pub injected: InjectionCounters,
    /// The peers.
    pub peers: Vec<SyncPeerStatus>,
    /// Whether a failover now would be safe.
    pub readiness: Readiness,
}

/// A connection, for who looks on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncFlow {
    /// Its slot.
    pub slot: u32,
    /// All that is known of it.
    pub entry: Entry,
    /// Its master.
    pub owner: NodeId,
    /// Its version.
    pub version: u32,
    /// This node's kernel has it.
    pub is_in_kernel: bool,
    /// Its master has seen no packet of it.
    pub is_unseen: bool,
    /// It waits for its turn to be told to the kernel.
    pub is_pending: bool,
    /// The peers are told of it.
    pub is_told: bool,
}

/// Some of the connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SyncFlows {
    /// In the order of their slots.
    pub flows: Vec<SyncFlow>,
    /// Where to go on; `None`: that was all.
    pub next: Option<u32>,
}
