//! Reducing CPU load: the sampling period follows the load (RE, section 4.2: fast and adaptive encoding).
//!
//! Above the upper bound the period doubles, below the lower it is halved, one step at a time and not before the last
//! one has taken effect. Between them it stays.

use core::time::Duration;

use flow::Instant;

use crate::fingerprint::Period;

/// The thresholds of the load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PeriodControlConfig {
    /// The period at low load.
    pub shortest: Period,
    /// The maximum period.
    pub longest: Period,
    /// Below this load, in percent, the period becomes shorter.
    pub load_percent_low: u8,
    /// Above this load, in percent, it becomes longer.
    pub load_percent_high: u8,
    /// The time for a change to take effect.
    pub settle: Duration,
}

impl Default for PeriodControlConfig {
    /// From 32 to 512, as measured in RE; between 50 % and 80 % load it stays.
    fn default() -> Self {
        let longest = Period::DEFAULT.longer().longer().longer().longer();
        let (shortest, settle) = (Period::DEFAULT, Duration::from_millis(200));
        Self { shortest, longest, load_percent_low: 50, load_percent_high: 80, settle }
    }
}

/// The period for the load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PeriodControl {
    config: PeriodControlConfig,
    period: Period,
    changed_at: Option<Instant>,
}

impl PeriodControl {
    /// Begins with the shortest.
    #[must_use]
    pub const fn new(config: PeriodControlConfig) -> Self {
        Self { config, period: config.shortest, changed_at: None }
    }

    /// The period now.
    #[must_use]
    pub const fn period(&self) -> Period {
        self.period
    }

    /// Reports the load of the core in percent. Returns the period if it changes.
    pub fn handle_load(&mut self, now: Instant, load_percent: u8) -> Option<Period> {
        let config = &self.config;
        if self.changed_at.is_some_and(|changed| now.saturating_since(changed) < config.settle) {
            return None;
        }
        let wanted = if load_percent > config.load_percent_high && self.period.bytes() < config.longest.bytes() {
            self.period.longer()
        } else if load_percent < config.load_percent_low && self.period.bytes() > config.shortest.bytes() {
            self.period.shorter()
        } else {
            return None;
        };
        self.period = wanted;
        self.changed_at = Some(now);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_follows_the_load_a_step_at_a_time_and_keeps_its_bounds() {
        let mut control = PeriodControl::new(PeriodControlConfig::default());
        let mut now = Instant::ZERO;
        let mut load = |percent, after_ms| {
            now = now + Duration::from_millis(after_ms);
            control.handle_load(now, percent).map(Period::bytes)
        };
        assert_eq!(load(95, 0), Some(64));
        assert_eq!(load(95, 100), None, "the last change has not taken effect yet");
        assert_eq!(load(95, 100), Some(128));
        assert_eq!(load(70, 900), None, "the load is within the bounds");
        assert_eq!([load(99, 300), load(99, 300), load(99, 300)], [Some(256), Some(512), None]);
        assert_eq!(load(10, 300), Some(256));
        assert_eq!([load(1, 300), load(1, 300), load(1, 300), load(1, 300)], [Some(128), Some(64), Some(32), None]);
    }
}
