//! Looking for what a mirror lacks, the newest first, and asking for it: a little at a time, round after round.

use alloc::vec::Vec;
use core::ops::Range;

use flow::Instant;
use redundancy::limits::RANGES_MAX;
use redundancy::wire::control::Control;
use redundancy::{Decoder, Held};

use super::limits::{ASKED_FOR, ASKED_GRANULES_MAX, GONE_RANGES_MAX, LOOKED_AT_MAX, ROUND_INTERVAL};

/// Where the round stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    /// What lies before this number was not looked at; none: the round begins.
    before: Option<u64>,
    /// Numbers that the leader does not have: found in this round so far …
    gone_of_this_sweep: Vec<Range<u64>>,
    /// … and in the last whole one.
    gone: Vec<Range<u64>>,
    asked: Vec<Range<u64>>,
    asked_until: Instant,
    /// All was looked at in this round.
    is_over: bool,
    next_at: Instant,
}

impl Sweep {
    /// The numbers of use as they are now. What the leader did not have in the last whole round is not counted as lacking.
    pub(super) fn count(&self, decoder: &Decoder) -> Held {
        let gone = self.gone.iter().map(|range| decoder.count(range).missing).sum::<u64>();
        let of_use = decoder.count(&decoder.numbers_of_use());
        Held { missing: of_use.missing.saturating_sub(gone), ..of_use }
    }

    pub(super) const fn poll_timeout(&self) -> Instant {
        self.next_at
    }

    /// Something was given, or cannot be: once all that was asked for is settled more is asked for.
    pub(super) fn note_settled(&mut self, now: Instant, range: &Range<u64>, is_gone: bool) {
        let Self { asked, gone_of_this_sweep, .. } = self;
        let before = asked.len();
        asked.retain_mut(|asked| {
            // Answers to a range come from its beginning on.
            if range.start <= asked.start && asked.start < range.end {
                let settled = range.end.min(asked.end);
                if is_gone {
                    note_gone(gone_of_this_sweep, asked.start..settled);
                }
                asked.start = settled;
            }
            !asked.is_empty()
        });
        if before > 0 {
            // The rest of what was asked for may still arrive.
            self.asked_until = now + ASKED_FOR;
            self.next_at = if self.asked.is_empty() { now } else { self.asked_until };
        }
    }

    /// Goes on, if it is time. What is to be asked for is handed to `ask`.
    pub(super) fn step(&mut self, now: Instant, decoder: &Decoder, mut ask: impl FnMut(Control<'_>)) {
        let Some(position) = decoder.stream_position().filter(|_| self.next_at <= now) else { return };
        if !self.asked.is_empty() && now < self.asked_until {
            self.next_at = self.asked_until;
            return;
        }
        // What does not come is left to the next round.
        self.asked.clear();
        if self.is_over {
            self.gone = core::mem::take(&mut self.gone_of_this_sweep);
            (self.before, self.is_over) = (None, false);
            self.next_at = now + ROUND_INTERVAL;
            return;
        }
        let before = self.before.unwrap_or_else(|| {
            self.gone_of_this_sweep.clear();
            decoder.next_number()
        });
        let reached = decoder.find_missing(before, [LOOKED_AT_MAX, ASKED_GRANULES_MAX], &mut self.asked);
        self.before = Some(reached);
        self.is_over = reached <= decoder.numbers_of_use().start;
        for ranges in self.asked.chunks(RANGES_MAX) {
            ask(Control::Missing { epoch: position.epoch, decoder: 0, ranges: ranges.to_vec() });
        }
        self.asked_until = now + ASKED_FOR;
        self.next_at = if self.asked.is_empty() { now } else { self.asked_until };
    }
}

/// The leader does not have these. Ranges that touch are one.
fn note_gone(gone: &mut Vec<Range<u64>>, range: Range<u64>) {
    let has_room = gone.len() < GONE_RANGES_MAX;
    match gone.last_mut() {
        Some(last) if last.start == range.end => last.start = range.start,
        Some(last) if last.end == range.start => last.end = range.end,
        _ if has_room => gone.push(range),
        _ => {}
    }
}
