//! When it is time to send changes.

use flow::Instant;

use super::config::UpdateRule;

/// An [`UpdateRule`] at work.
pub(super) struct Schedule {
    rule: UpdateRule,
    /// Immediate: when the first change that waits was seen.
    waiting_since: Option<Instant>,
    /// Immediate: an establishment is among the changes that wait.
    is_urgent: bool,
    last_at: Option<Instant>,
    /// Threshold: enough has changed, and it is only too soon.
    is_enough: bool,
}

impl Schedule {
    pub(super) const fn new(rule: UpdateRule) -> Self {
        Self { rule, waiting_since: None, is_urgent: false, last_at: None, is_enough: false }
    }

    /// A connection is established.
    pub(super) fn note_establishment(&mut self) {
        self.is_urgent = matches!(self.rule, UpdateRule::Immediate { establishment_at_once: true, .. });
    }

    /// Whether it is time. `changes`: how many changes of `entries` some peer was not sent; `None`: nothing waits for a peer.
    pub(super) fn is_due(&mut self, now: Instant, changes: Option<u64>, entries: u64) -> bool {
        let Some(changes) = changes else {
            (self.waiting_since, self.is_urgent) = (None, false);
            return false;
        };
        match self.rule {
            UpdateRule::Immediate { batch, .. } => {
                let since = *self.waiting_since.get_or_insert(now);
                self.is_urgent || since + batch <= now
            }
            UpdateRule::Periodic(period) => *self.last_at.get_or_insert(now) + period <= now,
            UpdateRule::Threshold { changes_per_mille, at_most_every } => {
                let least = entries.saturating_mul(changes_per_mille.into());
                self.is_enough = changes > 0 && changes.saturating_mul(1000) >= least;
                self.is_enough && self.last_at.is_none_or(|last_at| last_at + at_most_every <= now)
            }
        }
    }

    /// An update has begun.
    pub(super) fn note(&mut self, now: Instant) {
        (self.waiting_since, self.is_urgent, self.is_enough) = (None, false, false);
        self.last_at = Some(now);
    }

    /// When to ask again at the latest, if nothing changes before. Something waits.
    pub(super) fn at(&self) -> Option<Instant> {
        match self.rule {
            UpdateRule::Immediate { batch, .. } => {
                self.waiting_since.map(|since| if self.is_urgent { since } else { since + batch })
            }
            UpdateRule::Periodic(period) => self.last_at.map(|last_at| last_at + period),
            UpdateRule::Threshold { at_most_every, .. } => {
                self.last_at.filter(|_| self.is_enough).map(|last_at| last_at + at_most_every)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn immediate(establishment_at_once: bool) -> UpdateRule {
        UpdateRule::Immediate { batch: Duration::from_millis(10), establishment_at_once }
    }

    #[test]
    fn an_establishment_does_not_wait_for_the_batch() {
        for at_once in [true, false] {
            let mut schedule = Schedule::new(immediate(at_once));
            assert!(!schedule.is_due(at(100), Some(1), 1));
            schedule.note_establishment();
            assert_eq!(schedule.is_due(at(101), Some(2), 1), at_once);
            schedule.note(at(101));
            assert!(!schedule.is_due(at(102), Some(1), 1), "the next change waits again");
        }
    }

    #[test]
    fn an_establishment_that_changed_no_word_hurries_nothing() {
        let mut schedule = Schedule::new(immediate(true));
        schedule.note_establishment();
        assert!(!schedule.is_due(at(100), None, 1));
        assert!(!schedule.is_due(at(101), Some(1), 1));
    }

    #[test]
    fn immediate_is_after_the_first_changes_batch() {
        let mut schedule = Schedule::new(immediate(true));
        assert!(!schedule.is_due(at(100), None, 0));
        assert!(!schedule.is_due(at(100), Some(1), 1) && !schedule.is_due(at(105), Some(9), 9));
        assert_eq!(schedule.at(), Some(at(110)));
        assert!(schedule.is_due(at(110), Some(9), 9));
        schedule.note(at(110));
        assert_eq!(schedule.at(), None);
    }

    #[test]
    fn a_threshold_waits_for_changes_and_for_its_time() {
        let rule = UpdateRule::Threshold { changes_per_mille: 100, at_most_every: Duration::from_secs(1) };
        let mut schedule = Schedule::new(rule);
        assert!(!schedule.is_due(at(0), Some(9), 100) && schedule.is_due(at(0), Some(10), 100));
        schedule.note(at(0));
        assert!(!schedule.is_due(at(500), Some(9), 100));
        assert_eq!(schedule.at(), None, "time alone changes nothing");
        assert!(!schedule.is_due(at(999), Some(50), 100));
        assert_eq!(schedule.at(), Some(at(1000)));
        assert!(schedule.is_due(at(1000), Some(50), 100));
    }

    #[test]
    fn a_period_passes_whatever_changes() {
        let mut schedule = Schedule::new(UpdateRule::Periodic(Duration::from_secs(5)));
        assert!(!schedule.is_due(at(0), Some(9), 9) && !schedule.is_due(at(4999), Some(9), 9));
        assert!(schedule.is_due(at(5000), Some(9), 9));
        schedule.note(at(5000));
        assert!(!schedule.is_due(at(9999), Some(9), 9));
    }
}
