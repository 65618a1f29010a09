//! First bytes of connections through the parsers that functions inspect them with: an ordinary packet of each, and the one that costs most.
//!
//! The costly packet comes late in a stream of its like, so that a cost which grows with what was already read shows.

use std::hint::black_box;
use std::num::NonZeroU8;
use std::time::Duration;

use flow::conntrack::ProtocolState;
use flow::wire::{Packet, Parsed, build, ip_protocol, parse, tcp_flags};
use flow::{Connection, Direction, Frame, Instant, IpFamily, PortId, Tuple};
use network_functions::chain::{Chain, ChainBuilder, ChainCounters, Runtime};
use network_functions::expectation::Expectations;
use network_functions::ftp::{Ftp, FtpConfig};
use network_functions::function::{HandshakeExchange, TupleUse, Verdict};
use network_functions::inspect::assembly::{ASSEMBLY_BYTES_MAX, Assemblies, StreamKey};
use network_functions::inspect::quic::decryption::{PIECES_MAX, client_initial, client_initial_bytes};
use network_functions::inspect::{Inspected, dns, protocol, quic, tls};
use network_functions::log::Log;
use network_functions::port_range::PortRange;

use super::operation::{Made, Operation};
use crate::bench::BenchError;
use crate::bench::pipeline::setting::{HASH_KEY, NODES, original};

/// Connections of a run.
const CONNECTIONS: u32 = 64;
/// The payload of a full segment.
const SEGMENT_BYTES: usize = 1448;
/// Under which attribute the streams are held.
const READER: u16 = 1;
const FTP_PORT: u16 = 21;

/// Work on a state that is made anew for each run.
struct Afresh<S, M, W> {
    make: M,
    state: S,
    /// Returns how often it failed.
    work: W,
}

impl<S: 'static, M: Fn() -> S + 'static, W: FnMut(&mut S) -> u64 + 'static> Afresh<S, M, W> {
    fn operation(make: M, work: W) -> Made {
        let state = make();
        Ok(Some(Box::new(Self { make, state, work })))
    }
}

impl<S, M: Fn() -> S, W: FnMut(&mut S) -> u64> Operation for Afresh<S, M, W> {
    fn times(&self) -> u64 {
        u64::from(CONNECTIONS)
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        self.state = (self.make)();
        Ok(())
    }

    fn run(&mut self) -> Result<(), BenchError> {
        match (self.work)(&mut self.state) {
            0 => Ok(()),
            lost => Err(BenchError::Lost { what: "the parsers", lost, packets: u64::from(CONNECTIONS) }),
        }
    }
}

fn tuples(protocol: u8) -> Vec<Tuple> {
    (0..CONNECTIONS).map(|number| original(IpFamily::V4, protocol, number)).collect()
}

/// A segment of each stream.
fn read_segment(assemblies: &mut Assemblies, tuples: &[Tuple], offset: usize, segment: &[u8], is_settled: bool) -> u64 {
    let fails = |tuple: &&Tuple| {
        let Ok(held) = assemblies.insert(&StreamKey::new(READER, tuple), 0, offset, segment) else { return true };
        black_box(protocol::of_client(held.prefix, held.progress)).is_settled() != is_settled
    };
    tuples.iter().filter(fails).count() as u64
}

/// The last whole segment of a stream that fits what is held, behind the others.
fn stream(bytes: Vec<u8>) -> Made {
    let is_settled = bytes.len() <= SEGMENT_BYTES;
    let before_bytes = if is_settled { 0 } else { ASSEMBLY_BYTES_MAX / SEGMENT_BYTES * SEGMENT_BYTES - SEGMENT_BYTES };
    let tuples = tuples(ip_protocol::TCP);
    let (before, segment) = (bytes[..before_bytes].to_vec(), bytes[before_bytes..].to_vec());
    let segment = segment[..segment.len().min(SEGMENT_BYTES)].to_vec();
    let held = tuples.clone();
    let make = move || {
        let mut assemblies = Assemblies::default();
        for (number, part) in before.chunks(SEGMENT_BYTES).enumerate() {
            read_segment(&mut assemblies, &held, number * SEGMENT_BYTES, part, false);
        }
        assemblies
    };
    Afresh::operation(make, move |assemblies| read_segment(assemblies, &tuples, before_bytes, &segment, is_settled))
}

fn hello(key_share_bytes: usize) -> Vec<u8> {
    let key_share = vec![7; key_share_bytes];
    tls::client_hello_bytes(&[(51, &key_share), (0, &tls::server_name_bytes("www.example.org"))])
}

/// A browser's ClientHello in one record.
pub(super) fn tls_ordinary() -> Made {
    stream(tls::in_records(&hello(1100), 1 << 14))
}

/// Records of one byte, in which extensions without a value lie.
pub(super) fn tls_worst() -> Made {
    let extensions = vec![(1, &b""[..]); 4000];
    stream(tls::in_records(&tls::client_hello_bytes(&extensions), 1))
}

/// A browser's request.
pub(super) fn http_ordinary() -> Made {
    let fields = format!("User-Agent: {}\r\nAccept: */*\r\nHost: www.example.org\r\n\r\n", "x".repeat(120));
    stream(format!("GET /index.html HTTP/1.1\r\n{fields}").into_bytes())
}

/// Fields of two bytes, none of which is the host.
pub(super) fn http_worst() -> Made {
    stream([&b"GET / HTTP/1.1\n"[..], &b"a:\n".repeat(4000)].concat())
}

/// A datagram of each connection of QUIC.
fn datagram(pieces: &[(usize, &[u8])], is_settled: bool) -> Made {
    let datagram = client_initial_bytes(quic::Version::V1, &[1, 2, 3, 4, 5, 6, 7, 8], 0, pieces).expect("it fits");
    let tuples = tuples(ip_protocol::UDP);
    Afresh::operation(Assemblies::default, move |assemblies| {
        let fails = |tuple: &&Tuple| {
            let Inspected::Found(initial) = client_initial(&datagram) else { return true };
            let stream = StreamKey::new(READER, tuple).of_connection(initial.connection);
            black_box(quic::client_hello(assemblies, &stream, &initial)).is_settled() != is_settled
        };
        tuples.iter().filter(fails).count() as u64
    })
}

pub(super) fn quic_ordinary() -> Made {
    datagram(&[(0, &hello(800))], true)
}

/// As many pieces as are read, in reverse order, and never the whole.
pub(super) fn quic_worst() -> Made {
    let hello = hello(1100);
    let pieces: Vec<(usize, &[u8])> =
        hello.chunks(24).take(PIECES_MAX).enumerate().map(|(at, it)| (at * 24, it)).collect();
    datagram(&pieces.into_iter().rev().collect::<Vec<_>>(), false)
}

/// A question for a name.
fn question(labels: &[&[u8]]) -> Made {
    let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in labels {
        message.push(label.len() as u8);
        message.extend_from_slice(label);
    }
    message.extend([0, 0, 1, 0, 1]);
    let read = move |(): &mut ()| {
        let fails = |_: &u32| black_box(dns::question(&message)).found().is_none();
        (0..CONNECTIONS).filter(fails).count() as u64
    };
    Afresh::operation(|| (), read)
}

pub(super) fn dns_ordinary() -> Made {
    question(&[b"www", b"example", b"org"])
}

/// As many labels as a name has room for.
pub(super) fn dns_worst() -> Made {
    question(&[&b"a"[..]; 127])
}

/// FTP control connections through the helper.
struct Control {
    chain: Chain,
    counters: ChainCounters,
    log: Log,
    assemblies: Assemblies,
    expectations: Expectations,
    connections: Vec<Connection>,
}

/// No tuple is in use.
struct Free;

impl TupleUse for Free {
    fn is_used(&self, _: &Tuple) -> bool {
        false
    }
}

impl Control {
    fn new() -> Self {
        let config = FtpConfig {
            control_ports: vec![PortRange::single(FTP_PORT)],
            loose: false,
            privileged_ports: false,
            timeout: Duration::from_secs(300),
            ports: PortRange::new(1024, u16::MAX).expect("in order"),
            node: NODES[0],
            nodes: NonZeroU8::MIN,
            key: HASH_KEY,
        };
        let ftp = Ftp::new(config).expect("one node has all ports");
        let chain = ChainBuilder::new().push(ftp).build().expect("one function");
        let counters = chain.new_counters();
        let connections = tuples(ip_protocol::TCP).into_iter().map(|tuple| {
            let tuple = Tuple { destination_port: FTP_PORT, ..tuple };
            Connection::new(tuple, NODES[0], ProtocolState::default(), Instant::FAR_FUTURE)
        });
        let mut control = Self {
            connections: connections.collect(),
            chain,
            counters,
            log: Log::default(),
            assemblies: Assemblies::default(),
            expectations: Expectations::default(),
        };
        control.pass(Direction::Original, tcp_flags::SYN, 0, b"");
        control.pass(Direction::Reply, tcp_flags::SYN | tcp_flags::ACK, 0, b"");
        control
    }

    /// A segment of each connection. Returns how many did not pass.
    fn pass(&mut self, direction: Direction, flags: u8, sequence: u32, payload: &[u8]) -> u64 {
        let Self { chain, counters, log, assemblies, expectations, connections } = self;
        let mut lost = 0;
        for connection in connections {
            let segment = build::Tcp { flags, sequence, acknowledgement: 1, ..build::Tcp::default() };
            let mut bytes = build::tcp(connection.tuple(direction), segment, payload);
            let length_bytes = bytes.len();
            let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).expect("it is in the buffer");
            let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { return u64::MAX };
            let mut runtime = Runtime {
                now: Instant::ZERO,
                node: NODES[0],
                counters: &mut *counters,
                log: &mut *log,
                assemblies: &mut *assemblies,
                expectations: &mut *expectations,
                handshake: HandshakeExchange::NONE,
            };
            let mut packet = Packet { frame: &mut frame, headers: &mut headers };
            let is_first = direction == Direction::Original && flags == tcp_flags::SYN;
            let began = !is_first || chain.init(&mut runtime, &Free, connection, &packet).is_ok();
            let passed = chain.process(&mut runtime, connection, &mut packet, direction).verdict;
            lost += u64::from(!began || passed != Verdict::Forward);
        }
        lost
    }
}

fn ftp(commands: Vec<u8>) -> Made {
    Afresh::operation(Control::new, move |control| control.pass(Direction::Original, tcp_flags::ACK, 1, &commands))
}

pub(super) fn ftp_ordinary() -> Made {
    ftp(b"RETR file.txt\r\n".to_vec())
}

/// Commands of one line each.
pub(super) fn ftp_worst() -> Made {
    ftp(b"PASV\n".repeat(SEGMENT_BYTES / 5))
}
