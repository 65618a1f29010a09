//! Nodes leave a cluster and return, or not, while connections pass: each way to leave with each way to return, under loss, and with deaths
//! between.
//!
//! ```text
//!   all are ready ─► a node leaves ─► all others are ready ─► it returns ─► all are ready ─► others die ─► connections go on
//!        ▲                  └────────────── at once ──────────────┘                                           │
//!        └──────────────────────────────── they are started again ◄───────────────────────────────────────────┘
//! ```
//! Guarantee: when all nodes report ready, each connection has one owner and its backups. As many nodes may die then as it has backups, and it
//! goes on.

mod cluster;
mod config;

use std::time::Duration;

use ::cluster::node::LAG_MAX;
use flow::{NodeId, NodeSet};

use crate::random::Random;
use crate::report::{Outcome, Problem};
use crate::sabotage::{self, Sabotage};
use crate::scenario::{Family, Scenario};
use cluster::{Cluster, Flow};
use config::Shape;

/// Connections of a run.
const CONNECTIONS: u16 = 24;
/// The longest run: so many departures.
const DEPARTURES_MAX: u64 = 3;
/// All nodes report ready within this time.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A node that is alone claims what others have owned within this time.
const ALONE_FOR: Duration = Duration::from_secs(5);
/// A node that is stopped ends within this time.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// All nodes have noticed a death.
const NOTICED: Duration = Duration::from_millis(400);
/// A busy connection sends so often.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);

/// How a node leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// It dies.
    Killed,
    /// It dies, and an operator removes it.
    KilledAndRemoved,
    /// It ends by `SIGTERM`.
    Stopped,
    /// So, and it is no member any more.
    StoppedAndRemoved,
    /// It is drained, and ends by `SIGTERM`.
    Drained,
    /// The others remove it while it runs.
    Removed,
    /// So, after it was drained.
    DrainedAndRemoved,
}

/// All ways.
const WAYS: [Way; 7] = [
    Way::Killed,
    Way::KilledAndRemoved,
    Way::Stopped,
    Way::StoppedAndRemoved,
    Way::Drained,
    Way::Removed,
    Way::DrainedAndRemoved,
];

impl Way {
    const fn is_drained(self) -> bool {
        matches!(self, Self::Drained | Self::DrainedAndRemoved)
    }

    const fn is_removed(self) -> bool {
        matches!(self, Self::KilledAndRemoved | Self::StoppedAndRemoved | Self::Removed | Self::DrainedAndRemoved)
    }
}

/// How it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Return {
    Never,
    /// A new run, at once.
    AtOnce,
    /// A new run, later.
    Later,
    /// A new run at another address, which the others have a moment later.
    OtherAddress,
    /// The same run, where it runs on; else a new one.
    SameRun,
}

const RETURNS: [Return; 5] = [Return::Never, Return::AtOnce, Return::Later, Return::OtherAddress, Return::SameRun];

/// A violated guarantee ends the run.
struct Violated(Problem, String);

/// Checks the guarantee, if the scenario has the family.
pub(crate) fn check(scenario: &Scenario, sabotage: Option<Sabotage>, outcome: &mut Outcome) {
    if !scenario.families().contains(&Family::LeaveReturn) {
        return;
    }
    let mut random = Random::new(scenario.seed ^ 0x1ea7_e000);
    let nodes = random.between(3, 5) as u8;
    let shape = Shape {
        nodes,
        backups: random.between(1, 2) as usize,
        has_state_service: random.chance(700),
        is_translated: random.chance(600),
        loss_per_mille: random.pick(&[0, 20, 150]),
        seed: random.next(),
    };
    let cluster = Cluster::new(shape, random.fork());
    let mut run = Run { cluster, random, sabotage, flows: Vec::new(), history: Vec::new() };
    let result = run.play();
    outcome.leaves.departures += run.history.len() as u64;
    outcome.leaves.connections += run.flows.len() as u64;
    if let Err(Violated(problem, text)) = result {
        outcome.problem(run.cluster.now, problem, format!("{shape:?} {:?}: {text}", run.history));
    }
}

struct Run {
    cluster: Cluster,
    random: Random,
    sabotage: Option<Sabotage>,
    flows: Vec<Flow>,
    /// Which node left and returned how.
    history: Vec<(NodeId, Way, Return)>,
}

impl Run {
    fn play(&mut self) -> Result<(), Violated> {
        self.wait_until_whole("after the start")?;
        for port in 0..CONNECTIONS {
            let flow = self.cluster.connect(10_000 + port);
            self.flows.push(flow.ok_or_else(|| Violated(Problem::NotSurvived, "a connection does not begin".into()))?);
        }
        self.cluster.run(Duration::from_secs(2));
        self.wait_until_whole("with connections")?;
        for _ in 0..self.random.between(1, DEPARTURES_MAX) {
            let members: Vec<NodeId> = self.cluster.running().iter().collect();
            let (node, way) = (self.random.pick(&members), self.random.pick(&WAYS));
            let how = self.random.pick(&RETURNS);
            self.history.push((node, way, how));
            self.depart_and_return(node, way, how)?;
            self.die()?;
            self.restore_all()?;
        }
        Ok(())
    }

    fn depart_and_return(&mut self, node: NodeId, way: Way, how: Return) -> Result<(), Violated> {
        self.leave(node, way)?;
        if how != Return::AtOnce {
            self.wait_until_whole("after a node has left")?;
            self.pass_up_to(4000);
            if self.random.chance(300) {
                self.die()?;
                self.restart_dead(node)?;
            }
        }
        if how != Return::Never {
            self.come_back(node, how);
            self.wait_until_whole("after a node has returned")?;
        }
        Ok(())
    }

    fn leave(&mut self, node: NodeId, way: Way) -> Result<(), Violated> {
        let now = self.cluster.now;
        if way.is_drained() {
            // The members are ready: nothing stands in the way of it.
            let drained = self.cluster.node_mut(node).map(|it| it.drain(now, false));
            if let Some(Err(refused)) = drained {
                return Err(Violated(Problem::NeverReady, format!("a drain is refused: {refused}")));
            }
            self.pass_up_to(3000);
        }
        match way {
            Way::Killed | Way::KilledAndRemoved => self.cluster.end(node),
            Way::Stopped | Way::StoppedAndRemoved | Way::Drained => self.stop(node)?,
            Way::Removed | Way::DrainedAndRemoved => {}
        }
        if way.is_removed() {
            let removed_at_once = self.random.chance(500);
            self.pass_up_to(if removed_at_once { 0 } else { 3000 });
            self.cluster.set_member(node, false);
        }
        self.pass(NOTICED);
        Ok(())
    }

    fn stop(&mut self, node: NodeId) -> Result<(), Violated> {
        let now = self.cluster.now;
        if let Some(it) = self.cluster.node_mut(node) {
            it.leave(now);
        }
        let has_left = |cluster: &Cluster| cluster.node(node).is_none_or(|it| it.has_left());
        let ends = self.cluster.run_until(ENDS_WITHIN, has_left);
        self.cluster.end(node);
        if ends { Ok(()) } else { Err(Violated(Problem::NeverReady, "a node that is stopped does not end".into())) }
    }

    fn come_back(&mut self, node: NodeId, how: Return) {
        if how != Return::SameRun && self.cluster.node(node).is_some() {
            self.cluster.end(node);
        }
        let unreachable_ms = if how == Return::OtherAddress { self.random.between(50, 250) } else { 0 };
        let now = self.cluster.now;
        match self.cluster.node_mut(node) {
            // It may have been drained.
            Some(it) => it.undrain(now),
            None => self.cluster.start(node, Duration::from_millis(unreachable_ms)),
        }
        self.cluster.set_member(node, true);
    }

    /// As many nodes die at once as connections have backups, and every connection goes on, unless edges may send its packets to a node that
    /// is no member.
    fn die(&mut self) -> Result<(), Violated> {
        for _ in 0..self.cluster.shape.backups {
            let members: Vec<NodeId> = self.cluster.running().iter().collect();
            if members.len() > 1 {
                let dead = self.random.pick(&members);
                self.cluster.end(dead);
            }
        }
        self.cluster.run(NOTICED);
        let has_outsider = self.cluster.has_forwarding_outsider();
        for flow in self.flows.clone() {
            let client_first = self.random.chance(500);
            // Gateways with backups pull such a connection; a cluster without a state service cannot.
            let is_elsewhere = !self.cluster.shape.has_state_service && self.cluster.is_learned_elsewhere(&flow);
            if !self.cluster.exchange(&flow, client_first) && !has_outsider && !is_elsewhere {
                let [has_it, owners] = self.cluster.nodes_with(&flow);
                let port = flow.original.source_port;
                let text = format!("port {port} does not go on; it is on {has_it:?}, and owned by {owners:?}");
                return Err(Violated(Problem::NotSurvived, text));
            }
        }
        self.wait_until_whole("after deaths")
    }

    /// Members that are dead are started, but for one node.
    fn restart_dead(&mut self, but: NodeId) -> Result<(), Violated> {
        let all = self.cluster.shape.all();
        for node in all.iter().filter(|node| *node != but) {
            if self.cluster.node(node).is_none() {
                self.come_back(node, Return::Later);
            }
        }
        self.wait_until_whole("after dead nodes have returned")
    }

    /// All nodes run, and are members.
    fn restore_all(&mut self) -> Result<(), Violated> {
        let missing = self.cluster.shape.all().without(self.cluster.running());
        missing.iter().for_each(|node| self.come_back(node, Return::Later));
        self.wait_until_whole("after all have returned")
    }

    fn pass_up_to(&mut self, most_ms: u64) {
        let time_ms = self.random.between(0, most_ms);
        self.pass(Duration::from_millis(time_ms));
    }

    /// Time passes, in which busy connections send. A segment that is lost is sent again.
    fn pass(&mut self, time: Duration) {
        let until = self.cluster.now + time;
        while self.cluster.now < until {
            self.cluster.run(BUSY_INTERVAL);
            if !self.flows.is_empty() {
                let busy = self.random.pick(&self.flows[..self.flows.len().div_ceil(2)]);
                let client_first = self.random.chance(500);
                self.cluster.exchange(&busy, client_first);
            }
        }
    }

    /// Waits until all members report ready; one that is alone has no peer that could take over, and reports that. Then each connection has one owner, and its backups.
    fn wait_until_whole(&mut self, when: &str) -> Result<(), Violated> {
        let obstacles = |cluster: &Cluster| -> Vec<_> {
            let running = cluster.running();
            let of = |node: NodeId| Some(cluster.node(node)?.status(cluster.now).readiness.obstacles);
            running.iter().filter_map(of).flatten().collect()
        };
        let is_alone = self.cluster.running().len() < 2;
        if is_alone {
            self.cluster.run(ALONE_FOR);
        } else if !self.cluster.run_until(READY_WITHIN, |cluster| obstacles(cluster).is_empty()) {
            return Err(Violated(Problem::NeverReady, format!("{when}: {:?}", obstacles(&self.cluster))));
        }
        if self.sabotage == Some(Sabotage::DroppedReplicas) {
            let (now, running) = (self.cluster.now, self.cluster.running());
            for node in running.iter() {
                self.cluster.node_mut(node).into_iter().for_each(|it| sabotage::drop_replica(it, now));
            }
        }
        // An update may be in flight: a packet has come a moment ago.
        if self.find_not_backed_up().is_some() {
            self.cluster.run(LAG_MAX);
        }
        match self.find_not_backed_up() {
            None => Ok(()),
            Some(found) => Err(Violated(Problem::NotBackedUp, format!("{when}: {found}"))),
        }
    }

    /// A connection that has not one owner and its backups.
    fn find_not_backed_up(&self) -> Option<String> {
        let replicas_min = (self.cluster.shape.backups + 1).min(self.cluster.running().len() as usize);
        self.flows.iter().find_map(|flow| {
            let [has_it, owners]: [NodeSet; 2] = self.cluster.nodes_with(flow);
            let is_whole = owners.len() == 1 && has_it.len() as usize >= replicas_min;
            let port = flow.original.source_port;
            (!is_whole).then(|| format!("port {port} is on {has_it:?}, and owned by {owners:?}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Totals;
    use crate::scenario::FaultSet;

    /// Seeds that are played without the world of two nodes, which takes most of a run's time.
    const SEEDS: u64 = 40;
    /// Seeds whose runs have lost connections, left them with two owners, or kept a node from its end.
    const FOUND: [u64; 10] = [114, 202, 217, 347, 447, 495, 568, 570, 829, 974];

    fn played(
        seeds: impl IntoIterator<Item = u64>,
        sabotage: Option<Sabotage>,
    ) -> (Vec<(u64, crate::report::Failure)>, Totals) {
        let (mut broken, mut totals) = (Vec::new(), Totals::default());
        for seed in seeds {
            let scenario = Scenario::generate(seed, FaultSet::only(Family::LeaveReturn));
            let mut outcome = Outcome::new(&scenario);
            check(&scenario, sabotage, &mut outcome);
            broken.extend(outcome.problems.iter().map(|failure| (seed, failure.clone())));
            totals.add(&outcome);
        }
        (broken, totals)
    }

    #[test]
    fn no_way_to_leave_and_to_return_loses_a_connection() {
        let (broken, totals) = played(0..SEEDS, None);
        assert!(broken.is_empty(), "{broken:#?}");
        assert!(totals.leaves.departures >= SEEDS, "{totals:?}");
        assert_eq!(totals.leaves.connections, SEEDS * u64::from(CONNECTIONS));
    }

    #[test]
    fn what_once_lost_connections_or_left_them_with_two_owners_does_so_no_more() {
        let (broken, _) = played(FOUND, None);
        assert!(broken.is_empty(), "{broken:#?}");
    }

    #[test]
    fn replicas_that_are_missing_when_all_are_ready_are_found() {
        let (broken, _) = played(0..2, Some(Sabotage::DroppedReplicas));
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken.iter().all(|(_, failure)| failure.problem == Problem::NotBackedUp), "{broken:?}");
    }
}
