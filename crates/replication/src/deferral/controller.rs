//! The seed's algorithm 2: lifetimes and utilisation in, a threshold out.

use core::time::Duration;

use flow::Instant;

use super::{Dynamic, Lifetimes};

/// Decides once an interval how long connections are deferred in the next.
///
/// ```text
///                 busier than it should be
///   level 0 ─────► level 1 ─────► ... ─────► level M        threshold = (1 − R) · past lifetimes' + R · the interval's,
///           ◄─────         ◄─────     ◄─────                each for the level's share of connections
///                 not busier
/// ```
#[derive(Clone, Debug)]
pub struct Controller {
    config: Dynamic,
    level: u8,
    threshold: Duration,
    /// Lifetimes that ended in this interval.
    latest: Lifetimes,
    /// Lifetimes of all intervals before.
    past: Lifetimes,
    interval_ends_at: Instant,
    is_first_interval: bool,
    /// Utilisation measured in this interval, summed up, and how often.
    measured: (u64, u32),
    utilisation_per_mille: Option<u16>,
    /// Connections replicated in this interval, and connections that ended before.
    replicated: u64,
    never_replicated: u64,
}

impl Controller {
    /// One that begins at `now`, without deferral.
    #[must_use]
    pub fn new(config: Dynamic, now: Instant) -> Self {
        Self {
            config,
            level: 0,
            threshold: Duration::ZERO,
            latest: Lifetimes::new(&config),
            past: Lifetimes::new(&config),
            interval_ends_at: now + config.interval,
            is_first_interval: true,
            measured: (0, 0),
            utilisation_per_mille: None,
            replicated: 0,
            never_replicated: 0,
        }
    }

    /// A connection has ended, or has reached the longest lifetime that is distinguished.
    pub fn note_lifetime(&mut self, lifetime: Duration) {
        self.latest.note(lifetime);
    }

    /// The processor was busy for this share of the time since it was measured last. The mean of an interval counts.
    pub fn note_utilisation(&mut self, per_mille: u16) {
        let (sum, times) = &mut self.measured;
        *sum += u64::from(per_mille);
        *times += 1;
    }

    /// A connection was replicated.
    pub(super) const fn note_replicated(&mut self) {
        self.replicated += 1;
    }

    /// A connection ended without having been replicated.
    pub(super) const fn note_never_replicated(&mut self) {
        self.never_replicated += 1;
    }

    /// Whether a connection that begins now may be deferred: replication is degraded, and the share of this interval is not
    /// used up. Deferred connections that will end in time are not known yet, so that the share can be exceeded by those that
    /// begin within one threshold.
    #[must_use]
    pub fn may_defer(&self) -> bool {
        let insertions = u128::from(self.replicated) + u128::from(self.never_replicated);
        let is_within_share =
            u128::from(self.never_replicated) * u128::from(self.config.levels) <= insertions * u128::from(self.level);
        !self.threshold.is_zero() && (!self.config.is_bounded || is_within_share)
    }

    /// The deferral threshold of this interval; zero: none is deferred.
    #[must_use]
    pub const fn threshold(&self) -> Duration {
        self.threshold
    }

    /// The level of degradation, 0 to [`Dynamic::levels`].
    #[must_use]
    pub const fn level(&self) -> u8 {
        self.level
    }

    /// What the last interval's utilisation was; `None` where it was not measured.
    #[must_use]
    pub const fn utilisation_per_mille(&self) -> Option<u16> {
        self.utilisation_per_mille
    }

    /// Its parameters.
    #[must_use]
    pub const fn config(&self) -> &Dynamic {
        &self.config
    }

    /// When it decides next.
    #[must_use]
    pub const fn poll_timeout(&self) -> Instant {
        self.interval_ends_at
    }

    /// Decides if the interval is over by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.interval_ends_at {
            return;
        }
        let (sum, times) = core::mem::take(&mut self.measured);
        self.utilisation_per_mille = (times > 0).then(|| (sum / u64::from(times)).min(1000) as u16);
        self.level = match self.utilisation_per_mille {
            Some(busy) if busy > self.config.utilisation_per_mille_max => self.config.levels.min(self.level + 1),
            Some(_) => self.level.saturating_sub(1),
            // Whether this level was right is unknown.
            None => self.level,
        };
        self.threshold = if self.is_first_interval { Duration::ZERO } else { self.next_threshold() };
        self.is_first_interval = false;
        self.past.absorb(&mut self.latest);
        (self.replicated, self.never_replicated) = (0, 0);
        // Who was not asked for longer than an interval begins a whole one.
        let due = self.interval_ends_at + self.config.interval;
        self.interval_ends_at = if due <= now { now + self.config.interval } else { due };
    }

    /// F_p(i) of the seed, within the thresholds that there may be.
    fn next_threshold(&self) -> Duration {
        let Dynamic { levels, responsiveness_per_mille, threshold_min, threshold_max, .. } = self.config;
        if self.level == 0 {
            return Duration::ZERO;
        }
        let (past, measured) = (self.past.threshold(self.level, levels), self.latest.threshold(self.level, levels));
        let weighed = match (past, measured) {
            (Some(past), Some(measured)) => {
                let responsiveness = u32::from(responsiveness_per_mille);
                (past * (1000 - responsiveness) + measured * responsiveness) / 1000
            }
            (one, other) => one.or(other).unwrap_or_default(),
        };
        self.config.in_steps(weighed, self.level).clamp(threshold_min, threshold_max)
    }
}
