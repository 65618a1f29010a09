//! What happens when: a timer wheel for what is far away, a heap for the next milliseconds, so that order is exact and a million
//! connections cost no more a frame than a hundred.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use flow::Instant;
use flow::timer_wheel::{Poll, TimerStore, TimerWheel};

/// The wheel's ticks are 2^20 ns, about a millisecond.
const TICK_BITS: u32 = 20;
const TICK_NANOS: u64 = 1 << TICK_BITS;

/// Points in time, each of one record of a store of timers.
pub(super) struct Calendar {
    wheel: TimerWheel,
    /// What is due by the horizon, and some more.
    near: BinaryHeap<Reverse<(u64, u32)>>,
    /// Whatever is due by now is in `near`.
    horizon: Instant,
}

impl Calendar {
    pub(super) fn new(now: Instant) -> Self {
        Self { wheel: TimerWheel::new(TICK_BITS, now), near: BinaryHeap::new(), horizon: now }
    }

    /// Enters record `index`, which is in the calendar once at most.
    pub(super) fn add(&mut self, store: &mut impl TimerStore, index: u32, at: Instant) {
        // The wheel fires up to a tick late. Early does no harm.
        let early = at.as_nanos().saturating_sub(2 * TICK_NANOS);
        if early <= self.horizon.as_nanos() {
            self.near.push(Reverse((at.as_nanos(), index)));
        } else {
            self.wheel.arm(store, index, Instant::from_nanos(early));
        }
    }

    /// Takes out the earliest record, if it is not after `until`. `at` returns when a record is due.
    pub(super) fn take<S: TimerStore>(
        &mut self,
        store: &mut S,
        until: Instant,
        at: impl Fn(&S, u32) -> Instant,
    ) -> Option<(Instant, u32)> {
        loop {
            let first = self.near.peek().map(|Reverse((nanos, _))| Instant::from_nanos(*nanos));
            if let Some(first) = first.filter(|first| *first <= self.horizon) {
                if first > until {
                    return None;
                }
                let Reverse((_, index)) = self.near.pop()?;
                return Some((first, index));
            }
            if self.horizon >= until {
                return None;
            }
            let fires = self.wheel.next_expiry();
            let next = [first, fires, Some(until)].into_iter().flatten().min()?;
            if first.is_none() && fires.is_none() {
                return None;
            }
            // A record that is due "now" goes one tick on, where the wheel will have moved.
            self.horizon = next.max(self.horizon + Duration::from_nanos(1));
            loop {
                match self.wheel.poll(store, self.horizon) {
                    Poll::Fired(index) => self.near.push(Reverse((at(store, index).as_nanos(), index))),
                    Poll::More => {}
                    Poll::Idle => break,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flow::timer_wheel::Timer;
    use proptest::prelude::*;

    use super::*;

    struct Records(Vec<(Timer, Instant)>);

    impl TimerStore for Records {
        fn timer(&self, index: u32) -> &Timer {
            &self.0[index as usize].0
        }

        fn timer_mut(&mut self, index: u32) -> &mut Timer {
            &mut self.0[index as usize].0
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_out_is_in_order_and_all_of_it(
            times in prop::collection::vec(0_u64..20_000_000_000, 1..80),
            later in prop::collection::vec(0_u64..3_000_000, 80),
            pauses in prop::collection::vec(0_u64..2_000_000_000, 1..20),
        ) {
            let mut records = Records(times.iter().map(|at| (Timer::NEW, Instant::from_nanos(*at))).collect());
            let mut calendar = Calendar::new(Instant::ZERO);
            for index in 0..records.0.len() as u32 {
                let at = records.0[index as usize].1;
                calendar.add(&mut records, index, at);
            }
            let (mut taken, mut last, mut until) = (0, Instant::ZERO, Instant::ZERO);
            let mut pauses = pauses.into_iter().cycle();
            let mut delays: Vec<Option<u64>> = later.into_iter().map(Some).collect();
            while taken < 2 * times.len() {
                let Some((at, index)) = calendar.take(&mut records, until, |records, index| records.0[index as usize].1)
                else {
                    until = until + Duration::from_nanos(pauses.next().unwrap().max(1));
                    continue;
                };
                prop_assert!(at >= last && at <= until, "{at:?} after {last:?}, until {until:?}");
                prop_assert_eq!(at, records.0[index as usize].1);
                last = at;
                taken += 1;
                // Each comes a second time, a little later.
                if let Some(delay) = delays[index as usize].take() {
                    records.0[index as usize].1 = at + Duration::from_nanos(delay);
                    let at = records.0[index as usize].1;
                    calendar.add(&mut records, index, at);
                }
            }
            prop_assert!(calendar.near.is_empty() && calendar.wheel.is_empty());
        }
    }
}
