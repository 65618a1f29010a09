//! The wheel against a list of deadlines.

use core::time::Duration;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const TICK_BITS: u32 = 26;
const TICK_NANOS: u64 = 1 << TICK_BITS;

struct Wheel {
    wheel: TimerWheel,
    timers: Vec<Timer>,
}

impl Wheel {
    fn new(timers: usize) -> Self {
        Self { wheel: TimerWheel::new(TICK_BITS, Instant::ZERO), timers: vec![Timer::NEW; timers] }
    }

    fn arm(&mut self, index: u32, deadline: Instant) {
        self.wheel.arm(self.timers.as_mut_slice(), index, deadline);
    }

    fn cancel(&mut self, index: u32) {
        self.wheel.cancel(self.timers.as_mut_slice(), index);
    }

    /// Everything that fires by `now`.
    fn fired(&mut self, now: Instant) -> Vec<u32> {
        let mut fired = Vec::new();
        loop {
            match self.wheel.poll(self.timers.as_mut_slice(), now) {
                Poll::Fired(index) => fired.push(index),
                Poll::More => {}
                Poll::Idle => return fired,
            }
        }
    }
}

fn secs(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

#[test]
fn a_timer_fires_within_a_tick_of_its_deadline_and_never_before() {
    for deadline in [secs(0), secs(1), secs(17), secs(18), secs(120), secs(4400), secs(5 * 86_400), secs(40_000_000)] {
        let mut wheel = Wheel::new(1);
        wheel.arm(0, deadline);
        if deadline > Instant::ZERO {
            let just_before = Instant::from_nanos(deadline.as_nanos() - 1);
            assert_eq!(wheel.fired(just_before), [], "early: {deadline:?}");
        }
        let a_tick_after = deadline + Duration::from_nanos(TICK_NANOS);
        assert_eq!(wheel.fired(a_tick_after), [0], "late: {deadline:?}");
        assert!(wheel.wheel.is_empty());
        assert_eq!(wheel.wheel.next_expiry(), None);
    }
}

#[test]
fn a_caller_that_sleeps_until_the_next_expiry_meets_every_deadline() {
    let deadlines = [secs(3), secs(30), secs(30), secs(600), secs(5 * 86_400)];
    let mut wheel = Wheel::new(deadlines.len());
    for (index, deadline) in (0..).zip(deadlines) {
        wheel.arm(index, deadline);
    }
    let (mut fired, mut wakes) = (0, 0);
    while let Some(now) = wheel.wheel.next_expiry() {
        wakes += 1;
        for index in wheel.fired(now) {
            let late = now.saturating_since(deadlines[index as usize]);
            assert!(now >= deadlines[index as usize] && late < Duration::from_nanos(TICK_NANOS));
            fired += 1;
        }
    }
    assert_eq!(fired, deadlines.len());
    assert!(wakes <= deadlines.len() * LEVELS, "{wakes} wakes");
}

#[test]
fn a_timer_in_the_far_future_does_no_harm() {
    let mut wheel = Wheel::new(2);
    wheel.arm(0, Instant::FAR_FUTURE);
    wheel.arm(1, secs(1));
    assert_eq!(wheel.fired(secs(1_000_000_000)), [1]);
    assert!(wheel.timers[0].is_armed());
    wheel.cancel(0);
    assert!(wheel.wheel.is_empty());
}

#[test]
fn time_that_runs_backwards_is_treated_as_unchanged() {
    let mut wheel = Wheel::new(1);
    assert_eq!(wheel.fired(secs(1000)), []);
    assert_eq!(wheel.fired(secs(10)), []);
    wheel.arm(0, secs(20));
    assert_eq!(wheel.fired(secs(11)), [0], "the wheel's own time is past the deadline");
}

#[test]
fn a_poll_does_bounded_work_and_reports_the_rest() {
    let timers = MOVES_PER_POLL_MAX * 3;
    let mut wheel = Wheel::new(timers as usize);
    for index in 0..timers {
        wheel.arm(index, secs(100));
    }
    assert_eq!(wheel.wheel.poll(wheel.timers.as_mut_slice(), secs(99)), Poll::More);
    assert!(wheel.wheel.next_expiry().is_some_and(|next| next <= secs(99)), "the rest is to be done at once");
    assert_eq!(wheel.fired(secs(99)), []);
    assert_eq!(wheel.fired(secs(101)).len(), timers as usize);
}

#[derive(Clone, Debug)]
enum Step {
    Arm { index: u32, after_nanos: u64 },
    Cancel { index: u32 },
    Pass { nanos: u64 },
}

fn span() -> impl Strategy<Value = u64> {
    (0u32..56, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..16, span()).prop_map(|(index, after_nanos)| Step::Arm { index, after_nanos }),
        1 => (0u32..16).prop_map(|index| Step::Cancel { index }),
        3 => span().prop_map(|nanos| Step::Pass { nanos }),
    ]
}

proptest! {
    #[test]
    fn it_equals_a_list_of_deadlines(steps in prop::collection::vec(step(), 1..100)) {
        let mut wheel = Wheel::new(16);
        let mut model = BTreeMap::new();
        let mut now = Instant::ZERO;
        for step in steps {
            match step {
                Step::Arm { index, after_nanos } => {
                    let deadline = now + Duration::from_nanos(after_nanos);
                    wheel.arm(index, deadline);
                    model.insert(index, deadline);
                }
                Step::Cancel { index } => {
                    wheel.cancel(index);
                    model.remove(&index);
                }
                Step::Pass { nanos } => {
                    now = now + Duration::from_nanos(nanos);
                    for index in wheel.fired(now) {
                        let deadline = model.remove(&index);
                        prop_assert!(deadline.is_some_and(|deadline| deadline <= now), "{index} fired early");
                    }
                    for (index, deadline) in &model {
                        let late = now.saturating_since(*deadline);
                        prop_assert!(late < Duration::from_nanos(TICK_NANOS), "{index} is late by {late:?}");
                    }
                }
            }
            prop_assert_eq!(wheel.wheel.len() as usize, model.len());
            for (index, timer) in (0..).zip(&wheel.timers) {
                prop_assert_eq!(timer.deadline(), model.get(&index).copied());
            }
            let earliest = model.values().min().copied();
            prop_assert_eq!(wheel.wheel.next_expiry().is_some(), earliest.is_some());
            if let (Some(next), Some(earliest)) = (wheel.wheel.next_expiry(), earliest) {
                prop_assert!(next < earliest + Duration::from_nanos(TICK_NANOS));
            }
        }
    }
}
