//! A dimension of rules, a number that every packet has: the rules that each number matches.
//!
//! ```text
//!   rule 0   ├───────────────┤                       starts      0   10   20   30   40
//!   rule 1            ├────────────────┤             rows        ..   0.   01   .1   ..     (bit r: rule r is met)
//!            10      20      30       40
//! ```
//!
//! The numbers are cut into intervals at all ends of ranges; all numbers of an interval match the same rules. A row has
//! a bit for each rule, preceded by a summary with a bit for each non-zero word. Intervals that match the same rules
//! share a row.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use flow::random::mix;

/// Bits of a word of a row.
pub(super) const WORD_BITS: usize = u64::BITS as usize;

/// A number for range conditions.
pub(super) trait Number: Copy + Ord {
    /// The least.
    const ZERO: Self;

    /// The successor; `None` behind the last.
    fn successor(self) -> Option<Self>;
}

impl Number for u32 {
    const ZERO: Self = 0;

    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Number for u128 {
    const ZERO: Self = 0;

    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// A rule's condition on a number: it lies in one of these ranges, (first, last). `None`: no condition.
pub(super) type Wanted<N> = Option<Vec<(N, N)>>;

/// The shape of the rows of a group of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RowShape {
    /// Words of the summary.
    pub(super) summary_words: usize,
    /// Words of the rules' bits.
    rule_words: usize,
}

impl RowShape {
    /// The shape for this number of rules.
    pub(super) const fn of(rules: usize) -> Self {
        let rule_words = rules.div_ceil(WORD_BITS);
        Self { summary_words: rule_words.div_ceil(WORD_BITS), rule_words }
    }

    const fn words(self) -> usize {
        self.summary_words + self.rule_words
    }
}

/// The rules' conditions on a number, in the order of the numbers.
pub(super) struct Plan<N> {
    /// A point at which a rule (by its number in the group) starts or stops matching.
    turns: Vec<(N, u16)>,
    /// Rules without a condition.
    indifferent: Vec<u16>,
    rules: usize,
}

impl<N: Number> Plan<N> {
    /// The compiled conditions of these rules; `None` if none has a condition.
    pub(super) fn of<'a>(wanted: impl ExactSizeIterator<Item = &'a Wanted<N>>) -> Option<Self>
    where
        N: 'a,
    {
        let rules = wanted.len();
        let mut plan = Self { turns: Vec::new(), indifferent: Vec::new(), rules };
        for (rule, wanted) in (0..=u16::MAX).zip(wanted) {
            match wanted {
                None => plan.indifferent.push(rule),
                Some(ranges) => plan.add(rule, ranges.clone()),
            }
        }
        plan.turns.sort_unstable();
        (plan.indifferent.len() < rules).then_some(plan)
    }

    fn add(&mut self, rule: u16, mut ranges: Vec<(N, N)>) {
        ranges.sort_unstable();
        let mut ranges = ranges.into_iter();
        let Some((mut first, mut last)) = ranges.next() else { return };
        // Overlapping ranges are merged, so that the rule's state changes at every point.
        for (next_first, next_last) in ranges {
            if next_first <= last {
                last = last.max(next_last);
            } else {
                self.add_range(rule, first, last);
                (first, last) = (next_first, next_last);
            }
        }
        self.add_range(rule, first, last);
    }

    fn add_range(&mut self, rule: u16, first: N, last: N) {
        self.turns.push((first, rule));
        self.turns.extend(last.successor().map(|behind| (behind, rule)));
    }

    /// The maximum size of the dimension in bytes.
    pub(super) fn bytes_max(&self) -> usize {
        let places = self.turns.chunk_by(|one, other| one.0 == other.0).count();
        (places + 1) * (size_of::<N>() + size_of::<u32>() + RowShape::of(self.rules).words() * size_of::<u64>())
    }

    /// Makes the rows.
    pub(super) fn build(&self) -> Dimension<N> {
        let shape = RowShape::of(self.rules);
        let mut rows = Rows { shape, words: Vec::new(), by_name: BTreeMap::new() };
        let mut met = vec![0u64; shape.rule_words];
        let mut name = 0;
        for rule in &self.indifferent {
            turn(&mut met, *rule);
        }
        let mut dimension =
            Dimension { starts: Vec::new(), rows_at: Vec::new(), words: Vec::new(), row_words: shape.words() };
        if self.turns.first().is_none_or(|(at, _)| *at != N::ZERO) {
            dimension.push(N::ZERO, rows.find_or_push(name, &met));
        }
        for turns in self.turns.chunk_by(|one, other| one.0 == other.0) {
            for (_, rule) in turns {
                turn(&mut met, *rule);
                name ^= spread(u64::from(*rule));
            }
            dimension.push(turns[0].0, rows.find_or_push(name, &met));
        }
        dimension.words = rows.words;
        dimension.words.shrink_to_fit();
        dimension
    }
}

fn turn(met: &mut [u64], rule: u16) {
    met[usize::from(rule) / WORD_BITS] ^= 1 << (usize::from(rule) % WORD_BITS);
}

/// Expands a rule's number to 64 bits: XOR over the rules of a row identifies the row (Zobrist, 1970). Rows with the
/// same value are compared, so that a collision does no harm.
const fn spread(number: u64) -> u64 {
    mix(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Rows made so far.
struct Rows {
    shape: RowShape,
    words: Vec<u64>,
    by_name: BTreeMap<u64, usize>,
}

impl Rows {
    /// The position of the row of these rules.
    fn find_or_push(&mut self, name: u64, met: &[u64]) -> usize {
        let own = self.shape.summary_words;
        if let Some(at) = self.by_name.get(&name).copied()
            && self.words[at + own..].starts_with(met)
        {
            return at;
        }
        let at = self.words.len();
        self.words.resize(at + own, 0);
        for (word, _) in met.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            self.words[at + word / WORD_BITS] |= 1 << (word % WORD_BITS);
        }
        self.words.extend_from_slice(met);
        self.by_name.insert(name, at);
        at
    }
}

/// The rules of a group that each number matches.
#[derive(Clone, Debug)]
pub(super) struct Dimension<N> {
    /// The first number of each interval, ascending from zero.
    starts: Vec<N>,
    /// The position of each interval's row in `words`.
    rows_at: Vec<u32>,
    words: Vec<u64>,
    row_words: usize,
}

impl<N: Number> Dimension<N> {
    fn push(&mut self, start: N, row_at: usize) {
        self.starts.push(start);
        self.rows_at.push(u32::try_from(row_at).expect("a group's bytes are bounded far below 2^32 words"));
    }

    /// The row of a number.
    #[inline]
    pub(super) fn row(&self, number: N) -> &[u64] {
        let interval = self.starts.partition_point(|start| *start <= number) - 1;
        let at = self.rows_at[interval] as usize;
        &self.words[at..at + self.row_words]
    }

    /// Bytes held.
    pub(super) const fn memory_bytes(&self) -> usize {
        self.starts.len() * (size_of::<N>() + size_of::<u32>()) + self.words.len() * size_of::<u64>()
    }
}
