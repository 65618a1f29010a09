//! Test helpers for all functions: a gateway with a chain and a set of tuples, and packets for it.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashSet;
use std::string::String;
use std::vec;
use std::vec::Vec;

use flow::conntrack::ProtocolState;
use flow::wire::{Headers, IcmpQuery, Packet, SctpPacket, TcpSegment, Transport, ip_protocol};
use flow::{Connection, Direction, DropReason, Frame, Instant, NodeId, PortId, Tuple};

use crate::address::tuple_bytes;
use crate::chain::{Chain, ChainBuilder, ChainCounters, Processed, Runtime, Unwatched};
use crate::expectation::Expectations;
use crate::function::{HandshakeExchange, NetworkFunction, RefusedConnection, TupleUse, Verdict};
use crate::inspect::assembly::Assemblies;
use crate::log::Log;

pub(crate) const INSIDE: PortId = PortId(0);
pub(crate) const OUTSIDE: PortId = PortId(1);
const ECHO_REQUEST_V4: u8 = 8;
const ECHO_REQUEST_V6: u8 = 128;

fn tuple(protocol: u8, source: SocketAddr, destination: SocketAddr) -> Tuple {
    Tuple {
        source: tuple_bytes(source.ip()),
        destination: tuple_bytes(destination.ip()),
        source_port: source.port(),
        destination_port: destination.port(),
        protocol,
        version: if source.is_ipv4() { 4 } else { 6 },
        discriminator: 0,
    }
}

pub(crate) fn tcp(source: &str, destination: &str) -> Tuple {
    tuple(ip_protocol::TCP, source.parse().expect(source), destination.parse().expect(destination))
}

pub(crate) fn udp(source: &str, destination: &str) -> Tuple {
    tuple(ip_protocol::UDP, source.parse().expect(source), destination.parse().expect(destination))
}

pub(crate) fn sctp(source: &str, destination: &str) -> Tuple {
    tuple(ip_protocol::SCTP, source.parse().expect(source), destination.parse().expect(destination))
}

pub(crate) fn portless(protocol: u8, source: &str, destination: &str) -> Tuple {
    let end = |address: &str| SocketAddr::new(address.parse().expect(address), 0);
    tuple(protocol, end(source), end(destination))
}

pub(crate) fn echo(source: &str, destination: &str, identifier: u16) -> Tuple {
    let end = |address: &str| SocketAddr::new(address.parse().expect(address), identifier);
    let (protocol, kind) = match end(source).ip() {
        IpAddr::V4(_) => (ip_protocol::ICMP, ECHO_REQUEST_V4),
        IpAddr::V6(_) => (ip_protocol::ICMPV6, ECHO_REQUEST_V6),
    };
    Tuple { discriminator: kind.into(), ..tuple(protocol, end(source), end(destination)) }
}

fn transport(tuple: &Tuple, direction: Direction) -> Transport {
    let kind = (tuple.discriminator & !flow::QUERY_REPLY) as u8;
    match (tuple.protocol, direction) {
        (ip_protocol::TCP, _) => Transport::Tcp(TcpSegment::default()),
        (ip_protocol::UDP, _) => Transport::Udp,
        (ip_protocol::SCTP, _) => Transport::Sctp(SctpPacket::default()),
        (ip_protocol::ICMP | ip_protocol::ICMPV6, Direction::Original) => {
            Transport::IcmpQuery(IcmpQuery { kind, code: 0, is_reply: false })
        }
        (ip_protocol::ICMP, Direction::Reply) => Transport::IcmpQuery(IcmpQuery { kind: 0, code: 0, is_reply: true }),
        (ip_protocol::ICMPV6, Direction::Reply) => {
            Transport::IcmpQuery(IcmpQuery { kind: 129, code: 0, is_reply: true })
        }
        _ => Transport::Other,
    }
}

/// Calls `with` with a packet of `tuple`, in a frame with the tuple's protocols.
pub(crate) fn with_packet<R>(
    tuple: &Tuple,
    ingress: PortId,
    direction: Direction,
    with: impl FnOnce(&mut Packet<'_, '_>) -> R,
) -> R {
    let (l3, l4) = (14u16, if tuple.version == 4 { 34u16 } else { 54 });
    let transport = transport(tuple, direction);
    let l4_bytes: u16 = match transport {
        Transport::Tcp(_) => 20,
        Transport::Sctp(_) => 12,
        _ => 8,
    };
    let mut bytes = vec![0u8; usize::from(l4 + l4_bytes)];
    let l3_bytes = l4 + l4_bytes - l3;
    let (start, end) = (usize::from(l3), usize::from(l4));
    if tuple.version == 4 {
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[start] = 0x45;
        bytes[start + 2..start + 4].copy_from_slice(&l3_bytes.to_be_bytes());
        (bytes[start + 8], bytes[start + 9]) = (64, tuple.protocol);
        bytes[start + 12..start + 16].copy_from_slice(&tuple.source[12..]);
        bytes[start + 16..start + 20].copy_from_slice(&tuple.destination[12..]);
    } else {
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        bytes[start] = 0x60;
        bytes[start + 4..start + 6].copy_from_slice(&l4_bytes.to_be_bytes());
        (bytes[start + 6], bytes[start + 7]) = (tuple.protocol, 64);
        bytes[start + 8..start + 24].copy_from_slice(&tuple.source);
        bytes[start + 24..start + 40].copy_from_slice(&tuple.destination);
    }
    match transport {
        Transport::Tcp(_) | Transport::Udp | Transport::Sctp(_) => {
            bytes[end..end + 2].copy_from_slice(&tuple.source_port.to_be_bytes());
            bytes[end + 2..end + 4].copy_from_slice(&tuple.destination_port.to_be_bytes());
        }
        Transport::IcmpQuery(query) => {
            bytes[end] = query.kind;
            bytes[end + 4..end + 6].copy_from_slice(&tuple.source_port.to_be_bytes());
        }
        _ => {}
    }
    let mut headers = Headers {
        tuple: *tuple,
        transport,
        l3_offset: l3,
        l4_offset: l4,
        payload_offset: l4 + l4_bytes,
        l3_bytes: l3_bytes.into(),
        ttl: 64,
        is_fragment: false,
    };
    let length_bytes = bytes.len();
    let mut frame = Frame::new(&mut bytes, 0, length_bytes, ingress).expect("the frame is its buffer");
    with(&mut Packet { frame: &mut frame, headers: &mut headers })
}

/// Tuples of existing connections.
#[derive(Default)]
pub(crate) struct Tuples(pub(crate) HashSet<Tuple>);

impl TupleUse for Tuples {
    fn is_used(&self, tuple: &Tuple) -> bool {
        self.0.contains(tuple)
    }
}

/// A connection that began, and the outgoing tuple of its first packet.
pub(crate) struct Begun {
    pub(crate) connection: Connection,
    pub(crate) outgoing: Tuple,
}

/// A chain, and the tuples of the connections that it permitted.
pub(crate) struct Gateway {
    pub(crate) chain: Chain,
    pub(crate) counters: ChainCounters,
    pub(crate) log: Log,
    pub(crate) tuples: Tuples,
    pub(crate) expectations: Expectations,
    pub(crate) assemblies: Assemblies,
    /// Whether the last packet's connection was refused by [`Gateway::process`].
    pub(crate) refused: Option<RefusedConnection>,
    pub(crate) now: Instant,
}

impl Gateway {
    pub(crate) fn of(chain: Chain) -> Self {
        Self {
            counters: chain.new_counters(),
            chain,
            log: Log::default(),
            tuples: Tuples::default(),
            expectations: Expectations::default(),
            assemblies: Assemblies::default(),
            refused: None,
            now: Instant::ZERO,
        }
    }

    pub(crate) fn with(function: impl NetworkFunction + Send + Sync + 'static) -> Self {
        Self::of(ChainBuilder::new().push(function).build().expect("one function"))
    }

    /// Processes the first packet of a connection.
    pub(crate) fn begin(&mut self, ingress: PortId, tuple: Tuple) -> Result<Begun, DropReason> {
        let mut connection = Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
        let before = connection;
        let result = with_packet(&tuple, ingress, Direction::Original, |packet| {
            let mut runtime =
                runtime(self.now, &mut self.counters, &mut self.log, &mut self.assemblies, &mut self.expectations);
            self.chain.init(&mut runtime, &self.tuples, &mut connection, packet)
        });
        if result.is_err() {
            assert_eq!((connection.reply, connection.functions), (before.reply, before.functions));
        }
        result?;
        self.tuples.0.extend([connection.original, connection.reply]);
        self.chain.note_entered(&connection);
        let (processed, outgoing) = self.pass(&mut connection, ingress, Direction::Original);
        assert_eq!(processed.verdict, Verdict::Forward);
        Ok(Begun { connection, outgoing })
    }

    /// Begins a connection with this packet, without processing it.
    pub(crate) fn begin_with(
        &mut self,
        connection: &mut Connection,
        packet: &Packet<'_, '_>,
    ) -> Result<(), DropReason> {
        let mut runtime =
            runtime(self.now, &mut self.counters, &mut self.log, &mut self.assemblies, &mut self.expectations);
        self.chain.init(&mut runtime, &self.tuples, connection, packet)
    }

    /// Processes a packet of a connection; returns the verdict, and its tuple afterwards.
    pub(crate) fn pass(
        &mut self,
        connection: &mut Connection,
        ingress: PortId,
        direction: Direction,
    ) -> (Processed, Tuple) {
        let tuple = *connection.tuple(direction);
        with_packet(&tuple, ingress, direction, |packet| {
            let processed = self.process(connection, packet, direction);
            (processed, packet.headers.tuple)
        })
    }

    /// Processes this packet of a connection.
    pub(crate) fn process(
        &mut self,
        connection: &mut Connection,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Processed {
        let mut runtime =
            runtime(self.now, &mut self.counters, &mut self.log, &mut self.assemblies, &mut self.expectations);
        let processed = self.chain.process(&mut runtime, connection, packet, direction);
        self.refused = runtime.handshake.refused;
        processed
    }

    /// As [`Gateway::process`], with every function called.
    pub(crate) fn process_by_calls(
        &mut self,
        connection: &mut Connection,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Processed {
        let mut runtime =
            runtime(self.now, &mut self.counters, &mut self.log, &mut self.assemblies, &mut self.expectations);
        self.chain.process_watched(&mut runtime, connection, packet, direction, &mut Unwatched)
    }

    /// The tuple with which a reply of the connection leaves.
    pub(crate) fn answer(&mut self, begun: &mut Begun) -> Tuple {
        let (processed, outgoing) = self.pass(&mut begun.connection, OUTSIDE, Direction::Reply);
        assert_eq!(processed.verdict, Verdict::Forward);
        outgoing
    }

    /// The value of a counter.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let names: Vec<&String> = self.chain.counter_names().iter().collect();
        let index = names.iter().position(|known| *known == name).expect(name);
        self.counters.values()[index]
    }
}

fn runtime<'a>(
    now: Instant,
    counters: &'a mut ChainCounters,
    log: &'a mut Log,
    assemblies: &'a mut Assemblies,
    expectations: &'a mut Expectations,
) -> Runtime<'a> {
    Runtime { now, node: NodeId(0), counters, log, assemblies, expectations, handshake: HandshakeExchange::NONE }
}
