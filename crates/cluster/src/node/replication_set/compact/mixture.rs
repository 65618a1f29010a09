//! Which connections are replicated precisely beside the others that are in the filter: chosen by what a failover would lose.
//!
//! What a filter holds comes back when its next packet comes, in its state, while the recovery lasts. So a failover loses
//!
//! 1. what the filter had no room for, and what the functions cannot make again from the tuple: at once, so these are
//!    replicated precisely at once;
//! 2. what sends nothing for as long as a recovery lasts, or is idle through two failovers: connections that have lived long,
//!    as a rule. These are replicated precisely from a certain age on, the oldest first.
//!
//! Short connections are most of all changes and the least of all losses; they stay in the filter. Precise messages and the
//! filter share a budget of bytes: a half of it is kept for each, and what either does not use is the other's. When it is used
//! up the next oldest waits, so that as many of the longest-lived are replicated precisely as the budget allows.

use alloc::collections::VecDeque;
use core::time::Duration;

use flow::Instant;
use flow::table::Slot;

/// Connections that grow old, and may have ended since, at most: so many times as the table holds.
const GROWING_OLD_PER_CONNECTION_MAX: usize = 2;
/// Beyond what a second gives, no budget is saved up.
const SAVED_MAX: Duration = Duration::from_secs(1);

/// Which connections are replicated precisely as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhichPrecise {
    /// None but those that the functions cannot make again.
    #[default]
    None,
    /// Those that have lived longer than `age`, the oldest first, and those that are lost otherwise: for which the filter has no
    /// room, or which the functions cannot make again.
    LongerThan {
        /// How long a connection lives before it is replicated precisely.
        age: Duration,
        /// What precise words may take in any case, all peers together; `None`: whatever they take. What the filter leaves of
        /// its own budget is there for them as well, and what they take comes off that.
        budget_bytes_per_second: Option<u64>,
    },
}

/// A connection that may live long.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Candidate {
    pub(in crate::node) slot: Slot,
    pub(in crate::node) name: u32,
    pub(in crate::node) is_urgent: bool,
    began_at: Instant,
}

/// The connections that may come to be replicated precisely.
#[derive(Debug)]
pub(in crate::node) struct Mixture {
    which: WhichPrecise,
    /// Would be lost, oldest first.
    urgent: VecDeque<Candidate>,
    /// By when they began.
    growing_old: VecDeque<Candidate>,
    /// Replicated precisely, and still in the filter until the peers have confirmed it.
    unconfirmed: VecDeque<Candidate>,
    candidates_max: usize,
    /// Nanoseconds' worth of budget that were used in advance end here.
    paid_until: Instant,
}

impl Mixture {
    pub(in crate::node) fn new(which: WhichPrecise, connections_max: u32) -> Self {
        Self {
            which,
            urgent: VecDeque::new(),
            growing_old: VecDeque::new(),
            unconfirmed: VecDeque::new(),
            candidates_max: GROWING_OLD_PER_CONNECTION_MAX * connections_max as usize,
            paid_until: Instant::ZERO,
        }
    }

    /// Connections that the filter would keep are replicated precisely as well.
    pub(in crate::node) const fn is_mixed(&self) -> bool {
        matches!(self.which, WhichPrecise::LongerThan { .. })
    }

    fn age(&self) -> Option<Duration> {
        match self.which {
            WhichPrecise::None => None,
            WhichPrecise::LongerThan { age, .. } => Some(age),
        }
    }

    const fn budget(&self) -> Option<u64> {
        match self.which {
            WhichPrecise::None => None,
            WhichPrecise::LongerThan { budget_bytes_per_second, .. } => budget_bytes_per_second,
        }
    }

    /// A connection began, or was taken over. `lives` returns of others whether they may still be replicated precisely one day:
    /// the rest are forgotten when there are too many.
    pub(in crate::node) fn note_begun(
        &mut self,
        now: Instant,
        slot: Slot,
        name: u32,
        lives: impl Fn(&Candidate) -> bool,
    ) {
        if self.age().is_none() {
            return;
        }
        if self.growing_old.len() >= self.candidates_max {
            self.growing_old.retain(lives);
        }
        if self.growing_old.len() < self.candidates_max {
            self.growing_old.push_back(Candidate { slot, name, is_urgent: false, began_at: now });
        }
    }

    /// The connection would be lost. Again each time at which that is noticed; bounded as those that grow old are.
    pub(in crate::node) fn note_urgent(&mut self, now: Instant, slot: Slot, name: u32) {
        if self.urgent.len() < self.candidates_max {
            self.urgent.push_back(Candidate { slot, name, is_urgent: true, began_at: now });
        }
    }

    /// Whether a connection waits for its record to be replicated that would be lost without it.
    pub(in crate::node) fn has_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }

    /// The next connection to be replicated precisely now, if its time has come and the budget allows: its own, or what is to
    /// spare from `spare_at` on.
    pub(in crate::node) fn pop_due(&mut self, now: Instant, spare_at: Option<Instant>) -> Option<Candidate> {
        if self.may_spend_at(spare_at) > now {
            return None;
        }
        if let Some(candidate) = self.urgent.pop_front() {
            return Some(candidate);
        }
        let age = self.age()?;
        let is_due = self.growing_old.front().is_some_and(|oldest| oldest.began_at + age <= now);
        if is_due { self.growing_old.pop_front() } else { None }
    }

    /// When [`Mixture::pop_due`] has something next, if `spare_at` stays as it is.
    pub(in crate::node) fn poll_timeout(&self, spare_at: Option<Instant>) -> Option<Instant> {
        let due = match (self.urgent.front(), self.growing_old.front(), self.age()) {
            (Some(_), ..) => Instant::ZERO,
            (None, Some(oldest), Some(age)) => oldest.began_at + age,
            _ => return None,
        };
        Some(due.max(self.may_spend_at(spare_at)))
    }

    fn may_spend_at(&self, spare_at: Option<Instant>) -> Instant {
        spare_at.map_or(self.paid_until, |spare_at| spare_at.min(self.paid_until))
    }

    /// So many bytes were, or are about to be, replicated precisely.
    pub(in crate::node) fn spend(&mut self, now: Instant, bytes: usize) {
        let Some(budget) = self.budget() else { return };
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / budget.max(1);
        // A budget that was not used in the last second is lost.
        let saved_from = Instant::from_nanos(now.as_nanos().saturating_sub(SAVED_MAX.as_nanos() as u64));
        self.paid_until = self.paid_until.max(saved_from) + Duration::from_nanos(nanos);
    }

    /// The connection was replicated precisely, and is in the filter until that is confirmed.
    pub(in crate::node) fn await_confirmation(&mut self, candidate: Candidate) {
        self.unconfirmed.push_back(candidate);
    }

    /// Connections whose precise word is not confirmed.
    pub(in crate::node) fn unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Takes the one that has waited longest for its confirmation.
    pub(in crate::node) fn pop_unconfirmed(&mut self) -> Option<Candidate> {
        self.unconfirmed.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn mixture(budget: Option<u64>) -> Mixture {
        let which = WhichPrecise::LongerThan { age: Duration::from_secs(10), budget_bytes_per_second: budget };
        Mixture::new(which, 4)
    }

    #[test]
    fn the_oldest_comes_first_and_not_before_its_time() {
        let mut mixture = mixture(None);
        (0..3).for_each(|nth| mixture.note_begun(at(1000 * nth), Slot(nth as u32), nth as u32, |_| true));
        assert_eq!(mixture.poll_timeout(None), Some(at(10_000)));
        assert!(mixture.pop_due(at(9_999), None).is_none());
        let names = |mixture: &mut Mixture, now| {
            core::iter::from_fn(|| mixture.pop_due(now, None)).map(|it| it.name).sum::<u32>()
        };
        assert_eq!(names(&mut mixture, at(11_000)), 1, "the first two");
        assert_eq!(mixture.poll_timeout(None), Some(at(12_000)));
    }

    #[test]
    fn what_would_be_lost_goes_before_what_is_old() {
        let mut mixture = mixture(None);
        mixture.note_begun(at(0), Slot(1), 1, |_| true);
        mixture.note_urgent(at(20_000), Slot(2), 2);
        assert_eq!(mixture.pop_due(at(20_000), None).map(|it| it.name), Some(2));
        assert_eq!(mixture.pop_due(at(20_000), None).map(|it| it.name), Some(1));
    }

    #[test]
    fn precise_replication_keeps_to_its_budget() {
        let mut mixture = mixture(Some(1000));
        (0..8).for_each(|nth| mixture.note_begun(at(0), Slot(nth), nth, |_| true));
        let mut replicated_precisely = 0;
        for ms in 20_000..22_000 {
            while mixture.pop_due(at(ms), None).is_some() {
                mixture.spend(at(ms), 500);
                replicated_precisely += 1;
            }
        }
        // What was saved up in a second, and two seconds' worth of two a second.
        assert!((4..=7).contains(&replicated_precisely), "{replicated_precisely}");
        assert!(mixture.poll_timeout(None).is_some_and(|next| next > at(21_500)));
    }

    #[test]
    fn what_the_filter_leaves_is_there_for_precise_words_as_well() {
        let mut mixture = mixture(Some(1000));
        (0..60).for_each(|nth| mixture.note_begun(at(0), Slot(nth), nth, |_| true));
        mixture.spend(at(20_000), 10_000);
        assert!(mixture.pop_due(at(20_000), None).is_none(), "its own part is spent for ten seconds");
        assert!(mixture.pop_due(at(20_000), Some(at(20_500))).is_none());
        assert_eq!(mixture.poll_timeout(Some(at(20_500))), Some(at(20_500)));
        assert!(mixture.pop_due(at(20_500), Some(at(20_500))).is_some());
    }

    #[test]
    fn too_many_candidates_are_those_that_have_ended() {
        let mut mixture = mixture(None);
        (0..100).for_each(|nth| mixture.note_begun(at(nth.into()), Slot(nth), nth, |it| it.name >= 95));
        assert!(mixture.growing_old.len() <= 8);
        assert_eq!(mixture.pop_due(at(60_000), None).map(|it| it.name), Some(95));
    }

    #[test]
    fn without_a_mixture_only_what_would_be_lost_is_replicated_precisely() {
        let mut mixture = Mixture::new(WhichPrecise::None, 4);
        mixture.note_begun(at(0), Slot(1), 1, |_| true);
        assert_eq!(mixture.poll_timeout(None), None);
        mixture.note_urgent(at(1), Slot(2), 2);
        assert_eq!(mixture.pop_due(at(1), None).map(|it| it.name), Some(2));
        assert!(mixture.pop_due(at(100_000), None).is_none());
    }
}
