//! Whatever happens in whatever order, lists and counters go together.

use core::time::Duration;

use flow::Instant;
use proptest::prelude::*;

use crate::Handle;
use crate::lazy::{Age, Config, Dynamic, LazyInsertion};

const SLOTS: u32 = 6;

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(u32, bool),
    Tell(u32),
    Complete(u32),
    End(u32),
    Forget(u32),
    Pass(u64),
    Busy(u16),
    Look(u64),
    Suspend,
    Resume,
}

fn step() -> impl Strategy<Value = Step> {
    let slot = || 0..SLOTS;
    prop_oneof![
        6 => (slot(), proptest::bool::weighted(0.1)).prop_map(|(slot, must)| Step::Begin(slot, must)),
        1 => slot().prop_map(Step::Tell),
        2 => slot().prop_map(Step::Complete),
        3 => slot().prop_map(Step::End),
        1 => slot().prop_map(Step::Forget),
        6 => (0_u64..4000).prop_map(Step::Pass),
        2 => (0_u16..1001).prop_map(Step::Busy),
        4 => (0_u64..3000).prop_map(Step::Look),
        1 => Just(Step::Suspend),
        2 => Just(Step::Resume),
    ]
}

/// What the test knows of a slot: when a connection that is put off began.
type Model = [Option<Instant>; SLOTS as usize];

fn run(config: Config, steps: &[Step]) {
    let mut now = Instant::from_millis(1000);
    let mut lazily = LazyInsertion::new(config, SLOTS, now);
    let mut put_off: Model = [None; SLOTS as usize];
    for step in steps {
        match *step {
            Step::Begin(slot, must) => {
                let is_put_off = lazily.begin(now, Handle(slot), must);
                assert!(!is_put_off || (!must && !lazily.threshold().is_zero()));
                put_off[slot as usize] = is_put_off.then_some(now);
            }
            Step::Tell(slot) => {
                let was_put_off = lazily.tell(now, Handle(slot));
                assert!(was_put_off || put_off[slot as usize].is_none());
                put_off[slot as usize] = None;
            }
            Step::Complete(slot) => {
                lazily.complete(now, Handle(slot));
                put_off[slot as usize] = None;
            }
            Step::End(slot) => {
                lazily.end(now, Handle(slot));
                assert!(!lazily.is_put_off(Handle(slot)));
                put_off[slot as usize] = None;
            }
            Step::Forget(slot) => {
                lazily.forget(Handle(slot));
                put_off[slot as usize] = None;
            }
            Step::Pass(millis) => {
                now = now + Duration::from_millis(millis);
                lazily.handle_timeout(now);
            }
            Step::Busy(per_mille) => lazily.note_utilisation(per_mille),
            Step::Look(heard_ms) => look(&mut lazily, &mut put_off, now, Duration::from_millis(heard_ms)),
            Step::Suspend => lazily.suspend(),
            Step::Resume => lazily.resume(),
        }
        assert_eq!(lazily.put_off() as usize, put_off.iter().flatten().count(), "after {step:?}");
        for (slot, began) in (0..).zip(&put_off) {
            assert!(began.is_none() || lazily.is_put_off(Handle(slot)), "slot {slot} after {step:?}");
        }
    }
}

/// Looks at all that is due: it ends, and nothing that is open stays put off beyond the threshold.
fn look(lazily: &mut LazyInsertion, put_off: &mut Model, now: Instant, heard: Duration) {
    let mut looks = 0;
    while let Some(due) = lazily.poll_due(now) {
        looks += 1;
        assert!(looks <= 2 * SLOTS, "each is looked at once");
        let slot = due.handle.0 as usize;
        // Slots with odd numbers have connections without an end.
        let age = if slot % 2 == 1 { Age::Heard(heard) } else { Age::Open };
        if lazily.judge(now, due.handle, age) {
            assert!(put_off[slot].take().is_some(), "it was put off");
        }
    }
    for (slot, began) in put_off.iter().enumerate().filter(|(slot, _)| slot % 2 == 0) {
        assert!(began.is_none_or(|began| now.saturating_since(began) < lazily.threshold()), "slot {slot}");
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_or_told_twice(steps in prop::collection::vec(step(), 1..200)) {
        run(Config::Fixed(Duration::from_millis(700)), &steps);
        let dynamic = Dynamic { utilisation_per_mille_max: 300, ..Dynamic::default() };
        run(Config::Dynamic(dynamic), &steps);
    }
}
