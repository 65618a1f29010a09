//! The run itself: nodes, hosts and links, moved on from event to event.

mod faults;

use std::collections::VecDeque;
use std::time::Duration;

use cluster::node::{Node, Transmit};
use flow::wire;
use flow::wire::ethernet::EthernetView;
use flow::{Disposition, Frame, Instant, NodeId, PacketBatch, PortId};

use crate::checkers::{Checkers, View};
use crate::host::Host;
use crate::link::Link;
use crate::random::Random;
use crate::report::{Outcome, Problem};
use crate::scenario::Scenario;
use crate::schedule::{Event, Schedule};
use crate::topology::{self, HOSTS, NODES, Side};
use crate::trace::{Trace, describe, fingerprint};
use crate::{Options, Sabotage, sabotage};

/// How often a node may ask to be woken at once, before it is held to turn in circles.
const TURNS_MAX: u32 = 200;
/// What a failure detector must see on its packets (RFC 5881 section 5).
const DETECTION_TTL: u8 = 255;
/// Up to so long after a frame came, a node takes it together with those that came meanwhile.
const SERVICE_DELAY_NANOS_MAX: u64 = 30_000;
/// How often the replicas are compared when all is done, and for how long before they are held to differ.
const COMPARISON_INTERVAL: Duration = Duration::from_millis(20);
const COMPARISONS_MAX: u32 = 250;
/// What is wrong with copies is found and put right within this time.
const REPAIR_WAIT: Duration = Duration::from_secs(10);
/// Longer than connections that have ended stay in the tables.
const EXPIRY_WAIT: Duration = Duration::from_secs(100);

/// A node's machine.
struct Machine {
    node: Option<Node>,
    incarnation: u32,
    waiting: VecDeque<(PortId, Vec<u8>)>,
    is_serving: bool,
    timer_at: Option<Instant>,
    /// Its ports' links and its end of the replication link.
    ports: [Link; 2],
    replication: Link,
}

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
    is_calm: bool,
    buffer: Vec<u8>,
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario, options: Options) -> Self {
        let mut random = Random::new(scenario.seed ^ 0x5eed);
        let mut link = |config| Link::new(config, random.fork());
        let machines = std::array::from_fn(|_| Machine {
            node: None,
            incarnation: 0,
            waiting: VecDeque::new(),
            is_serving: false,
            timer_at: None,
            ports: [link(scenario.data_link), link(scenario.data_link)],
            replication: link(scenario.replication_link),
        });
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
            checkers: Checkers::new(),
            outcome: Outcome::new(scenario.seed),
            is_calm: false,
            buffer: Vec::new(),
        }
    }

    /// Runs to the end.
    pub(crate) fn run(mut self) -> Outcome {
        for node in 0..NODES {
            self.start(node);
        }
        for (index, conversation) in self.scenario.conversations.iter().enumerate() {
            self.schedule.add(conversation.begins_at, Event::Begin { conversation: index });
        }
        for (index, (at, _)) in self.scenario.faults.iter().enumerate() {
            self.schedule.add(*at, Event::Fault { index });
        }
        self.run_until(self.scenario.ends_at, |world| world.is_calm && world.is_done());
        self.compare_replicas();
        self.break_and_compare();
        if self.scenario.waits_for_expiry && self.outcome.is_sound() {
            self.wait_for_expiry();
        }
        self.finish()
    }

    fn is_done(&self) -> bool {
        self.checkers.survival.is_done(&self.scenario.conversations, &self.hosts)
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
                if self.host_links[host].is_cut {
                    return;
                }
                self.trace.note(self.now, fingerprint(&bytes), || format!("host {host} gets {}", describe(&bytes)));
                let mut out = Vec::new();
                self.hosts[host].handle_frame(self.now, &mut bytes, &mut out);
                self.hosts[host].recognise(self.now, &self.scenario.conversations, &mut out);
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
            Event::Begin { conversation } => {
                let conversation = self.scenario.conversations[conversation].clone();
                let host = conversation.client;
                self.trace.note(self.now, conversation.number.into(), || format!("begins: {conversation:?}"));
                let mut out = Vec::new();
                self.hosts[host].begin(self.now, conversation, &mut out);
                self.send_from_host(host, out);
            }
            Event::NodeFrame { node, port, bytes } => self.queue_for_node(node, port, bytes),
            Event::NodeServe { node } => self.serve(node),
            Event::NodeTimer { node } => {
                if self.machines[node].timer_at == Some(self.now) {
                    self.machines[node].timer_at = None;
                    self.settle(node);
                }
            }
            Event::Datagram { node, is_detection, bytes } => self.deliver_datagram(node, is_detection, &bytes),
            Event::Fault { index } => self.interfere(self.scenario.faults[index].1),
        }
    }

    fn queue_for_node(&mut self, node: usize, port: PortId, bytes: Vec<u8>) {
        let machine = &mut self.machines[node];
        if machine.node.is_none() || machine.ports[usize::from(port.0)].is_cut {
            return;
        }
        machine.waiting.push_back((port, bytes));
        if !machine.is_serving {
            machine.is_serving = true;
            let delay = Duration::from_nanos(self.random.between(0, SERVICE_DELAY_NANOS_MAX));
            self.schedule.add(self.now + delay, Event::NodeServe { node });
        }
    }

    /// A node takes what has come, a batch at a time, and what it sends goes out: datagrams to the peer first.
    fn serve(&mut self, node: usize) {
        self.machines[node].is_serving = false;
        let mut frames: Vec<_> = self.machines[node].waiting.drain(..).collect();
        for part in frames.chunks_mut(flow::BATCH_FRAMES_MAX) {
            let Some(value) = &mut self.machines[node].node else { return };
            let mut batch = PacketBatch::new();
            for (port, bytes) in part.iter_mut() {
                let length_bytes = bytes.len();
                batch.extend(Frame::new(bytes, 0, length_bytes, *port));
            }
            value.handle_packets(self.now, &mut batch);
            let sent: Vec<_> = batch.iter().map(|frame| (frame.disposition, frame.bytes().to_vec())).collect();
            self.poll_node(node);
            for (disposition, bytes) in sent {
                let line = || format!("node {node} {disposition:?}: {}", describe(&bytes));
                self.trace.note(self.now, fingerprint(&bytes), line);
                if let Disposition::Transmit(port) = disposition {
                    self.send_from_node(node, port, bytes);
                }
            }
        }
        self.settle(node);
    }

    fn deliver_datagram(&mut self, node: usize, is_detection: bool, bytes: &[u8]) {
        let machine = &mut self.machines[node];
        let Some(value) = &mut machine.node else { return };
        if machine.replication.is_cut {
            return;
        }
        if !is_detection {
            self.checkers.before_datagram(node, value);
        }
        let from = NodeId(1 - node as u8);
        let result = if is_detection {
            value.handle_detection(self.now, from, bytes, DETECTION_TTL)
        } else {
            value.handle_replication(self.now, from, bytes)
        };
        let what = fingerprint(bytes);
        self.trace.note(self.now, what, || {
            let channel = if is_detection { "detection" } else { "replication" };
            format!("node {node} gets {} bytes of {channel}: {result:?}", bytes.len())
        });
        if !is_detection {
            if self.options.sabotage == Some(Sabotage::StaleUpdates)
                && let Some(value) = &mut self.machines[node].node
            {
                sabotage::apply_stale_copy(node, value, &self.checkers.order, self.now);
            }
            self.checkers.after_datagram(self.now, node, &self.machines[node].node, &mut self.outcome);
        }
        self.settle(node);
    }

    /// Lets a node do all that is due, sends what it has to send, and sets its next timer.
    fn settle(&mut self, node: usize) {
        // What is due goes before what is to be sent, as in the daemon.
        if let Some(value) = &mut self.machines[node].node
            && value.poll_timeout().is_some_and(|at| at <= self.now)
        {
            value.handle_timeout(self.now);
        }
        self.poll_node(node);
        let mut turns = 0;
        loop {
            let Some(value) = &mut self.machines[node].node else { return };
            let due = value.poll_timeout();
            let Some(at) = due.filter(|at| *at <= self.now) else { break };
            value.handle_timeout(self.now);
            self.poll_node(node);
            turns += 1;
            if turns > TURNS_MAX {
                let problem = format!("node {node} asks to be woken at {at:?} again and again");
                self.outcome.problem(self.now, Problem::Spinning, problem);
                self.machines[node].node = None;
                return;
            }
        }
        let machine = &mut self.machines[node];
        let due = machine.node.as_ref().and_then(Node::poll_timeout);
        if let Some(at) = due.filter(|at| machine.timer_at.is_none_or(|set| *at < set)) {
            machine.timer_at = Some(at);
            self.schedule.add(at, Event::NodeTimer { node });
        }
        self.checkers.after_step(self.now, node, &self.machines[node].node, &mut self.outcome);
    }

    fn poll_node(&mut self, node: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(value) = &mut self.machines[node].node
            && let Some(transmit) = value.poll_transmit(self.now, &mut buffer)
        {
            match transmit {
                Transmit::Port { port, .. } => {
                    let line = || format!("node {node} sends of its own: {}", describe(&buffer));
                    self.trace.note(self.now, fingerprint(&buffer), line);
                    self.send_from_node(node, port, buffer.clone());
                }
                Transmit::Replication(_) => self.send_datagram(node, false, &buffer),
                Transmit::Detection(_) => self.send_datagram(node, true, &buffer),
            }
        }
        self.buffer = buffer;
        while let Some((_, event)) = self.machines[node].node.as_mut().and_then(Node::poll_event) {
            self.outcome.count(event);
            self.trace
                .note(self.now, fingerprint(format!("{event:?}").as_bytes()), || format!("node {node}: {event:?}"));
        }
    }

    fn send_datagram(&mut self, node: usize, is_detection: bool, bytes: &[u8]) {
        if self.options.sabotage == Some(Sabotage::DeafNodes) {
            return;
        }
        let link = &mut self.machines[node].replication;
        for arrival in link.carry(self.now) {
            let mut bytes = bytes.to_vec();
            if arrival.is_corrupt && !self.scenario.damaged_datagrams_pass {
                self.outcome.datagrams_lost += 1;
                continue;
            }
            if arrival.is_corrupt {
                link.corrupt(&mut bytes, 0);
            }
            let event = Event::Datagram { node: 1 - node, is_detection, bytes };
            self.schedule.add(arrival.at, event);
        }
    }

    fn send_from_node(&mut self, node: usize, port: PortId, mut bytes: Vec<u8>) {
        if self.options.sabotage == Some(Sabotage::SwappedBytes) {
            sabotage::swap_bytes(&mut bytes);
        }
        let mut copy = bytes.clone();
        let length_bytes = copy.len();
        if Frame::new(&mut copy, 0, length_bytes, port).is_none_or(|frame| wire::parse(&frame).is_err()) {
            let text = format!("node {node} sends a frame that cannot be read: {}", describe(&bytes));
            self.outcome.problem(self.now, Problem::MalformedFrame, text);
        }
        let side = Side::of_port(port);
        let arrivals: Vec<_> = self.machines[node].ports[usize::from(port.0)].carry(self.now).collect();
        for arrival in arrivals {
            let mut bytes = bytes.clone();
            if arrival.is_corrupt {
                corrupt_frame(&mut self.machines[node].ports[usize::from(port.0)], &mut bytes);
            }
            self.carry(side, None, Some(node), arrival.at, bytes);
        }
    }

    fn send_from_host(&mut self, host: usize, frames: Vec<Vec<u8>>) {
        for frame in frames {
            let arrivals: Vec<_> = self.host_links[host].carry(self.now).collect();
            for arrival in arrivals {
                let mut bytes = frame.clone();
                if arrival.is_corrupt {
                    corrupt_frame(&mut self.host_links[host], &mut bytes);
                }
                self.carry(Side::of_host(host), Some(host), None, arrival.at, bytes);
            }
        }
        let due = self.hosts[host].poll_timeout(self.now).map(|at| at.max(self.now));
        if let Some(at) = due.filter(|at| self.host_timers[host].is_none_or(|set| *at < set)) {
            self.host_timers[host] = Some(at);
            self.schedule.add(at, Event::HostTimer { host });
        }
    }

    /// The link's switch: to whom a frame is addressed, or to everybody but its sender.
    fn carry(&mut self, side: Side, from_host: Option<usize>, from_node: Option<usize>, at: Instant, bytes: Vec<u8>) {
        let Ok(link) = EthernetView::new_checked(&bytes) else { return };
        let (to, to_all) = (link.destination(), link.destination().is_group());
        for host in (0..HOSTS).filter(|host| Side::of_host(*host) == side && Some(*host) != from_host) {
            if to_all || to == topology::host_mac(host) {
                self.schedule.add(at, Event::HostFrame { host, bytes: bytes.clone() });
            }
        }
        for node in (0..NODES).filter(|node| Some(*node) != from_node) {
            if to_all || to == topology::node_mac(node, side) {
                self.schedule.add(at, Event::NodeFrame { node, port: side.port(), bytes: bytes.clone() });
            }
        }
    }

    /// Once nothing more happens, the two tables must come to say the same.
    fn compare_replicas(&mut self) {
        if self.machines.iter().any(|machine| machine.node.is_none()) {
            return;
        }
        let mut difference = None;
        for _ in 0..COMPARISONS_MAX {
            let end = self.now + COMPARISON_INTERVAL;
            self.run_until(end, |_| false);
            if self.options.sabotage == Some(Sabotage::ForgottenCopies)
                && let Some(value) = &mut self.machines[0].node
            {
                sabotage::forget_copy(value);
            }
            let [one, other] = &self.machines;
            let (Some(one), Some(other)) = (&one.node, &other.node) else { return };
            difference = crate::checkers::replicas::difference(self.scenario.selection, one, other);
            if difference.is_none() {
                return;
            }
        }
        if let Some(text) = difference {
            self.outcome.problem(self.now, Problem::ReplicasDiffer, text);
        }
    }

    /// Copies broken behind the nodes' backs are put right.
    fn break_and_compare(&mut self) {
        let Some(sabotage) = self.options.sabotage.filter(|sabotage| sabotage.is_to_be_repaired()) else { return };
        if !self.outcome.is_sound() {
            return;
        }
        for (node, machine) in self.machines.iter_mut().enumerate() {
            if let Some(value) = &mut machine.node {
                let node = NodeId(node as u8);
                self.outcome.copies_broken += sabotage::break_copies(node, value, sabotage, self.now);
            }
        }
        self.run_until(self.now + REPAIR_WAIT, |_| false);
        self.compare_replicas();
    }

    /// Long after the last packet nothing that has ended may be left, and the tables must still agree.
    fn wait_for_expiry(&mut self) {
        self.run_until(self.now + EXPIRY_WAIT, |_| false);
        for node in 0..NODES {
            if let Some(text) = self.machines[node].node.as_ref().and_then(crate::checkers::replicas::leaked) {
                self.outcome.problem(self.now, Problem::Leaked, format!("node {node}: {text}"));
            }
        }
        self.compare_replicas();
    }

    fn finish(mut self) -> Outcome {
        let view = view(self.scenario, &self.hosts, &self.machines);
        self.checkers.finish(self.now, &view, &mut self.outcome);
        for machine in &self.machines {
            let Some(node) = &machine.node else { continue };
            for session in node.status(self.now).peers.into_iter().filter_map(|peer| peer.session) {
                self.outcome.messages_lost += session.lost;
                self.outcome.copies_differing += session.agreement.divergent_found;
                self.outcome.copies_repaired += session.agreement.repaired + session.agreement.ghosts_removed;
            }
        }
        self.outcome.simulated = self.now.saturating_since(Instant::ZERO);
        self.outcome.digest = self.trace.digest();
        self.outcome.trace = self.trace.into_lines();
        self.outcome
    }
}

/// What checkers may look at.
fn view<'a>(scenario: &'a Scenario, hosts: &'a [Host], machines: &'a [Machine; NODES]) -> View<'a> {
    View { scenario, hosts, nodes: machines.each_ref().map(|machine| &machine.node) }
}

/// Changes a byte behind the link header. Ethernet's own checksum finds what happens on a wire; what happens within a
/// switch or a host is for the checksums above, and ARP has none.
fn corrupt_frame(link: &mut Link, bytes: &mut [u8]) {
    let is_arp =
        EthernetView::new_checked(bytes).is_ok_and(|view| view.ether_type() == wire::ethernet::ether_type::ARP);
    if !is_arp {
        link.corrupt(bytes, wire::ethernet::ETHERNET_HEADER_BYTES);
    }
}
