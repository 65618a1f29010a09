//! Giving processor time back: first fewer places are sampled, then nothing is encoded at all.

use flow::Instant;
use redundancy::Period;
use redundancy::period_control::{PeriodControl, PeriodControlConfig};

/// Above this load, in percent, with the longest period in force, packets go past the tunnel …
const LOAD_PERCENT_FULL: u8 = 95;
/// … until it falls below this one.
const LOAD_PERCENT_EASY: u8 = 60;

/// What the load of the core means for the encoder.
#[derive(Clone, Debug)]
pub(super) struct Load {
    config: PeriodControlConfig,
    control: PeriodControl,
    is_short: bool,
    changed_at: Option<Instant>,
}

impl Load {
    pub(super) fn new(shortest: Period) -> Self {
        let defaults = PeriodControlConfig::default();
        let longest = if defaults.longest.bytes() < shortest.bytes() { shortest } else { defaults.longest };
        let config = PeriodControlConfig { shortest, longest, ..defaults };
        Self { config, control: PeriodControl::new(config), is_short: false, changed_at: None }
    }

    /// Takes the load in percent. Returns the period if it is another from now on.
    pub(super) fn handle(&mut self, now: Instant, percent: u8) -> Option<Period> {
        let is_longest = self.control.period().bytes() >= self.config.longest.bytes();
        let has_settled = self.changed_at.is_none_or(|at| now.saturating_since(at) >= self.config.settle * 5);
        if self.is_short {
            if percent < LOAD_PERCENT_EASY && has_settled {
                (self.is_short, self.changed_at) = (false, Some(now));
            }
            return None;
        }
        let period = self.control.handle_load(now, percent);
        if period.is_some() {
            self.changed_at = Some(now);
        } else if is_longest && percent > LOAD_PERCENT_FULL && has_settled {
            (self.is_short, self.changed_at) = (true, Some(now));
        }
        period
    }

    pub(super) const fn period(&self) -> Period {
        self.control.period()
    }

    /// There is no time to encode anything.
    pub(super) const fn is_short(&self) -> bool {
        self.is_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_load_the_period_grows_then_nothing_is_encoded_and_when_it_is_over_all_is_as_before() {
        let mut load = Load::new(Period::DEFAULT);
        let mut ms = 0;
        let mut periods = alloc::vec::Vec::new();
        while !load.is_short() {
            ms += 100;
            periods.extend(load.handle(Instant::from_millis(ms), 99).map(Period::bytes));
            assert!(ms < 10_000, "it bypasses packets in the end");
        }
        assert_eq!(periods, [64, 128, 256, 512]);
        load.handle(Instant::from_millis(ms + 500), 10);
        assert!(load.is_short(), "what was gained by it must show first");
        load.handle(Instant::from_millis(ms + 1500), 70);
        assert!(load.is_short(), "it would be short at once");
        for step in 0..40 {
            load.handle(Instant::from_millis(ms + 2000 + 300 * step), 10);
        }
        assert!(!load.is_short());
        assert_eq!(load.period().bytes(), 32);
    }
}
