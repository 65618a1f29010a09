//! One thing that rules ask for, a number that every packet has: which rules each number meets.
//!
//! ```text
//!   rule 0   ├───────────────┤                       starts      0   10   20   30   40
//!   rule 1            ├────────────────┤             rows        ..   0.   01   .1   ..     (bit r: rule r is met)
//!            10      20      30       40
//! ```
//!
//! The numbers are cut into intervals at all beginnings and ends of ranges; within an interval every number meets the same
//! rules. A row has a bit for each rule, and in front of these a summary with a bit for each word of them that is not zero.
//! Intervals that meet the same rules share a row.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use flow::random::mix;

/// Bits of a word of a row.
pub(super) const WORD_BITS: usize = u64::BITS as usize;

/// A number that ranges can be asked of.
pub(super) trait Number: Copy + Ord {
    /// The least.
    const ZERO: Self;

    /// The next one; `None` behind the last.
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

/// What a rule asks of a number: that it lies in one of these ranges, (first, last). `None`: nothing.
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
    /// For so many rules.
    pub(super) const fn of(rules: usize) -> Self {
        let rule_words = rules.div_ceil(WORD_BITS);
        Self { summary_words: rule_words.div_ceil(WORD_BITS), rule_words }
    }

    const fn words(self) -> usize {
        self.summary_words + self.rule_words
    }
}

/// What rules ask of a number, in the order of the numbers.
pub(super) struct Plan<N> {
    /// Where a rule (by its number in the group) begins or ends to be met.
    turns: Vec<(N, u16)>,
    /// Rules that ask nothing.
    indifferent: Vec<u16>,
    rules: usize,
}

impl<N: Number> Plan<N> {
    /// What these rules ask; `None` if none of them asks anything.
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
        // Ranges that overlap become one, so that at every turn the rule really turns.
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

    /// Bytes that the dimension holds, at most.
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

/// Spreads a rule's number over 64 bits: the exclusive or over the rules of a row names the row (Zobrist, 1970). Rows of the
/// same name are compared, so that chance cannot mislead.
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
    /// Where the row of these rules lies.
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

/// Which rules of a group each number meets.
#[derive(Clone, Debug)]
pub(super) struct Dimension<N> {
    /// The first number of each interval, ascending from zero.
    starts: Vec<N>,
    /// Where each interval's row lies in `words`.
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
