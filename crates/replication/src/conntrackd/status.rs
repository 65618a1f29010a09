//! What a session tells of itself.

use alloc::collections::VecDeque;

use flow::Instant;

use super::message::VERSION;
use super::object::ObjectError;
use super::session::Link;
use crate::session::ApplyError;

/// Events that wait to be polled, at most; the oldest give way.
pub const EVENTS_MAX: usize = 64;

/// What was wrong with a datagram of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FtfwError {
    /// A message's header cannot be: the rest of the datagram is not looked at.
    #[error("malformed datagram: {0}")]
    Malformed(&'static str),
    /// The peer speaks another version. Said once for each change of its version.
    #[error(
        "the peer speaks version {theirs} of conntrackd's protocol, this node {VERSION}: another program, or another release"
    )]
    Incompatible {
        /// The version that it speaks.
        theirs: u8,
    },
    /// A message says something of a connection that cannot be understood. The others of its datagram are used.
    #[error("a message of type {kind} cannot be understood: {error}")]
    Object {
        /// The type of the message.
        kind: u8,
        /// What is wrong.
        error: ObjectError,
    },
    /// The peer acknowledges, or asks for, messages that were never sent: it means an earlier process at this address.
    #[error("the peer speaks of messages that were never sent")]
    NeverSent,
    /// The node did not take a message.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// What happened to a session, for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FtfwEvent {
    /// The peer hears this node, which asks it for everything and tells it everything from now on.
    PeerUp,
    /// Nothing was heard of the peer for [`super::FtfwConfig::peer_timeout`].
    PeerSilent,
    /// The peer was restarted, and is told everything again.
    PeerRestarted,
    /// The peer asks to be told everything.
    ResyncRequested,
    /// The peer was told everything there was.
    Told,
}

/// A session's figures, for operators. Counters count since the session was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FtfwStatus {
    /// How the session stands to its peer.
    pub link: Link,
    /// The peer was told everything, and has acknowledged it.
    pub told: bool,
    /// The peer was asked for everything, and has acknowledged the question. How much is still to come it never says.
    pub heard: bool,
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
    /// Acknowledgements, signs of life and the like sent.
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
    /// Of those, the ones that were still worth telling again.
    pub resent: u64,
    /// Of those that were lost, the ones that were never acknowledged rather than asked for.
    pub timed_out: u64,
    /// How often the peer was asked what it has, as it had not said for [`super::FtfwConfig::ask_timeout`].
    pub asks: u64,
    /// Numbers of the peer that were found missing, and asked for.
    pub missed: u64,
    /// Messages of the peer not used: duplicates and late ones.
    pub late: u64,
    /// Ends that found no room to wait in: the peer's copies end by their timeouts.
    pub left_out: u64,
    /// Connections and expectations that conntrackd has no words for.
    pub inexpressible: u64,
    /// How often everything was told.
    pub rounds: u64,
    /// Messages whose object could not be understood.
    pub bad_messages: u64,
    /// Messages that the node did not take.
    pub apply_errors: u64,
    /// Datagrams that were malformed or of another version.
    pub bad_datagrams: u64,
    /// Events that nobody polled in time.
    pub events_dropped: u64,
    /// When the peer was last heard.
    pub last_heard: Option<Instant>,
    /// When the oldest unacknowledged message was sent, or the oldest change was found waiting.
    pub oldest_unacknowledged_at: Option<Instant>,
}

impl FtfwStatus {
    /// Both have told each other everything, as far as can be known.
    #[must_use]
    pub fn is_synchronised(&self) -> bool {
        self.link == Link::Open && self.told && self.heard
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
