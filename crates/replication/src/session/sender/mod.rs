//! The sending half: what is to be told, what was told, and what became of it.

mod changes;
mod compare;
mod deletions;
mod walk;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;

use self::changes::{Changes, Loss};
pub(super) use self::compare::{Answers, COMPARISON_BYTES_MAX};
pub use self::deletions::DELETION_BYTES_MAX;
use self::deletions::{DeletionId, Deletions};
use self::walk::{Stage, Walk};
use super::item::Item;
use super::round_trip::RoundTrip;
use super::{Handle, SessionConfig, Store};
use crate::message::{AckView, DELETE, HEADER_BYTES, Kind, NumberRange, RESYNC_END, begin, finish};
use crate::serial::is_before;

/// Changes that fill so many datagrams wait for no more company.
const BATCH_DATAGRAMS: usize = 8;
/// Connections that the walk looks at for one datagram, most of which may have been told already.
const WALK_STEPS_MAX: u32 = 512;

/// What a message in flight says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    Change(Handle),
    Deletion(DeletionId),
    ResyncEnd,
}

/// A datagram with messages in flight.
#[derive(Clone, Copy)]
struct SentDatagram {
    /// The number behind its last message.
    end: u32,
    at: Instant,
}

/// How the attempt to write a message ended.
enum Written {
    Done,
    /// The connection is not there any more.
    Gone,
    /// It goes into the next datagram.
    NoRoom,
    /// It goes into none.
    TooLong,
}

/// The peer acknowledges what was never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NeverSent;

/// Counters since the session was made.
#[derive(Clone, Copy, Default)]
pub(super) struct SenderCounters {
    pub(super) messages: u64,
    pub(super) lost: u64,
    pub(super) resent: u64,
    pub(super) left_out: u64,
    pub(super) too_long: u64,
    pub(super) rounds: u64,
}

/// What is to be told, what was told, and what became of it. It sends only while the link is open.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Sender {
    changes: Changes,
    deletions: Deletions,
    walk: Walk,
    /// What the messages in flight say, the oldest first; the newest has number `next - 1`.
    log: VecDeque<Sent>,
    datagrams: VecDeque<SentDatagram>,
    next: u32,
    open: bool,
    /// Under which items are hashed in this session.
    key: u64,
    /// When `poll` first saw changes that still wait for company.
    waiting_since: Option<Instant>,
    walk_again_at: Option<Instant>,
    last_message_bytes: usize,
    probed_at: Instant,
    probes: u32,
    pub(super) round_trip: RoundTrip,
    pub(super) counters: SenderCounters,
}

impl Sender {
    pub(super) fn new(config: &SessionConfig, first: u32) -> Self {
        Self {
            changes: Changes::new(config.connections_max, config.changes_queued_max),
            deletions: Deletions::new(config.deletions_max),
            walk: Walk::new(),
            log: VecDeque::new(),
            datagrams: VecDeque::new(),
            next: first,
            open: false,
            key: 0,
            waiting_since: None,
            walk_again_at: None,
            last_message_bytes: 0,
            probed_at: Instant::ZERO,
            probes: 0,
            round_trip: RoundTrip::default(),
            counters: SenderCounters::default(),
        }
    }

    /// Number of the next message.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// Messages in flight.
    pub(super) fn in_flight(&self) -> u16 {
        u16::try_from(self.log.len()).expect("the window is a u16")
    }

    fn base(&self) -> u32 {
        self.next.wrapping_sub(self.log.len() as u32)
    }

    /// The resynchronisation as the header has it.
    pub(super) const fn wire_round(&self) -> u8 {
        self.walk.wire_round()
    }

    /// Whether the peer has been told everything.
    pub(super) fn is_synchronised(&self) -> bool {
        self.walk.stage == Stage::Done
    }

    pub(super) fn queued(&self) -> usize {
        self.changes.len() + self.deletions.len()
    }

    /// When the oldest change was sent that is not acknowledged, or found waiting.
    pub(super) fn oldest_unacknowledged_at(&self) -> Option<Instant> {
        self.datagrams.front().map(|datagram| datagram.at).or(self.waiting_since)
    }

    /// A connection changed.
    pub(super) fn mark_changed(&mut self, handle: Handle) {
        if self.open && !self.changes.mark(handle) {
            self.leave_out();
        }
    }

    /// A connection ended.
    pub(super) fn mark_deleted(&mut self, handle: Handle, attributes: &[u8]) {
        if let Some(item) = self.changes.forget(handle) {
            self.tell_end(attributes, item);
        }
    }

    /// A connection ended that the peer knows of, whoever told it.
    pub(super) fn mark_deleted_anyway(&mut self, handle: Handle, attributes: &[u8]) {
        let item = self.changes.forget(handle).unwrap_or_default();
        self.tell_end(attributes, item);
    }

    /// A connection has ended: the peer, which was told `item` of it, is to learn so.
    pub(super) fn tell_end(&mut self, attributes: &[u8], item: Item) {
        if self.open && self.deletions.push(attributes, item) {
            return;
        }
        self.deletions.leave_untold(attributes);
        if self.open {
            self.leave_out();
        }
    }

    /// The next ended connection of which the peer may know and will not be told.
    pub(super) fn pop_untold_end(&mut self) -> Option<deletions::Attributes> {
        self.deletions.pop_untold()
    }

    /// A slot is free, without a word to the peer.
    pub(super) fn forget(&mut self, handle: Handle) {
        self.changes.forget(handle);
    }

    /// Whether the peer knows of the connection, or is about to.
    pub(super) fn is_told(&self, handle: Handle) -> bool {
        self.changes.is_told(handle)
    }

    pub(super) fn is_known(&self, handle: Handle) -> bool {
        self.changes.is_known(handle)
    }

    fn leave_out(&mut self) {
        self.counters.left_out += 1;
        self.walk.leave_out();
    }

    /// The peer asks to be told everything.
    pub(super) fn resync_requested(&mut self) {
        self.walk.requested();
    }

    /// The peer is there: what it must know is told from the start. `key` is for the items of this session.
    pub(super) fn open(&mut self, key: u64) {
        self.open = true;
        self.key = key;
        self.walk.restart();
    }

    /// The peer is away or has forgotten: nothing is kept for it, as it is told everything when it is there again.
    pub(super) fn suspend(&mut self) {
        self.open = false;
        for sent in self.log.drain(..) {
            match sent {
                Sent::Change(handle) => self.changes.abandon(handle),
                Sent::Deletion(id) => self.deletions.abandon(id),
                Sent::ResyncEnd => {}
            }
        }
        self.datagrams.clear();
        self.deletions.clear();
        self.changes.clear();
        self.walk.restart();
        self.waiting_since = None;
        self.walk_again_at = None;
        self.probes = 0;
        self.round_trip = RoundTrip::default();
    }

    /// Begins numbering anew. Only while suspended.
    pub(super) fn renumber(&mut self, first: u32) {
        self.next = first;
    }
}

/// Filling datagrams.
impl Sender {
    /// Appends as many messages as there are, as fit, and as may be in flight. Returns how many. With `is_awaited`, changes
    /// do not wait for company.
    pub(super) fn fill(
        &mut self,
        now: Instant,
        config: &SessionConfig,
        store: &mut impl Store,
        is_awaited: bool,
        out: &mut Vec<u8>,
    ) -> u16 {
        let first = self.next;
        self.walk_again_at = None;
        if self.walk.begin_if_needed() {
            self.counters.rounds += 1;
        }
        if is_awaited || !self.waits_for_company(now, config) {
            let more = self.fill_deletions(config, store, out) && self.fill_changes(now, config, store, out);
            if self.queued() == 0 {
                self.waiting_since = None;
            }
            if more && self.fill_walk(now, config, store, out) {
                self.fill_resync_end(config, out);
            }
        }
        let count = self.next.wrapping_sub(first) as u16;
        if count > 0 {
            self.datagrams.push_back(SentDatagram { end: self.next, at: now });
            self.counters.messages += u64::from(count);
        }
        count
    }

    /// Whether the queue is to wait for more changes to share a datagram with.
    fn waits_for_company(&mut self, now: Instant, config: &SessionConfig) -> bool {
        if self.queued() == 0 {
            return false;
        }
        let since = *self.waiting_since.get_or_insert(now);
        // Several datagrams at a time wake the peer once.
        let queued_bytes = self.queued() * self.last_message_bytes.max(1);
        let is_much = queued_bytes >= BATCH_DATAGRAMS * config.datagram_bytes_max;
        now < since + config.batch_delay && !is_much && matches!(self.walk.stage, Stage::Done | Stage::Ending)
    }

    fn has_room(&self, config: &SessionConfig, out: &[u8], window: u16) -> bool {
        let fits = out.len() == HEADER_BYTES || out.len() + self.last_message_bytes <= config.datagram_bytes_max;
        fits && self.log.len() < usize::from(window)
    }

    /// False when there is no room for anything more.
    fn fill_deletions(&mut self, config: &SessionConfig, store: &impl Store, out: &mut Vec<u8>) -> bool {
        while let Some((id, attributes)) = self.deletions.front() {
            // A connection with the same tuple that was told, or is about to be, takes the place of the ended one at the
            // peer; to tell of the end after that would end the wrong one.
            if store.find(attributes).is_some_and(|handle| self.changes.is_told(handle)) {
                self.deletions.pop_front();
                self.deletions.release(id);
                continue;
            }
            if !self.has_room(config, out, config.in_flight_messages_max) {
                return false;
            }
            let at = begin(out, DELETE);
            out.extend_from_slice(attributes);
            if !finish(out, at) || out.len() > config.datagram_bytes_max {
                out.truncate(at);
                return false;
            }
            self.deletions.pop_front();
            self.sent(Sent::Deletion(id), out.len() - at);
        }
        true
    }

    /// False when there is no room for anything more.
    fn fill_changes(
        &mut self,
        now: Instant,
        config: &SessionConfig,
        store: &mut impl Store,
        out: &mut Vec<u8>,
    ) -> bool {
        while let Some(handle) = self.changes.front() {
            if !self.has_room(config, out, config.in_flight_messages_max) {
                return false;
            }
            let kind = if self.changes.is_known(handle) { Kind::Update } else { Kind::New };
            let at = out.len();
            match write_change(now, config, store, handle, kind, out) {
                Written::Done => {
                    let item = store.item(self.key, handle);
                    if self.changes.sent_front(self.next, self.walk.round, item) {
                        self.walk.extend_barrier(self.next);
                    }
                    self.sent(Sent::Change(handle), out.len() - at);
                }
                Written::NoRoom => return false,
                Written::Gone => self.changes.skip_front(),
                Written::TooLong => {
                    self.counters.too_long += 1;
                    self.changes.skip_front();
                }
            }
        }
        true
    }

    /// Walks on. True when the walk is over.
    fn fill_walk(&mut self, now: Instant, config: &SessionConfig, store: &mut impl Store, out: &mut Vec<u8>) -> bool {
        let Stage::Walking(mut cursor) = self.walk.stage else { return true };
        let mut steps = 0;
        let at_end = loop {
            let Some(handle) = store.next_for_resync(cursor).filter(|handle| self.changes.is_valid(*handle)) else {
                break true;
            };
            cursor = handle;
            steps += 1;
            if steps > WALK_STEPS_MAX {
                self.walk_again_at = Some(now);
                break false;
            }
            if self.changes.needs_walk(handle, self.walk.round) {
                if !self.has_room(config, out, config.resync_in_flight_messages_max) {
                    break false;
                }
                let at = out.len();
                match write_change(now, config, store, handle, Kind::New, out) {
                    Written::Done => {
                        let item = store.item(self.key, handle);
                        self.changes.sent(handle, self.next, self.walk.round, item);
                        self.sent(Sent::Change(handle), out.len() - at);
                    }
                    Written::NoRoom => break false,
                    Written::Gone => {}
                    Written::TooLong => self.counters.too_long += 1,
                }
            }
            cursor = Handle(handle.0 + 1);
        };
        self.walk.stage = if at_end { Stage::Settling { barrier: self.next } } else { Stage::Walking(cursor) };
        at_end
    }

    fn fill_resync_end(&mut self, config: &SessionConfig, out: &mut Vec<u8>) {
        if self.has_room(config, out, config.in_flight_messages_max)
            && self.walk.may_end(self.base(), self.changes.owed())
        {
            let at = begin(out, RESYNC_END);
            let fits = finish(out, at);
            debug_assert!(fits, "it has no body");
            if out.len() > config.datagram_bytes_max {
                out.truncate(at);
                return;
            }
            self.walk.stage = Stage::Ending;
            self.sent(Sent::ResyncEnd, out.len() - at);
        }
    }

    fn sent(&mut self, sent: Sent, message_bytes: usize) {
        self.log.push_back(sent);
        self.next = self.next.wrapping_add(1);
        self.last_message_bytes = message_bytes;
    }
}

fn write_change(
    now: Instant,
    config: &SessionConfig,
    store: &mut impl Store,
    handle: Handle,
    kind: Kind,
    out: &mut Vec<u8>,
) -> Written {
    let at = begin(out, kind.message_type());
    if !store.encode(now, handle, out) {
        out.truncate(at);
        return Written::Gone;
    }
    if finish(out, at) && out.len() <= config.datagram_bytes_max {
        return Written::Done;
    }
    out.truncate(at);
    if at == HEADER_BYTES { Written::TooLong } else { Written::NoRoom }
}

/// Acknowledgements and waiting for them.
impl Sender {
    /// The peer says what it received. Everything that it speaks of is done with: received, or to be told again under a
    /// new number. An acknowledgement older than one seen changes nothing.
    pub(super) fn acknowledged(&mut self, now: Instant, ack: &AckView<'_>) -> Result<(), NeverSent> {
        if is_before(self.next, ack.next) {
            return Err(NeverSent);
        }
        let base = self.base();
        if !is_before(base, ack.next) {
            return Ok(());
        }
        let mut missing = ack.missing().peekable();
        let mut number = base;
        while number != ack.next {
            let Some(sent) = self.log.pop_front() else { break };
            while missing.next_if(|range: &NumberRange| !is_before(number, range.end)).is_some() {}
            if missing.peek().is_some_and(|range| range.contains(number)) {
                self.lost(sent, number);
            } else {
                self.received(sent, number);
            }
            number = number.wrapping_add(1);
        }
        self.measure_round_trip(now, ack);
        self.probes = 0;
        Ok(())
    }

    fn received(&mut self, sent: Sent, number: u32) {
        match sent {
            Sent::Change(handle) => self.changes.received(handle, number),
            Sent::Deletion(id) => self.deletions.release(id),
            Sent::ResyncEnd if self.walk.stage == Stage::Ending => self.walk.stage = Stage::Done,
            Sent::ResyncEnd => {}
        }
    }

    fn lost(&mut self, sent: Sent, number: u32) {
        self.counters.lost += 1;
        match sent {
            Sent::Change(handle) => self.lost_change(handle, number),
            Sent::Deletion(id) => {
                self.counters.resent += 1;
                self.deletions.requeue(id);
            }
            Sent::ResyncEnd if self.walk.stage == Stage::Ending => {
                self.walk.stage = Stage::Settling { barrier: number };
            }
            Sent::ResyncEnd => {}
        }
    }

    fn lost_change(&mut self, handle: Handle, number: u32) {
        let concerns_walk = self.walk.concerns(number);
        match self.changes.lost(handle, number) {
            Loss::Moot => {}
            Loss::NewerInFlight(newer) if concerns_walk => self.walk.extend_barrier(newer),
            Loss::NewerInFlight(_) => {}
            Loss::Queued => {
                self.counters.resent += 1;
                if concerns_walk {
                    self.changes.owe(handle);
                }
            }
            Loss::Overflow => self.leave_out(),
        }
    }

    fn measure_round_trip(&mut self, now: Instant, ack: &AckView<'_>) {
        while let Some(datagram) = self.datagrams.front().copied() {
            if is_before(ack.next, datagram.end) {
                break;
            }
            self.datagrams.pop_front();
            if datagram.end == ack.next {
                self.round_trip.measured(now.saturating_since(datagram.at).saturating_sub(ack.held));
            }
        }
    }

    /// When to ask the peer what became of the oldest message in flight.
    pub(super) fn probe_at(&self, config: &SessionConfig) -> Option<Instant> {
        let oldest = self.datagrams.front()?.at;
        let timeout = self.round_trip.probe_timeout(config.probe_timeout_min, config.probe_timeout_max);
        let backed_off: Duration = timeout.saturating_mul(1 << self.probes.min(10)).min(config.probe_timeout_max);
        let since = if self.probes == 0 { oldest + config.ack_delay } else { oldest.max(self.probed_at) };
        Some(since + backed_off)
    }

    /// The peer was asked.
    pub(super) const fn probed(&mut self, now: Instant) {
        self.probed_at = now;
        self.probes = self.probes.saturating_add(1);
    }

    /// When `fill` has something to do that it put off.
    pub(super) fn again_at(&self, config: &SessionConfig) -> Option<Instant> {
        let company = self.waiting_since.filter(|_| self.log.len() < usize::from(config.in_flight_messages_max));
        [self.walk_again_at, company.map(|since| since + config.batch_delay)].into_iter().flatten().min()
    }
}

#[cfg(test)]
impl Sender {
    /// Appends what its future depends on: times as seen from `now`, numbers from the next one. With
    /// `probe_timeout_min` and `probe_timeout_max` equal, that leaves out the measured round trip.
    pub(super) fn normal_form(&self, now: Instant, config: &SessionConfig, out: &mut Vec<u64>) {
        assert_eq!(config.probe_timeout_min, config.probe_timeout_max);
        // Named one by one, so that whoever adds a field is asked here what hangs on it.
        let Self {
            changes,
            deletions,
            walk,
            log,
            datagrams,
            next,
            open,
            key: _,
            waiting_since,
            walk_again_at,
            last_message_bytes,
            probed_at,
            probes,
            round_trip: _,
            counters: _,
        } = self;
        let age = |at: Instant, max: Duration| now.saturating_since(at).min(max).as_micros() as u64 + 1;
        changes.normal_form(*next, walk.round, out);
        deletions.normal_form(out);
        walk.normal_form(*next, out);
        out.push(log.len() as u64);
        for sent in log {
            match sent {
                Sent::Change(handle) => out.push(u64::from(handle.0)),
                Sent::Deletion(id) => deletions.name(*id, out),
                Sent::ResyncEnd => out.push(1 << 32),
            }
        }
        out.push(datagrams.len() as u64);
        for SentDatagram { end, at } in datagrams {
            let max = config.ack_delay + config.probe_timeout_max;
            out.push(u64::from(next.wrapping_sub(*end)) << 32 | age(*at, max));
        }
        let waiting = waiting_since.map_or(0, |since| age(since, config.batch_delay));
        let again = walk_again_at.map_or(0, |at| at.saturating_since(now).as_micros() as u64 + 1);
        let probed = if *probes > 0 { age(*probed_at, config.probe_timeout_max) } else { 0 };
        out.extend([u64::from(*open), waiting, again, probed, *last_message_bytes as u64]);
    }
}
