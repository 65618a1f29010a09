//! The bounded table of connections.
//!
//! ```text
//!  tuple --HashKey--> hash --+--> index: buckets of a cache line --> slot --+--> records: 4 cache lines each
//!                            |    (tag, slot) x 10                          +--> cold parts: timer, age
//!  a batch at a time:   fetch buckets      compare tags, fetch records      compare tuples
//! ```
//!
//! A connection is entered in the index once for each *different* hash of its two tuples: usually once, as a tuple and
//! its inverse have the same hash, and twice under NAT. Comparing a packet's tuple with both determines the direction.
//!
//! All memory is reserved by [`Table::new`]. A full table refuses new connections ([`InsertError::Full`]); its owner
//! may make room first by removing an [`Table::early_drop_candidate`].

pub mod index;
mod slab;
#[cfg(test)]
mod tests;

use index::Index;
use slab::{ColdTimers, Slab};

/// For use by crates above this one.
pub use filters::prefetch;
pub use slab::Cold;

use crate::connection::{Connection, flags};
use crate::timer_wheel::{Poll, TimerWheel};
use crate::{Direction, HashKey, Instant, Tuple};

/// The maximum capacity of a table.
pub const CONNECTIONS_MAX: u32 = crate::timer_wheel::INDEX_MAX;

/// Ticks of the table's timers are 2^26 ns: a connection outlives its expiry by 67 ms at most.
pub const TICK_BITS: u32 = 26;

/// The maximum number of timers with a later expiry that one call of [`Table::poll_expired`] rearms.
pub const REARMS_PER_POLL_MAX: u32 = 256;

/// The numbers of buckets and connections that [`Table::early_drop_candidate`] examines.
const EARLY_DROP_BUCKETS_MAX: usize = 16;
const EARLY_DROP_CONNECTIONS_MAX: usize = 64;

/// The position of a connection in the table; valid until the connection is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// Why a connection could not be inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InsertError {
    /// The table is full.
    #[error("the connection table is full")]
    Full,
    /// One of the two tuples belongs to another connection.
    #[error("the tuple belongs to another connection")]
    TupleInUse,
}

/// The bounded table of connections: one record a connection, found by either of its two tuples.
pub struct Table {
    key: HashKey,
    /// A mask of the hash, for tests with colliding tuples.
    #[cfg(test)]
    hash_mask: u64,
    index: Index,
    slab: Slab,
    wheel: TimerWheel,
}

impl core::fmt::Debug for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("memory_bytes", &self.memory_bytes())
            .field("wheel", &self.wheel)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// A table for at most `connections_max` connections (clamped to 1 to [`CONNECTIONS_MAX`]), hashed under `key`.
    #[must_use]
    pub fn new(connections_max: u32, key: HashKey) -> Self {
        let connections_max = connections_max.clamp(1, CONNECTIONS_MAX);
        Self {
            key,
            #[cfg(test)]
            hash_mask: u64::MAX,
            index: Index::new(2 * connections_max as usize),
            slab: Slab::new(connections_max),
            wheel: TimerWheel::new(TICK_BITS, Instant::ZERO),
        }
    }

    /// The hash of a tuple, the same for its inverse.
    #[must_use]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        let hash = self.key.hash(tuple);
        #[cfg(test)]
        let hash = hash & self.hash_mask;
        hash
    }

    /// Connections held.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.slab.len()
    }

    /// All connections are in slots below this one.
    #[must_use]
    pub fn slots_used(&self) -> u32 {
        self.slab.slots_used()
    }

    /// Whether it holds no connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most connections that it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.slab.capacity()
    }

    /// Bytes of memory of a full table (reserved at the start, touched as connections arrive).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.slab.memory_bytes() + self.index.memory_bytes()
    }

    /// Finds a connection by one of its tuples and its hash.
    #[must_use]
    #[inline]
    pub fn lookup(&self, hash: u64, tuple: &Tuple) -> Option<(Slot, Direction)> {
        self.index.find(hash, |slot| self.compare(slot, tuple))
    }

    /// The first of three steps of a batched lookup: prefetches the index bucket of a hash. Do other work (the same for
    /// other packets) before the next step, so that the cache misses overlap.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// The second step: prefetches the record that the index most likely refers to, and returns its slot.
    /// [`Table::prefetch_functions`] prefetches the functions' states in it.
    #[inline]
    pub fn prefetch_record(&self, hash: u64) -> Option<Slot> {
        let slot = self.index.glance(hash)?;
        self.slab.prefetch_record(slot);
        Some(Slot(slot))
    }

    /// Prefetches the functions' states of a connection.
    #[inline]
    pub fn prefetch_functions(&self, slot: Slot) {
        self.slab.prefetch_functions(slot.0);
    }

    /// The third step: [`Table::lookup`] with the result of the second one. The result is right even if the table
    /// changed in between.
    #[must_use]
    #[inline]
    pub fn lookup_likely(&self, likely: Option<Slot>, hash: u64, tuple: &Tuple) -> Option<(Slot, Direction)> {
        likely.and_then(|slot| self.compare(slot.0, tuple)).or_else(|| self.lookup(hash, tuple))
    }

    /// The direction in which `tuple` is one of the connection's, if any.
    #[inline(always)]
    fn compare(&self, slot: u32, tuple: &Tuple) -> Option<(Slot, Direction)> {
        let record = self.slab.record(slot);
        if record.original == *tuple {
            Some((Slot(slot), Direction::Original))
        } else if record.reply == *tuple {
            Some((Slot(slot), Direction::Reply))
        } else {
            None
        }
    }

    /// Whether a connection has `tuple`, in either direction.
    #[must_use]
    pub fn is_used(&self, tuple: &Tuple) -> bool {
        self.lookup(self.hash(tuple), tuple).is_some()
    }

    /// Inserts a connection that begins `now` under both of its tuples, and arms its timer at
    /// `connection.expires_at_nanos`.
    ///
    /// # Errors
    /// [`InsertError`]; the table is then unchanged. A tuple in use is reported even if the table is also full.
    pub fn insert(&mut self, connection: Connection, now: Instant) -> Result<Slot, InsertError> {
        self.insert_hashed(connection, self.hash(&connection.original), now)
    }

    /// As [`Table::insert`], with the hash of the original tuple, which the caller has from its lookup.
    ///
    /// # Errors
    /// Those of [`Table::insert`].
    pub fn insert_hashed(&mut self, connection: Connection, original: u64, now: Instant) -> Result<Slot, InsertError> {
        debug_assert_eq!(original, self.hash(&connection.original), "the hash is that of the connection");
        let reply = self.reply_hash(&connection, original);
        self.index.prefetch(original);
        self.index.prefetch(reply);
        self.slab.prefetch_free();
        let is_used = self.lookup(original, &connection.original).or_else(|| self.lookup(reply, &connection.reply));
        if is_used.is_some() {
            return Err(InsertError::TupleInUse);
        }
        let slot = self.slab.insert(&connection, now).ok_or(InsertError::Full)?;
        self.index.insert(original, slot);
        if reply != original {
            self.index.insert(reply, slot);
        }
        self.arm(slot, connection.expires_at());
        Ok(Slot(slot))
    }

    /// The hashes of a connection's two tuples.
    fn hashes(&self, connection: &Connection) -> (u64, u64) {
        let original = self.hash(&connection.original);
        (original, self.reply_hash(connection, original))
    }

    /// The hash of a connection's reply tuple; `original` is that of the other.
    fn reply_hash(&self, connection: &Connection, original: u64) -> u64 {
        let is_plain = connection.reply == connection.original.inverse();
        if is_plain { original } else { self.hash(&connection.reply) }
    }

    /// The connection in `slot`, if there is one.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&Connection> {
        self.slab.get(slot.0)
    }

    /// The connection in `slot`, mutable. Its tuples must not change. Its expiry may be extended freely (the timer
    /// checks it when it fires), but shortened only by [`Table::expire_sooner`].
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Connection> {
        self.slab.get_mut(slot.0)
    }

    /// The rarely used data of the connection in `slot`.
    #[must_use]
    pub fn cold(&self, slot: Slot) -> Option<&Cold> {
        self.slab.is_occupied(slot.0).then(|| &self.slab.cold[slot.0 as usize])
    }

    /// Moves the expiry of a connection before its armed timer. A later time is permitted, too.
    pub fn expire_sooner(&mut self, slot: Slot, at: Instant) {
        let Some(connection) = self.slab.get_mut(slot.0) else { return };
        connection.expires_at_nanos = at.as_nanos();
        // Mostly the timer fires before that and is rearmed: the record proves it without a read of the timer.
        if connection.timer_tick != 0 && u64::from(connection.timer_tick) <= at.as_nanos() >> TICK_BITS {
            return;
        }
        if self.slab.cold[slot.0 as usize].timer.deadline().is_none_or(|deadline| at < deadline) {
            self.arm(slot.0, at);
        }
    }

    fn arm(&mut self, slot: u32, at: Instant) {
        // A tick beyond 32 bits (9 years) counts as unknown.
        let tick = (at.as_nanos() >> TICK_BITS).saturating_add(1);
        self.slab.record_mut(slot).timer_tick = u32::try_from(tick).unwrap_or(0);
        self.wheel.arm(&mut ColdTimers(&mut self.slab.cold), slot, at);
    }

    /// Removes a connection.
    pub fn remove(&mut self, slot: Slot) -> Option<Connection> {
        self.slab.prefetch_cold(slot.0);
        let connection = *self.get(slot)?;
        let (original, reply) = self.hashes(&connection);
        self.index.prefetch(original);
        self.index.prefetch(reply);
        for neighbour in self.slab.cold[slot.0 as usize].timer.neighbours() {
            self.slab.prefetch_cold(neighbour);
        }
        self.index.remove(original, slot.0);
        if reply != original {
            self.index.remove(reply, slot.0);
        }
        self.wheel.cancel(&mut ColdTimers(&mut self.slab.cold), slot.0);
        self.slab.remove(slot.0);
        Some(connection)
    }

    /// The next connection that has expired by `now`; call until `None`, or until the caller's budget is spent. The
    /// connection stays in the table: before the next call, the caller removes it or extends its expiry. An unchanged
    /// one is returned again a tick later.
    ///
    /// A call does a bounded amount of work. `None` with [`Table::next_expiry`] not after `now` means that due timers
    /// remain: call again after other work.
    pub fn poll_expired(&mut self, now: Instant) -> Option<Slot> {
        // Against a clock that runs backwards: the wheel's past stays past.
        let now = now.max(self.wheel.turned_to());
        for _ in 0..REARMS_PER_POLL_MAX {
            let Poll::Fired(slot) = self.wheel.poll(&mut ColdTimers(&mut self.slab.cold), now) else { return None };
            let expires_at = self.slab.record(slot).expires_at();
            if expires_at <= now {
                self.arm(slot, Instant::from_nanos(now.as_nanos().saturating_add(self.wheel.tick_nanos())));
                return Some(Slot(slot));
            }
            self.arm(slot, expires_at);
        }
        None
    }

    /// The earliest time at which `poll_expired` has work.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.wheel.next_expiry()
    }

    /// The first connection in a slot at or after `from`, to iterate over the table in parts while it changes.
    #[must_use]
    pub fn next_occupied(&self, from: Slot) -> Option<Slot> {
        self.slab.next_occupied(from.0).map(Slot)
    }

    /// All connections, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Connection)> {
        let occupied = |from| self.slab.next_occupied(from);
        core::iter::successors(occupied(0), move |slot| occupied(slot + 1))
            .map(|slot| (Slot(slot), self.slab.record(slot)))
    }

    /// The victim that a new connection of hash `near` may replace when the table is full. It is the first that is not
    /// [`flags::ASSURED`] among at most 64 in the sixteen buckets from that of `near` on, as in Linux's `early_drop`.
    ///
    /// A flood of incomplete connections so displaces its own kind and no established connection; the keyed hash keeps
    /// the flood from choosing victims. `None`: refuse the new connection. Only what `may_go` is given up.
    #[must_use]
    pub fn early_drop_candidate(&self, near: u64, may_go: impl Fn(&Connection) -> bool) -> Option<Slot> {
        self.index
            .near(near, EARLY_DROP_BUCKETS_MAX)
            .take(EARLY_DROP_CONNECTIONS_MAX)
            .find(|slot| {
                let connection = self.slab.record(*slot);
                connection.flags & flags::ASSURED == 0 && may_go(connection)
            })
            .map(Slot)
    }
}
