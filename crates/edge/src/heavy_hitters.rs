//! The connections with the most bytes, in bounded memory (space-saving: Metwally, Agrawal and El Abbadi, "Efficient
//! computation of frequent and top-k elements in data streams", 2005).
//!
//! There are counters for N connections. A connection without a counter takes over the smallest one, and its count. So any
//! connection with more than a share of 1/N of all bytes has a counter.

use alloc::vec::Vec;

use flow::random::mix;
use hashbrown::HashTable;

/// A counter; the counters are a heap, with the smallest count at the front.
#[derive(Clone, Copy, Debug)]
struct Counter {
    connection: u32,
    bytes: u64,
}

/// The counters.
#[derive(Debug)]
pub(crate) struct HeavyHitters {
    connections_max: usize,
    heap: Vec<Counter>,
    /// The place of each connection in the heap.
    places: HashTable<(u32, u32)>,
}

impl HeavyHitters {
    /// Counters for at most `connections_max` connections, at least one.
    pub(crate) fn new(connections_max: u32) -> Self {
        Self { connections_max: connections_max.max(1) as usize, heap: Vec::new(), places: HashTable::new() }
    }

    /// Counts bytes of a connection. Returns the connection that lost its counter to it, if any.
    pub(crate) fn count(&mut self, connection: u32, bytes: u32) -> Option<u32> {
        if let Some(place) = self.place(connection) {
            self.heap[place].bytes += u64::from(bytes);
            self.sift_down(place);
            return None;
        }
        if self.heap.len() < self.connections_max {
            self.heap.push(Counter { connection, bytes: bytes.into() });
            self.set_place(self.heap.len() - 1);
            self.sift_up(self.heap.len() - 1);
            return None;
        }
        let victim = self.heap[0];
        self.remove_place(victim.connection);
        self.heap[0] = Counter { connection, bytes: victim.bytes + u64::from(bytes) };
        self.set_place(0);
        self.sift_down(0);
        Some(victim.connection)
    }

    /// The connection is gone.
    pub(crate) fn remove(&mut self, connection: u32) {
        let Some(place) = self.place(connection) else { return };
        self.remove_place(connection);
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.set_place(place);
            self.sift_down(place);
            self.sift_up(place);
        }
    }

    fn place(&self, connection: u32) -> Option<usize> {
        let found = self.places.find(mix(connection.into()), |(known, _)| *known == connection);
        found.map(|(_, place)| *place as usize)
    }

    fn set_place(&mut self, place: usize) {
        let connection = self.heap[place].connection;
        let hash = |connection: u32| mix(connection.into());
        let entry = self.places.entry(hash(connection), |(known, _)| *known == connection, |(known, _)| hash(*known));
        entry.or_insert((connection, 0)).get_mut().1 = place as u32;
    }

    fn remove_place(&mut self, connection: u32) {
        if let Ok(entry) = self.places.find_entry(mix(connection.into()), |(known, _)| *known == connection) {
            entry.remove();
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.set_place(one);
        self.set_place(other);
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let children = (2 * place + 1..=2 * place + 2).filter(|child| *child < self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child].bytes) else { return };
            if self.heap[place].bytes <= self.heap[least].bytes {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 && self.heap[place].bytes < self.heap[(place - 1) / 2].bytes {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_connection_with_more_than_its_share_keeps_its_counter() {
        let mut hitters = HeavyHitters::new(4);
        let mut kept = 0;
        for round in 0..1000 {
            // Half of all bytes are of connection 7; the others come once each.
            hitters.count(7, 1000);
            hitters.count(100 + round, 1000);
            kept += u32::from(hitters.place(7).is_some());
        }
        assert_eq!(kept, 1000);
    }

    #[test]
    fn a_new_connection_takes_over_the_smallest_counter() {
        let mut hitters = HeavyHitters::new(2);
        assert_eq!((hitters.count(1, 10), hitters.count(2, 5)), (None, None));
        assert_eq!(hitters.count(3, 1), Some(2));
        assert_eq!(hitters.count(4, 100), Some(3));
        assert_eq!(hitters.count(5, 1), Some(1), "10 bytes are less than 106");
    }

    proptest! {
        #[test]
        fn the_heap_and_its_places_agree(steps in prop::collection::vec((0u32..20, 0u32..100, any::<bool>()), 0..200)) {
            let mut hitters = HeavyHitters::new(5);
            for (connection, bytes, is_removal) in steps {
                if is_removal { hitters.remove(connection) } else { hitters.count(connection, bytes); }
                prop_assert!(hitters.heap.len() <= 5 && hitters.places.len() == hitters.heap.len());
                for (place, counter) in hitters.heap.iter().enumerate() {
                    prop_assert_eq!(hitters.place(counter.connection), Some(place));
                    prop_assert!(place == 0 || hitters.heap[(place - 1) / 2].bytes <= counter.bytes);
                }
            }
        }
    }
}
