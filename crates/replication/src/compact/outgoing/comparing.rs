//! Whether a peer has what it should have: digests of sections, sent at intervals, all of them once in [`COMPARE_INTERVAL`].
//!
//! A digest is of what the peer has acknowledged, and counts for it as long as nothing newer has come. So that a section
//! comes to rest, changes to the sections whose turn it is are held back for the round trip that it takes.

use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;

use super::{Outgoing, Phase};
use crate::compact::common::Common;
use crate::compact::source::Source;
use crate::compact::wire::{SECTIONS_MAX, kind, section_words};

/// All sections are compared once in this time.
pub const COMPARE_INTERVAL: Duration = Duration::from_secs(4);
/// For a section that does not come to rest nothing is held back any longer: it is compared the next time.
const REST_MAX: Duration = Duration::from_millis(250);

/// Which sections are compared next, and when.
pub(in crate::compact) struct Comparing {
    words: u32,
    /// Words of the sections that one datagram compares.
    part_words: u32,
    parts: u32,
    part: u32,
    next_at: Instant,
    /// Since when changes to the part are held back,
    resting_since: Option<Instant>,
    /// and how many were.
    held_back: usize,
}

impl Comparing {
    pub(super) const fn new(words: u32) -> Self {
        let part_words = section_words(words) * SECTIONS_MAX as u32;
        let parts = words.div_ceil(part_words);
        Self { words, part_words, parts, part: 0, next_at: Instant::ZERO, resting_since: None, held_back: 0 }
    }

    /// The peer has all, from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.next_at = now + COMPARE_INTERVAL / self.parts;
    }

    pub(super) fn at(&self) -> Instant {
        self.resting_since.map_or(self.next_at, |since| since + REST_MAX)
    }

    const fn words(&self) -> core::ops::Range<u32> {
        let start = self.part * self.part_words;
        let end = start + self.part_words;
        start..if end < self.words { end } else { self.words }
    }

    /// Whether a change waits because its section is about to be compared.
    pub(super) fn holds_back(&mut self, index: u32) -> bool {
        let holds_back = self.resting_since.is_some() && self.words().contains(&index);
        self.held_back += usize::from(holds_back);
        holds_back
    }

    /// How many changes wait for that.
    pub(super) const fn held_back(&self) -> usize {
        self.held_back
    }

    /// They are part of an update again, which may come to them while they are still held back.
    pub(super) const fn forget_held_back(&mut self) {
        self.held_back = 0;
    }

    /// On to the next sections. Returns how many changes were held back.
    fn advance(&mut self, now: Instant) -> usize {
        self.part = (self.part + 1) % self.parts;
        self.next_at = now + COMPARE_INTERVAL / self.parts;
        self.resting_since = None;
        core::mem::take(&mut self.held_back)
    }
}

impl Outgoing {
    pub(super) fn poll_digests(&mut self, now: Instant, common: &Common, source: &Source, out: &mut Vec<u8>) -> bool {
        if self.phase != Phase::Complete || now < self.comparing.next_at {
            return false;
        }
        let since = *self.comparing.resting_since.get_or_insert(now);
        let words = self.comparing.words();
        let is_at_rest = self.raw.is_empty() && !self.words_in_flight.has_any(words.clone());
        if is_at_rest {
            self.begin_numbered(kind::DIGESTS, out);
            out.extend_from_slice(&source.entries.to_be_bytes());
            out.extend_from_slice(&(words.start / common.section_words).to_be_bytes());
            for start in words.clone().step_by(common.section_words as usize) {
                let end = words.end.min(start + common.section_words);
                out.extend_from_slice(&self.known.digest(start..end).to_be_bytes());
            }
        }
        if is_at_rest || now.saturating_since(since) >= REST_MAX {
            self.left += self.comparing.advance(now);
        }
        is_at_rest
    }
}
