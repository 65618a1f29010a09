//! Doubly linked lists through the items of an array, in order of last use.

/// No item.
pub(crate) const NONE: u32 = u32::MAX;

/// An item's neighbours in its list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) next: u32,
    pub(crate) previous: u32,
}

impl Links {
    /// Those of an item in no list.
    pub(crate) const NEW: Self = Self { next: NONE, previous: NONE };
}

/// An array with links in its items.
pub(crate) trait Linked {
    /// The links of an item that exists.
    fn links(&mut self, index: u32) -> &mut Links;
}

/// A list: the item used longest ago comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    /// Appends an item that is in no list.
    pub(crate) fn push(&mut self, items: &mut impl Linked, index: u32) {
        *items.links(index) = Links { next: NONE, previous: self.last };
        if self.last == NONE {
            self.first = index;
        } else {
            items.links(self.last).next = index;
        }
        self.last = index;
    }

    /// Removes an item of this list.
    pub(crate) fn remove(&mut self, items: &mut impl Linked, index: u32) {
        let Links { next, previous } = core::mem::replace(items.links(index), Links::NEW);
        if previous == NONE {
            self.first = next;
        } else {
            items.links(previous).next = next;
        }
        if next == NONE {
            self.last = previous;
        } else {
            items.links(next).previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    impl Linked for Vec<Links> {
        fn links(&mut self, index: u32) -> &mut Links {
            &mut self[index as usize]
        }
    }

    proptest! {
        #[test]
        fn a_list_is_a_queue_whose_items_can_be_removed(uses in prop::collection::vec((0u32..8, any::<bool>()), 0..60)) {
            let (mut list, mut items, mut model) = (List::EMPTY, [Links::NEW; 8].to_vec(), VecDeque::new());
            for (index, is_use) in uses {
                if let Some(at) = model.iter().position(|item| *item == index) {
                    model.remove(at);
                    list.remove(&mut items, index);
                }
                if is_use {
                    model.push_back(index);
                    list.push(&mut items, index);
                }
                let mut at = list.first;
                for expected in &model {
                    prop_assert_eq!(at, *expected);
                    at = items[at as usize].next;
                }
                prop_assert_eq!(at, NONE);
            }
        }
    }
}
