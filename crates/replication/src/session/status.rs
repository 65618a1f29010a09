//! What a session reports to its node and its operator.

use alloc::collections::VecDeque;
use core::time::Duration;

use flow::{Instant, NodeId};

use super::Link;
use super::anti_entropy::AntiEntropyStatus;
use crate::message::PROTOCOL_VERSION;

/// The most events that wait for [`super::Session::poll_event`]; the oldest are discarded.
pub const EVENTS_MAX: usize = 64;

/// What is wrong with a datagram, and whose fault it is. The session goes on in every case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerError {
    /// The bytes are not a datagram of this protocol: something else sends to this port, or the link corrupts.
    #[error("malformed datagram: {0}")]
    Malformed(&'static str),
    /// The peer uses another version. Reported once for each change of its version.
    #[error("the peer uses protocol version {theirs}, this node {ours}: run the same release on both")]
    Incompatible {
        /// The peer's version.
        theirs: u8,
        /// This node's version.
        ours: u8,
    },
    /// The datagram is of another node: two nodes have the same address, or the configuration names the wrong one.
    #[error("the datagram is of node {}, expected node {}: check the nodes' identifiers", sender.0, expected.0)]
    WrongSender {
        /// The node that its header names.
        sender: NodeId,
        /// The node that the session is with.
        expected: NodeId,
    },
    /// The peer acknowledges messages that were never sent; this session begins anew.
    #[error("the peer acknowledges what was never sent")]
    AcknowledgesUnsent,
    /// The peer's numbers cannot follow those that were seen; it is asked to begin anew.
    #[error("the peer's message numbers are out of sync")]
    OutOfSync,
    /// The node did not take a message.
    #[error(transparent)]
    Apply(#[from] super::ApplyError),
}

impl PeerError {
    pub(super) const fn incompatible(theirs: u8) -> Self {
        Self::Incompatible { theirs, ours: PROTOCOL_VERSION }
    }
}

/// What happened to a session, for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// The peer is there, and a full synchronisation to it begins.
    PeerUp,
    /// Nothing was received from the peer for [`super::SessionConfig::peer_timeout`].
    PeerSilent,
    /// The peer has left of its own will.
    PeerLeft,
    /// The peer's session is a new one: it was restarted.
    PeerRestarted,
    /// The peer reports that this session's numbers are out of sync; the session began anew.
    Renumbered,
    /// The peer's full synchronisation began.
    ResyncStarted,
    /// The peer's full synchronisation is complete.
    ResyncCompleted,
    /// Both full synchronisations are complete.
    Synchronised,
    /// So many of this node's replicas were found not to be what the peer sent. They are being repaired.
    Diverged {
        /// Connections found since the last such event.
        connections: u32,
    },
    /// After a divergence: the replicas are what the peer sent.
    Agreed {
        /// Replicas that were retransmitted or removed to that end.
        repaired: u32,
    },
}

/// A session's figures, for operators. Counters count since the session was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    /// How the session stands to its peer.
    pub link: Link,
    /// The full synchronisation to the peer is complete: everything was sent and acknowledged.
    pub sent_all: bool,
    /// The peer's full synchronisation to this node is complete: everything was received.
    pub received_all: bool,
    /// This session's number.
    pub session: u32,
    /// The peer's session's number, if it is known.
    pub peer_session: Option<u32>,
    /// Changes and ends of connections that wait to be sent.
    pub queued: usize,
    /// Connections that are to be replicated and that the peer does not have in any state: lost if this node died now.
    pub uncovered: u32,
    /// Messages sent and not acknowledged.
    pub in_flight: u16,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Bytes of the datagrams sent.
    pub bytes_sent: u64,
    /// Numbered messages sent.
    pub messages_sent: u64,
    /// Datagrams received from the peer.
    pub datagrams_received: u64,
    /// Bytes of the datagrams received.
    pub bytes_received: u64,
    /// Numbered messages received and used.
    pub messages_received: u64,
    /// Messages that the peer said it did not receive.
    pub lost: u64,
    /// Of those, the ones whose connection was queued again.
    pub resent: u64,
    /// Numbers of the peer that were found missing.
    pub missed: u64,
    /// Messages of the peer not used: duplicates and late ones.
    pub late: u64,
    /// Changes that found a queue full and were left to a resynchronisation.
    pub left_out: u64,
    /// Connections whose attributes fit into no datagram.
    pub too_long: u64,
    /// Probes sent.
    pub probes: u64,
    /// Resynchronisations of the peer begun.
    pub rounds: u64,
    /// Messages that the node did not take.
    pub apply_errors: u64,
    /// Datagrams of sessions that are over, of this node or the peer.
    pub stale_datagrams: u64,
    /// Datagrams that were malformed, of another version or of another node.
    pub bad_datagrams: u64,
    /// Events that were not polled in time.
    pub events_dropped: u64,
    /// The smoothed round trip.
    pub round_trip: Option<Duration>,
    /// When a datagram of the peer was last received.
    pub last_received_at: Option<Instant>,
    /// When the oldest unacknowledged change was sent (or was found waiting).
    pub oldest_unacknowledged_at: Option<Instant>,
    /// How the replicas of the peer's connections compare with what it sent.
    pub anti_entropy: AntiEntropyStatus,
}

impl SessionStatus {
    /// Both full synchronisations are complete.
    #[must_use]
    pub fn is_synchronised(&self) -> bool {
        self.link == Link::Open && self.sent_all && self.received_all
    }

    /// How far the peer's knowledge is behind: the age of the oldest unacknowledged change.
    #[must_use]
    pub fn lag(&self, now: Instant) -> Duration {
        self.oldest_unacknowledged_at.map_or(Duration::ZERO, |at| now.saturating_since(at))
    }
}

/// Counters of the session itself.
#[derive(Clone, Copy, Default)]
pub(super) struct SessionCounters {
    pub(super) datagrams_sent: u64,
    pub(super) bytes_sent: u64,
    pub(super) datagrams_received: u64,
    pub(super) bytes_received: u64,
    pub(super) messages_received: u64,
    pub(super) probes: u64,
    pub(super) apply_errors: u64,
    pub(super) stale_datagrams: u64,
    pub(super) bad_datagrams: u64,
}

/// Events that wait to be polled.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Events {
    queue: VecDeque<SessionEvent>,
    pub(super) dropped: u64,
}

impl Events {
    pub(crate) fn push(&mut self, event: SessionEvent) {
        if self.queue.len() == EVENTS_MAX {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<SessionEvent> {
        self.queue.pop_front()
    }
}
