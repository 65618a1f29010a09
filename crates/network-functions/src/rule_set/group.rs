//! Rules of one family that are matched together, by bit vectors (Lakshman and Stiliadis, "High-speed policy-based
//! packet forwarding using efficient multi-dimensional range matching", SIGCOMM 1998) with summaries (Baboescu and
//! Varghese, "Scalable packet classification", SIGCOMM 2001).
//!
//! ```text
//!   source address ──► row ─┐
//!   destination ─────► row ─┤
//!   service ─────────► row ─┼─ and ─► the first bit that is left is the first rule that the packet meets
//!   source port ─────► row ─┤
//!   ingress ─────────► row ─┤
//!   class ───────────► row ─┘
//! ```
//!
//! A dimension in which no rule of the group has a condition is omitted. Groups are limited so that their rows fit a
//! bound: thousands of nested ranges yield several groups, tried in order, rather than unbounded rows.

use alloc::vec::Vec;

use arrayvec::ArrayVec;

use super::compiled::RuleIndex;
use super::dimension::{Dimension, Number, Plan, RowShape, WORD_BITS, Wanted};

/// The maximum bytes of a group for each of its rules, unless it has [`GROUP_RULES_MIN`] rules.
pub(super) const GROUP_BYTES_PER_RULE_MAX: usize = 8192;
/// The number of rules that are matched together regardless of their conditions: their rows have one word, so a group
/// has a few words for each listed value.
pub(super) const GROUP_RULES_MIN: usize = WORD_BITS;
const DIMENSIONS_MAX: usize = 6;

/// The fields of a packet that rules match, with addresses of one family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<A> {
    pub(super) source: A,
    pub(super) destination: A,
    /// Protocol, and its destination port or its ICMP type and code; see [`super::compiled`].
    pub(super) service: u32,
    pub(super) source_port: u32,
    pub(super) ingress: u32,
    pub(super) class: u32,
}

/// The ranges of a rule.
#[derive(Clone, Debug)]
pub(super) struct WantedOfRule<A> {
    pub(super) index: RuleIndex,
    pub(super) sources: Wanted<A>,
    pub(super) destinations: Wanted<A>,
    pub(super) services: Wanted<u32>,
    pub(super) source_ports: Wanted<u32>,
    pub(super) ingress: Wanted<u32>,
    pub(super) classes: Wanted<u32>,
}

/// The dimensions of a group before their rows are computed.
struct GroupPlan<A> {
    sources: Option<Plan<A>>,
    destinations: Option<Plan<A>>,
    services: Option<Plan<u32>>,
    source_ports: Option<Plan<u32>>,
    ingress: Option<Plan<u32>>,
    classes: Option<Plan<u32>>,
}

impl<A: Number> GroupPlan<A> {
    fn of(rules: &[WantedOfRule<A>]) -> Self {
        Self {
            sources: Plan::of(rules.iter().map(|rule| &rule.sources)),
            destinations: Plan::of(rules.iter().map(|rule| &rule.destinations)),
            services: Plan::of(rules.iter().map(|rule| &rule.services)),
            source_ports: Plan::of(rules.iter().map(|rule| &rule.source_ports)),
            ingress: Plan::of(rules.iter().map(|rule| &rule.ingress)),
            classes: Plan::of(rules.iter().map(|rule| &rule.classes)),
        }
    }

    fn bytes_max(&self) -> usize {
        let addresses = [&self.sources, &self.destinations].into_iter().flatten().map(Plan::bytes_max);
        let numbers = [&self.services, &self.source_ports, &self.ingress, &self.classes];
        let numbers = numbers.into_iter().flatten().map(Plan::bytes_max);
        addresses.chain(numbers).sum()
    }
}

/// Rules that are matched together.
#[derive(Clone, Debug)]
pub(super) struct Group<A> {
    /// The rule of each bit of a row.
    rules: Vec<RuleIndex>,
    summary_words: usize,
    sources: Option<Dimension<A>>,
    destinations: Option<Dimension<A>>,
    services: Option<Dimension<u32>>,
    source_ports: Option<Dimension<u32>>,
    ingress: Option<Dimension<u32>>,
    classes: Option<Dimension<u32>>,
}

impl<A: Number> Group<A> {
    /// Appends groups of these rules in order, each with at most `bytes_per_rule_max` bytes for each of its rules.
    pub(super) fn append(groups: &mut Vec<Self>, rules: &[WantedOfRule<A>], bytes_per_rule_max: usize) {
        if rules.is_empty() {
            return;
        }
        let plan = GroupPlan::of(rules);
        if rules.len() > GROUP_RULES_MIN && plan.bytes_max() > rules.len() * bytes_per_rule_max {
            let (first, last) = rules.split_at(rules.len() / 2);
            Self::append(groups, first, bytes_per_rule_max);
            Self::append(groups, last, bytes_per_rule_max);
            return;
        }
        groups.push(Self {
            rules: rules.iter().map(|rule| rule.index).collect(),
            summary_words: RowShape::of(rules.len()).summary_words,
            sources: plan.sources.as_ref().map(Plan::build),
            destinations: plan.destinations.as_ref().map(Plan::build),
            services: plan.services.as_ref().map(Plan::build),
            source_ports: plan.source_ports.as_ref().map(Plan::build),
            ingress: plan.ingress.as_ref().map(Plan::build),
            classes: plan.classes.as_ref().map(Plan::build),
        });
    }

    /// The first rule of the group that `key` matches.
    #[inline]
    pub(super) fn classify(&self, key: &Key<A>) -> Option<RuleIndex> {
        let mut rows: ArrayVec<&[u64], DIMENSIONS_MAX> = ArrayVec::new();
        rows.extend(self.services.as_ref().map(|dimension| dimension.row(key.service)));
        rows.extend(self.destinations.as_ref().map(|dimension| dimension.row(key.destination)));
        rows.extend(self.sources.as_ref().map(|dimension| dimension.row(key.source)));
        rows.extend(self.source_ports.as_ref().map(|dimension| dimension.row(key.source_port)));
        rows.extend(self.ingress.as_ref().map(|dimension| dimension.row(key.ingress)));
        rows.extend(self.classes.as_ref().map(|dimension| dimension.row(key.class)));
        // Without any row the first rule matches, as its conditions are empty.
        first_common(&rows, self.summary_words).map(|bit| self.rules[bit])
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let addresses = [&self.sources, &self.destinations].into_iter().flatten().map(Dimension::memory_bytes);
        let numbers = [&self.services, &self.source_ports, &self.ingress, &self.classes];
        let numbers = numbers.into_iter().flatten().map(Dimension::memory_bytes);
        addresses.chain(numbers).sum::<usize>() + self.rules.len() * size_of::<RuleIndex>()
    }
}

/// The first bit that is set in all rows.
#[inline]
fn first_common(rows: &[&[u64]], summary_words: usize) -> Option<usize> {
    for summary in 0..summary_words {
        let mut candidates = common(rows, summary);
        while candidates != 0 {
            let word = summary * WORD_BITS + candidates.trailing_zeros() as usize;
            let bits = common(rows, summary_words + word);
            if bits != 0 {
                return Some(word * WORD_BITS + bits.trailing_zeros() as usize);
            }
            candidates &= candidates - 1;
        }
    }
    None
}

#[inline(always)]
fn common(rows: &[&[u64]], word: usize) -> u64 {
    rows.iter().fold(u64::MAX, |bits, row| bits & row[word])
}
