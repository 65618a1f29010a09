//! Connections that are put off, and what becomes of them.

use core::time::Duration;

use flow::Instant;

use crate::Handle;
use crate::lazy::{Age, Config, Dynamic, IDLE_LOOK_AGAIN, LazyInsertion};

const THRESHOLD: Duration = Duration::from_millis(500);

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn fixed() -> LazyInsertion {
    LazyInsertion::new(Config::Fixed(THRESHOLD), 8, at(0))
}

/// Looks at what is due, as the owner of open connections does: those that are to be told.
fn told(lazily: &mut LazyInsertion, now: Instant) -> std::vec::Vec<u32> {
    let mut told = std::vec::Vec::new();
    while let Some(due) = lazily.poll_due(now) {
        if lazily.judge(now, due.handle, Age::Open) {
            told.push(due.handle.0);
        }
    }
    told
}

#[test]
fn a_connection_is_told_when_it_is_old_enough_and_one_that_ends_before_never() {
    let mut lazily = fixed();
    assert!(lazily.begin(at(0), Handle(1), false) && lazily.begin(at(100), Handle(2), false));
    assert!(lazily.begin(at(100), Handle(3), false));
    lazily.end(at(300), Handle(2));
    assert_eq!((lazily.put_off(), lazily.is_put_off(Handle(2))), (2, false));
    assert!(told(&mut lazily, at(499)).is_empty());
    assert_eq!(told(&mut lazily, at(500)), [1]);
    assert!(!lazily.is_put_off(Handle(1)) && lazily.is_put_off(Handle(3)));
    assert_eq!(told(&mut lazily, at(600)), [3]);
    let status = lazily.status();
    assert_eq!((status.put_off, status.spared, status.told_late, status.told_at_once), (0, 1, 2, 0));
}

#[test]
fn what_must_be_told_is_told_and_what_is_told_early_does_not_come_due() {
    let mut lazily = fixed();
    assert!(!lazily.begin(at(0), Handle(1), true), "a related connection, say");
    assert!(lazily.begin(at(0), Handle(2), false));
    assert!(lazily.tell(at(10), Handle(2)), "another is expected on its behalf now, say");
    assert!(!lazily.tell(at(10), Handle(2)) && !lazily.tell(at(10), Handle(1)) && !lazily.tell(at(10), Handle(7)));
    assert!(told(&mut lazily, at(10_000)).is_empty());
}

#[test]
fn a_farewell_is_the_end_though_the_connection_stays_for_a_while() {
    let mut lazily = fixed();
    lazily.begin(at(0), Handle(1), false);
    lazily.complete(at(40), Handle(1));
    assert_eq!((lazily.put_off(), lazily.is_put_off(Handle(1))), (0, true), "nobody is to hear of it");
    assert!(told(&mut lazily, at(60_000)).is_empty());
    lazily.end(at(120_000), Handle(1));
    assert_eq!((lazily.is_put_off(Handle(1)), lazily.status().spared), (false, 1));
}

#[test]
fn a_connection_without_an_end_is_as_old_as_its_packets_say() {
    let mut lazily = fixed();
    lazily.begin(at(0), Handle(1), false);
    let now = at(500);
    let due = lazily.poll_due(now).unwrap();
    assert!(!lazily.judge(now, due.handle, Age::Heard(Duration::from_millis(20))), "a question and its answer");
    assert_eq!((lazily.poll_due(now), lazily.put_off()), (None, 1));
    let again = now + IDLE_LOOK_AGAIN;
    assert!(lazily.poll_timeout().is_some_and(|due| due >= again));
    let due = lazily.poll_due(again).unwrap();
    assert!(lazily.judge(again, due.handle, Age::Heard(Duration::from_millis(900))), "there was more to say");
}

#[test]
fn what_is_not_there_any_more_is_forgotten() {
    let mut lazily = fixed();
    lazily.begin(at(0), Handle(1), false);
    assert!(!lazily.judge(at(500), Handle(1), Age::Gone));
    assert_eq!((lazily.put_off(), lazily.poll_due(at(10_000))), (0, None));
    assert!(!lazily.judge(at(500), Handle(100), Age::Open), "a slot that there is not");
}

#[test]
fn before_the_node_leaves_all_is_due_at_once() {
    let mut lazily = fixed();
    (0..4).for_each(|slot| assert!(lazily.begin(at(u64::from(slot)), Handle(slot), false)));
    lazily.judge(at(600), Handle(0), Age::Heard(Duration::ZERO));
    lazily.suspend();
    assert!(lazily.poll_timeout().is_some_and(|due| due <= at(700)));
    let mut all = told(&mut lazily, at(700));
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
    assert!(!lazily.begin(at(700), Handle(5), false), "nor is any put off that begins now");
    lazily.resume();
    assert!(lazily.begin(at(700), Handle(6), false));
}

#[test]
fn lifetimes_are_those_of_all_connections_whether_they_were_told_or_not() {
    // No steps and no limits, so that the threshold shows the lifetimes.
    let zero = Duration::ZERO;
    let dynamic = Dynamic { step_min: zero, step_max: zero, threshold_min: zero, ..Dynamic::default() };
    let mut lazily = LazyInsertion::new(Config::Dynamic(dynamic), 8, at(0));
    let lived_for = |lazily: &mut LazyInsertion, from_s: u64| {
        for slot in 0..4 {
            assert!(!lazily.begin(at(from_s * 1000), Handle(slot), false), "nothing is put off yet");
        }
        lazily.complete(at(from_s * 1000 + 35), Handle(0));
        lazily.end(at(from_s * 1000 + 36), Handle(0));
        lazily.end(at(from_s * 1000 + 255), Handle(1));
        // A question and its answer, and one that goes on: told apart when they are as old as counts.
        for (slot, age) in [(2, Age::Heard(Duration::from_millis(455))), (3, Age::Open)] {
            let now = at(from_s * 1000 + 20_000);
            let due = lazily.poll_due(now).unwrap();
            assert_eq!(due.handle, Handle(slot));
            lazily.judge(now, due.handle, age);
        }
        [2, 3].into_iter().for_each(|slot| lazily.end(at(from_s * 1000 + 29_000), Handle(slot)));
    };
    lived_for(&mut lazily, 0);
    for (level, threshold_ms) in [(1, 0), (2, 40), (3, 260), (4, 260), (5, 260), (6, 460), (7, 460), (8, 2000)] {
        lazily.note_utilisation(1000);
        lazily.handle_timeout(at(30_000 + 5000 * level));
        let status = lazily.status();
        assert_eq!((u64::from(status.level), status.threshold), (level, Duration::from_millis(threshold_ms)));
    }
}
