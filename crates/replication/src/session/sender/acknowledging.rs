//! Acknowledgements and waiting for them.

use flow::Instant;
use flow::serial::is_before;

use super::changes::Loss;
use super::full_sync::Stage;
use super::{Sender, Sent};
use crate::loss_recovery::NeverSent;
use crate::message::{AckView, NumberRange};
use crate::session::{Handle, SessionConfig};

impl Sender {
    /// The peer acknowledges messages. Every message below `ack.next` was received, or its connection's state is retransmitted under a new
    /// number.
    pub(in crate::session) fn acknowledged(&mut self, now: Instant, ack: &AckView<'_>) -> Result<(), NeverSent> {
        self.recovery.on_ack(now, ack.next, ack.held)?;
        let mut missing = ack.missing().peekable();
        while let Some((number, sent)) = self.recovery.pop_settled(ack.next) {
            while missing.next_if(|range: &NumberRange| !is_before(number, range.end)).is_some() {}
            if missing.peek().is_some_and(|range| range.contains(number)) {
                self.lost(sent, number);
            } else {
                self.received(sent, number);
            }
        }
        Ok(())
    }

    fn received(&mut self, sent: Sent, number: u32) {
        match sent {
            Sent::Change(handle) => self.changes.received(handle, number),
            Sent::Deletion(id) => self.deletions.release(id),
            Sent::ResyncEnd if self.full_sync.stage == Stage::Ending => self.full_sync.stage = Stage::Done,
            Sent::ResyncEnd => {}
        }
    }

    fn lost(&mut self, sent: Sent, number: u32) {
        self.counters.lost += 1;
        match sent {
            Sent::Change(handle) => self.lost_change(handle, number),
            Sent::Deletion(id) => {
                self.counters.resent += 1;
                self.deletions.requeue(id);
            }
            Sent::ResyncEnd if self.full_sync.stage == Stage::Ending => {
                self.full_sync.stage = Stage::Settling { barrier: number };
            }
            Sent::ResyncEnd => {}
        }
    }

    fn lost_change(&mut self, handle: Handle, number: u32) {
        let concerns_full_sync = self.full_sync.concerns(number);
        match self.changes.lost(handle, number) {
            Loss::Moot => {}
            Loss::NewerInFlight(newer) if concerns_full_sync => self.full_sync.extend_barrier(newer),
            Loss::NewerInFlight(_) => {}
            Loss::Queued => {
                self.counters.resent += 1;
                if concerns_full_sync {
                    self.changes.add_to_round(handle);
                }
            }
            Loss::Overflow => self.leave_out(),
        }
    }

    /// When `fill` has deferred work to do.
    pub(in crate::session) fn resume_at(&self, config: &SessionConfig) -> Option<Instant> {
        let company =
            self.waiting_since.filter(|_| self.recovery.in_flight() < usize::from(config.in_flight_messages_max));
        [self.full_sync_resumes_at, company.map(|since| since + config.batch_delay)].into_iter().flatten().min()
    }
}
