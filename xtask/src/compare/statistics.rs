//! Medians, and whether two samples differ by more than chance.

/// The median; the mean of both in the middle of an even number.
pub(super) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

/// The probability that two samples of one distribution differ at least as much in rank: the test of Mann and Whitney ("On a test of
/// whether one of two random variables is stochastically larger than the other", 1947), two-sided, by its normal approximation with
/// corrections for ties and continuity. It holds for 8 and more figures each.
pub(super) fn mann_whitney(one: &[f64], other: &[f64]) -> f64 {
    let (first, second) = (one.len() as f64, other.len() as f64);
    let mut all: Vec<(f64, bool)> =
        one.iter().map(|figure| (*figure, true)).chain(other.iter().map(|figure| (*figure, false))).collect();
    all.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let (mut rank_sum, mut ties, mut begin) = (0.0, 0.0, 0);
    while begin < all.len() {
        let alike = all[begin..].iter().take_while(|(figure, _)| *figure == all[begin].0).count();
        // Equal figures share the mean of their ranks.
        let rank = (2 * begin + alike + 1) as f64 / 2.0;
        rank_sum += rank * all[begin..begin + alike].iter().filter(|(_, is_one)| *is_one).count() as f64;
        ties += (alike as f64).powi(3) - alike as f64;
        begin += alike;
    }
    let total = first + second;
    let variance = first * second / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let u = rank_sum - first * (first + 1.0) / 2.0;
    let distance = ((u - first * second / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    two_sided(distance)
}

/// The probability of a standard normal figure at least this far from zero (Abramowitz and Stegun, 7.1.26: within 1.5e-7).
fn two_sided(distance: f64) -> f64 {
    let x = distance / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    series.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t) * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!([median(&[]), median(&[3.0, 9.0, 1.0]), median(&[4.0, 1.0, 2.0, 100.0])], [0.0, 3.0, 3.0]);
    }

    #[test]
    fn normal_probabilities_are_those_of_tables() {
        for (distance, expected) in [(0.0, 1.0), (1.0, 0.3173), (1.96, 0.05), (3.29, 0.001)] {
            let probability = two_sided(distance);
            assert!((probability - expected).abs() < 1e-4, "{distance}: {probability}");
        }
    }

    #[test]
    fn samples_apart_differ_and_samples_among_each_other_do_not() {
        let low: Vec<f64> = (0..11).map(|at| 100.0 + f64::from(at)).collect();
        let high: Vec<f64> = low.iter().map(|figure| figure + 20.0).collect();
        assert!(mann_whitney(&low, &high) < 1e-4);
        assert!((mann_whitney(&low, &high) - mann_whitney(&high, &low)).abs() < 1e-12);
        let (even, odd): (Vec<f64>, Vec<f64>) =
            ((0..11).map(|at| f64::from(2 * at)).collect(), (0..11).map(|at| f64::from(2 * at + 1)).collect());
        assert!(mann_whitney(&even, &odd) > 0.5);
        assert_eq!(mann_whitney(&[5.0; 11], &[5.0; 11]), 1.0);
    }

    #[test]
    fn a_known_example_has_its_known_probability() {
        // Ranks of the first: 1, 2, 3, 4, 6, 7, 9, 10; U = 6 below the mean of 32 by 26.
        let one = [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 9.0, 10.0];
        let other = [5.0, 8.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0];
        let probability = mann_whitney(&one, &other);
        assert!((probability - 0.0074).abs() < 5e-4, "{probability}");
    }
}
