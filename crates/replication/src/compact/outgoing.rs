//! The stream of the filter to one peer.
//!
//! ```text
//! Announcing ──the peer has made room──► Filling ──it has all──► Complete
//!      ▲                                    │                        │
//!      └────────the peer has no filter──────┴────────────────────────┘
//! ```

mod comparing;
mod filling;

pub use self::comparing::COMPARE_INTERVAL;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use filters::{Change, MarkId, Memory};
use flow::{Instant, NodeId};

use self::comparing::Comparing;
use super::budget::Budget;
use super::common::Common;
use super::error::CompactError;
use super::held::Held;
use super::in_flight::{Ack, Purpose, Sent, WordsInFlight};
use super::source::Source;
use super::wire::{self, Body, SECTIONS_MAX, kind};
use crate::loss_recovery::{LossRecovery, ProbeTimeouts};

/// Time from the first announcement to the second; doubles from then on
const ANNOUNCE_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// up to this: a peer behind a lossy link must not wait long for the filter.
const ANNOUNCE_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// Time without an acknowledgement after which a probe asks for one.
const PROBE_TIMEOUTS: ProbeTimeouts = ProbeTimeouts {
    min: Duration::from_millis(4),
    max: Duration::from_millis(250),
    ack_delay: super::config::ACK_DELAY,
};
/// Datagrams in flight: the first window, and the smallest.
const WINDOW_FIRST: usize = 64;
const WINDOW_MIN: usize = 8;
/// The largest window: as many datagrams as one acknowledgement covers.
const WINDOW_MAX: usize = wire::ACK_NUMBERS as usize;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The peer has not yet made room for the filter.
    Announcing,
    /// All words are being sent.
    Filling,
    /// The peer has the whole filter and receives changes.
    Complete,
}

/// Counters of this stream.
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

/// The stream to one peer.
pub(super) struct Outgoing {
    pub(super) peer: NodeId,
    pub(super) phase: Phase,
    pub(super) is_away: bool,
    /// The peer refuses a filter of this size.
    pub(super) is_refused: bool,
    /// The peer's number for this stream; 0 until the peer has assigned one.
    stream_number: u32,
    mark: MarkId,
    /// The words that the peer has acknowledged.
    known: Held,
    /// The datagrams in flight,
    recovery: LossRecovery<Sent>,
    /// and the words in them.
    words_in_flight: WordsInFlight,
    /// Changed words that remain to be sent in the present update,
    left: usize,
    /// which covers so many changes of the filter since its beginning.
    updated_to: u64,
    /// Sections that are sent word by word, whatever the peer has,
    raw: BTreeSet<u32>,
    /// and where in one of them to go on.
    raw_next: Option<u32>,
    /// When it was last decided whether to send the whole filter.
    decided_at: Option<Instant>,
    window: usize,
    announce_at: Instant,
    announce_interval: Duration,
    budget: Option<Budget>,
    /// Words wait because the budget is used up.
    is_short: bool,
    comparing: Comparing,
    pub(super) counters: Counters,
    scratch: Vec<Change>,
}

impl Outgoing {
    pub(super) fn new(peer: NodeId, common: &Common, mark: MarkId) -> Self {
        Self {
            peer,
            phase: Phase::Announcing,
            is_away: false,
            is_refused: false,
            stream_number: 0,
            mark,
            known: common.empty(),
            recovery: LossRecovery::new(0, PROBE_TIMEOUTS),
            words_in_flight: WordsInFlight::new(common.words),
            left: 0,
            updated_to: 0,
            raw: BTreeSet::new(),
            raw_next: None,
            decided_at: None,
            window: WINDOW_FIRST,
            announce_at: Instant::ZERO,
            announce_interval: ANNOUNCE_INTERVAL_MIN,
            budget: common.budget(),
            is_short: false,
            comparing: Comparing::new(common.words),
            counters: Counters::default(),
            scratch: Vec::new(),
        }
    }

    /// Whether the peer receives changes, and some are in no update yet.
    pub(super) fn has_changes(&self, memory: &Memory) -> bool {
        self.is_complete() && memory.changed(self.mark) > self.left + self.comparing.held_back()
    }

    /// Changes that are in no update for this peer yet.
    pub(super) fn changes(&self, source: &Source) -> u64 {
        source.changes - self.updated_to
    }

    pub(super) fn is_complete(&self) -> bool {
        self.phase == Phase::Complete && !self.is_away
    }

    /// The peer has acknowledged the filter as it is.
    pub(super) fn is_settled(&self, memory: &Memory) -> bool {
        self.is_complete() && memory.changed(self.mark) == 0 && self.recovery.in_flight() == 0
    }

    /// The peer is reachable again. A probe finds out whether it still has the filter.
    pub(super) fn return_at(&mut self, now: Instant) {
        self.is_away = false;
        self.announce_at = now;
        self.announce_interval = ANNOUNCE_INTERVAL_MIN;
        if self.phase != Phase::Announcing {
            self.recovery.probe_now(now);
        }
    }

    /// A datagram of the peer.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        common: &Common,
        source: &mut Source,
        datagram: &[u8],
    ) -> Result<(), CompactError> {
        let (message, stream_number, mut body) = wire::parse(datagram)?;
        match message {
            kind::ACK if stream_number == self.stream_number && stream_number != 0 => {
                let (next, held_us) = (body.u32()?, body.u32()?);
                let received = [body.u64()?, body.u64()?, body.u64()?, body.u64()?];
                self.acknowledged(now, common, source, Ack { next, received }, Duration::from_micros(held_us.into()))
            }
            kind::ASK => {
                let (invitation, epoch) = (body.u32()?, body.u64()?);
                let is_meant =
                    stream_number == self.stream_number && (epoch == common.epoch || stream_number != 0 && epoch == 0);
                if is_meant && invitation != 0 {
                    self.restart(now, common, source, invitation);
                }
                Ok(())
            }
            kind::SECTIONS if stream_number == self.stream_number && self.phase == Phase::Complete => {
                self.resend_sections(common, body)
            }
            kind::REFUSE => {
                self.is_refused |= body.u64()? == common.epoch;
                Ok(())
            }
            // These belong to an earlier stream.
            kind::ACK | kind::SECTIONS => Ok(()),
            other => Err(CompactError::Kind(other)),
        }
    }

    /// Begins the stream anew, because the peer has no filter. `stream_number` is the number that the peer has assigned; 0: none yet.
    pub(super) fn restart(&mut self, now: Instant, common: &Common, source: &mut Source, stream_number: u32) {
        let memory = source.memory_mut();
        memory.unmark(self.mark);
        self.mark = memory.mark().expect("the peer's mark was just given back");
        let set: Vec<u32> = (0..common.words).filter(|index| memory.words()[*index as usize] != 0).collect();
        memory.give_back(self.mark, set);
        self.phase = Phase::Announcing;
        self.is_refused = false;
        self.stream_number = stream_number;
        self.known = common.empty();
        self.recovery.renumber(0);
        self.words_in_flight = WordsInFlight::new(common.words);
        self.left = 0;
        self.raw.clear();
        self.raw_next = None;
        self.decided_at = None;
        self.window = WINDOW_FIRST;
        (self.announce_at, self.announce_interval) = (now, ANNOUNCE_INTERVAL_MIN);
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
        let next = self.recovery.next();
        self.recovery.on_ack(now, ack.next, held).map_err(|_| CompactError::Number { number: ack.next, next })?;
        if self.phase == Phase::Announcing {
            self.phase = Phase::Filling;
            self.counters.beginnings += 1;
            self.begin_update(now, common, source);
        }
        let (mut received, mut lost) = (0, 0);
        while let Some((number, sent)) = self.recovery.pop_settled(ack.next) {
            self.words_in_flight.remove(&sent.changes);
            let is_received = ack.has(number);
            if is_received {
                received += 1;
                sent.changes.iter().for_each(|change| self.known.put(change.index, change.word));
            } else {
                lost += 1;
                if sent.purpose == Purpose::Raw {
                    let sections = sent.changes.iter().map(|change| change.index / common.section_words);
                    self.raw.extend(sections);
                    // It may be of the section that is half sent: that one begins anew.
                    self.raw_next = None;
                }
            }
            self.settle(source.memory_mut(), &sent.changes, is_received);
            if sent.purpose == Purpose::Whole && is_received {
                self.phase = Phase::Complete;
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
        Ok(())
    }

    /// A datagram is no longer in flight. The words that it carried and that the peer does not have in their current state are sent again: at
    /// once if the datagram was lost, or if their turn came while it was in flight.
    fn settle(&mut self, memory: &mut Memory, changes: &[Change], is_received: bool) {
        for change in changes {
            if memory.words()[change.index as usize] != self.known.word(change.index) {
                let before = memory.changed(self.mark);
                memory.give_back(self.mark, [change.index]);
                self.left += usize::from(!is_received || memory.changed(self.mark) > before);
            }
        }
    }

    /// The peer has found sections that differ.
    fn resend_sections(&mut self, common: &Common, sections: Body<'_>) -> Result<(), CompactError> {
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

    /// Writes a datagram for the peer to `out`; false if there is none to send now.
    pub(super) fn poll(&mut self, now: Instant, common: &Common, source: &mut Source, out: &mut Vec<u8>) -> bool {
        if self.is_away {
            return false;
        }
        let is_any = match self.phase {
            Phase::Announcing => self.poll_announcement(now, common, out),
            Phase::Filling | Phase::Complete => {
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

    /// These bytes were sent to the peer by other means.
    pub(super) fn charge(&mut self, now: Instant, bytes: usize) {
        if let Some(budget) = &mut self.budget {
            budget.spend(now, bytes);
        }
    }

    /// From when on the rest of the budget is free; `None` while words wait for it, and without a budget.
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
        wire::begin(out, kind::SHAPE, self.stream_number);
        common.announcement.emit(out);
        true
    }

    /// Notifies the peer that it has the whole filter, once it has.
    fn poll_whole(&mut self, now: Instant, source: &Source, out: &mut Vec<u8>) -> bool {
        let is_all = self.left == 0 && self.raw.is_empty() && self.recovery.in_flight() == 0;
        if self.phase != Phase::Filling || !is_all {
            return false;
        }
        self.begin_numbered(kind::WHOLE, out);
        out.extend_from_slice(&source.entries.to_be_bytes());
        self.recovery.on_sent(now, Sent { changes: Vec::new(), purpose: Purpose::Whole });
        true
    }

    fn poll_probe(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let is_due = self.recovery.takes_probe(now);
        if is_due {
            self.begin_numbered(kind::PROBE, out);
            self.counters.probes += 1;
        }
        is_due
    }

    fn begin_numbered(&self, kind: u8, out: &mut Vec<u8>) {
        wire::begin(out, kind, self.stream_number);
        out.extend_from_slice(&self.recovery.next().to_be_bytes());
    }

    /// When [`Outgoing::poll`] must be called at the latest.
    pub(super) fn timeout(&self) -> Option<Instant> {
        if self.is_away {
            return None;
        }
        if self.phase == Phase::Announcing {
            return Some(self.announce_at);
        }
        let budget_at = self.budget.as_ref().filter(|_| self.is_short).map(Budget::may_send_at);
        let compare_at = Some(self.comparing.at()).filter(|_| self.phase == Phase::Complete);
        [self.recovery.probe_at(), budget_at, compare_at].into_iter().flatten().min()
    }

    fn has_window(&self) -> bool {
        self.recovery.in_flight() < self.window
    }

    /// Memory that is kept for this peer, in bytes.
    pub(super) fn bytes(&self, common: &Common) -> usize {
        // The mark and the words in flight: a bit a word each.
        self.known.memory().bytes() + common.words as usize / 4
    }
}
