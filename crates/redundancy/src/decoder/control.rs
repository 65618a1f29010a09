//! Messages between the decoder and its encoder. For the whole of the handshake, see the encoder's side.
//!
//! A Hello is answered by a challenge with a new cookie; only an Open with the last cookie is accepted. A delayed
//! message therefore cannot reopen an old stream.

use alloc::vec::Vec;

use flow::Instant;

use super::stream::{Cookies, Stream};
use super::{Decoder, RETRY_INTERVAL};
use crate::limits::RANGES_MAX;
use crate::wire::control::{Control, ControlError, NumberRanges, Parent};

impl Decoder {
    /// Handles a message from the encoder's side.
    ///
    /// # Errors
    /// It is malformed or not for a decoder. Nothing changes.
    pub fn handle_control(&mut self, now: Instant, message: &[u8]) -> Result<(), ControlError> {
        match Control::parse(message)? {
            Control::Hello { epoch } => {
                // A repeated Hello gets the same cookie, unless that was used: otherwise two crossing Hellos would
                // never complete the handshake.
                if self.cookies.epoch != epoch || self.cookies.used == Some(self.cookies.given) {
                    self.cookies = Cookies { given: self.cookies.given.wrapping_add(1), epoch, ..self.cookies };
                }
                let (decoder, cookie, granules) = (self.id, self.cookies.given, self.store.granules_max() as u32);
                self.send(Control::Challenge { epoch, decoder, cookie, granules });
            }
            Control::Open { epoch, decoder, cookie, granules, next, parent } => {
                let is_first = self.awaits_open && (decoder, cookie) == (self.id, 0);
                let is_last = decoder == self.id && cookie == self.cookies.given && epoch == self.cookies.epoch;
                let is_repeated = !self.awaits_open && (decoder, cookie) == (self.id, 0) && !is_last;
                if is_repeated && self.stream.is_some_and(|stream| stream.epoch == epoch) {
                    self.confirm_order(now, next);
                    return Ok(());
                }
                let is_fit = granules > 0 && u64::from(granules) <= self.store.granules_max();
                if !(is_last || is_first) || !is_fit {
                    return Ok(());
                }
                if is_first {
                    // The data held has been reported, or is being reported, since the channel was replaced.
                    let report = core::mem::take(&mut self.report);
                    self.open(now, (epoch, u64::from(granules), next), parent);
                    self.report = report;
                    return Ok(());
                }
                if self.cookies.used != Some(cookie) {
                    self.cookies.used = Some(cookie);
                    self.open(now, (epoch, u64::from(granules), next), parent);
                }
                self.send(Control::Opened { epoch, decoder, cookie });
            }
            Control::Fill { epoch, number, bytes } => {
                if self.stream.is_some_and(|stream| stream.epoch == epoch) {
                    self.handle_fill(number, bytes);
                }
            }
            Control::Gone { epoch, ranges } => {
                if self.stream.is_some_and(|stream| stream.epoch == epoch) {
                    self.handle_gone(&ranges);
                }
            }
            other => return Err(ControlError::Kind(other.kind())),
        }
        Ok(())
    }

    /// Writes the next message to the encoder into `out`, replacing earlier content. Returns false when there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if let Some(message) = self.outbox.pop_front() {
            message.write(out);
            return true;
        }
        let Some(stream) = self.stream.or(self.parked) else { return false };
        let (epoch, decoder) = (stream.epoch, self.id);
        if let Some(from) = self.report.all_from {
            let mut ranges = NumberRanges::new();
            let mut at = from;
            while ranges.len() < RANGES_MAX
                && let Some(range) = self.store.next_held(at).filter(|range| range.start < self.sure_next())
            {
                at = range.end;
                ranges.push(range.start..range.end.min(self.sure_next()));
            }
            self.report.all_from = (ranges.len() == RANGES_MAX).then_some(at);
            if !ranges.is_empty() {
                Control::Held { epoch, decoder, ranges }.write(out);
                return true;
            }
        }
        if self.report.due_at().is_some_and(|due| due <= now) {
            let ranges = self.report.take();
            Control::Held { epoch, decoder, ranges }.write(out);
            return true;
        }
        false
    }

    pub(super) fn open(&mut self, now: Instant, (epoch, granules, next): (u32, u64, u64), parent: Option<Parent>) {
        self.awaits_open = false;
        let current = self.stream.or(self.parked.take()).filter(|_| self.store.granules() == granules);
        let heir = parent.filter(|parent| current.is_some_and(|current| current.epoch == parent.epoch));
        match (current, heir) {
            // The same stream: the encoder requests a report.
            (Some(current), _) if current.epoch == epoch => {
                self.store.next = self.store.next.max(next);
                self.stream = Some(current);
            }
            (_, Some(parent)) => {
                self.store.discard_from(parent.fork, next);
                self.stream = Some(Stream { epoch, former: Some(parent) });
            }
            _ => {
                self.store.reset(granules, next);
                self.stream = Some(Stream { epoch, former: None });
            }
        }
        self.begin_order(next);
        self.report.report_all();
        self.stale_in_a_row = 0;
        self.unknown_sent_at = None;
        self.is_news = true;
        // Blocks that wait for this stream request their missing data.
        self.request_missing(now);
    }

    pub(super) fn reset_stream(&mut self) {
        self.stream = None;
        self.lose_order();
        self.stale_in_a_row = 0;
    }

    /// Reports a block of an unknown epoch, at a limited rate.
    pub(super) fn send_unknown(&mut self, now: Instant, tag: u8) {
        if self.unknown_sent_at.is_some_and(|sent_at| now.saturating_since(sent_at) < RETRY_INTERVAL) {
            return;
        }
        self.unknown_sent_at = Some(now);
        self.send(Control::Unknown { decoder: self.id, tag });
    }
}
