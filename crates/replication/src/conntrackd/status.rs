//! What a session reports of itself.

use alloc::collections::VecDeque;

use flow::Instant;

use super::message::VERSION;
use super::object::ObjectError;
use super::session::Link;
use crate::session::ApplyError;

/// Events that wait to be polled, at most; the oldest are discarded.
pub const EVENTS_MAX: usize = 64;

/// What was wrong with a datagram of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FtfwError {
    /// A message's header cannot be: the rest of the datagram is not looked at.
    #[error("malformed datagram: {0}")]
    Malformed(&'static str),
    /// The peer uses another version. Reported once for each change of its version.
    #[error(
        "the peer uses version {theirs} of conntrackd's protocol, this node {VERSION}: another program, or another release"
    )]
    Incompatible {
        /// The peer's version.
        theirs: u8,
    },
    /// A message about a connection that cannot be understood. The others of its datagram are used.
    #[error("a message of type {kind} cannot be understood: {error}")]
    Object {
        /// The type of the message.
        kind: u8,
        /// What is wrong.
        error: ObjectError,
    },
    /// The peer acknowledges, or asks for, messages that were never sent: it means an earlier process at this address.
    #[error("the peer acknowledges or asks for messages that were never sent")]
    NeverSent,
    /// The node did not take a message.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// What happened to a session, for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FtfwEvent {
    /// The peer receives this node's messages; both ask for a full synchronisation and send one from now on.
    PeerUp,
    /// Nothing was received from the peer for [`super::FtfwConfig::peer_timeout`].
    PeerSilent,
    /// The peer was restarted, and a full synchronisation to it begins.
    PeerRestarted,
    /// The peer asks for a full synchronisation.
    ResyncRequested,
    /// Everything was sent to the peer.
    SentAll,
}

/// A session's figures, for operators. Counters count since the session was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FtfwStatus {
    /// How the session stands to its peer.
    pub link: Link,
    /// The full synchronisation was sent to the peer, and is acknowledged.
    pub sent_all: bool,
    /// The peer was asked for a full synchronisation, and has acknowledged the question. conntrackd never reports how much is
    /// still to come.
    pub received_all: bool,
    /// Changes and ends that wait to be sent.
    pub queued: usize,
    /// Messages about connections sent and not acknowledged.
    pub in_flight: usize,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Bytes of the datagrams sent.
    pub bytes_sent: u64,
    /// Messages about connections and expectations sent, those sent again included.
    pub messages_sent: u64,
    /// Acknowledgements, keep-alives and the like sent.
    pub control_sent: u64,
    /// Datagrams received from the peer.
    pub datagrams_received: u64,
    /// Bytes of the datagrams received.
    pub bytes_received: u64,
    /// Messages about connections and expectations received and used.
    pub messages_received: u64,
    /// Control messages received and used.
    pub control_received: u64,
    /// Messages that the peer said it did not receive, or did not acknowledge in time.
    pub lost: u64,
    /// Of those, the ones that were still worth retransmitting.
    pub resent: u64,
    /// Of those that were lost, the ones that were never acknowledged rather than asked for.
    pub timed_out: u64,
    /// How often the peer was asked what it has, as it had not said for [`super::FtfwConfig::ask_timeout`].
    pub asks: u64,
    /// Numbers of the peer that were found missing, and asked for.
    pub missed: u64,
    /// Messages of the peer not used: duplicates and late ones.
    pub late: u64,
    /// Ends that found no room to wait in: the peer's replicas end by their timeouts.
    pub left_out: u64,
    /// Connections and expectations that conntrackd has no words for.
    pub inexpressible: u64,
    /// Full synchronisations sent.
    pub rounds: u64,
    /// Messages whose object could not be understood.
    pub bad_messages: u64,
    /// Messages that the node did not take.
    pub apply_errors: u64,
    /// Datagrams that were malformed or of another version.
    pub bad_datagrams: u64,
    /// Events that were not polled in time.
    pub events_dropped: u64,
    /// When a message of the peer was last received.
    pub last_received_at: Option<Instant>,
    /// When the oldest unacknowledged message was sent, or the oldest change was found waiting.
    pub oldest_unacknowledged_at: Option<Instant>,
}

impl FtfwStatus {
    /// Both full synchronisations are complete, as far as can be known.
    #[must_use]
    pub fn is_synchronised(&self) -> bool {
        self.link == Link::Open && self.sent_all && self.received_all
    }
}

/// Events that wait to be polled.
#[derive(Default, Debug)]
pub(super) struct Events {
    queue: VecDeque<FtfwEvent>,
    pub(super) dropped: u64,
}

impl Events {
    pub(super) fn push(&mut self, event: FtfwEvent) {
        if self.queue.len() == EVENTS_MAX {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<FtfwEvent> {
        self.queue.pop_front()
    }
}
