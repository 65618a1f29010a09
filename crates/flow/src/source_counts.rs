//! Exact resource counts per source.
//!
//! A source is a prefix of addresses: an IPv6 host can use a whole /64, so that counting single addresses would be
//! useless. Sources are hashed under a secret key, and those with a count of zero are removed, so there are never more
//! entries than counted items.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::{HashKey, IpFamily, Tuple};

/// The prefix length that defines a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourcePrefixes {
    /// Of IPv4 addresses, 0 to 32.
    pub ipv4_bits: u8,
    /// Of IPv6 addresses, 0 to 128.
    pub ipv6_bits: u8,
}

impl Default for SourcePrefixes {
    /// Single IPv4 addresses, and the IPv6 prefix that one link has (RFC 4291 section 2.5.4).
    fn default() -> Self {
        Self { ipv4_bits: 32, ipv6_bits: 64 }
    }
}

impl SourcePrefixes {
    /// The source of `tuple`, as a tuple with all other fields cleared.
    #[must_use]
    pub fn of(self, tuple: &Tuple) -> Tuple {
        let bits = match tuple.family() {
            // In the mapped form the address is behind 96 bits of prefix.
            IpFamily::V4 => 96 + u32::from(self.ipv4_bits.min(32)),
            IpFamily::V6 => u32::from(self.ipv6_bits.min(128)),
        };
        let hosts = u128::MAX.checked_shr(bits).unwrap_or(0);
        let source = (u128::from_be_bytes(tuple.source) & !hosts).to_be_bytes();
        Tuple {
            source,
            destination: [0; 16],
            source_port: 0,
            destination_port: 0,
            protocol: 0,
            version: tuple.version,
            discriminator: 0,
        }
    }
}

/// The count of one source.
#[derive(Clone, Copy, Debug)]
struct Count {
    source: Tuple,
    count: u32,
}

/// Counts by source.
#[derive(Clone, Debug)]
pub struct SourceCounts {
    key: HashKey,
    prefixes: SourcePrefixes,
    counts: HashTable<Count>,
}

impl SourceCounts {
    /// An empty counter. It allocates room for `sources_max` sources at once, so that a new source never causes a
    /// delay; the caller counts no more items than that.
    #[must_use]
    pub fn new(key: HashKey, prefixes: SourcePrefixes, sources_max: usize) -> Self {
        Self { key, prefixes, counts: HashTable::with_capacity(sources_max) }
    }

    /// The count of the source of `tuple`.
    #[must_use]
    pub fn count(&self, tuple: &Tuple) -> u32 {
        let source = self.prefixes.of(tuple);
        self.counts.find(self.key.hash(&source), |count| count.source == source).map_or(0, |found| found.count)
    }

    /// Adds `amount` to the source of `tuple`.
    pub fn add(&mut self, tuple: &Tuple, amount: u32) {
        let source = self.prefixes.of(tuple);
        let key = self.key;
        let entry =
            self.counts.entry(key.hash(&source), |count| count.source == source, |count| key.hash(&count.source));
        let mut count = entry.or_insert(Count { source, count: 0 });
        count.get_mut().count = count.get().count.saturating_add(amount);
    }

    /// Subtracts `amount` from the source of `tuple`; a source with zero is removed.
    pub fn subtract(&mut self, tuple: &Tuple, amount: u32) {
        let source = self.prefixes.of(tuple);
        let key = self.key;
        let entry =
            self.counts.entry(key.hash(&source), |count| count.source == source, |count| key.hash(&count.source));
        let Entry::Occupied(mut count) = entry else {
            debug_assert!(false, "a source gives back what it has");
            return;
        };
        count.get_mut().count = count.get().count.saturating_sub(amount);
        if count.get().count == 0 {
            count.remove();
        }
    }

    /// The number of sources with a count.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.counts.len()
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn from_v4(last: u8) -> Tuple {
        Tuple::v4(6, (Ipv4Addr::new(10, 0, 0, last), 1000), (Ipv4Addr::new(192, 0, 2, 1), 80))
    }

    fn from_v6(subnet: u16, host: u16) -> Tuple {
        let source = Ipv6Addr::new(0x2001, 0xdb8, 0, subnet, 0, 0, 0, host);
        Tuple::v6(6, (source, 1000), (Ipv6Addr::LOCALHOST, 80))
    }

    #[test]
    fn all_hosts_of_an_ipv6_link_are_one_source_and_ipv4_hosts_are_one_each() {
        let mut counts = SourceCounts::new(HashKey([1, 2]), SourcePrefixes::default(), 8);
        counts.add(&from_v6(1, 1), 1);
        counts.add(&from_v6(1, 2), 1);
        counts.add(&from_v6(2, 1), 1);
        counts.add(&from_v4(1), 1);
        counts.add(&from_v4(2), 1);
        assert_eq!((counts.count(&from_v6(1, 77)), counts.count(&from_v6(2, 77))), (2, 1));
        assert_eq!((counts.count(&from_v4(1)), counts.count(&from_v4(3))), (1, 0));
        assert_eq!(counts.sources(), 4);
        counts.subtract(&from_v6(2, 9), 1);
        assert_eq!(counts.sources(), 3, "a source with zero is removed");
    }

    #[test]
    fn a_prefix_of_no_bits_makes_a_family_one_source() {
        let prefixes = SourcePrefixes { ipv4_bits: 0, ipv6_bits: 0 };
        let mut counts = SourceCounts::new(HashKey([1, 2]), prefixes, 8);
        counts.add(&from_v4(1), 1);
        counts.add(&from_v4(200), 1);
        counts.add(&from_v6(1, 1), 1);
        assert_eq!((counts.count(&from_v4(7)), counts.count(&from_v6(7, 7))), (2, 1));
    }

    proptest! {
        #[test]
        fn counts_equal_those_of_a_plain_map(changes in prop::collection::vec((0u8..6, 1u32..5, any::<bool>()), 0..200)) {
            let mut counts = SourceCounts::new(HashKey([3, 4]), SourcePrefixes::default(), 6);
            let mut reference: BTreeMap<u8, u32> = BTreeMap::new();
            for (host, amount, is_more) in changes {
                let has = reference.entry(host).or_default();
                if is_more {
                    *has += amount;
                    counts.add(&from_v4(host), amount);
                } else if *has >= amount {
                    *has -= amount;
                    counts.subtract(&from_v4(host), amount);
                }
                reference.retain(|_, has| *has > 0);
                prop_assert_eq!(counts.sources(), reference.len());
                for host in 0..6 {
                    prop_assert_eq!(counts.count(&from_v4(host)), reference.get(&host).copied().unwrap_or(0));
                }
            }
        }
    }
}
