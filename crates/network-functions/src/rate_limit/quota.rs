//! Quotas: amounts in a period of the wall clock.
//!
//! A period is the number of its length's multiples since 1970, so nodes agree about it. What was used in it lies in the connection's state
//! ([`Per::Connection`](super::Per::Connection)), or in a [`Usage`] that connections share. A connection's state then has the shared amount
//! of its last step, and a node that gets the state takes the maximum of this and what it knows: amounts grow only, so nothing counts twice.
//!
//! **Clocks.** The own clock alone decides which period it is. Of what other nodes have counted, the present period and the one behind it
//! count: a peer's clock may be a little ahead. When the own clock is set back, the amount of the later period counts in the present one, so
//! that a quota neither stops for ever nor begins anew.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use super::state::RateLimitState;

/// Parts of a quota. Each is replicated when it is used up, so a failover forgets less than one of them, and what was being sent.
pub const QUOTA_STEPS: u64 = 64;
/// The greatest quota: states count in 48 bits.
pub const QUOTA_MAX: u64 = 1 << 47;

const USED_BITS: u32 = 48;
const USED_MAX: u64 = (1 << USED_BITS) - 1;
/// A connection's state whose period is later than the present one by at most so many was counted by a clock that was ahead. More would be
/// as good as none: a connection may have been idle for the other part of 256 periods.
const CONNECTION_PERIODS_AHEAD_MAX: u8 = 32;

/// What a frame takes of buckets and quotas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// What a quota counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// Bytes, from the IP header on.
    Bytes,
    /// Packets.
    Packets,
}

/// An amount in a period.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quota {
    /// What is counted.
    pub unit: Unit,
    /// The amount, 1 to [`QUOTA_MAX`].
    pub amount: u64,
    /// The period: whole multiples since 1970.
    pub period: Duration,
}

impl Quota {
    /// The number of the period at this time.
    pub(super) fn period(&self, unix_ms: u64) -> u64 {
        unix_ms / (self.period.as_millis() as u64).max(1)
    }

    /// The part of the quota that an amount is in.
    pub(super) const fn step(&self, used: u64) -> u64 {
        let step = self.amount / QUOTA_STEPS;
        used / if step == 0 { 1 } else { step }
    }

    const fn count(&self, amount: Amount) -> u64 {
        match self.unit {
            Unit::Bytes => amount.bytes,
            Unit::Packets => amount.packets,
        }
    }

    /// Counts a packet of a connection with a quota of its own. False if the rest of the quota is too small.
    pub(super) fn take_of_connection(&self, state: &mut RateLimitState, unix_ms: u64, amount: Amount) -> bool {
        let period = self.period(unix_ms);
        // The state has the last byte of the period's number. Later ones are those of a clock that was ahead.
        let is_kept = state.period().wrapping_sub(period as u8) <= CONNECTION_PERIODS_AHEAD_MAX;
        let before = if is_kept { state.used() } else { 0 };
        let used = before + self.count(amount);
        let may = used <= self.amount;
        // Also what is refused begins the period: a later one must not stay.
        state.set_used(period as u8, if may { used } else { before });
        may
    }

    /// Counts a packet in what connections share. The state gets the amount when a step is used up.
    pub(super) fn take_of_shared(
        &self,
        usage: &Usage,
        state: &mut RateLimitState,
        unix_ms: u64,
        amount: Amount,
    ) -> bool {
        let (period, count) = (self.period(unix_ms), self.count(amount));
        let before = usage.begin(period);
        if before + count > self.amount {
            return false;
        }
        // Another worker may have counted meanwhile: the amount may be exceeded by a packet of each worker.
        let used = usage.add(period, count);
        if self.step(used) != self.step(used - count) || state.period() != period as u8 {
            state.set_used(period as u8, used);
        }
        true
    }

    /// A connection's state came from another node, which had counted this much.
    pub(super) fn merge(&self, usage: &Usage, state: &RateLimitState, about_unix_ms: u64) {
        // The state has the last byte of the period's number: it is the one nearest to now.
        let now = self.period(about_unix_ms);
        match state.period().wrapping_sub(now as u8) {
            0 => usage.raise(now, now, state.used()),
            1 => usage.raise(now, now + 1, state.used()),
            // What an earlier period has used is over. A later one is that of a wrong clock.
            _ => {}
        }
    }
}

/// An amount used, with the last bits of its period's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PeriodUsage {
    period: u16,
    used: u64,
}

impl PeriodUsage {
    const fn of(word: u64) -> Self {
        Self { period: (word >> USED_BITS) as u16, used: word & USED_MAX }
    }

    fn word(self) -> u64 {
        u64::from(self.period) << USED_BITS | self.used.min(USED_MAX)
    }
}

/// What connections share of a quota: the amount used in a period. Workers share it without a lock.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// A [`PeriodUsage`].
    present: AtomicU64,
    /// What peers, whose clocks are ahead, have used in the period that comes next here: a [`PeriodUsage`].
    next: AtomicU64,
}

impl Usage {
    /// The amount used in the present period.
    pub(super) fn used_in(&self, period: u64) -> u64 {
        self.moved_to(self.present.load(Ordering::Relaxed), period).used
    }

    /// What is used in the present period, where `word` was stored last.
    fn moved_to(&self, word: u64, period: u64) -> PeriodUsage {
        let (known, period) = (PeriodUsage::of(word), period as u16);
        let is_over = 0 < (period.wrapping_sub(known.period) as i16);
        // The own clock was ahead when a later one was stored.
        let kept = if is_over { PeriodUsage::of(self.next.load(Ordering::Relaxed)) } else { known };
        let used = if is_over && kept.period != period { 0 } else { kept.used };
        PeriodUsage { period, used }
    }

    /// The amount used in the period, which begins if it is not the one that was counted last.
    fn begin(&self, period: u64) -> u64 {
        let known = PeriodUsage::of(self.present.load(Ordering::Relaxed));
        if known.period == period as u16 { known.used } else { self.add(period, 0) }
    }

    fn add(&self, period: u64, count: u64) -> u64 {
        let added = |word| {
            let known = self.moved_to(word, period);
            PeriodUsage { used: known.used + count, ..known }.word()
        };
        let update = |word| Some(added(word));
        let before = self.present.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        PeriodUsage::of(added(before.unwrap_or_else(|word| word))).used
    }

    /// Another node has used this much in `period`, which is the present one or the next. `now` is the present period by a clock that may
    /// be a moment late: the next one may have begun here.
    fn raise(&self, now: u64, period: u64, used: u64) {
        let begun = PeriodUsage::of(self.present.load(Ordering::Relaxed)).period;
        let cell = if begun == period as u16 {
            &self.present
        } else if period != now {
            &self.next
        } else if begun == (now + 1) as u16 {
            return;
        } else {
            self.begin(now);
            &self.present
        };
        let raised = |word: u64| {
            let before = PeriodUsage::of(word);
            let used = if before.period == period as u16 { before.used.max(used) } else { used };
            Some(PeriodUsage { period: period as u16, used }.word())
        };
        // The update is never refused.
        let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised);
    }

    pub(super) fn forget(&self) {
        self.present.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
    }
}
