//! Two nodes with several groups, and their heartbeats as datagrams.

use core::time::Duration;
use std::vec;

use super::*;

const LEFT: u32 = 11;
const RIGHT: u32 = 22;
const FIRST: GroupId = GroupId::FIRST;
const SECOND: GroupId = GroupId(1);

/// The groups `left` and `right`; node 0 ranks higher for the one, node 1 for the other.
fn groups(node: u8) -> Vec<GroupConfig> {
    let group = |identity, preferred| GroupConfig {
        identity,
        priority: if node == preferred { 200 } else { 100 },
        preempt: true,
    };
    vec![group(LEFT, 0), group(RIGHT, 1)]
}

fn config(node: u8, groups: Vec<GroupConfig>) -> Config {
    Config { groups, ..Config::new(NodeId(node), vec![NodeId(1 - node)]) }
}

struct Pair {
    now_ms: u64,
    configs: [Config; 2],
    nodes: [Option<Roles>; 2],
    /// Of each group by its identity: somebody has always held it in the last steps.
    always_held: bool,
}

impl Pair {
    /// Both nodes start, receive each other's heartbeats and have all connections.
    fn start(configs: [Config; 2]) -> Self {
        let mut pair = Self { now_ms: 0, configs, nodes: [None, None], always_held: true };
        pair.restart(0, true);
        pair.restart(1, true);
        pair
    }

    fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    fn restart(&mut self, node: usize, is_synchronised: bool) {
        let now = self.now();
        let mut roles = Roles::new(self.configs[node].clone(), now);
        roles.set_synchronised(now, is_synchronised);
        self.nodes[node] = Some(roles);
        if self.nodes.iter().all(Option::is_some) {
            for (roles, peer) in self.nodes.iter_mut().flatten().zip([NodeId(1), NodeId(0)]) {
                roles.handle_peer_up(now, peer).unwrap();
            }
        }
    }

    /// Ends the node; the other notices at once.
    fn kill(&mut self, node: usize) {
        let now = self.now();
        self.nodes[node] = None;
        self.roles(1 - node).handle_peer_down(now, NodeId(u8::try_from(node).unwrap())).unwrap();
    }

    fn roles(&mut self, node: usize) -> &mut Roles {
        self.nodes[node].as_mut().expect("the node runs")
    }

    /// The identities of the groups that the node holds.
    fn held(&self, node: usize) -> Vec<u32> {
        let Some(roles) = &self.nodes[node] else { return Vec::new() };
        let held = roles.groups().filter(|group| roles.held().contains(*group));
        held.map(|group| self.configs[node].groups.get(group.index()).map_or(0, |group| group.identity)).collect()
    }

    fn run_ms(&mut self, ms: u64) {
        self.always_held = true;
        for _ in 0..ms {
            self.now_ms += 1;
            let now = self.now();
            for node in 0..2 {
                let Some(roles) = &mut self.nodes[node] else { continue };
                roles.handle_timeout(now);
                while let Some((group, event)) = roles.poll_event() {
                    if matches!(event, Event::BecomeActive { .. }) {
                        roles.handle_state_usable(now, group);
                    }
                }
                let Some(heartbeats) = roles.poll_heartbeats(now) else { continue };
                let mut datagram = Vec::new();
                heartbeats.encode(&mut datagram);
                if let Some(other) = &mut self.nodes[1 - node] {
                    other.handle_heartbeats(now, &Heartbeats::decode(&datagram).unwrap()).unwrap();
                }
            }
            let held = [self.held(0), self.held(1)].concat();
            self.always_held &= [LEFT, RIGHT].iter().all(|group| held.contains(group));
        }
    }
}

#[test]
fn each_node_holds_the_group_that_it_ranks_higher_for() {
    let mut pair = Pair::start([config(0, groups(0)), config(1, groups(1))]);
    pair.run_ms(50);
    assert_eq!((pair.held(0), pair.held(1)), (vec![LEFT], vec![RIGHT]));
    let now = pair.now();
    let said = pair.roles(0).peer(now, NodeId(1), SECOND).unwrap();
    assert_eq!((said.state, said.priority, said.synchronised), (State::Active, 200, true));
    assert_eq!(pair.roles(0).summary(), State::Active, "it is active for one of them");
    assert!(!pair.roles(0).are_all(State::holds_addresses));
}

#[test]
fn the_survivor_holds_both_until_the_other_is_back_and_has_all_connections() {
    let mut pair = Pair::start([config(0, groups(0)), config(1, groups(1))]);
    pair.run_ms(50);
    pair.kill(1);
    pair.run_ms(1);
    assert_eq!(pair.held(0), [LEFT, RIGHT]);
    assert!(pair.roles(0).are_all(State::holds_addresses));
    assert_eq!(pair.roles(0).term(SECOND), 2, "terms count take-overs of the group");
    assert_eq!(pair.roles(0).term(FIRST), 1);

    pair.restart(1, false);
    pair.run_ms(1000);
    assert_eq!((pair.held(0), pair.held(1)), (vec![LEFT, RIGHT], vec![]), "it knows no connection yet");
    let now = pair.now();
    pair.roles(1).set_synchronised(now, true);
    pair.run_ms(100);
    assert_eq!((pair.held(0), pair.held(1)), (vec![LEFT], vec![RIGHT]));
    assert!(pair.always_held, "either was held at every moment");
}

#[test]
fn without_preemption_the_survivor_keeps_both() {
    let without = |node| groups(node).into_iter().map(|group| GroupConfig { preempt: false, ..group }).collect();
    let mut pair = Pair::start([config(0, without(0)), config(1, without(1))]);
    pair.run_ms(50);
    pair.kill(1);
    pair.run_ms(1);
    pair.restart(1, true);
    pair.run_ms(1000);
    assert_eq!((pair.held(0), pair.held(1)), (vec![LEFT, RIGHT], vec![]));
}

#[test]
fn groups_that_are_listed_in_another_order_are_the_same_groups() {
    let reversed = groups(1).into_iter().rev().collect();
    let mut pair = Pair::start([config(0, groups(0)), config(1, reversed)]);
    pair.run_ms(1000);
    assert_eq!((pair.held(0), pair.held(1)), (vec![LEFT], vec![RIGHT]));
    pair.kill(0);
    pair.run_ms(1);
    assert_eq!(pair.held(1), [RIGHT, LEFT], "in its own order");
}

#[test]
fn a_node_that_leaves_hands_over_all_that_it_holds_and_comes_back_for_its_own() {
    let mut pair = Pair::start([config(0, groups(0)), config(1, groups(1))]);
    pair.run_ms(50);
    let now = pair.now();
    pair.roles(0).leave(now);
    pair.run_ms(100);
    assert!(pair.always_held);
    assert_eq!((pair.held(0), pair.held(1)), (vec![], vec![LEFT, RIGHT]));
    assert_eq!(pair.roles(0).summary(), State::Left);
    let now = pair.now();
    pair.roles(0).rejoin(now);
    pair.run_ms(100);
    assert!(pair.always_held);
    assert_eq!((pair.held(0), pair.held(1)), (vec![LEFT], vec![RIGHT]));
}

#[test]
fn a_peer_without_groups_counts_for_the_first_and_blocks_none_of_the_others() {
    let alone = Config { priority: 250, ..config(1, Vec::new()) };
    let mut pair = Pair::start([config(0, groups(0)), alone]);
    pair.run_ms(1000);
    assert_eq!(pair.roles(1).state(FIRST), State::Active, "the one that ranks highest has the first group");
    assert_eq!(pair.held(0), [RIGHT]);
    pair.kill(1);
    pair.run_ms(1);
    assert_eq!(pair.held(0), [LEFT, RIGHT]);
}

#[test]
fn a_group_that_only_the_peer_has_is_passed_over() {
    let more = GroupConfig { identity: 33, priority: 255, preempt: true };
    let of_one = groups(1).into_iter().chain([more]).collect();
    let mut pair = Pair::start([config(0, groups(0)), config(1, of_one)]);
    pair.run_ms(1000);
    assert_eq!((pair.held(0), pair.held(1)), (vec![LEFT], vec![RIGHT, 33]));
}

#[test]
fn a_priority_that_changes_moves_its_group_alone() {
    let mut pair = Pair::start([config(0, groups(0)), config(1, groups(1))]);
    pair.run_ms(50);
    let mut higher = groups(1);
    higher[0].priority = 201;
    let (now, new) = (pair.now(), config(1, higher));
    assert!(pair.roles(1).are_those_of(&new));
    pair.roles(1).reconfigure(now, new);
    pair.run_ms(100);
    assert_eq!((pair.held(0), pair.held(1)), (vec![], vec![LEFT, RIGHT]));
    let renamed = config(1, vec![GroupConfig { identity: 33, priority: 1, preempt: true }, groups(1)[1]]);
    assert!(!pair.roles(1).are_those_of(&renamed) && !pair.roles(1).are_those_of(&config(1, Vec::new())));
}

#[test]
fn a_worker_that_follows_has_the_state_that_it_receives() {
    let mut roles = Roles::following(config(0, groups(0)), Instant::ZERO);
    roles.follow(Instant::ZERO, SECOND, State::Active, 9);
    roles.handle_timeout(Instant::ZERO + Duration::from_secs(9));
    assert_eq!(roles.held(), GroupSet::EMPTY.with(SECOND));
    assert_eq!((roles.state(FIRST), roles.term(SECOND)), (State::Init, 9));
    assert_eq!(roles.poll_heartbeats(Instant::from_millis(9000)), None);
}

#[test]
fn after_a_pause_an_active_node_yields_to_nothing_that_is_as_old_as_the_pause() {
    let mut pair = Pair::start([config(0, Vec::new()), config(1, Vec::new())]);
    pair.run_ms(1000);
    let back = Instant::from_millis(6000);
    // Node 1 took over while node 0 stood still; that was read before node 1 died and started anew.
    let peer = Order { incarnation: 1, sequence: 100 };
    let of_peer = |state, term| Heartbeat {
        node: NodeId(1),
        state,
        priority: 100,
        synchronised: true,
        term,
        configuration: None,
        unreached: 0,
        passive: false,
    };
    let heartbeats = |first, answers| Heartbeats { first, groups: Vec::new(), order: Some(peer), answers };
    let roles = pair.roles(0);
    assert_eq!(roles.state(FIRST), State::Active);
    roles.handle_absence(back, Duration::from_secs(5));
    let own = roles.poll_heartbeats(back).and_then(|sent| sent.order).expect("a heartbeat is due after a pause");
    let before = Order { sequence: own.sequence - 1, ..own };
    for answers in [None, Some(before)] {
        assert!(!roles.admits(back, &heartbeats(of_peer(State::Active, 9), answers)));
    }
    let empty = heartbeats(of_peer(State::Active, 0), Some(own));
    assert!(roles.admits(back, &empty));
    roles.handle_heartbeats(back, &empty).unwrap();
    assert_eq!(roles.state(FIRST), State::Active, "a take-over that knew nothing counts as none");
    assert_eq!(roles.latest_of(NodeId(1)), Some(peer), "what the next heartbeat answers");
}
