//! What a node tells of itself.

use alloc::collections::VecDeque;

use flow::{Instant, NodeId};

use super::config::SyncRole;
use super::request::KernelRefusal;
use super::share::Share;

/// The most events that wait to be polled; when there are more, the oldest goes.
pub const SYNC_EVENTS_MAX: usize = 256;

/// Something that an operator wants to know of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncEvent {
    /// The peer is there and is told everything from now on.
    PeerUp(NodeId),
    /// Nothing is heard of the peer any more.
    PeerSilent(NodeId),
    /// The peer has left of its own will.
    PeerLeft(NodeId),
    /// The peer was restarted.
    PeerRestarted(NodeId),
    /// The peer begins to tell all its connections.
    ResyncStarted(NodeId),
    /// The peer has told all its connections.
    ResyncCompleted(NodeId),
    /// This node and the peer have told each other everything.
    Synchronised(NodeId),
    /// Copies of the peer's connections are not what the peer told. They are being put right.
    ReplicasDiffer {
        /// The peer.
        peer: NodeId,
        /// Connections found since the last word of it.
        connections: u32,
    },
    /// After that: they are what it told.
    ReplicasAgree {
        /// The peer.
        peer: NodeId,
        /// Copies that were told again or removed.
        repaired: u32,
    },
    /// The channel with the peer is encrypted from now on.
    ChannelSecured(NodeId),
    /// It is encrypted under new session keys.
    SessionKeysExchanged(NodeId),
    /// The peer says that it has this role.
    PeerRole {
        /// The peer.
        peer: NodeId,
        /// What it says.
        role: SyncRole,
    },
    /// This node was given a role, and is now master of so many connections that were others'.
    RoleChanged {
        /// The role.
        role: SyncRole,
        /// Connections claimed.
        claimed: u32,
    },
    /// This node went on with the connections of a peer that does not forward any more.
    Claimed {
        /// The peer.
        peer: NodeId,
        /// How many.
        connections: u32,
    },
    /// This node and the peer are both primary, and one at a time should be: look after what moves the addresses.
    SplitBrain(NodeId),
    /// They are not any more.
    SplitBrainOver(NodeId),
    /// Events of the kernel were lost: what is in the kernel is compared with what is known.
    EventsLost,
    /// After that: what was missed is known.
    Recovered {
        /// Connections found to be otherwise than was known, or gone.
        repaired: u64,
    },
    /// The kernel's table could not be read; it is tried again.
    DumpFailed,
    /// The kernel does not take connections, for this reason. Said once until it takes them again.
    InjectionFails(KernelRefusal),
    /// The kernel takes connections again.
    InjectionWorks,
    /// `connections_max` are held, and further ones of this node's kernel are not told: raise it.
    TableFull,
    /// `connections_max` are held, and the peer's no longer fit: raise it.
    ReplicaIncomplete(NodeId),
    /// The filter leaves out nearly all of this kernel's connections.
    FewReplicated(Share),
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
