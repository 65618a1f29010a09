//! When an acknowledgement is due.

use core::time::Duration;

use flow::Instant;

/// Acknowledgements are delayed, so that one covers several datagrams (RFC 9000, section 13.2).
#[derive(Clone, Debug, Default)]
pub struct AckTimer {
    due_at: Option<Instant>,
    unacknowledged: u32,
}

impl AckTimer {
    /// Something was received: the acknowledgement is due after `delay`, or at once if this is the `every`th since the last one.
    pub fn on_received(&mut self, now: Instant, every: u32, delay: Duration) {
        self.unacknowledged += 1;
        self.set_due(if self.unacknowledged >= every { now } else { now + delay });
    }

    /// An acknowledgement is due at this time, if none is due earlier.
    pub fn set_due(&mut self, at: Instant) {
        self.due_at = Some(self.due_at.map_or(at, |due_at| due_at.min(at)));
    }

    /// When the acknowledgement is due; `None` if there is nothing to acknowledge.
    #[must_use]
    pub const fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    /// Whether the acknowledgement is due.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.due_at.is_some_and(|at| at <= now)
    }

    /// The acknowledgement was sent.
    pub const fn on_ack_sent(&mut self) {
        *self = Self { due_at: None, unacknowledged: 0 };
    }
}

#[cfg(test)]
impl AckTimer {
    /// Appends what its future depends on: times as seen from `now`.
    pub(crate) fn normal_form(&self, now: Instant, out: &mut alloc::vec::Vec<u64>) {
        let Self { due_at, unacknowledged } = self;
        let until = due_at.map_or(0, |at| at.saturating_since(now).as_micros() as u64 + 1);
        out.extend([u64::from(*unacknowledged), until]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_waits_for_others_until_there_are_enough() {
        let (at, delay) = (Instant::from_millis, Duration::from_millis(2));
        let mut timer = AckTimer::default();
        timer.on_received(at(10), 3, delay);
        timer.on_received(at(11), 3, delay);
        assert_eq!(timer.due_at(), Some(at(12)), "the first counts");
        assert!(!timer.is_due(at(11)) && timer.is_due(at(12)));
        timer.on_ack_sent();
        assert_eq!(timer.due_at(), None);
        (0..3).for_each(|_| timer.on_received(at(20), 3, delay));
        assert!(timer.is_due(at(20)));
    }
}
