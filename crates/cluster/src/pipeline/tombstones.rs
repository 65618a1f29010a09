//! Tombstones: connections that have ended while a peer that knows them could not be informed.
//!
//! Such a peer may come back and replicate them: it goes on with replicas of connections whose owner it no longer reaches, and
//! with its own that another node has taken over and ended since. So its update of a connection with a tombstone counts only
//! if packets have reached it since:
//!
//! | the peer's update | is |
//! |---|---|
//! | of its first owner, and the one that ended had only one owner, too: this node | of another connection with the same tuple: taken |
//! | of an owner that has seen no packet | of the replica that it has from before: refused |
//! | newer than the end | of a connection that packets reach there: taken |
//! | as new or older | of what has ended here: refused |
//!
//! A peer that is refused receives the end with a version that is newer than its own, and removes the connection as well.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use flow::connection::flags;
use flow::serial::is_before;
use flow::{Connection, Instant};

/// How long an end is remembered: a peer that comes back later than that may bring back what it knew.
pub const TOMBSTONE_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// The most tombstones, unless the table holds fewer connections; the oldest is discarded.
pub const TOMBSTONES_MAX: u32 = 1 << 18;
/// The most that are forgotten at once, their time being over.
const FORGOTTEN_AT_ONCE_MAX: usize = 256;

/// A connection that has ended.
#[derive(Clone, Copy, Debug)]
struct Tombstone {
    name: u64,
    version: u32,
    ended_at: Instant,
}

/// What is counted of tombstones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TombstoneCounters {
    /// Ends remembered now.
    pub held: u32,
    /// Ends that gave way to newer ones before their time was over.
    pub displaced: u64,
    /// Updates of connections that have ended, refused.
    pub refused: u64,
}

/// Ends in the order in which they came, and where each is.
#[derive(Debug)]
pub(super) struct Tombstones {
    ring: VecDeque<Tombstone>,
    /// The place of each name's newest in the order of all that ever came.
    index: BTreeMap<u64, u64>,
    /// Place of the first in the ring.
    first: u64,
    held_max: usize,
    counters: TombstoneCounters,
}

impl Tombstones {
    pub(super) const fn new(connections_max: u32) -> Self {
        let held_max = if connections_max < TOMBSTONES_MAX { connections_max } else { TOMBSTONES_MAX };
        Self {
            ring: VecDeque::new(),
            index: BTreeMap::new(),
            first: 0,
            held_max: held_max as usize,
            counters: TombstoneCounters { held: 0, displaced: 0, refused: 0 },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Remembers that the connection of this name has ended.
    pub(super) fn add(&mut self, now: Instant, name: u64, version: u32) {
        self.forget_old(now);
        if self.ring.len() >= self.held_max {
            self.pop();
            self.counters.displaced += 1;
        }
        self.index.insert(name, self.first + self.ring.len() as u64);
        self.ring.push_back(Tombstone { name, version, ended_at: now });
    }

    pub(super) fn forget_old(&mut self, now: Instant) {
        for _ in 0..FORGOTTEN_AT_ONCE_MAX {
            if self.ring.front().is_none_or(|oldest| now < oldest.ended_at + TOMBSTONE_LIFETIME) {
                return;
            }
            self.pop();
        }
    }

    fn pop(&mut self) {
        let Some(oldest) = self.ring.pop_front() else { return };
        if self.index.get(&oldest.name) == Some(&self.first) {
            self.index.remove(&oldest.name);
        }
        self.first += 1;
    }

    fn place(&self, name: u64) -> Option<usize> {
        self.index.get(&name).map(|place| (place - self.first) as usize)
    }

    /// Ends that are remembered, and what came of them.
    pub(super) fn counters(&self) -> TombstoneCounters {
        TombstoneCounters { held: self.index.len() as u32, ..self.counters }
    }

    /// The version that a new connection with this name begins with: newer than all of an earlier one, if its end is
    /// remembered, and two owners on, as in [`Connection::version_of_successor`].
    pub(super) fn first_version(&self, name: u64) -> u32 {
        self.version(name).map_or(1, |version| beyond(beyond(version)))
    }

    /// Whether a replica is of a connection that has ended here (see the [module](self)), and then the version that the end
    /// must have to count more. `known` is whether a connection with the same original tuple in the table is this node's own.
    pub(super) fn refusal(&mut self, name: u64, copy: &Connection, known: Option<bool>) -> Option<u32> {
        let ended = self.version(name)?;
        let is_of_another = is_first_masters(copy.version) && is_first_masters(ended);
        let is_newer = copy.flags & flags::UNSEEN == 0 && is_before(ended, copy.version);
        if is_of_another || is_newer || known == Some(false) {
            if known.is_none() {
                self.index.remove(&name);
            }
            return None;
        }
        self.counters.refused += 1;
        let version = beyond(if is_before(copy.version, ended) { ended } else { copy.version });
        if known.is_none()
            && let Some(place) = self.place(name)
        {
            self.ring[place].version = version;
        }
        Some(version)
    }

    fn version(&self, name: u64) -> Option<u32> {
        Some(self.ring[self.place(name)?].version)
    }
}

/// The first version that an owner after that of `version` could have.
const fn beyond(version: u32) -> u32 {
    (version | 0xffff).wrapping_add(1)
}

/// Whether the connection never had another owner than the node at which it began.
const fn is_first_masters(version: u32) -> bool {
    version >> 16 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    #[test]
    fn ends_are_forgotten_when_their_time_is_over() {
        let mut tombstones = Tombstones::new(10);
        tombstones.add(at(0), 1, 5);
        tombstones.add(at(100), 2, 6);
        tombstones.forget_old(at(0) + TOMBSTONE_LIFETIME);
        assert_eq!((tombstones.version(1), tombstones.version(2)), (None, Some(6)));
        tombstones.forget_old(at(100) + TOMBSTONE_LIFETIME);
        assert!(tombstones.is_empty() && tombstones.index.is_empty());
    }

    #[test]
    fn beyond_the_limit_the_oldest_is_discarded() {
        let mut tombstones = Tombstones::new(4);
        (0..10).for_each(|name| tombstones.add(at(name), name, name as u32));
        let held: std::vec::Vec<_> = (0..10).filter_map(|name| tombstones.version(name)).collect();
        assert_eq!((held, tombstones.counters.displaced), (std::vec![6, 7, 8, 9], 6));
    }

    #[test]
    fn of_two_ends_of_one_tuple_the_later_counts_and_stays() {
        let mut tombstones = Tombstones::new(3);
        [(1, 10), (1, 20), (2, 30)].into_iter().for_each(|(name, version)| tombstones.add(at(0), name, version));
        assert_eq!(tombstones.version(1), Some(20));
        tombstones.add(at(1), 3, 40);
        assert_eq!(tombstones.version(1), Some(20), "the earlier end of the same tuple gave way");
        tombstones.add(at(1), 4, 50);
        assert_eq!(tombstones.version(1), None);
    }
}
