//! What goes out: datagrams, and when the session must be called again.

use alloc::vec::Vec;

use flow::Instant;

use super::{DATAGRAM_BYTES_MIN, Link, Session, Store};
use crate::message::{HEADER_BYTES, Header, flags};

/// In [`Session::pending`]: send something, whatever it is. Not a flag on the wire.
pub(super) const ALIVE: u8 = 0x80;

impl Session {
    /// When [`Session::handle_timeout`] and then [`Session::poll_transmit`] must be called at the latest, if nothing else
    /// happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.link {
            Link::Closed => None,
            Link::Seeking => Some(self.hello_at),
            Link::Open => [
                self.silent_at(),
                self.receiver.ack_timer.due_at(),
                self.sender.recovery.probe_at(),
                self.sender.resume_at(&self.config),
                self.ask_at(),
                Some(self.last_sent + self.config.alive_interval),
                self.comparison_at(),
            ]
            .into_iter()
            .flatten()
            .min(),
        }
    }

    /// When a waiting caller makes a datagram due.
    fn ask_at(&self) -> Option<Instant> {
        let may_ask_at = self.asked_at.map_or(Instant::ZERO, |asked_at| asked_at + self.config.batch_delay);
        self.is_awaited.then_some(may_ask_at)
    }

    pub(super) fn silent_at(&self) -> Option<Instant> {
        let received_at = self.last_received_at.filter(|_| self.link == Link::Open)?;
        Some(received_at + self.config.peer_timeout)
    }

    /// Writes a datagram for the peer to `buf`, replacing what is there; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, store: &mut impl Store, buf: &mut Vec<u8>) -> bool {
        buf.clear();
        buf.resize(HEADER_BYTES, 0);
        let first = self.sender.recovery.next();
        let unresolved = self.sender.in_flight();
        let count = match self.link {
            Link::Seeking => self.fill_seeking(now),
            Link::Open => self.fill_open(now, store, buf),
            Link::Closed => (self.pending != 0).then_some(0),
        };
        let Some(count) = count else {
            buf.clear();
            return false;
        };
        self.finish_datagram(now, (first, unresolved, count), buf);
        true
    }

    /// As [`Session::poll_transmit`], with a datagram of at most `bytes_max`, which are not less than [`DATAGRAM_BYTES_MIN`].
    pub fn poll_transmit_within(
        &mut self,
        now: Instant,
        bytes_max: usize,
        store: &mut impl Store,
        buf: &mut Vec<u8>,
    ) -> bool {
        let configured = self.config.datagram_bytes_max;
        self.config.datagram_bytes_max = configured.min(bytes_max.max(DATAGRAM_BYTES_MIN));
        let is_due = self.poll_transmit(now, store, buf);
        self.config.datagram_bytes_max = configured;
        is_due
    }

    /// Writes the header: the number of the first message, how many before it are unresolved, and how many messages take a number.
    fn finish_datagram(&mut self, now: Instant, (first, unresolved, count): (u32, u16, u16), buf: &mut [u8]) {
        let header = Header {
            flags: self.pending & !ALIVE,
            sender: self.local,
            round: self.sender.wire_round(),
            session: self.session,
            peer_session: self.peer_session.unwrap_or(0),
            first,
            unresolved,
            count,
        };
        self.pending = 0;
        buf[..HEADER_BYTES].copy_from_slice(&header.emit());
        self.last_sent = now;
        self.counters.datagrams_sent += 1;
        self.counters.bytes_sent += buf.len() as u64;
    }

    /// A bare header: Hello when its time has come or the peer must learn of this session, and answers.
    fn fill_seeking(&mut self, now: Instant) -> Option<u16> {
        if self.hello_at <= now {
            self.pending |= flags::HELLO;
            self.hello_at = now + self.hello_interval;
            self.hello_interval = (self.hello_interval * 2).min(self.config.hello_interval_max);
        }
        if self.pending & flags::HELLO_BACK != 0 {
            // The peer does not know yet that its answer to this is awaited.
            self.pending |= flags::HELLO;
        }
        self.pending &= flags::HELLO | flags::HELLO_BACK | flags::OUT_OF_SYNC;
        (self.pending != 0).then_some(0)
    }

    fn fill_open(&mut self, now: Instant, store: &mut impl Store, buf: &mut Vec<u8>) -> Option<u16> {
        self.compare(now, store);
        let ack_due = self.receiver.ack_timer.is_due(now);
        if let Some(ack) = self.receiver.ack(now) {
            ack.emit(buf);
        }
        // Before what takes numbers: digests cover what was sent up to here.
        let has_compared = self.fill_comparison(now, buf);
        let asks = self.ask_at().is_some_and(|at| at <= now);
        let count = self.sender.fill(now, &self.config, store, asks, buf);
        if asks || (self.is_awaited && count > 0) {
            self.pending |= flags::PROBE;
            (self.is_awaited, self.asked_at) = (false, Some(now));
        }
        if self.sender.recovery.takes_probe(now) {
            self.pending |= flags::PROBE;
            self.counters.probes += 1;
        }
        if self.last_sent + self.config.alive_interval <= now {
            self.pending |= ALIVE;
        }
        if count == 0 && !ack_due && !has_compared && self.pending == 0 {
            return None;
        }
        self.receiver.ack_timer.on_ack_sent();
        if self.resync_asked.is_some() {
            self.pending |= flags::RESYNC;
        }
        Some(count)
    }
}
