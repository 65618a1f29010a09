//! A cache outlives the channel that filled it, and may be a copy of another's.
//!
//! Where the two ends have a channel that keeps order and lets nothing from another time through, they need no cookies when
//! that channel is replaced by a new one: the encoder begins with an Open, the decoder with what it holds. A mirror is told of
//! the stream by who has it, in the same words.

use core::ops::Range;

use alloc::vec::Vec;

use flow::Instant;

use super::{Decoder, DecoderCounters};
use crate::limits::{FILL_GRANULES_MAX, GRANULE_BYTES, MARGIN_DIVISOR};
use crate::wire::control::{Control, Parent};

/// The stream of an encoder, as an Open says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Its name.
    pub epoch: u32,
    /// The size of its cache, in pieces of 64 bytes.
    pub granules: u32,
    /// The number that the next block gets, or less: whoever says it is sure of all before it.
    pub next: u64,
    /// The stream that it continues, if it does.
    pub parent: Option<Parent>,
}

impl Opening {
    /// As a message, to whoever is bound to no cookie.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Self { epoch, granules, next, parent } = *self;
        Control::Open { epoch, decoder: 0, cookie: 0, granules, next, parent }.write(out);
    }
}

/// How many numbers of a range are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Held for sure.
    pub sure: u64,
    /// Held, and not confirmed by a later number yet: not taken over, and not given.
    pub unsure: u64,
    /// Not held.
    pub lacking: u64,
}

impl Decoder {
    /// From now on blocks and messages come by a new channel, in order and from nobody else. Blocks that waited are gone. What is
    /// held is told at once, and counts again when the encoder opens a stream that it belongs to.
    pub fn resume(&mut self) {
        self.parked = self.stream.take().or(self.parked);
        self.lose_order();
        self.counters.blocks_abandoned += self.waiting.len() as u64;
        self.waiting = super::Waiting::default();
        self.abandoned.clear();
        self.outbox.clear();
        (self.unknown_told_at, self.stale_in_a_row) = (None, 0);
        self.awaits_open = true;
        self.report.tell_all();
    }

    /// Whether a report of all that is held is not complete yet: the next Held is a part of it.
    #[must_use]
    pub const fn reports_all(&self) -> bool {
        self.report.is_of_all()
    }

    /// Reports once more all that is held: a part of such a report was lost on a channel that keeps order.
    pub fn report_again(&mut self) {
        self.report.tell_all();
    }

    /// Follows the stream that another decoder, or the encoder, is said to have. Said again it changes nothing. False: the
    /// stream's cache is larger than this one.
    pub fn attend(&mut self, now: Instant, opening: &Opening) -> bool {
        let granules = u64::from(opening.granules);
        if granules == 0 || granules > self.store.granules_max() {
            return false;
        }
        let is_same = self.stream.is_some_and(|stream| stream.epoch == opening.epoch);
        if is_same && self.store.granules() == granules {
            self.store.next = self.store.next.max(opening.next);
            self.hold_order_against(now, opening.next);
        } else {
            self.open(now, (opening.epoch, granules, opening.next), opening.parent);
        }
        true
    }

    /// The stream that it follows, for others to follow. None: it follows none.
    #[must_use]
    pub fn opening(&self) -> Option<Opening> {
        let stream = self.stream?;
        let (granules, next) = (self.store.granules() as u32, self.sure_next());
        Some(Opening { epoch: stream.epoch, granules, next, parent: stream.former })
    }

    /// The name of the stream that it follows, if it follows one.
    #[must_use]
    pub fn epoch(&self) -> Option<u32> {
        self.stream.map(|stream| stream.epoch)
    }

    /// The number after the last that is known.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.store.next
    }

    /// Numbers that the cache has room for and blocks can still point to: as many may be held, or all that there are yet.
    #[must_use]
    pub fn numbers_of_use(&self) -> Range<u64> {
        let granules = self.store.granules();
        self.store.next.saturating_sub(granules - granules / MARGIN_DIVISOR as u64)..self.store.next
    }

    /// Of the numbers of use in the range: those that are held for sure, those that are held and unsure until a number confirms
    /// them, and those that are not held.
    #[must_use]
    pub fn count(&self, range: &Range<u64>) -> Held {
        let of_use = self.numbers_of_use();
        let range = range.start.max(of_use.start)..range.end.min(of_use.end);
        if range.is_empty() {
            return Held::default();
        }
        let (held, unsure) = (self.store.count_held(range.clone()), self.count_unsure(&range));
        Held { sure: held.saturating_sub(unsure), unsure, lacking: range.end - range.start - held }
    }

    /// Looks for what is lacking, the newest first: adds ranges of numbers before `before` that are not held to `lacking`, until
    /// these are `lacking_max` or `looked_at_max` numbers were looked at. A range is no longer than a filling. Returns where the
    /// next look begins: at what lies before that number.
    #[must_use]
    pub fn look_back(&self, before: u64, [looked_at_max, lacking_max]: [u64; 2], lacking: &mut Vec<Range<u64>>) -> u64 {
        let of_use = self.numbers_of_use();
        let mut reached = before.min(of_use.end);
        let end = reached.saturating_sub(looked_at_max).max(of_use.start);
        let mut found = 0;
        while reached > end && found < lacking_max {
            reached -= 1;
            let number = reached;
            if self.store.holds(number) {
                continue;
            }
            found += 1;
            match lacking.last_mut() {
                Some(last) if last.start == number + 1 && last.end - number <= FILL_GRANULES_MAX as u64 => {
                    last.start = number;
                }
                _ => lacking.push(number..number + 1),
            }
        }
        reached
    }

    /// Writes the beginning of what is asked for as a message into `out`, in place of what was there: a Fill, or a Gone if it is not
    /// held. Returns how many numbers that deals with; zero when no stream is followed, or the first number is held and not sure
    /// yet: then it is to be asked for again.
    pub fn give(&self, range: &Range<u64>, out: &mut Vec<u8>) -> u64 {
        let Some(stream) = self.stream else { return 0 };
        let (epoch, count) = (stream.epoch, range.end.saturating_sub(range.start).min(FILL_GRANULES_MAX as u64));
        let (wanted, granules) = (range.start..range.start + count, self.store.granules());
        let is_held = |number: &u64| {
            self.store.holds(*number) && !self.store.is_stale(*number) && !self.implied.is_unsure(*number)
        };
        // A filling does not go over the ring's end.
        let room = granules - range.start % granules;
        let held = wanted.clone().take(room as usize).take_while(is_held).count() as u64;
        if held > 0 {
            let position = range.start * GRANULE_BYTES as u64;
            if let Some(place) = self.store.range(position, held as usize * GRANULE_BYTES) {
                Control::Fill { epoch, number: range.start, bytes: self.store.bytes(place) }.write(out);
                return held;
            }
        }
        let is_unsure = |number: &u64| self.store.holds(*number) && self.implied.is_unsure(*number);
        let gone = wanted.take_while(|number| !is_held(number) && !is_unsure(number)).count() as u64;
        if gone > 0 {
            Control::Gone { epoch, ranges: core::iter::once(range.start..range.start + gone).collect() }.write(out);
        }
        gone
    }

    /// What it did so far, which begins at nothing again.
    pub fn take_counters(&mut self) -> DecoderCounters {
        core::mem::take(&mut self.counters)
    }
}
