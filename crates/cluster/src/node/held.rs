//! First replies that wait until a backup knows their connection.
//!
//! Replication is asynchronous: a connection that is established a moment before its node dies may be unknown to the backup
//! (FT-FW, section 6.1). Keeping back the *first* answer, for example a SYN/ACK, until the backup has confirmed the connection
//! closes that gap for the price of one round trip to the backup per connection.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::table::Slot;
use flow::{Frame, Instant, OwnedFrame};

/// The most replies kept back; when there are as many, the next is let through at once.
pub const HELD_REPLIES_MAX: usize = 4096;
/// The largest reply kept back, in bytes: a first answer is small, and what is not is let through.
pub const HELD_REPLY_BYTES_MAX: usize = 2048;

/// A reply kept back.
#[derive(Debug)]
struct HeldReply {
    slot: Slot,
    deadline: Instant,
    frame: OwnedFrame,
}

/// Replies kept back, oldest first.
#[derive(Debug, Default)]
pub(super) struct HeldReplies {
    queue: VecDeque<HeldReply>,
    /// Replies kept back so far.
    pub(super) held: u64,
    /// Replies sent without a backup's confirmation: their time was over, or there was no room to keep them.
    pub(super) overdue: u64,
}

impl HeldReplies {
    /// Keeps a copy of the packet; false when there is no room for it, which counts as overdue.
    pub(super) fn hold(&mut self, now: Instant, hold_max: Duration, slot: Slot, frame: &Frame<'_>) -> bool {
        if self.queue.len() >= HELD_REPLIES_MAX || frame.bytes().len() > HELD_REPLY_BYTES_MAX {
            self.overdue += 1;
            return false;
        }
        self.queue.push_back(HeldReply { slot, deadline: now + hold_max, frame: OwnedFrame::copy_of(frame) });
        self.held += 1;
        true
    }

    /// Takes out the replies whose connection is confirmed or whose time is over.
    pub(super) fn release(&mut self, now: Instant, is_confirmed: impl Fn(Slot) -> bool) -> Vec<OwnedFrame> {
        let mut released = Vec::new();
        for _ in 0..self.queue.len() {
            let Some(reply) = self.queue.pop_front() else { break };
            let confirmed = is_confirmed(reply.slot);
            if confirmed || reply.deadline <= now {
                self.overdue += u64::from(!confirmed);
                released.push(reply.frame);
            } else {
                self.queue.push_back(reply);
            }
        }
        released
    }

    /// When the first of them is overdue.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.queue.front().map(|reply| reply.deadline)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::PortId;

    #[test]
    fn a_reply_without_room_is_counted() {
        let mut held = HeldReplies::default();
        let mut bytes = [0; HELD_REPLY_BYTES_MAX + 1];
        let hold = |held: &mut HeldReplies, bytes: &mut [u8]| {
            let length_bytes = bytes.len();
            let frame = Frame::new(bytes, 0, length_bytes, PortId(0)).expect("it fits");
            held.hold(Instant::ZERO, Duration::from_millis(1), Slot(0), &frame)
        };
        assert!(!hold(&mut held, &mut bytes), "it is too large");
        assert_eq!((held.held, held.overdue), (0, 1));
        for _ in 0..HELD_REPLIES_MAX {
            assert!(hold(&mut held, &mut bytes[..60]));
        }
        assert!(!hold(&mut held, &mut bytes[..60]), "there are too many");
        assert_eq!((held.held, held.overdue), (HELD_REPLIES_MAX as u64, 2));
    }
}
