//! Events that a node reports.

use alloc::collections::VecDeque;

use flow::{Instant, NodeId};

use super::config::SyncRole;
use super::coverage::FilterCoverage;
use super::request::KernelRefusal;

/// The maximum number of events that wait to be polled; beyond it the oldest is dropped.
pub const SYNC_EVENTS_MAX: usize = 256;

/// An event for the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncEvent {
    /// A session with the peer is open; the full table will be replicated.
    PeerUp(NodeId),
    /// The session with the peer timed out.
    PeerSilent(NodeId),
    /// The peer has shut down.
    PeerLeft(NodeId),
    /// The peer has restarted.
    PeerRestarted(NodeId),
    /// The peer begins a full resynchronisation.
    ResyncStarted(NodeId),
    /// The peer has completed its full resynchronisation.
    ResyncCompleted(NodeId),
    /// This node and the peer have completed full resynchronisation in both directions.
    Synchronised(NodeId),
    /// Replicas of the peer's connections differ from the peer's state. They are being repaired.
    ReplicasDiffer {
        /// The peer.
        peer: NodeId,
        /// Differing connections found since the last report.
        connections: u32,
    },
    /// Afterwards: the replicas agree with the peer's state.
    ReplicasAgree {
        /// The peer.
        peer: NodeId,
        /// Replicas that were retransmitted or removed.
        repaired: u32,
    },
    /// The channel with the peer is now encrypted.
    ChannelSecured(NodeId),
    /// It is encrypted with new session keys.
    SessionKeysExchanged(NodeId),
    /// The peer announced this role.
    PeerRole {
        /// The peer.
        peer: NodeId,
        /// The role.
        role: SyncRole,
    },
    /// This node's role changed; it has taken over so many connections of other nodes.
    RoleChanged {
        /// The role.
        role: SyncRole,
        /// Connections claimed.
        claimed: u32,
    },
    /// This node took over the connections of a peer that no longer forwards.
    Claimed {
        /// The peer.
        peer: NodeId,
        /// The number of connections.
        connections: u32,
    },
    /// This node and the peer are both primary, contrary to the configuration: check the manager of the addresses.
    SplitBrain(NodeId),
    /// The split brain has ended.
    SplitBrainOver(NodeId),
    /// Events of the kernel were lost: its table is compared with the mirror.
    EventsLost,
    /// Afterwards: all missed changes are known.
    Recovered {
        /// Connections that differed from the mirror, or were gone.
        repaired: u64,
    },
    /// The kernel's table could not be read; another attempt follows.
    DumpFailed,
    /// The kernel refuses connections for this reason. Reported once until it accepts them again.
    InjectionFails(KernelRefusal),
    /// The kernel accepts connections again.
    InjectionWorks,
    /// `connections_max` are held, and further ones of this node's kernel are not replicated: raise it.
    TableFull,
    /// `connections_max` are held, and the peer's connections no longer fit: raise it.
    ReplicaIncomplete(NodeId),
    /// The filter excludes nearly all of this kernel's connections.
    FewReplicated(FilterCoverage),
}

/// Events with their times, oldest first.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<(Instant, SyncEvent)>,
}

impl Events {
    pub(super) fn push(&mut self, now: Instant, event: SyncEvent) {
        if self.queue.len() >= SYNC_EVENTS_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back((now, event));
    }

    pub(super) fn pop(&mut self) -> Option<(Instant, SyncEvent)> {
        self.queue.pop_front()
    }
}
