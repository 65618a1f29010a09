//! What waits to be sent: messages first, then parts of indexes at a limited rate.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId, RateLimit, TokenBucket};

use super::Receiver;
use crate::index::{Increment, OwnIndex};

/// Parts of indexes that may not be sent yet are looked at again after this time.
const PACE: Duration = Duration::from_millis(1);

/// See the [module](self).
#[derive(Default)]
pub(super) struct Transmits {
    messages: VecDeque<(Receiver, Vec<u8>)>,
    increments: VecDeque<(Receiver, Increment)>,
    bucket: TokenBucket,
    /// Parts of indexes wait for their turn until then.
    paused_until: Option<Instant>,
    /// What found no room.
    pub(super) refused: u64,
}

impl Transmits {
    fn has_room(&mut self, transmits_max: usize) -> bool {
        let has_room = self.messages.len() + self.increments.len() < transmits_max;
        self.refused += u64::from(!has_room);
        has_room
    }

    pub(super) fn push_message(&mut self, transmits_max: usize, to: Receiver, message: Vec<u8>) {
        if self.has_room(transmits_max) {
            self.messages.push_back((to, message));
        }
    }

    pub(super) fn push_increment(&mut self, transmits_max: usize, to: Receiver, increment: Increment) {
        if self.has_room(transmits_max) {
            self.increments.push_back((to, increment));
        }
    }

    /// Whether a whole index waits to be sent to a node.
    pub(super) fn has_whole(&self, node: NodeId) -> bool {
        self.increments.iter().any(|(to, increment)| *to == Receiver::Node(node) && increment.is_whole())
    }

    /// Appends the next message to `bytes`.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        own: &OwnIndex,
        parts: &RateLimit,
        bytes: &mut Vec<u8>,
    ) -> Option<Receiver> {
        if let Some((to, message)) = self.messages.pop_front() {
            bytes.extend_from_slice(&message);
            return Some(to);
        }
        self.end_pause(now);
        if self.paused_until.is_some() {
            return None;
        }
        while let Some((to, increment)) = self.increments.front_mut() {
            let to = *to;
            if increment.is_sent() {
                self.increments.pop_front();
            } else if self.bucket.take(now, parts) {
                own.encode_next(increment, bytes);
                return Some(to);
            } else {
                self.paused_until = Some(now + PACE);
                break;
            }
        }
        None
    }

    /// The time of a pause may be over.
    pub(super) fn end_pause(&mut self, now: Instant) {
        self.paused_until = self.paused_until.filter(|until| now < *until);
    }

    /// When [`Transmits::poll`] may go on after a pause.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.paused_until
    }
}
