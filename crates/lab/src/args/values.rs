//! Values that several commands read alike.

/// Seconds that a measurement's turn can be asked to last.
const MEASURED_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=60.0;

pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=0.9).contains(share));
    share.ok_or_else(|| "write a number from 0 to 0.9".into())
}

pub(super) fn measured_seconds(text: &str) -> Result<f64, String> {
    number_within(text, MEASURED_SECONDS)
}

pub(super) fn number_within(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
}
