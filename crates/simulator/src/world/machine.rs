//! The machine of a node: its clock, queues, links, and speed.

use std::collections::VecDeque;
use std::time::Duration;

use cluster::node::Node;
use flow::{Instant, PortId};

use crate::clocks::WallClock;
use crate::dialect::Interpreter;
use crate::link::Link;
use crate::random::Random;
use crate::scenario::{Capacity, Channels, Dialect, Scenario};

/// The maximum number of datagrams in a socket's buffer (Linux's default of 212992 bytes, with its overhead for small
/// datagrams); more are lost.
const DATAGRAMS_WAITING_MAX: usize = 256;
/// The maximum number of frames in a port's ring; more are lost.
const FRAMES_WAITING_MAX: usize = 1024;
/// A second of a clock, in thousandths.
const SPEED_PER_MILLE: u64 = 1000;

/// A machine's time: it never runs backwards, but may run faster or slower, and leap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    true_base: Instant,
    own_base: Instant,
    per_mille: u64,
}

impl Clock {
    const fn new() -> Self {
        Self { true_base: Instant::ZERO, own_base: Instant::ZERO, per_mille: SPEED_PER_MILLE }
    }

    /// The clock's time at the true time `now`.
    pub(super) fn own(&self, now: Instant) -> Instant {
        let passed = u128::from(nanos(now.saturating_since(self.true_base))) * u128::from(self.per_mille);
        self.own_base + Duration::from_nanos((passed / u128::from(SPEED_PER_MILLE)) as u64)
    }

    /// The first true time at which the clock reaches `at`.
    fn truly(&self, at: Instant) -> Instant {
        let ahead = u128::from(nanos(at.saturating_since(self.own_base))) * u128::from(SPEED_PER_MILLE);
        self.true_base + Duration::from_nanos(ahead.div_ceil(u128::from(self.per_mille)) as u64)
    }

    pub(super) fn leap(&mut self, now: Instant, by: Duration) {
        *self = Self { true_base: now, own_base: self.own(now) + by, per_mille: self.per_mille };
    }

    pub(super) fn run_at(&mut self, now: Instant, per_mille: u64) {
        *self = Self { true_base: now, own_base: self.own(now), per_mille };
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Received datagrams and frames, in the node's processing order.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) detection: VecDeque<Vec<u8>>,
    pub(super) replication: VecDeque<Vec<u8>>,
    pub(super) frames: VecDeque<(PortId, Vec<u8>)>,
}

impl Inbox {
    pub(super) fn put_datagram(&mut self, is_detection: bool, bytes: Vec<u8>) {
        let queue = if is_detection { &mut self.detection } else { &mut self.replication };
        if queue.len() < DATAGRAMS_WAITING_MAX {
            queue.push_back(bytes);
        }
    }

    pub(super) fn put_frame(&mut self, port: PortId, bytes: Vec<u8>) {
        if self.frames.len() < FRAMES_WAITING_MAX {
            self.frames.push_back((port, bytes));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.detection.is_empty() && self.replication.is_empty() && self.frames.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A node's machine.
pub(super) struct Machine {
    pub(super) node: Option<Node>,
    /// The number of failures of nodes on it.
    pub(super) incarnation: u32,
    pub(super) clock: Clock,
    pub(super) wall_clock: WallClock,
    pub(super) inbox: Inbox,
    /// Whether it is about to process its input.
    pub(super) is_serving: bool,
    /// The time of its next timeout, in true time.
    pub(super) timer_at: Option<Instant>,
    pub(super) is_paused: bool,
    /// The maximum delay of all its actions.
    pub(super) lag: Duration,
    /// Its ports' links and its end of the replication link.
    pub(super) ports: [Link; 2],
    pub(super) replication: Link,
    /// Which of its ports have carrier.
    pub(super) has_carrier: [bool; 2],
    /// Channels on which its datagrams are lost.
    pub(super) muted: Channels,
    pub(super) interpreter: Interpreter,
    /// The protocol of its next node.
    pub(super) next_dialect: Dialect,
    /// The capacity of its next node, if not the default.
    pub(super) room: Option<Capacity>,
    /// Whether its node held the addresses at the last check.
    pub(super) holds: bool,
}

impl Machine {
    pub(super) fn new(scenario: &Scenario, random: &mut Random) -> Self {
        let mut link = |config| Link::new(config, random.fork());
        Self {
            node: None,
            incarnation: 0,
            clock: Clock::new(),
            wall_clock: WallClock::default(),
            inbox: Inbox::default(),
            is_serving: false,
            timer_at: None,
            is_paused: false,
            lag: Duration::ZERO,
            ports: [link(scenario.data_link), link(scenario.data_link)],
            replication: link(scenario.replication_link),
            has_carrier: [true; 2],
            muted: Channels::default(),
            interpreter: Interpreter::default(),
            next_dialect: Dialect::Same,
            room: None,
            holds: false,
        }
    }

    /// Whether it works without delay.
    pub(super) const fn is_prompt(&self) -> bool {
        self.lag.is_zero() && !self.is_paused
    }

    /// When its node's next timeout is due, in true time.
    pub(super) fn due(&self) -> Option<Instant> {
        self.node.as_ref().and_then(Node::poll_timeout).map(|at| self.clock.truly(at))
    }

    /// Its node is gone, with all pending input.
    pub(super) fn stop(&mut self) {
        self.node = None;
        self.incarnation += 1;
        self.inbox.clear();
        self.timer_at = None;
        self.is_paused = false;
        self.holds = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_clock_reaches_a_time_when_it_predicts() {
        let mut clock = Clock::new();
        let at = Instant::from_millis;
        assert_eq!((clock.own(at(7)), clock.truly(at(7))), (at(7), at(7)));
        clock.run_at(at(100), 900);
        assert_eq!(clock.own(at(1100)), at(1000));
        for nanos in [123_456_789, 1_000_000_001, 7_777_777_777] {
            let shown = Instant::from_nanos(nanos);
            assert!(clock.own(clock.truly(shown)) >= shown);
        }
        clock.leap(at(1100), Duration::from_secs(5));
        assert_eq!(clock.own(at(1100)), at(6000));
        assert_eq!(clock.truly(at(3000)), at(1100), "what is past is due now");
    }
}
