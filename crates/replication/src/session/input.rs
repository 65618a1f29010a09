//! What comes in: the peer's datagrams, and time.

use flow::Instant;
use flow::wire::tlv;

use super::link::{Action, Input, Link};
use super::output::ALIVE;
use super::receiver::PeerRound;
use super::status::{PeerError, SessionEvent};
use super::{Retired, Session, Store};
use crate::message::{self, AckView, Header, HeaderError, Kind, flags};

/// What the header states about the two sessions.
enum Recognition {
    /// The peer's session, and it knows this one: the datagram is read.
    Mutual,
    /// Nothing more is to be done with the datagram.
    Dealt,
}

impl Session {
    /// Takes a datagram of the peer. Its connections go to `store`.
    ///
    /// # Errors
    /// What was wrong with the datagram, or the first message that the store did not take. The session goes on in every
    /// case; nothing needs to be done but to count or log it.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8], store: &mut impl Store) -> Result<(), PeerError> {
        let Some((header, body)) = self.check_header(datagram)? else { return Ok(()) };
        self.counters.datagrams_received += 1;
        self.counters.bytes_received += datagram.len() as u64;
        if self.link == Link::Closed {
            return Ok(());
        }
        if let Recognition::Dealt = self.recognise(now, &header) {
            return Ok(());
        }
        self.last_received_at = Some(now);
        if header.has(flags::GOODBYE) {
            self.leave_peer(now, header.session);
            return Ok(());
        }
        if header.has(flags::OUT_OF_SYNC) {
            self.renew();
            return Ok(());
        }
        if self.change_link(Input::Recognised) == Action::Synchronise {
            self.has_been_open = true;
            self.pending |= ALIVE;
            self.events.push(SessionEvent::PeerUp);
        }
        self.handle_flags(now, &header);
        if self.receiver.observe(now, header.first, header.base()).is_err() {
            self.pending |= flags::OUT_OF_SYNC;
            return Err(PeerError::OutOfSync);
        }
        let result = self.handle_messages(now, &header, body, store);
        self.note_synchronised(now);
        result
    }

    fn check_header<'a>(&mut self, datagram: &'a [u8]) -> Result<Option<(Header, &'a [u8])>, PeerError> {
        let error = match Header::parse(datagram) {
            Ok((header, body)) if header.sender == self.peer => {
                self.other_version = None;
                return Ok(Some((header, body)));
            }
            Ok((header, _)) => Some(PeerError::WrongSender { sender: header.sender, expected: self.peer }),
            Err(HeaderError::NotOurs) => Some(PeerError::Malformed("no header of this protocol")),
            Err(HeaderError::Version { theirs }) => {
                let is_new = self.other_version.replace(theirs) != Some(theirs);
                is_new.then_some(PeerError::incompatible(theirs))
            }
        };
        self.counters.bad_datagrams += 1;
        error.map_or(Ok(None), Err)
    }

    /// A datagram that names this session, or is a Hello, makes its sender's session the peer's; any header states where the
    /// peer's numbering is.
    fn recognise(&mut self, now: Instant, header: &Header) -> Recognition {
        let hello = header.has(flags::HELLO);
        if self.peer_session != Some(header.session) {
            if self.retired.iter().any(|retired| retired.session == header.session && now < retired.until) {
                self.counters.stale_datagrams += 1;
                return Recognition::Dealt;
            }
            if hello || header.peer_session == self.session {
                self.adopt(now, header);
            }
        }
        if header.peer_session == self.session {
            return Recognition::Mutual;
        }
        if hello {
            self.pending |= flags::HELLO_BACK;
        } else {
            // The datagram is for a session of this node that is over: the peer must learn of the new one.
            self.counters.stale_datagrams += 1;
            self.pending |= flags::HELLO;
        }
        Recognition::Dealt
    }

    /// Which of the peer's two sessions is the younger cannot be seen: a late datagram may have brought the older one back. So
    /// this node renews its session as well if it has exchanged datagrams with the former one. Should that one live, it learns
    /// from this that it was forgotten, and synchronises fully. Nothing that was sent to the session before counts here.
    fn adopt(&mut self, now: Instant, header: &Header) {
        if let Some(former) = self.peer_session.replace(header.session) {
            self.retire(now, former);
            self.change_link(Input::PeerRenewed);
            self.events.push(SessionEvent::PeerRestarted);
            if self.has_been_open {
                self.number_anew();
            }
        }
        self.receiver.reset(header.base());
        self.resync_asked = None;
    }

    fn retire(&mut self, now: Instant, session: u32) {
        self.retired.retain(|retired| now < retired.until && retired.session != session);
        if self.retired.is_full() {
            self.retired.remove(0);
        }
        self.retired.push(Retired { session, until: now + self.config.peer_timeout });
    }

    fn leave_peer(&mut self, now: Instant, session: u32) {
        self.change_link(Input::Goodbye);
        self.retire(now, session);
        self.peer_session = None;
        self.hello_interval = self.config.hello_interval_max;
        self.hello_at = now + self.hello_interval;
        self.events.push(SessionEvent::PeerLeft);
    }

    fn handle_flags(&mut self, now: Instant, header: &Header) {
        if header.has(flags::HELLO) {
            self.pending |= flags::HELLO_BACK;
        }
        if header.has(flags::PROBE) {
            self.receiver.ack_timer.set_due(now);
        }
        if header.has(flags::RESYNC) {
            self.sender.resync_requested();
        }
    }

    fn handle_messages(
        &mut self,
        now: Instant,
        header: &Header,
        body: &[u8],
        store: &mut impl Store,
    ) -> Result<(), PeerError> {
        let mut result = Ok(());
        let mut count: u16 = 0;
        for message in tlv::read(body) {
            let (message_type, body) = message.map_err(|_| PeerError::Malformed("a message is cut short"))?;
            if message_type == message::ACK {
                self.handle_ack(now, body)?;
            }
            if message_type >= message::UNNUMBERED {
                self.handle_comparison(now, header, message_type, body, store);
                continue;
            }
            if count == header.count {
                return Err(PeerError::Malformed("more messages than the header states"));
            }
            let number = header.first.wrapping_add(count.into());
            count += 1;
            if self.receiver.accept(now, number, &self.config) {
                self.counters.messages_received += 1;
                self.note_round(now, header.round, store);
                let applied = self.handle_message(now, header, message_type, body, store);
                result = result.and(applied);
            }
        }
        result
    }

    fn handle_ack(&mut self, now: Instant, body: &[u8]) -> Result<(), PeerError> {
        let ack = AckView::parse(body).ok_or(PeerError::Malformed("an acknowledgement has a wrong size"))?;
        self.sender.acknowledged(now, &ack).map_err(|_| {
            self.renew();
            PeerError::AcknowledgesUnsent
        })
    }

    /// The first message of a new round comes before any connection of the round.
    fn note_round(&mut self, now: Instant, round: u8, store: &mut impl Store) {
        let is_known = match self.receiver.round {
            PeerRound::None => round == 0,
            PeerRound::Started(known) | PeerRound::Completed(known) => known == round,
        };
        if !is_known {
            self.receiver.round = PeerRound::Started(round);
            self.resync_asked = None;
            self.was_synchronised = false;
            store.resync_started(now, self.peer);
            self.events.push(SessionEvent::ResyncStarted);
        }
    }

    fn handle_message(
        &mut self,
        now: Instant,
        header: &Header,
        message_type: u16,
        body: &[u8],
        store: &mut impl Store,
    ) -> Result<(), PeerError> {
        let applied = match message_type {
            message::NEW => store.apply(now, self.peer, Kind::New, body),
            message::UPDATE => store.apply(now, self.peer, Kind::Update, body),
            message::DELETE => store.delete(now, self.peer, body),
            message::RESYNC_END if self.receiver.round == PeerRound::Started(header.round) => {
                self.receiver.round = PeerRound::Completed(header.round);
                store.resync_completed(now, self.peer);
                self.events.push(SessionEvent::ResyncCompleted);
                Ok(())
            }
            // A later version's message: of no meaning here, but it counts.
            _ => Ok(()),
        };
        if applied.is_err() {
            self.counters.apply_errors += 1;
        }
        Ok(applied?)
    }

    /// Time has come; see [`Session::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.silent_at().is_some_and(|at| at <= now) {
            self.change_link(Input::Silence);
            self.hello_at = now;
            self.events.push(SessionEvent::PeerSilent);
        }
    }
}
