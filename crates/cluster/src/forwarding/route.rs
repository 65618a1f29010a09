//! Longest-prefix match: nested prefixes are flattened into disjoint ranges when the table is built, so that a lookup
//! is one binary search over their starts, which lie side by side.

use alloc::vec::Vec;
use core::net::IpAddr;

use flow::Prefix;

/// Marks a range that no route covers.
const NO_ROUTE: u16 = u16::MAX;

/// Which next hop, as an index, leads to an address.
#[derive(Clone, Debug)]
pub(super) struct RouteTable {
    v4: RangeMap<u32>,
    v6: RangeMap<u128>,
}

impl RouteTable {
    /// A table of prefixes and the indices of their next hops. Of equal prefixes the last counts.
    pub(super) fn new(routes: &[(Prefix, u16)]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, next_hop) in routes {
            match prefix.address {
                IpAddr::V4(address) => {
                    let hosts = u32::MAX.checked_shr(prefix.length_bits.into()).unwrap_or(0);
                    v4.push((address.to_bits() & !hosts, address.to_bits() | hosts, *next_hop));
                }
                IpAddr::V6(address) => {
                    let hosts = u128::MAX.checked_shr(prefix.length_bits.into()).unwrap_or(0);
                    v6.push((address.to_bits() & !hosts, address.to_bits() | hosts, *next_hop));
                }
            }
        }
        Self { v4: RangeMap::new(v4, |key| key.checked_add(1)), v6: RangeMap::new(v6, |key| key.checked_add(1)) }
    }

    #[inline]
    pub(super) fn lookup(&self, destination: IpAddr) -> Option<u16> {
        match destination {
            IpAddr::V4(address) => self.v4.lookup(address.to_bits()),
            IpAddr::V6(address) => self.v6.lookup(address.to_bits()),
        }
    }
}

#[derive(Clone, Debug)]
struct RangeMap<K> {
    /// First address of each range, ascending; a range ends where the next begins.
    starts: Vec<K>,
    next_hops: Vec<u16>,
}

impl<K: Copy + Ord> RangeMap<K> {
    /// Sweeps over the prefixes, (first, last, next hop), with those that enclose the current address on a stack.
    fn new(mut prefixes: Vec<(K, K, u16)>, successor: impl Fn(K) -> Option<K>) -> Self {
        prefixes.sort_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
        let mut map = Self { starts: Vec::new(), next_hops: Vec::new() };
        let mut enclosing: Vec<(K, u16)> = Vec::new();
        for (first, last, next_hop) in prefixes {
            while enclosing.last().is_some_and(|(end, _)| *end < first) {
                map.close_innermost(&mut enclosing, &successor);
            }
            map.begin(first, next_hop);
            enclosing.push((last, next_hop));
        }
        while !enclosing.is_empty() {
            map.close_innermost(&mut enclosing, &successor);
        }
        map
    }

    fn close_innermost(&mut self, enclosing: &mut Vec<(K, u16)>, successor: &impl Fn(K) -> Option<K>) {
        let Some((end, _)) = enclosing.pop() else { return };
        let outer = enclosing.last().map_or(NO_ROUTE, |(_, next_hop)| *next_hop);
        if let Some(behind) = successor(end) {
            self.begin(behind, outer);
        }
    }

    fn begin(&mut self, start: K, next_hop: u16) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.next_hops.pop();
        }
        self.starts.push(start);
        self.next_hops.push(next_hop);
    }

    #[inline]
    fn lookup(&self, key: K) -> Option<u16> {
        let index = self.starts.partition_point(|start| *start <= key).checked_sub(1)?;
        Some(self.next_hops[index]).filter(|next_hop| *next_hop != NO_ROUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn slow_lookup(routes: &[(Prefix, u16)], destination: IpAddr) -> Option<u16> {
        let matching = routes.iter().filter(|(prefix, _)| prefix.contains(destination));
        matching.max_by_key(|(prefix, _)| prefix.length_bits).map(|(_, next_hop)| *next_hop)
    }

    /// Addresses from few bits, so that prefixes nest and touch, also at the ends of the address space.
    fn address(v6: bool, high: u8, low: u8) -> IpAddr {
        if v6 {
            IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 120 | u128::from(low)))
        } else {
            IpAddr::V4(Ipv4Addr::new(high, 0, 0, low))
        }
    }

    proptest! {
        #[test]
        fn the_longest_matching_prefix_wins(
            routes in proptest::collection::vec((any::<bool>(), any::<u8>(), any::<u8>(), 0u8..=128), 0..40),
            probes in proptest::collection::vec((any::<bool>(), any::<u8>(), any::<u8>()), 1..40),
        ) {
            let prefix = |(v6, high, low, bits): (bool, u8, u8, u8)| {
                Prefix::new(address(v6, high, low), if v6 { bits } else { bits % 33 })
            };
            let routes: Vec<_> = routes.into_iter().zip(0u16..).map(|(route, index)| (prefix(route), index)).collect();
            let table = RouteTable::new(&routes);
            let own = routes.iter().map(|(prefix, _)| prefix.address);
            for probe in probes.into_iter().map(|(v6, high, low)| address(v6, high, low)).chain(own) {
                prop_assert_eq!(table.lookup(probe), slow_lookup(&routes, probe));
            }
        }
    }
}
