//! The seed's examples, replayed.

use core::time::Duration;

use flow::Instant;

use crate::deferral::{Config, ConfigError, Controller, Dynamic, Lifetimes};

const BUSY: u16 = 990;
const CALM: u16 = 500;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Thresholds as the lifetimes have them: no steps, no limits but the lifetimes'.
fn exact() -> Dynamic {
    let (step_min, step_max) = (Duration::ZERO, Duration::ZERO);
    Dynamic { threshold_min: ms(10), threshold_max: ms(20_000), step_min, step_max, ..Dynamic::default() }
}

/// Ends an interval in which the processor was so busy.
fn end_interval(controller: &mut Controller, utilisation_per_mille: u16) {
    controller.note_utilisation(utilisation_per_mille);
    let at = controller.poll_timeout();
    controller.handle_timeout(at);
}

/// Lifetimes of `connections`, evenly spread from nothing to `longest`.
fn live(controller: &mut Controller, connections: u32, longest: Duration) {
    (0..connections).for_each(|nth| controller.note_lifetime(longest * nth / connections));
}

#[test]
fn a_level_is_the_age_that_its_share_of_connections_does_not_reach() {
    // Figure 21a: ten levels, the eighth of which is to avoid 80 % of the insertions.
    let mut lifetimes = Lifetimes::new(&Dynamic::default());
    (0..1000).for_each(|nth| lifetimes.note(ms(nth)));
    for level in 0..=10 {
        let threshold = lifetimes.threshold(level, 10).unwrap();
        assert_eq!(threshold, ms(100) * u32::from(level), "level {level}");
        let never_replicated = (0..1000).filter(|nth| ms(*nth) < threshold).count();
        assert_eq!(never_replicated, 100 * usize::from(level));
    }
}

#[test]
fn lifetimes_beyond_the_longest_count_as_that() {
    let mut lifetimes = Lifetimes::new(&Dynamic::default());
    assert_eq!(lifetimes.threshold(5, 10), None, "nothing is known");
    [20_000, 90_000, 86_400_000].into_iter().for_each(|millis| lifetimes.note(ms(millis)));
    lifetimes.note(ms(4));
    assert_eq!(lifetimes.threshold(2, 10), Some(ms(10)), "the shortest differs from none by one bin");
    assert_eq!(lifetimes.threshold(3, 10), Some(ms(20_000)));
    assert_eq!(lifetimes.completed(), 4);
}

#[test]
fn the_first_interval_ends_without_putting_anything_off() {
    // F(1) is the threshold of level 0.
    let mut controller = Controller::new(exact(), Instant::ZERO);
    live(&mut controller, 1000, ms(1000));
    end_interval(&mut controller, BUSY);
    assert_eq!((controller.level(), controller.threshold()), (1, Duration::ZERO));
    assert!(!controller.may_defer());
}

#[test]
fn a_threshold_is_three_parts_past_and_seven_parts_the_latest_interval() {
    // Figure 21b: from level 2 to level 3.
    let mut controller = Controller::new(exact(), Instant::ZERO);
    live(&mut controller, 1000, ms(1000));
    end_interval(&mut controller, BUSY);
    live(&mut controller, 1000, ms(1000));
    end_interval(&mut controller, BUSY);
    assert_eq!((controller.level(), controller.threshold()), (2, ms(200)));
    live(&mut controller, 1000, ms(2000));
    end_interval(&mut controller, BUSY);
    // 0.3 · 300 ms + 0.7 · 600 ms
    assert_eq!((controller.level(), controller.threshold()), (3, ms(510)));
    // What was the latest is past now: two thirds live for 1 s at most and one third for 2 s.
    live(&mut controller, 1000, ms(1000));
    end_interval(&mut controller, CALM);
    let past_ms = 240;
    assert_eq!((controller.level(), controller.threshold()), (2, (ms(past_ms) * 3 + ms(200) * 7) / 10));
}

#[test]
fn the_level_rises_while_the_processor_is_too_busy_and_falls_while_it_is_not() {
    let mut controller = Controller::new(exact(), Instant::ZERO);
    let mut thresholds = std::vec::Vec::new();
    for _ in 0..15 {
        live(&mut controller, 1000, ms(1000));
        end_interval(&mut controller, BUSY);
        thresholds.push(controller.threshold());
    }
    assert_eq!(controller.level(), 10, "there is no higher one");
    assert!(thresholds.is_sorted() && thresholds[14] == ms(1000), "{thresholds:?}");
    for level in (0..10).rev() {
        end_interval(&mut controller, CALM);
        assert_eq!(controller.level(), level);
    }
    end_interval(&mut controller, CALM);
    assert_eq!((controller.level(), controller.threshold()), (0, Duration::ZERO), "there is no lower one");
    end_interval(&mut controller, 900);
    assert_eq!(controller.level(), 0, "as busy as it may be is not too busy");
}

#[test]
fn around_the_limit_the_level_swings_as_in_the_seeds_figure_26a() {
    // Utilisation falls with the share that is deferred: level 3 and above keep it below the limit.
    let mut controller = Controller::new(Dynamic::default(), Instant::ZERO);
    let mut levels = std::vec::Vec::new();
    for _ in 0..20 {
        live(&mut controller, 1000, ms(50));
        let utilisation = if controller.level() >= 3 { 880 } else { 990 };
        end_interval(&mut controller, utilisation);
        levels.push(controller.level());
    }
    assert!(levels[4..].iter().all(|level| [2, 3].contains(level)), "{levels:?}");
    assert!((ms(50)..=ms(80)).contains(&controller.threshold()), "{:?}", controller.threshold());
}

#[test]
fn an_interval_that_was_not_measured_leaves_the_level_as_it_is() {
    let mut controller = Controller::new(exact(), Instant::ZERO);
    end_interval(&mut controller, BUSY);
    live(&mut controller, 10, ms(1000));
    let at = controller.poll_timeout();
    controller.handle_timeout(at);
    assert_eq!((controller.level(), controller.utilisation_per_mille()), (1, None));
    // A node that slept does not make up for intervals without a measurement.
    let at = at + ms(60_000);
    controller.handle_timeout(at);
    assert!(controller.poll_timeout() > at);
}

#[test]
fn the_mean_of_an_interval_counts() {
    let mut controller = Controller::new(exact(), Instant::ZERO);
    [1000, 1000, 400].into_iter().for_each(|busy| controller.note_utilisation(busy));
    end_interval(&mut controller, 800);
    assert_eq!((controller.utilisation_per_mille(), controller.level()), (Some(800), 0));
}

#[test]
fn where_all_connections_live_as_long_a_level_spares_no_more_than_its_share() {
    // The testbed of MLCBF: short flows of 10 to 50 ms, over 98 % of which level 3 eliminated.
    let avoided_per_cent = |is_bounded: bool| {
        let mut controller = Controller::new(Dynamic { is_bounded, ..Dynamic::default() }, Instant::ZERO);
        for _ in 0..3 {
            live(&mut controller, 1000, ms(40));
            end_interval(&mut controller, BUSY);
        }
        assert_eq!(controller.level(), 3);
        assert!(controller.threshold() >= ms(50), "the whole of them is shorter: {:?}", controller.threshold());
        let mut never_replicated = 0;
        for _ in 0..10_000 {
            if controller.may_defer() {
                controller.note_never_replicated();
                never_replicated += 1;
            } else {
                controller.note_replicated();
            }
        }
        never_replicated / 100
    };
    assert_eq!(avoided_per_cent(false), 100);
    assert_eq!(avoided_per_cent(true), 30);
}

#[test]
fn thresholds_come_in_steps_that_grow_with_the_level() {
    let dynamic = Dynamic::default();
    assert_eq!(dynamic.in_steps(ms(41), 1), ms(60));
    assert_eq!(dynamic.in_steps(ms(60), 1), ms(60));
    assert_eq!(dynamic.in_steps(ms(401), 10), ms(600));
    assert_eq!(exact().in_steps(ms(401), 10), ms(401));
    let one_level = Dynamic { levels: 1, ..dynamic };
    assert_eq!(one_level.in_steps(ms(1), 1), ms(20), "the lowest is the highest");
}

#[test]
fn thresholds_stay_within_their_limits() {
    let mut controller = Controller::new(Dynamic::default(), Instant::ZERO);
    for longest in [ms(5), ms(20_000)] {
        for _ in 0..10 {
            live(&mut controller, 1000, longest);
            end_interval(&mut controller, BUSY);
        }
        let limit = if longest == ms(5) { ms(200) } else { ms(2000) };
        assert_eq!(controller.threshold(), limit);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |change: fn(&mut Dynamic)| {
        let mut dynamic = Dynamic::default();
        change(&mut dynamic);
        Config::Dynamic(dynamic).check().unwrap_err()
    };
    assert_eq!(Config::Dynamic(Dynamic::default()).check(), Ok(()));
    assert_eq!(Config::Fixed(ms(1)).check(), Ok(()));
    assert_eq!(Config::Fixed(ms(0)).check(), Err(ConfigError::NoThreshold));
    assert_eq!(refused(|dynamic| dynamic.levels = 0), ConfigError::Levels);
    assert_eq!(refused(|dynamic| dynamic.responsiveness_per_mille = 1001), ConfigError::Share);
    assert_eq!(refused(|dynamic| dynamic.lifetime_min = ms(0)), ConfigError::Lifetimes);
    assert_eq!(refused(|dynamic| dynamic.lifetime_min = Duration::from_nanos(1)), ConfigError::Lifetimes);
    assert_eq!(refused(|dynamic| dynamic.threshold_max = ms(30_000)), ConfigError::Thresholds);
    assert_eq!(refused(|dynamic| dynamic.interval = ms(0)), ConfigError::Interval);
}
