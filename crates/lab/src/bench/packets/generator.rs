//! Sends small datagrams of many connections as a network would: past this host's own stack.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use flow::wire::build::Envelope;
use flow::wire::{MacAddress, ip_protocol};
use flow::{BATCH_FRAMES_MAX, Disposition, Frame, PacketBatch, PortId, Tuple};
use packet_io::af_packet::{AfPacketIo, PortConfig, TRANSMIT_HEADROOM_BYTES};
use packet_io::namespace::Namespace;
use packet_io::usage::thread_cpu_time;

use crate::bench::BenchError;

/// Payload of a datagram: the frame is as short as Ethernet has them, 60 bytes.
const PAYLOAD: [u8; 18] = [0x6d; 18];
/// The port that the first connection comes from.
const FIRST_SOURCE_PORT: u16 = 20_000;

/// Packets underway at most: no side has to queue more than it has room for, and none runs out of work.
const UNDERWAY_MAX: u64 = 768;
/// Packets sent until it is looked at how many have arrived.
const LOOK_EVERY: u64 = 256;
/// How long is waited until it is looked at again when too many are underway.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// When nothing arrives for so long, what is underway is lost.
const LOST_AFTER: Duration = Duration::from_millis(50);

/// Where datagrams go.
pub(super) struct Path {
    /// Link addresses of sender and next hop.
    pub(super) link: [MacAddress; 2],
    /// Address of the sender.
    pub(super) source: IpAddr,
    /// Who they are for.
    pub(super) destination: SocketAddr,
}

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
    /// A frame of each connection, with room before it.
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl Generator {
    /// A sender of `flows` connections on `interface` of the namespace.
    pub(super) fn open(namespace: &Namespace, interface: &str, path: &Path, flows: u16) -> Result<Self, BenchError> {
        let config = PortConfig { bypass_queueing: true, ..PortConfig::new(interface) };
        let io = namespace.run(|| AfPacketIo::open(&[config]))??;
        let [source, destination] = path.link;
        let envelope = Envelope { source, destination, ..Envelope::default() };
        let frame_of = |flow: u16| {
            let from = SocketAddr::new(path.source, FIRST_SOURCE_PORT + flow);
            let frame = envelope.udp(&Tuple::new(ip_protocol::UDP, from, path.destination), &PAYLOAD);
            [&[0; TRANSMIT_HEADROOM_BYTES][..], &frame].concat()
        };
        Ok(Self { io, frames: (0..flows).map(frame_of).collect(), next: 0 })
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
    pub(super) fn flows(&self) -> usize {
        self.frames.len()
    }

    /// Sends the next packets of as many connections as fit in a batch. Returns how many the kernel took.
    pub(super) fn send_batch(&mut self) -> u64 {
        let Self { io, frames, next } = self;
        let mut batch = PacketBatch::new();
        let count = frames.len();
        let (behind, ahead) = frames.split_at_mut(*next);
        for buffer in ahead.iter_mut().chain(behind).take(BATCH_FRAMES_MAX) {
            let length_bytes = buffer.len() - TRANSMIT_HEADROOM_BYTES;
            let frame = Frame::new(buffer, TRANSMIT_HEADROOM_BYTES, length_bytes, PortId(0));
            batch.extend(frame.map(|mut frame| {
                frame.disposition = Disposition::Transmit(PortId(0));
                frame
            }));
        }
        *next = (*next + batch.len()) % count;
        io.transmit_batch(PortId(0), &mut batch)
    }
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
        let (mut last, mut since) = ((self.arrived)(), Instant::now());
        while sent.saturating_sub(last - self.base + self.lost) > UNDERWAY_MAX - LOOK_EVERY {
            thread::sleep(POLL_INTERVAL);
            let now = (self.arrived)();
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > LOST_AFTER {
                self.lost = sent.saturating_sub(last - self.base);
                break;
            }
        }
        self.cpu += thread_cpu_time() - cpu_before;
    }
}
