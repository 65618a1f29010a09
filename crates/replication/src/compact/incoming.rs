//! One filter of a peer, and which of its datagrams were received.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use filters::{Change, Secret, Update};
use flow::Instant;
use flow::serial;

use super::config::ACK_DELAY;
use super::error::CompactError;
use super::held::Held;
use super::status::CompactReceiverStatus;
use super::wire::{self, ACK_NUMBERS, Announcement, Body, SECTIONS_MAX, kind};
use crate::loss_recovery::AckTimer;
use crate::symbol::{self, Coding};

/// An acknowledgement is due after so many datagrams.
const ACK_EVERY: u32 = 32;

/// A filter that is being received.
pub(super) struct Incoming {
    /// This node's number for the stream.
    pub(super) number: u32,
    pub(super) announcement: Announcement,
    pub(super) secret: Secret,
    pub(super) held: Held,
    words: u32,
    coding: Coding,
    /// Behind the highest number received.
    next: u32,
    /// Numbers below this are settled: a datagram that has not arrived is never used.
    floor: u32,
    /// Which of the last numbers were received, a bit each, by the number's remainder.
    seen: [u64; 4],
    ack_timer: AckTimer,
    received_at: Instant,
    /// When a datagram last arrived.
    pub(super) last_received_at: Instant,
    pub(super) is_whole: bool,
    /// Its entries, as the peer reported.
    entries: u64,
    /// Sections that the peer must send again.
    wanted: BTreeSet<u32>,
    changes: Vec<Change>,
}

impl Incoming {
    /// An empty filter that a peer has announced.
    pub(super) fn new(now: Instant, number: u32, announcement: Announcement) -> Result<Self, CompactError> {
        let held = Held::new(announcement.shape).map_err(|error| CompactError::Exchange(error.into()))?;
        Ok(Self {
            number,
            announcement,
            secret: Secret::new(announcement.secret),
            words: held.memory().words().len() as u32,
            held,
            coding: Coding::of(announcement.shape, announcement.symbols),
            next: 0,
            floor: 0,
            seen: [0; 4],
            ack_timer: AckTimer::default(),
            received_at: now,
            last_received_at: now,
            is_whole: false,
            entries: 0,
            wanted: BTreeSet::new(),
            changes: Vec::new(),
        })
    }

    /// The peer asks for an answer.
    pub(super) fn answer_at_once(&mut self, now: Instant) {
        self.last_received_at = now;
        self.ack_timer.set_due(now);
    }

    /// A datagram of the stream.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        message: u8,
        mut body: Body<'_>,
        status: &mut CompactReceiverStatus,
    ) -> Result<(), CompactError> {
        self.last_received_at = now;
        let number = body.u32()?;
        match message {
            kind::PROBE => {
                self.check(number)?;
                // No datagram with a lower number is still in flight.
                if serial::is_before(self.next, number) {
                    self.advance(number);
                }
                self.answer_at_once(now);
                Ok(())
            }
            kind::DIGESTS => self.compare(number, body, status),
            _ => {
                self.check(number)?;
                if !self.is_news(number) {
                    status.late += 1;
                    return Ok(());
                }
                match message {
                    kind::WORDS => self.take_words(body)?,
                    kind::CHANGES => self.take_changes(body)?,
                    kind::WHOLE => {
                        self.entries = body.u64()?;
                        self.is_whole = true;
                        self.ack_timer.set_due(now);
                    }
                    other => return Err(CompactError::Kind(other)),
                }
                // Only a datagram that was used: the peer takes its words for present here.
                self.note(now, number);
                Ok(())
            }
        }
    }

    fn take_words(&mut self, body: Body<'_>) -> Result<(), CompactError> {
        self.held.apply(&Update::parse(body.0, self.words as usize)?)?;
        Ok(())
    }

    /// Changes build on the words that are here. Where the result cannot be in a filter, the words were not what the peer assumed.
    fn take_changes(&mut self, body: Body<'_>) -> Result<(), CompactError> {
        let mut changes = core::mem::take(&mut self.changes);
        changes.clear();
        let result =
            symbol::decode(self.coding, body.0, self.words as usize, |index| self.held.word(index), &mut changes);
        if result.is_ok() {
            for change in &changes {
                if self.held.admits(change.index, change.word) {
                    self.held.put(change.index, change.word);
                } else {
                    self.wanted.insert(change.index / wire::section_words(self.words));
                }
            }
        }
        self.changes = changes;
        Ok(result?)
    }

    /// Compares sections with the peer's digests.
    fn compare(
        &mut self,
        number: u32,
        mut body: Body<'_>,
        status: &mut CompactReceiverStatus,
    ) -> Result<(), CompactError> {
        let (entries, first) = (body.u64()?, body.u32()?);
        let section_words = wire::section_words(self.words);
        let digests = body.numbers()?;
        let sections = self.words.div_ceil(section_words);
        if u64::from(first) + digests.len() as u64 > sections.into() {
            return Err(CompactError::Number { number: first, next: sections });
        }
        // Datagrams since then may have changed them.
        if serial::is_before(number, self.next) || !self.is_whole {
            return Ok(());
        }
        self.entries = entries;
        for (section, digest) in (first..).zip(digests) {
            let start = section * section_words;
            let end = (start + section_words).min(self.words);
            status.compared += 1;
            if self.held.digest(start..end) != digest {
                status.drifts += 1;
                self.wanted.insert(section);
            }
        }
        Ok(())
    }

    /// Refuses a number that is further ahead than the peer's window allows.
    const fn check(&self, number: u32) -> Result<(), CompactError> {
        let ahead = number.wrapping_sub(self.next);
        if serial::is_before(self.next, number) && ahead > ACK_NUMBERS {
            return Err(CompactError::Number { number, next: self.next.wrapping_add(ACK_NUMBERS) });
        }
        Ok(())
    }

    /// Whether a datagram with this number can still be used.
    const fn is_news(&self, number: u32) -> bool {
        !serial::is_before(number, self.next) || !serial::is_before(number, self.floor) && !self.has(number)
    }

    /// Notes that the datagram with this number was used.
    fn note(&mut self, now: Instant, number: u32) {
        if !serial::is_before(number, self.next) {
            self.advance(number.wrapping_add(1));
            self.received_at = now;
        }
        self.seen[(number / 64 % 4) as usize] |= 1 << (number % 64);
        self.ack_timer.on_received(now, ACK_EVERY, ACK_DELAY);
    }

    /// Moves the window: datagrams below `next` that have not arrived are lost.
    fn advance(&mut self, next: u32) {
        while self.next != next {
            self.seen[(self.next / 64 % 4) as usize] &= !(1 << (self.next % 64));
            self.next = self.next.wrapping_add(1);
        }
        // An acknowledgement cannot cover older ones.
        let oldest = self.next.wrapping_sub(ACK_NUMBERS);
        if serial::is_before(self.floor, oldest) {
            self.floor = oldest;
        }
    }

    const fn has(&self, number: u32) -> bool {
        self.seen[(number / 64 % 4) as usize] >> (number % 64) & 1 == 1
    }

    /// Its entries: counted, or as the peer last reported.
    pub(super) fn entries(&self) -> u64 {
        self.held.entries().unwrap_or(self.entries)
    }

    pub(super) const fn ack_at(&self) -> Option<Instant> {
        self.ack_timer.due_at()
    }

    /// Writes an acknowledgement or a question, if one is due.
    pub(super) fn poll(&mut self, now: Instant, status: &mut CompactReceiverStatus, out: &mut Vec<u8>) -> bool {
        if self.ack_timer.is_due(now) {
            self.acknowledge(now, status, out);
            return true;
        }
        if self.wanted.is_empty() {
            return false;
        }
        wire::begin(out, kind::SECTIONS, self.number);
        for _ in 0..SECTIONS_MAX {
            let Some(section) = self.wanted.pop_first() else { break };
            out.extend_from_slice(&section.to_be_bytes());
        }
        true
    }

    fn acknowledge(&mut self, now: Instant, status: &mut CompactReceiverStatus, out: &mut Vec<u8>) {
        while self.floor != self.next {
            status.missed += u64::from(!self.has(self.floor));
            self.floor = self.floor.wrapping_add(1);
        }
        self.ack_timer.on_ack_sent();
        wire::begin(out, kind::ACK, self.number);
        out.extend_from_slice(&self.next.to_be_bytes());
        let held: Duration = now.saturating_since(self.received_at);
        let held_us = u32::try_from(held.as_micros()).unwrap_or(u32::MAX);
        out.extend_from_slice(&held_us.to_be_bytes());
        for word in 0..4 {
            let bits = (0..64).fold(0_u64, |bits, bit| {
                let number = self.next.wrapping_sub(1 + word * 64 + bit);
                bits << 1 | u64::from(self.has(number))
            });
            out.extend_from_slice(&bits.to_be_bytes());
        }
    }
}
