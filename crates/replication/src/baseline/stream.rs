//! Replication over TCP, as conntrackd does it in its TCP mode: say everything, in order.

use alloc::vec::Vec;

use flow::wire::tlv;
use flow::{Instant, NodeId};

use super::status::Standing;
use super::telling::{Room, Telling, Written};
use crate::message::{self, Kind, begin, finish};
use crate::session::{ConfigError, Events, Handle, Link, PeerError, SessionConfig, SessionEvent, SessionStatus, Store};

/// Bytes that wait for the stream to take them, at most. When there is no room for a message, no more are kept; when
/// the stream has taken what there is, a full tell makes good what was left out.
pub const QUEUE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a message, at most, with its header: what its length can say.
pub const MESSAGE_BYTES_MAX: usize = 1 << 16;
/// Bytes that wait, beyond which a full tell pauses: changes must not wait behind the whole of it.
const WALK_AHEAD_BYTES_MAX: usize = 32 << 10;

/// Version of what the stream carries; another version is another protocol.
const VERSION: u8 = 1;

/// First message on a stream: version u8, sender u8, two zeros; session u32.
const HELLO: u16 = 0x80f0;
/// A full tell begins. No body.
const RESYNC_BEGIN: u16 = 0x80f1;
/// The sender leaves of its own will. No body.
const GOODBYE: u16 = 0x80f2;

const _: () = assert!(QUEUE_BYTES_MAX > MESSAGE_BYTES_MAX + WALK_AHEAD_BYTES_MAX);

/// Why a stream is of no more use: to be closed by its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// What comes is not this protocol, or not from the node that it should be from: whose fault, says the cause.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The peer said that it leaves.
    #[error("the peer has left")]
    Left,
}

/// Replication between this node and one peer over a reliable stream that the caller provides: bytes in, bytes out.
///
/// Messages delimit themselves by their length, as in datagrams. It promises that
/// * while the stream lasts, the peer is given every change that was told, in the order in which they happened;
/// * a new stream begins with a full tell, after which the peer has what this node has;
/// * memory is bounded by [`SessionConfig`] and [`QUEUE_BYTES_MAX`], whatever the peer sends or does not take.
///
/// It does not promise that
/// * what the peer is given is worth having: a change is delivered although later ones have overtaken it, and later ones wait
///   for it (only what happens between two calls of [`StreamSession::poll_stream`] is told as one change);
/// * the peer has anything by any time: the stream decides when what was lost is sent again, and nobody acknowledges.
///
/// ```text
///              handle_connected          the peer's Hello
///   Seeking ────────────────────► (says Hello) ─────────► Open (tells)
///      ▲                                                     │
///      └──── handle_disconnected ────────────────────────────┘
/// ```
pub struct StreamSession {
    local: NodeId,
    peer: NodeId,
    session: u32,
    peer_session: Option<u32>,
    link: Link,
    is_connected: bool,
    telling: Telling,
    standing: Standing,
    events: Events,
    /// What waits for the stream: the bytes from `taken_bytes` on.
    outgoing: Vec<u8>,
    taken_bytes: usize,
    waiting_since: Option<Instant>,
    /// Something was left out: no more is kept until the stream has taken all that waits.
    is_overfull: bool,
    overflows: u64,
    /// The end of a full tell is to be said.
    owes_end: bool,
    /// A message of the peer of which the end has not come.
    incoming: Vec<u8>,
}

impl StreamSession {
    /// A session of the node `local` with the node `peer`. `seed` must differ from start to start.
    ///
    /// # Errors
    /// The configuration is not sound.
    pub fn new(config: SessionConfig, local: NodeId, peer: NodeId, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            local,
            peer,
            session: (seed >> 32) as u32 | 1,
            peer_session: None,
            link: Link::Seeking,
            is_connected: false,
            telling: Telling::new(&config),
            standing: Standing::default(),
            events: Events::default(),
            outgoing: Vec::new(),
            taken_bytes: 0,
            waiting_since: None,
            is_overfull: false,
            overflows: 0,
            owes_end: false,
            incoming: Vec::new(),
        })
    }

    /// As [`crate::Session::mark_changed`].
    pub fn mark_changed(&mut self, handle: Handle) {
        self.telling.mark_changed(handle);
    }

    /// As [`crate::Session::mark_deleted`].
    pub fn mark_deleted(&mut self, handle: Handle, attributes: &[u8]) {
        self.telling.mark_deleted(handle, attributes);
    }

    /// As [`crate::Session::forget`].
    pub fn forget(&mut self, handle: Handle) {
        self.telling.forget(handle);
    }

    /// The node leaves: Goodbye is the last that the peer is told.
    pub fn close(&mut self) {
        if self.link == Link::Open {
            self.telling.close();
            let at = begin(&mut self.outgoing, GOODBYE);
            finish(&mut self.outgoing, at);
        }
        self.link = Link::Closed;
    }

    /// What happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop()
    }

    /// The session's figures. A datagram is here what was handed to or taken from the stream at once.
    #[must_use]
    pub fn status(&self) -> SessionStatus {
        let status = self.standing.status(self.link, (self.session, self.peer_session), &self.telling);
        SessionStatus {
            left_out: status.left_out + self.overflows,
            oldest_unacknowledged_at: self.waiting_since,
            ..status
        }
    }

    /// A stream to the peer stands, in place of any earlier one.
    pub fn handle_connected(&mut self) {
        self.handle_disconnected();
        if self.link == Link::Closed {
            return;
        }
        self.is_connected = true;
        let at = begin(&mut self.outgoing, HELLO);
        self.outgoing.extend_from_slice(&[VERSION, self.local.0, 0, 0]);
        self.outgoing.extend_from_slice(&self.session.to_be_bytes());
        finish(&mut self.outgoing, at);
    }

    /// The stream is no more.
    pub fn handle_disconnected(&mut self) {
        self.is_connected = false;
        self.outgoing.clear();
        self.incoming.clear();
        (self.taken_bytes, self.waiting_since, self.is_overfull, self.owes_end) = (0, None, false, false);
        if self.link == Link::Open {
            self.link = Link::Seeking;
            self.telling.close();
            self.standing.lose_peer();
            self.events.push(SessionEvent::PeerSilent);
        }
    }

    /// Takes what has come on the stream, cut anywhere. What it says of connections goes to `store`.
    ///
    /// # Errors
    /// Why the stream is of no more use: the caller closes it and calls [`StreamSession::handle_disconnected`]. That the store
    /// does not take a message is only counted: the stream goes on behind it.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8], store: &mut impl Store) -> Result<(), StreamError> {
        if !self.is_connected {
            return Ok(());
        }
        self.standing.received_datagrams += 1;
        self.standing.received_bytes += bytes.len() as u64;
        self.standing.last_heard = Some(now);
        self.incoming.extend_from_slice(bytes);
        let incoming = core::mem::take(&mut self.incoming);
        let mut read_bytes = 0;
        let mut result = Ok(());
        while let Some(length) = whole_message(&incoming[read_bytes..]) {
            let message = length.and_then(|length| self.read_message(now, &incoming[read_bytes..][..length], store));
            match message {
                Ok(length) => read_bytes += length,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.incoming = incoming;
        self.incoming.drain(..read_bytes);
        self.note_synchronised();
        result
    }

    /// Reads one message with its padding; returns its length.
    fn read_message(&mut self, now: Instant, bytes: &[u8], store: &mut impl Store) -> Result<usize, StreamError> {
        let message = tlv::read(bytes).next().and_then(Result::ok);
        let (message_type, body) = message.ok_or(PeerError::Malformed("a message that cannot be read"))?;
        if (message_type == HELLO) != (self.link == Link::Seeking) {
            return Err(PeerError::Malformed("a stream must begin with one Hello").into());
        }
        let applied = match message_type {
            HELLO => return self.handle_hello(body).map(|()| bytes.len()),
            GOODBYE => {
                self.events.push(SessionEvent::PeerLeft);
                return Err(StreamError::Left);
            }
            RESYNC_BEGIN => {
                self.standing.heard = false;
                store.resync_started(now, self.peer);
                self.events.push(SessionEvent::ResyncStarted);
                Ok(())
            }
            message::RESYNC_END => {
                self.standing.heard = true;
                store.resync_completed(now, self.peer);
                self.events.push(SessionEvent::ResyncCompleted);
                Ok(())
            }
            message::NEW => store.apply(now, self.peer, Kind::New, body),
            message::UPDATE => store.apply(now, self.peer, Kind::Update, body),
            message::DELETE => store.delete(now, self.peer, body),
            _ => Ok(()),
        };
        self.standing.received_messages += 1;
        self.standing.apply_errors += u64::from(applied.is_err());
        Ok(bytes.len())
    }

    fn handle_hello(&mut self, body: &[u8]) -> Result<(), StreamError> {
        let Some(&[version, sender, _, _, s0, s1, s2, s3]) = body.first_chunk() else {
            return Err(PeerError::Malformed("a Hello that is cut short").into());
        };
        if version != VERSION {
            return Err(PeerError::Incompatible { theirs: version, ours: VERSION }.into());
        }
        if sender != self.peer.0 {
            return Err(PeerError::WrongSender { sender: NodeId(sender), expected: self.peer }.into());
        }
        let session = u32::from_be_bytes([s0, s1, s2, s3]);
        if self.peer_session.replace(session).is_some_and(|former| former != session) {
            self.events.push(SessionEvent::PeerRestarted);
        }
        self.link = Link::Open;
        self.telling.open();
        self.telling.begin_walk();
        self.begin_resync();
        self.events.push(SessionEvent::PeerUp);
        Ok(())
    }

    fn begin_resync(&mut self) {
        self.owes_end = true;
        let at = begin(&mut self.outgoing, RESYNC_BEGIN);
        finish(&mut self.outgoing, at);
    }

    /// What the stream is to take next: everything that has changed, and of a full tell what may wait. Those of the
    /// bytes that it takes are to be named to [`StreamSession::handle_taken`]; the others come again.
    pub fn poll_stream(&mut self, now: Instant, store: &mut impl Store) -> &[u8] {
        if self.link == Link::Open {
            self.recover();
            self.write_changes(now, store);
            self.write_walk(now, store);
        }
        if self.outgoing.len() > self.taken_bytes {
            self.waiting_since.get_or_insert(now);
        }
        self.note_synchronised();
        &self.outgoing[self.taken_bytes..]
    }

    /// The stream has taken so many of the bytes that [`StreamSession::poll_stream`] last returned.
    pub fn handle_taken(&mut self, taken_bytes: usize) {
        self.taken_bytes = (self.taken_bytes + taken_bytes).min(self.outgoing.len());
        self.standing.sent_datagrams += u64::from(taken_bytes > 0);
        self.standing.sent_bytes += taken_bytes as u64;
        if self.taken_bytes == self.outgoing.len() {
            self.outgoing.clear();
            self.taken_bytes = 0;
            self.waiting_since = None;
        } else if self.taken_bytes >= QUEUE_BYTES_MAX / 2 {
            self.outgoing.drain(..self.taken_bytes);
            self.taken_bytes = 0;
        }
    }

    /// Bytes that the stream has not taken.
    #[must_use]
    pub const fn waiting_bytes(&self) -> usize {
        self.outgoing.len() - self.taken_bytes
    }

    /// Begins a full tell when the stream has taken all that there was before something was left out, or when the queue of
    /// changes overflowed.
    fn recover(&mut self) {
        if self.is_overfull && self.waiting_bytes() == 0 {
            self.is_overfull = false;
            self.telling.open();
            self.telling.begin_walk();
            self.begin_resync();
        } else if self.telling.is_walking() && !self.owes_end {
            self.begin_resync();
        }
    }

    fn write_changes(&mut self, now: Instant, store: &mut impl Store) {
        loop {
            if self.waiting_bytes() + MESSAGE_BYTES_MAX > QUEUE_BYTES_MAX {
                if self.telling.queued() > 0 {
                    self.overflows += self.telling.queued() as u64;
                    self.is_overfull = true;
                    self.owes_end = false;
                    self.standing.told = false;
                    self.telling.close();
                }
                return;
            }
            let mut room = room_for_one(&mut self.outgoing);
            if self.telling.write_change(now, store, &mut room) != Written::Message {
                return;
            }
        }
    }

    fn write_walk(&mut self, now: Instant, store: &mut impl Store) {
        while self.telling.is_walking() && self.waiting_bytes() < WALK_AHEAD_BYTES_MAX {
            let mut room = room_for_one(&mut self.outgoing);
            if self.telling.write_walked(now, store, &mut room) != Written::Message {
                break;
            }
        }
        if !self.telling.is_walking() && self.owes_end {
            let at = begin(&mut self.outgoing, message::RESYNC_END);
            finish(&mut self.outgoing, at);
            self.owes_end = false;
            self.standing.told = true;
        }
    }

    /// Bytes that have come of a message of which the end has not.
    #[must_use]
    pub const fn unread_bytes(&self) -> usize {
        self.incoming.len()
    }

    /// A full tell waits only to be written.
    #[must_use]
    pub const fn has_more_to_tell(&self) -> bool {
        self.telling.is_walking() && self.waiting_bytes() < WALK_AHEAD_BYTES_MAX
    }

    fn note_synchronised(&mut self) {
        if self.standing.becomes_synchronised(self.link) {
            self.events.push(SessionEvent::Synchronised);
        }
    }
}

/// Room for a message, whatever is there already.
const fn room_for_one(out: &mut Vec<u8>) -> Room<'_> {
    let empty_bytes = out.len();
    Room { out, empty_bytes, bytes_max: empty_bytes + MESSAGE_BYTES_MAX }
}

/// The length with padding of the message that `bytes` begin with, once all of it is there.
fn whole_message(bytes: &[u8]) -> Option<Result<usize, StreamError>> {
    let header = bytes.first_chunk::<{ tlv::TLV_HEADER_BYTES }>()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if length < tlv::TLV_HEADER_BYTES {
        return Some(Err(PeerError::Malformed("a message shorter than its header").into()));
    }
    let padded = length.next_multiple_of(4);
    (bytes.len() >= padded).then_some(Ok(padded))
}
