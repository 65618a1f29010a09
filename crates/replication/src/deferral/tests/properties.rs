//! Whatever happens in whatever order, lists and counters go together.

use core::time::Duration;

use flow::Instant;
use proptest::prelude::*;

use crate::Handle;
use crate::deferral::{Age, Config, DeferralQueue, Dynamic};

const SLOTS: u32 = 6;

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(u32, bool),
    Replicate(u32),
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
        6 => (slot(), proptest::bool::weighted(0.1)).prop_map(|(slot, is_urgent)| Step::Begin(slot, is_urgent)),
        1 => slot().prop_map(Step::Replicate),
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

/// What the test knows of a slot: when a connection that is deferred began.
type Model = [Option<Instant>; SLOTS as usize];

fn run(config: Config, steps: &[Step]) {
    let mut now = Instant::from_millis(1000);
    let mut deferral = DeferralQueue::new(config, SLOTS, now);
    let mut deferred: Model = [None; SLOTS as usize];
    for step in steps {
        match *step {
            Step::Begin(slot, is_urgent) => {
                let is_deferred = deferral.begin(now, Handle(slot), is_urgent);
                assert!(!is_deferred || (!is_urgent && !deferral.threshold().is_zero()));
                deferred[slot as usize] = is_deferred.then_some(now);
            }
            Step::Replicate(slot) => {
                let was_deferred = deferral.replicate(now, Handle(slot));
                assert!(was_deferred || deferred[slot as usize].is_none());
                deferred[slot as usize] = None;
            }
            Step::Complete(slot) => {
                deferral.complete(now, Handle(slot));
                deferred[slot as usize] = None;
            }
            Step::End(slot) => {
                deferral.end(now, Handle(slot));
                assert!(!deferral.is_deferred(Handle(slot)));
                deferred[slot as usize] = None;
            }
            Step::Forget(slot) => {
                deferral.forget(Handle(slot));
                deferred[slot as usize] = None;
            }
            Step::Pass(millis) => {
                now = now + Duration::from_millis(millis);
                deferral.handle_timeout(now);
            }
            Step::Busy(per_mille) => deferral.note_utilisation(per_mille),
            Step::Look(observed_ms) => look(&mut deferral, &mut deferred, now, Duration::from_millis(observed_ms)),
            Step::Suspend => deferral.suspend(),
            Step::Resume => deferral.resume(),
        }
        assert_eq!(deferral.deferred() as usize, deferred.iter().flatten().count(), "after {step:?}");
        for (slot, began) in (0..).zip(&deferred) {
            assert!(began.is_none() || deferral.is_deferred(Handle(slot)), "slot {slot} after {step:?}");
        }
    }
}

/// Looks at all that is due: it ends, and nothing that is open stays deferred beyond the threshold.
fn look(deferral: &mut DeferralQueue, deferred: &mut Model, now: Instant, observed: Duration) {
    let mut looks = 0;
    while let Some(due) = deferral.poll_due(now) {
        looks += 1;
        assert!(looks <= 2 * SLOTS, "each is looked at once");
        let slot = due.handle.0 as usize;
        // Slots with odd numbers have connections without an end.
        let age = if slot % 2 == 1 { Age::Observed(observed) } else { Age::Open };
        if deferral.decide(now, due.handle, age) {
            assert!(deferred[slot].take().is_some(), "it was deferred");
        }
    }
    for (slot, began) in deferred.iter().enumerate().filter(|(slot, _)| slot % 2 == 0) {
        assert!(began.is_none_or(|began| now.saturating_since(began) < deferral.threshold()), "slot {slot}");
    }
}

proptest! {
    #[test]
    fn no_connection_is_lost_or_replicated_twice(steps in prop::collection::vec(step(), 1..200)) {
        run(Config::Fixed(Duration::from_millis(700)), &steps);
        let dynamic = Dynamic { utilisation_per_mille_max: 300, ..Dynamic::default() };
        run(Config::Dynamic(dynamic), &steps);
    }
}
