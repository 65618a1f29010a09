//! Quotas: amounts in a period of the wall clock.
//!
//! A period is the number of its length's multiples since 1970, so nodes agree about it. What was used in it lies in the connection's state
//! ([`Per::Connection`](super::Per::Connection)), or in a [`Usage`] that connections share. A connection's state then has the shared amount
//! of its last step, and a node that gets the state takes the maximum of this and what it knows: amounts grow only, so nothing counts twice.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use super::state::RateLimitState;

/// Parts of a quota. Each is replicated when it is used up, so a failover forgets less than one of them, and what was being sent.
pub const QUOTA_STEPS: u64 = 64;
/// The greatest quota: states count in 48 bits.
pub const QUOTA_MAX: u64 = 1 << 47;

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
        let used = if state.period() == period as u8 { state.used() } else { 0 } + self.count(amount);
        let may = used <= self.amount;
        if may {
            state.set_used(period as u8, used);
        }
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
        let before = usage.used_in(period);
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
        let offset = i64::from(state.period().wrapping_sub(now as u8) as i8);
        usage.raise(now.saturating_add_signed(offset), state.used());
    }
}

/// What connections share of a quota: the amount used in a period.
#[derive(Debug, Default)]
pub(super) struct Usage {
    period: AtomicU64,
    used: AtomicU64,
}

impl Usage {
    /// The amount used in a period; 0 in one that has not begun here.
    pub(super) fn used_in(&self, period: u64) -> u64 {
        if self.period.load(Ordering::Relaxed) == period { self.used.load(Ordering::Relaxed) } else { 0 }
    }

    /// Moves on to a period, if it is a later one.
    fn begin(&self, period: u64) {
        let known = self.period.load(Ordering::Relaxed);
        if known < period && self.period.compare_exchange(known, period, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.used.store(0, Ordering::Relaxed);
        }
    }

    fn add(&self, period: u64, count: u64) -> u64 {
        self.begin(period);
        self.used.fetch_add(count, Ordering::Relaxed) + count
    }

    fn raise(&self, period: u64, used: u64) {
        self.begin(period);
        if self.period.load(Ordering::Relaxed) == period {
            self.used.fetch_max(used, Ordering::Relaxed);
        }
    }

    pub(super) fn forget(&self) {
        self.used.store(0, Ordering::Relaxed);
        self.period.store(0, Ordering::Relaxed);
    }
}
