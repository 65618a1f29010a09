//! Sets of nodes.

use crate::connection::NodeId;

/// The most nodes that an edge distributes flows to. Their numbers are below this.
pub const NODES_MAX: usize = 64;

/// A set of nodes whose numbers are below [`NODES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeSet(u64);

impl NodeSet {
    /// The set without a node.
    pub const EMPTY: Self = Self(0);

    const fn bit(node: NodeId) -> u64 {
        if (node.0 as usize) < NODES_MAX { 1 << node.0 } else { 0 }
    }

    /// Whether the node is in the set. A number of [`NODES_MAX`] or more never is.
    #[must_use]
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & Self::bit(node) != 0
    }

    /// Adds a node. Returns false if it was in the set, or its number is [`NODES_MAX`] or more.
    pub const fn insert(&mut self, node: NodeId) -> bool {
        let before = self.0;
        self.0 |= Self::bit(node);
        self.0 != before
    }

    /// Removes a node. Returns false if it was not in the set.
    pub const fn remove(&mut self, node: NodeId) -> bool {
        let before = self.0;
        self.0 &= !Self::bit(node);
        self.0 != before
    }

    /// The nodes of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The nodes of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The number of nodes.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether it has no node.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes, in rising order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let first = left;
            left &= left.wrapping_sub(1);
            (first != 0).then(|| NodeId(first.trailing_zeros() as u8))
        })
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        nodes.into_iter().fold(Self::EMPTY, |mut set, node| {
            set.insert(node);
            set
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_inserted_removed_and_iterated_in_order() {
        let mut set: NodeSet = [NodeId(63), NodeId(0), NodeId(7)].into_iter().collect();
        assert!(set.iter().eq([NodeId(0), NodeId(7), NodeId(63)]) && set.len() == 3);
        assert!(!set.insert(NodeId(7)) && set.remove(NodeId(7)) && !set.remove(NodeId(7)));
        assert_eq!(set.without([NodeId(63)].into_iter().collect()), [NodeId(0)].into_iter().collect());
        assert_eq!(set.union([NodeId(1)].into_iter().collect()), [0, 1, 63].map(NodeId).into_iter().collect());
        assert!(NodeSet::EMPTY.is_empty() && !set.is_empty());
    }

    #[test]
    fn numbers_beyond_the_limit_are_in_no_set() {
        let mut set = NodeSet::EMPTY;
        assert!(!set.insert(NodeId(64)) && !set.insert(NodeId(255)) && !set.contains(NodeId(64)) && set.is_empty());
    }
}
