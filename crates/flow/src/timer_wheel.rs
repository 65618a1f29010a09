//! A hierarchical timer wheel over timers that lie in the caller's own records.
//!
//! The wheel keeps no timer itself: a [`Timer`] (16 bytes) lies in each of the caller's records, and the wheel links
//! those of the same slot into a list by the records' indices. Arming, moving and cancelling are O(1) (scheme 7 of
//! Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987).
//!
//! ```text
//!  level 0   256 slots of 1 tick      the next 256 ticks
//!  level 1   256 slots of 2^8 ticks   the next 65 536 ticks
//!    ...
//!  level 5   256 slots of 2^40 ticks  the rest of time
//!
//!  armed --+--> slot of level n > 0 --(the slot's first tick comes)--> moving --+--> slot of a lower level
//!          +--> slot of level 0 ------(its tick comes)--> due                   +--> due
//!          +--> due (its tick has come already)            |
//!                                                          +--> fired: no longer armed
//! ```
//!
//! A timer lies at the level of the highest byte in which its tick differs from the wheel's, so that everything at a
//! level is due before everything at the levels above it, and the next thing to do is always in the lowest level
//! that holds anything. No timer fires early; polled in time, none fires later than one tick after its deadline.

use alloc::boxed::Box;
use alloc::vec;

use crate::Instant;

#[cfg(test)]
mod tests;

/// Slots of a level; a byte of the tick chooses one.
const SLOTS: usize = 256;
const SLOT_BITS: u32 = 8;
/// Levels; with the shortest tick they cover every [`Instant`].
const LEVELS: usize = 6;
/// The shortest tick is 2^16 ns (65.5 µs).
pub const TICK_BITS_MIN: u32 = 16;
/// The longest tick is 2^40 ns (18 minutes).
pub const TICK_BITS_MAX: u32 = 40;
const TICK_MAX: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;
const _: () = assert!(TICK_BITS_MIN + SLOT_BITS * LEVELS as u32 == u64::BITS);

/// The maximum number of timers that one call of [`TimerWheel::poll`] moves between levels, so that a slot with the
/// timers of a million connections does not delay a caller on the data path.
pub const MOVES_PER_POLL_MAX: u32 = 256;

/// The exclusive maximum of a timer's index: the upper half of the range denotes lists.
pub const INDEX_MAX: u32 = 1 << 31;

/// The list of due timers.
const DUE: usize = LEVELS * SLOTS;
/// The list of timers that move from an upper level's slot to lower ones.
const MOVING: usize = DUE + 1;
const LISTS: usize = MOVING + 1;

const NONE: u32 = u32::MAX;
/// `previous` of a timer that is not armed.
const NOT_ARMED: u32 = u32::MAX;

/// A timer's place in the wheel; lies in the caller's record.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    deadline_nanos: u64,
    /// The next timer of the list, or [`NONE`].
    next: u32,
    /// The one before; [`INDEX_MAX`] + list for the first of a list; [`NOT_ARMED`].
    previous: u32,
}

impl Timer {
    /// A timer that is not armed.
    pub const NEW: Self = Self { deadline_nanos: 0, next: NONE, previous: NOT_ARMED };

    /// Whether it is armed.
    #[must_use]
    pub const fn is_armed(&self) -> bool {
        self.previous != NOT_ARMED
    }

    /// The neighbours that cancelling it will touch: indices of timers, or numbers beyond [`INDEX_MAX`] for none.
    pub(crate) const fn neighbours(&self) -> [u32; 2] {
        [self.previous, self.next]
    }

    /// When it fires, if it is armed.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.is_armed().then_some(Instant::from_nanos(self.deadline_nanos))
    }
}

impl Default for Timer {
    fn default() -> Self {
        Self::NEW
    }
}

/// The caller's records: an array of items with a [`Timer`] each.
pub trait TimerStore {
    /// The timer of record `index`.
    fn timer(&self, index: u32) -> &Timer;
    /// The timer of record `index`, mutable.
    fn timer_mut(&mut self, index: u32) -> &mut Timer;
}

impl TimerStore for [Timer] {
    fn timer(&self, index: u32) -> &Timer {
        &self[index as usize]
    }

    fn timer_mut(&mut self, index: u32) -> &mut Timer {
        &mut self[index as usize]
    }
}

/// The result of a call of [`TimerWheel::poll`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poll {
    /// The timer of this record fired; it is no longer armed.
    Fired(u32),
    /// The call's share of work is done and more is left: poll again, now or later.
    More,
    /// Nothing is left to do before [`TimerWheel::next_expiry`].
    Idle,
}

/// The wheel. Every method is handed the same store.
#[derive(Clone)]
pub struct TimerWheel {
    tick_bits: u32,
    /// All ticks up to this one are processed, except for the lists `DUE` and `MOVING`.
    tick: u64,
    /// The first timer of each list, or [`NONE`].
    first: Box<[u32]>,
    /// A bit for each slot that holds a timer.
    used: [[u64; SLOTS / 64]; LEVELS],
    armed: u32,
}

impl core::fmt::Debug for TimerWheel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TimerWheel")
            .field("tick_nanos", &(1u64 << self.tick_bits))
            .field("armed", &self.armed)
            .field("next_expiry", &self.next_expiry())
            .finish_non_exhaustive()
    }
}

impl TimerWheel {
    /// A wheel with ticks of 2^`tick_bits` nanoseconds (clamped to [`TICK_BITS_MIN`] and [`TICK_BITS_MAX`]), at `now`.
    #[must_use]
    pub fn new(tick_bits: u32, now: Instant) -> Self {
        let tick_bits = tick_bits.clamp(TICK_BITS_MIN, TICK_BITS_MAX);
        Self {
            tick_bits,
            tick: now.as_nanos() >> tick_bits,
            first: vec![NONE; LISTS].into_boxed_slice(),
            used: [[0; SLOTS / 64]; LEVELS],
            armed: 0,
        }
    }

    /// The length of a tick: the maximum lateness of a timer.
    #[must_use]
    pub const fn tick_nanos(&self) -> u64 {
        1 << self.tick_bits
    }

    /// The time up to which the wheel has turned; timers not after it are due.
    #[must_use]
    pub const fn turned_to(&self) -> Instant {
        Instant::from_nanos(self.tick << self.tick_bits)
    }

    /// Timers armed.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.armed
    }

    /// No timer is armed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Arms the timer of record `index` (below [`INDEX_MAX`]), or moves it if it is armed. A deadline in the past fires
    /// at the next poll.
    pub fn arm(&mut self, store: &mut (impl TimerStore + ?Sized), index: u32, deadline: Instant) {
        debug_assert!(index < INDEX_MAX);
        self.cancel(store, index);
        store.timer_mut(index).deadline_nanos = deadline.as_nanos();
        self.armed += 1;
        self.place(store, index);
    }

    /// Disarms the timer of record `index`; nothing happens if it is not armed.
    pub fn cancel(&mut self, store: &mut (impl TimerStore + ?Sized), index: u32) {
        let Timer { next, previous, .. } = *store.timer(index);
        if previous == NOT_ARMED {
            return;
        }
        if next != NONE {
            store.timer_mut(next).previous = previous;
        }
        if previous >= INDEX_MAX {
            self.set_first((previous - INDEX_MAX) as usize, next);
        } else {
            store.timer_mut(previous).next = next;
        }
        store.timer_mut(index).previous = NOT_ARMED;
        self.armed -= 1;
    }

    /// Does a bounded part of the work due by `now`: at most one timer fires and at most [`MOVES_PER_POLL_MAX`] move
    /// between levels. Time that runs backwards is treated as unchanged.
    pub fn poll(&mut self, store: &mut (impl TimerStore + ?Sized), now: Instant) -> Poll {
        let now_tick = now.as_nanos() >> self.tick_bits;
        let mut moves = 0;
        loop {
            let due = self.first[DUE];
            if due != NONE {
                self.cancel(store, due);
                return Poll::Fired(due);
            }
            let moving = self.first[MOVING];
            if moving != NONE {
                if moves == MOVES_PER_POLL_MAX {
                    return Poll::More;
                }
                moves += 1;
                self.cancel(store, moving);
                self.armed += 1;
                self.place(store, moving);
                continue;
            }
            match self.next_slot() {
                Some((tick, list)) if tick <= now_tick => {
                    self.tick = tick;
                    self.splice(store, list, if list < SLOTS { DUE } else { MOVING });
                }
                _ => {
                    self.tick = self.tick.max(now_tick);
                    return Poll::Idle;
                }
            }
        }
    }

    /// The time at which [`TimerWheel::poll`] next has work: not after the earliest deadline's tick (a distant timer
    /// first moves to a nearer level), and in the past when work is left over. `None` when no timer is armed.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        let tick = if self.first[DUE] != NONE || self.first[MOVING] != NONE { self.tick } else { self.next_slot()?.0 };
        Some(Instant::from_nanos(tick << self.tick_bits))
    }

    /// The first tick at which a deadline has passed for certain.
    fn tick_of(&self, deadline_nanos: u64) -> u64 {
        let below = (1u64 << self.tick_bits) - 1;
        ((deadline_nanos >> self.tick_bits) + u64::from(deadline_nanos & below != 0)).min(TICK_MAX)
    }

    /// Links an unlinked timer into the list of its deadline.
    fn place(&mut self, store: &mut (impl TimerStore + ?Sized), index: u32) {
        let tick = self.tick_of(store.timer(index).deadline_nanos);
        let list = if tick <= self.tick {
            DUE
        } else {
            let level = ((tick ^ self.tick).ilog2() / SLOT_BITS) as usize;
            level * SLOTS + (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS
        };
        let next = self.first[list];
        if next != NONE {
            store.timer_mut(next).previous = index;
        }
        let timer = store.timer_mut(index);
        timer.next = next;
        timer.previous = INDEX_MAX + list as u32;
        self.set_first(list, index);
    }

    fn set_first(&mut self, list: usize, first: u32) {
        self.first[list] = first;
        if list < DUE {
            let (word, bit) = (&mut self.used[list / SLOTS][list % SLOTS / 64], 1 << (list % 64));
            if first == NONE { *word &= !bit } else { *word |= bit }
        }
    }

    /// Moves all of list `from` to the empty list `to`.
    fn splice(&mut self, store: &mut (impl TimerStore + ?Sized), from: usize, to: usize) {
        let first = self.first[from];
        self.set_first(from, NONE);
        self.set_first(to, first);
        if first != NONE {
            store.timer_mut(first).previous = INDEX_MAX + to as u32;
        }
    }

    /// The first slot with a timer: its first tick, and its list.
    fn next_slot(&self) -> Option<(u64, usize)> {
        let (level, used) = self.used.iter().enumerate().find(|(_, used)| used.iter().any(|word| *word != 0))?;
        let (word, bits) = used.iter().enumerate().find(|(_, word)| **word != 0)?;
        let slot = word * 64 + bits.trailing_zeros() as usize;
        let shift = SLOT_BITS * level as u32;
        let above = self.tick >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        Some((above | (slot as u64) << shift, level * SLOTS + slot))
    }
}
