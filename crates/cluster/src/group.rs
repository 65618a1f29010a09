//! Groups of shared addresses: each moves from node to node as one, so that several nodes can hold some at a time.

/// Groups that a cluster can have.
pub const GROUPS_MAX: usize = 8;
const _: () = assert!(GROUPS_MAX <= u8::BITS as usize, "a set of groups has a bit for each");

/// The place of a group among those of a node's configuration, below [`GROUPS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupId(pub u8);

impl GroupId {
    /// The first group, which is the only one unless the configuration names several.
    pub const FIRST: Self = Self(0);

    /// The group in this place.
    ///
    /// # Panics
    /// From [`GROUPS_MAX`] on.
    #[must_use]
    pub fn at(index: usize) -> Self {
        assert!(index < GROUPS_MAX);
        Self(u8::try_from(index).unwrap_or(u8::MAX))
    }

    /// Its place, as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Some of the groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupSet(u8);

impl GroupSet {
    /// No group.
    pub const EMPTY: Self = Self(0);
    /// Every group that there can be.
    pub const ALL: Self = Self(u8::MAX);

    /// Whether the group is one of them.
    #[must_use]
    pub const fn contains(self, group: GroupId) -> bool {
        (self.0 as u32 >> group.0) & 1 != 0
    }

    /// These and the group.
    #[must_use]
    pub const fn with(self, group: GroupId) -> Self {
        Self(self.0 | (1 << group.0))
    }

    /// These or those.
    #[must_use]
    pub const fn or(self, those: Self) -> Self {
        Self(self.0 | those.0)
    }

    /// Those of these that are among those.
    #[must_use]
    pub const fn and(self, those: Self) -> Self {
        Self(self.0 & those.0)
    }

    /// Those of these that are not among those.
    #[must_use]
    pub const fn without(self, those: Self) -> Self {
        Self(self.0 & !those.0)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<GroupId> for GroupSet {
    fn from_iter<I: IntoIterator<Item = GroupId>>(groups: I) -> Self {
        groups.into_iter().fold(Self::EMPTY, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_groups_that_were_put_in_and_no_others() {
        let some: GroupSet = [GroupId(0), GroupId(7)].into_iter().collect();
        for index in 0..GROUPS_MAX {
            assert_eq!(some.contains(GroupId::at(index)), index == 0 || index == 7);
            assert!(GroupSet::ALL.contains(GroupId::at(index)) && !GroupSet::EMPTY.contains(GroupId::at(index)));
        }
        assert_eq!(some.without(GroupSet::EMPTY.with(GroupId(7))), GroupSet::EMPTY.with(GroupId::FIRST));
        assert!(some.and(GroupSet::EMPTY.with(GroupId(3))).is_empty());
    }
}
