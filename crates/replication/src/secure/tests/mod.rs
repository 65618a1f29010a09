//! Two channels and a network between them that loses, doubles and delays.

mod certificates;
mod hostile;
mod properties;
mod rotation;
mod scenarios;

use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use flow::{Instant, NodeId, WorkerId};

use super::*;

/// The steps in which time goes on.
const STEP: Duration = Duration::from_millis(1);
/// Some day.
const TODAY: Duration = Duration::from_secs(1_800_000_000);

/// What the network does to a datagram: how often it arrives, and after which time each time.
type Delivery = dyn FnMut() -> Vec<Duration>;

fn key(number: u8) -> PreSharedKey {
    PreSharedKey::new([number; PRE_SHARED_KEY_BYTES])
}

fn credentials(keys: &[u8]) -> Arc<Credentials> {
    Arc::new(Credentials::new(keys.iter().map(|number| key(*number)).collect(), None).unwrap())
}

fn channel(local: u8, credentials: &Arc<Credentials>, rotation: Rotation, seed: u8, now: Instant) -> Channel {
    let config = ChannelConfig { local: NodeId(local), peer: NodeId(1 - local), worker: WorkerId::LEAD, rotation };
    let unix_time = TODAY + now.saturating_since(Instant::ZERO);
    Channel::new(config, Arc::clone(credentials), Seed::new([seed; 32]), now, unix_time)
}

/// Two nodes that send each other a number every step.
struct Pair {
    now: Instant,
    channels: [Channel; 2],
    delivery: Box<Delivery>,
    /// Datagrams in flight, by their arrival, and to whom.
    in_flight: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    sent: u64,
    /// What each node received from the other.
    received: [Vec<u64>; 2],
    /// Numbers sent by each node, from 0 on.
    sent_numbers: [u64; 2],
    errors: Vec<(usize, ChannelError)>,
    /// Every datagram that was ever sent, and to whom.
    recorded: Vec<(usize, Vec<u8>)>,
}

impl Pair {
    fn new(credentials: [Arc<Credentials>; 2], rotation: Rotation) -> Self {
        let now = Instant::from_millis(1);
        let [left, right] = credentials;
        let channels = [channel(0, &left, rotation, 1, now), channel(1, &right, rotation, 2, now)];
        Self {
            now,
            channels,
            delivery: Box::new(|| vec![Duration::ZERO]),
            in_flight: BTreeMap::new(),
            sent: 0,
            received: [Vec::new(), Vec::new()],
            sent_numbers: [0; 2],
            errors: Vec::new(),
            recorded: Vec::new(),
        }
    }

    fn with_keys(left: &[u8], right: &[u8]) -> Self {
        Self::new([credentials(left), credentials(right)], Rotation::default())
    }

    fn are_ready(&self) -> bool {
        self.channels.iter().all(Channel::is_ready)
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    fn run_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let limit = self.now + Duration::from_secs(60);
        while !condition(self) {
            assert!(self.now < limit, "waited too long for {what}: {:?}", self.errors.last());
            self.step();
        }
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        for from in 0..2 {
            self.channels[from].handle_timeout(self.now);
            self.send_next(from);
        }
        self.deliver();
    }

    /// Sends the other node the next number, if there are keys.
    fn send_next(&mut self, from: usize) {
        let mut content = self.sent_numbers[from].to_be_bytes().to_vec();
        let mut datagram = Vec::new();
        if self.channels[from].seal(self.now, Content::Replication, &mut content, &mut datagram) {
            self.sent_numbers[from] += 1;
            self.send(1 - from, datagram);
        }
    }

    fn send(&mut self, to: usize, datagram: Vec<u8>) {
        self.recorded.push((to, datagram.clone()));
        for delay in (self.delivery)() {
            self.sent += 1;
            self.in_flight.insert((self.now + delay, self.sent), (to, datagram.clone()));
        }
    }

    fn deliver(&mut self) {
        let mut datagram = Vec::new();
        loop {
            for from in 0..2 {
                while self.channels[from].poll_transmit(&mut datagram) {
                    self.send(1 - from, datagram.clone());
                }
            }
            let Some(first) = self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now) else { return };
            let (to, datagram) = first.remove();
            self.hand_in(to, &datagram);
        }
    }

    fn hand_in(&mut self, to: usize, datagram: &[u8]) {
        let mut content = Vec::new();
        match self.channels[to].handle_datagram(self.now, datagram, &mut content) {
            Ok(None) => {}
            Ok(Some(kind)) => {
                assert_eq!(kind, Content::Replication);
                self.received[to].push(u64::from_be_bytes(content[..].try_into().unwrap()));
            }
            Err(error) => {
                assert!(content.is_empty(), "nothing of what is refused comes out");
                self.errors.push((to, error));
            }
        }
    }

    /// The node forgets everything, as a process does that is started again.
    fn restart(&mut self, node: u8, credentials: &Arc<Credentials>) {
        let seed = 100 + node + u8::try_from(self.sent % 50).unwrap();
        self.channels[usize::from(node)] = channel(node, credentials, Rotation::default(), seed, self.now);
    }

    fn refused(&self, node: usize, refusal: Refusal) -> u64 {
        self.channels[node].status().refused[refusal as usize]
    }

    fn key_in_use(&self, node: usize) -> Option<KeyId> {
        self.channels[node].status().keys.and_then(|keys| keys.key)
    }
}
