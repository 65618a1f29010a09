//! Announcing an address to the neighbours: which frame when.

use core::time::Duration;

use flow::Instant;
use flow::random::SplitMix64;

use crate::group::GroupSet;

/// When announcements go out, counted from the first: at once, and again because they may be lost, or reach a switch
/// that is still busy with the failure.
pub const ANNOUNCEMENT_ROUNDS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// How often the addresses that a node holds are announced again, unless it is said otherwise: a host or switch that missed the
/// announcements of a take-over learns at the latest then.
pub const ANNOUNCE_REFRESH_DEFAULT: Duration = Duration::from_secs(60);
/// The interval is shortened or lengthened at random by up to a tenth, so that nodes do not fall into step.
const JITTER_SHARE: u64 = 10;

/// Rounds of announcements, each over all items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announcement {
    /// Whose addresses are announced.
    pub(super) groups: GroupSet,
    rounds: &'static [Duration],
    began: Instant,
    round: usize,
    item: usize,
}

impl Announcement {
    pub(super) const fn begin(now: Instant, groups: GroupSet) -> Self {
        Self { groups, rounds: &ANNOUNCEMENT_ROUNDS, began: now, round: 0, item: 0 }
    }

    /// A single round.
    pub(super) fn once(now: Instant, groups: GroupSet) -> Self {
        Self { rounds: &ANNOUNCEMENT_ROUNDS[..1], ..Self::begin(now, groups) }
    }

    /// When the next item is due. `None`: all is said.
    pub(super) fn due(&self) -> Option<Instant> {
        self.rounds.get(self.round).map(|after| self.began + *after)
    }

    /// The item of `items` that is due now.
    pub(super) fn next_item(&mut self, now: Instant, items: usize) -> Option<usize> {
        if items == 0 {
            self.round = self.rounds.len();
        }
        if self.due()? > now {
            return None;
        }
        let item = self.item;
        self.item += 1;
        if self.item == items {
            (self.round, self.item) = (self.round + 1, 0);
        }
        Some(item)
    }
}

/// When the addresses that are held are announced again though nothing has happened.
#[derive(Clone, Debug)]
pub(super) struct Refresh {
    /// `None`: never.
    interval: Option<Duration>,
    at: Instant,
    jitter: SplitMix64,
}

impl Refresh {
    pub(super) const fn new(seed: u64) -> Self {
        Self { interval: Some(ANNOUNCE_REFRESH_DEFAULT), at: Instant::ZERO, jitter: SplitMix64::new(seed) }
    }

    /// Another interval, or none. It counts from now on.
    pub(super) fn set_interval(&mut self, now: Instant, interval: Option<Duration>) {
        if self.interval != interval {
            self.interval = interval;
            self.restart(now);
        }
    }

    /// The addresses are announced now: the next time is an interval later.
    pub(super) fn restart(&mut self, now: Instant) {
        let Some(interval) = self.interval else { return };
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX / 2);
        let tenth = nanos / JITTER_SHARE;
        self.at = now + Duration::from_nanos(self.jitter.between(nanos - tenth, nanos + tenth));
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.interval.map(|_| self.at)
    }
}
