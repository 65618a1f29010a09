//! One direction of a link: which packets it carries, and when each arrives. Pure: time is an argument.
//!
//! ```text
//!            ┌─ queue ─┐ ┌─ transmitter ─┐ ┌──────────── the way ───────────┐
//! packet ──► │ tail    ├►│ length / rate ├►│ lost?  twice?  delay + jitter, ├──► due
//!            │ dropped │ └───────────────┘ │ in order unless held up        │
//!            └─────────┘                   └────────────────────────────────┘
//! ```
//!
//! A packet is lost behind the transmitter, as on a wire: it takes its time of the rate all the same. A copy is made there
//! too, and takes none. An outage loses what is given to the link while it lasts, and what was underway when it began.

mod settings;
mod underway;

use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use flow::Instant;
use serde::{Deserialize, Serialize};
use simulator::random::Random;

use underway::Underway;

pub use settings::{Change, Settings};

/// Bytes that may be underway in a direction, at most, whatever its settings: more would take the machine's memory. What
/// goes beyond is dropped and counted.
pub const UNDERWAY_BYTES_MAX: u64 = 256 << 20;
/// Outages that may be scheduled or in progress; further ones are refused.
pub const OUTAGES_MAX: usize = 64;

/// Steps that a chance is drawn in: those that a double distinguishes below 1.
const CHANCE_STEPS: f64 = (1_u64 << 53) as f64;

/// What became of the packets that were given to a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Given to it.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Arrived, copies included.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost in outages of the link.
    pub cut: u64,
    /// Dropped because the queue was full.
    pub queue_full: u64,
    /// Dropped because too much was underway ([`UNDERWAY_BYTES_MAX`]).
    pub memory_full: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Held up, to be overtaken.
    pub held_up: u64,
}

/// A packet that arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival<T> {
    /// When it was to arrive.
    pub due: Instant,
    /// The packet.
    pub packet: T,
}

/// Nothing is carried from the first moment until the second, which itself is not part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Outage {
    from: Instant,
    until: Instant,
    has_begun: bool,
}

/// Sources of chance, one for each use, so that a setting that is changed does not change what becomes of others.
#[derive(Clone, Debug)]
struct Draws {
    loss: Random,
    duplicate: Random,
    reorder: Random,
    jitter: Random,
}

/// One direction of a link. `T` is a packet.
#[derive(Clone, Debug)]
pub struct Channel<T> {
    settings: Settings,
    draws: Draws,
    /// When the transmitter will have sent all that it was given.
    transmitter_free_at: Instant,
    /// What waits for the transmitter or is being sent: when it will have been, and its bytes.
    queue: VecDeque<(Instant, u64)>,
    queue_bytes: u64,
    /// When the last packet that was not held up is due: the next is not before it.
    last_due: Instant,
    underway: BinaryHeap<Underway<T>>,
    underway_bytes: u64,
    packets_accepted: u64,
    outages: Vec<Outage>,
    counters: Counters,
    /// How many packets found the queue how long, with a rate; the last entry is for all longer ones.
    queue_lengths: Vec<u64>,
}

/// Lengths of the queue that are counted separately, in packets.
const QUEUE_LENGTHS_MAX: usize = 16_384;

impl<T> Channel<T> {
    /// A direction with nothing underway.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let draws =
            Draws { loss: random.fork(), duplicate: random.fork(), reorder: random.fork(), jitter: random.fork() };
        Self {
            settings,
            draws,
            transmitter_free_at: Instant::ZERO,
            queue: VecDeque::new(),
            queue_bytes: 0,
            last_due: Instant::ZERO,
            underway: BinaryHeap::new(),
            underway_bytes: 0,
            packets_accepted: 0,
            outages: Vec::new(),
            queue_lengths: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// What it is set to.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes settings, for packets that are given to it from now on.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// What became of packets since the counters were last reset.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Sets all counters to zero.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
        self.queue_lengths.clear();
    }

    /// The length of the queue, in packets, that one arriving packet in a hundred found exceeded. 0 without a rate.
    #[must_use]
    pub fn queue_p99_packets(&self) -> u64 {
        let beyond = self.queue_lengths.iter().sum::<u64>() / 100;
        let mut longer = 0;
        let found = self.queue_lengths.iter().rposition(|packets| {
            longer += packets;
            longer > beyond
        });
        found.unwrap_or(0) as u64
    }

    /// Packets that wait for the transmitter or are being sent.
    #[must_use]
    pub fn queue_packets(&self, now: Instant) -> u64 {
        self.queue.iter().filter(|(sent_at, _)| *sent_at > now).count() as u64
    }

    fn note_queue(&mut self) {
        let length = self.queue.len().min(QUEUE_LENGTHS_MAX);
        if length >= self.queue_lengths.len() {
            self.queue_lengths.resize(length + 1, 0);
        }
        self.queue_lengths[length] += 1;
    }

    /// Packets underway, waiting for the transmitter included.
    #[must_use]
    pub fn packets_underway(&self) -> usize {
        self.underway.len()
    }

    /// Cuts the link from `from` on, for so long or until [`Channel::restore`]. False when there are [`OUTAGES_MAX`] already.
    pub fn interrupt(&mut self, now: Instant, from: Instant, lasting: Option<Duration>) -> bool {
        self.begin_outages(now);
        if self.outages.len() >= OUTAGES_MAX {
            return false;
        }
        let until = lasting.map_or(Instant::FAR_FUTURE, |lasting| from + lasting);
        self.outages.push(Outage { from, until, has_begun: false });
        self.begin_outages(now);
        true
    }

    /// Ends the outages that have begun.
    pub fn restore(&mut self, now: Instant) {
        self.begin_outages(now);
        self.outages.retain(|outage| !outage.has_begun);
    }

    /// A packet of so many bytes is given to the link. `packet` is called for each copy that will arrive: not at all, once
    /// or twice.
    pub fn handle_packet(&mut self, now: Instant, length_bytes: u64, mut packet: impl FnMut() -> T) {
        self.begin_outages(now);
        self.counters.received_packets += 1;
        self.counters.received_bytes += length_bytes;
        // Drawn for each packet, whatever becomes of it, so that the same packets are lost with other settings.
        let Settings { loss, duplicate, reorder, jitter, .. } = self.settings;
        let is_lost = chance(&mut self.draws.loss, loss);
        let is_doubled = chance(&mut self.draws.duplicate, duplicate);
        let is_held_up = chance(&mut self.draws.reorder, reorder);
        let jitter = Duration::from_nanos(self.draws.jitter.between(0, nanos(jitter)));
        if self.outages.iter().any(|outage| outage.has_begun) {
            self.counters.cut += 1;
            return;
        }
        let Some(sent_at) = self.transmit(now, length_bytes) else {
            self.counters.queue_full += 1;
            return;
        };
        if is_lost {
            self.counters.lost += 1;
            return;
        }
        let mut due = (sent_at + self.settings.delay + jitter).max(self.last_due);
        if is_held_up {
            due = due + self.settings.hold;
            self.counters.held_up += 1;
        } else {
            self.last_due = due;
        }
        self.counters.duplicated += u64::from(is_doubled);
        for _ in 0..=u8::from(is_doubled) {
            self.send_to_path(due, length_bytes, &mut packet);
        }
    }

    /// When the transmitter will have sent a packet; `None` when there is no room for it in the queue.
    fn transmit(&mut self, now: Instant, length_bytes: u64) -> Option<Instant> {
        while let Some((_, bytes)) = self.queue.front().copied().filter(|(sent_at, _)| *sent_at <= now) {
            self.queue.pop_front();
            self.queue_bytes -= bytes;
        }
        let Some(rate) = self.settings.rate_bits_per_s else { return Some(now.max(self.transmitter_free_at)) };
        self.note_queue();
        let is_full = self.queue.len() >= self.settings.queue_packets
            || self.settings.queue_bytes.is_some_and(|limit| self.queue_bytes + length_bytes > limit);
        // The transmitter itself holds one packet beside the queue.
        if is_full && !self.queue.is_empty() {
            return None;
        }
        let takes_nanos = (u128::from(length_bytes) * 8 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        let takes = Duration::from_nanos(u64::try_from(takes_nanos).unwrap_or(u64::MAX));
        let sent_at = self.transmitter_free_at.max(now) + takes;
        self.transmitter_free_at = sent_at;
        self.queue.push_back((sent_at, length_bytes));
        self.queue_bytes += length_bytes;
        Some(sent_at)
    }

    fn send_to_path(&mut self, due: Instant, length_bytes: u64, packet: &mut impl FnMut() -> T) {
        if self.underway_bytes + length_bytes > UNDERWAY_BYTES_MAX {
            self.counters.memory_full += 1;
            return;
        }
        self.underway_bytes += length_bytes;
        self.packets_accepted += 1;
        self.underway.push(Underway { due, number: self.packets_accepted, length_bytes, packet: packet() });
    }

    /// The next packet that has arrived by now, in the order in which they were due.
    pub fn poll_arrival(&mut self, now: Instant) -> Option<Arrival<T>> {
        self.begin_outages(now);
        if self.underway.peek()?.due > now {
            return None;
        }
        let Underway { due, length_bytes, packet, .. } = self.underway.pop()?;
        self.underway_bytes -= length_bytes;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += length_bytes;
        Some(Arrival { due, packet })
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.underway.peek().map(|packet| packet.due)
    }

    /// Has outages take effect that have begun by now, and forgets those that have ended.
    fn begin_outages(&mut self, now: Instant) {
        for index in 0..self.outages.len() {
            let Outage { from, has_begun, .. } = self.outages[index];
            if has_begun || from > now {
                continue;
            }
            self.outages[index].has_begun = true;
            self.lose_underway(from);
        }
        self.outages.retain(|outage| outage.until > now);
    }

    /// Loses what had not arrived when the outage began.
    fn lose_underway(&mut self, outage_at: Instant) {
        let before = self.underway.len();
        self.underway.retain(|packet| packet.due < outage_at);
        self.underway_bytes = self.underway.iter().map(|packet| packet.length_bytes).sum();
        self.counters.cut += (before - self.underway.len()) as u64;
        self.queue.clear();
        self.queue_bytes = 0;
        self.transmitter_free_at = self.transmitter_free_at.min(outage_at);
        self.last_due = self.last_due.min(outage_at);
    }
}

fn chance(random: &mut Random, share: f64) -> bool {
    // The upper bits: as many as a double has.
    ((random.next() >> 11) as f64) < share * CHANCE_STEPS
}

fn nanos(duration: Duration) -> u64 {
    // One less, so that the number of values fits.
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - 1)
}

#[cfg(test)]
mod tests;
