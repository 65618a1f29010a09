//! Messages between the encoder and its decoder; see [`Link`] for how they come together.

use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;

use super::Encoder;
use super::link::Link;
use crate::limits::GRANULE_BYTES;
use crate::wire::control::{Control, ControlError};
use crate::wire::shim::tag_of;

/// The interval after which an unanswered message is repeated.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The number of repetitions of an Open after which the handshake restarts.
const OPENS_MAX: u32 = 5;

impl Encoder {
    /// Handles a message from the decoder's side.
    ///
    /// # Errors
    /// It is malformed or not for an encoder. Nothing changes.
    pub fn handle_control(&mut self, now: Instant, message: &[u8]) -> Result<(), ControlError> {
        match Control::parse(message)? {
            Control::Challenge { epoch, decoder, cookie, granules } => {
                // A decoder with less memory than the stream needs is unsuitable.
                if epoch == self.epoch && !self.link.is_open() && u64::from(granules) >= self.granules {
                    self.link = Link::Challenged { decoder, cookie, retry_at: now, sent: 0 };
                }
            }
            Control::Opened { epoch, decoder, cookie } => self.handle_opened([epoch, decoder, cookie]),
            Control::Held { epoch, decoder, mut ranges } if self.numbers_of(epoch).is_some() => {
                let known = self.numbers_of(epoch).unwrap_or_default();
                if self.accept_decoder(now, decoder) {
                    ranges.retain(|range| range.start < known.end);
                    ranges.iter_mut().for_each(|range| range.end = range.end.min(known.end));
                    self.handle_held(&ranges);
                }
            }
            Control::Missing { epoch, decoder, ranges } if epoch == self.epoch => {
                if self.accept_decoder(now, decoder) {
                    self.handle_missing(&ranges);
                }
            }
            Control::Unknown { tag, .. } if self.link.is_open() && tag == tag_of(self.epoch) => self.send_hello(now),
            Control::Held { .. } | Control::Missing { .. } | Control::Unknown { .. } => {}
            other => return Err(ControlError::Kind(other.kind())),
        }
        Ok(())
    }

    /// Whether the message is from the decoder of the open stream. A message of another decoder means that it was
    /// replaced.
    fn accept_decoder(&mut self, now: Instant, decoder: u32) -> bool {
        let is_of = self.link.is_of(decoder);
        if self.link.is_open() && !is_of {
            self.send_hello(now);
        }
        is_of
    }

    fn send_hello(&mut self, now: Instant) {
        self.link = Link::Hello { retry_at: now };
        self.requests.clear();
    }

    fn handle_opened(&mut self, answer: [u32; 3]) {
        if let Link::Challenged { decoder, cookie, .. } = self.link
            && answer == [self.epoch, decoder, cookie]
        {
            self.link = Link::Open { decoder };
            self.view.forget();
            self.counters.hellos_sent += 1;
        }
    }

    /// When [`Encoder::handle_timeout`] wants to be called.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.link {
            Link::Hello { retry_at } | Link::Challenged { retry_at, .. } => Some(retry_at),
            Link::Open { .. } => None,
        }
    }

    /// Handles the passage of time: if no Open gets through after a challenge, a Hello is sent.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Link::Challenged { retry_at, sent, .. } = self.link
            && sent >= OPENS_MAX
            && retry_at <= now
        {
            self.link = Link::Hello { retry_at: now };
        }
    }

    /// Writes the next message to the decoder into `out`, replacing earlier content. Returns false when there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if core::mem::take(&mut self.is_to_open) {
            self.is_unconfirmed = false;
            self.stream_position().write(out);
            return true;
        }
        match &mut self.link {
            Link::Hello { retry_at } if *retry_at <= now => {
                *retry_at = now + RETRY_INTERVAL;
                Control::Hello { epoch: self.epoch }.write(out);
                true
            }
            Link::Challenged { decoder, cookie, retry_at, sent } if *retry_at <= now && *sent < OPENS_MAX => {
                *retry_at = now + RETRY_INTERVAL;
                *sent += 1;
                let (granules, next) = (self.granules as u32, self.placement.next());
                let (epoch, decoder, cookie, parent) = (self.epoch, *decoder, *cookie, self.parent);
                Control::Open { epoch, decoder, cookie, granules, next, parent }.write(out);
                true
            }
            Link::Open { .. } => self.poll_repair(out),
            Link::Hello { .. } | Link::Challenged { .. } => false,
        }
    }
}

const _: () = assert!(crate::limits::CACHE_BYTES_MAX / GRANULE_BYTES <= u32::MAX as usize);
