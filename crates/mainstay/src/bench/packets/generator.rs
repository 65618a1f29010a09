//! Sends small datagrams of many connections at an even pace, as a network would: past this host's own stack.

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
    /// Processor time of the sender, and of all that the kernel did with the packets in its midst.
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

    /// Sends `packets_per_second` for `duration`, a batch at a time, from a thread of its own.
    pub(super) fn send_for(&mut self, duration: Duration, packets_per_second: u32) -> Sent {
        let sending = || {
            let (begin, cpu_before) = (Instant::now(), thread_cpu_time());
            let interval = Duration::from_secs(1) * BATCH_FRAMES_MAX as u32 / packets_per_second;
            let (mut packets, mut due) = (0, Duration::ZERO);
            while due < duration {
                // A sender that overslept makes up for it: the pace is even over the whole turn.
                thread::sleep(due.saturating_sub(begin.elapsed()));
                packets += self.send_batch();
                due += interval;
            }
            Sent { packets, cpu: thread_cpu_time() - cpu_before }
        };
        let sent = thread::scope(|scope| scope.spawn(sending).join());
        sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn send_batch(&mut self) -> u64 {
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
