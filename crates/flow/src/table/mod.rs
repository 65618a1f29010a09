//! The bounded table of connections.
//!
//! ```text
//!  tuple --HashKey--> hash --+--> index: buckets of a cache line --> slot --+--> records: 4 cache lines each
//!                            |    (tag, slot) x 10                          +--> cold parts: timer, age
//!  a batch at a time:   fetch buckets      compare tags, fetch records      compare tuples
//! ```
//!
//! A connection is entered in the index once for each *different* hash of its two tuples: once as a rule, as the hash
//! of a tuple and of its inverse are the same, and twice under NAT. Which of the two tuples a packet carries is decided
//! by comparing it with both.
//!
//! All memory is reserved by [`Table::new`]. A full table refuses new connections ([`InsertError::Full`]); its owner
//! may make room first by removing an [`Table::early_drop_candidate`].

mod index;
mod slab;
#[cfg(test)]
mod tests;

use index::Index;
use slab::{ColdTimers, Slab};

/// As rooms below ask for memory as well.
pub use filters::prefetch;
pub use slab::Cold;

use crate::connection::{Connection, flags};
use crate::timer_wheel::{Poll, TimerWheel};
use crate::{Direction, HashKey, Instant, Tuple};

/// The most connections that a table can be made for.
pub const CONNECTIONS_MAX: u32 = crate::timer_wheel::INDEX_MAX;

/// Ticks of the table's timers are 2^26 ns: a connection outlives its expiry by 67 ms at most.
pub const TICK_BITS: u32 = 26;

/// Timers that one call of [`Table::poll_expired`] finds put off and arms again before it returns.
pub const REARMS_PER_POLL_MAX: u32 = 256;

/// Buckets and connections that [`Table::early_drop_candidate`] looks at.
const EARLY_DROP_BUCKETS_MAX: usize = 16;
const EARLY_DROP_CONNECTIONS_MAX: usize = 64;

/// Where a connection lies in the table; valid until the connection is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// Why a connection could not be entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InsertError {
    /// The table holds as many connections as it may.
    #[error("the connection table is full")]
    Full,
    /// One of the two tuples is already that of another connection.
    #[error("the tuple belongs to another connection")]
    TupleInUse,
}

/// The bounded table of connections: one record a connection, found by either of its two tuples.
pub struct Table {
    key: HashKey,
    /// Bits of the hash that count, for tests with tuples that collide.
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

    /// Every connection held lies in a slot below this.
    #[must_use]
    pub fn slots_used(&self) -> u32 {
        self.slab.slots_used()
    }

    /// No connection is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most connections that it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.slab.capacity()
    }

    /// Bytes of memory that the table holds when it is full (reserved from the start, touched as connections come).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.slab.memory_bytes() + self.index.memory_bytes()
    }

    /// Finds a connection by a tuple of its own and its hash.
    #[must_use]
    #[inline]
    pub fn lookup(&self, hash: u64, tuple: &Tuple) -> Option<(Slot, Direction)> {
        self.index.find(hash, |slot| self.compare(slot, tuple))
    }

    /// The first of three steps of looking up many connections at once: has the line fetched in which a hash is looked
    /// for. Do other work (the same for other packets) before the next step, so that the cache misses of all overlap.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// The second step: has the record fetched that the index most likely means, and says which it is. The functions' states
    /// in it are left to [`Table::prefetch_functions`].
    #[inline]
    pub fn prefetch_record(&self, hash: u64) -> Option<Slot> {
        let slot = self.index.glance(hash)?;
        self.slab.prefetch_record(slot);
        Some(Slot(slot))
    }

    /// Has the functions' states of a connection fetched.
    #[inline]
    pub fn prefetch_functions(&self, slot: Slot) {
        self.slab.prefetch_functions(slot.0);
    }

    /// The third step: [`Table::lookup`] with what the second one said. Whatever happened to the table in between, the
    /// answer is right.
    #[must_use]
    #[inline]
    pub fn lookup_likely(&self, likely: Option<Slot>, hash: u64, tuple: &Tuple) -> Option<(Slot, Direction)> {
        likely.and_then(|slot| self.compare(slot.0, tuple)).or_else(|| self.lookup(hash, tuple))
    }

    /// Whether `tuple` is one of the connection's, and which.
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

    /// Enters a connection that begins `now` under both of its tuples, and arms its timer at
    /// `connection.expires_at_nanos`.
    ///
    /// # Errors
    /// [`InsertError`]; the table is then as it was. A tuple in use is told even if the table is full too.
    pub fn insert(&mut self, connection: Connection, now: Instant) -> Result<Slot, InsertError> {
        self.insert_hashed(connection, self.hash(&connection.original), now)
    }

    /// As [`Table::insert`], with the hash of the original tuple, which whoever looked for it has.
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

    /// The connection in `slot`, to be changed. Its tuples must stay as they are; its expiry may be put off freely (the
    /// timer looks again), but is brought forward only by [`Table::expire_sooner`].
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Connection> {
        self.slab.get_mut(slot.0)
    }

    /// What is kept of the connection in `slot` beside its record.
    #[must_use]
    pub fn cold(&self, slot: Slot) -> Option<&Cold> {
        self.slab.is_occupied(slot.0).then(|| &self.slab.cold[slot.0 as usize])
    }

    /// Sets the expiry of a connection to a point earlier than its timer may stand at. A later point is right too.
    pub fn expire_sooner(&mut self, slot: Slot, at: Instant) {
        let Some(connection) = self.slab.get_mut(slot.0) else { return };
        connection.expires_at_nanos = at.as_nanos();
        // Mostly the timer fires before that and looks again: the record says so, and the timer is left where it lies.
        if connection.timer_tick != 0 && u64::from(connection.timer_tick) <= at.as_nanos() >> TICK_BITS {
            return;
        }
        if self.slab.cold[slot.0 as usize].timer.deadline().is_none_or(|deadline| at < deadline) {
            self.arm(slot.0, at);
        }
    }

    fn arm(&mut self, slot: u32, at: Instant) {
        // A tick that 32 bits do not hold (9 years) counts as not known.
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

    /// The next connection whose time has come by `now`; call until `None` (or until the caller's budget is spent).
    /// The connection is still in the table: the caller removes it or puts its expiry off with [`Table::expire_sooner`]
    /// or a change of `expires_at_nanos` before calling again. One that is left as it is comes again a tick later.
    ///
    /// A call does a bounded share of work. `None` with [`Table::next_expiry`] not after `now` means that timers are
    /// still to be looked at: call again after other work.
    pub fn poll_expired(&mut self, now: Instant) -> Option<Slot> {
        // Against a clock that runs backwards: what the wheel took for the present stays past.
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

    /// When `poll_expired` has something to do next at the earliest.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.wheel.next_expiry()
    }

    /// The first connection in a slot at or after `from`, for walking the table a part at a time while it changes.
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

    /// A connection that a new one of hash `near` may take the place of when the table is full: the first that is not
    /// [`flags::ASSURED`] among at most 64 in the sixteen buckets from that of `near` on, as Linux's `early_drop` does
    /// it. A flood of connections that never complete displaces its own kind and leaves established ones alone; the
    /// keyed hash keeps the flood from choosing its victims. `None`: refuse the new connection.
    #[must_use]
    pub fn early_drop_candidate(&self, near: u64) -> Option<Slot> {
        self.index
            .near(near, EARLY_DROP_BUCKETS_MAX)
            .take(EARLY_DROP_CONNECTIONS_MAX)
            .find(|slot| self.slab.record(*slot).flags & flags::ASSURED == 0)
            .map(Slot)
    }
}
