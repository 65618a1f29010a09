//! The peer's acknowledgements of this node's messages.

use flow::Instant;

use super::Sender;
use super::log::Sent;
use crate::conntrackd::message::Range;
use crate::loss_recovery::NeverSent;

impl Sender {
    pub(in crate::conntrackd) fn acknowledged(&mut self, now: Instant, range: Range) -> Result<(), NeverSent> {
        for offset in self.log.in_flight(range).ok_or(NeverSent)? {
            match self.log.take(offset) {
                (Sent::Connection(handle), number) => self.connections.marks.received(handle, number),
                (Sent::Expectation(handle), number) => self.expectations.marks.received(handle, number),
                (Sent::ConnectionEnd(id), _) => self.connections.endings.release(id),
                (Sent::ExpectationEnd(id), _) => self.expectations.endings.release(id),
                (Sent::Resync, _) => self.is_resync_acknowledged = true,
                (Sent::Nothing | Sent::Ack(_) | Sent::Nack(_), _) => {}
            }
        }
        self.trim();
        if core::mem::take(&mut self.resync_pending) {
            self.ask_for_everything();
        }
        self.unanswered_since = Some(now).filter(|_| self.log.awaited() > 0);
        Ok(())
    }

    /// The peer asks for what it did not receive.
    pub(in crate::conntrackd) fn missing(&mut self, now: Instant, range: Range) -> Result<(), NeverSent> {
        for offset in self.log.in_flight(range).ok_or(NeverSent)? {
            self.lost(offset);
        }
        self.trim();
        if core::mem::take(&mut self.resync_pending) {
            self.ask_for_everything();
        }
        self.unanswered_since = Some(now).filter(|_| self.log.awaited() > 0);
        Ok(())
    }

    /// Queues the content of a lost message again, as far as it is still worth sending.
    pub(super) fn lost(&mut self, offset: u32) {
        let (sent, number) = self.log.take(offset);
        let is_resent = match sent {
            Sent::Nothing => return,
            Sent::Connection(handle) => self.connections.marks.lost(handle, number),
            Sent::Expectation(handle) => self.expectations.marks.lost(handle, number),
            Sent::ConnectionEnd(id) => {
                self.connections.endings.requeue(id);
                true
            }
            Sent::ExpectationEnd(id) => {
                self.expectations.endings.requeue(id);
                true
            }
            control @ (Sent::Ack(_) | Sent::Nack(_) | Sent::Resync) => {
                self.controls.push(control);
                true
            }
        };
        self.counters.lost += 1;
        self.counters.resent += u64::from(is_resent);
    }

    pub(super) fn trim(&mut self) {
        self.log.trim();
        if self.log.awaited() == 0 {
            (self.tail, self.unanswered_since) = (None, None);
        }
    }

    /// What the receiving half acknowledges.
    pub(in crate::conntrackd) fn acknowledge(&mut self, range: Range) {
        self.controls.push(Sent::Ack(range));
    }

    /// As [`Sender::acknowledge`].
    pub(in crate::conntrackd) fn ask_for(&mut self, range: Range) {
        self.controls.push(Sent::Nack(range));
    }
}
