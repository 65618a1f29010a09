//! Frames: made before the clock starts.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use cluster::pipeline::Place;
use flow::wire::{Parsed, build, ip_protocol, parse, tcp_flags};
use flow::{BATCH_FRAMES_MAX, Direction, Disposition, Frame, IpFamily, PacketBatch, PortId, Tuple};

use super::setting::original;

/// Frames in the ring: together they fill a quarter of a second-level cache of 512 KiB.
pub(in crate::bench) const RING_FRAMES: usize = 1024;
const _: () = assert!(RING_FRAMES.is_multiple_of(BATCH_FRAMES_MAX));
/// Frames in a ring of full-sized ones: so many that they lie in the cache, too.
const FULL_RING_FRAMES: usize = 192;
const _: () = assert!(FULL_RING_FRAMES.is_multiple_of(BATCH_FRAMES_MAX));
/// Distance of the frames in a ring of short frames, and of full-sized ones.
const PLACE_BYTES: usize = 128;
const FULL_PLACE_BYTES: usize = 1536;
/// Bytes of a frame's headers: Ethernet, IPv4 and TCP without options.
const HEADER_BYTES: usize = 54;
/// The shortest frame that Ethernet carries, its check sequence included.
const FRAME_BYTES_MIN: usize = 64;
/// The ports that clients and servers are behind.
const PORTS: [PortId; 2] = [PortId(0), PortId(1)];

/// Frames that wait to be handled, as in the ring of a network card.
pub(in crate::bench) struct Ring {
    places: Box<[u8]>,
    place_bytes: usize,
    /// Length of the frames at least: shorter ones are padded.
    frame_bytes_min: usize,
    /// Payload of a data packet.
    payload: Box<[u8]>,
    /// Length and port of each that is filled.
    filled: Vec<(usize, PortId)>,
}

impl Ring {
    /// A ring whose data packets fill the shortest frame.
    pub(in crate::bench) fn new() -> Self {
        Self::with(RING_FRAMES, PLACE_BYTES, FRAME_BYTES_MIN)
    }

    /// A ring whose data packets have frames of this length, without a check sequence: 60 to 1514 bytes.
    pub(in crate::bench) fn of_frames(frame_bytes: usize) -> Self {
        if frame_bytes <= PLACE_BYTES {
            Self::with(RING_FRAMES, PLACE_BYTES, frame_bytes)
        } else {
            Self::with(FULL_RING_FRAMES, FULL_PLACE_BYTES, frame_bytes)
        }
    }

    fn with(frames: usize, place_bytes: usize, frame_bytes: usize) -> Self {
        Self {
            places: vec![0; frames * place_bytes].into_boxed_slice(),
            place_bytes,
            frame_bytes_min: frame_bytes.min(FRAME_BYTES_MIN),
            payload: vec![0x5a; frame_bytes - HEADER_BYTES].into_boxed_slice(),
            filled: Vec::with_capacity(frames),
        }
    }

    /// Frames that it holds at most.
    pub(in crate::bench) fn frames_max(&self) -> usize {
        self.places.len() / self.place_bytes
    }

    pub(in crate::bench) fn clear(&mut self) {
        self.filled.clear();
    }

    /// Adds a frame that goes in `direction`. There is room for [`RING_FRAMES`] short ones between two calls of [`Ring::clear`].
    pub(super) fn push(&mut self, direction: Direction, frame: &[u8]) {
        let place = &mut self.places[self.filled.len() * self.place_bytes..][..self.place_bytes];
        place.fill(0);
        place[..frame.len()].copy_from_slice(frame);
        self.filled.push((frame.len().max(self.frame_bytes_min), PORTS[direction.index()]));
    }

    /// The frames, in batches as they are received.
    pub(in crate::bench) fn batches(&mut self) -> Vec<PacketBatch<'_>> {
        let places = self.places.chunks_mut(self.place_bytes);
        let mut frames = places.zip(&self.filled).map(|(place, (length_bytes, port))| {
            Frame::new(place, 0, *length_bytes, *port).expect("places are longer than frames")
        });
        let batches = self.filled.len().div_ceil(BATCH_FRAMES_MAX);
        (0..batches).map(|_| frames.by_ref().take(BATCH_FRAMES_MAX).collect()).collect()
    }

    /// The tuple of each frame as it is now.
    pub(in crate::bench) fn tuples(&mut self) -> Vec<Tuple> {
        let tuple = |frame: &Frame<'_>| match parse(frame) {
            Ok(Parsed::Ip(headers)) => headers.tuple,
            other => unreachable!("a frame that passed was right: {other:?}"),
        };
        self.batches().iter().flatten().map(tuple).collect()
    }
}

/// How many frames of a batch are not to be sent.
pub(in crate::bench) fn not_sent(batch: &PacketBatch<'_>) -> u64 {
    batch.iter().filter(|frame| !matches!(frame.disposition, Disposition::Transmit(_))).count() as u64
}

/// A connection as its end points know it.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Flow {
    original: Tuple,
    /// What the server takes for the client.
    outside: SocketAddr,
    /// The server that the gateway sends to.
    server: SocketAddr,
    /// The next sequence number of each side.
    next: [u32; 2],
}

impl Flow {
    pub(in crate::bench) fn new(family: IpFamily, number: u32) -> Self {
        let outside = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let original = original(family, ip_protocol::TCP, number);
        Self { original, outside, server: original.destination_addr(), next: [number, !number] }
    }

    /// Notes how the first packet left the gateway.
    pub(in crate::bench) fn set_outgoing(&mut self, outgoing: &Tuple) {
        self.outside = outgoing.source_addr();
        self.server = outgoing.destination_addr();
    }

    /// Its tuple as the client sends.
    pub(in crate::bench) const fn original(&self) -> &Tuple {
        &self.original
    }

    fn incoming(&self, direction: Direction) -> Tuple {
        match direction {
            Direction::Original => self.original,
            Direction::Reply => Tuple::new(ip_protocol::TCP, self.server, self.outside),
        }
    }

    /// Fills the ring with the next segment of a side of each.
    pub(in crate::bench) fn push_all(flows: &mut [Self], ring: &mut Ring, direction: Direction, flags: u8) {
        ring.clear();
        flows.iter_mut().for_each(|flow| flow.push(ring, direction, flags));
    }

    /// Notes how the first packets, which are still in the ring, left the gateway.
    pub(in crate::bench) fn set_all_outgoing(flows: &mut [Self], ring: &mut Ring) {
        for (flow, outgoing) in flows.iter_mut().zip(ring.tuples()) {
            flow.set_outgoing(&outgoing);
        }
    }

    /// Adds the next segment of a side to the ring.
    pub(in crate::bench) fn push(&mut self, ring: &mut Ring, direction: Direction, flags: u8) {
        let (own, other) = (direction.index(), direction.reverse().index());
        let is_syn = flags & tcp_flags::SYN != 0;
        let is_data = flags & tcp_flags::PSH != 0;
        let segment = build::Tcp {
            flags,
            sequence: self.next[own],
            acknowledgement: if flags & tcp_flags::ACK != 0 { self.next[other] } else { 0 },
            maximum_segment_bytes: is_syn.then_some(1460),
            window_scale: is_syn.then_some(7),
            sack_permitted: is_syn,
            ..build::Tcp::default()
        };
        let payload: &[u8] = if is_data { &ring.payload } else { &[] };
        let frame = build::tcp(&self.incoming(direction), segment, payload);
        self.next[own] = self.next[own].wrapping_add(payload.len() as u32 + u32::from(is_syn));
        ring.push(direction, &frame);
    }
}

/// Established connections, and the order in which their packets come.
#[derive(Clone)]
pub(in crate::bench) struct Traffic {
    pub(in crate::bench) flows: Vec<Flow>,
    random: Random,
}

impl Traffic {
    /// `connections` connections of a family, not yet begun.
    pub(in crate::bench) fn new(family: IpFamily, connections: u32) -> Self {
        Self {
            flows: (0..connections).map(|number| Flow::new(family, number)).collect(),
            random: Random(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Those of `connections` connections that are steered to a worker, not yet begun.
    pub(super) fn of_worker(connections: u32, place: Place) -> Self {
        let mut traffic = Self::new(IpFamily::V4, connections);
        traffic.flows.retain(|flow| place.steering.worker_of_tuple(&flow.original) == place.worker);
        traffic
    }

    /// Fills the ring with as many packets as it holds, but no more than `packets_max`: each of any connection, in either
    /// direction. Returns the connections' numbers.
    pub(in crate::bench) fn fill(&mut self, ring: &mut Ring, packets_max: u64) -> Vec<u32> {
        ring.clear();
        let packets = usize::try_from(packets_max).unwrap_or(usize::MAX).min(ring.frames_max());
        let one = |_| {
            let number = self.random.below(self.flows.len() as u32);
            let direction = if self.random.below(2) == 0 { Direction::Original } else { Direction::Reply };
            self.flows[number as usize].push(ring, direction, tcp_flags::ACK | tcp_flags::PSH);
            number
        };
        (0..packets).map(one).collect()
    }
}

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * u64::from(bound)) >> 32) as u32
    }
}
