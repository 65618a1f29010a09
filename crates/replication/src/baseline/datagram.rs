//! Replication over plain UDP, as pfsync does it, or conntrackd in its NOTRACK mode: say it once.

use alloc::vec::Vec;
use core::time::Duration;

use flow::wire::tlv;
use flow::{Instant, NodeId};

use super::status::Standing;
use super::telling::{Room, Telling, Written};
use crate::message::{self, Kind, begin, finish};
use crate::session::{ConfigError, Events, Handle, Link, PeerError, SessionConfig, SessionEvent, SessionStatus, Store};

/// First byte of a datagram: where the native protocol has its magic number and version.
const MAGIC: u8 = 0xfe;
/// Bytes of the header: magic, flags, sender, zero; session u32.
const HEADER_BYTES: usize = 8;

/// Flag: tell me everything.
const HELLO: u8 = 1;
/// Flag: this node leaves of its own will.
const GOODBYE: u8 = 2;

/// Between two parts of a full tell,
const WALK_INTERVAL: Duration = Duration::from_millis(1);
/// each of which has so many datagrams at most: nobody says when it is too fast, so it is slow.
const WALK_DATAGRAMS_PER_INTERVAL: u32 = 8;

/// Replication between this node and one peer, every message sent once.
///
/// It promises that
/// * nothing waits for anything: whatever changed is in the next datagram;
/// * memory is bounded by [`SessionConfig`];
/// * a node that says Hello is told everything, and says Hello until the end of a full tell has come.
///
/// It does not promise that
/// * a change arrives: nobody numbers, acknowledges, or sends anything again, and nobody notices what is missing;
/// * what arrives is newer than what came before;
/// * a copy whose end was lost goes away, until its own time runs out: that a full tell leaves a connection out proves
///   nothing where messages get lost.
pub struct DatagramSession {
    config: SessionConfig,
    local: NodeId,
    peer: NodeId,
    session: u32,
    peer_session: Option<u32>,
    link: Link,
    telling: Telling,
    standing: Standing,
    events: Events,
    hello_at: Instant,
    hello_interval: Duration,
    last_sent: Instant,
    /// The part of the full tell that is due next, and what is left of the present one.
    walk_at: Instant,
    walk_datagrams_left: u32,
    /// The end of a full tell is to be said.
    owes_end: bool,
    says_goodbye: bool,
}

impl DatagramSession {
    /// A session of the node `local` with the node `peer`. `seed` must differ from start to start.
    ///
    /// # Errors
    /// The configuration is not sound.
    pub fn new(config: SessionConfig, local: NodeId, peer: NodeId, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            local,
            peer,
            session: (seed >> 32) as u32 | 1,
            peer_session: None,
            link: Link::Seeking,
            telling: Telling::new(&config),
            standing: Standing::default(),
            events: Events::default(),
            hello_at: Instant::ZERO,
            hello_interval: config.hello_interval_min,
            last_sent: Instant::ZERO,
            walk_at: Instant::ZERO,
            walk_datagrams_left: 0,
            owes_end: false,
            says_goodbye: false,
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

    /// The node leaves: the next datagram says Goodbye, and is the last.
    pub fn close(&mut self) {
        if self.link != Link::Closed {
            self.link = Link::Closed;
            self.says_goodbye = true;
            self.telling.close();
        }
    }

    /// What happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop()
    }

    /// The session's figures.
    #[must_use]
    pub fn status(&self) -> SessionStatus {
        self.standing.status(self.link, (self.session, self.peer_session), &self.telling)
    }

    /// Takes a datagram of the peer. What it says of connections goes to `store`, in whatever order it comes.
    ///
    /// # Errors
    /// What was wrong with the datagram, or the first message that the store did not take. The session goes on.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8], store: &mut impl Store) -> Result<(), PeerError> {
        let (flags, session, body) = self.read_header(datagram).inspect_err(|_| self.standing.bad_datagrams += 1)?;
        self.standing.received_datagrams += 1;
        self.standing.received_bytes += datagram.len() as u64;
        if self.link == Link::Closed {
            return Ok(());
        }
        self.standing.last_heard = Some(now);
        self.note_session(now, session);
        if flags & GOODBYE != 0 {
            self.lose_peer(SessionEvent::PeerLeft);
            return Ok(());
        }
        if flags & HELLO != 0 && !self.telling.is_walking() {
            self.telling.begin_walk();
            self.owes_end = true;
        }
        let result = self.handle_messages(now, body, store);
        self.note_synchronised();
        result
    }

    fn read_header<'a>(&self, datagram: &'a [u8]) -> Result<(u8, u32, &'a [u8]), PeerError> {
        let (header, body) = datagram.split_first_chunk::<HEADER_BYTES>().ok_or(PeerError::Malformed("no header"))?;
        let [magic, flags, sender, _, session @ ..] = *header;
        if magic != MAGIC {
            return Err(PeerError::Malformed("another replication.transport: give both nodes the same"));
        }
        if sender != self.peer.0 {
            return Err(PeerError::WrongSender { sender: NodeId(sender), expected: self.peer });
        }
        Ok((flags, u32::from_be_bytes(session), body))
    }

    fn note_session(&mut self, now: Instant, session: u32) {
        if self.peer_session.replace(session).is_some_and(|former| former != session) {
            self.events.push(SessionEvent::PeerRestarted);
            self.standing.lose_peer();
            self.hello_at = now;
        }
        if self.link == Link::Seeking {
            self.link = Link::Open;
            self.telling.open();
            self.hello_interval = self.config.hello_interval_min;
            self.hello_at = now;
            self.events.push(SessionEvent::PeerUp);
        }
    }

    fn handle_messages(&mut self, now: Instant, body: &[u8], store: &mut impl Store) -> Result<(), PeerError> {
        let mut result = Ok(());
        for message in tlv::read(body) {
            let (message_type, body) = message.map_err(|_| PeerError::Malformed("a message is cut short"))?;
            self.standing.received_messages += 1;
            let applied = match message_type {
                message::NEW => store.apply(now, self.peer, Kind::New, body),
                message::UPDATE => store.apply(now, self.peer, Kind::Update, body),
                message::DELETE => store.delete(now, self.peer, body),
                message::RESYNC_END => {
                    self.standing.heard = true;
                    self.events.push(SessionEvent::ResyncCompleted);
                    Ok(())
                }
                _ => Ok(()),
            };
            self.standing.apply_errors += u64::from(applied.is_err());
            result = result.and(applied.map_err(PeerError::from));
        }
        result
    }

    fn lose_peer(&mut self, event: SessionEvent) {
        if self.link == Link::Open {
            self.link = Link::Seeking;
            self.hello_interval = self.config.hello_interval_min;
            self.telling.close();
            self.owes_end = false;
            self.standing.lose_peer();
            self.events.push(event);
        }
    }

    fn note_synchronised(&mut self) {
        if self.standing.becomes_synchronised(self.link) {
            self.events.push(SessionEvent::Synchronised);
        }
    }

    /// Time has come; see [`DatagramSession::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.silent_at().is_some_and(|at| at <= now) {
            self.lose_peer(SessionEvent::PeerSilent);
            self.hello_at = now;
        }
    }

    /// When [`DatagramSession::handle_timeout`] and then [`DatagramSession::poll_transmit`] must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let hello_at = (!self.standing.heard).then_some(self.hello_at);
        match self.link {
            Link::Closed => None,
            Link::Seeking => Some(self.hello_at),
            Link::Open => {
                let alive_at = self.last_sent + self.config.alive_interval;
                let walk_at = (self.telling.is_walking() || self.owes_end).then_some(self.walk_at);
                [self.silent_at(), hello_at, walk_at, Some(alive_at)].into_iter().flatten().min()
            }
        }
    }

    fn silent_at(&self) -> Option<Instant> {
        let heard = self.standing.last_heard.filter(|_| self.link == Link::Open)?;
        Some(heard + self.config.peer_timeout)
    }

    /// Writes a datagram for the peer to `buf`, replacing what is there; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, store: &mut impl Store, buf: &mut Vec<u8>) -> bool {
        let [s0, s1, s2, s3] = self.session.to_be_bytes();
        buf.clear();
        buf.extend_from_slice(&[MAGIC, 0, self.local.0, 0, s0, s1, s2, s3]);
        let mut flags = 0;
        match self.link {
            Link::Closed if !core::mem::take(&mut self.says_goodbye) => return discard(buf),
            Link::Closed => flags = GOODBYE,
            Link::Seeking | Link::Open => {
                if !self.standing.heard && self.hello_at <= now {
                    flags = HELLO;
                    self.hello_at = now + self.hello_interval;
                    self.hello_interval = (self.hello_interval * 2).min(self.config.hello_interval_max);
                }
            }
        }
        if self.link == Link::Open {
            self.fill(now, store, buf);
        }
        let is_alive_due = self.link == Link::Open && self.last_sent + self.config.alive_interval <= now;
        if buf.len() == HEADER_BYTES && flags == 0 && !is_alive_due {
            return discard(buf);
        }
        buf[1] = flags;
        self.last_sent = now;
        self.standing.sent_datagrams += 1;
        self.standing.sent_bytes += buf.len() as u64;
        self.note_synchronised();
        true
    }

    /// Changes first, then a part of the full tell if one is due.
    fn fill(&mut self, now: Instant, store: &mut impl Store, buf: &mut Vec<u8>) {
        let mut room = Room { out: buf, empty_bytes: HEADER_BYTES, bytes_max: self.config.datagram_bytes_max };
        loop {
            match self.telling.write_change(now, store, &mut room) {
                Written::Message => {}
                Written::NoRoom => return,
                Written::Nothing => break,
            }
        }
        if self.may_walk(now) {
            while self.telling.write_walked(now, store, &mut room) == Written::Message {}
            if !self.telling.is_walking() && self.owes_end {
                let at = begin(room.out, message::RESYNC_END);
                if finish(room.out, at) && room.out.len() <= room.bytes_max {
                    self.owes_end = false;
                    self.standing.told = true;
                } else {
                    room.out.truncate(at);
                }
            }
        }
    }

    fn may_walk(&mut self, now: Instant) -> bool {
        if !self.telling.is_walking() && !self.owes_end {
            return false;
        }
        // A full tell that a full queue has begun has an end, too.
        self.owes_end = true;
        if self.walk_at <= now {
            self.walk_at = now + WALK_INTERVAL;
            self.walk_datagrams_left = WALK_DATAGRAMS_PER_INTERVAL;
        }
        let may = self.walk_datagrams_left > 0;
        self.walk_datagrams_left = self.walk_datagrams_left.saturating_sub(1);
        may
    }
}

fn discard(buf: &mut Vec<u8>) -> bool {
    buf.clear();
    false
}
