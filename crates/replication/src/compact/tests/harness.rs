//! A node that sends its filter, one that receives it, and the network between them.

use core::time::Duration;
use std::collections::BTreeMap;
use std::vec::Vec;

use flow::conntrack::TcpState;
use flow::random::SplitMix64;
use flow::{Instant, NodeId, Tuple};

use crate::compact::{
    Addressee, CellState, CompactConfig, CompactError, CompactReceiver, CompactSender, ReceiverLimits, Representation,
    addressee,
};

/// The node that receives.
pub(super) const PEER: NodeId = NodeId(1);

/// What the network does to datagrams, in thousandths, and how long one is in flight.
#[derive(Clone, Copy)]
pub(super) struct Weather {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
}

pub(super) const FAIR: Weather =
    Weather { lost: 0, doubled: 0, delay: Duration::from_micros(200), jitter: Duration::ZERO };
pub(super) const FOUL: Weather =
    Weather { lost: 200, doubled: 100, delay: Duration::from_millis(1), jitter: Duration::from_millis(8) };

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) sender: CompactSender,
    pub(super) receiver: CompactReceiver,
    /// The sender's connections as they are.
    pub(super) connections: BTreeMap<Tuple, CellState>,
    pub(super) weather: Weather,
    pub(super) in_flight: Vec<(Instant, Vec<u8>)>,
    random: SplitMix64,
    errors: Vec<CompactError>,
}

/// The connection with this number.
pub(super) fn tuple(number: u32) -> Tuple {
    let [a, b, c, d] = number.to_be_bytes();
    Tuple::v4(6, ([10, b, c, d].into(), 1024 + u16::from(a)), ([192, 0, 2, d % 7].into(), 443))
}

pub(super) fn tcp(state: TcpState) -> CellState {
    let replied = if state == TcpState::SynSent { 0 } else { 0x10 };
    CellState::from_number(state as u8 | replied)
}

pub(super) fn config(representation: Representation, items_max: u64) -> CompactConfig {
    CompactConfig::new(representation, items_max, [1, 2])
}

impl Pair {
    pub(super) fn new(config: CompactConfig, weather: Weather) -> Self {
        Self {
            now: Instant::from_millis(1),
            sender: CompactSender::new(config, &[PEER]).expect("a configuration that is sound"),
            receiver: CompactReceiver::new(ReceiverLimits::default(), 77),
            connections: BTreeMap::new(),
            weather,
            in_flight: Vec::new(),
            random: SplitMix64::new(5),
            errors: Vec::new(),
        }
    }

    /// A connection is in this state from now on.
    pub(super) fn set(&mut self, number: u32, state: CellState) {
        let tuple = tuple(number);
        match self.connections.insert(tuple, state) {
            Some(before) => self.sender.modify(&tuple, before, state),
            None => self.sender.insert(&tuple, state),
        }
    }

    /// A connection ends, if there is one.
    pub(super) fn end(&mut self, number: u32) {
        let tuple = tuple(number);
        if let Some(state) = self.connections.remove(&tuple) {
            self.sender.remove(&tuple, state);
        }
    }

    /// The sender's node is started anew, and begins with its connections.
    pub(super) fn restart_sender(&mut self) {
        let secret = [self.random.next(), self.random.next()];
        let config = CompactConfig { secret, ..*self.sender.config() };
        self.sender = CompactSender::new(config, &[PEER]).expect("it was sound before");
        self.connections.iter().for_each(|(tuple, state)| self.sender.insert(tuple, *state));
    }

    pub(super) fn restart_receiver(&mut self) {
        self.receiver = CompactReceiver::new(ReceiverLimits::default(), self.random.next());
    }

    /// Time passes, in steps of half a millisecond.
    pub(super) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.step();
        }
    }

    pub(super) fn step(&mut self) {
        self.now = self.now + Duration::from_micros(500);
        self.act();
    }

    /// Time passes until the next deadline or arrival.
    pub(super) fn leap(&mut self) {
        let timers = [self.sender.poll_timeout(), self.receiver.poll_timeout()].into_iter().flatten();
        let arrivals = self.in_flight.iter().map(|(at, _)| *at);
        self.now = timers.chain(arrivals).min().expect("somebody always waits for something").max(self.now);
        self.act();
    }

    fn act(&mut self) {
        let mut arrived: Vec<_> = self.in_flight.extract_if(.., |(at, _)| *at <= self.now).collect();
        arrived.sort_by_key(|(at, _)| *at);
        for (_, datagram) in arrived {
            let result = match addressee(&datagram).expect("it is one of a compact stream") {
                Addressee::Sender => self.sender.handle_datagram(self.now, PEER, &datagram),
                Addressee::Receiver => self.receiver.handle_datagram(self.now, &datagram),
            };
            self.errors.extend(result.err());
        }
        self.sender.handle_timeout(self.now);
        let mut datagram = Vec::new();
        for _ in 0..1000 {
            if !self.sender.poll_transmit(self.now, PEER, &mut datagram) {
                break;
            }
            assert!(datagram.len() <= self.sender.config().datagram_bytes_max);
            self.send(&datagram);
        }
        assert!(!self.sender.poll_transmit(self.now, PEER, &mut datagram), "it always has something more to send");
        while self.receiver.poll_transmit(self.now, &mut datagram) {
            self.send(&datagram);
        }
        for at in [self.sender.poll_timeout(), self.receiver.poll_timeout()].into_iter().flatten() {
            assert!(at > self.now, "it asks for what it has just been given");
        }
    }

    fn send(&mut self, datagram: &[u8]) {
        if self.random.next() % 1000 < self.weather.lost {
            return;
        }
        let copies = 1 + u32::from(self.random.next() % 1000 < self.weather.doubled);
        for _ in 0..copies {
            let jitter = self.random.next() % (self.weather.jitter.as_nanos() as u64 + 1);
            let at = self.now + self.weather.delay + Duration::from_nanos(jitter);
            self.in_flight.push((at, datagram.to_vec()));
        }
    }

    /// Whether the receiver has what the sender has, word by word.
    pub(super) fn is_equal(&self) -> bool {
        let current = self.receiver.current.as_ref().filter(|_| self.receiver.is_complete());
        current.is_some_and(|current| current.held.memory().words() == self.sender.source.memory().words())
    }

    /// Time passes until both have the same, which must be within this time. Returns how long it took.
    pub(super) fn until_equal(&mut self, within: Duration) -> Duration {
        let begin = self.now;
        while !self.is_equal() {
            let passed = self.now.saturating_since(begin);
            assert!(
                passed < within,
                "not equal within {within:?}: {:?}",
                (self.sender.status(), self.receiver.status())
            );
            self.step();
        }
        self.now.saturating_since(begin)
    }

    /// No error was recorded.
    pub(super) fn assert_no_errors(&self) {
        assert_eq!(self.errors, []);
    }
}
