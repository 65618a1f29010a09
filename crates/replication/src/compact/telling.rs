//! One peer, and how far it has been told the filter.
//!
//! ```text
//! Announcing ──the peer has made room──► Filling ──it has all──► Told
//!      ▲                                    │                     │
//!      └────────the peer knows nothing──────┴─────────────────────┘
//! ```

mod comparing;
mod filling;

pub use self::comparing::COMPARE_INTERVAL;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use filters::{Change, MarkId, Memory};
use flow::serial;
use flow::{Instant, NodeId};

use self::comparing::Comparing;
use super::budget::Budget;
use super::common::Common;
use super::error::CompactError;
use super::held::Held;
use super::in_flight::{Ack, InFlight, Purpose};
use super::source::Source;
use super::wire::{self, Body, SECTIONS_MAX, kind};
use crate::session::round_trip::RoundTrip;

/// Time from the first announcement to the second; doubles from then on
const ANNOUNCE_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// up to this: a peer that is there and hears badly is not to wait for what it needs if this node dies.
const ANNOUNCE_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// What was not acknowledged for two round trips, but at least this long, and [`super::config::ACK_DELAY`] is asked after.
const PROBE_TIMEOUT_MIN: Duration = Duration::from_millis(4);
/// Asking again backs off up to this, as announcing does.
const PROBE_TIMEOUT_MAX: Duration = Duration::from_millis(250);
/// Datagrams under way at first, and the least.
const WINDOW_FIRST: usize = 64;
const WINDOW_MIN: usize = 8;
/// The most: what an acknowledgement tells of.
const WINDOW_MAX: usize = wire::ACK_NUMBERS as usize;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The peer is to say that it has room for the filter.
    Announcing,
    /// It is told all of it.
    Filling,
    /// It has all of it, and is told what changes.
    Told,
}

/// What this peer cost.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) bytes: u64,
    pub(super) datagrams: u64,
    pub(super) whole_updates: u64,
    pub(super) incremental_updates: u64,
    pub(super) words: u64,
    pub(super) lost: u64,
    pub(super) probes: u64,
    pub(super) drifts: u64,
    pub(super) beginnings: u64,
}

/// One peer.
pub(super) struct Telling {
    pub(super) peer: NodeId,
    pub(super) phase: Phase,
    pub(super) is_away: bool,
    /// The peer takes no filter of this size.
    pub(super) is_refused: bool,
    /// The peer's number for this stream; 0 before it gave one.
    hearing: u32,
    mark: MarkId,
    /// What the peer is known to have; of words under way, what it had before them.
    known: Held,
    in_flight: InFlight,
    /// Changed words that are part of the update under way,
    left: usize,
    /// which tells of so many changes of the filter since its beginning.
    updated_to: u64,
    /// Sections that are told word by word, whatever the peer has,
    raw: BTreeSet<u32>,
    /// and where in one of them to go on.
    raw_next: Option<u32>,
    /// When it was last decided whether the whole is told.
    decided_at: Option<Instant>,
    window: usize,
    announce_at: Instant,
    announce_interval: Duration,
    round_trip: RoundTrip,
    probe_at: Option<Instant>,
    probe_backoff: u32,
    budget: Option<Budget>,
    /// There was something to tell, and nothing left of the budget.
    is_short: bool,
    comparing: Comparing,
    pub(super) counters: Counters,
    scratch: Vec<Change>,
}

impl Telling {
    pub(super) fn new(peer: NodeId, common: &Common, mark: MarkId) -> Self {
        Self {
            peer,
            phase: Phase::Announcing,
            is_away: false,
            is_refused: false,
            hearing: 0,
            mark,
            known: common.empty(),
            in_flight: InFlight::new(common.words),
            left: 0,
            updated_to: 0,
            raw: BTreeSet::new(),
            raw_next: None,
            decided_at: None,
            window: WINDOW_FIRST,
            announce_at: Instant::ZERO,
            announce_interval: ANNOUNCE_INTERVAL_MIN,
            round_trip: RoundTrip::default(),
            probe_at: None,
            probe_backoff: 0,
            budget: common.budget(),
            is_short: false,
            comparing: Comparing::new(common.words),
            counters: Counters::default(),
            scratch: Vec::new(),
        }
    }

    /// Whether the peer takes part, and there is something to tell that is in no update yet.
    pub(super) fn has_changes(&self, memory: &Memory) -> bool {
        self.is_told() && memory.changed(self.mark) > self.left + self.comparing.held_back()
    }

    /// How many changes came that are in no update for this peer.
    pub(super) fn changes(&self, source: &Source) -> u64 {
        source.changes - self.updated_to
    }

    pub(super) fn is_told(&self) -> bool {
        self.phase == Phase::Told && !self.is_away
    }

    /// The peer has everything as it is, and has said so.
    pub(super) fn is_settled(&self, memory: &Memory) -> bool {
        self.is_told() && memory.changed(self.mark) == 0 && self.in_flight.is_empty()
    }

    /// The peer that was away is there again: whether it still knows the filter is to be seen.
    pub(super) fn return_at(&mut self, now: Instant) {
        self.is_away = false;
        self.announce_at = now;
        self.announce_interval = ANNOUNCE_INTERVAL_MIN;
        if self.phase != Phase::Announcing {
            (self.probe_at, self.probe_backoff) = (Some(now), 0);
        }
    }

    /// The peer answers.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        common: &Common,
        source: &mut Source,
        datagram: &[u8],
    ) -> Result<(), CompactError> {
        let (message, hearing, mut body) = wire::parse(datagram)?;
        match message {
            kind::ACK if hearing == self.hearing && hearing != 0 => {
                let (next, held_us) = (body.u32()?, body.u32()?);
                let received = [body.u64()?, body.u64()?, body.u64()?, body.u64()?];
                self.acknowledged(now, common, source, Ack { next, received }, Duration::from_micros(held_us.into()))
            }
            kind::ASK => {
                let (invitation, epoch) = (body.u32()?, body.u64()?);
                let is_meant = hearing == self.hearing && (epoch == common.epoch || hearing != 0 && epoch == 0);
                if is_meant && invitation != 0 {
                    self.restart(now, common, source, invitation);
                }
                Ok(())
            }
            kind::SECTIONS if hearing == self.hearing && self.phase == Phase::Told => self.tell_again(common, body),
            kind::REFUSE => {
                self.is_refused |= body.u64()? == common.epoch;
                Ok(())
            }
            // Of an earlier stream.
            kind::ACK | kind::SECTIONS => Ok(()),
            other => Err(CompactError::Kind(other)),
        }
    }

    /// The peer has nothing, and offers a number for the stream that begins now, or has yet to offer one: 0.
    pub(super) fn restart(&mut self, now: Instant, common: &Common, source: &mut Source, hearing: u32) {
        let memory = source.memory_mut();
        memory.unmark(self.mark);
        self.mark = memory.mark().expect("the peer's mark was just given back");
        let set: Vec<u32> = (0..common.words).filter(|index| memory.words()[*index as usize] != 0).collect();
        memory.give_back(self.mark, set);
        self.phase = Phase::Announcing;
        self.is_refused = false;
        self.hearing = hearing;
        self.known = common.empty();
        self.in_flight = InFlight::new(common.words);
        self.left = 0;
        self.raw.clear();
        self.raw_next = None;
        self.decided_at = None;
        self.window = WINDOW_FIRST;
        (self.announce_at, self.announce_interval) = (now, ANNOUNCE_INTERVAL_MIN);
        (self.probe_at, self.probe_backoff) = (None, 0);
        self.comparing = Comparing::new(common.words);
    }

    fn acknowledged(
        &mut self,
        now: Instant,
        common: &Common,
        source: &mut Source,
        ack: Ack,
        held: Duration,
    ) -> Result<(), CompactError> {
        if serial::is_before(self.in_flight.next(), ack.next) {
            return Err(CompactError::Number { number: ack.next, next: self.in_flight.next() });
        }
        if self.phase == Phase::Announcing {
            self.phase = Phase::Filling;
            self.counters.beginnings += 1;
            self.begin_update(now, common, source);
        }
        if let Some(sent_at) = self.in_flight.sent_at(ack.next.wrapping_sub(1)) {
            self.round_trip.measured(now.saturating_since(sent_at).saturating_sub(held));
        }
        let (mut received, mut lost) = (0, 0);
        while let Some((told, is_received)) = self.in_flight.settle(&ack) {
            if is_received {
                received += 1;
                told.changes.iter().for_each(|change| self.known.put(change.index, change.word));
            } else {
                lost += 1;
                if told.purpose == Purpose::Raw {
                    let sections = told.changes.iter().map(|change| change.index / common.section_words);
                    self.raw.extend(sections);
                    // Perhaps of the one that is half told: from its beginning again.
                    self.raw_next = None;
                }
            }
            self.settle(source.memory_mut(), &told.changes, is_received);
            if told.purpose == Purpose::Whole && is_received {
                self.phase = Phase::Told;
                self.comparing.begin(now);
                self.begin_update(now, common, source);
            }
        }
        self.counters.lost += lost;
        if lost > 0 {
            self.window = (self.window / 2).max(WINDOW_MIN);
        } else {
            self.window = (self.window + received).min(WINDOW_MAX);
        }
        self.probe_backoff = 0;
        self.probe_at = (!self.in_flight.is_empty()).then(|| now + self.probe_timeout());
        Ok(())
    }

    /// What was under way is under way no more: what the peer does not have as it is now is told again, at once if it was lost
    /// or its turn came while it was under way.
    fn settle(&mut self, memory: &mut Memory, changes: &[Change], is_received: bool) {
        for change in changes {
            if memory.words()[change.index as usize] != self.known.word(change.index) {
                let before = memory.changed(self.mark);
                memory.give_back(self.mark, [change.index]);
                self.left += usize::from(!is_received || memory.changed(self.mark) > before);
            }
        }
    }

    /// The peer found sections to be other than they should be.
    fn tell_again(&mut self, common: &Common, sections: Body<'_>) -> Result<(), CompactError> {
        self.raw_next = None;
        let number_of_sections = common.words.div_ceil(common.section_words);
        for section in sections.numbers()?.take(SECTIONS_MAX) {
            if section >= number_of_sections {
                return Err(CompactError::Number { number: section, next: number_of_sections });
            }
            self.counters.drifts += u64::from(self.raw.insert(section));
        }
        Ok(())
    }

    fn probe_timeout(&self) -> Duration {
        let timeout = self.round_trip.probe_timeout(PROBE_TIMEOUT_MIN, PROBE_TIMEOUT_MAX) + super::config::ACK_DELAY;
        (timeout * (1 << self.probe_backoff.min(8))).min(PROBE_TIMEOUT_MAX)
    }

    /// Writes a datagram for the peer to `out`; false if there is none to send now.
    pub(super) fn poll(&mut self, now: Instant, common: &Common, source: &mut Source, out: &mut Vec<u8>) -> bool {
        if self.is_away {
            return false;
        }
        let is_any = match self.phase {
            Phase::Announcing => self.poll_announcement(now, common, out),
            Phase::Filling | Phase::Told => {
                self.poll_digests(now, common, source, out)
                    || self.poll_words(now, common, source, out)
                    || self.poll_whole(now, source, out)
                    || self.poll_probe(now, out)
            }
        };
        if is_any {
            self.counters.bytes += out.len() as u64;
            self.counters.datagrams += 1;
            if let Some(budget) = &mut self.budget {
                budget.spend(now, out.len());
            }
        }
        is_any
    }

    /// These bytes were told the peer by other means.
    pub(super) fn charge(&mut self, now: Instant, bytes: usize) {
        if let Some(budget) = &mut self.budget {
            budget.spend(now, bytes);
        }
    }

    /// From when on what is left of the budget is not wanted here; `None` while something waits for it, and without a budget.
    pub(super) fn spare_budget_at(&self, memory: &Memory) -> Option<Instant> {
        let waits = self.is_short || self.left > 0 || !self.raw.is_empty() || memory.changed(self.mark) > 0;
        self.budget.as_ref().filter(|_| !waits).map(Budget::may_send_at)
    }

    fn poll_announcement(&mut self, now: Instant, common: &Common, out: &mut Vec<u8>) -> bool {
        if now < self.announce_at {
            return false;
        }
        self.announce_at = now + self.announce_interval;
        self.announce_interval = (self.announce_interval * 2).min(ANNOUNCE_INTERVAL_MAX);
        wire::begin(out, kind::SHAPE, self.hearing);
        common.announcement.emit(out);
        true
    }

    /// When the peer has all that it was to be told first, it is told so.
    fn poll_whole(&mut self, now: Instant, source: &Source, out: &mut Vec<u8>) -> bool {
        let is_all = self.left == 0 && self.raw.is_empty() && self.in_flight.is_empty();
        if self.phase != Phase::Filling || !is_all {
            return false;
        }
        self.begin_numbered(kind::WHOLE, out);
        out.extend_from_slice(&source.entries.to_be_bytes());
        self.sent(now, Vec::new(), Purpose::Whole);
        true
    }

    fn poll_probe(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.probe_at.is_none_or(|at| now < at) {
            return false;
        }
        self.begin_numbered(kind::PROBE, out);
        self.counters.probes += 1;
        self.probe_backoff += 1;
        self.probe_at = Some(now + self.probe_timeout());
        true
    }

    fn begin_numbered(&self, kind: u8, out: &mut Vec<u8>) {
        wire::begin(out, kind, self.hearing);
        out.extend_from_slice(&self.in_flight.next().to_be_bytes());
    }

    /// A numbered datagram goes on its way.
    fn sent(&mut self, now: Instant, changes: Vec<Change>, purpose: Purpose) {
        self.in_flight.push(now, changes, purpose);
        if self.probe_at.is_none() {
            self.probe_at = Some(now + self.probe_timeout());
        }
    }

    /// When to be asked again at the latest.
    pub(super) fn timeout(&self) -> Option<Instant> {
        if self.is_away {
            return None;
        }
        if self.phase == Phase::Announcing {
            return Some(self.announce_at);
        }
        let budget_at = self.budget.as_ref().filter(|_| self.is_short).map(Budget::may_send_at);
        let compare_at = Some(self.comparing.at()).filter(|_| self.phase == Phase::Told);
        [self.probe_at, budget_at, compare_at].into_iter().flatten().min()
    }

    fn has_window(&self) -> bool {
        self.in_flight.len() < self.window && self.in_flight.has_room()
    }

    /// Bytes that are kept for this peer.
    pub(super) fn bytes(&self, common: &Common) -> usize {
        // The mark and the words under way: a bit a word each.
        self.known.memory().bytes() + common.words as usize / 4
    }
}
