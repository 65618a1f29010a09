//! Looking for what a mirror lacks, the newest first, and asking for it: a little at a time, round after round.

use alloc::vec::Vec;
use core::ops::Range;

use flow::Instant;
use redundancy::Decoder;
use redundancy::limits::RANGES_MAX;
use redundancy::wire::control::Control;

use super::limits::{ASKED_FOR, ASKED_GRANULES_MAX, LOOKED_AT_MAX, ROUND_INTERVAL};

/// Where the round stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    /// What lies before this number was not looked at; none: the round begins.
    before: Option<u64>,
    /// Numbers that are held, and numbers that could not be had: in this round so far …
    finding: [u64; 2],
    /// … and in the last whole one.
    found: [u64; 2],
    asked: Vec<Range<u64>>,
    asked_until: Instant,
    /// All was looked at in this round.
    is_over: bool,
    next_at: Instant,
}

impl Sweep {
    /// Numbers that were held when last all was looked at, and numbers that could not be had.
    pub(super) const fn found(&self) -> [u64; 2] {
        self.found
    }

    pub(super) const fn poll_timeout(&self) -> Instant {
        self.next_at
    }

    /// Something was given, or cannot be: once all that was asked for is settled more is asked for.
    pub(super) fn note_settled(&mut self, now: Instant, range: &Range<u64>, is_gone: bool) {
        let Self { asked, finding, .. } = self;
        let before = asked.len();
        asked.retain_mut(|asked| {
            // Answers to a range come from its beginning on.
            if range.start <= asked.start && asked.start < range.end {
                let settled = range.end.min(asked.end);
                finding[usize::from(is_gone)] += settled - asked.start;
                asked.start = settled;
            }
            !asked.is_empty()
        });
        if before > 0 {
            // What else was asked for is on its way.
            self.asked_until = now + ASKED_FOR;
            self.next_at = if self.asked.is_empty() { now } else { self.asked_until };
        }
    }

    /// Goes on, if it is time. What is to be asked for is handed to `ask`.
    pub(super) fn step(&mut self, now: Instant, decoder: &Decoder, mut ask: impl FnMut(Control<'_>)) {
        let Some(opening) = decoder.opening().filter(|_| self.next_at <= now) else { return };
        if !self.asked.is_empty() && now < self.asked_until {
            self.next_at = self.asked_until;
            return;
        }
        // What does not come is left to the next round.
        self.asked.clear();
        if self.is_over {
            (self.found, self.before, self.is_over) = (self.finding, None, false);
            self.next_at = now + ROUND_INTERVAL;
            return;
        }
        let before = self.before.unwrap_or_else(|| {
            self.finding = [0; 2];
            decoder.next_number()
        });
        let look = decoder.look_back(before, [LOOKED_AT_MAX, ASKED_GRANULES_MAX], &mut self.asked);
        self.finding[0] += look.held;
        self.before = Some(look.reached);
        self.is_over = look.reached <= decoder.numbers_of_use().start;
        for ranges in self.asked.chunks(RANGES_MAX) {
            ask(Control::Missing { epoch: opening.epoch, decoder: 0, ranges: ranges.to_vec() });
        }
        self.asked_until = now + ASKED_FOR;
        self.next_at = if self.asked.is_empty() { now } else { self.asked_until };
    }
}
