//! Consistent hashing with little imbalance (MAGLEV, section 3.4).
//!
//! Each backend has a permutation of the table's entries, from an offset and a skip. Backends take turns: each takes the
//! next entry of its permutation that is free. When a backend leaves, few entries change beyond its own.

use alloc::vec;
use alloc::vec::Vec;

use flow::{HashKey, Tuple};

/// The entries of a table, a prime: the smaller size of the paper, for services with up to about 650 backends.
pub const ENTRIES: usize = 65_537;

/// The entry of a table without backends.
pub const NONE: u16 = u16::MAX;

/// Public keys of the permutations: all nodes must have the same ones.
const OFFSET_KEY: HashKey = HashKey([0x6d61_676c_6576_206f, 0x6666_7365_7400_0001]);
const SKIP_KEY: HashKey = HashKey([0x6d61_676c_6576_2073, 0x6b69_7000_0000_0002]);

/// A backend as the table sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Candidate {
    /// Its address, in the form of tuples.
    pub address: [u8; 16],
    /// Its port; 0 where it keeps the service's.
    pub port: u16,
    /// Its weight, not 0: its share of the entries is proportional to it.
    pub weight: u16,
    /// What its entries contain.
    pub index: u16,
}

/// A backend's permutation of the entries, and how far it has been used.
struct Permutation {
    next: usize,
    skip: usize,
    weight: u64,
    /// The backend takes its next entry in the round in which its weights so far exceed this.
    due: u64,
    index: u16,
}

impl Permutation {
    fn of(candidate: &Candidate) -> Self {
        let end = Tuple { source: candidate.address, source_port: candidate.port, version: 6, ..Tuple::NONE };
        let below = |hash: u64, count: usize| usize::try_from(hash % count as u64).unwrap_or(0);
        Self {
            next: below(OFFSET_KEY.hash(&end), ENTRIES),
            skip: below(SKIP_KEY.hash(&end), ENTRIES - 1) + 1,
            weight: candidate.weight.into(),
            due: 0,
            index: candidate.index,
        }
    }

    /// The next entry that is free. There must be one.
    fn take(&mut self, table: &mut [u16]) {
        loop {
            let entry = self.next;
            self.next = (self.next + self.skip) % ENTRIES;
            if table[entry] == NONE {
                table[entry] = self.index;
                return;
            }
        }
    }
}

/// The table of these backends. It depends neither on their order nor on the node; without backends, all entries are
/// [`NONE`].
#[must_use]
pub fn table(candidates: &[Candidate]) -> Vec<u16> {
    let mut table = vec![NONE; ENTRIES];
    let mut sorted: Vec<Candidate> = candidates.to_vec();
    sorted.sort_unstable_by_key(|candidate| (candidate.address, candidate.port));
    let mut backends: Vec<Permutation> = sorted.iter().map(Permutation::of).collect();
    let heaviest = backends.iter().map(|backend| backend.weight).max().unwrap_or(0);
    let mut free = if heaviest == 0 { 0 } else { ENTRIES };
    for round in 1u64.. {
        for backend in &mut backends {
            if free == 0 {
                return table;
            }
            if round * backend.weight > backend.due {
                backend.due += heaviest;
                backend.take(&mut table);
                free -= 1;
            }
        }
        if free == 0 {
            break;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(number: u16, weight: u16) -> Candidate {
        let mut address = crate::address::tuple_bytes([10, 0, 0, 0].into());
        address[14..].copy_from_slice(&number.to_be_bytes());
        Candidate { address, port: 80, weight, index: number }
    }

    fn entries_of(table: &[u16], index: u16) -> usize {
        table.iter().filter(|entry| **entry == index).count()
    }

    #[test]
    fn a_hundred_equal_backends_get_equal_shares() {
        let backends: Vec<_> = (0..100).map(|number| candidate(number, 1)).collect();
        let table = table(&backends);
        let largest = (0..100).map(|index| entries_of(&table, index)).max().unwrap();
        let imbalance = largest as f64 / (ENTRIES as f64 / 100.0);
        assert!(imbalance <= 1.01, "the largest share is {imbalance:.4} of the mean");
        assert!(!table.contains(&NONE));
    }

    #[test]
    fn few_entries_move_when_one_of_a_hundred_backends_leaves() {
        let backends: Vec<_> = (0..100).map(|number| candidate(number, 1)).collect();
        let before = table(&backends);
        for gone in [0u16, 37, 99] {
            let rest: Vec<_> = backends.iter().filter(|backend| backend.index != gone).copied().collect();
            let after = table(&rest);
            let moved = before.iter().zip(&after).filter(|(before, after)| **before != gone && before != after).count();
            let share = moved as f64 / ENTRIES as f64;
            assert!(share <= 0.02, "{:.2} % of the entries moved beyond the backend's own", 100.0 * share);
            assert!(!after.contains(&gone));
        }
    }

    #[test]
    fn a_table_without_backends_is_empty() {
        assert!(table(&[]).iter().all(|entry| *entry == NONE));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn shares_follow_weights_whatever_the_order(
            weights in prop::collection::vec(1u16..=1600, 1..40),
            rotation in 0usize..40,
        ) {
            let backends: Vec<_> = (0u16..).zip(&weights).map(|(number, weight)| candidate(number, *weight)).collect();
            let built = table(&backends);
            let mut other = backends.clone();
            other.rotate_left(rotation % backends.len());
            prop_assert!(built == table(&other), "the order of lines decides nothing");
            let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            for backend in &backends {
                let fair = ENTRIES as f64 * f64::from(backend.weight) / sum as f64;
                let share = entries_of(&built, backend.index) as f64;
                prop_assert!((share - fair).abs() <= 2.0 + fair * 0.01, "{share} entries for {fair:.1}");
            }
        }
    }
}
