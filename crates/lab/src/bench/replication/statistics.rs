//! Shares with their spread, and what stands in the middle and at the end of a heap of figures.

use serde::Serialize;

use crate::bench::rounds::rounded;

/// The middle and the end of figures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    /// All but one in a hundred are no greater.
    pub(super) p99: f64,
}

impl Spread {
    /// Of these figures, to a tenth; nothing of none.
    pub(super) fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        // Both by nearest rank.
        let at = |share: f64| {
            let rank = (figures.len() as f64 * share).ceil() as usize;
            figures.get(rank.saturating_sub(1)).map(|figure| rounded(*figure, 1))
        };
        Some(Self { median: at(0.5)?, p99: at(0.99)? })
    }
}

/// The interval in which a share lies of which `hits` of `trials` were seen, with a confidence of 95 % (Wilson, "Probable
/// inference, the law of succession, and statistical inference", 1927).
pub(super) fn wilson_interval(hits: usize, trials: usize) -> Option<[f64; 2]> {
    /// Deviations of the normal distribution within which 95 % lie.
    const DEVIATIONS: f64 = 1.96;
    if trials == 0 {
        return None;
    }
    let (n, share) = (trials as f64, hits as f64 / trials as f64);
    let square = DEVIATIONS * DEVIATIONS;
    let centre = (share + square / (2.0 * n)) / (1.0 + square / n);
    let half = DEVIATIONS / (1.0 + square / n) * (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
    Some([(centre - half).max(0.0), (centre + half).min(1.0)].map(|bound| rounded(bound, 3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_end_are_found() {
        assert_eq!(Spread::of(Vec::new()), None);
        assert_eq!(Spread::of(vec![7.0]), Some(Spread { median: 7.0, p99: 7.0 }));
        let figures = (1..=200).rev().map(f64::from).collect();
        assert_eq!(Spread::of(figures), Some(Spread { median: 100.0, p99: 198.0 }));
    }

    #[test]
    fn few_trials_leave_a_wide_interval_and_all_hits_are_not_certainty() {
        assert_eq!(wilson_interval(0, 0), None);
        assert_eq!(wilson_interval(10, 10), Some([0.722, 1.0]));
        assert_eq!(wilson_interval(50, 100), Some([0.404, 0.596]));
        assert_eq!(wilson_interval(0, 1000), Some([0.0, 0.004]));
    }
}
