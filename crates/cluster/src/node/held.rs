//! First replies that wait until a backup knows their connection.
//!
//! Replication is asynchronous: a connection that is established a moment before its node dies may be unknown to the backup
//! (FT-FW, section 6.1). Keeping back the *first* answer, for example a SYN/ACK, until the backup has confirmed the connection
//! closes that gap for the price of one round trip to the backup per connection.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::table::Slot;
use flow::wire::Packet;
use flow::{Instant, OwnedFrame};

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
    /// Replies let go because their time was over, not because a backup confirmed.
    pub(super) overdue: u64,
}

impl HeldReplies {
    /// Keeps a copy of the packet; false when there is no room for it.
    pub(super) fn hold(&mut self, now: Instant, hold_max: Duration, slot: Slot, packet: &Packet<'_, '_>) -> bool {
        if self.queue.len() >= HELD_REPLIES_MAX || packet.frame.bytes().len() > HELD_REPLY_BYTES_MAX {
            return false;
        }
        self.queue.push_back(HeldReply { slot, deadline: now + hold_max, frame: OwnedFrame::copy_of(packet.frame) });
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
