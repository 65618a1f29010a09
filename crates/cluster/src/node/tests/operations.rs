//! Scenarios of operators at work: other rules and addresses while packets pass, nodes taken out of service and back.

use std::time::Duration;
use std::vec::Vec;

use flow::{DropReason, NodeId};
use network_functions::chain::ChainBuilder;
use network_functions::firewall::Rule;

use super::cluster::{Cluster, OUTSIDE, Options, firewall, nat, node_config, rules, segment, syn};
use super::{ACK, events, exchange};
use crate::forwarding::{self, ReconfigureError};
use crate::group::GroupId;
use crate::node::{DRAIN_HANDOVER_MAX, DrainRefused, NodeEvent, Reconfiguration, Reevaluation, ReloadError};
use crate::node::{LinkState, NodeObstacle, Obstacle, Target, Tracked, TrackingConfig};
use crate::role::State;

/// The node's own configuration with other rules.
pub(super) fn with_rules(cluster: &Cluster, id: u8, rules: Vec<Rule>) -> Reconfiguration {
    let layout = cluster.node(id).pipeline().chain().layout();
    let config = node_config(id, cluster.options());
    Reconfiguration {
        tracker: config.tracker,
        chain: ChainBuilder::new().push(firewall(rules)).push(nat(id, true)).build_within(layout).unwrap(),
        reevaluation: Reevaluation::Keep,
        translates_otherwise: false,
        forwarding: config.forwarding,
        role: config.role,
        selection: config.selection,
        hold_first_reply: config.hold_first_reply,
        wait_for_peer: crate::pipeline::WAIT_FOR_PEER_DEFAULT,
        peers: config.peers,
        backups: None,
        security: config.security,
        seed: cluster.now.as_nanos(),
    }
}

pub(super) fn reload(cluster: &mut Cluster, id: u8, new: Reconfiguration) -> crate::node::Reloaded {
    let now = cluster.now;
    cluster.node_mut(id).reload(now, new).expect("it can be taken")
}

fn is_answered(cluster: &mut Cluster, port: u16) -> bool {
    cluster.client_sends(port, syn(), b"");
    cluster.server_receives().is_some()
}

#[test]
fn new_rules_are_for_new_connections_and_the_others_go_on() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    let closed = with_rules(&cluster, 0, Vec::new());
    assert!(!reload(&mut cluster, 0, closed).reevaluates);
    assert!(!is_answered(&mut cluster, 40_001));
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    let open = with_rules(&cluster, 0, rules(None));
    reload(&mut cluster, 0, open);
    let _ = cluster.connect(40_002);
    exchange(&mut cluster, 40_000, seen_port, 1009, 5007);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (2, 2));
}

#[test]
fn connections_that_new_rules_do_not_allow_end_on_both_nodes_when_the_operator_wants_it() {
    let mut cluster = Cluster::start(Options { connections_max: 1024, ..Options::default() });
    for port in 40_000..40_300 {
        let _ = cluster.connect(port);
    }
    let seen_port = cluster.connect(40_300);
    events(&mut cluster, 0);
    let new =
        Reconfiguration { reevaluation: Reevaluation::Reevaluate, ..with_rules(&cluster, 0, rules(Some(40_300))) };
    assert!(reload(&mut cluster, 0, new).reevaluates);

    // Its packet comes before the walk does: it does not pass all the same.
    cluster.client_sends(40_300, segment(ACK, 1001, 5001), b"question");
    assert!(cluster.server_receives().is_none());
    assert_eq!(cluster.dropped(0, DropReason::FirewallDenied), 1);

    cluster.run_until("all to be re-evaluated", |cluster| !cluster.node(0).pipeline().is_reevaluating());
    assert!(events(&mut cluster, 0).contains(&NodeEvent::Reevaluated { ended: 1 }));
    assert_eq!(cluster.node(0).pipeline().counters().disallowed, 1);
    cluster.run_until("the standby to receive the end", |cluster| cluster.connections(1) == 300);
    assert_eq!(cluster.connections(0), 300);
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"answer");
    assert!(cluster.client_receives().is_none(), "nor does an answer");
    assert!(cluster.dropped(0, DropReason::NoConnection) > 0);
}

#[test]
fn a_standby_reevaluates_when_it_takes_over_and_not_before() {
    let mut cluster = Cluster::start(Options::default());
    let allowed = cluster.connect(40_000);
    let _ = cluster.connect(40_001);
    let new =
        Reconfiguration { reevaluation: Reevaluation::Reevaluate, ..with_rules(&cluster, 1, rules(Some(40_001))) };
    assert!(!reload(&mut cluster, 1, new).reevaluates, "the connections are another node's");
    cluster.run(Duration::from_millis(100));
    assert_eq!((cluster.connections(0), cluster.connections(1)), (2, 2));
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.run_until("the connection to be ended", |cluster| cluster.connections(1) == 1);
    exchange(&mut cluster, 40_000, allowed, 1001, 5001);
}

#[test]
fn rules_that_came_later_and_keep_connections_are_not_held_against_them() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    let reevaluates =
        Reconfiguration { reevaluation: Reevaluation::Reevaluate, ..with_rules(&cluster, 1, rules(None)) };
    reload(&mut cluster, 1, reevaluates);
    let unrelated = Reconfiguration { reevaluation: Reevaluation::AsBefore, ..with_rules(&cluster, 1, rules(None)) };
    reload(&mut cluster, 1, unrelated);
    let keeps = with_rules(&cluster, 1, Vec::new());
    reload(&mut cluster, 1, keeps);
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.run(Duration::from_millis(10));
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
}

#[test]
fn functions_come_and_go_while_connections_keep_their_translation() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    let layout = cluster.node(0).pipeline().chain().layout();
    let chain = ChainBuilder::new().push(nat(0, false)).build_within(layout.clone()).unwrap();
    let without_firewall = Reconfiguration { chain, ..with_rules(&cluster, 0, Vec::new()) };
    reload(&mut cluster, 0, without_firewall);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);

    let chain = ChainBuilder::new().push(nat(0, true)).push(firewall(Vec::new())).build_within(layout).unwrap();
    let reordered = Reconfiguration { chain, ..with_rules(&cluster, 0, Vec::new()) };
    reload(&mut cluster, 0, reordered);
    exchange(&mut cluster, 40_000, seen_port, 1009, 5007);
    assert!(!is_answered(&mut cluster, 40_001), "the firewall is back, and closed");
    // The replica still names the rule that let the connection in, and where: the other node can re-evaluate it.
    let new =
        Reconfiguration { reevaluation: Reevaluation::Reevaluate, ..with_rules(&cluster, 1, rules(Some(40_000))) };
    reload(&mut cluster, 1, new);
    cluster.kill(0);
    cluster.run_until("the connection to be ended", |cluster| cluster.connections(1) == 0);
}

/// What makes a reload impossible.
type Spoil = fn(&mut Reconfiguration);

#[test]
fn a_reload_that_cannot_be_is_refused_whole() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    let refusals: [(Spoil, ReloadError); 4] = [
        (|new| new.peers[0].id = NodeId(0), ReloadError::PeersDiffer),
        (|new| new.chain = ChainBuilder::new().push(nat(0, true)).build().unwrap(), ReloadError::ChainLayout),
        (|new| drop(new.forwarding.ports.pop()), ReconfigureError::PortsDiffer.into()),
        (
            |new| new.peers[0].detector.detect_multiplier = 0,
            crate::failure_detector::ConfigError::ZeroDetectMultiplier.into(),
        ),
    ];
    for (spoil, expected) in refusals {
        let mut new = with_rules(&cluster, 0, Vec::new());
        spoil(&mut new);
        let now = cluster.now;
        assert_eq!(cluster.node_mut(0).reload(now, new), Err(expected));
    }
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    let _ = cluster.connect(40_001);
}

#[test]
fn other_detection_times_and_a_new_address_are_taken_without_a_peer_down() {
    let mut cluster = Cluster::start(Options::default());
    events(&mut cluster, 0);
    for interval_ms in [50, 5] {
        for id in [0, 1] {
            let mut new = with_rules(&cluster, id, rules(None));
            let interval = Duration::from_millis(interval_ms);
            (new.peers[0].detector.desired_min_tx, new.peers[0].detector.required_min_rx) = (interval, interval);
            new.forwarding.ports[0].shared.push(forwarding::Prefix::new([10, 1, 0, 2].into(), 24).into());
            let reloaded = reload(&mut cluster, id, new);
            assert_eq!(reloaded.announces, id == 0 && interval_ms == 50, "what is new, by the node that holds it");
            cluster.run(Duration::from_secs(2));
        }
        let detection_time = cluster.node(0).status(cluster.now).peers[0].detector.detection_time;
        assert_eq!(detection_time, Duration::from_millis(10 * interval_ms));
    }
    let events_of_0 = events(&mut cluster, 0);
    assert!(!events_of_0.iter().any(|event| matches!(event, NodeEvent::PeerDown(_))), "{events_of_0:?}");
}

#[test]
fn nodes_send_each_other_whether_they_are_configured_alike() {
    let mut cluster = Cluster::start(Options::default());
    let configuration = |cluster: &Cluster| {
        cluster.node(1).status(cluster.now).peers[0].heartbeat(GroupId::FIRST).unwrap().configuration
    };
    assert_eq!(configuration(&cluster), None);
    let mut new = with_rules(&cluster, 0, rules(None));
    new.role.configuration = Some(42);
    reload(&mut cluster, 0, new);
    cluster.run(Duration::from_millis(2));
    assert_eq!(configuration(&cluster), Some(42));
    assert_eq!(cluster.node(0).status(cluster.now).configuration, Some(42));
}

fn state(cluster: &Cluster, id: u8) -> State {
    cluster.node(id).status(cluster.now).role
}

#[test]
fn a_drained_node_hands_its_connections_over_and_stands_by_only_when_undrained() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    let now = cluster.now;
    cluster.node_mut(0).drain(now, false).expect("the other has everything");
    cluster.run_until("node 1 to take over", |cluster| state(cluster, 1) == State::Active);
    cluster.run_until("node 0 to have left", |cluster| state(cluster, 0) == State::Left);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    let now = cluster.now;
    cluster.node_mut(0).drain(now, false).expect("it is drained already");
    assert_eq!(cluster.node_mut(1).drain(now, false), Err(DrainRefused::NobodyReady), "nobody would relieve it");
    cluster.run(Duration::from_secs(10));
    assert_eq!((state(&cluster, 0), state(&cluster, 1)), (State::Left, State::Active));

    let now = cluster.now;
    cluster.node_mut(0).undrain(now);
    cluster.run(Duration::from_millis(50));
    assert_eq!((state(&cluster, 0), state(&cluster, 1)), (State::Standby, State::Active));
    let now = cluster.now;
    cluster.node_mut(1).drain(now, false).expect("the peer is standby once more");
    cluster.run_until("node 0 to take over", |cluster| state(cluster, 0) == State::Active);
    exchange(&mut cluster, 40_000, seen_port, 1009, 5007);
}

#[test]
fn a_node_that_nobody_could_relieve_is_not_drained_unless_forced() {
    let mut cluster = Cluster::start(Options { replicates: false, ..Options::default() });
    let now = cluster.now;
    assert_eq!(cluster.node_mut(0).drain(now, false), Err(DrainRefused::NobodyReady));
    cluster.node_mut(1).drain(now, false).expect("a standby node may leave while another works");
    cluster.run(Duration::from_millis(50));
    let now = cluster.now;
    cluster.node_mut(0).drain(now, true).expect("it is forced");
    cluster.run_until("the addresses to be given up", |cluster| state(cluster, 0) == State::Left);
}

#[test]
fn a_node_that_waits_for_acknowledgements_is_seen_to_leave_and_does_not_wait_for_a_peer_that_is_down() {
    let mut cluster = Cluster::start(Options::default());
    cluster.kill(1);
    let _ = cluster.connect(40_000);
    let now = cluster.now;
    cluster.node_mut(0).drain(now, true).expect("it is forced");
    assert!(cluster.node(0).holds_addresses(), "the peer has not acknowledged the connection");
    assert_eq!(state(&cluster, 0), State::Leaving);
    let is_down = |cluster: &Cluster| cluster.node(0).status(cluster.now).peers[0].down_since.is_some();
    cluster.run_until("the peer to be down", is_down);
    cluster.run(Duration::from_millis(2));
    assert!(!cluster.node(0).departure.is_replicating(), "nobody is left to acknowledge anything");
    cluster.run_until("node 0 to have left", |cluster| state(cluster, 0) == State::Left);
}

#[test]
fn a_standby_that_reaches_less_is_not_ready_on_either_node_and_is_not_drained_to() {
    let mut cluster = Cluster::start(Options::default());
    let _ = cluster.connect(40_000);
    let now = cluster.now;
    let tracked = Tracked { target: Target::Port(OUTSIDE), weight: 100 };
    for id in [0, 1] {
        let config = TrackingConfig { groups: std::vec![std::vec![tracked]], ..TrackingConfig::default() };
        cluster.node_mut(id).set_tracking(now, config);
        cluster.node_mut(id).handle_link(now, OUTSIDE, LinkState { is_up: true, speed_mbps: None });
    }
    cluster.run_until("both nodes to be ready", |cluster| {
        [0, 1].iter().all(|id| cluster.node(*id).status(cluster.now).readiness.is_ready())
    });
    let down = LinkState { is_up: false, speed_mbps: None };
    let now = cluster.now;
    cluster.node_mut(1).handle_link(now, OUTSIDE, down);
    cluster.run(Duration::from_millis(50));
    let reaches_less = Obstacle::ReachesLess { theirs: 100, ours: 0 };
    for id in [0, 1] {
        let obstacles = cluster.node(id).status(cluster.now).readiness.obstacles;
        assert_eq!(obstacles, [NodeObstacle { node: NodeId(1), obstacle: reaches_less }], "as node {id} reports");
    }
    let now = cluster.now;
    assert_eq!(cluster.node_mut(0).drain(now, false), Err(DrainRefused::NobodyReady));
    let now = cluster.now;
    cluster.node_mut(0).handle_link(now, OUTSIDE, down);
    cluster.run(Duration::from_millis(50));
    let now = cluster.now;
    assert!(cluster.node(0).status(now).readiness.is_ready(), "the active node reaches no more");
    assert_eq!(cluster.node_mut(0).drain(now, false), Ok(()));
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
}

#[test]
fn a_drain_is_given_up_when_the_peer_dies_before_it_takes_over() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    let now = cluster.now;
    cluster.node_mut(0).drain(now, false).expect("the other has everything");
    cluster.kill(1);
    cluster.run(DRAIN_HANDOVER_MAX + Duration::from_millis(10));
    assert_eq!(state(&cluster, 0), State::Active);
    assert!(events(&mut cluster, 0).contains(&NodeEvent::DrainGivenUp));
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
}

#[test]
fn a_node_that_hands_over_and_is_back_at_once_takes_no_connection_with_it() {
    let mut cluster = Cluster::start(Options { connections_max: 1024, ..Options::default() });
    let ports: Vec<(u16, u16)> = (40_000..40_400).map(|port| (port, cluster.connect(port))).collect();
    for id in [0, 1] {
        let now = cluster.now;
        cluster.node_mut(id).leave(now);
        cluster.run_until("the other to take over", |cluster| state(cluster, 1 - id) == State::Active);
        cluster.restart(id);
        // Its full synchronisation is complete at once: it has no connections. The other holds replicas of those that it owned,
        // and has seen no packet of them yet.
        cluster.run(Duration::from_millis(500));
        assert_eq!((cluster.connections(0), cluster.connections(1)), (400, 400));
    }
    for (port, seen_port) in ports {
        exchange(&mut cluster, port, seen_port, 1001, 5001);
    }
}

#[test]
fn a_restarted_node_is_drained_to_only_when_it_has_its_connections_back() {
    let mut cluster = Cluster::start(Options::default());
    let ports: Vec<(u16, u16)> = (40_000..40_020).map(|port| (port, cluster.connect(port))).collect();
    for id in [0, 1] {
        let now = cluster.now;
        cluster.node_mut(id).leave(now);
        cluster.run_until("the other to take over", |cluster| state(cluster, 1 - id) == State::Active);
        cluster.run_until("the node to have left", |cluster| state(cluster, id) == State::Left);
        cluster.kill(id);
        cluster.run(Duration::from_millis(500));
        cluster.restart(id);
        let limit = cluster.now + Duration::from_secs(5);
        while cluster.connections(id) < 20 {
            let now = cluster.now;
            let refused = cluster.node_mut(1 - id).drain(now, false);
            assert_eq!(refused, Err(DrainRefused::NobodyReady), "it does not know them all yet");
            assert!(now < limit, "it does not learn them");
            cluster.run(Duration::from_millis(1));
        }
        cluster.run_until("it to be ready", |cluster| cluster.node(1 - id).status(cluster.now).readiness.is_ready());
        assert_eq!(cluster.connections(id), 20);
    }
    for (port, seen_port) in ports {
        exchange(&mut cluster, port, seen_port, 1001, 5001);
    }
}
