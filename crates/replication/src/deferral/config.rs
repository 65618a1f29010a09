//! How long connections are deferred, and what decides that.

use core::time::Duration;

/// The most levels of degradation.
pub const LEVELS_MAX: u8 = 100;
/// The most bins of a lifetime histogram, of 8 bytes each.
pub const LIFETIME_BINS_MAX: u64 = 1 << 16;

/// What decides how long connections are deferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Config {
    /// They are all deferred for this long.
    Fixed(Duration),
    /// The load decides.
    Dynamic(Dynamic),
}

/// Dynamic lazy insertion: the parameters of MLCBF, table III, whose values are the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dynamic {
    /// A processor that is busier than this degrades replication by a level, one that is not restores one (U_threshold).
    pub utilisation_per_mille_max: u16,
    /// Levels of degradation (M): level p is to avoid p of `levels` insertions.
    pub levels: u8,
    /// Time between two decisions (T_interval).
    pub interval: Duration,
    /// Weight of the latest interval against all that was before (R_DLI).
    pub responsiveness_per_mille: u16,
    /// The width of a histogram's bin, and the shortest lifetime that counts as more than zero (t_min).
    pub lifetime_min: Duration,
    /// Lifetimes count as this at most (t_max).
    pub lifetime_max: Duration,
    /// The least deferral while replication is degraded.
    pub threshold_min: Duration,
    /// The most.
    pub threshold_max: Duration,
    /// The threshold is a multiple of this at the lowest level,
    pub step_min: Duration,
    /// and of this at the highest; in between, of what lies between.
    pub step_max: Duration,
    /// Within an interval no more than the level's share of insertions is avoided. Without it a level can avoid far more: where
    /// all connections live about as long, no threshold divides them.
    pub is_bounded: bool,
}

impl Default for Dynamic {
    fn default() -> Self {
        Self {
            utilisation_per_mille_max: 900,
            levels: 10,
            interval: Duration::from_secs(5),
            responsiveness_per_mille: 700,
            lifetime_min: Duration::from_millis(10),
            lifetime_max: Duration::from_secs(20),
            threshold_min: Duration::from_millis(50),
            threshold_max: Duration::from_secs(2),
            step_min: Duration::from_millis(20),
            step_max: Duration::from_millis(200),
            is_bounded: true,
        }
    }
}

/// What is not sound about a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A fixed threshold of nothing.
    #[error("a fixed threshold of zero defers nothing: leave lazy insertion out, or give a time")]
    NoThreshold,
    /// No levels, or too many.
    #[error("there must be 1 to {LEVELS_MAX} levels")]
    Levels,
    /// Shares beyond the whole.
    #[error("utilisation and responsiveness are shares of 1000 per mille at most")]
    Share,
    /// Lifetimes do not fit a histogram.
    #[error("lifetimes must end between their minimum, not zero, and {LIFETIME_BINS_MAX} times it")]
    Lifetimes,
    /// Thresholds do not fit the lifetimes.
    #[error("thresholds must rise from minimum to maximum, and be no longer than the longest lifetime")]
    Thresholds,
    /// Decisions without a pause.
    #[error("the interval must not be zero")]
    Interval,
}

impl Config {
    /// Whether it is sound.
    ///
    /// # Errors
    /// What is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::Fixed(threshold) if threshold.is_zero() => Err(ConfigError::NoThreshold),
            Self::Fixed(_) => Ok(()),
            Self::Dynamic(dynamic) => dynamic.check(),
        }
    }
}

impl Dynamic {
    fn check(&self) -> Result<(), ConfigError> {
        let bins = self.lifetime_max.as_nanos() / self.lifetime_min.as_nanos().max(1);
        let are_levels_sound = (1..=LEVELS_MAX).contains(&self.levels);
        let are_lifetimes_sound = !self.lifetime_min.is_zero() && (1..=u128::from(LIFETIME_BINS_MAX)).contains(&bins);
        let are_thresholds_sound = self.threshold_min <= self.threshold_max
            && self.threshold_max <= self.lifetime_max
            && self.step_min <= self.step_max;
        match () {
            () if !are_levels_sound => Err(ConfigError::Levels),
            () if self.utilisation_per_mille_max > 1000 || self.responsiveness_per_mille > 1000 => {
                Err(ConfigError::Share)
            }
            () if !are_lifetimes_sound => Err(ConfigError::Lifetimes),
            () if !are_thresholds_sound => Err(ConfigError::Thresholds),
            () if self.interval.is_zero() => Err(ConfigError::Interval),
            () => Ok(()),
        }
    }

    /// A threshold in the steps of a level: rounded up, as rounding down would avoid less than the level is to.
    pub(super) fn in_steps(&self, threshold: Duration, level: u8) -> Duration {
        let above_lowest = u32::from(level.saturating_sub(1));
        let range = self.step_max.saturating_sub(self.step_min);
        let step = self.step_min + range * above_lowest / u32::from(self.levels).saturating_sub(1).max(1);
        if step.is_zero() {
            return threshold;
        }
        let steps = threshold.as_nanos().div_ceil(step.as_nanos());
        step.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
    }
}
