//! Counts of values of any size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts by magnitude: four bins for each doubling.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct Magnitudes(BTreeMap<u32, [u64; 2]>);

impl Magnitudes {
    /// Counts a value, and what weighs with it.
    pub(super) fn add(&mut self, value: u64, count: u64, weight: u64) {
        let [counted, weighed] = self.0.entry(bin_of(value)).or_default();
        *counted += count;
        *weighed += weight;
    }

    /// Those of two sites together.
    pub(super) fn merge(&mut self, other: &Self) {
        for (bin, other) in &other.0 {
            let own = self.0.entry(*bin).or_default();
            own[0] += other[0];
            own[1] += other[1];
        }
    }

    /// The least value that lies beyond each bin, the bin's count and weight; ascending.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, [u64; 2])> + '_ {
        self.0.iter().map(|(bin, counts)| (bin_end(*bin), *counts))
    }
}

/// 0 to 3 are bins by themselves.
const fn bin_of(value: u64) -> u32 {
    if value < 4 {
        return value as u32;
    }
    let exponent = 63 - value.leading_zeros();
    exponent * 4 + ((value >> (exponent - 2)) & 3) as u32 - 4
}

const fn bin_end(bin: u32) -> u64 {
    if bin < 4 {
        return bin as u64 + 1;
    }
    let (exponent, part) = ((bin + 4) / 4, (bin + 4) % 4);
    (5 + part as u64).saturating_mul(1 << (exponent - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_before_the_end_of_its_bin_and_not_before_that_of_the_one_below() {
        for value in (0..5000).chain([1 << 20, (1 << 40) - 1, 7 << 50]) {
            let bin = bin_of(value);
            assert!(value < bin_end(bin), "{value}");
            assert!(bin == 0 || value >= bin_end(bin - 1), "{value}");
        }
    }
}
