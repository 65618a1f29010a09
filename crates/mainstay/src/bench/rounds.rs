//! Figures of several rounds.

/// The figures of one measurement, one a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds(Vec<f64>);

impl Rounds {
    /// Adds a round's figure.
    pub(super) fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// The median; of an even number of rounds the lower of the two in the middle. 0 without rounds.
    pub(super) fn median(&self) -> f64 {
        self.sorted().get(self.0.len().saturating_sub(1) / 2).copied().unwrap_or_default()
    }

    /// The least and the greatest.
    pub(super) fn span(&self) -> [f64; 2] {
        let sorted = self.sorted();
        [sorted.first(), sorted.last()].map(|figure| figure.copied().unwrap_or_default())
    }

    /// The median of each round's figure over the other's figure of the same round: what disturbs a round disturbs both.
    pub(super) fn median_ratio(&self, other: &Self) -> f64 {
        let ratios = self.0.iter().zip(&other.0).map(|(figure, others)| figure / others);
        Self(ratios.collect()).median()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// `figure` to so many places behind the point.
pub(super) fn rounded(figure: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (figure * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_care_about_one_disturbed_round() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.median(), 0.0);
        for figure in [3.0, 900.0, 1.0, 2.0] {
            rounds.push(figure);
        }
        assert_eq!((rounds.median(), rounds.span()), (2.0, [1.0, 900.0]));
        rounds.push(4.0);
        assert_eq!(rounds.median(), 3.0);
    }

    #[test]
    fn a_ratio_is_of_rounds_that_were_disturbed_alike() {
        let rounds = |figures: [f64; 3]| Rounds(figures.to_vec());
        assert_eq!(rounds([8.0, 4.0, 80.0]).median_ratio(&rounds([10.0, 5.0, 50.0])), 0.8);
    }
}
