//! The run: nodes, hosts and links, advanced from event to event.

mod ending;
mod faults;
mod machine;
mod network;
mod serving;

use flow::Instant;

use self::machine::Machine;
use crate::checkers::{Checkers, View};
use crate::host::Host;
use crate::link::Link;
use crate::options::Options;
use crate::random::Random;
use crate::report::Outcome;
use crate::scenario::{Fault, Scenario};
use crate::schedule::{Event, Schedule};
use crate::topology::{self, HOSTS, NODES};
use crate::trace::{Trace, describe, fingerprint};

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    options: Options,
    now: Instant,
    schedule: Schedule,
    random: Random,
    machines: [Machine; NODES],
    hosts: Vec<Host>,
    host_links: Vec<Link>,
    host_timers: [Option<Instant>; HOSTS],
    trace: Trace,
    checkers: Checkers,
    outcome: Outcome,
    /// The schedule of faults.
    faults: Vec<(Instant, Fault)>,
    is_calm: bool,
    buffer: Vec<u8>,
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario, options: Options) -> Self {
        let mut random = Random::new(scenario.seed ^ 0x5eed);
        let machines = std::array::from_fn(|_| Machine::new(scenario, &mut random));
        let mut link = |config| Link::new(config, random.fork());
        let host_links = (0..HOSTS).map(|_| link(scenario.data_link)).collect();
        let hosts = (0..HOSTS).map(|host| Host::new(topology::host_config(host), random.fork())).collect();
        Self {
            scenario,
            options,
            now: Instant::ZERO,
            schedule: Schedule::default(),
            random,
            machines,
            hosts,
            host_links,
            host_timers: [None; HOSTS],
            trace: Trace::new(options.trace),
            checkers: Checkers::new(scenario),
            outcome: Outcome::new(scenario),
            faults: scenario.schedule(),
            is_calm: false,
            buffer: Vec::new(),
        }
    }

    /// Runs to the end.
    pub(crate) fn run(mut self) -> Outcome {
        for node in 0..NODES {
            self.start(node);
        }
        for (index, transfer) in self.scenario.transfers.iter().enumerate() {
            self.schedule.add(transfer.begins_at, Event::Begin { transfer: index });
        }
        for (index, (at, _)) in self.faults.iter().enumerate() {
            self.schedule.add(*at, Event::Fault { index });
        }
        self.schedule.add(self.scenario.calm_at, Event::Calm);
        self.run_until(self.scenario.ends_at, |world| world.is_calm && world.is_done());
        self.compare_replicas();
        self.corrupt_and_compare();
        if self.options.expects_no_zombies {
            self.find_zombies();
        }
        // A node of another version cannot report an end: its replicas stay until they expire.
        if self.scenario.waits_for_expiry && self.outcome.is_sound() && self.have_same_version() {
            self.wait_for_expiry();
        }
        self.finish()
    }

    fn is_done(&self) -> bool {
        self.checkers.survival.is_done(&self.scenario.transfers, &self.hosts)
    }

    fn run_until(&mut self, end: Instant, is_over: impl Fn(&Self) -> bool) {
        let mut since_checked = 0;
        while let Some((at, event)) = self.schedule.next() {
            if at > end {
                self.schedule.add(at, event);
                self.now = end;
                return;
            }
            self.now = at;
            self.outcome.events += 1;
            self.handle(event);
            since_checked += 1;
            if since_checked >= 256 {
                since_checked = 0;
                if is_over(self) {
                    return;
                }
            }
            if self.outcome.problems.len() >= crate::report::PROBLEMS_MAX {
                return;
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::HostFrame { host, mut bytes } => {
                if self.host_links[host].is_down {
                    return;
                }
                self.trace.note(self.now, fingerprint(&bytes), || format!("host {host} gets {}", describe(&bytes)));
                let mut out = Vec::new();
                self.hosts[host].handle_frame(self.now, &mut bytes, &mut out);
                self.hosts[host].recognise(self.now, &self.scenario.transfers, &mut out);
                self.send_from_host(host, out);
            }
            Event::HostTimer { host } => {
                if self.host_timers[host] == Some(self.now) {
                    self.host_timers[host] = None;
                    let mut out = Vec::new();
                    self.hosts[host].handle_timeout(self.now, &mut out);
                    self.send_from_host(host, out);
                }
            }
            Event::Begin { transfer } => {
                let transfer = self.scenario.transfers[transfer].clone();
                let host = transfer.client;
                self.trace.note(self.now, transfer.number.into(), || format!("begins: {transfer:?}"));
                let mut out = Vec::new();
                self.hosts[host].begin(self.now, transfer, &mut out);
                self.send_from_host(host, out);
            }
            Event::NodeFrame { node, port, bytes } => self.queue_for_node(node, port, bytes),
            Event::NodeServe { node } => self.serve(node),
            Event::NodeTimer { node } => self.handle_timer(node),
            Event::Datagram { node, is_detection, bytes } => self.queue_datagram(node, is_detection, bytes),
            Event::Fault { index } => self.interfere(self.faults[index].1),
            Event::Drained => self.note_conditions(),
            Event::Calm => self.calm(),
        }
    }
}

/// The state that checkers may inspect.
fn view<'a>(scenario: &'a Scenario, hosts: &'a [Host], machines: &'a [Machine; NODES]) -> View<'a> {
    View { scenario, hosts, nodes: machines.each_ref().map(|machine| &machine.node) }
}
