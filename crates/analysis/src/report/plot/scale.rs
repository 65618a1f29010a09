//! From values to lengths.

use super::{Axis, Scale};
use crate::report::text::{round_up, short};

/// The span of values that an axis shows, and its labels.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Span {
    scale: Scale,
    from: f64,
    to: f64,
}

/// The most names that are written along an axis of `width` user units before they would overlap.
const NAME_WIDTH: f64 = 84.0;
const GRID_LINES: u32 = 4;

impl Span {
    /// The span for `values` on `axis`.
    pub(super) fn of(axis: &Axis, values: impl Iterator<Item = f64> + Clone) -> Self {
        if !axis.categories.is_empty() {
            return Self { scale: Scale::Linear, from: -0.5, to: axis.categories.len() as f64 - 0.5 };
        }
        let drawable = values.filter(|value| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0));
        let smallest = drawable.clone().fold(f64::INFINITY, f64::min);
        let largest = drawable.fold(f64::NEG_INFINITY, f64::max);
        let (from, to) = match axis.scale {
            Scale::Linear => (smallest.min(0.0), if largest > 0.0 { top(largest) } else { largest }),
            Scale::Logarithmic => (10_f64.powf(smallest.log10().floor()), 10_f64.powf(largest.log10().ceil())),
        };
        // Where nothing can be drawn, the axis is still there.
        let (from, to) = if from.is_finite() && to.is_finite() { (from, to) } else { (axis_start(axis.scale), 1.0) };
        let (from, to) = (axis.from.unwrap_or(from), axis.to.unwrap_or(to));
        let to = match axis.scale {
            Scale::Linear if to <= from => from + 1.0,
            Scale::Logarithmic if to <= from => from * 10.0,
            _ => to,
        };
        Self { scale: axis.scale, from, to }
    }

    /// Where a value lies, from 0 to 1; what lies beyond an end is drawn at it. Nothing for what cannot be drawn.
    pub(super) fn share(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Logarithmic if value > 0.0 && self.from > 0.0 => {
                (value / self.from).log10() / (self.to / self.from).log10()
            }
            Scale::Logarithmic => return None,
        };
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    }

    /// Where grid lines go, and what stands beside them.
    pub(super) fn labels(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let step = (self.to - self.from) / f64::from(GRID_LINES);
                (0..=GRID_LINES)
                    .map(|line| self.from + step * f64::from(line))
                    .map(|value| (value, short(value)))
                    .collect()
            }
            Scale::Logarithmic => {
                let decades = (self.to / self.from).log10();
                let digits: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let every = (decades / 8.0).ceil().max(1.0);
                let (first, last) = (self.from.log10().floor(), self.to.log10().ceil());
                let mut labels = Vec::new();
                let mut power = first;
                while power <= last {
                    labels.extend(digits.iter().map(|digit| digit * 10_f64.powf(power)));
                    power += every;
                }
                let within = self.from * 0.999..=self.to * 1.001;
                labels.retain(|value| within.contains(value));
                labels.into_iter().map(|value| (value, short(value))).collect()
            }
        }
    }
}

const fn axis_start(scale: Scale) -> f64 {
    match scale {
        Scale::Linear => 0.0,
        Scale::Logarithmic => 0.1,
    }
}

/// A round number at or above the largest value, also below four.
fn top(largest: f64) -> f64 {
    let mut factor = 1.0;
    while largest * factor < 4.0 && factor < 1e12 {
        factor *= 10.0;
    }
    round_up(largest * factor) / factor
}

/// The names of an axis that there is room for: every n-th.
pub(super) fn names(axis: &Axis, width: f64) -> impl Iterator<Item = (f64, &str)> {
    let longest = axis.categories.iter().map(|name| name.chars().count()).max().unwrap_or(1) as f64;
    let room = (width / (longest * 7.0 + 10.0).min(NAME_WIDTH)).floor().max(1.0);
    let every = (axis.categories.len() as f64 / room).ceil().max(1.0) as usize;
    axis.categories.iter().enumerate().step_by(every).map(|(number, name)| (number as f64, name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_begins_at_zero_and_ends_on_a_round_number() {
        let span = Span::of(&Axis::new("bytes", ""), [3.0, 230.0].into_iter());
        assert_eq!(span.share(120.0), Some(0.5));
        let labels: Vec<String> = span.labels().into_iter().map(|(_, text)| text).collect();
        assert_eq!(labels, ["0", "60", "120", "180", "240"]);
        assert_eq!(Span::of(&Axis::new("", ""), [0.4].into_iter()).share(0.4), Some(1.0));
    }

    #[test]
    fn a_logarithmic_axis_shows_no_zero() {
        let span = Span::of(&Axis::new("rate", "").logarithmic(), [0.0, 1.0, 1000.0].into_iter());
        assert_eq!(span.share(0.0), None);
        assert!((span.share(10.0).expect("drawn") - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(span.labels().len(), 4);
    }

    #[test]
    fn an_axis_of_nothing_and_of_what_is_no_number_can_still_be_drawn() {
        for values in [vec![], vec![f64::NAN], vec![f64::INFINITY]] {
            for axis in [Axis::new("", ""), Axis::new("", "").logarithmic()] {
                let span = Span::of(&axis, values.iter().copied());
                assert!(!span.labels().is_empty());
                assert_eq!(span.share(f64::NAN), None);
            }
        }
    }
}
