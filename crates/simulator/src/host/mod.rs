//! A simulated host: clients inside, servers outside (or the other way round), exchanging real frames.

mod neighbours;
mod sender;
pub(crate) mod tcp;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::icmpv6::{self, NeighbourMessage, advertisement_flags};
use flow::wire::{self, Headers, Parsed, TcpSegment, Transport, build, ip_protocol, tcp_flags};
use flow::{Frame, Instant, PortId, Tuple};

use crate::random::Random;
use crate::scenario::{Kind, Transfer};
use crate::topology::{HostConfig, SERVICE_PORT};
use neighbours::Neighbours;
use tcp::{Endpoint, WindowConfig};

const ECHO_MARK: &[u8; 4] = b"MSTY";

/// A transfer of requests and replies (UDP or echo) at its client: it continues until enough were answered.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) transfer: Transfer,
    pub(crate) tuple: Tuple,
    next_at: Instant,
    sent: u32,
    answers: u32,
    /// When the first reply arrived.
    pub(crate) first_reply_at: Option<Instant>,
    /// When the last reply arrived.
    pub(crate) last_reply_at: Option<Instant>,
}

impl Exchange {
    /// Whether enough requests were answered.
    pub(crate) fn is_over(&self) -> bool {
        self.answers >= self.transfer.requests
    }
}

/// The server's view of a transfer of requests and replies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SeenPeer {
    /// The source addresses of requests, with the time of the first.
    pub(crate) addresses: Vec<(SocketAddr, Instant)>,
}

/// A simulated host.
#[derive(Debug)]
pub(crate) struct Host {
    config: HostConfig,
    neighbours: Neighbours,
    random: Random,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) seen_peers: BTreeMap<u32, SeenPeer>,
    /// Requests and replies whose content differs from the one sent.
    pub(crate) wrong_content: Vec<u32>,
    /// Frames that were damaged in transit.
    pub(crate) damaged: u64,
}

impl Host {
    pub(crate) const fn new(config: HostConfig, random: Random) -> Self {
        Self {
            config,
            neighbours: Neighbours::new(config.mac),
            random,
            endpoints: Vec::new(),
            exchanges: Vec::new(),
            seen_peers: BTreeMap::new(),
            wrong_content: Vec::new(),
            damaged: 0,
        }
    }

    pub(crate) const fn address(&self, is_ipv6: bool) -> IpAddr {
        if is_ipv6 { IpAddr::V6(self.config.v6) } else { IpAddr::V4(self.config.v4) }
    }

    /// A transfer of requests and replies of which this host is the client.
    pub(crate) fn exchange(&self, number: u32) -> Option<&Exchange> {
        self.exchanges.iter().find(|exchange| exchange.transfer.number == number)
    }

    /// Begins a transfer as its client.
    pub(crate) fn begin(&mut self, now: Instant, transfer: Transfer, out: &mut Vec<Vec<u8>>) {
        let port = 10_000 + transfer.number as u16;
        let local = SocketAddr::new(self.address(transfer.target.is_ipv6()), port);
        let tuple = match transfer.kind {
            Kind::Tcp => Tuple::new(ip_protocol::TCP, local, transfer.target),
            Kind::Udp => Tuple::new(ip_protocol::UDP, local, transfer.target),
            Kind::Echo => Tuple::echo(local.ip(), transfer.target.ip(), port),
        };
        if transfer.kind == Kind::Tcp {
            let initial_sequence = self.initial_sequence();
            self.endpoints.push(Endpoint::connect(now, tuple, transfer, initial_sequence));
        } else {
            let exchange = Exchange {
                transfer,
                tuple,
                next_at: now,
                sent: 0,
                answers: 0,
                first_reply_at: None,
                last_reply_at: None,
            };
            self.exchanges.push(exchange);
        }
        self.handle_timeout(now, out);
    }

    /// One in four begins just before the sequence numbers wrap around.
    fn initial_sequence(&mut self) -> u32 {
        let any = self.random.next() as u32;
        if self.random.chance(250) { u32::MAX - any % 20_000 } else { any }
    }

    /// Processes a frame from the link; appends the resulting frames.
    pub(crate) fn handle_frame(&mut self, now: Instant, bytes: &mut [u8], out: &mut Vec<Vec<u8>>) {
        let length_bytes = bytes.len();
        let Some(frame) = Frame::new(bytes, 0, length_bytes, PortId(0)) else { return };
        match wire::parse(&frame) {
            Ok(Parsed::Arp(offset)) => self.handle_arp(now, &frame.bytes()[usize::from(offset)..], out),
            Ok(Parsed::Ip(headers)) => self.handle_packet(now, &headers, frame.bytes(), out),
            Err(_) => self.damaged += 1,
        }
    }

    fn handle_arp(&mut self, now: Instant, packet: &[u8], out: &mut Vec<Vec<u8>>) {
        let Ok(arp) = ArpView::new_checked(packet) else { return };
        let is_for_us = arp.target_ip() == self.config.v4;
        if arp.is_gratuitous() || is_for_us {
            self.neighbours.learn(now, arp.sender_ip().into(), arp.sender_mac(), out);
        }
        if is_for_us && arp.operation() == ArpOperation::Request {
            let target = (arp.sender_mac(), arp.sender_ip());
            out.push(build::arp_reply(self.config.mac, self.config.v4, target));
        }
    }

    fn handle_packet(&mut self, now: Instant, headers: &Headers, frame: &[u8], out: &mut Vec<Vec<u8>>) {
        let payload = frame.get(usize::from(headers.payload_offset)..headers.l3_end()).unwrap_or_default();
        let tuple = headers.tuple;
        if let Transport::IcmpOther(..) = headers.transport
            && headers.ttl == icmpv6::NEIGHBOUR_HOP_LIMIT
        {
            return self.handle_discovery(now, headers, frame, out);
        }
        if tuple.destination_ip() != self.address(tuple.version == 6) {
            return;
        }
        match headers.transport {
            Transport::Tcp(segment) => self.handle_segment(now, &tuple, &segment, payload, out),
            Transport::Udp if tuple.destination_port == SERVICE_PORT => {
                self.note_request(now, tuple.source_addr(), payload);
                let frame = build::udp(&tuple.inverse(), payload);
                self.send(now, frame, tuple.source_ip(), out);
            }
            Transport::Udp => self.handle_reply(now, &tuple, payload),
            Transport::IcmpQuery(query) if query.is_reply => self.handle_reply(now, &tuple, payload),
            Transport::IcmpQuery(_) => self.answer_echo(now, headers, frame, payload, out),
            Transport::IcmpError(_) | Transport::IcmpOther(..) | Transport::Sctp(_) | Transport::Other => {}
        }
    }

    fn handle_discovery(&mut self, now: Instant, headers: &Headers, frame: &[u8], out: &mut Vec<Vec<u8>>) {
        let message = frame.get(usize::from(headers.l4_offset)..headers.l3_end()).unwrap_or_default();
        let Ok(Some(message)) = NeighbourMessage::parse(message) else { return };
        let IpAddr::V6(source) = headers.tuple.source_ip() else { return };
        if message.is_advertisement {
            if let Some(mac) = message.link_address {
                self.neighbours.learn(now, message.target.into(), mac, out);
            }
        } else if message.target == self.config.v6
            && let Some(mac) = message.link_address
        {
            let flags = advertisement_flags::SOLICITED | advertisement_flags::OVERRIDE;
            out.push(build::neighbour_advertisement(self.config.mac, self.config.v6, (mac, source), flags));
        }
    }

    fn answer_echo(&mut self, now: Instant, headers: &Headers, frame: &[u8], payload: &[u8], out: &mut Vec<Vec<u8>>) {
        let tuple = headers.tuple;
        let at = usize::from(headers.l4_offset) + 6;
        let Some(&[high, low]) = frame.get(at..at + 2) else { return };
        self.note_request(now, tuple.source_addr(), payload);
        let echo = build::Echo { is_reply: true, sequence: u16::from_be_bytes([high, low]) };
        let answer = build::echo(&tuple.inverse(), echo, payload);
        self.send(now, answer, tuple.source_ip(), out);
    }

    /// Records the source address of a transfer's requests.
    fn note_request(&mut self, now: Instant, from: SocketAddr, payload: &[u8]) {
        let Some((number, _)) = read_echo(payload) else {
            self.wrong_content.push(u32::MAX);
            return;
        };
        let seen = self.seen_peers.entry(number).or_default();
        if seen.addresses.last().is_none_or(|(address, _)| *address != from) {
            seen.addresses.push((from, now));
        }
    }

    fn handle_reply(&mut self, now: Instant, tuple: &Tuple, payload: &[u8]) {
        let Some(exchange) = self.exchanges.iter_mut().find(|exchange| exchange.tuple == tuple.inverse()) else {
            return;
        };
        let number = exchange.transfer.number;
        match read_echo(payload) {
            Some((named, index)) if named == number && index < exchange.sent => {
                exchange.answers += 1;
                exchange.first_reply_at = exchange.first_reply_at.or(Some(now));
                exchange.last_reply_at = Some(now);
            }
            _ => self.wrong_content.push(number),
        }
    }

    fn handle_segment(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &TcpSegment,
        payload: &[u8],
        out: &mut Vec<Vec<u8>>,
    ) {
        let ours = tuple.inverse();
        self.endpoints.retain(|endpoint| !endpoint.has_given_up);
        let is_request = segment.flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST) == tcp_flags::SYN
            && tuple.destination_port == SERVICE_PORT;
        // Ends that are over stay for the checkers; a later connection may have the same addresses and ports.
        let is_it =
            |endpoint: &Endpoint| endpoint.tuple == ours && !(is_request && endpoint.may_be_followed_by(segment));
        let index = match self.endpoints.iter().rposition(is_it) {
            Some(index) => index,
            None if is_request => {
                let window = WindowConfig { bytes: 1 << self.random.between(14, 18), shift: 3 };
                let initial = self.initial_sequence();
                self.endpoints.push(Endpoint::accept(now, ours, segment, window, initial));
                self.endpoints.len() - 1
            }
            None => return self.refuse(now, &ours, segment, out),
        };
        self.endpoints[index].handle_segment(now, segment, payload);
        self.transmit(now, index, out);
    }

    /// RFC 9293 section 3.10.7.1: a segment of no connection is answered with RST.
    fn refuse(&mut self, now: Instant, ours: &Tuple, segment: &TcpSegment, out: &mut Vec<Vec<u8>>) {
        if segment.has(tcp_flags::RST) {
            return;
        }
        let header = if segment.has(tcp_flags::ACK) {
            build::Tcp { flags: tcp_flags::RST, sequence: segment.acknowledgement, ..build::Tcp::default() }
        } else {
            let flags = tcp_flags::RST | tcp_flags::ACK;
            build::Tcp { flags, acknowledgement: segment.end(), ..build::Tcp::default() }
        };
        let frame = build::tcp(ours, header, &[]);
        self.send(now, frame, ours.destination_ip(), out);
    }

    /// Assigns data to server ends that have identified their transfer.
    pub(crate) fn recognise(&mut self, now: Instant, transfers: &[Transfer], out: &mut Vec<Vec<u8>>) {
        for index in 0..self.endpoints.len() {
            let Some(number) = self.endpoints[index].named_transfer() else { continue };
            if let Some(transfer) = transfers.iter().find(|known| known.number == number) {
                self.endpoints[index].recognise(now, transfer.clone());
                self.transmit(now, index, out);
            }
        }
    }

    /// Does the work due by `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        let sources = [self.address(false), self.address(true)];
        self.neighbours.handle_timeout(now, sources, out);
        for index in 0..self.endpoints.len() {
            self.transmit(now, index, out);
        }
        for index in 0..self.exchanges.len() {
            self.request(now, index, out);
        }
    }

    fn request(&mut self, now: Instant, index: usize, out: &mut Vec<Vec<u8>>) {
        let exchange = &mut self.exchanges[index];
        if exchange.next_at > now || exchange.is_over() {
            return;
        }
        let (number, sequence) = (exchange.transfer.number, exchange.sent);
        exchange.sent += 1;
        exchange.next_at = now + exchange.transfer.interval;
        let tuple = exchange.tuple;
        let payload = echo_payload(number, sequence);
        let frame = if exchange.transfer.kind == Kind::Udp {
            build::udp(&tuple, &payload)
        } else {
            build::echo(&tuple, build::Echo { is_reply: false, sequence: sequence as u16 }, &payload)
        };
        self.send(now, frame, tuple.destination_ip(), out);
    }

    /// The time of the host's next timeout.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let endpoints = self.endpoints.iter().filter_map(|endpoint| endpoint.poll_timeout(now));
        let exchanges = self.exchanges.iter().filter(|exchange| !exchange.is_over());
        endpoints.chain(exchanges.map(|exchange| exchange.next_at)).chain(self.neighbours.poll_timeout()).min()
    }

    fn transmit(&mut self, now: Instant, index: usize, out: &mut Vec<Vec<u8>>) {
        let mut segments = Vec::new();
        self.endpoints[index].poll_transmit(now, &mut segments);
        let tuple = self.endpoints[index].tuple;
        for segment in segments {
            let frame = build::tcp(&tuple, segment.header, &segment.payload);
            self.send(now, frame, tuple.destination_ip(), out);
        }
    }

    fn send(&mut self, now: Instant, frame: Vec<u8>, to: IpAddr, out: &mut Vec<Vec<u8>>) {
        let (from, next_hop) = match to {
            IpAddr::V4(to) => {
                let is_near = to.octets()[..3] == self.config.v4.octets()[..3];
                (IpAddr::V4(self.config.v4), IpAddr::V4(if is_near { to } else { self.config.gateway_v4 }))
            }
            IpAddr::V6(to) => {
                let is_near = to.segments()[..4] == self.config.v6.segments()[..4];
                (IpAddr::V6(self.config.v6), IpAddr::V6(if is_near { to } else { self.config.gateway_v6 }))
            }
        };
        self.neighbours.send(now, from, next_hop, frame, out);
    }
}

fn echo_payload(number: u32, sequence: u32) -> Vec<u8> {
    let mut payload = ECHO_MARK.to_vec();
    payload.extend_from_slice(&number.to_be_bytes());
    payload.extend_from_slice(&sequence.to_be_bytes());
    payload
}

fn read_echo(payload: &[u8]) -> Option<(u32, u32)> {
    let rest = payload.strip_prefix(ECHO_MARK)?;
    let (number, rest) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), u32::from_be_bytes(*rest.first_chunk()?)))
}
