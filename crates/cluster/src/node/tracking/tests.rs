//! Scenarios and properties of tracked ports and next hops.

use core::net::Ipv4Addr;
use std::vec;

use proptest::prelude::*;

use super::*;

const OUTSIDE: PortId = PortId(1);
const HOP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const UP: LinkState = LinkState { is_up: true, speed_mbps: None };
const DOWN: LinkState = LinkState { is_up: false, speed_mbps: None };
const GROUP: GroupId = GroupId::FIRST;

const PORT_TRACKED: Tracked = Tracked { target: Target::Port(OUTSIDE), weight: 100 };
const HOP_TRACKED: Tracked = Tracked { target: Target::NextHop(OUTSIDE, HOP), weight: 50 };

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A port and a next hop behind it, both known to be reached.
fn tracking(groups: Vec<Vec<Tracked>>) -> Tracking {
    let mut tracking = Tracking::default();
    tracking.configure(at(0), TrackingConfig { groups, ..TrackingConfig::default() });
    assert_eq!(tracking.handle_link(at(0), OUTSIDE, UP), None, "a port that is up is no news");
    tracking.answer(at(0), true);
    tracking
}

impl Tracking {
    fn answer(&mut self, now: Instant, is_answered: bool) -> Vec<Change> {
        let config = &self.config;
        let ports = &self.ports;
        let hops = self.next_hops.iter_mut().filter(|hop| !is_down(ports, hop.port));
        hops.filter_map(|hop| hop.note(now, is_answered, config)).collect()
    }

    /// The sums of a node that holds the group, and of a standby.
    fn sums(&mut self, now: Instant) -> (u16, u16) {
        self.summed_at = now;
        (self.unreached(now, GROUP, State::Active), self.unreached(now, GROUP, State::Standby))
    }
}

#[test]
fn port_down_counts_at_once_and_up_counts_on_a_standby_after_the_delay() {
    let mut tracking = tracking(vec![vec![PORT_TRACKED, HOP_TRACKED]]);
    assert_eq!(tracking.sums(at(1)), (0, 0));
    assert_eq!(tracking.handle_link(at(1000), OUTSIDE, DOWN), Some(Change::Down(PORT_TRACKED.target)));
    assert_eq!(tracking.sums(at(1000)), (100, 100), "the next hop behind the port is not counted beside it");
    assert_eq!(tracking.next_hops()[0].state, NextHopState::Unknown);

    assert_eq!(tracking.handle_link(at(2000), OUTSIDE, UP), Some(Change::Up(PORT_TRACKED.target)));
    assert_eq!(tracking.sums(at(2000)), (0, 100));
    assert_eq!(tracking.poll_timeout(), Some(at(2000)), "the next hop is probed at once");
    tracking.answer(at(2300), true);
    assert_eq!(tracking.sums(at(3999)), (0, 100));
    assert_eq!(tracking.sums(at(4000)), (0, 0));
}

#[test]
fn a_next_hop_is_lost_after_three_misses_and_uncertain_for_a_standby_after_one() {
    let mut tracking = tracking(vec![vec![PORT_TRACKED, HOP_TRACKED]]);
    assert_eq!(tracking.answer(at(300), false), []);
    assert_eq!(tracking.sums(at(300)), (0, 50));
    assert_eq!(tracking.answer(at(600), true), []);
    assert_eq!(tracking.sums(at(600)), (0, 0), "one lost probe costs nothing");
    for ms in [900, 1200] {
        assert_eq!(tracking.answer(at(ms), false), []);
    }
    assert_eq!(tracking.answer(at(1500), false), [Change::Down(HOP_TRACKED.target)]);
    assert_eq!(tracking.answer(at(1800), false), [], "it is lost only once");
    assert_eq!(tracking.sums(at(1800)), (50, 50));
    assert_eq!(tracking.next_hops()[0].since, at(1500));
    assert_eq!(tracking.answer(at(2100), true), [Change::Up(HOP_TRACKED.target)]);
    assert_eq!(tracking.sums(at(2100)), (0, 50));
    assert_eq!(tracking.sums(at(4100)), (0, 0));
}

#[test]
fn next_hop_that_never_answered_counts_after_three_probes() {
    let mut tracking = Tracking::default();
    let groups = vec![vec![HOP_TRACKED]];
    tracking.configure(at(0), TrackingConfig { groups, ..TrackingConfig::default() });
    let starting = |tracking: &Tracking, ms| tracking.unreached(at(ms), GROUP, State::Init);
    tracking.answer(at(300), false);
    tracking.answer(at(600), false);
    assert_eq!(starting(&tracking, 600), 0);
    assert_eq!(tracking.answer(at(900), false), [Change::Down(HOP_TRACKED.target)]);
    assert_eq!(starting(&tracking, 900), 50);
}

#[test]
fn next_hop_behind_a_port_that_is_not_tracked_counts_while_the_port_is_down() {
    let mut tracking = tracking(vec![vec![HOP_TRACKED]]);
    tracking.handle_link(at(10), OUTSIDE, DOWN);
    assert_eq!(tracking.sums(at(10)), (50, 50));
}

#[test]
fn each_group_counts_what_it_tracks() {
    let light = Tracked { weight: 7, ..PORT_TRACKED };
    let mut tracking = tracking(vec![vec![light], vec![], vec![PORT_TRACKED]]);
    tracking.handle_link(at(10), OUTSIDE, DOWN);
    let of_group = |group| tracking.unreached(at(10), GroupId(group), State::Active);
    assert_eq!([of_group(0), of_group(1), of_group(2), of_group(3)], [7, 0, 100, 0]);
    assert!(tracking.tracks(PORT_TRACKED.target) && !tracking.tracks(HOP_TRACKED.target));
}

#[test]
fn another_configuration_keeps_what_is_known() {
    let mut tracking = tracking(vec![vec![PORT_TRACKED, HOP_TRACKED]]);
    tracking.handle_link(at(10), OUTSIDE, DOWN);
    tracking.configure(at(20), TrackingConfig { groups: vec![vec![]], ..TrackingConfig::default() });
    assert_eq!((tracking.sums(at(20)), tracking.poll_timeout()), ((0, 0), None), "nothing is tracked");
    let heavy = Tracked { weight: 200, ..PORT_TRACKED };
    tracking.configure(at(30), TrackingConfig { groups: vec![vec![heavy]], ..TrackingConfig::default() });
    assert_eq!(tracking.sums(at(30)), (200, 200));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Link(bool),
    Probe(bool),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![any::<bool>().prop_map(Step::Link), any::<bool>().prop_map(Step::Probe)];
    proptest::collection::vec((1..1500_u64, step), 1..60)
}

proptest! {
    /// Whatever comes and goes: a standby never counts more as reached than an active node would; what is down counts at once;
    /// a port attracts nothing until it has been up for the delay; sums change by themselves only at the deadline; and what
    /// stays is all reached in the end.
    #[test]
    fn uncertain_reach_counts_against_a_standby(steps in steps()) {
        let mut tracking = tracking(vec![vec![PORT_TRACKED, HOP_TRACKED]]);
        let delay = tracking.config.up_delay;
        let (mut now, mut up_since) = (at(0), None);
        for (ms, step) in steps {
            let before = tracking.sums(now);
            let deadlines = [tracking.ports[0].counts_at, tracking.next_hops[0].counts_at];
            now = now + Duration::from_millis(ms);
            if !deadlines.iter().any(|at| tracking.summed_at < *at && *at <= now) {
                prop_assert_eq!(before, tracking.sums(now));
            }
            match step {
                Step::Link(is_up) => {
                    let was_up = tracking.ports[0].link.is_up;
                    tracking.handle_link(now, OUTSIDE, LinkState { is_up, speed_mbps: None });
                    up_since = if is_up && !was_up { Some(now) } else { up_since };
                }
                Step::Probe(is_answered) => drop(tracking.answer(now, is_answered)),
            }
            let (active, standby) = tracking.sums(now);
            prop_assert!(active <= standby);
            let is_up = tracking.ports[0].link.is_up;
            prop_assert!(is_up || (active, standby) == (100, 100));
            prop_assert!(!is_up || up_since.is_none_or(|since| since + delay <= now) || standby >= 100);
        }
        tracking.handle_link(now, OUTSIDE, UP);
        tracking.answer(now, true);
        prop_assert_eq!(tracking.sums(now + delay), (0, 0));
    }
}
