//! A session's configuration, checked before use.

use core::time::Duration;

/// What a session is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The shortest interval at which to send while up (bfd.DesiredMinTxInterval).
    pub desired_min_tx: Duration,
    /// The shortest interval at which packets can be received (bfd.RequiredMinRxInterval).
    pub required_min_rx: Duration,
    /// How many intervals without a packet mean to the peer that this side is gone (bfd.DetectMult).
    pub detect_multiplier: u8,
    /// The shortest interval at which to send while not up, if that is longer than `desired_min_tx`. RFC 5880 section 6.8.3
    /// asks for at least a second, to spare systems that may not support BFD. Between nodes that are configured for each other
    /// it only delays the start, hence the shorter default. Toward routers use 1 s.
    pub interval_while_down: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            desired_min_tx: Duration::from_millis(10),
            required_min_rx: Duration::from_millis(10),
            detect_multiplier: 10,
            interval_while_down: Duration::from_millis(100),
        }
    }
}

/// Why a configuration cannot be used. The operator's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// RFC 5880 section 4.1: the multiplier is not 0.
    #[error("the detection multiplier is 0; give a number from 1 to 255, 3 or more for links that lose packets")]
    ZeroDetectMultiplier,
    /// An interval does not fit the packet's field.
    #[error("the interval {0:?} cannot be said in a packet; give one from 1 µs to 4294 s")]
    Interval(Duration),
}

impl Config {
    /// Checks the configuration.
    ///
    /// # Errors
    /// What is wrong with it, and what to give instead.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.detect_multiplier == 0 {
            return Err(ConfigError::ZeroDetectMultiplier);
        }
        for interval in [self.desired_min_tx, self.required_min_rx, self.interval_while_down] {
            if !u32::try_from(interval.as_micros()).is_ok_and(|us| us > 0) {
                return Err(ConfigError::Interval(interval));
            }
        }
        Ok(())
    }
}

/// An interval in the microseconds of the wire: at least 1, at most what the field holds.
pub(super) fn micros(interval: Duration) -> u32 {
    u32::try_from(interval.as_micros()).unwrap_or(u32::MAX).max(1)
}
