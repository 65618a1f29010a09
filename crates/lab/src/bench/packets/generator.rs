//! Sends small datagrams of many connections as a network would: past this host's own stack.
//!
//! A frame is completed when it is sent, so that sending costs the same however many connections there are.

use std::thread;
use std::time::{Duration, Instant};

use flow::random::SplitMix64;
use flow::{BATCH_FRAMES_MAX, Disposition, Frame, PacketBatch, PortId};
use packet_io::af_packet::{AfPacketIo, PortConfig, TRANSMIT_HEADROOM_BYTES};
use packet_io::namespace::Namespace;
use packet_io::usage::thread_cpu_time;

use super::datagram::{self, Path};
use crate::bench::BenchError;

/// The RNG seed of the order of connections: the same in all networks.
const ORDER_SEED: u64 = 1;
/// Packets underway at most: no side has to queue more than it has room for, and none runs out of work.
const UNDERWAY_MAX: u64 = 768;
/// Packets sent until it is looked at how many have arrived.
const LOOK_EVERY: u64 = 256;
/// How long is waited until it is looked at again when too many are underway.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// When nothing arrives for so long, what is underway is lost.
const LOST_AFTER: Duration = Duration::from_millis(50);

/// What a turn of sending came to.
pub(super) struct Sent {
    pub(super) packets: u64,
    /// Processor time of the sender, and of all that the kernel did with the packets in its midst; without what the
    /// sender spends on finding out how many have arrived.
    pub(super) cpu: Duration,
}

/// A sender on one interface.
pub(super) struct Generator {
    io: AfPacketIo,
    /// The frames of a batch, with room before each.
    frames: Vec<Vec<u8>>,
    /// The connections in the order of their packets, which is random: neighbours in it are no neighbours in any table.
    order: Vec<u32>,
    next: usize,
}

impl Generator {
    /// A sender of so many connections on `interface` of the namespace.
    pub(super) fn open(
        namespace: &Namespace,
        interface: &str,
        path: &Path,
        connections: u32,
    ) -> Result<Self, BenchError> {
        let config = PortConfig { bypass_queueing: true, ..PortConfig::new(interface) };
        let io = namespace.run(|| AfPacketIo::open(&[config]))??;
        let frame = [&[0; TRANSMIT_HEADROOM_BYTES][..], &datagram::frame(path)].concat();
        Ok(Self { io, frames: vec![frame; BATCH_FRAMES_MAX], order: shuffled(connections), next: 0 })
    }

    /// Sends for `duration`: so many packets a second, or as fast as they arrive, which `arrived` counts.
    pub(super) fn send_for(
        &mut self,
        duration: Duration,
        packets_per_second: Option<u32>,
        arrived: impl FnMut() -> u64,
    ) -> Sent {
        let (begin, cpu_before) = (Instant::now(), thread_cpu_time());
        let mut sent = Sent { packets: 0, cpu: Duration::ZERO };
        match packets_per_second {
            Some(rate) => {
                let interval = Duration::from_secs(1) * BATCH_FRAMES_MAX as u32 / rate;
                let mut due = Duration::ZERO;
                while due < duration {
                    // A sender that overslept makes up for it: the pace is even over the whole turn.
                    thread::sleep(due.saturating_sub(begin.elapsed()));
                    sent.packets += self.send_batch();
                    due += interval;
                }
            }
            None => {
                let mut window = Window::new(arrived);
                while begin.elapsed() < duration {
                    sent.packets += self.send_batch();
                    window.wait_for_room(sent.packets);
                }
                return Sent { cpu: (thread_cpu_time() - cpu_before).saturating_sub(window.cpu), ..sent };
            }
        }
        Sent { cpu: thread_cpu_time() - cpu_before, ..sent }
    }

    /// How many connections there are.
    pub(super) const fn connections(&self) -> u32 {
        self.order.len() as u32
    }

    /// Sends a packet of each connection, as fast as they arrive, which `arrived` counts.
    pub(super) fn send_each(&mut self, arrived: impl FnMut() -> u64) {
        let mut window = Window::new(arrived);
        let mut sent = 0;
        for _ in 0..self.order.len().div_ceil(BATCH_FRAMES_MAX) {
            sent += self.send_batch();
            window.wait_for_room(sent);
        }
        window.wait(sent, 0);
    }

    /// Sends a batch of packets, each of the next connection. Returns how many the kernel took.
    fn send_batch(&mut self) -> u64 {
        let Self { io, frames, order, next } = self;
        let mut batch = PacketBatch::new();
        for buffer in frames {
            datagram::set_connection(&mut buffer[TRANSMIT_HEADROOM_BYTES..], order[*next]);
            *next = if *next + 1 == order.len() { 0 } else { *next + 1 };
            let length_bytes = buffer.len() - TRANSMIT_HEADROOM_BYTES;
            let frame = Frame::new(buffer, TRANSMIT_HEADROOM_BYTES, length_bytes, PortId(0));
            batch.extend(frame.map(|mut frame| {
                frame.disposition = Disposition::Transmit(PortId(0));
                frame
            }));
        }
        io.transmit_batch(PortId(0), &mut batch)
    }
}

/// The numbers below `count` in a random order (Fisher and Yates).
fn shuffled(count: u32) -> Vec<u32> {
    let mut random = SplitMix64::new(ORDER_SEED);
    let mut numbers: Vec<u32> = (0..count).collect();
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, random.between(0, at as u64) as usize);
    }
    numbers
}

/// Keeps the number of packets that are underway in bounds.
struct Window<F> {
    arrived: F,
    /// What had arrived when the turn began.
    base: u64,
    /// Packets that are given up.
    lost: u64,
    next_look: u64,
    /// Processor time spent on looking.
    cpu: Duration,
}

impl<F: FnMut() -> u64> Window<F> {
    fn new(mut arrived: F) -> Self {
        Self { base: arrived(), lost: 0, arrived, next_look: LOOK_EVERY, cpu: Duration::ZERO }
    }

    /// Waits until another batch may be sent when `sent` packets have been.
    fn wait_for_room(&mut self, sent: u64) {
        if sent < self.next_look {
            return;
        }
        let cpu_before = thread_cpu_time();
        self.next_look = sent + LOOK_EVERY;
        self.wait(sent, UNDERWAY_MAX - LOOK_EVERY);
        self.cpu += thread_cpu_time() - cpu_before;
    }

    /// Waits until no more than `underway_max` of `sent` packets are underway.
    fn wait(&mut self, sent: u64, underway_max: u64) {
        let (mut last, mut since) = ((self.arrived)(), Instant::now());
        while sent.saturating_sub(last - self.base + self.lost) > underway_max {
            thread::sleep(POLL_INTERVAL);
            let now = (self.arrived)();
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > LOST_AFTER {
                self.lost = sent.saturating_sub(last - self.base);
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_its_turn_and_neighbours_are_apart() {
        let order = shuffled(10_000);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..10_000));
        let near = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 8).count();
        assert!(near < 100, "{near}");
    }
}
