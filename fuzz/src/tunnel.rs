//! Two ends of a tunnel between sites, a path that loses and repeats, and an attacker on it who invents datagrams.

use std::collections::VecDeque;
use std::time::Duration;

use flow::{Instant, Segmentation};
use redundancy::FlowPosition;
use redundancy::limits::CACHE_BYTES_MIN;
use tunnel::datagram::TUNNEL_VERSION;
use tunnel::{Outgoing, Tunnel, TunnelConfig};

const HEADER_BYTES: usize = 40;
/// Turns of a millisecond until both ends have found each other.
const HELLO_TURNS: usize = 300;
/// What waits on the path.
const IN_FLIGHT_MAX: usize = 64;

/// Steps: what to do, how long the bytes for it are, and they.
pub fn run(data: &[u8]) {
    let mut path = Path::new();
    (0..HELLO_TURNS).for_each(|_| path.turn(0));
    let mut rest = data;
    while let Some(([step, length], after)) = rest.split_first_chunk::<2>() {
        let (bytes, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        path.step(*step, bytes);
    }
    (0..HELLO_TURNS).for_each(|_| path.turn(0));
}

struct Path {
    now: Instant,
    ends: [Tunnel; 2],
    in_flight: VecDeque<(usize, Vec<u8>)>,
    /// The names of the ends, from their last datagrams.
    sessions: [Vec<u8>; 2],
    sent: Vec<Vec<u8>>,
    /// Once something was invented, what comes out is whatever its inventor wanted.
    is_clean: bool,
}

impl Path {
    fn new() -> Self {
        let now = Instant::from_millis(1);
        let config = TunnelConfig { cache_bytes: CACHE_BYTES_MIN, ..TunnelConfig::default() };
        let mut ends = [Tunnel::new(config.clone(), 1), Tunnel::new(config, 2)];
        ends.iter_mut().for_each(|end| end.set_active(now, true));
        Self {
            now,
            ends,
            in_flight: VecDeque::new(),
            sessions: [Vec::new(), Vec::new()],
            sent: Vec::new(),
            is_clean: true,
        }
    }

    fn step(&mut self, step: u8, bytes: &[u8]) {
        match step & 7 {
            0..=2 => self.send(usize::from(step >> 7), &bytes.repeat(1 + usize::from(step >> 3 & 15))),
            // Some datagrams in flight are lost, or come twice.
            3 => self.in_flight.truncate(usize::from(step >> 3)),
            4 => self.in_flight.extend(self.in_flight.front().cloned()),
            5 => self.invent(usize::from(step >> 7), step >> 3 & 3, bytes),
            6 => self.turn(step >> 3),
            _ => self.now = self.now + Duration::from_millis(u64::from(step >> 3) * 40),
        }
    }

    /// A packet that begins with the bytes: headers as they come, and then a payload.
    fn send(&mut self, from: usize, bytes: &[u8]) {
        if self.ends[from].admit(self.now, bytes.len()).is_err() || bytes.is_empty() {
            return;
        }
        self.sent.push(bytes.to_vec());
        let header_bytes = HEADER_BYTES.min(bytes.len());
        let at = Some(FlowPosition { flow: 7, sequence: self.sent.len() as u32 * 3000 });
        let segmentation = Segmentation::default();
        let _ = self.ends[from].handle_packet(self.now, &Outgoing { bytes, header_bytes, at, segmentation });
        self.turn(0);
    }

    /// A datagram of the present session, which nobody of it sent.
    fn invent(&mut self, to: usize, kind: u8, bytes: &[u8]) {
        let sessions = self.sessions[to].clone();
        if sessions.len() == 8 {
            self.is_clean = false;
            let datagram = [&[TUNNEL_VERSION, kind], &sessions[..], bytes].concat();
            let _ = self.ends[to].handle_datagram(self.now, &datagram);
            self.turn(0);
        }
    }

    /// A millisecond passes. All but so many of the datagrams in flight arrive.
    fn turn(&mut self, held_back: u8) {
        self.now = self.now + Duration::from_millis(1);
        while self.in_flight.len() > usize::from(held_back)
            && let Some((to, datagram)) = self.in_flight.pop_front()
        {
            let result = self.ends[to].handle_datagram(self.now, &datagram);
            assert!(result.is_ok(), "an end understands the other end: {result:?}");
        }
        for from in 0..2 {
            if self.ends[from].poll_timeout().is_some_and(|due| due <= self.now) {
                self.ends[from].handle_timeout(self.now);
            }
            let mut datagram = Vec::new();
            while self.ends[from].poll_transmit(self.now, &mut datagram) {
                self.sessions[1 - from] = datagram.get(2..10).unwrap_or_default().to_vec();
                if self.in_flight.len() < IN_FLIGHT_MAX {
                    self.in_flight.push_back((1 - from, datagram.clone()));
                }
            }
            while let Some(packet) = self.ends[from].poll_packet() {
                assert!(!self.is_clean || self.sent.contains(&packet.bytes), "whatever comes out went in");
            }
        }
    }
}
