//! Doubly linked lists through the items of an array, in order of last use.

use alloc::vec::Vec;

/// No item.
pub const NONE: u32 = u32::MAX;

/// An item's neighbours in its list.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// The item behind it, or [`NONE`].
    pub next: u32,
    /// The item before it, or [`NONE`].
    pub previous: u32,
}

impl Links {
    /// Those of an item in no list.
    pub const NEW: Self = Self { next: NONE, previous: NONE };
}

/// An array with links in its items.
pub trait Linked {
    /// The links of an item that exists.
    fn links(&mut self, index: u32) -> &mut Links;
}

/// An item that has its links in it.
pub trait Item {
    /// Its links.
    fn links(&mut self) -> &mut Links;
}

impl<T: Item> Linked for Vec<T> {
    fn links(&mut self, index: u32) -> &mut Links {
        self[index as usize].links()
    }
}

/// A list: the item used longest ago comes first.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// The first item, or [`NONE`].
    pub first: u32,
    last: u32,
}

impl List {
    /// A list without items.
    pub const EMPTY: Self = Self { first: NONE, last: NONE };

    /// Appends an item that is in no list.
    pub fn push(&mut self, items: &mut impl Linked, index: u32) {
        *items.links(index) = Links { next: NONE, previous: self.last };
        if self.last == NONE {
            self.first = index;
        } else {
            items.links(self.last).next = index;
        }
        self.last = index;
    }

    /// Removes an item of this list.
    pub fn remove(&mut self, items: &mut impl Linked, index: u32) {
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
    use proptest::prelude::*;

    impl Item for Links {
        fn links(&mut self) -> &mut Links {
            self
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
