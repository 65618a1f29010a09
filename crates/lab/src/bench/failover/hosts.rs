//! The two hosts of all connections. They send and receive frames past their own stacks, which know nothing of the connections.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use flow::wire::arp::ArpView;
use flow::wire::build::Envelope;
use flow::wire::{Headers, MacAddress, Parsed, Transport, ip_protocol, parse};
use flow::{BATCH_FRAMES_MAX, Disposition, Frame, PacketBatch, PortId, Tuple};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig, TRANSMIT_HEADROOM_BYTES};
use packet_io::namespace::Namespace;

use super::segment::Kind;
use crate::bench::bulk::load_rules;
use crate::bench::{BenchError, port_pairs};
use crate::testbed::topology::{BRIDGE, CLIENT, INSIDE, INTERFACES, OUTSIDE, SERVER, Topology, link_address};
use crate::testbed::watch::Watch;

/// Times that a segment is sent until its connection counts as broken.
const TRIES_MAX: usize = 5;
/// Segments that are not answered, at most: no queue on their way has to hold more.
const UNANSWERED_MAX: usize = 512;
/// When nothing arrives for so long, what is not answered is lost.
const LOST_AFTER: Duration = Duration::from_millis(200);
/// The time between two looks at whether something has arrived.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// The hosts' places in [`Hosts`].
const CLIENT_HOST: usize = 0;
const SERVER_HOST: usize = 1;

/// What connections do at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The client begins the connection, and the server accepts it.
    Handshake,
    /// Data goes either way. The client sends first in exchange 0, which completes the handshake. In the others it does so on
    /// every other connection, and the server on the rest.
    Exchange(u32),
}

impl Step {
    /// The host that sends first on a connection, and what.
    const fn request(self, connection: u32) -> (usize, Kind) {
        match self {
            Self::Handshake => (CLIENT_HOST, Kind::Syn),
            Self::Exchange(0) => (CLIENT_HOST, Kind::Request(0)),
            Self::Exchange(number) => ((connection % 2) as usize, Kind::Request(number)),
        }
    }
}

/// A packet of a connection that has arrived.
struct Arrival {
    tuple: Tuple,
    connection: u32,
    kind: Kind,
}

/// A host on a network with the gateway.
struct Host {
    io: AfPacketIo,
    own_link: MacAddress,
    /// The gateway's address, and its link address as it was announced last.
    gateway: IpAddr,
    gateway_link: MacAddress,
    /// Frames to be sent, with room before each.
    outbox: Vec<Vec<u8>>,
}

impl Host {
    fn open(namespace: &Namespace, gateway: IpAddr, gateway_link: MacAddress) -> Result<Self, BenchError> {
        load_rules(namespace, &silence()).map_err(BenchError::HostsAnswer)?;
        let io = namespace.run(|| AfPacketIo::open(&[PortConfig::new(BRIDGE)]))??;
        Ok(Self { io, own_link: link_address(namespace, BRIDGE)?, gateway, gateway_link, outbox: Vec::new() })
    }

    /// Sends a segment, with the next [`Host::flush`] at the latest.
    fn send(&mut self, tuple: &Tuple, connection: u32, kind: Kind) {
        let envelope = Envelope { source: self.own_link, destination: self.gateway_link, ..Envelope::default() };
        let frame = envelope.tcp(tuple, kind.header(connection), kind.payload());
        self.outbox.push([&[0; TRANSMIT_HEADROOM_BYTES][..], &frame].concat());
        if self.outbox.len() == BATCH_FRAMES_MAX {
            self.flush();
        }
    }

    /// What the kernel does not take is lost, as on a network.
    fn flush(&mut self) {
        let mut batch = PacketBatch::new();
        for buffer in &mut self.outbox {
            let length_bytes = buffer.len() - TRANSMIT_HEADROOM_BYTES;
            let frame = Frame::new(buffer, TRANSMIT_HEADROOM_BYTES, length_bytes, PortId(0));
            batch.extend(frame.map(|mut frame| {
                frame.disposition = Disposition::Transmit(PortId(0));
                frame
            }));
        }
        self.io.transmit_batch(PortId(0), &mut batch);
        drop(batch);
        self.outbox.clear();
    }

    /// Takes what has arrived.
    fn receive(&mut self, arrivals: &mut Vec<Arrival>) {
        let Self { io, gateway, gateway_link, .. } = self;
        let mut take = |batch: &mut PacketBatch<'_>| {
            for frame in batch {
                frame.disposition = Disposition::Consumed;
                match parse(frame) {
                    Ok(Parsed::Ip(Headers { tuple, transport: Transport::Tcp(segment), .. })) => {
                        let known = Kind::of(&segment);
                        arrivals.extend(known.map(|(connection, kind)| Arrival { tuple, connection, kind }));
                    }
                    Ok(Parsed::Arp(offset)) => {
                        let announced = announcement(&frame.bytes()[usize::from(offset)..], *gateway);
                        *gateway_link = announced.unwrap_or(*gateway_link);
                    }
                    _ => {}
                }
            }
        };
        // An interface that fails is noticed by what does not arrive.
        while io.poll(&mut take).is_ok_and(|received| received > 0) {}
    }
}

/// The link address that an ARP packet announces for `address`.
fn announcement(packet: &[u8], address: IpAddr) -> Option<MacAddress> {
    let view = ArpView::new_checked(packet).ok()?;
    (view.is_gratuitous() && address == view.sender_ip()).then(|| view.sender_mac())
}

/// Keeps a host's own stack from resetting connections that it does not know.
fn silence() -> String {
    format!(
        "table netdev hosts {{
            chain arrivals {{
                type filter hook ingress device \"{BRIDGE}\" priority 0; policy accept;
                meta l4proto tcp drop
            }}
        }}"
    )
}

/// What came of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Connections whose packets did not come through, in either direction, however often they were sent.
    pub(super) broken: u32,
    /// When the first packet came through, and when the last answer did.
    pub(super) first_at: Option<Instant>,
    pub(super) last_at: Option<Instant>,
}

/// A step that is being made.
struct Progress {
    step: Step,
    connections: Range<u32>,
    /// By connection, from the first of these on.
    is_answered: Vec<bool>,
    /// Segments that are not answered and not given up.
    underway: usize,
    outcome: Outcome,
}

/// Client and server of all connections.
pub(super) struct Hosts {
    hosts: [Host; 2],
    /// By connection: the port that the gateway translates the client's to.
    outside_ports: Vec<Option<u16>>,
    arrivals: Vec<Arrival>,
}

impl Hosts {
    /// Hosts that use this node of the network until another announces the addresses.
    pub(super) fn open(topology: &Topology, node: usize, connections: u32) -> Result<Self, BenchError> {
        let sides = [(&topology.client, INSIDE[0]), (&topology.server, OUTSIDE[0])];
        let open = |side: usize| {
            let (namespace, gateway) = sides[side];
            Host::open(namespace, gateway, link_address(&topology.nodes[node], INTERFACES[side])?)
        };
        Ok(Self {
            hosts: [open(CLIENT_HOST)?, open(SERVER_HOST)?],
            outside_ports: vec![None; connections as usize],
            arrivals: Vec::new(),
        })
    }

    /// How many connections there are.
    pub(super) const fn connections(&self) -> u32 {
        self.outside_ports.len() as u32
    }

    /// Waits until both hosts have received an announcement of the gateway's addresses by another node than before. False: none came in
    /// time.
    pub(super) fn await_announcement(&mut self, deadline: Instant, watch: &Watch) -> Result<bool, BenchError> {
        let before = self.hosts.each_ref().map(|host| host.gateway_link);
        while self.hosts.iter().zip(before).any(|(host, before)| host.gateway_link == before) {
            if Instant::now() > deadline {
                return Ok(false);
            }
            // Looks for a signal, and does not wait.
            watch.pass_until(Instant::now())?;
            thread::sleep(POLL_INTERVAL);
            self.hosts.iter_mut().for_each(|host| host.receive(&mut self.arrivals));
            self.arrivals.clear();
        }
        Ok(true)
    }

    /// Makes a step on these connections: one packet goes each way. A segment that is not answered is sent again.
    pub(super) fn step(&mut self, step: Step, connections: Range<u32>, watch: &Watch) -> Result<Outcome, BenchError> {
        let is_answered = vec![false; connections.len()];
        let outcome = Outcome { broken: connections.len() as u32, first_at: None, last_at: None };
        let mut progress = Progress { step, connections, is_answered, underway: 0, outcome };
        let mut sent = 0;
        for _ in 0..TRIES_MAX {
            for connection in progress.connections.clone() {
                if progress.is_answered[(connection - progress.connections.start) as usize] {
                    continue;
                }
                let (host, kind) = step.request(connection);
                // Without a port no packet has come through: nothing could be addressed to the connection.
                let Some(tuple) = self.tuple(host, connection) else { continue };
                self.hosts[host].send(&tuple, connection, kind);
                progress.underway += 1;
                sent += 1;
                if sent % BATCH_FRAMES_MAX == 0 {
                    self.await_answers(&mut progress, UNANSWERED_MAX - BATCH_FRAMES_MAX);
                    watch.pass_until(Instant::now())?;
                }
            }
            self.await_answers(&mut progress, 0);
            if progress.outcome.broken == 0 {
                break;
            }
        }
        Ok(progress.outcome)
    }

    /// The tuple of a connection's packets as a host sends them, once it is known.
    fn tuple(&self, host: usize, connection: u32) -> Option<Tuple> {
        let [source, destination] = port_pairs::of(connection);
        let server = SocketAddr::new(SERVER[0], destination);
        Some(if host == CLIENT_HOST {
            Tuple::new(ip_protocol::TCP, SocketAddr::new(CLIENT[0], source), server)
        } else {
            let outside = self.outside_ports[connection as usize]?;
            Tuple::new(ip_protocol::TCP, server, SocketAddr::new(OUTSIDE[0], outside))
        })
    }

    /// Waits until no more than `unanswered_max` segments are not answered, or nothing arrives any more.
    fn await_answers(&mut self, progress: &mut Progress, unanswered_max: usize) {
        let mut since = Instant::now();
        loop {
            self.hosts.iter_mut().for_each(Host::flush);
            if self.take_arrivals(progress) {
                since = Instant::now();
            } else if progress.underway <= unanswered_max {
                return;
            } else if since.elapsed() > LOST_AFTER {
                progress.underway = 0;
                return;
            } else {
                thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Takes what has arrived at both hosts, and answers it. False: nothing has.
    fn take_arrivals(&mut self, progress: &mut Progress) -> bool {
        let mut has_arrived = false;
        let mut arrivals = std::mem::take(&mut self.arrivals);
        for host in [CLIENT_HOST, SERVER_HOST] {
            self.hosts[host].receive(&mut arrivals);
            for arrival in arrivals.drain(..) {
                has_arrived = true;
                self.take(host, &arrival, progress);
            }
        }
        self.arrivals = arrivals;
        has_arrived
    }

    fn take(&mut self, host: usize, arrival: &Arrival, progress: &mut Progress) {
        let Arrival { tuple, connection, kind } = *arrival;
        let Progress { step, connections, is_answered, underway, outcome } = progress;
        if !connections.contains(&connection) {
            return;
        }
        if (host, kind) == (SERVER_HOST, Kind::Syn) {
            self.outside_ports[connection as usize].get_or_insert(tuple.source_port);
        }
        let own = self.tuple(host, connection);
        // Translated otherwise than at its beginning it is not this connection any more.
        if own != Some(tuple.inverse()) {
            return;
        }
        let (_, request) = step.request(connection);
        if kind == request {
            outcome.first_at.get_or_insert_with(Instant::now);
            let answer = kind.answer().zip(own);
            answer.into_iter().for_each(|(answer, own)| self.hosts[host].send(&own, connection, answer));
        } else if Some(kind) == request.answer() {
            let is_answered = &mut is_answered[(connection - connections.start) as usize];
            if !std::mem::replace(is_answered, true) {
                *underway = underway.saturating_sub(1);
                outcome.broken -= 1;
                outcome.last_at = Some(Instant::now());
            }
        }
    }
}
