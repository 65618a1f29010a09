//! Segments that one reader takes and another one ignores, before and inside a request for a blocked host: real sockets, whose client's segments are sent as
//! raw frames through a gateway that runs. The server's application never reads the request.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use flow::wire::tcp_flags::{ACK, FIN, PSH, RST, SYN, URG};
use flow::{Frame, PacketBatch, PortId};
use lab::testbed::topology::{CLIENT, SERVER, Topology};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};

use super::url_filter::{WEB, start_pair};
use crate::common::program::{Folder, PATIENCE, until};

/// A port that no rule of the filter matches.
const UNFILTERED: u16 = 8080;
/// Packets that arrive with a lower time to live end at a router before the server.
const HOPS: u8 = 10;
const TTL: u8 = 64;
const BLOCKED: &[u8] = b"blocked.example";
/// Tricks that bring the request to the server without a filter, at least. Whether some do depends on when the kernels' acknowledgements pass.
const WORKING_MIN: usize = 16;

/// Where a connection is after its handshake, as the SYN/ACK shows it.
#[derive(Clone, Copy)]
struct Position {
    /// Ethernet addresses, as the client's frames have them.
    addresses: [u8; 12],
    ports: [u16; 2],
    sequence: u32,
    acknowledgement: u32,
    /// The client's timestamp and the server's.
    timestamps: (u32, u32),
}

/// A segment of the client.
#[derive(Clone)]
struct Segment {
    /// From the beginning of the stream.
    offset: u32,
    /// Added to what acknowledges all that the server has sent.
    acknowledgement: u32,
    flags: u8,
    /// Added to the client's timestamp; without timestamps, if it has none.
    time: Option<u32>,
    /// Behind the timestamps; a multiple of four bytes.
    options: Vec<u8>,
    urgent: u16,
    ttl: u8,
    /// Added to the right checksum.
    checksum: u16,
    payload: Vec<u8>,
    /// The bytes of the pieces that it is sent in, the last one first; whole without.
    fragments: Option<usize>,
}

/// A segment with these bytes of a request, as an ordinary client sends it.
fn at(offset: u32, payload: &[u8]) -> Segment {
    Segment {
        offset,
        acknowledgement: 0,
        flags: ACK | PSH,
        time: Some(1),
        options: Vec::new(),
        urgent: 0,
        ttl: TTL,
        checksum: 0,
        payload: payload.to_vec(),
        fragments: None,
    }
}

/// The one's complement sum of these bytes (RFC 1071).
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut bytes = parts.concat();
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    let sum: u32 = bytes.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn octets(address: IpAddr) -> [u8; 4] {
    match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => panic!("the first family is IPv4"),
    }
}

impl Segment {
    fn tcp(&self, position: &Position) -> Vec<u8> {
        let [source, destination] = position.ports.map(u16::to_be_bytes);
        let (value, echo) = position.timestamps;
        let mut options = Vec::new();
        if let Some(time) = self.time {
            options.extend([1, 1, 8, 10]);
            options.extend(value.wrapping_add(time).to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        options.extend(&self.options);
        let words = (5 + options.len() / 4) as u8;
        let mut tcp = [
            &source[..],
            &destination,
            &position.sequence.wrapping_add(self.offset).to_be_bytes(),
            &position.acknowledgement.wrapping_add(self.acknowledgement).to_be_bytes(),
            &[words << 4, self.flags, 0xff, 0xff, 0, 0],
            &self.urgent.to_be_bytes(),
            &options,
            &self.payload,
        ]
        .concat();
        let length = (tcp.len() as u16).to_be_bytes();
        let sum = checksum(&[&octets(CLIENT[0]), &octets(SERVER[0]), &[0, 6], &length, &tcp]);
        tcp[16..18].copy_from_slice(&sum.wrapping_add(self.checksum).to_be_bytes());
        tcp
    }

    /// The frames that it is sent in.
    fn frames(&self, position: &Position) -> Vec<Vec<u8>> {
        let tcp = self.tcp(position);
        let piece_bytes = self.fragments.unwrap_or(tcp.len());
        let pieces = tcp.chunks(piece_bytes).enumerate().map(|(number, piece)| {
            let at = number * piece_bytes;
            let more = if at + piece.len() < tcp.len() { 0x2000 } else { 0 };
            let length = (20 + piece.len() as u16).to_be_bytes();
            let place = (more | (at / 8) as u16).to_be_bytes();
            let mut header = [&[0x45, 0][..], &length, &[7, 7], &place, &[self.ttl, 6, 0, 0]].concat();
            header.extend(octets(CLIENT[0]));
            header.extend(octets(SERVER[0]));
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            [&position.addresses[..], &[8, 0], &header, piece].concat()
        });
        let mut frames: Vec<_> = pieces.collect();
        frames.reverse();
        frames
    }
}

/// A request of one length for each host.
fn request(name: &str, host: &str) -> Vec<u8> {
    format!("GET /{name} HTTP/1.1\r\nHost: {host}.example\r\n\r\n").into_bytes()
}

/// What a client sends of the connection of this name.
struct Trick {
    what: &'static str,
    segments: fn(allowed: &[u8], blocked: &[u8]) -> Vec<Segment>,
}

/// The place of the first byte in which the hosts differ, in a request with a name of two characters.
const HOST: usize = 24;

/// Each is to have the server read the request for the blocked host, and the filter another one, or none.
const TRICKS: [Trick; 26] = [
    Trick { what: "nothing", segments: |_, blocked| vec![at(0, blocked)] },
    Trick {
        what: "an old acknowledgement",
        segments: |allowed, blocked| {
            vec![Segment { acknowledgement: 60_000_u32.wrapping_neg(), ..at(0, allowed) }, at(0, blocked)]
        },
    },
    Trick {
        what: "an acknowledgement ahead",
        segments: |allowed, blocked| vec![Segment { acknowledgement: 100_000, ..at(0, allowed) }, at(0, blocked)],
    },
    Trick {
        what: "no acknowledgement",
        segments: |allowed, blocked| vec![Segment { flags: PSH, ..at(0, allowed) }, at(0, blocked)],
    },
    Trick {
        what: "an MD5 signature",
        segments: |allowed, blocked| {
            let options = [&[1, 1, 19, 18][..], &[7; 16]].concat();
            vec![Segment { options, ..at(0, allowed) }, at(0, blocked)]
        },
    },
    Trick {
        what: "an MD5 signature of the blocked request",
        segments: |allowed, blocked| {
            let options = [&[1, 1, 19, 18][..], &[7; 16]].concat();
            vec![Segment { options, ..at(0, blocked) }, at(0, allowed), at(0, blocked)]
        },
    },
    Trick {
        what: "a time to live that ends before the server",
        segments: |allowed, blocked| vec![Segment { ttl: HOPS - 2, ..at(0, allowed) }, at(0, blocked)],
    },
    Trick {
        what: "a wrong checksum",
        segments: |allowed, blocked| vec![Segment { checksum: 1, ..at(0, allowed) }, at(0, blocked)],
    },
    Trick {
        what: "an old timestamp",
        segments: |allowed, blocked| {
            vec![Segment { time: Some(1_000_000_u32.wrapping_neg()), ..at(0, allowed) }, at(0, blocked)]
        },
    },
    Trick {
        what: "two timestamps, an old one last",
        segments: |allowed, blocked| {
            let options = [[1, 1, 8, 10], [0, 0, 0, 1], [0; 4]].concat();
            vec![Segment { options, ..at(0, allowed) }, at(0, blocked)]
        },
    },
    Trick {
        what: "a SYN with data",
        segments: |allowed, blocked| {
            vec![
                Segment { flags: SYN, ..at(u32::MAX, allowed) },
                Segment { flags: SYN | ACK, ..at(0, allowed) },
                at(0, blocked),
            ]
        },
    },
    Trick {
        what: "a SYN that moves the beginning",
        segments: |allowed, blocked| vec![Segment { flags: SYN, ..at(4999, b"") }, at(5000, allowed), at(0, blocked)],
    },
    Trick {
        what: "a reset within the window",
        segments: |allowed, blocked| {
            vec![Segment { flags: RST, ..at(7, b"") }, Segment { flags: RST | ACK, ..at(9, allowed) }, at(0, blocked)]
        },
    },
    Trick {
        what: "a reset with a wrong checksum",
        segments: |_, blocked| vec![Segment { flags: RST, checksum: 1, ..at(0, b"") }, at(0, blocked)],
    },
    Trick {
        what: "a reset that ends before the server",
        segments: |allowed, blocked| {
            vec![Segment { flags: RST, ttl: HOPS - 2, ..at(0, b"") }, at(0, allowed), at(0, blocked)]
        },
    },
    Trick {
        what: "an end that ends before the server",
        segments: |_, blocked| vec![Segment { flags: FIN | ACK, ttl: HOPS - 2, ..at(0, b"") }, at(0, blocked)],
    },
    Trick {
        what: "an end with an old acknowledgement",
        segments: |allowed, blocked| {
            let acknowledgement = 60_000_u32.wrapping_neg();
            vec![Segment { flags: FIN | ACK, acknowledgement, ..at(0, allowed) }, at(0, blocked)]
        },
    },
    Trick {
        what: "a later copy that covers an earlier one",
        segments: |allowed, blocked| {
            vec![
                at(HOST as u32, &allowed[HOST..]),
                at(HOST as u32 - 4, &blocked[HOST - 4..]),
                at(0, &blocked[..HOST - 4]),
            ]
        },
    },
    Trick {
        what: "a copy that overlaps an earlier one",
        segments: |allowed, blocked| {
            let middle = HOST + 4;
            vec![
                at(middle as u32, &blocked[middle..]),
                at(HOST as u32, &[&blocked[HOST..middle], &allowed[middle..]].concat()),
                at(0, &blocked[..HOST]),
            ]
        },
    },
    Trick {
        what: "a copy of the beginning behind a gap",
        segments: |allowed, blocked| {
            vec![at(HOST as u32, &blocked[HOST..]), at(0, &[&blocked[..HOST], &allowed[HOST..]].concat())]
        },
    },
    Trick {
        what: "an urgent byte",
        segments: |_, blocked| {
            let with_urgent = [&blocked[..HOST + 2], b"X", &blocked[HOST + 2..]].concat();
            vec![Segment { flags: ACK | PSH | URG, urgent: HOST as u16 + 3, ..at(0, &with_urgent) }]
        },
    },
    Trick { what: "fragments", segments: |_, blocked| vec![Segment { fragments: Some(32), ..at(0, blocked) }] },
    Trick {
        what: "segments of a byte, the last one first",
        segments: |_, blocked| {
            (0..12)
                .rev()
                .map(|at_byte| at(at_byte as u32, &blocked[at_byte..=at_byte]))
                .chain([at(12, &blocked[12..])])
                .collect()
        },
    },
    Trick {
        what: "a segment beyond the window",
        segments: |allowed, blocked| vec![at(10_000_000, allowed), at(0, blocked)],
    },
    Trick { what: "a byte before the first", segments: |_, blocked| vec![at(u32::MAX, &[b"?", blocked].concat())] },
    Trick {
        what: "options behind the end of options",
        segments: |_, blocked| {
            let options = [&[0, 0, 19, 18][..], &[7; 16]].concat();
            vec![Segment { options, ..at(0, blocked) }]
        },
    },
];

/// What the application has read of each connection.
type Received = Arc<Mutex<Vec<Vec<u8>>>>;

/// An application on both ports that answers each request when it has read all connections.
fn serve(topology: &Topology) -> Received {
    let listeners = [WEB, UNFILTERED].map(|port| {
        let bound = topology.server.run(|| TcpListener::bind((SERVER[0], port))).expect("the namespace is there");
        let listener = bound.expect("the port is free");
        listener.set_nonblocking(true).expect("a socket");
        listener
    });
    let read = Received::default();
    let shared = Arc::clone(&read);
    thread::spawn(move || {
        let mut streams: Vec<TcpStream> = Vec::new();
        loop {
            for listener in &listeners {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("a socket");
                    streams.push(stream);
                    shared.lock().expect("no test has failed").push(Vec::new());
                }
            }
            let mut all = shared.lock().expect("no test has failed");
            let mut answered = Vec::new();
            for (stream, read) in streams.iter_mut().zip(all.iter_mut()) {
                let mut buffer = [0; 4096];
                while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                    read.extend_from_slice(&buffer[..bytes]);
                    answered.push(stream.try_clone().expect("descriptors are left"));
                }
            }
            drop(all);
            for mut stream in answered {
                // The client may be gone.
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    read
}

/// Begins a connection by a real socket, and reads from the wire where it is.
fn begin(topology: &Topology, io: &mut AfPacketIo, port: u16) -> (TcpStream, Position) {
    let end = SocketAddr::new(SERVER[0], port);
    let stream = topology.client.run(|| TcpStream::connect_timeout(&end, PATIENCE)).expect("the namespace is there");
    let stream = stream.expect("the server answers");
    let local = stream.local_addr().expect("it is connected").port();
    let position = until("the SYN/ACK is on the wire", || {
        let mut found = None;
        let look = &mut |batch: &mut PacketBatch<'_>| {
            for frame in batch.iter() {
                found = found.or_else(|| position_after(frame.bytes(), [local, port]));
            }
        };
        io.poll(look).expect("it receives");
        found
    });
    (stream, position)
}

/// The position of a connection of which this frame is the SYN/ACK.
fn position_after(bytes: &[u8], ports: [u16; 2]) -> Option<Position> {
    let tcp = bytes.get(34..).filter(|_| bytes[12..14] == [8, 0] && bytes[23] == 6)?;
    let number = |at: usize| Some(u32::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
    let is_answer = tcp.get(..4)? == [ports[1].to_be_bytes(), ports[0].to_be_bytes()].as_flattened();
    if !is_answer || tcp.get(13)? & (SYN | ACK) != SYN | ACK {
        return None;
    }
    let timestamps = flow::wire::tcp::SegmentOptions::read(tcp.get(..usize::from(tcp[12] >> 4) * 4)?).timestamps?;
    let mut addresses = [0; 12];
    addresses[..6].copy_from_slice(&bytes[6..12]);
    addresses[6..].copy_from_slice(&bytes[..6]);
    Some(Position {
        addresses,
        ports,
        sequence: number(8)?,
        acknowledgement: number(4)?.wrapping_add(1),
        timestamps: (timestamps.1, timestamps.0),
    })
}

fn send(io: &mut AfPacketIo, segment: &Segment, position: &Position) {
    for mut bytes in segment.frames(position) {
        let length_bytes = bytes.len();
        let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).expect("it is whole");
        io.transmit(PortId(0), &frame).expect("the link is up");
    }
}

/// Sends a request by a real socket and waits for the answer: the application has read by then whatever was sent before.
fn ask(topology: &Topology, host: &str) -> bool {
    let end = SocketAddr::new(SERVER[0], WEB);
    let stream = topology.client.run(|| TcpStream::connect_timeout(&end, PATIENCE)).expect("the namespace is there");
    let mut stream = stream.expect("the server answers");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(&request("end", host)).expect("it is open");
    let mut first = [0; 15];
    match stream.read_exact(&mut first) {
        Ok(()) => first == *b"HTTP/1.1 200 OK",
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
            false
        }
    }
}

/// What of the tricks has the application read the blocked request on this port.
fn led_by(topology: &Topology, read: &Received, port: u16) -> Vec<&'static str> {
    let mut io = topology
        .client
        .run(|| AfPacketIo::open(&[PortConfig::new("bridge")]).expect("the interface is there"))
        .expect("the namespace is there");
    let mut streams = Vec::new();
    for (number, trick) in TRICKS.iter().enumerate() {
        let (stream, position) = begin(topology, &mut io, port);
        let name = format!("{number:02}");
        for segment in (trick.segments)(&request(&name, "allowed"), &request(&name, "blocked")) {
            send(&mut io, &segment, &position);
        }
        streams.push(stream);
    }
    assert!(ask(topology, "allowed"), "an ordinary request for another host passes");
    let mut all = read.lock().expect("the application runs");
    let has = |read: &[u8], what: &[u8]| read.windows(what.len()).any(|window| window == what);
    let led = TRICKS.iter().enumerate().filter(|(number, _)| {
        let path = format!("/{number:02} ");
        all.iter().any(|read| has(read, path.as_bytes()) && has(read, BLOCKED))
    });
    let led = led.map(|(_, trick)| trick.what).collect();
    all.iter_mut().for_each(Vec::clear);
    led
}

#[test]
fn tricks_of_tcp_and_ip_do_not_bring_a_request_for_a_blocked_host_to_the_server() {
    if packet_io::namespace::for_tests().is_none() {
        return;
    }
    let _turn = crate::take_turn();
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("url-decoys");
    let list = folder.join("ads.txt");
    fs::write(&list, "blocked.example\n").expect("a list");
    // A router far away, before the server.
    let rules = format!(
        "add table ip far; add chain ip far in {{ type filter hook prerouting priority -300; }}; add rule ip far in ip ttl < {HOPS} drop"
    );
    let mut nft = Command::new("nft");
    nft.arg(rules).stdin(Stdio::null());
    let Ok(mut nft) = topology.server.spawn_command(nft) else {
        return packet_io::namespace::skip("nft is not installed (package nftables)");
    };
    assert!(nft.wait().expect("it ends").success(), "the kernel takes the rule");
    let read = serve(&topology);
    let sections = format!(
        "[[url_filter.list]]\ncategory = \"ads\"\npath = \"{}\"\n\
         [[url_filter.rule]]\nname = \"web\"\nports = [{WEB}]\nblock = [\"ads\"]\nundecided = \"block\"\n",
        list.display()
    );
    let _nodes = start_pair(&topology, &folder, 0, &sections);
    assert!(!ask(&topology, "blocked"), "an ordinary request for the blocked host is refused");

    // The tricks are no errors of the test: without the filter, most of them work.
    let without = led_by(&topology, &read, UNFILTERED);
    assert!(without.len() >= WORKING_MIN, "{without:?}");
    assert_eq!(led_by(&topology, &read, WEB), [""; 0], "without the filter the server is led by {without:?}");
}
