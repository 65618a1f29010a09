//! The kernel's own TCP through the fast path, translated in both addresses and both ports, checked byte by byte.
//!
//! The gateway's kernel translates handshakes and ends (nftables). A packet socket watches the handshake and the tracker of `flow`
//! follows it; then the connection is installed, and its data goes through the fast path.

mod common;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Network, PATIENCE, PORTS, address};
use fast_path::{Config, FastPath, Hook, Outcome, Plan};
use flow::conntrack::Tracker;
use flow::wire::{self, Headers, Parsed, Transport, checksum};
use flow::{Checksum, Connection, Direction, Disposition, Frame, NodeId, Tuple};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::interface::{Offload, set_offload};
use packet_io::poller::{Poller, Token};
use packet_io::sysctl;

/// Bytes sent in each direction over a connection.
const TRANSFER_BYTES: usize = 8 << 20;
/// How often a transfer is tried.
const ATTEMPTS: usize = 10;
/// The port that the client connects to, at the gateway, and that of the server.
const PUBLIC_PORT: u16 = 80;
const SERVER_PORT: u16 = 8080;
const RULES: &str = "table inet translation {
    chain in {
        type nat hook prerouting priority dstnat; policy accept;
        ip daddr 10.1.0.1 tcp dport 80 dnat ip to 10.2.0.2:8080
        ip6 daddr fd01::1 tcp dport 80 dnat ip6 to [fd02::2]:8080
    }
    chain out {
        type nat hook postrouting priority srcnat; policy accept;
        ip daddr 10.2.0.2 tcp dport 8080 snat ip to 10.2.0.1:20000-20999
        ip6 daddr fd02::2 tcp dport 8080 snat ip6 to [fd02::1]:20000-20999
    }
}";

/// The byte at `position` of a transfer.
fn pattern(position: usize) -> u8 {
    (position.wrapping_mul(2_654_435_761) >> 11) as u8
}

fn send_pattern(stream: &mut TcpStream) {
    let bytes: Vec<u8> = (0..TRANSFER_BYTES).map(pattern).collect();
    stream.write_all(&bytes).unwrap();
}

fn expect_pattern(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = vec![0; TRANSFER_BYTES];
    stream.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().enumerate().all(|(position, byte)| *byte == pattern(position)), "bytes were changed");
}

/// A network whose gateway translates in the kernel. `None`, with a message, where something is missing.
fn network() -> Option<Network> {
    let network = Network::new()?;
    let is_ready = network.gateway.run(|| {
        sysctl::write("net/ipv4/ip_forward", "1").unwrap();
        sysctl::write("net/ipv6/conf/all/forwarding", "1").unwrap();
        let mut command = Command::new("nft");
        command.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return false };
        child.stdin.take().unwrap().write_all(RULES.as_bytes()).unwrap();
        // The kernel's tracking does not see the data, so its windows are too old for the end.
        child.wait().unwrap().success() && sysctl::write("net/netfilter/nf_conntrack_tcp_be_liberal", "1").is_ok()
    });
    if !is_ready.unwrap() {
        packet_io::namespace::skip("nft is not there, or this kernel takes no translating rules");
        return None;
    }
    Some(network)
}

/// Follows a handshake on both interfaces of the gateway with a packet socket.
struct Handshake {
    io: AfPacketIo,
    tracker: Tracker,
    connection: Option<Connection>,
    /// Headers not followed yet, by interface: of two interfaces the order is unknown.
    waiting: [VecDeque<Headers>; 2],
}

impl Handshake {
    fn watch(network: &Network) -> Self {
        let open = || AfPacketIo::open(&PORTS.map(PortConfig::new)).unwrap();
        let io = network.gateway.run(open).unwrap();
        Self { io, tracker: Tracker::default(), connection: None, waiting: Default::default() }
    }

    /// The connection once both sides are known and have acknowledged all.
    fn finish(mut self) -> Connection {
        let begin = Instant::now();
        loop {
            assert!(begin.elapsed() < PATIENCE, "the handshake does not end: {:?}", self.connection);
            let waiting = &mut self.waiting;
            let received = self.io.poll(&mut |batch| {
                for frame in batch {
                    frame.disposition = Disposition::Consumed;
                    match wire::parse(frame) {
                        Ok(Parsed::Ip(headers)) if matches!(headers.transport, Transport::Tcp(_)) => {
                            waiting[usize::from(frame.ingress.0)].push_back(headers);
                        }
                        _ => {}
                    }
                }
            });
            received.unwrap();
            while [0, 1].into_iter().any(|port| self.follow(port)) {}
            let is_plain = |connection: &Connection| Plan::of(connection, [1; 2], [0; 2]).is_some();
            if let Some(connection) = self.connection.filter(is_plain) {
                // A byte went each way, so each side has acknowledged one beside the SYN.
                let peers = connection.protocol.peers;
                if peers[0].acknowledged_max == peers[1].end && peers[1].acknowledged_max == peers[0].end {
                    return connection;
                }
            }
        }
    }

    /// Follows the next segment of an interface, if the tracker takes it: else the other interface's comes first.
    fn follow(&mut self, port: usize) -> bool {
        let Some(headers) = self.waiting[port].front() else { return false };
        let now = fast_path::now();
        let is_taken = match &mut self.connection {
            None => {
                let begun = (port == 0).then(|| self.tracker.begin(headers).unwrap());
                self.connection = begun.map(|(state, _)| Connection::new(headers.tuple, NodeId(0), state, now));
                self.connection.is_some()
            }
            Some(connection) => {
                let direction = if port == 0 { Direction::Original } else { Direction::Reply };
                if direction == Direction::Reply {
                    connection.reply = headers.tuple;
                }
                let (state, flags) = (&mut connection.protocol, &mut connection.flags);
                self.tracker.advance(now, state, flags, direction, headers).verdict.is_ok()
            }
        };
        if is_taken {
            self.waiting[port].pop_front();
        }
        is_taken
    }
}

/// What a packet socket at a receiving host saw.
#[derive(Default, Debug)]
struct Capture {
    whole: u32,
    partial: u32,
    largest_bytes: usize,
}

/// Verifies the checksums of all TCP segments that come in on the host's interface, until stopped.
fn verify_checksums(namespace: &packet_io::namespace::Namespace, stop: &AtomicBool) -> Capture {
    let mut io = namespace.run(|| AfPacketIo::open(&[PortConfig::new("host")]).unwrap()).unwrap();
    let poller = Poller::new().unwrap();
    io.descriptors().into_iter().for_each(|descriptor| poller.add(descriptor, Token(0)).unwrap());
    let (mut capture, mut events) = (Capture::default(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let received = io.poll(&mut |batch| {
            for frame in batch {
                frame.disposition = Disposition::Consumed;
                capture.verify(frame);
            }
        });
        if received.unwrap() == 0 {
            poller.wait(&mut events, Some(Duration::from_millis(20))).unwrap();
        }
    }
    capture
}

impl Capture {
    fn verify(&mut self, frame: &mut Frame<'_>) {
        let state = frame.checksum;
        // A checksum that was verified or that is whole is verified again.
        if !matches!(state, Checksum::Partial { .. }) {
            frame.checksum = Checksum::Unverified;
        }
        let headers = match wire::parse(frame) {
            Ok(Parsed::Ip(headers)) if matches!(headers.transport, Transport::Tcp(_)) => headers,
            Ok(_) => return,
            Err(reason) => panic!("the host received a wrong frame: {reason:?}, {:02x?}", frame.bytes()),
        };
        self.largest_bytes = self.largest_bytes.max(frame.bytes().len());
        let Checksum::Partial { start, offset } = state else {
            self.whole += 1;
            return;
        };
        self.partial += 1;
        let transport_bytes = headers.l3_bytes - u32::from(headers.l4_offset - headers.l3_offset);
        let field = usize::from(start) + usize::from(offset);
        let found = u16::from_be_bytes([frame.bytes()[field], frame.bytes()[field + 1]]);
        let expected = checksum::pseudo_header(&headers.tuple, transport_bytes).fold();
        assert_eq!((start, found), (headers.l4_offset, expected), "{:?}", headers.tuple);
    }
}

/// Segments with wrong checksums that the host's kernel received.
fn checksum_errors(network: &Network) -> Vec<String> {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    [&network.client, &network.server]
        .into_iter()
        .map(|host| {
            let text = host.run(read).unwrap();
            let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
            let column = lines.next().unwrap().split(' ').position(|name| name == "InCsumErrors").unwrap();
            lines.next().unwrap().split(' ').nth(column).unwrap().to_owned()
        })
        .collect()
}

/// Connections through the gateway, until all data of one has gone through the fast path. The hosts may lose a frame or close a window
/// on a busy machine: the gateway's kernel then forwards segments, and does not raise the windows as user space would.
fn transfer_all(network: &Network, fast_path: &mut FastPath, version: u8) {
    let server: SocketAddr = (address(version, 2, 2), SERVER_PORT).into();
    let listener = network.server.run(|| TcpListener::bind(server).unwrap()).unwrap();
    let is_whole = (0..ATTEMPTS).any(|_| transfer(network, fast_path, version, &listener));
    assert!(is_whole, "no transfer of {ATTEMPTS} went through the fast path alone: {:?}", fast_path.counters());
}

/// A connection through the gateway, installed in the fast path before its data is sent. Data goes both ways. Returns whether
/// the fast path forwarded all of it.
fn transfer(network: &Network, fast_path: &mut FastPath, version: u8, listener: &TcpListener) -> bool {
    let server: SocketAddr = (address(version, 2, 2), SERVER_PORT).into();
    let public: SocketAddr = (address(version, 1, 1), PUBLIC_PORT).into();
    let handshake = Handshake::watch(network);
    let mut client = network.client.run(|| TcpStream::connect_timeout(&public, PATIENCE).unwrap()).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let (first, reply) = (client.local_addr().unwrap(), accepted.peer_addr().unwrap());
    assert_eq!(reply.ip(), address(version, 2, 1), "the kernel translates the client");
    // A byte each way: the tracker then knows both sides.
    client.write_all(b"a").unwrap();
    accepted.read_exact(&mut [0]).unwrap();
    accepted.write_all(b"b").unwrap();
    client.read_exact(&mut [0]).unwrap();
    let connection = handshake.finish();
    assert_eq!(connection.original, Tuple::new(6, first, public));
    assert_eq!(connection.reply, Tuple::new(6, server, reply));

    let plan = Plan::of(&connection, network.ports(), [1, 0]).unwrap();
    let index = fast_path.install(&plan).unwrap();
    let before = fast_path.counters().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            expect_pattern(&mut accepted);
            send_pattern(&mut accepted);
        });
        send_pattern(&mut client);
        expect_pattern(&mut client);
    });
    let activity = fast_path.read(index).unwrap();
    let seen = fast_path.counters().unwrap() - before;
    fast_path.remove(index).unwrap();
    assert!(seen.of(Outcome::Forwarded) > 0, "{seen:?}");
    if [Outcome::Flags, Outcome::Options, Outcome::Window].into_iter().any(|outcome| seen.of(outcome) > 0) {
        println!("not all segments were plain: {seen:?}");
        return false;
    }
    assert!(activity.bytes.iter().all(|bytes| *bytes > TRANSFER_BYTES as u64), "{activity:?}, {seen:?}");
    let packets = u64::from(activity.packets[0]) + u64::from(activity.packets[1]);
    assert_eq!(seen.of(Outcome::Forwarded), packets);
    let windows = activity.windows.unwrap();
    let ends = plan.windows.unwrap().sides.map(|side| side.end);
    for (side, end) in windows.sides.iter().zip(ends) {
        assert!(side.end.wrapping_sub(end) >= TRANSFER_BYTES as u32, "{windows:?}");
    }
    true
}

fn assert_tcp_passes(has_segmentation: bool, config: &Config, to_peer: bool) {
    let Some(network) = network() else { return };
    let Some(mut fast_path) = common::load(config) else { return };
    for host in [&network.client, &network.server] {
        let set = |offload| set_offload("host", offload, has_segmentation).unwrap();
        host.run(|| {
            set(Offload::TransmitChecksum);
            set(Offload::TcpSegmentation);
            set(Offload::GenericSegmentation);
        })
        .unwrap();
    }
    if config.hook == Hook::Xdp {
        network.take_redirected();
    }
    network.attach_as(&mut fast_path, to_peer);
    let stop = AtomicBool::new(false);
    let captures = thread::scope(|scope| {
        let captures = [&network.client, &network.server].map(|host| scope.spawn(|| verify_checksums(host, &stop)));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            [4, 6].into_iter().for_each(|version| transfer_all(&network, &mut fast_path, version));
        }));
        stop.store(true, Ordering::Relaxed);
        let captures = captures.map(|capture| capture.join().unwrap());
        done.map_or_else(|panic| std::panic::resume_unwind(panic), |()| captures)
    });
    for capture in &captures {
        if config.hook == Hook::Xdp {
            // The hosts' receive offload puts segments together again.
            assert!(capture.whole + capture.partial > 100, "{captures:?}");
            continue;
        }
        assert_eq!(capture.largest_bytes > 1514, has_segmentation, "{captures:?}");
        let kind = if has_segmentation { capture.partial } else { capture.whole };
        assert!(kind > 100, "{captures:?}");
    }
    assert_eq!(checksum_errors(&network), ["0", "0"]);
}

#[test]
fn tcp_passes_with_segmentation_offload() {
    assert_tcp_passes(true, &Config { heartbeat_age_max: PATIENCE * 10, ..Config::default() }, false);
}

#[test]
fn tcp_passes_with_whole_checksums_and_single_segments() {
    assert_tcp_passes(false, &Config { heartbeat_age_max: PATIENCE * 10, ..Config::default() }, false);
}

#[test]
fn tcp_passes_where_the_program_is_attached_by_clsact() {
    let config = Config { heartbeat_age_max: PATIENCE * 10, allow_tcx: false, ..Config::default() };
    assert_tcp_passes(true, &config, false);
}

#[test]
fn tcp_passes_where_the_program_is_attached_by_xdp() {
    let config = Config { heartbeat_age_max: PATIENCE * 10, hook: Hook::Xdp, ..Config::default() };
    assert_tcp_passes(false, &config, false);
}

#[test]
fn tcp_passes_to_the_other_ends_of_the_cables() {
    let config = Config { heartbeat_age_max: PATIENCE * 10, ..Config::default() };
    assert_tcp_passes(true, &config, true);
}
