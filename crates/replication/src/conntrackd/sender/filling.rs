//! Filling datagrams, and what time brings.

use alloc::vec::Vec;

use flow::Instant;

use super::log::Sent;
use super::outbox::Filled;
use super::{FullSync, Limits, Sender};
use crate::conntrackd::message::{RANGE_BYTES, Range, flags, put_alive, put_range};
use crate::conntrackd::{FtfwConfig, Table};
use crate::session::Handle;

/// Changes that fill so many datagrams wait for no more company.
const BATCH_DATAGRAMS: usize = 8;
/// What a message about a connection takes, roughly, in bytes.
const MESSAGE_BYTES: usize = 92;
/// Numbers in flight for each message about an object that may be: the rest are control messages.
const LOG_PER_WINDOW: usize = 2;

/// Filling datagrams.
impl Sender {
    /// Appends what waits: control messages, then, if the peer receives, connections and expectations.
    pub(in crate::conntrackd) fn fill(
        &mut self,
        now: Instant,
        config: &FtfwConfig,
        table: &mut impl Table,
        out: &mut Vec<u8>,
    ) {
        self.give_up_old(now, config);
        let awaited = self.log.awaited();
        if self.ask_at(config).is_some_and(|at| at <= now) {
            // What follows shows the peer that this number is missing, and it acknowledges what it has.
            self.log.push(now, Sent::Nothing);
            self.unanswered_since = Some(now);
            self.counters.asks += 1;
            self.put_alive(now, 0, out);
        }
        while let Some(control) = self.controls.front().filter(|_| out.len() + RANGE_BYTES <= config.datagram_bytes_max)
        {
            self.controls.pop();
            let (flag, range) = match control {
                Sent::Ack(range) => (flags::ACK, range),
                Sent::Nack(range) => (flags::NACK, range),
                _ => (flags::RESYNC, Range { from: 0, to: 0 }),
            };
            put_range(out, flag, self.log.next(), range);
            self.log.push(now, control);
            self.counters.control += 1;
        }
        if self.is_open && !self.waits_for_company(now, config) {
            self.fill_objects(now, config, table, out);
            if self.queued() == 0 {
                self.waiting_since = None;
            }
        }
        if self.log.awaited() > awaited {
            self.tail = Some((now, 0));
            self.unanswered_since = self.unanswered_since.or(Some(now));
        }
    }

    fn fill_objects(&mut self, now: Instant, config: &FtfwConfig, table: &mut impl Table, out: &mut Vec<u8>) {
        let limits = Limits { config, window: config.in_flight_messages_max };
        let Self { connections, expectations, log, counters, full_sync, .. } = self;
        // Expectations need their masters to be there.
        if connections.fill_endings(now, &limits, (log, counters), table, out) == Filled::Full
            || connections.fill_changes(now, &limits, (log, counters), table, out) == Filled::Full
            || expectations.fill_endings(now, &limits, (log, counters), table, out) == Filled::Full
            || expectations.fill_changes(now, &limits, (log, counters), table, out) == Filled::Full
        {
            return;
        }
        let limits = Limits { config, window: config.resync_in_flight_messages_max };
        if let FullSync::Connections(cursor) = full_sync {
            if connections.fill_full_sync(now, &limits, (log, counters), table, cursor, out) == Filled::Full {
                return;
            }
            *full_sync = FullSync::Expectations(Handle(0));
        }
        if let FullSync::Expectations(cursor) = full_sync {
            if expectations.fill_full_sync(now, &limits, (log, counters), table, cursor, out) == Filled::Full {
                return;
            }
            *full_sync = FullSync::Done;
            self.has_sent_all = true;
        }
        if core::mem::take(&mut self.full_sync_pending) {
            self.replicate_all();
        }
    }

    /// Whether the queue is to wait for more changes to share a datagram with.
    fn waits_for_company(&mut self, now: Instant, config: &FtfwConfig) -> bool {
        if self.queued() == 0 {
            return false;
        }
        let since = *self.waiting_since.get_or_insert(now);
        let is_much = self.queued() * MESSAGE_BYTES >= BATCH_DATAGRAMS * config.datagram_bytes_max;
        now < since + config.batch_delay && !is_much && self.full_sync == FullSync::Done
    }

    /// Appends a keep-alive, whose loss does not matter.
    pub(in crate::conntrackd) fn put_alive(&mut self, now: Instant, flags: u8, out: &mut Vec<u8>) {
        put_alive(out, flags, self.log.next());
        self.log.push(now, Sent::Nothing);
        self.counters.control += 1;
    }
}

/// What time brings.
impl Sender {
    /// What was asked after without an answer is sent again; and the log is kept short.
    fn give_up_old(&mut self, now: Instant, config: &FtfwConfig) {
        let log_max = LOG_PER_WINDOW * usize::from(config.in_flight_messages_max);
        let surplus = self.log.len().saturating_sub(log_max) as u32;
        let mut old = surplus;
        if self.resend_at(config).is_some_and(|at| at <= now) {
            let age_nanos = u64::try_from(config.resend_timeout.as_nanos()).unwrap_or(u64::MAX);
            old = old.max(self.log.sent_by(Instant::from_nanos(now.as_nanos().saturating_sub(age_nanos))));
        }
        for offset in 0..old {
            let before = self.counters.lost;
            match self.log.get(offset) {
                // It will have arrived: else the peer would have asked for it.
                Sent::Ack(_) => drop(self.log.take(offset)),
                // A peer that does not answer is not asked for ever more.
                Sent::Nack(_) | Sent::Resync if offset < surplus => {
                    self.log.take(offset);
                    self.resync_pending = true;
                }
                _ => self.lost(offset),
            }
            self.counters.timed_out += self.counters.lost - before;
        }
        if old > 0 {
            self.trim();
        }
    }

    fn resend_at(&self, config: &FtfwConfig) -> Option<Instant> {
        self.log.oldest_at().filter(|_| self.log.awaited() > 0).map(|at| at + config.resend_timeout)
    }

    /// When the peer is to be asked what it has.
    fn ask_at(&self, config: &FtfwConfig) -> Option<Instant> {
        let since = self.unanswered_since?;
        let is_stuck = (self.queued() > 0 && !self.has_room(config))
            || (self.is_full_sync_running() && !self.has_full_sync_room(config));
        Some(since + if is_stuck { config.ask_timeout_window_full } else { config.ask_timeout })
    }

    const fn is_full_sync_running(&self) -> bool {
        self.is_open && (!matches!(self.full_sync, FullSync::Done) || self.full_sync_pending)
    }

    fn has_room(&self, config: &FtfwConfig) -> bool {
        self.log.objects() < usize::from(config.in_flight_messages_max)
    }

    fn has_full_sync_room(&self, config: &FtfwConfig) -> bool {
        self.log.objects() < usize::from(config.resync_in_flight_messages_max)
    }

    /// When the next keep-alive is to follow what was sent last.
    fn probe_at(&self, config: &FtfwConfig) -> Option<Instant> {
        let (at, probes) = self.tail.filter(|(_, probes)| *probes < config.tail_probes_max)?;
        Some(at + config.tail_probe_delay.saturating_mul(4_u32.saturating_pow(probes.into())))
    }

    /// Whether a keep-alive is to follow now; counts it.
    pub(in crate::conntrackd) fn takes_probe(&mut self, now: Instant, config: &FtfwConfig) -> bool {
        let is_due = self.probe_at(config).is_some_and(|at| at <= now);
        if let Some((at, probes)) = self.tail.as_mut().filter(|_| is_due) {
            (*at, *probes) = (now, *probes + 1);
        }
        is_due
    }

    /// When [`Sender::fill`] or [`Sender::takes_probe`] has something to do.
    pub(in crate::conntrackd) fn poll_timeout(&self, config: &FtfwConfig) -> Option<Instant> {
        let now = Some(Instant::ZERO);
        let is_queue_ready = self.is_open && self.queued() > 0 && self.has_room(config);
        let sends_queue_at = self.waiting_since.map_or(Instant::ZERO, |since| since + config.batch_delay);
        [
            now.filter(|_| !self.controls.is_empty()),
            now.filter(|_| self.is_full_sync_running() && self.has_full_sync_room(config)),
            Some(sends_queue_at).filter(|_| is_queue_ready),
            self.probe_at(config),
            self.ask_at(config),
            self.resend_at(config),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
