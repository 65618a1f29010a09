//! The sending half: what is to be told, what was told, and what became of it.

mod control;
mod endings;
mod log;
mod marks;
mod object;
mod outbox;

use alloc::vec::Vec;

use flow::Instant;
use flow::netfilter::{Entry, Expectation};

use self::control::Controls;
use self::log::{Log, Sent};
use self::outbox::{Filled, Outbox};
use super::message::{RANGE_BYTES, Range, flags, put_alive, put_range};
use super::{FtfwConfig, Table};
use crate::session::Handle;

/// Changes that fill so many datagrams wait for no more company.
const BATCH_DATAGRAMS: usize = 8;
/// What a message about a connection takes, roughly, in bytes.
const MESSAGE_BYTES: usize = 92;
/// Numbers in flight for each message about an object that may be: the rest are control messages.
const LOG_PER_WINDOW: usize = 2;

/// What may be in flight.
struct Limits<'a> {
    config: &'a FtfwConfig,
    window: u16,
}

impl Limits<'_> {
    fn allows(&self, log: &Log) -> bool {
        log.objects() < usize::from(self.window)
    }
}

/// How far everything was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walk {
    /// To the end.
    Done,
    Connections(Handle),
    Expectations(Handle),
}

/// The peer speaks of what was never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NeverSent;

/// Counters since the session was made.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SenderCounters {
    pub(super) messages: u64,
    pub(super) control: u64,
    pub(super) lost: u64,
    pub(super) resent: u64,
    pub(super) timed_out: u64,
    pub(super) left_out: u64,
    pub(super) inexpressible: u64,
    pub(super) rounds: u64,
    pub(super) asks: u64,
}

/// What is to be told, what was told, and what became of it.
pub(super) struct Sender {
    connections: Outbox<Entry>,
    expectations: Outbox<Expectation>,
    controls: Controls,
    log: Log,
    walk: Walk,
    /// Everything is to be told once more after that.
    walks_again: bool,
    is_open: bool,
    /// Everything was told once: what else the peer has of this node's, an earlier process of it told.
    has_told_all: bool,
    /// The peer is to be asked for everything once it says anything: questions before it were given up.
    owes_resync: bool,
    /// When `fill` first saw changes that still wait for company.
    waiting_since: Option<Instant>,
    /// When something was sent last that would be missed, and how many signs of life went after it.
    tail: Option<(Instant, u8)>,
    /// Since when nothing was heard of what is in flight, or it was asked after last.
    unheard_since: Option<Instant>,
    /// The peer has acknowledged that it was asked for everything.
    pub(super) is_resync_acknowledged: bool,
    pub(super) counters: SenderCounters,
}

impl Sender {
    pub(super) fn new(config: &FtfwConfig, first: u32) -> Self {
        Self {
            connections: Outbox::new(config.connections_max, config.deletions_max),
            expectations: Outbox::new(config.expectations_max, config.deletions_max),
            controls: Controls::default(),
            log: Log::new(first),
            walk: Walk::Done,
            walks_again: false,
            is_open: false,
            has_told_all: false,
            owes_resync: false,
            waiting_since: None,
            tail: None,
            unheard_since: None,
            is_resync_acknowledged: false,
            counters: SenderCounters::default(),
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.connections.queued() + self.expectations.queued()
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.log.objects()
    }

    /// When the oldest message was sent that is not acknowledged, or changes were found waiting.
    pub(super) fn oldest_unacknowledged_at(&self) -> Option<Instant> {
        self.log.oldest_at().filter(|_| self.log.objects() > 0).or(self.waiting_since)
    }

    /// Whether all that there was has been sent.
    pub(super) fn is_walk_done(&self) -> bool {
        self.is_open && self.walk == Walk::Done && !self.walks_again
    }

    /// Whether the peer has acknowledged all that there was.
    pub(super) fn is_told(&self) -> bool {
        self.is_walk_done() && self.queued() == 0 && self.log.objects() == 0
    }

    pub(super) fn mark_changed(&mut self, handle: Handle) {
        if self.is_open {
            self.connections.marks.want(handle);
        }
    }

    pub(super) fn mark_deleted(&mut self, handle: Handle, entry: &Entry, is_told_anyway: bool) {
        if self.connections.marks.forget(handle) || is_told_anyway || !self.has_told_all {
            self.counters.left_out += u64::from(!self.connections.endings.push(entry.clone()));
        }
    }

    pub(super) fn forget(&mut self, handle: Handle) {
        self.connections.marks.forget(handle);
    }

    pub(super) fn is_connection_told(&self, handle: Handle) -> bool {
        self.connections.marks.is_told(handle)
    }

    pub(super) fn mark_expectation_changed(&mut self, handle: Handle) {
        if self.is_open {
            self.expectations.marks.want(handle);
        }
    }

    pub(super) fn mark_expectation_deleted(&mut self, handle: Handle, expectation: &Expectation) {
        if self.expectations.marks.forget(handle) || !self.has_told_all {
            self.counters.left_out += u64::from(!self.expectations.endings.push(expectation.clone()));
        }
    }

    pub(super) fn forget_expectation(&mut self, handle: Handle) {
        self.expectations.marks.forget(handle);
    }

    /// Everything is to be told.
    pub(super) const fn tell_everything(&mut self) {
        if !self.is_open {
            return;
        }
        match self.walk {
            Walk::Done => {
                self.walk = Walk::Connections(Handle(0));
                self.counters.rounds += 1;
            }
            // A peer that asks again and again is told to the end all the same.
            Walk::Connections(_) | Walk::Expectations(_) => self.walks_again = true,
        }
    }

    /// The peer hears: it is told everything, and asked for everything.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        (self.walk, self.walks_again) = (Walk::Connections(Handle(0)), false);
        self.counters.rounds += 1;
        self.ask_for_everything();
    }

    pub(super) fn ask_for_everything(&mut self) {
        self.is_resync_acknowledged = false;
        self.controls.push(Sent::Resync);
    }

    /// The peer has forgotten whatever it was told or asked.
    pub(super) fn peer_forgot(&mut self) {
        self.log.drain(drop);
        self.controls.clear();
        self.connections.marks.clear();
        self.connections.endings.clear();
        self.expectations.marks.clear();
        self.expectations.endings.clear();
        self.rest();
    }

    /// The peer is away. What ended is kept, as the peer may still have it when it is there again; it is told the rest anew.
    pub(super) fn suspend(&mut self) {
        let Self { log, connections, expectations, .. } = self;
        log.drain(|sent| match sent {
            Sent::ConnectionEnd(id) => connections.endings.requeue(id),
            Sent::ExpectationEnd(id) => expectations.endings.requeue(id),
            _ => {}
        });
        self.controls.clear();
        self.connections.marks.suspend();
        self.expectations.marks.suspend();
        self.is_open = false;
        self.rest();
    }

    fn rest(&mut self) {
        (self.walk, self.walks_again, self.owes_resync) = (Walk::Done, false, false);
        (self.waiting_since, self.tail, self.unheard_since) = (None, None, None);
    }
}

/// What the peer says of this node's messages.
impl Sender {
    pub(super) fn acknowledged(&mut self, now: Instant, range: Range) -> Result<(), NeverSent> {
        for offset in self.log.in_flight(range).ok_or(NeverSent)? {
            match self.log.take(offset) {
                (Sent::Connection(handle), number) => self.connections.marks.received(handle, number),
                (Sent::Expectation(handle), number) => self.expectations.marks.received(handle, number),
                (Sent::ConnectionEnd(id), _) => self.connections.endings.release(id),
                (Sent::ExpectationEnd(id), _) => self.expectations.endings.release(id),
                (Sent::Resync, _) => self.is_resync_acknowledged = true,
                (Sent::Nothing | Sent::Ack(_) | Sent::Nack(_), _) => {}
            }
        }
        self.trim();
        if core::mem::take(&mut self.owes_resync) {
            self.ask_for_everything();
        }
        self.unheard_since = Some(now).filter(|_| self.log.awaited() > 0);
        Ok(())
    }

    /// The peer asks for what it did not receive.
    pub(super) fn missing(&mut self, now: Instant, range: Range) -> Result<(), NeverSent> {
        for offset in self.log.in_flight(range).ok_or(NeverSent)? {
            self.lost(offset);
        }
        self.trim();
        if core::mem::take(&mut self.owes_resync) {
            self.ask_for_everything();
        }
        self.unheard_since = Some(now).filter(|_| self.log.awaited() > 0);
        Ok(())
    }

    /// Queues what a message said again, as far as it is still worth saying.
    fn lost(&mut self, offset: u32) {
        let (sent, number) = self.log.take(offset);
        let is_resent = match sent {
            Sent::Nothing => return,
            Sent::Connection(handle) => self.connections.marks.lost(handle, number),
            Sent::Expectation(handle) => self.expectations.marks.lost(handle, number),
            Sent::ConnectionEnd(id) => {
                self.connections.endings.requeue(id);
                true
            }
            Sent::ExpectationEnd(id) => {
                self.expectations.endings.requeue(id);
                true
            }
            control @ (Sent::Ack(_) | Sent::Nack(_) | Sent::Resync) => {
                self.controls.push(control);
                true
            }
        };
        self.counters.lost += 1;
        self.counters.resent += u64::from(is_resent);
    }

    fn trim(&mut self) {
        self.log.trim();
        if self.log.awaited() == 0 {
            (self.tail, self.unheard_since) = (None, None);
        }
    }

    /// What the receiving half has to say to the peer.
    pub(super) fn acknowledge(&mut self, range: Range) {
        self.controls.push(Sent::Ack(range));
    }

    /// As [`Sender::acknowledge`].
    pub(super) fn ask_for(&mut self, range: Range) {
        self.controls.push(Sent::Nack(range));
    }
}

/// Filling datagrams.
impl Sender {
    /// Appends what waits: control messages, then, if the peer hears, connections and expectations.
    pub(super) fn fill(&mut self, now: Instant, config: &FtfwConfig, table: &mut impl Table, out: &mut Vec<u8>) {
        self.give_up_old(now, config);
        let awaited = self.log.awaited();
        if self.ask_at(config).is_some_and(|at| at <= now) {
            // What follows shows the peer that this number is missing, and it says what it has.
            self.log.push(now, Sent::Nothing);
            self.unheard_since = Some(now);
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
            self.unheard_since = self.unheard_since.or(Some(now));
        }
    }

    fn fill_objects(&mut self, now: Instant, config: &FtfwConfig, table: &mut impl Table, out: &mut Vec<u8>) {
        let limits = Limits { config, window: config.in_flight_messages_max };
        let Self { connections, expectations, log, counters, walk, .. } = self;
        // Expectations need their masters to be there.
        if connections.fill_endings(now, &limits, (log, counters), table, out) == Filled::Full
            || connections.fill_changes(now, &limits, (log, counters), table, out) == Filled::Full
            || expectations.fill_endings(now, &limits, (log, counters), table, out) == Filled::Full
            || expectations.fill_changes(now, &limits, (log, counters), table, out) == Filled::Full
        {
            return;
        }
        let limits = Limits { config, window: config.resync_in_flight_messages_max };
        if let Walk::Connections(cursor) = walk {
            if connections.fill_walk(now, &limits, (log, counters), table, cursor, out) == Filled::Full {
                return;
            }
            *walk = Walk::Expectations(Handle(0));
        }
        if let Walk::Expectations(cursor) = walk {
            if expectations.fill_walk(now, &limits, (log, counters), table, cursor, out) == Filled::Full {
                return;
            }
            *walk = Walk::Done;
            self.has_told_all = true;
        }
        if core::mem::take(&mut self.walks_again) {
            self.tell_everything();
        }
    }

    /// Whether the queue is to wait for more changes to share a datagram with.
    fn waits_for_company(&mut self, now: Instant, config: &FtfwConfig) -> bool {
        if self.queued() == 0 {
            return false;
        }
        let since = *self.waiting_since.get_or_insert(now);
        let is_much = self.queued() * MESSAGE_BYTES >= BATCH_DATAGRAMS * config.datagram_bytes_max;
        now < since + config.batch_delay && !is_much && self.walk == Walk::Done
    }

    /// Appends a sign of life, which nobody misses.
    pub(super) fn put_alive(&mut self, now: Instant, flags: u8, out: &mut Vec<u8>) {
        put_alive(out, flags, self.log.next());
        self.log.push(now, Sent::Nothing);
        self.counters.control += 1;
    }

    /// What was asked after in vain is told again; and the log is kept short.
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
                // A peer that says nothing is not asked for ever more.
                Sent::Nack(_) | Sent::Resync if offset < surplus => {
                    self.log.take(offset);
                    self.owes_resync = true;
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
        let since = self.unheard_since?;
        let is_stuck =
            (self.queued() > 0 && !self.has_room(config)) || (self.is_walking() && !self.has_walk_room(config));
        Some(since + if is_stuck { config.ask_timeout_window_full } else { config.ask_timeout })
    }

    const fn is_walking(&self) -> bool {
        self.is_open && (!matches!(self.walk, Walk::Done) || self.walks_again)
    }

    fn has_room(&self, config: &FtfwConfig) -> bool {
        self.log.objects() < usize::from(config.in_flight_messages_max)
    }

    fn has_walk_room(&self, config: &FtfwConfig) -> bool {
        self.log.objects() < usize::from(config.resync_in_flight_messages_max)
    }

    /// When the next sign of life is to follow what was sent last.
    fn probe_at(&self, config: &FtfwConfig) -> Option<Instant> {
        let (at, probes) = self.tail.filter(|(_, probes)| *probes < config.tail_probes_max)?;
        Some(at + config.tail_probe_delay.saturating_mul(4_u32.saturating_pow(probes.into())))
    }

    /// Whether a sign of life is to follow now; counts it.
    pub(super) fn takes_probe(&mut self, now: Instant, config: &FtfwConfig) -> bool {
        let is_due = self.probe_at(config).is_some_and(|at| at <= now);
        if let Some((at, probes)) = self.tail.as_mut().filter(|_| is_due) {
            (*at, *probes) = (now, *probes + 1);
        }
        is_due
    }

    /// When [`Sender::fill`] or [`Sender::takes_probe`] has something to do.
    pub(super) fn poll_timeout(&self, config: &FtfwConfig) -> Option<Instant> {
        let now = Some(Instant::ZERO);
        let is_queue_ready = self.is_open && self.queued() > 0 && self.has_room(config);
        let sends_queue_at = self.waiting_since.map_or(Instant::ZERO, |since| since + config.batch_delay);
        [
            now.filter(|_| !self.controls.is_empty()),
            now.filter(|_| self.is_walking() && self.has_walk_room(config)),
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
