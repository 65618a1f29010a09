//! Applies the scenario's faults to nodes and links.

use std::time::Duration;

use cluster::node::{LinkState, Node};
use cluster::{failure_detector, role};
use flow::PortId;
use replication::SessionConfig;

use super::machine::Machine;
use super::{World, view};
use crate::Sabotage;
use crate::checkers::Conditions;
use crate::dialect::Interpreter;
use crate::link::{Link, LinkConfig, Rate};
use crate::node_config::{self, CONNECTIONS_MAX};
use crate::scenario::{Capacity, Channels, Fault, Who};
use crate::schedule::Event;
use crate::topology::{self, NODES, Side};

/// The interval at which a stopping process checks whether its peers have acknowledged its shutdown.
const SHUTDOWN_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// The deferral of sabotaged nodes.
const MUCH_TOO_LONG: Duration = Duration::from_secs(3600);

impl World<'_> {
    pub(super) fn start(&mut self, node: usize) {
        let now = self.own_now(node);
        let machine = &mut self.machines[node];
        let with_replication = self.options.sabotage != Some(Sabotage::NoReplication);
        let session = with_replication.then(|| session(machine.room));
        let connections_max = machine.room.map_or(CONNECTIONS_MAX, |room| room.connections_max);
        let (incarnation, unix_time) = (machine.incarnation, machine.wall_clock.unix_time(self.now));
        let config = node_config::node_config(self.scenario, node, incarnation, unix_time, session, connections_max);
        let mut value = Node::new(config, now).expect("the configuration is sound");
        let deferral = match self.options.sabotage {
            Some(Sabotage::EndlessDeferral) => MUCH_TOO_LONG,
            _ => self.scenario.deferral,
        };
        let lazy = (!deferral.is_zero()).then_some(replication::deferral::Config::Fixed(deferral));
        value.set_lazy(now, lazy).expect("a time is a threshold");
        value.set_tracking(now, topology::tracking());
        if node_config::has_service_paths(self.scenario) {
            let detector = failure_detector::Config::default();
            let seed = u64::from(machine.incarnation) << 8 | node as u64;
            value.set_service_paths(&topology::service_paths(), detector, seed).expect("the configuration is sound");
        }
        machine.node = Some(value);
        let has_new_dialect = machine.interpreter.dialect != machine.next_dialect;
        machine.interpreter = Interpreter::new(machine.next_dialect);
        self.checkers.started(self.now, node, connections_max, has_new_dialect);
        self.note_conditions();
        self.notice_carrier(node);
        self.settle(node);
    }

    fn kill(&mut self, node: usize) {
        if self.machines[node].node.is_none() {
            return;
        }
        let view = view(self.scenario, &self.hosts, &self.machines);
        self.checkers.before_kill(self.now, node, &view, &mut self.outcome);
        self.machines[node].stop();
    }

    fn role(&self, node: usize) -> Option<role::State> {
        self.machines[node].node.as_ref().map(|value| value.status(self.own_now(node)).role)
    }

    /// The nodes selected at present.
    fn resolve(&self, who: Who) -> Vec<usize> {
        let active = (0..NODES)
            .find(|node| !self.machines[*node].is_paused && self.role(*node).is_some_and(role::State::holds_addresses));
        match who {
            Who::Active => active.into_iter().collect(),
            Who::Standby => active.map(|node| 1 - node).into_iter().collect(),
            Who::Node0 => vec![0],
            Who::Node1 => vec![1],
            Who::Both => vec![0, 1],
        }
    }

    /// Applies a fault of the scenario.
    pub(super) fn interfere(&mut self, fault: Fault) {
        self.trace.note(self.now, 0, || format!("fault: {fault:?}"));
        match fault {
            Fault::Kill(who) => self.each(who, Self::kill),
            Fault::Leave(who) => self.each(who, Self::leave),
            Fault::Restart(who) => self.each(who, Self::restart),
            Fault::Pause(who) => self.each(who, Self::pause),
            Fault::Continue(who) => self.each(who, Self::resume),
            Fault::Silence { who, channels, is_lost } => self.each(who, |world, node| {
                silence(&mut world.machines[node].muted, channels, is_lost);
            }),
            Fault::Rate { bytes_per_second, queue_bytes } => {
                let rate = (bytes_per_second > 0).then_some(Rate { bytes_per_second, queue_bytes });
                self.machines.iter_mut().for_each(|machine| machine.replication.rate = rate);
                self.note_conditions_when_drained();
            }
            Fault::Lag { who, lag_ms } => self.each(who, |world, node| {
                world.machines[node].lag = Duration::from_millis(lag_ms);
                world.serve(node);
            }),
            Fault::Jump { who, by_ms } => self.each(who, |world, node| {
                let by = Duration::from_millis(by_ms);
                world.machines[node].clock.leap(world.now, by);
                let view = view(world.scenario, &world.hosts, &world.machines);
                world.checkers.survival.leapt(world.now, node, world.machines[node].clock.own(world.now), &view);
                world.wake(node);
            }),
            Fault::Speed { who, per_mille } => self.each(who, |world, node| {
                world.machines[node].clock.run_at(world.now, per_mille);
                world.wake(node);
            }),
            Fault::WallClock { who, by_s } => self.each(who, |world, node| world.set_wall_clock(node, by_s)),
            Fault::SetDialect { who, dialect } => {
                self.each(who, |world, node| world.machines[node].next_dialect = dialect);
            }
            Fault::Room { who, room } => self.each(who, |world, node| world.machines[node].room = Some(room)),
            Fault::HostLink { host, is_down } => self.host_links[host].is_down = is_down,
            Fault::NodeLink { who, inside, outside, is_down, carrier } => self.each(who, |world, node| {
                let machine = &mut world.machines[node];
                for (side, is_meant) in [(Side::Inside, inside), (Side::Outside, outside)] {
                    let port = usize::from(side.port().0);
                    if is_meant {
                        machine.ports[port].is_down = is_down;
                        machine.has_carrier[port] = !(carrier && is_down);
                    }
                }
                world.notice_carrier(node);
            }),
            Fault::Claim { host } => self.send_from_host(host, topology::claims(host)),
        }
        self.note_conditions();
    }

    /// A running node reads its wall clock soon.
    fn set_wall_clock(&mut self, node: usize, by_s: i64) {
        let now = self.own_now(node);
        let machine = &mut self.machines[node];
        machine.wall_clock.step(by_s);
        if let Some(value) = &mut machine.node {
            value.set_unix_time(now, machine.wall_clock.unix_time(self.now));
        }
    }

    /// Notifies a running node which of its ports have carrier.
    fn notice_carrier(&mut self, node: usize) {
        let now = self.own_now(node);
        let machine = &mut self.machines[node];
        let Some(value) = machine.node.as_mut().filter(|_| !machine.is_paused) else { return };
        for (port, is_up) in (0..).map(PortId).zip(machine.has_carrier) {
            value.handle_link(now, port, LinkState { is_up, speed_mbps: None });
        }
        self.wake(node);
    }

    fn each(&mut self, who: Who, mut action: impl FnMut(&mut Self, usize)) {
        for node in self.resolve(who) {
            action(self, node);
        }
    }

    fn leave(&mut self, node: usize) {
        let now = self.own_now(node);
        let machine = &mut self.machines[node];
        if let Some(value) = machine.node.as_mut().filter(|_| !machine.is_paused) {
            value.leave(now);
            self.settle(node);
        }
    }

    /// Restarts a dead or stopped node. A stopping process ends when its peers have acknowledged its shutdown.
    fn restart(&mut self, node: usize) {
        let machine = &self.machines[node];
        let has_left = self.role(node) == Some(role::State::Left);
        if has_left && !machine.is_paused && machine.node.as_ref().is_some_and(Node::has_unacknowledged) {
            let at = self.now + SHUTDOWN_CHECK_INTERVAL;
            self.schedule.add(at, Event::Fault { index: self.faults.len() });
            self.faults.push((at, Fault::Restart(if node == 0 { Who::Node0 } else { Who::Node1 })));
            return;
        }
        if matches!(self.role(node), Some(role::State::Leaving | role::State::Left)) {
            self.kill(node);
        }
        if self.machines[node].node.is_none() {
            self.start(node);
        }
    }

    fn pause(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if machine.node.is_some() && !machine.is_paused {
            machine.is_paused = true;
            self.outcome.pauses += 1;
            self.checkers.paused(self.now, node);
        }
    }

    fn resume(&mut self, node: usize) {
        if std::mem::take(&mut self.machines[node].is_paused) {
            self.checkers.resumed(self.now, node);
            self.note_conditions();
            if self.options.sabotage == Some(Sabotage::EarlySilenceCheck) {
                self.machines[node].inbox.clear();
                self.wake(node);
                self.machines[node].clock.leap(self.now, Duration::from_millis(900));
            }
            self.notice_carrier(node);
            self.wake(node);
        }
    }

    /// Makes the node process everything now.
    fn wake(&mut self, node: usize) {
        self.machines[node].timer_at = None;
        self.serve(node);
    }

    /// Ends all faults: links are reliable, processes resume, and dead nodes restart.
    pub(super) fn calm(&mut self) {
        self.trace.note(self.now, 1, || String::from("calm"));
        self.is_calm = true;
        let sound = |link: &mut Link| {
            let LinkConfig { delay, jitter, .. } = link.config;
            link.config = LinkConfig { delay, jitter, ..LinkConfig::default() };
            (link.is_down, link.rate) = (false, None);
        };
        self.host_links.iter_mut().for_each(sound);
        for machine in &mut self.machines {
            machine.ports.iter_mut().for_each(sound);
            machine.has_carrier = [true; 2];
            sound(&mut machine.replication);
            machine.muted = Channels::default();
            machine.lag = Duration::ZERO;
        }
        for node in 0..NODES {
            self.resume(node);
            self.restart(node);
            self.notice_carrier(node);
            self.wake(node);
        }
        self.note_conditions_when_drained();
        self.note_conditions();
    }

    /// Links whose limit was removed are normal once their queues have drained.
    fn note_conditions_when_drained(&mut self) {
        let drained_at = self.machines.iter().map(|machine| machine.replication.drained_at()).max().unwrap_or(self.now);
        if drained_at > self.now && self.machines.iter().all(|machine| machine.replication.rate.is_none()) {
            self.schedule.add(drained_at, Event::Drained);
        }
    }

    /// Notifies the checkers of the nodes' conditions.
    pub(super) fn note_conditions(&mut self) {
        let now = self.now;
        let is_prompt = self.machines.iter().all(|Machine { lag, replication, .. }| {
            lag.is_zero() && replication.rate.is_none() && replication.drained_at() <= now
        });
        let muted = self.machines.each_ref().map(|machine| machine.muted);
        let carries = node_config::carries_updates_over_service_paths(self.scenario);
        let is_carried = |muted: &Channels| !muted.replication || carries && *muted == Channels::REPLICATION_LINK;
        let conditions = Conditions {
            can_replicate: is_prompt
                && self.have_same_version()
                && muted.iter().all(is_carried)
                && !self.machines.iter().any(|machine| machine.is_paused),
            can_detect: is_prompt && !muted.iter().any(|muted| muted.detection || muted.heartbeats),
            prompt: is_prompt,
            reachable: muted.map(|muted| !muted.detection && !muted.heartbeats),
            same_version: self.have_same_version(),
            works: self.machines.each_ref().map(|machine| machine.node.is_some() && !machine.is_paused),
        };
        self.checkers.conditions(self.now, conditions);
    }
}

const fn silence(muted: &mut Channels, channels: Channels, is_lost: bool) {
    if channels.detection {
        muted.detection = is_lost;
    }
    if channels.heartbeats {
        muted.heartbeats = is_lost;
    }
    if channels.replication {
        muted.replication = is_lost;
    }
    if channels.paths {
        muted.paths = is_lost;
    }
}

/// The session configuration of a node with this capacity.
fn session(room: Option<Capacity>) -> SessionConfig {
    let usual = SessionConfig::default();
    room.map_or(usual, |room| {
        let in_flight = room.in_flight_messages_max;
        SessionConfig {
            changes_queued_max: room.changes_queued_max,
            deletions_max: room.deletions_max,
            in_flight_messages_max: in_flight,
            resync_in_flight_messages_max: in_flight,
            ack_every_messages: usual.ack_every_messages.min(in_flight / 2),
            ..usual
        }
    })
}
