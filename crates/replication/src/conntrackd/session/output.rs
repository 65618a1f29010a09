//! What goes out: datagrams, and when the session must be called again.

use alloc::vec::Vec;

use flow::Instant;

use super::{FtfwSession, Link};
use crate::conntrackd::Table;
use crate::conntrackd::message::flags;

impl FtfwSession {
    /// When [`FtfwSession::handle_timeout`] and then [`FtfwSession::poll_transmit`] must be called at the latest, if nothing else
    /// happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.link == Link::Closed {
            return None;
        }
        [
            Some(self.hello_at).filter(|_| self.link == Link::Seeking),
            Some(Instant::ZERO).filter(|_| self.hello_back_pending),
            self.last_sent.map(|at| at + self.config.alive_interval).filter(|_| self.link == Link::Open),
            self.receiver.ack_timer.due_at(),
            self.silent_at(),
            self.sender.poll_timeout(&self.config),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(super) fn silent_at(&self) -> Option<Instant> {
        self.last_received_at.map(|at| at + self.config.peer_timeout)
    }

    /// Writes a datagram for the peer to `buf`, replacing what is there; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, table: &mut impl Table, buf: &mut Vec<u8>) -> bool {
        buf.clear();
        if self.link == Link::Closed {
            return false;
        }
        if self.receiver.ack_timer.is_due(now) {
            self.receiver.acknowledge(&mut self.sender);
        }
        let is_due = self.link == Link::Open && self.last_sent.is_none_or(|at| at + self.config.alive_interval <= now);
        if is_due {
            self.receiver.acknowledge_in_passing(&mut self.sender);
        }
        self.sender.fill(now, &self.config, table, buf);
        let probes = buf.is_empty() && self.sender.takes_probe(now, &self.config);
        let sends_hello = self.link == Link::Seeking && self.hello_at <= now;
        if buf.is_empty() && (probes || sends_hello || is_due || self.hello_back_pending) {
            self.sender.put_alive(now, 0, buf);
        }
        let Some(first_flags) = buf.get_mut(1) else { return false };
        if self.link == Link::Seeking {
            // As conntrackd: whatever is sent until the answer is there.
            *first_flags |= flags::HELLO;
            self.hello_at = now + self.hello_interval;
            self.hello_interval = (self.hello_interval * 2).min(self.config.alive_interval);
        }
        if core::mem::take(&mut self.hello_back_pending) {
            *first_flags |= flags::HELLO_BACK;
        }
        self.last_sent = Some(now);
        self.counters.datagrams_sent += 1;
        self.counters.bytes_sent += buf.len() as u64;
        true
    }
}
