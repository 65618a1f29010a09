//! Values that several commands read alike.

use std::ops::RangeInclusive;
use std::time::Duration;

use config::validated::Representation;
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

/// A representation under which connections can survive.
pub(super) fn representation(text: &str) -> Result<Representation, String> {
    let known = Representation::ALL.into_iter().filter(|(_, representation)| *representation != Representation::None);
    let found = known.clone().find(|(name, _)| *name == text);
    found.map(|(_, representation)| representation).ok_or_else(|| {
        let names: Vec<&str> = known.map(|(name, _)| name).collect();
        format!("write {}", names.join(", "))
    })
}
