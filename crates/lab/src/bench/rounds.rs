//! What all measurements have in common: rounds, turns, and figures of several rounds.

use console::{Align, Progress, Table, Unit};

/// Runs `round` so often and shows on a terminal how many are done, and how long the others take.
///
/// # Errors
/// The first of a round.
pub(super) fn repeat<E>(
    progress: &Progress,
    what: &str,
    rounds: u32,
    mut round: impl FnMut(u32) -> Result<(), E>,
) -> Result<(), E> {
    let work = progress.work(Unit::Of("rounds"), Some(rounds.into()));
    (1..=rounds).try_for_each(|number| {
        work.show((number - 1).into(), what);
        round(number)
    })
}

/// Two sides in the order of their turns. Neither is always the first: what warms up or wears off within a round favours
/// neither.
pub(super) fn turns<T>(round: u32, mut sides: [T; 2]) -> [T; 2] {
    if round.is_multiple_of(2) {
        sides.reverse();
    }
    sides
}

/// A table of medians, each with the least and the greatest figure of its rounds.
pub(super) fn median_table<'a>(
    unit: &str,
    places: usize,
    rows: impl IntoIterator<Item = (&'a str, f64, [f64; 2])>,
) -> String {
    let columns = [(unit, Align::Left), ("MEDIAN", Align::Right), ("LEAST", Align::Right), ("MOST", Align::Right)];
    let mut table = Table::new(&columns);
    for (name, median, [least, most]) in rows {
        let figures = [median, least, most].map(|figure| format!("{figure:.places$}"));
        table.row([name.to_owned()].into_iter().chain(figures));
    }
    table.render()
}

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

    /// No round was measured.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
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
    fn the_sides_take_turns_at_being_first() {
        assert_eq!([1, 2, 3].map(|round| turns(round, ["one", "other"])[0]), ["one", "other", "one"]);
    }

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
