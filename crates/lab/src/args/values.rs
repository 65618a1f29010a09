//! Values that several commands read alike.

use std::ops::RangeInclusive;
use std::time::Duration;

use config::value::parse_duration_within;

/// The shortest and the longest turn of a measurement that can be asked for.
const MEASURED: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=0.9).contains(share));
    share.ok_or_else(|| "write a number from 0 to 0.9".into())
}

pub(super) fn measured_seconds(text: &str) -> Result<f64, String> {
    seconds_within(text, MEASURED)
}

/// A duration with its unit, in seconds.
pub(super) fn seconds_within(text: &str, allowed: RangeInclusive<Duration>) -> Result<f64, String> {
    parse_duration_within(text, allowed).map(|duration| duration.as_secs_f64())
}

/// A duration with its unit, in milliseconds.
pub(super) fn milliseconds_within(text: &str, allowed: RangeInclusive<Duration>) -> Result<f64, String> {
    parse_duration_within(text, allowed).map(|duration| duration.as_nanos() as f64 / 1e6)
}

pub(super) fn number_within(text: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
}
