//! The path, the receiver and the edge, and the order of events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::config::{FailoverConfig, Flow, Kind, RecoveryPolicy};
use super::super::model::Model;
use super::sender::{Ack, Action, Sender, Transmission};

/// Nanoseconds since the first SYN.
pub(super) type Nanos = u64;

/// An outage of the path at the receiver's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    /// When it begins, in seconds since the first SYN.
    pub(super) from_s: f64,
    /// When it ends.
    pub(super) until_s: f64,
    /// What the edge resends then.
    pub(super) recovery: Option<RecoveryPolicy>,
}

/// What came of a flow.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Run {
    /// When the packet reached the cut that an outage is to block first, in seconds.
    pub(super) interrupted_at_s: f64,
    /// From the end of the outage to the first packet that passed, in seconds.
    pub(super) stall_s: f64,
    /// When the last segment was acknowledged, in seconds.
    pub(super) completion_s: f64,
}

/// What happens at a time. The order of the variants decides between events of one time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Restored,
    Timer(u64),
    SynArrives,
    DataArrives(Transmission),
    SynAckAtSender,
    AckAtSender(Ack),
}

pub(super) fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9).round() as Nanos
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

/// Runs a flow to its end.
pub(super) fn run(model: &Model, config: &FailoverConfig, kind: Kind, seed: u64, outage: Option<Outage>) -> Run {
    let mut path = Path::new(model, config, kind, seed, outage);
    while let Some(Reverse((now, _, event))) = path.events.pop() {
        path.now = now;
        if path.handle(event) {
            break;
        }
    }
    path.run.completion_s = seconds(path.now);
    path.run
}

struct Path<'a> {
    config: &'a FailoverConfig,
    kind: Kind,
    sender: Sender<'a>,
    one_way: Nanos,
    /// Delivered segments that precede the interruption.
    delivered_before: u32,
    outage: Option<(Nanos, Nanos)>,
    recovery: Option<RecoveryPolicy>,
    random: SmallRng,
    now: Nanos,
    order: u64,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    /// By segment, whether the receiver has it; all below `next_expected` are there.
    received: Vec<bool>,
    next_expected: u32,
    count_received: u32,
    /// What the edge could not pass on, by segment.
    held: BTreeMap<u32, Transmission>,
    holds_syn: bool,
    is_interrupted: bool,
    has_resumed: bool,
    run: Run,
}

impl<'a> Path<'a> {
    fn new(model: &'a Model, config: &'a FailoverConfig, kind: Kind, seed: u64, outage: Option<Outage>) -> Self {
        let Flow { segments, delivered, rtt_s } = config.flow(kind);
        let mut path = Self {
            config,
            kind,
            sender: Sender::new(model.schedule(kind), config, segments, nanos(rtt_s)),
            one_way: nanos(rtt_s / 2.0),
            delivered_before: delivered,
            outage: outage.map(|outage| (nanos(outage.from_s), nanos(outage.until_s))),
            recovery: outage.and_then(|outage| outage.recovery),
            random: SmallRng::seed_from_u64(seed),
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            received: vec![false; segments as usize],
            next_expected: 0,
            count_received: 0,
            held: BTreeMap::new(),
            holds_syn: false,
            is_interrupted: false,
            has_resumed: false,
            run: Run::default(),
        };
        if let Some((_, until)) = path.outage {
            path.at(until + nanos(config.local_recovery_s), Event::Restored);
        }
        let actions = path.sender.connect();
        path.perform(actions);
        path
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    /// Handles an event; true once the flow is complete.
    fn handle(&mut self, event: Event) -> bool {
        match event {
            Event::Restored => self.resend(),
            Event::Timer(generation) => {
                let actions = self.sender.handle_timer(self.now, generation);
                self.perform(actions);
            }
            Event::SynArrives => {
                self.note_interruption(self.kind.is_handshake());
                if self.blocks() {
                    self.holds_syn = true;
                } else {
                    self.answer_syn();
                }
            }
            Event::DataArrives(data) => {
                let is_beyond = !self.kind.is_handshake() && self.count_received >= self.delivered_before;
                self.note_interruption(is_beyond);
                if self.blocks() {
                    self.held.insert(data.segment, data);
                } else {
                    self.receive(data);
                }
            }
            Event::SynAckAtSender => {
                let actions = self.sender.handle_syn_ack(self.now);
                self.perform(actions);
            }
            Event::AckAtSender(ack) => {
                let actions = self.sender.handle_ack(self.now, ack);
                self.perform(actions);
            }
        }
        self.sender.is_complete()
    }

    /// Marks the time at which the packet arrives that an outage is to block first.
    fn note_interruption(&mut self, is_it: bool) {
        if is_it && self.run.interrupted_at_s == 0.0 {
            self.run.interrupted_at_s = seconds(self.now);
        }
    }

    /// Whether the outage blocks a packet now; the first that passes afterwards ends the stall.
    fn blocks(&mut self) -> bool {
        let Some((from, until)) = self.outage else { return false };
        if (from..until).contains(&self.now) {
            self.is_interrupted = true;
            return true;
        }
        self.note_passing(until);
        false
    }

    fn note_passing(&mut self, until: Nanos) {
        if self.is_interrupted && !self.has_resumed && self.now >= until {
            self.has_resumed = true;
            self.run.stall_s = seconds(self.now - until);
        }
    }

    /// The edge resends what it kept.
    fn resend(&mut self) {
        let Some(policy) = self.recovery else { return };
        let Some((_, until)) = self.outage else { return };
        if std::mem::take(&mut self.holds_syn) {
            self.note_passing(until);
            self.answer_syn();
        }
        let kept = match policy {
            RecoveryPolicy::All => usize::MAX,
            RecoveryPolicy::Lowest => 1,
        };
        for data in std::mem::take(&mut self.held).into_values().take(kept) {
            self.note_passing(until);
            self.receive(data);
        }
    }

    fn answer_syn(&mut self) {
        self.at(self.now + self.one_way, Event::SynAckAtSender);
    }

    fn receive(&mut self, data: Transmission) {
        let is_first = self.count_received == 0;
        if !std::mem::replace(&mut self.received[data.segment as usize], true) {
            self.count_received += 1;
        }
        let missing = self.received[self.next_expected as usize..].iter().position(|is_there| !is_there);
        self.next_expected = missing.map_or(self.received.len() as u32, |more| self.next_expected + more as u32);
        let is_alone = is_first && self.config.initial_window == 1;
        let delay = if is_alone { nanos(self.config.delayed_ack_s) } else { 0 };
        let ack = Ack { next_expected: self.next_expected, data };
        self.at(self.now + delay + self.one_way, Event::AckAtSender(ack));
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Syn if self.random.random_bool(self.config.syn_loss) => (),
                Action::Syn => self.at(self.now + self.one_way, Event::SynArrives),
                Action::Data(_) if self.random.random_bool(self.config.loss) => (),
                Action::Data(data) => self.at(self.now + self.one_way, Event::DataArrives(data)),
                Action::Timer { after, generation } => self.at(self.now + after, Event::Timer(generation)),
            }
        }
    }
}
