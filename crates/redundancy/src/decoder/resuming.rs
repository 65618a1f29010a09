//! A cache survives the replacement of its channel, and may be a replica of another node's cache.
//!
//! A channel that keeps order and excludes old messages needs no cookies when it is replaced: the encoder begins with
//! an Open, the decoder with its held data. A mirror learns the stream from a node that has it, by the same messages.

use core::ops::Range;

use alloc::vec::Vec;

use flow::Instant;

use super::{Decoder, DecoderCounters};
use crate::limits::{FILL_GRANULES_MAX, GRANULE_BYTES, MARGIN_DIVISOR};
use crate::wire::control::{Control, Parent};

/// The position of an encoder's stream, as in an Open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPosition {
    /// Its name.
    pub epoch: u32,
    /// The size of its cache, in granules of 64 bytes.
    pub granules: u32,
    /// The number of the next block, or a lower one: all blocks before it are confirmed.
    pub next: u64,
    /// The parent stream that it continues, if any.
    pub parent: Option<Parent>,
}

impl StreamPosition {
    /// Encodes it as a message for a receiver without a cookie.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Self { epoch, granules, next, parent } = *self;
        Control::Open { epoch, decoder: 0, cookie: 0, granules, next, parent }.write(out);
    }
}

/// The number of held granules in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Held and confirmed.
    pub confirmed: u64,
    /// Held, but not confirmed by a later number: neither taken over nor sent.
    pub unconfirmed: u64,
    /// Not held.
    pub missing: u64,
}

impl Decoder {
    /// Switches to a new channel, which delivers blocks and messages in order and from this peer only. Waiting blocks
    /// are discarded. Held data is reported at once, and becomes usable when the encoder opens a stream that it belongs
    /// to.
    pub fn resume(&mut self) {
        self.parked = self.stream.take().or(self.parked);
        self.lose_order();
        self.counters.blocks_abandoned += self.waiting.len() as u64;
        self.waiting = super::Waiting::default();
        self.abandoned.clear();
        self.outbox.clear();
        (self.unknown_sent_at, self.stale_in_a_row) = (None, 0);
        self.awaits_open = true;
        self.report.report_all();
    }

    /// Whether a report of all held data is incomplete: the next Held is a part of it.
    #[must_use]
    pub const fn reports_all(&self) -> bool {
        self.report.is_of_all()
    }

    /// Restarts a report of all held data, a part of which was lost on an ordered channel.
    pub fn restart_report(&mut self) {
        self.report.report_all();
    }

    /// Joins the stream of another decoder or of the encoder. Repeating the call changes nothing. Returns false if the
    /// stream's cache is larger than this one.
    pub fn join_stream(&mut self, now: Instant, position: &StreamPosition) -> bool {
        let granules = u64::from(position.granules);
        if granules == 0 || granules > self.store.granules_max() {
            return false;
        }
        let is_same = self.stream.is_some_and(|stream| stream.epoch == position.epoch);
        if is_same && self.store.granules() == granules {
            self.store.next = self.store.next.max(position.next);
            self.check_order(now, position.next);
        } else {
            self.open(now, (position.epoch, granules, position.next), position.parent);
        }
        true
    }

    /// The stream that it follows, for others to join. None: it follows none.
    #[must_use]
    pub fn stream_position(&self) -> Option<StreamPosition> {
        let stream = self.stream?;
        let (granules, next) = (self.store.granules() as u32, self.sure_next());
        Some(StreamPosition { epoch: stream.epoch, granules, next, parent: stream.former })
    }

    /// The epoch of the stream that it follows, if any.
    #[must_use]
    pub fn epoch(&self) -> Option<u32> {
        self.stream.map(|stream| stream.epoch)
    }

    /// The number behind the last known one.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.store.next
    }

    /// Numbers within the cache that blocks can still reference: the maximum that may be held.
    #[must_use]
    pub fn numbers_of_use(&self) -> Range<u64> {
        let granules = self.store.granules();
        self.store.next.saturating_sub(granules - granules / MARGIN_DIVISOR as u64)..self.store.next
    }

    /// Classifies the useful numbers of the range: held and confirmed, held and unconfirmed, and missing.
    #[must_use]
    pub fn count(&self, range: &Range<u64>) -> Held {
        let of_use = self.numbers_of_use();
        let range = range.start.max(of_use.start)..range.end.min(of_use.end);
        if range.is_empty() {
            return Held::default();
        }
        let (held, unconfirmed) = (self.store.count_held(range.clone()), self.count_unconfirmed(&range));
        Held { confirmed: held.saturating_sub(unconfirmed), unconfirmed, missing: range.end - range.start - held }
    }

    /// Searches for missing data, the newest first. Appends ranges of missing numbers before `before` to `missing`,
    /// until these are `missing_max` or `looked_at_max` numbers were examined. A range is no longer than a Fill.
    /// Returns the number before which the next search starts.
    #[must_use]
    pub fn find_missing(
        &self,
        before: u64,
        [looked_at_max, missing_max]: [u64; 2],
        missing: &mut Vec<Range<u64>>,
    ) -> u64 {
        let of_use = self.numbers_of_use();
        let mut reached = before.min(of_use.end);
        let end = reached.saturating_sub(looked_at_max).max(of_use.start);
        let mut found = 0;
        while reached > end && found < missing_max {
            reached -= 1;
            let number = reached;
            if self.store.holds(number) {
                continue;
            }
            found += 1;
            match missing.last_mut() {
                Some(last) if last.start == number + 1 && last.end - number <= FILL_GRANULES_MAX as u64 => {
                    last.start = number;
                }
                _ => missing.push(number..number + 1),
            }
        }
        reached
    }

    /// Writes a reply for the beginning of the requested range into `out`, replacing earlier content: a Fill, or a Gone
    /// if it is missing here. Returns the number of granules covered. Zero means that no stream is followed, or that
    /// the first granule is unconfirmed: the request must be repeated.
    pub fn write_reply(&self, range: &Range<u64>, out: &mut Vec<u8>) -> u64 {
        let Some(stream) = self.stream else { return 0 };
        let (epoch, count) = (stream.epoch, range.end.saturating_sub(range.start).min(FILL_GRANULES_MAX as u64));
        let (wanted, granules) = (range.start..range.start + count, self.store.granules());
        let is_held = |number: &u64| {
            self.store.holds(*number) && !self.store.is_stale(*number) && !self.implied.is_unconfirmed(*number)
        };
        // A Fill does not wrap around the ring's end.
        let room = granules - range.start % granules;
        let held = wanted.clone().take(room as usize).take_while(is_held).count() as u64;
        if held > 0 {
            let position = range.start * GRANULE_BYTES as u64;
            if let Some(place) = self.store.range(position, held as usize * GRANULE_BYTES) {
                Control::Fill { epoch, number: range.start, bytes: self.store.bytes(place) }.write(out);
                return held;
            }
        }
        let is_unconfirmed = |number: &u64| self.store.holds(*number) && self.implied.is_unconfirmed(*number);
        let gone = wanted.take_while(|number| !is_held(number) && !is_unconfirmed(number)).count() as u64;
        if gone > 0 {
            Control::Gone { epoch, ranges: core::iter::once(range.start..range.start + gone).collect() }.write(out);
        }
        gone
    }

    /// Returns the counters and resets them.
    pub fn take_counters(&mut self) -> DecoderCounters {
        core::mem::take(&mut self.counters)
    }
}
