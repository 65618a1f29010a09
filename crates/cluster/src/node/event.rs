//! What a node reports of itself.

use alloc::collections::VecDeque;
use core::net::IpAddr;

use flow::wire::MacAddress;
use flow::{Instant, NodeId, PortId, WorkerId};

use crate::forwarding::AddressConflict;
use crate::group::GroupId;

/// The most events that wait to be polled; when there are more, the oldest goes.
pub(super) const EVENTS_PENDING_MAX: usize = 1024;

/// Something that an operator wants to know of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeEvent {
    /// The failure detector reports the peer up.
    PeerUp(NodeId),
    /// The failure detector no longer does.
    PeerDown(NodeId),
    /// A port went down, or a next hop no longer answers.
    Unreached {
        /// Which.
        target: Target,
        /// What follows for the shared addresses.
        consequence: Consequence,
    },
    /// It came up, or answers again.
    Reached {
        /// Which.
        target: Target,
    },
    /// A path to the peer is up: each side receives the other over it. Reported where there are service paths.
    PathUp {
        /// The peer.
        peer: NodeId,
        /// The path.
        path: Path,
    },
    /// A path to the peer is down. The peer itself is down once all are.
    PathDown {
        /// The peer.
        peer: NodeId,
        /// The path.
        path: Path,
    },
    /// The replication path to the peer is down while service paths are up: the peer lives, and no node takes over. Updates go over a
    /// service path at a limited rate, or not at all.
    Degraded {
        /// The peer.
        peer: NodeId,
        /// Updates go over a service path.
        carries_updates: bool,
    },
    /// The peer and this node hold the same addresses, each unaware of the other until now.
    SplitBrain(NodeId),
    /// No longer: one of them has yielded.
    SplitBrainEnded(NodeId),
    /// This node takes a group's shared addresses over; the state of the connections is usable.
    BecameActive {
        /// The group.
        group: GroupId,
        /// The number of the take-over.
        term: u64,
    },
    /// A group's shared addresses were announced to the neighbours.
    AddressesAnnounced {
        /// The group.
        group: GroupId,
        /// The number of the take-over.
        term: u64,
    },
    /// This node gave a group's shared addresses up.
    BecameStandby {
        /// The group.
        group: GroupId,
    },
    /// The first packet of a connection whose replica this node took over was sent on.
    FirstPacketAfterTakeOver,
    /// The peer's full synchronisation began.
    ResyncStarted(NodeId),
    /// The peer's full synchronisation is complete: this node could take over from it.
    ResyncCompleted(NodeId),
    /// Replication with the peer runs.
    ReplicationUp(NodeId),
    /// The peer's replication is silent.
    ReplicationDown(NodeId),
    /// The peer was restarted and knows nothing.
    PeerRestarted(NodeId),
    /// The full synchronisations of this node and of the peer are complete.
    Synchronised(NodeId),
    /// The table is full and the peer's connections no longer fit: raise `limits.connections_max`.
    ReplicaIncomplete(NodeId),
    /// Replicas of the peer's connections are not what the peer sent. They are being repaired.
    ReplicasDiffer {
        /// The peer.
        peer: NodeId,
        /// Connections found since the last such event.
        connections: u32,
    },
    /// After that: the replicas of the peer's connections are what it sent.
    ReplicasAgree {
        /// The peer.
        peer: NodeId,
        /// Replicas that were sent again or removed.
        repaired: u32,
    },
    /// Packets of no connection are looked for in the filters of peers.
    RecoveryBegan {
        /// Connections that peers had replicated.
        entries: u64,
    },
    /// They no longer are.
    RecoveryEnded {
        /// Connections that came back, since the node was started.
        restored: u64,
    },
    /// All connections were re-evaluated by the configuration in force.
    Reevaluated {
        /// Those that were ended because it does not allow them any more.
        ended: u64,
    },
    /// No peer took the addresses of a node that was to be drained: it goes on.
    DrainGivenUp,
    /// The peer divides its packets among its workers otherwise: replication with it is refused until `workers.count` is the
    /// same on both nodes, and both run releases that steer alike.
    WorkersDiffer {
        /// The peer.
        peer: NodeId,
        /// Its number of workers; 0: a value that this release does not know.
        theirs: u8,
        /// This node's number of workers.
        ours: u8,
    },
    /// The channel with the peer is encrypted from now on.
    ChannelSecured(NodeId),
    /// It is encrypted under new session keys.
    SessionKeysExchanged(NodeId),
    /// This node takes no shared addresses, for this reason; `None`: it may again.
    Passive(Option<PassiveReason>),
    /// Another host claims an address that this node holds.
    AddressConflict(AddressConflict),
    /// The worker did not make its connections usable in time; the addresses were announced without it.
    WorkerLate(WorkerId),
}

/// A way between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// That of replication.
    Replication,
    /// The link of a service port.
    Port(PortId),
}

/// A port, or a next hop behind one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A port: reached while its link is up.
    Port(PortId),
    /// A neighbour on the port's link: reached while it answers ARP or neighbour solicitations.
    NextHop(PortId, IpAddr),
}

/// What follows from a change of what the node reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consequence {
    /// It counts for no group.
    NotTracked,
    /// This node holds no addresses.
    StandsBy,
    /// It holds addresses, and this peer reaches more: the peer takes them.
    PeerReachesMore(NodeId),
    /// It holds addresses and keeps them, as no peer that could serve reaches more.
    NoPeerReachesMore,
}

/// Why a node takes no shared addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassiveReason {
    /// It has just started and asks whether another host has them.
    Probing,
    /// Another host has one of them, or is about to take it.
    AddressDefended {
        /// The port on whose link the host is.
        port: PortId,
        /// The address.
        address: IpAddr,
        /// The host's link address.
        mac: MacAddress,
    },
    /// A peer sends packets that this node cannot accept.
    PeerRejected {
        /// The peer.
        peer: NodeId,
        /// What is wrong with them.
        reason: Rejection,
    },
}

/// What is wrong with a peer's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// They are encrypted under another key, or their certificate does not hold.
    NotAuthenticated,
    /// They are not encrypted, and this node encrypts.
    PlainText,
    /// They are encrypted, and this node does not encrypt.
    Encrypted,
    /// They name another node as their sender.
    NamesAnotherNode(NodeId),
    /// They name none of this node's groups of addresses.
    GroupsDiffer,
    /// They cannot be read: the peer runs another release.
    Unreadable,
}

impl core::fmt::Display for Rejection {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotAuthenticated => formatter.write_str(
                "cannot be authenticated: give both nodes the same keys or authorities in [replication.security]",
            ),
            Self::PlainText => {
                formatter.write_str("are not encrypted: give both nodes the same mode in [replication.security]")
            }
            Self::Encrypted => formatter
                .write_str("are encrypted, this node does not encrypt: give this node the same [replication.security]"),
            Self::NamesAnotherNode(node) => {
                write!(formatter, "name node {} as their sender: give each node its own node.id", node.0)
            }
            Self::GroupsDiffer => {
                formatter.write_str("name none of this node's groups: give both nodes the same [[group]] sections")
            }
            Self::Unreadable => formatter.write_str("cannot be read: run the same release on both nodes"),
        }
    }
}

/// Events with their times, oldest first.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<(Instant, NodeEvent)>,
}

impl Events {
    pub(super) fn push(&mut self, now: Instant, event: NodeEvent) {
        if self.queue.len() >= EVENTS_PENDING_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back((now, event));
    }

    pub(super) fn extend(&mut self, now: Instant, event: Option<NodeEvent>) {
        event.into_iter().for_each(|event| self.push(now, event));
    }

    pub(super) fn pop(&mut self) -> Option<(Instant, NodeEvent)> {
        self.queue.pop_front()
    }
}
