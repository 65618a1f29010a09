//! Deferred connections: they are replicated later or never.

use core::time::Duration;

use flow::Instant;

use crate::Handle;
use crate::deferral::{Age, Config, DeferralQueue, Dynamic, IDLE_RECHECK_INTERVAL};

const THRESHOLD: Duration = Duration::from_millis(500);

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn fixed() -> DeferralQueue {
    DeferralQueue::new(Config::Fixed(THRESHOLD), 8, at(0))
}

/// Looks at what is due, as the owner of open connections does: those that are to be replicated.
fn replicated(deferral: &mut DeferralQueue, now: Instant) -> std::vec::Vec<u32> {
    let mut replicated = std::vec::Vec::new();
    while let Some(due) = deferral.poll_due(now) {
        if deferral.decide(now, due.handle, Age::Open) {
            replicated.push(due.handle.0);
        }
    }
    replicated
}

#[test]
fn a_connection_is_replicated_when_it_is_old_enough_and_one_that_ends_before_never() {
    let mut deferral = fixed();
    assert!(deferral.begin(at(0), Handle(1), false) && deferral.begin(at(100), Handle(2), false));
    assert!(deferral.begin(at(100), Handle(3), false));
    deferral.end(at(300), Handle(2));
    assert_eq!((deferral.deferred(), deferral.is_deferred(Handle(2))), (2, false));
    assert!(replicated(&mut deferral, at(499)).is_empty());
    assert_eq!(replicated(&mut deferral, at(500)), [1]);
    assert!(!deferral.is_deferred(Handle(1)) && deferral.is_deferred(Handle(3)));
    assert_eq!(replicated(&mut deferral, at(600)), [3]);
    let status = deferral.status();
    assert_eq!(
        (status.deferred, status.never_replicated, status.replicated_late, status.replicated_at_once),
        (0, 1, 2, 0)
    );
}

#[test]
fn an_urgent_connection_is_replicated_and_one_replicated_early_does_not_come_due() {
    let mut deferral = fixed();
    assert!(!deferral.begin(at(0), Handle(1), true), "a related connection, for example");
    assert!(deferral.begin(at(0), Handle(2), false));
    assert!(deferral.replicate(at(10), Handle(2)), "another is expected on its behalf now, for example");
    assert!(
        !deferral.replicate(at(10), Handle(2))
            && !deferral.replicate(at(10), Handle(1))
            && !deferral.replicate(at(10), Handle(7))
    );
    assert!(replicated(&mut deferral, at(10_000)).is_empty());
}

#[test]
fn a_farewell_is_the_end_though_the_connection_stays_for_a_while() {
    let mut deferral = fixed();
    deferral.begin(at(0), Handle(1), false);
    deferral.complete(at(40), Handle(1));
    assert_eq!((deferral.deferred(), deferral.is_deferred(Handle(1))), (0, true), "no peer is to receive it");
    assert!(replicated(&mut deferral, at(60_000)).is_empty());
    deferral.end(at(120_000), Handle(1));
    assert_eq!((deferral.is_deferred(Handle(1)), deferral.status().never_replicated), (false, 1));
}

#[test]
fn a_connection_without_an_end_is_as_old_as_its_packets_show() {
    let mut deferral = fixed();
    deferral.begin(at(0), Handle(1), false);
    let now = at(500);
    let due = deferral.poll_due(now).unwrap();
    assert!(!deferral.decide(now, due.handle, Age::Observed(Duration::from_millis(20))), "a question and its answer");
    assert_eq!((deferral.poll_due(now), deferral.deferred()), (None, 1));
    let recheck = now + IDLE_RECHECK_INTERVAL;
    assert!(deferral.poll_timeout().is_some_and(|due| due >= recheck));
    let due = deferral.poll_due(recheck).unwrap();
    assert!(deferral.decide(recheck, due.handle, Age::Observed(Duration::from_millis(900))), "more packets came");
}

#[test]
fn what_is_not_there_any_more_is_forgotten() {
    let mut deferral = fixed();
    deferral.begin(at(0), Handle(1), false);
    assert!(!deferral.decide(at(500), Handle(1), Age::Gone));
    assert_eq!((deferral.deferred(), deferral.poll_due(at(10_000))), (0, None));
    assert!(!deferral.decide(at(500), Handle(100), Age::Open), "a slot that there is not");
}

#[test]
fn before_the_node_leaves_all_is_due_at_once() {
    let mut deferral = fixed();
    (0..4).for_each(|slot| assert!(deferral.begin(at(u64::from(slot)), Handle(slot), false)));
    deferral.decide(at(600), Handle(0), Age::Observed(Duration::ZERO));
    deferral.suspend();
    assert!(deferral.poll_timeout().is_some_and(|due| due <= at(700)));
    let mut all = replicated(&mut deferral, at(700));
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
    assert!(!deferral.begin(at(700), Handle(5), false), "nor is any deferred that begins now");
    deferral.resume();
    assert!(deferral.begin(at(700), Handle(6), false));
}

#[test]
fn lifetimes_are_those_of_all_connections_whether_they_were_replicated_or_not() {
    // No steps and no limits, so that the threshold shows the lifetimes.
    let zero = Duration::ZERO;
    let dynamic = Dynamic { step_min: zero, step_max: zero, threshold_min: zero, ..Dynamic::default() };
    let mut deferral = DeferralQueue::new(Config::Dynamic(dynamic), 8, at(0));
    let lived_for = |deferral: &mut DeferralQueue, from_s: u64| {
        for slot in 0..4 {
            assert!(!deferral.begin(at(from_s * 1000), Handle(slot), false), "none is deferred yet");
        }
        deferral.complete(at(from_s * 1000 + 35), Handle(0));
        deferral.end(at(from_s * 1000 + 36), Handle(0));
        deferral.end(at(from_s * 1000 + 255), Handle(1));
        // A question and its answer, and one that goes on: distinguished when they are as old as counts.
        for (slot, age) in [(2, Age::Observed(Duration::from_millis(455))), (3, Age::Open)] {
            let now = at(from_s * 1000 + 20_000);
            let due = deferral.poll_due(now).unwrap();
            assert_eq!(due.handle, Handle(slot));
            deferral.decide(now, due.handle, age);
        }
        [2, 3].into_iter().for_each(|slot| deferral.end(at(from_s * 1000 + 29_000), Handle(slot)));
    };
    lived_for(&mut deferral, 0);
    for (level, threshold_ms) in [(1, 0), (2, 40), (3, 260), (4, 260), (5, 260), (6, 460), (7, 460), (8, 2000)] {
        deferral.note_utilisation(1000);
        deferral.handle_timeout(at(30_000 + 5000 * level));
        let status = deferral.status();
        assert_eq!((u64::from(status.level), status.threshold), (level, Duration::from_millis(threshold_ms)));
    }
}
