//! A flood of packets with spoofed sources, past the sender's own stack: nobody answers what comes back.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flow::random::SplitMix64;
use flow::wire::build::{Envelope, Tcp};
use flow::wire::{MacAddress, ip_protocol, tcp_flags};
use flow::{BATCH_FRAMES_MAX, Disposition, Frame, PacketBatch, PortId, Tuple};
use packet_io::IoError;
use packet_io::af_packet::{AfPacketIo, PortConfig, TRANSMIT_HEADROOM_BYTES};
use packet_io::namespace::Namespace;

/// Spoofed sources are of this network, for benchmarks (RFC 2544): 198.18.0.0/15.
const SOURCES: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const SOURCE_BITS: u32 = 17;

/// What a flood consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FloodPacket {
    /// SYNs, as hosts of today send them, in bursts of a batch.
    #[default]
    Syn,
    /// Acknowledgements in the middle of connections that do not exist. A burst is what is due within a millisecond: larger ones would let
    /// nodes look up many packets together.
    Acknowledgement,
}

impl FloodPacket {
    /// Packets that are sent together.
    fn burst(self, packets_per_s: u32) -> usize {
        match self {
            Self::Syn => BATCH_FRAMES_MAX,
            Self::Acknowledgement => (packets_per_s as usize / 1000).clamp(1, BATCH_FRAMES_MAX),
        }
    }

    /// A packet with a drawn source.
    fn frame(self, random: &mut SplitMix64, link: [MacAddress; 2], destination: SocketAddrV4) -> Vec<u8> {
        match self {
            Self::Syn => frame(random, link, destination),
            Self::Acknowledgement => {
                let drawn = random.between(0, u64::MAX - 1);
                let (sequence, acknowledgement) = ((drawn >> 16) as u32, (drawn >> 24) as u32);
                let ack = Tcp { flags: tcp_flags::ACK, sequence, acknowledgement, window: 501, ..Tcp::default() };
                envelope(link).tcp(&tuple(drawn, destination), ack, b"")
            }
        }
    }
}

/// The tuple of a packet with a spoofed source.
fn tuple(drawn: u64, destination: SocketAddrV4) -> Tuple {
    let source = Ipv4Addr::from(SOURCES | (drawn as u32) >> (32 - SOURCE_BITS));
    let port = 1024 + (drawn >> 32) as u16 % 60_000;
    Tuple::new(ip_protocol::TCP, SocketAddr::from((source, port)), destination.into())
}

fn envelope([source, next_hop]: [MacAddress; 2]) -> Envelope<'static> {
    Envelope { source, destination: next_hop, ..Envelope::default() }
}

/// The SYN of a flood with this number, as hosts of today send them.
#[must_use]
pub fn frame(random: &mut SplitMix64, link: [MacAddress; 2], destination: SocketAddrV4) -> Vec<u8> {
    let drawn = random.between(0, u64::MAX - 1);
    let syn = Tcp {
        flags: tcp_flags::SYN,
        sequence: (drawn >> 16) as u32,
        window: 64_240,
        maximum_segment_bytes: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some((drawn as u32, 0)),
        ..Tcp::default()
    };
    envelope(link).tcp(&tuple(drawn, destination), syn, b"")
}

/// Where a flood goes, and how fast.
#[derive(Clone, Debug)]
pub struct FloodPlan {
    /// The link address that frames come from.
    pub source: MacAddress,
    /// The link addresses that frames go to, as many packets to each of them: a node is killed, and the flood goes on at the other.
    pub next_hops: Vec<MacAddress>,
    /// The server that is attacked.
    pub destination: SocketAddrV4,
    /// What it consists of.
    pub packet: FloodPacket,
    /// Packets a second, to each next hop.
    pub packets_per_s: u32,
    /// The RNG seed of the sources.
    pub seed: u64,
}

/// A flood that goes on until the value is dropped.
pub struct Flood {
    is_over: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Floods from `interface` of the namespace.
    ///
    /// # Errors
    /// The interface cannot be opened.
    pub fn start(namespace: &Namespace, interface: &str, plan: FloodPlan) -> Result<Self, IoError> {
        let config = PortConfig { bypass_queueing: true, ..PortConfig::new(interface) };
        let mut io = namespace.run(|| AfPacketIo::open(&[config]))??;
        let (is_over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&sent));
        let thread = thread::spawn(move || {
            let mut random = SplitMix64::new(plan.seed);
            let burst = plan.packet.burst(plan.packets_per_s);
            let interval = Duration::from_secs(1) * burst as u32 / plan.packets_per_s.max(1);
            let (began, mut due) = (Instant::now(), Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                thread::sleep(due.saturating_sub(began.elapsed()));
                for next_hop in &plan.next_hops {
                    let link = [plan.source, *next_hop];
                    let frames = (0..burst).map(|_| plan.packet.frame(&mut random, link, plan.destination));
                    let sent = send_batch(&mut io, frames);
                    count.fetch_add(sent, Ordering::Relaxed);
                }
                due += interval;
                // A sender that was kept from its processor does not make up for more than a tenth of a second.
                due = due.max(began.elapsed().saturating_sub(Duration::from_millis(100)));
            }
        });
        Ok(Self { is_over, sent, thread: Some(thread) })
    }

    /// The packets that were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It panics in a test that fails anyway.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn send_batch(io: &mut AfPacketIo, frames: impl Iterator<Item = Vec<u8>>) -> u64 {
    let mut frames: Vec<Vec<u8>> = frames.map(|bytes| [&[0; TRANSMIT_HEADROOM_BYTES][..], &bytes].concat()).collect();
    let mut batch = PacketBatch::new();
    for buffer in &mut frames {
        let length_bytes = buffer.len() - TRANSMIT_HEADROOM_BYTES;
        batch.extend(Frame::new(buffer, TRANSMIT_HEADROOM_BYTES, length_bytes, PortId(0)).map(|mut frame| {
            frame.disposition = Disposition::Transmit(PortId(0));
            frame
        }));
    }
    io.transmit_batch(PortId(0), &mut batch)
}
