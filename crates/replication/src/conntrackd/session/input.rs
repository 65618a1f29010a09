//! What comes in: the peer's datagrams, and time.

use flow::Instant;

use super::FtfwSession;
use super::link::{Action, Input, Link};
use super::receiver::Verdict;
use crate::conntrackd::message::{self, Kind, Message, MessageError, flags};
use crate::conntrackd::object::{decode, decode_expectation};
use crate::conntrackd::{FtfwError, FtfwEvent, Table};

impl FtfwSession {
    /// Takes a datagram of the peer. Its connections go to `table`.
    ///
    /// # Errors
    /// The first thing that was wrong. The session goes on in every case; nothing needs to be done but to count or log it.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8], table: &mut impl Table) -> Result<(), FtfwError> {
        self.counters.datagrams_received += 1;
        self.counters.bytes_received += datagram.len() as u64;
        let mut result = Ok(());
        for message in message::read(datagram) {
            if self.link == Link::Closed {
                break;
            }
            let handled = match message {
                Ok(message) => self.handle_message(now, &message, table),
                Err(error) => self.refuse(error),
            };
            result = result.and(handled);
        }
        self.note_sent_all();
        result
    }

    fn refuse(&mut self, error: MessageError) -> Result<(), FtfwError> {
        self.counters.bad_datagrams += 1;
        match error {
            MessageError::Length => Err(FtfwError::Malformed("a message's length does not fit")),
            MessageError::Version(theirs) => {
                let is_new = self.other_version.replace(theirs) != Some(theirs);
                if is_new { Err(FtfwError::Incompatible { theirs }) } else { Ok(()) }
            }
        }
    }

    fn handle_message(&mut self, now: Instant, message: &Message<'_>, table: &mut impl Table) -> Result<(), FtfwError> {
        self.other_version = None;
        let is_hello = message.has(flags::HELLO);
        match self.receiver.observe(now, message.number, is_hello, &mut self.sender) {
            // No keep-alive either: numbers that stay behind are those of a process that began anew and has received nothing.
            Verdict::Late => return Ok(()),
            Verdict::Use => {}
            Verdict::Restarted => {
                self.events.push(FtfwEvent::PeerRestarted);
                self.sender.suspend();
                self.change_link(Input::Restarted);
            }
            Verdict::PerhapsRestarted => {
                self.sender.replicate_all();
                self.sender.ask_for_everything();
            }
            Verdict::Renumbered => self.sender.ask_for_everything(),
        }
        self.last_received_at = Some(now);
        self.hello_back_pending |= is_hello;
        if message.has(flags::HELLO_BACK) {
            self.change_link(Input::HelloBack);
        }
        if message.kind == Kind::Control as u8 {
            return self.handle_control(now, message);
        }
        self.receiver.want_acknowledgement(now, &self.config);
        self.handle_object(now, message, table)
    }

    fn handle_control(&mut self, now: Instant, message: &Message<'_>) -> Result<(), FtfwError> {
        self.counters.control_received += 1;
        if !message.has(flags::ACK | flags::NACK | flags::RESYNC) {
            return Ok(());
        }
        if message.has(flags::NACK | flags::RESYNC) {
            self.receiver.want_acknowledgement(now, &self.config);
        } else {
            self.receiver.note_acknowledgement();
        }
        if message.has(flags::RESYNC) {
            self.sender.replicate_all();
            self.events.push(FtfwEvent::ResyncRequested);
            return Ok(());
        }
        let Some(range) = message.range() else {
            self.counters.bad_messages += 1;
            return Err(FtfwError::Malformed("an acknowledgement without its numbers"));
        };
        let is_known = if message.has(flags::ACK) {
            self.sender.acknowledged(now, range)
        } else {
            self.sender.missing(now, range)
        };
        is_known.map_err(|_| FtfwError::NeverSent)
    }

    fn handle_object(&mut self, now: Instant, message: &Message<'_>, table: &mut impl Table) -> Result<(), FtfwError> {
        // Of a type that a later release may have, nothing can be said but that it came.
        let Some(kind) = Kind::from_number(message.kind) else {
            self.counters.bad_messages += 1;
            return Ok(());
        };
        let peer = self.peer;
        let applied = match kind {
            Kind::New | Kind::Update => decode(message.body).map(|entry| table.apply(now, peer, &entry)),
            Kind::Delete => decode(message.body).map(|entry| table.remove(now, peer, &entry)),
            Kind::ExpectationNew | Kind::ExpectationUpdate => {
                decode_expectation(message.body).map(|expectation| table.apply_expectation(now, peer, &expectation))
            }
            Kind::ExpectationDelete => {
                decode_expectation(message.body).map(|expectation| table.remove_expectation(now, peer, &expectation))
            }
            Kind::Control => return Ok(()),
        };
        let applied = applied.map_err(|error| {
            self.counters.bad_messages += 1;
            FtfwError::Object { kind: message.kind, error }
        })?;
        self.counters.messages_received += 1;
        applied.map_err(|error| {
            self.counters.apply_errors += 1;
            error.into()
        })
    }

    /// Time has come; see [`FtfwSession::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.silent_at().is_some_and(|at| at <= now) {
            self.last_received_at = None;
            self.receiver.forget();
            self.hello_at = now;
            self.hello_interval = self.config.hello_interval_min;
            if self.link == Link::Open {
                self.events.push(FtfwEvent::PeerSilent);
            }
            self.change_link(Input::Silence);
        }
    }

    pub(super) fn change_link(&mut self, input: Input) {
        let (link, action) = self.link.next(input);
        let was_open = self.link == Link::Open;
        self.link = link;
        match action {
            Action::Nothing => {}
            Action::Exchange => {
                self.had_sent_all = false;
                self.sender.open();
                if !was_open {
                    self.events.push(FtfwEvent::PeerUp);
                }
            }
            Action::Suspend => self.sender.suspend(),
        }
    }

    fn note_sent_all(&mut self) {
        let is_acknowledged = self.sender.is_full_sync_acknowledged();
        if is_acknowledged && !self.had_sent_all {
            self.events.push(FtfwEvent::SentAll);
        }
        // From one walk to the next; that changes wait is no news.
        self.had_sent_all = is_acknowledged || (self.had_sent_all && self.sender.is_full_sync_done());
    }
}
