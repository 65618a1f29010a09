//! Each way for a node to leave the cluster, with each way to return.

use std::time::Duration;
use std::vec::Vec;

use flow::{NodeId, NodeSet};
use proptest::prelude::*;

use super::many::{Flow, Many, Setup};
use super::{CONNECTIONS, SETTLED, connected};

/// The node that leaves.
const LEAVES: u8 = 3;
/// A failure or a removal is known to all nodes.
const NOTICED: Duration = Duration::from_millis(300);

/// How the node leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// It dies, and stays a member.
    Killed,
    /// It dies, and is no member from that moment on.
    KilledAndRemoved,
    /// It dies, and is forgotten later.
    KilledAndForgotten,
    /// `SIGTERM`, with a static list.
    Stopped,
    /// `SIGTERM`, and its record has left.
    StoppedAndRemoved,
    /// An operator drains it, waits, and ends it.
    DrainedAndStopped,
    /// The same, and its record has left.
    DrainedAndRemoved,
    /// The others reload without it, or an operator writes that it has left. It goes on, and is ended later.
    RemovedWhileUp,
}

const WAYS: [Way; 8] = [
    Way::Killed,
    Way::KilledAndRemoved,
    Way::KilledAndForgotten,
    Way::Stopped,
    Way::StoppedAndRemoved,
    Way::DrainedAndStopped,
    Way::DrainedAndRemoved,
    Way::RemovedWhileUp,
];

impl Way {
    const fn is_removed(self) -> bool {
        matches!(
            self,
            Self::KilledAndRemoved
                | Self::KilledAndForgotten
                | Self::StoppedAndRemoved
                | Self::DrainedAndRemoved
                | Self::RemovedWhileUp
        )
    }
}

/// How it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Return {
    Never,
    /// A new run, before anything is claimed.
    AtOnce,
    /// A new run, later.
    Later,
    /// The same run, where it did not end.
    SameRun,
}

const RETURNS: [Return; 4] = [Return::Never, Return::AtOnce, Return::Later, Return::SameRun];

fn others() -> NodeSet {
    (0..4).filter(|id| *id != LEAVES).map(NodeId).collect()
}

/// The peers of all nodes but the one that leaves.
fn set_members(many: &mut Many, members: NodeSet) {
    many.setup.members = members;
    for id in many.living().filter(|id| *id != LEAVES).collect::<Vec<_>>() {
        many.set_members_of(id, members);
    }
}

/// Node [`LEAVES`] leaves.
fn leave(many: &mut Many, way: Way, flows: &[Flow], is_busy: bool) {
    match way {
        Way::Killed | Way::KilledAndRemoved => many.kill(LEAVES),
        Way::KilledAndForgotten => {
            many.kill(LEAVES);
            many.run(SETTLED);
        }
        Way::Stopped | Way::StoppedAndRemoved => {
            many.stop(LEAVES);
        }
        Way::DrainedAndStopped | Way::DrainedAndRemoved => {
            let now = many.now;
            many.nodes[usize::from(LEAVES)]
                .as_mut()
                .expect("it lives")
                .drain(now, false)
                .expect("others can take over");
            many.run_until("it to be drained", |many| !many.holds_own(LEAVES));
            many.take_out(LEAVES);
            exchange_all(many, flows, is_busy);
            many.run(Duration::from_millis(500));
            many.stop(LEAVES);
        }
        Way::RemovedWhileUp => {}
    }
    if way.is_removed() {
        set_members(many, others());
    }
    if way == Way::RemovedWhileUp {
        // It believes the others dead.
        many.take_out(LEAVES);
    }
}

fn come_back(many: &mut Many, way: Way, how: Return) {
    if how == Return::Never {
        return;
    }
    if way == Way::RemovedWhileUp && how != Return::SameRun {
        many.kill(LEAVES);
    }
    if way.is_removed() {
        set_members(many, others().union([NodeId(LEAVES)].into_iter().collect()));
    }
    if how != Return::SameRun {
        many.restart(LEAVES);
    }
    many.run_until("it to hold its group", |many| {
        many.holds_own(LEAVES) && many.node(LEAVES).status(many.now).synchronised
    });
    for side in [&mut many.inside, &mut many.outside] {
        side.ecmp.set_alive(NodeId(LEAVES), true);
    }
}

/// Segments of each connection pass; of idle ones only some, as keep-alives do.
fn exchange_all(many: &mut Many, flows: &[Flow], is_busy: bool) {
    for (flow, nth) in flows.iter().zip(0_u32..) {
        if is_busy && nth % 2 == 0 {
            assert!(many.exchange(flow, nth % 4 == 0), "{flow:?} of {:?} goes on", many.owners(flow));
        }
    }
}

/// The nodes that are still in the cluster report that a take-over would lose nothing. Then each connection has an owner and its backups.
fn assert_ready_and_whole(many: &mut Many, flows: &[Flow], concerned: &dyn Fn(u8) -> bool, context: &str) {
    many.run_until("all nodes to be ready", |many| {
        many.living().filter(|id| concerned(*id)).all(|id| many.node(id).status(many.now).readiness.is_ready())
    });
    let cluster: NodeSet = many.living().filter(|id| concerned(*id)).map(NodeId).collect();
    let within = |nodes: NodeSet| nodes.without(nodes.without(cluster));
    let count = many.setup.count.expect("it is set");
    for flow in flows {
        assert_eq!(within(many.owners(flow)).len(), 1, "{context}: {flow:?} is on {:?}", many.nodes_with(flow));
        let replicas = within(many.nodes_with(flow)).len() as usize;
        assert!(replicas >= (count + 1).min(cluster.len() as usize), "{context}: {flow:?} is on {replicas} nodes");
    }
}

fn leaves_and_returns(setup: Setup, way: Way, how: Return, is_busy: bool, connections: u16) {
    let context = std::format!("{way:?} {how:?} busy {is_busy} {setup:?}");
    std::println!("{context}");
    let (mut many, flows) = connected(setup, connections);
    leave(&mut many, way, &flows, is_busy);
    let is_outside = move |id: u8| id == LEAVES && way == Way::RemovedWhileUp;
    if how == Return::AtOnce {
        many.run(Duration::from_millis(20));
    } else {
        many.run(NOTICED);
        exchange_all(&mut many, &flows, is_busy);
        assert_ready_and_whole(&mut many, &flows, &|id| !is_outside(id), &context);
        many.run(SETTLED);
    }
    come_back(&mut many, way, how);
    let is_in = |id: u8| how != Return::Never || !is_outside(id);
    exchange_all(&mut many, &flows, is_busy);
    assert_ready_and_whole(&mut many, &flows, &is_in, &context);
    // As many others die as there are backups: what is ready loses nothing.
    many.run(SETTLED);
    for id in 0..setup.count.expect("it is set") as u8 {
        if many.living().filter(|id| is_in(*id)).count() > 1 {
            many.kill(id);
        }
    }
    many.run(NOTICED);
    for (flow, nth) in flows.iter().zip(0_u32..) {
        assert!(many.exchange(flow, nth % 2 == 0), "{context}: {flow:?} goes on");
    }
}

/// Every second row has busy connections.
fn every_way(count: usize) {
    let all = WAYS.into_iter().flat_map(|way| RETURNS.map(|how| (way, how)));
    let possible = all.filter(|(way, how)| *how != Return::SameRun || *way == Way::RemovedWhileUp);
    for ((way, how), nth) in possible.zip(0..) {
        let setup = Setup { is_translated: true, ..Setup::new(4, count) };
        leaves_and_returns(setup, way, how, nth % 2 == 0, CONNECTIONS / 4);
    }
}

#[test]
fn no_way_to_leave_and_to_return_loses_a_connection_with_one_backup() {
    every_way(1);
}

#[test]
fn no_way_to_leave_and_to_return_loses_a_connection_with_two_backups() {
    every_way(2);
}

#[test]
fn a_node_that_stops_owns_nothing_when_it_ends_and_waits_for_nobody_that_cannot_claim() {
    let (mut many, flows) = connected(Setup::new(4, 1), CONNECTIONS);
    many.nodes[usize::from(LEAVES)].as_mut().expect("it lives").leave(many.now);
    many.run_until("the node to have left", |many| many.node(LEAVES).has_left());
    let owned = flows.iter().filter(|flow| many.owners(flow).contains(NodeId(LEAVES))).count();
    assert_eq!(owned, 0, "others have claimed all");
    for flow in &flows {
        assert_eq!(many.owners(flow).len(), 1, "{flow:?}");
    }

    let mut many = Many::start(Setup::new(4, 1));
    for nth in 0..4 {
        many.connect(10_000 + nth);
    }
    (0..3).for_each(|id| many.kill(id));
    many.run(NOTICED);
    let took = many.stop(LEAVES);
    assert!(took < Duration::from_secs(7), "no other node lives: it took {took:?}");
}

#[test]
fn a_connection_has_one_owner_once_a_removed_node_that_ran_on_returns_even_if_it_was_claimed_twice() {
    let (mut many, flows) = connected(Setup::new(5, 1), CONNECTIONS);
    let owned: Vec<&Flow> = flows.iter().filter(|flow| many.owners(flow).contains(NodeId(LEAVES))).collect();
    let (all, one) = (many.setup.members, [NodeId(LEAVES)].into_iter().collect());
    set_members(&mut many, all.without(one));
    many.take_out(LEAVES);
    many.run(SETTLED);
    assert!(owned.iter().all(|flow| many.owners(flow).len() == 2), "it owns them still, and others have claimed them");
    // Those that one node has claimed are claimed by others, which do not know their first owner.
    let claimed = owned.iter().filter(|flow| many.owners(flow).contains(NodeId(0))).count();
    assert!(claimed > 0, "node 0 has claimed some");
    many.kill(0);
    many.run(SETTLED);
    set_members(&mut many, all);
    many.run_until("node 3 to be up", |many| {
        many.node(1).status(many.now).peers.iter().any(|peer| peer.id == NodeId(LEAVES) && peer.could_take_over())
    });
    assert_ready_and_whole(&mut many, &flows, &|_| true, "it is back");
}

fn any_way() -> impl Strategy<Value = (Way, Return)> {
    let all = WAYS.into_iter().flat_map(|way| RETURNS.map(|how| (way, how)));
    let possible = all.filter(|(way, how)| *how != Return::SameRun || *way == Way::RemovedWhileUp);
    prop::sample::select(possible.collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_hashes_of_connections_no_way_loses_one(
        seed: u64, count in 1..=2_usize, is_translated: bool, is_busy: bool, (way, how) in any_way(),
    ) {
        let setup = Setup { seed, seed_of_nodes: seed, is_translated, ..Setup::new(4, count) };
        leaves_and_returns(setup, way, how, is_busy, 30);
    }
}
