//! Messages between the encoder and its decoder; see [`Link`] for how they come together.

use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;

use super::Encoder;
use super::link::Link;
use crate::limits::GRANULE_BYTES;
use crate::wire::control::{Control, ControlError};
use crate::wire::shim::tag_of;

/// An answer is waited for so long before the question is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// So often an Open is repeated before all begins anew.
const OPENS_MAX: u32 = 5;

impl Encoder {
    /// Handles a message from the decoder's side.
    ///
    /// # Errors
    /// It is malformed or not for an encoder. Nothing changes.
    pub fn handle_control(&mut self, now: Instant, message: &[u8]) -> Result<(), ControlError> {
        match Control::parse(message)? {
            Control::Challenge { epoch, decoder, cookie, granules } => {
                // A decoder with less memory than the stream needs is not one for it.
                if epoch == self.epoch && !self.link.is_open() && u64::from(granules) >= self.granules {
                    self.link = Link::Opening { decoder, cookie, again_at: now, sent: 0 };
                }
            }
            Control::Opened { epoch, decoder, cookie } => self.handle_opened([epoch, decoder, cookie]),
            Control::Held { epoch, decoder, mut ranges } if self.numbers_of(epoch).is_some() => {
                let known = self.numbers_of(epoch).unwrap_or_default();
                if self.hears(now, decoder) {
                    ranges.retain(|range| range.start < known.end);
                    ranges.iter_mut().for_each(|range| range.end = range.end.min(known.end));
                    self.handle_held(&ranges);
                }
            }
            Control::Missing { epoch, decoder, ranges } if epoch == self.epoch => {
                if self.hears(now, decoder) {
                    self.handle_missing(&ranges);
                }
            }
            Control::Unknown { tag, .. } if self.link.is_open() && tag == tag_of(self.epoch) => self.greet(now),
            Control::Held { .. } | Control::Missing { .. } | Control::Unknown { .. } => {}
            other => return Err(ControlError::Kind(other.kind())),
        }
        Ok(())
    }

    /// Whether it is the decoder that this stream is open with. Another one's word means that there is another one now.
    fn hears(&mut self, now: Instant, decoder: u32) -> bool {
        let is_of = self.link.is_of(decoder);
        if self.link.is_open() && !is_of {
            self.greet(now);
        }
        is_of
    }

    fn greet(&mut self, now: Instant) {
        self.link = Link::Greeting { again_at: now };
        self.requests.clear();
    }

    fn handle_opened(&mut self, answer: [u32; 3]) {
        if let Link::Opening { decoder, cookie, .. } = self.link
            && answer == [self.epoch, decoder, cookie]
        {
            self.link = Link::Open { decoder };
            self.view.forget();
            self.counters.openings += 1;
        }
    }

    /// When [`Encoder::handle_timeout`] wants to be called.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.link {
            Link::Greeting { again_at } | Link::Opening { again_at, .. } => Some(again_at),
            Link::Open { .. } => None,
        }
    }

    /// Time has passed: a decoder that was challenged for an Open that never comes through is greeted again.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Link::Opening { again_at, sent, .. } = self.link
            && sent >= OPENS_MAX
            && again_at <= now
        {
            self.link = Link::Greeting { again_at: now };
        }
    }

    /// The next message to the decoder, in place of what was in `out`. Returns false when there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if core::mem::take(&mut self.is_to_open) {
            self.is_unconfirmed = false;
            self.opening().write(out);
            return true;
        }
        match &mut self.link {
            Link::Greeting { again_at } if *again_at <= now => {
                *again_at = now + ASK_AGAIN;
                Control::Hello { epoch: self.epoch }.write(out);
                true
            }
            Link::Opening { decoder, cookie, again_at, sent } if *again_at <= now && *sent < OPENS_MAX => {
                *again_at = now + ASK_AGAIN;
                *sent += 1;
                let (granules, next) = (self.granules as u32, self.placement.next());
                let (epoch, decoder, cookie, parent) = (self.epoch, *decoder, *cookie, self.parent);
                Control::Open { epoch, decoder, cookie, granules, next, parent }.write(out);
                true
            }
            Link::Open { .. } => self.poll_repair(out),
            Link::Greeting { .. } | Link::Opening { .. } => false,
        }
    }
}

const _: () = assert!(crate::limits::CACHE_BYTES_MAX / GRANULE_BYTES <= u32::MAX as usize);
