//! Acknowledgements and waiting for them.

use core::time::Duration;

use flow::Instant;
use flow::serial::is_before;

use super::changes::Loss;
use super::walk::Stage;
use super::{NeverSent, Sender, Sent};
use crate::message::{AckView, NumberRange};
use crate::session::{Handle, SessionConfig};

impl Sender {
    /// The peer says what it received. Everything that it speaks of is done with: received, or to be told again under a
    /// new number. An acknowledgement older than one seen changes nothing.
    pub(in crate::session) fn acknowledged(&mut self, now: Instant, ack: &AckView<'_>) -> Result<(), NeverSent> {
        if is_before(self.next, ack.next) {
            return Err(NeverSent);
        }
        let base = self.base();
        if !is_before(base, ack.next) {
            return Ok(());
        }
        let mut missing = ack.missing().peekable();
        let mut number = base;
        while number != ack.next {
            let Some(sent) = self.log.pop_front() else { break };
            while missing.next_if(|range: &NumberRange| !is_before(number, range.end)).is_some() {}
            if missing.peek().is_some_and(|range| range.contains(number)) {
                self.lost(sent, number);
            } else {
                self.received(sent, number);
            }
            number = number.wrapping_add(1);
        }
        self.measure_round_trip(now, ack);
        self.probes = 0;
        Ok(())
    }

    fn received(&mut self, sent: Sent, number: u32) {
        match sent {
            Sent::Change(handle) => self.changes.received(handle, number),
            Sent::Deletion(id) => self.deletions.release(id),
            Sent::ResyncEnd if self.walk.stage == Stage::Ending => self.walk.stage = Stage::Done,
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
            Sent::ResyncEnd if self.walk.stage == Stage::Ending => {
                self.walk.stage = Stage::Settling { barrier: number };
            }
            Sent::ResyncEnd => {}
        }
    }

    fn lost_change(&mut self, handle: Handle, number: u32) {
        let concerns_walk = self.walk.concerns(number);
        match self.changes.lost(handle, number) {
            Loss::Moot => {}
            Loss::NewerInFlight(newer) if concerns_walk => self.walk.extend_barrier(newer),
            Loss::NewerInFlight(_) => {}
            Loss::Queued => {
                self.counters.resent += 1;
                if concerns_walk {
                    self.changes.owe(handle);
                }
            }
            Loss::Overflow => self.leave_out(),
        }
    }

    fn measure_round_trip(&mut self, now: Instant, ack: &AckView<'_>) {
        while let Some(datagram) = self.datagrams.front().copied() {
            if is_before(ack.next, datagram.end) {
                break;
            }
            self.datagrams.pop_front();
            if datagram.end == ack.next {
                self.round_trip.measured(now.saturating_since(datagram.at).saturating_sub(ack.held));
            }
        }
    }

    /// When to ask the peer what became of the oldest message in flight.
    pub(in crate::session) fn probe_at(&self, config: &SessionConfig) -> Option<Instant> {
        let oldest = self.datagrams.front()?.at;
        let timeout = self.round_trip.probe_timeout(config.probe_timeout_min, config.probe_timeout_max);
        let backed_off: Duration = timeout.saturating_mul(1 << self.probes.min(10)).min(config.probe_timeout_max);
        let since = if self.probes == 0 { oldest + config.ack_delay } else { oldest.max(self.probed_at) };
        Some(since + backed_off)
    }

    /// The peer was asked.
    pub(in crate::session) const fn probed(&mut self, now: Instant) {
        self.probed_at = now;
        self.probes = self.probes.saturating_add(1);
    }

    /// When `fill` has something to do that it put off.
    pub(in crate::session) fn again_at(&self, config: &SessionConfig) -> Option<Instant> {
        let company = self.waiting_since.filter(|_| self.log.len() < usize::from(config.in_flight_messages_max));
        [self.walk_again_at, company.map(|since| since + config.batch_delay)].into_iter().flatten().min()
    }
}
