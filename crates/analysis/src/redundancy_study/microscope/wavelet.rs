//! Burstiness by scale: the energy of a Haar wavelet transform (seed, figure 2.5; Veitch and Abry's logscale diagram).

use flow::Instant;
use serde::{Deserialize, Serialize};

use crate::redundancy_study::limits::{PAUSE_BINS_MAX, SCALES_MAX};

/// The shortest bin.
pub(crate) const BIN_NANOS: u64 = 10_000_000;
/// Means of fewer details are not reported.
pub(super) const DETAILS_MIN: u64 = 4;

/// What one scale has.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Scale {
    /// The sum of the squares of its details, as the bits of a float: so it is the same after it was written and read.
    energy_bits: u64,
    /// Its details.
    pub details: u64,
}

impl Scale {
    /// The binary logarithm of the mean energy; none if there are too few details.
    #[must_use]
    pub(crate) fn log2_energy(&self) -> Option<f64> {
        let energy = f64::from_bits(self.energy_bits) / self.details as f64;
        (self.details >= DETAILS_MIN && energy > 0.0).then(|| energy.log2())
    }
}

/// A transform of bins that come one after another. It takes a number for each scale.
#[derive(Debug, Default)]
pub(super) struct Wavelet {
    /// The bin that is being filled, and its bytes.
    bin: Option<(u64, u64)>,
    /// Sums that wait for their neighbour, by scale.
    waiting: Vec<Option<u64>>,
    scales: Vec<Scale>,
}

impl Wavelet {
    pub(super) fn add(&mut self, at: Instant, bytes: u64) {
        let now = at.as_nanos() / BIN_NANOS;
        match &mut self.bin {
            None => self.bin = Some((now, bytes)),
            // A packet that is late by a little belongs to what is being filled.
            Some((bin, filled)) if now <= *bin => *filled += bytes,
            Some((bin, filled)) => {
                let (pause, done) = (now - *bin - 1, *filled);
                self.bin = Some((now, bytes));
                self.push(done);
                if pause > PAUSE_BINS_MAX {
                    self.waiting.iter_mut().for_each(|waiting| *waiting = None);
                } else {
                    (0..pause).for_each(|_| self.push(0));
                }
            }
        }
    }

    fn push(&mut self, bytes: u64) {
        let mut sum = bytes;
        for scale in 0..SCALES_MAX {
            if scale == self.scales.len() {
                self.scales.push(Scale::default());
                self.waiting.push(None);
            }
            let Some(left) = self.waiting[scale].take() else {
                self.waiting[scale] = Some(sum);
                return;
            };
            // The detail is the difference of two sums of 2^scale bins, over the square root of twice as many.
            let difference = left as f64 - sum as f64;
            let kept = &mut self.scales[scale];
            let energy =
                f64::from_bits(kept.energy_bits) + difference * difference / f64::from(scale as u32 + 1).exp2();
            *kept = Scale { energy_bits: energy.to_bits(), details: kept.details + 1 };
            sum += left;
        }
    }

    /// The scales, from the shortest on. The bin that is being filled is not whole and does not count.
    pub(super) fn finish(self) -> Vec<Scale> {
        self.scales
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn energies(volume: impl Fn(u64) -> u64) -> Vec<Option<f64>> {
        let mut wavelet = Wavelet::default();
        for bin in 0..=4096 {
            wavelet.add(Instant::from_millis(bin * 10 + 3), volume(bin));
        }
        wavelet.finish().iter().map(Scale::log2_energy).collect()
    }

    #[test]
    fn energy_is_at_the_scale_at_which_the_traffic_changes() {
        assert!(energies(|_| 500).iter().all(Option::is_none), "what never changes has none");
        // On and off by turns of 8 bins (80 ms): two neighbouring sums of 8 bins differ by 8 times 100.
        let square = energies(|bin| if bin / 8 % 2 == 0 { 100 } else { 0 });
        assert_eq!(square[3], Some((800.0_f64 * 800.0 / 16.0).log2()));
        assert!(square.iter().enumerate().all(|(scale, energy)| scale == 3 || energy.is_none()));
    }

    #[test]
    fn half_the_traffic_has_two_bits_less_energy() {
        let noise = |bin: u64| bin.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let [whole, half] = [energies(|bin| 2 * noise(bin)), energies(noise)];
        for (whole, half) in
            whole.iter().zip(&half).filter_map(|(whole, half)| Some((*whole.as_ref()?, *half.as_ref()?)))
        {
            assert!((whole - half - 2.0).abs() < 1e-9);
        }
        assert!(whole.iter().flatten().count() >= 10);
    }

    #[test]
    fn a_long_pause_takes_no_steps() {
        let mut wavelet = Wavelet::default();
        for turn in 0..10 {
            for bin in 0..8 {
                wavelet.add(Instant::from_millis(turn * 1_000_000_000_000 + bin * 10), bin);
            }
        }
        let scales = wavelet.finish();
        assert_eq!(scales[2].details, 9, "the last turn's eighth bin is not whole");
    }
}
