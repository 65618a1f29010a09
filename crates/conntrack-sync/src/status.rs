//! A node's status, for operators.

use alloc::vec::Vec;

use flow::netfilter::Entry;
use flow::{Instant, NodeId};
use replication::SessionStatus;
use replication::conntrackd::FtfwStatus;
use replication::secure::ChannelStatus;

use super::config::{Injection, Mode, SyncRole};
use super::readiness::Readiness;
use super::request::{InjectionCounters, KernelRefusal};
use super::unreplicated::Unreplicated;

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyncCounters {
    /// Events of the kernel.
    pub events: u64,
    /// Of those, the ones without a replicated change.
    pub idle_events: u64,
    /// Ends of unknown connections: never reported, or excluded.
    pub unknown_ends: u64,
    /// Ends of an earlier connection with the same tuple.
    pub stale_ends: u64,
    /// Events of connections that a rule excludes.
    pub filtered: u64,
    /// Connections of this node's kernel that began.
    pub began: u64,
    /// Connections of this node that ended.
    pub ended: u64,
    /// Changes replicated.
    pub replicated: u64,
    /// Changes of connections that had not reached a replicated state.
    pub withheld: u64,
    /// Connections that ended before they were replicated: they cost nothing on the wire.
    pub never_replicated: u64,
    /// Replicas taken over because of a packet.
    pub taken_over: u64,
    /// Replicas taken over because of a role or a peer's silence.
    pub claimed: u64,
    /// Updates of peers that were applied.
    pub replicas_stored: u64,
    /// Updates of peers that were older than the known state.
    pub updates_stale: u64,
    /// Updates of peers for connections that have ended.
    pub updates_refused: u64,
    /// Connections of which two nodes had each seen packets.
    pub merged: u64,
    /// Deletions of peers that were applied.
    pub ends_applied: u64,
    /// Deletions of peers for connections that they no longer own.
    pub ends_stale: u64,
    /// Deletions of peers for connections that packets keep alive here.
    pub ends_refused: u64,
    /// Replicas that their owner's resynchronisation did not confirm.
    pub replicas_unconfirmed: u64,
    /// Replicas that this kernel ended while their owner has them; they are injected again.
    pub replicas_ended_early: u64,
    /// Connections that did not fit.
    pub no_room: u64,
    /// Expectations omitted: of unknown connections, or too many of one.
    pub expectations_left_out: u64,
    /// The number of losses of kernel events.
    pub overruns: u64,
    /// Of those, the ones after which all missed changes became known.
    pub recoveries: u64,
    /// The number of dumps of the kernel's table.
    pub dumps: u64,
    /// Connections that a dump found to differ from the mirror, or gone.
    pub repaired: u64,
    /// Invalid datagrams of peers.
    pub bad_datagrams: u64,
}

/// A peer, as this node sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncPeerStatus {
    /// The peer.
    pub id: NodeId,
    /// Its announced role; `None` if unknown.
    pub role: Option<SyncRole>,
    /// Whether the session is open.
    pub is_up: bool,
    /// When its last datagram arrived.
    pub last_received_at: Option<Instant>,
    /// Whether its full resynchronisation is complete, and all its connections fitted.
    pub is_complete: bool,
    /// Whether replicas of its connections did not all fit.
    pub lacks_room: bool,
    /// Both are primary, contrary to the configuration.
    pub is_split: bool,
    /// The native session.
    pub session: Option<SessionStatus>,
    /// The session with conntrackd.
    pub conntrackd: Option<FtfwStatus>,
    /// The channel, if there is one.
    pub channel: Option<ChannelStatus>,
}

/// A node's figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncStatus {
    /// This node.
    pub node: NodeId,
    /// The number of nodes that forward.
    pub mode: Mode,
    /// This node's role.
    pub role: SyncRole,
    /// Where peers' connections are stored.
    pub injection: Injection,
    /// Connections held.
    pub connections: u32,
    /// At most.
    pub connections_max: u32,
    /// Of those held, the ones that this node owns.
    pub own: u32,
    /// Of the owned, the ones that are not replicated.
    pub unreplicated: Unreplicated,
    /// And the peers'.
    pub replicas: u32,
    /// Peers' connections that wait to be injected into the kernel.
    pub pending: usize,
    /// Peers' connections that the kernel refused and lacks.
    pub not_in_kernel: u32,
    /// Refused requests that wait for a retry.
    pub retries: usize,
    /// The reason why the kernel refuses connections at present, if it does.
    pub failing: Option<KernelRefusal>,
    /// Events were lost, and the missed changes are not known yet.
    pub is_recovering: bool,
    /// The kernel's initial table has been read.
    pub is_initialised: bool,
    /// The number of split brains.
    pub split_brains: u64,
    /// The counters.
    pub counters: SyncCounters,
    /// The counters of requests to the kernel.
    pub injected: InjectionCounters,
    /// The peers.
    pub peers: Vec<SyncPeerStatus>,
    /// Whether a failover now would be safe.
    pub readiness: Readiness,
}

/// A connection, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncFlow {
    /// Its slot.
    pub slot: u32,
    /// The entry.
    pub entry: Entry,
    /// Its owner.
    pub owner: NodeId,
    /// Its version.
    pub version: u32,
    /// This node's kernel has it.
    pub is_in_kernel: bool,
    /// Its owner has seen no packet of it.
    pub is_unseen: bool,
    /// A request to the kernel is pending.
    pub is_pending: bool,
    /// It is replicated to the peers.
    pub is_replicated: bool,
}

/// Some of the connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SyncFlows {
    /// In the order of their slots.
    pub flows: Vec<SyncFlow>,
    /// The slot to continue from; `None`: the end.
    pub next: Option<u32>,
}
