//! Distributions that are stated by what one reads off a figure, and a few others.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;

use super::ConfigError;

/// A distribution by its quantiles, as they are read off a cumulative curve: (share, value), values between them
/// interpolated on a logarithmic scale.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantiles {
    points: Vec<(f64, f64)>,
}

/// What stands for 0 on a logarithmic scale.
const SMALLEST: f64 = 1e-6;

impl Quantiles {
    /// The distribution through these points: shares rise from 0 to 1, values do not fall and are not negative.
    ///
    /// # Errors
    /// The points are others; `what` names the distribution in the error.
    pub fn new(what: &'static str, points: &[(f64, f64)]) -> Result<Self, ConfigError> {
        let rises = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let (first, last) = points.first().zip(points.last()).ok_or(ConfigError::Distribution(what))?;
        let is_whole = first.0 == 0.0 && last.0 == 1.0 && first.1 >= 0.0 && last.1.is_finite();
        if rises && is_whole { Ok(Self { points: points.to_vec() }) } else { Err(ConfigError::Distribution(what)) }
    }

    /// The same value always.
    #[must_use]
    pub fn constant(value: f64) -> Self {
        Self { points: vec![(0.0, value), (1.0, value)] }
    }

    /// The value that a share (0 to 1) does not exceed.
    #[must_use]
    pub fn at(&self, share: f64) -> f64 {
        let behind = self.points.partition_point(|(point, _)| *point < share).clamp(1, self.points.len() - 1);
        let ((from_share, from), (to_share, to)) = (self.points[behind - 1], self.points[behind]);
        let part = ((share - from_share) / (to_share - from_share)).clamp(0.0, 1.0);
        let (low, high) = (from.max(SMALLEST).ln(), to.max(SMALLEST).ln());
        (low + (high - low) * part).exp()
    }

    pub(crate) fn sample(&self, random: &mut SmallRng) -> f64 {
        self.at(random.random())
    }

    pub(crate) fn sample_duration(&self, random: &mut SmallRng) -> Duration {
        Duration::from_nanos((self.sample(random) * 1e9) as u64)
    }

    /// The mean, of the curve as it is interpolated.
    #[must_use]
    pub fn mean(&self) -> f64 {
        const STEPS: u32 = 4096;
        (0..STEPS).map(|step| self.at((f64::from(step) + 0.5) / f64::from(STEPS))).sum::<f64>() / f64::from(STEPS)
    }

    /// The largest value.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.points[self.points.len() - 1].1
    }
}

/// The time until the next of things that happen `per_second` times a second on average, independently of each other.
pub(crate) fn until_next(random: &mut SmallRng, per_second: f64) -> Duration {
    let seconds = -(1.0 - random.random::<f64>()).ln() / per_second;
    Duration::from_nanos((seconds * 1e9) as u64)
}

/// At least 1, geometric, of this mean.
pub(crate) fn geometric(random: &mut SmallRng, mean: f64, most: u32) -> u32 {
    if mean <= 1.0 {
        return 1;
    }
    let failures = (1.0 - random.random::<f64>()).ln() / (1.0 - 1.0 / mean).ln();
    1 + (failures as u32).min(most - 1)
}

/// What that many things sum to by Zipf's law: the r-th has the weight r^-exponent. By a table of cumulative weights.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=count.max(1))
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        Self { cumulative }
    }

    /// A rank from 0 on, 0 the most popular.
    pub(crate) fn sample(&self, random: &mut SmallRng) -> usize {
        let all = self.cumulative[self.cumulative.len() - 1];
        let wanted = random.random::<f64>() * all;
        self.cumulative.partition_point(|sum| *sum <= wanted).min(self.cumulative.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn quantiles_are_what_they_were_stated_to_be() {
        let lifetimes = Quantiles::new("lifetimes", &[(0.0, 0.01), (0.5, 0.32), (0.9, 2.0), (1.0, 60.0)]).unwrap();
        let mut random = SmallRng::seed_from_u64(1);
        let sample: Vec<f64> = (0..20_000).map(|_| lifetimes.sample(&mut random)).collect();
        for (share, value) in [(0.5, 0.32), (0.9, 2.0)] {
            let up_to = sample.iter().filter(|at| **at <= value).count() as f64 / sample.len() as f64;
            assert!((up_to - share).abs() < 0.015, "{up_to} of the sample are at most {value}, {share} were stated");
        }
        let mean = sample.iter().sum::<f64>() / sample.len() as f64;
        assert!((mean / lifetimes.mean() - 1.0).abs() < 0.05, "{mean} on average, {} were expected", lifetimes.mean());
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for points in
            [&[][..], &[(0.0, 1.0)], &[(0.0, 2.0), (1.0, 1.0)], &[(0.1, 1.0), (1.0, 2.0)], &[(0.0, -1.0), (1.0, 1.0)]]
        {
            assert_eq!(Quantiles::new("lifetimes", points), Err(ConfigError::Distribution("lifetimes")), "{points:?}");
        }
    }

    #[test]
    fn numbers_that_begin_together_have_the_mean_that_was_asked_for() {
        let mut random = SmallRng::seed_from_u64(2);
        for mean in [1.0, 1.5, 4.0, 40.0] {
            let sum: u32 = (0..20_000).map(|_| geometric(&mut random, mean, 10_000)).sum();
            let found = f64::from(sum) / 20_000.0;
            assert!((found / mean - 1.0).abs() < 0.05, "{found} instead of {mean}");
        }
    }

    #[test]
    fn the_popular_ones_are_chosen_by_their_rank() {
        let (zipf, mut random) = (Zipf::new(1000, 1.0), SmallRng::seed_from_u64(3));
        let mut counts = vec![0_u32; 1000];
        (0..200_000).for_each(|_| counts[zipf.sample(&mut random)] += 1);
        for rank in [2, 4, 8] {
            let ratio = f64::from(counts[0]) / f64::from(counts[rank - 1]);
            assert!((ratio / rank as f64 - 1.0).abs() < 0.1, "rank {rank} is {ratio} times as rare as the first");
        }
    }
}
