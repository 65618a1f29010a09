//! Ranges of ports, and their division among the nodes of a cluster.

use core::fmt;
use core::num::NonZeroU8;

use flow::NodeId;

/// Ports from `first` to `last`, both included; never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Ports from `first` to `last`; `None` when `last` is before `first`.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// The ports from `first` on.
    #[must_use]
    pub const fn to_the_last(first: u16) -> Self {
        Self { first, last: u16::MAX }
    }

    /// One port.
    #[must_use]
    pub const fn single(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The first port.
    #[must_use]
    pub const fn first(&self) -> u16 {
        self.first
    }

    /// The last port.
    #[must_use]
    pub const fn last(&self) -> u16 {
        self.last
    }

    /// The number of ports, 1 to 65536.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.last as u32 - self.first as u32 + 1
    }

    /// Whether it contains `port`.
    #[must_use]
    pub const fn contains(&self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }

    /// The part of the range for `node` of `nodes` nodes (from 0). The parts are disjoint, cover the range, and differ
    /// in size by one port at most. `None` for an invalid node, or when there are fewer ports than nodes.
    #[must_use]
    pub fn slice(&self, node: NodeId, nodes: NonZeroU8) -> Option<Self> {
        let (node, nodes) = (u32::from(node.0), u32::from(nodes.get()));
        if node >= nodes || self.count() < nodes {
            return None;
        }
        let bound = |index: u32| u32::from(self.first) + self.count() * index / nodes;
        let port = |number: u32| u16::try_from(number).ok();
        Self::new(port(bound(node))?, port(bound(node + 1) - 1)?)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(formatter, "{}", self.first)
        } else {
            write!(formatter, "{}-{}", self.first, self.last)
        }
    }
}

impl fmt::Debug for PortRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slices_follow_each_other_without_gap_or_overlap(a in 0u16.., b in 0u16.., nodes in 1u8..) {
            let range = PortRange::new(a.min(b), a.max(b)).unwrap();
            let nodes = NonZeroU8::new(nodes).unwrap();
            let mut next = u32::from(range.first());
            for node in 0..nodes.get() {
                let Some(slice) = range.slice(NodeId(node), nodes) else {
                    prop_assert!(range.count() < u32::from(nodes.get()));
                    return Ok(());
                };
                prop_assert_eq!(u32::from(slice.first()), next);
                next = u32::from(slice.last()) + 1;
                let fair = range.count() / u32::from(nodes.get());
                prop_assert!((fair..=fair + 1).contains(&slice.count()));
            }
            prop_assert_eq!(next, u32::from(range.last()) + 1);
            prop_assert_eq!(range.slice(NodeId(nodes.get()), nodes), None);
        }
    }
}
