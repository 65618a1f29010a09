//! Expected cost and error rates of the structures, by the equations of MLCBF and of the structures' inventors. Tests
//! beside the structures verify them.
//!
//! The equations assume uniform and independent hashes, and no removals.

use crate::shape::{LEVELS_MAX, MultiLevelShape, ShapeError};

const LEVELS: usize = LEVELS_MAX as usize;

/// The false positive rate of a Bloom filter of `bits` bits (or counters): (1 − (1 − 1/m)^kn)^k, which MLCBF
/// approximates by e (section 1.1.3).
#[must_use]
pub fn bloom_false_positive(bits: u64, hashes: u8, items: u64) -> f64 {
    let zero = power(1.0 - 1.0 / bits as f64, u64::from(hashes) * items);
    power(1.0 - zero, hashes.into())
}

/// The number of hashes that minimises false positives: m/n · ln 2, to the nearest whole number.
#[must_use]
pub fn bloom_hashes(bits: u64, items: u64) -> u8 {
    let best = bits as f64 / items.max(1) as f64 * core::f64::consts::LN_2;
    (best + 0.5).clamp(1.0, 255.0) as u8
}

/// The false positive rate of a cuckoo filter at a load from 0 to 1: 1 − (1 − 2^−f)^(2b·load), for the b cells of each of
/// two buckets and fingerprints of f bits (Fan et al., 2014, section 4.2; the paper's bound is at a load of 1).
#[must_use]
pub fn cuckoo_false_positive(load: f64) -> f64 {
    let cells = 2.0 * crate::cuckoo::CELLS_PER_BUCKET as f64 * load;
    let collision = 1.0 / power(2.0, crate::cuckoo::FINGERPRINT_BITS.into());
    // (1 − x)^c = 1 − c·x + c·(c − 1)/2·x² − …, of which two terms suffice for so small an x.
    cells * collision - cells * (cells - 1.0) / 2.0 * collision * collision
}

/// Bits of a cuckoo filter for each item at this load.
#[must_use]
pub fn cuckoo_bits_per_item(load: f64) -> f64 {
    f64::from(crate::cuckoo::FINGERPRINT_BITS) / load
}

/// Changed bits per item of the digest beside a counting Bloom filter, by equations 2 and 3 of MLCBF (P01 and P10),
/// over all bits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DigestEvents {
    /// Bits that become one when an item is inserted.
    pub set_per_insert: f64,
    /// Bits that become zero when an item is removed.
    pub cleared_per_removal: f64,
}

impl DigestEvents {
    /// For a filter of `counters` counters with `items` items.
    #[must_use]
    pub fn at(counters: u64, hashes: u8, items: u64) -> Self {
        let (hashes, others) = (f64::from(hashes), u64::from(hashes) * items);
        let untouched = 1.0 - 1.0 / counters as f64;
        Self {
            set_per_insert: hashes * power(untouched, others),
            cleared_per_removal: hashes * power(untouched, others.saturating_sub(1)),
        }
    }
}

/// The expected result of inserting items into a multi-level filter by first available (MLCBF section 3.1, equations
/// 3 to 5).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FirstAvailable {
    shape: MultiLevelShape,
    items: f64,
    buckets: [f64; LEVELS],
    /// Items that each level takes: n_success.
    pub success: [f64; LEVELS],
    /// Items that fit no level: n_overflow of the last.
    pub overflow: f64,
    /// The average cost of a successful search within a level, without the levels before it: an item's position in its
    /// bucket, averaged over the items.
    within: [f64; LEVELS],
}

impl FirstAvailable {
    /// After inserting `items` items into a filter of this shape.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn of(shape: MultiLevelShape, items: u64) -> Result<Self, ShapeError> {
        let buckets = shape.buckets()?.map(|buckets| buckets as f64);
        let mut left = items as f64;
        let (mut success, mut within) = ([0.0; LEVELS], [0.0; LEVELS]);
        for level in 0..usize::from(shape.levels) {
            let fill = Fill::of(left, buckets[level], shape.cells_per_bucket);
            success[level] = left - fill.overflow;
            within[level] = if success[level] > 0.0 { fill.places / success[level] } else { 0.0 };
            left = fill.overflow;
        }
        Ok(Self { shape, items: items as f64, buckets, success, overflow: left, within })
    }

    /// The expected number of items in a bucket of each level: α.
    #[must_use]
    pub fn load_factors(&self) -> [f64; LEVELS] {
        core::array::from_fn(
            |level| if self.buckets[level] > 0.0 { self.success[level] / self.buckets[level] } else { 0.0 },
        )
    }

    /// Each level's share of the items: LD.
    #[must_use]
    pub fn load_distribution(&self) -> [f64; LEVELS] {
        self.success.map(|success| success / self.items)
    }

    /// The cost in cells of an unsuccessful search: Σα (equation 4).
    #[must_use]
    pub fn unsuccessful_search_cells(&self) -> f64 {
        self.load_factors().iter().sum()
    }

    /// The cost in cells of a successful search, by equation 5: in the item's level as in a table with chains, C = 1 +
    /// α/2 − 1/(2·BN), and in each level before it the average number of items in a bucket.
    ///
    /// Both terms are wrong where buckets fill up, in opposite directions: see
    /// [`FirstAvailable::successful_search_cells`]. (The text has α/(2·BN) for the levels behind the first, without a
    /// measurable difference.)
    #[must_use]
    pub fn successful_search_cells_by_equation_5(&self) -> f64 {
        let factors = self.load_factors();
        let within = |level| 1.0 + factors[level] / 2.0 - 1.0 / (2.0 * self.buckets[level]);
        self.over_levels(|level| factors[level], within)
    }

    /// The same, exactly. A bucket holds at most H items, and the searched item has each position with the same
    /// probability. An item is behind the first level only because its bucket there was full, with H items.
    #[must_use]
    pub fn successful_search_cells(&self) -> f64 {
        self.over_levels(|_| self.shape.cells_per_bucket.into(), |level| self.within[level])
    }

    fn over_levels(&self, passed: impl Fn(usize) -> f64, within: impl Fn(usize) -> f64) -> f64 {
        let (mut before, mut cells) = (0.0, 0.0);
        for (level, share) in self.load_distribution().into_iter().enumerate().take(self.shape.levels.into()) {
            cells += share * (before + within(level));
            before += passed(level);
        }
        cells
    }

    /// The false positive rate: Σα · 2^−F.
    #[must_use]
    pub fn false_positive(&self) -> f64 {
        self.unsuccessful_search_cells() / power(2.0, self.shape.fingerprint_bits.into())
    }
}

/// The expected result of throwing items into buckets at random.
struct Fill {
    /// Items that find their bucket full.
    overflow: f64,
    /// The sum over all items of their positions in their buckets, counted from one.
    places: f64,
}

impl Fill {
    /// Equation 3: the number of items in a bucket has a binomial distribution. The overflow is n − Σ min(j, H) · P(j)
    /// · m, which needs only terms up to H.
    fn of(items: f64, buckets: f64, cells: u8) -> Self {
        if items <= 0.0 || buckets <= 0.0 {
            return Self { overflow: items.max(0.0), places: 0.0 };
        }
        let hit = 1.0 / buckets;
        // P(0) for a fractional number of items.
        let whole = items as u64;
        let mut probability = power(1.0 - hit, whole) * (1.0 - (items - whole as f64) * hit);
        let (mut up_to, mut taken, mut places) = (0.0, 0.0, 0.0);
        for number in 0..cells {
            let number = f64::from(number);
            up_to += probability;
            taken += number * probability;
            places += number * (number + 1.0) / 2.0 * probability;
            probability *= (items - number).max(0.0) / ((number + 1.0) * (buckets - 1.0).max(f64::MIN_POSITIVE));
        }
        let full = f64::from(cells);
        taken += full * (1.0 - up_to);
        places += full * (full + 1.0) / 2.0 * (1.0 - up_to);
        Self { overflow: (items - taken * buckets).max(0.0), places: places * buckets }
    }
}

/// The load over all cells at which a multi-level filter filled by first available is expected to reject its first
/// item: the maximum load estimated in MLCBF.
///
/// # Errors
/// The shape is invalid.
pub fn maximum_load(shape: MultiLevelShape) -> Result<f64, ShapeError> {
    let buckets: u64 = shape.buckets()?.iter().sum();
    let cells = buckets * u64::from(shape.cells_per_bucket);
    // The overflow rises with the items, so bisection finds the limit.
    let (mut fits, mut overflows) = (0, cells + 1);
    while overflows - fits > 1 {
        let middle = fits.midpoint(overflows);
        if FirstAvailable::of(shape, middle)?.overflow < 1.0 { fits = middle } else { overflows = middle }
    }
    Ok(fits as f64 / cells as f64)
}

/// The upper bound of the false positive rate of a filter with D levels of H cells: D · H · 2^−F.
#[must_use]
pub fn false_positive_bound(shape: MultiLevelShape) -> f64 {
    f64::from(shape.levels) * f64::from(shape.cells_per_bucket) / power(2.0, shape.fingerprint_bits.into())
}

/// `base` to a whole power.
fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_available(cells: u64, levels: u8, cells_per_bucket: u8) -> MultiLevelShape {
        MultiLevelShape { cells, levels, cells_per_bucket, fingerprint_bits: 20, ..MultiLevelShape::for_items(0, 8) }
    }

    fn close(one: f64, other: f64, within: f64) -> bool {
        (one - other).abs() <= within
    }

    #[test]
    fn powers_are_powers() {
        for (base, exponent) in [(0.5, 0), (0.5, 1), (1.1, 77), (0.999_999, 4_000_000)] {
            let expected = f64::powf(base, exponent as f64);
            assert!(close(power(base, exponent), expected, expected * 1e-9), "{base} {exponent}");
        }
    }

    #[test]
    fn fifteen_thousand_items_in_twenty_thousand_cells_are_distributed_as_in_mlcbf() {
        let theory = FirstAvailable::of(first_available(20_000, 4, 8), 15_000).expect("a shape");
        // Section 3.1 B.
        for (success, expected) in theory.success.iter().zip([10_336.0, 4237.0, 427.0, 0.0]) {
            assert!(close(*success, expected, 2.0), "{:?}", theory.success);
        }
        assert!(theory.overflow < 0.01, "{}", theory.overflow);
    }

    #[test]
    fn table_1_of_mlcbf_is_reproduced() {
        type Row = [f64; 4];
        // (D, H), load, α, LD: the rows "Ana." of table I.
        let rows: [(u8, u8, u64, Row, Row); 4] = [
            (4, 8, 2000, [2.992, 0.008, 0.0, 0.0], [0.998, 0.001, 0.0, 0.0]),
            (4, 8, 8500, [7.896, 7.48, 4.464, 0.128], [0.618, 0.293, 0.087, 0.001]),
            (8, 4, 2000, [1.564, 0.06, 0.0, 0.0], [0.981, 0.019, 0.0, 0.0]),
            (8, 4, 8500, [3.86, 3.74, 3.3, 1.744], [0.569, 0.276, 0.122, 0.032]),
        ];
        for (levels, cells, items, factors, distribution) in rows {
            let theory = FirstAvailable::of(first_available(10_000, levels, cells), items).expect("a shape");
            for level in 0..4 {
                let (factor, share) = (theory.load_factors()[level], theory.load_distribution()[level]);
                assert!(close(factor, factors[level], 0.06), "({levels},{cells}) {items}: {factor} {factors:?}");
                assert!(
                    close(share, distribution[level], 0.002),
                    "({levels},{cells}) {items}: {share} {distribution:?}"
                );
            }
        }
    }

    #[test]
    fn maximum_loads_match_the_estimates_of_mlcbf() {
        for (levels, cells, expected) in [(4, 8, 0.94), (8, 4, 0.97)] {
            let load = maximum_load(first_available(10_000, levels, cells)).expect("a shape");
            assert!(close(load, expected, 0.011), "({levels},{cells}): {load}");
        }
    }

    #[test]
    fn twenty_fingerprint_bits_err_in_at_most_3_of_100_000() {
        let shape = first_available(10_000, 4, 8);
        assert!(close(false_positive_bound(shape), 3.051e-5, 1e-8));
        let theory = FirstAvailable::of(shape, 9000).expect("a shape");
        assert!(theory.false_positive() < false_positive_bound(shape));
    }

    #[test]
    fn a_full_cuckoo_filter_errs_in_at_most_8_of_65536() {
        let bound = 8.0 / 65_536.0;
        assert!(cuckoo_false_positive(1.0) < bound && close(cuckoo_false_positive(1.0), bound, 1e-7));
        assert!(close(cuckoo_false_positive(0.5), bound / 2.0, 1e-7) && cuckoo_false_positive(0.0) == 0.0);
        assert!(close(cuckoo_bits_per_item(0.95), 16.84, 0.01));
    }

    #[test]
    fn ten_bits_an_item_need_seven_hashes() {
        assert_eq!((bloom_hashes(10, 1), bloom_hashes(1, 10), bloom_hashes(0, 0)), (7, 1, 1));
    }
}
