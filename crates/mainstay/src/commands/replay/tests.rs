//! Captures made here, played through configurations.

use std::io::Cursor;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use flow::wire::build::{self, Envelope, Tcp};
use flow::wire::{MacAddress, Parsed, parse, tcp_flags};
use flow::{Frame, PortId, Tuple};
use packet_io::pcap::{CaptureInterface, PcapWriter};

use super::*;

const CONFIG: &str = r#"
chain = ["firewall", "nat"]
[node]
id = 0
[[port]]
name = "inside"
interface = "eth0"
addresses = ["10.0.0.1/24", "fd00::1/64"]
[[port]]
name = "outside"
interface = "eth1"
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
[[route]]
to = "0.0.0.0/0"
via = "192.0.2.254"
[[firewall.rule]]
name = "out"
from = "inside"
action = "accept"
[[nat.source]]
source = ["10.0.0.0/24"]
to = ["192.0.2.1"]
"#;
const CLIENT: &str = "10.0.0.5:40000";
const SERVER: &str = "198.51.100.7:80";
/// When the captures begin, in milliseconds after the epoch.
const BEGIN_MS: u64 = 1_700_000_000_000;

fn config() -> Config {
    config::parse("test", CONFIG).expect("it is right").config
}

fn tuple(protocol: u8, source: &str, destination: &str) -> Tuple {
    Tuple::new(protocol, source.parse().expect("an address"), destination.parse().expect("an address"))
}

fn tcp(source: &str, destination: &str, flags: u8, (sequence, acknowledgement): (u32, u32), data: &[u8]) -> Vec<u8> {
    let segment = Tcp { flags, sequence, acknowledgement, window: 8192, ..Tcp::default() };
    build::tcp(&tuple(6, source, destination), segment, data)
}

/// A connection from its handshake to its end, as both its ends see it without translation.
fn exchange(client: &str, server: &str) -> Vec<Vec<u8>> {
    use tcp_flags::{ACK, FIN, SYN};
    vec![
        tcp(client, server, SYN, (100, 0), b""),
        tcp(server, client, SYN | ACK, (900, 101), b""),
        tcp(client, server, ACK, (101, 901), b""),
        tcp(client, server, ACK, (101, 901), b"ask"),
        tcp(server, client, ACK, (901, 104), b"answer"),
        tcp(client, server, ACK | FIN, (104, 907), b""),
        tcp(server, client, ACK | FIN, (907, 105), b""),
        tcp(client, server, ACK, (105, 908), b""),
    ]
}

/// A pcap file with a frame every 10 ms.
fn pcap<'a>(frames: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new()).expect("memory takes it");
    for (at, frame) in (BEGIN_MS..).step_by(10).zip(frames) {
        writer.write(Instant::from_millis(at), frame).expect("memory takes it");
    }
    writer.finish().expect("memory takes it")
}

/// What is made of a capture, and what the gateway sends: ports and frames.
fn replayed(replay: &Replay<'_>, capture: &[u8]) -> (ReplayReport, Vec<(usize, Vec<u8>)>) {
    let mut written = Vec::new();
    let reader = CaptureReader::new(capture).expect("it is a capture");
    let report = replay.play(reader, Path::new("in"), Some((Path::new("out"), &mut written))).expect("it plays");
    let mut reader = CaptureReader::new(Cursor::new(written)).expect("it was written");
    let (mut sent, mut frame) = (Vec::new(), Vec::new());
    while let Some(record) = reader.read(&mut frame).expect("it was written") {
        sent.push((record.interface, frame.clone()));
    }
    let names: Vec<_> = reader.interfaces().iter().filter_map(|interface| interface.name.clone()).collect();
    assert_eq!(names, ["inside", "outside"]);
    (report, sent)
}

fn plain(config: &Config) -> Replay<'_> {
    Replay { config, port_map: &[], ignore_checksums: false, limit: u64::MAX }
}

/// The tuple of a frame whose checksums are right.
fn tuple_of(mut frame: Vec<u8>) -> Tuple {
    let length_bytes = frame.len();
    let frame = Frame::new(&mut frame, 0, length_bytes, PortId(0)).expect("it fits");
    match parse(&frame).expect("a sound packet") {
        Parsed::Ip(headers) => headers.tuple,
        Parsed::Arp(_) => panic!("an ARP message among the packets"),
    }
}

#[test]
fn a_connection_is_let_out_translated_and_followed_to_its_end() {
    // The capture is of both sides at once, so that replies must carry the translated address and port, which only the
    // node knows: they are made from what it sends.
    let config = config();
    let frames = exchange(CLIENT, SERVER);
    let (_, sent) = replayed(&plain(&config), &pcap(&frames[..1]));
    let [(1, syn)] = &sent[..] else { panic!("one packet on the outside: {sent:?}") };
    let outside = tuple_of(syn.clone()).source_addr();
    assert_eq!(outside.ip(), IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)));

    let as_captured = exchange(CLIENT, SERVER).into_iter().zip(exchange(&outside.to_string(), SERVER));
    let from_client = [true, false, true, true, false, true, false, true];
    let frames: Vec<Vec<u8>> = as_captured
        .zip(from_client)
        .map(|((inside, outside), from_client)| if from_client { inside } else { outside })
        .collect();
    let (report, sent) = replayed(&plain(&config), &pcap(&frames));
    assert_eq!((report.packets, report.forwarded, report.dropped), (8, 8, 0), "{report:?}");
    assert_eq!((report.connections.begun, report.connections.peak), (1, 1));
    assert_eq!(report.functions["firewall"].values().sum::<u64>(), 1);
    assert_eq!(report.duration_s, 0.07);
    let received_and_sent: Vec<_> = report.ports.iter().map(|port| (port.received, port.sent)).collect();
    assert_eq!(received_and_sent, [(5, 3), (3, 5)]);
    let egress: Vec<usize> = sent.iter().map(|(port, _)| *port).collect();
    assert_eq!(egress, [1, 0, 1, 1, 0, 1, 0, 1]);
    let client: SocketAddr = CLIENT.parse().expect("an address");
    assert_eq!(tuple_of(sent[1].1.clone()).destination_addr(), client);
    // The same capture gives the same result, to the byte.
    assert_eq!(replayed(&plain(&config), &pcap(&frames)), (report, sent));
}

#[test]
fn what_is_dropped_is_counted_by_reason() {
    let config = config();
    let mut wrong = tcp(CLIENT, SERVER, tcp_flags::SYN, (1, 0), b"");
    *wrong.last_mut().expect("it has bytes") ^= 1;
    let frames = [
        tcp("203.0.113.9:5000", "10.0.0.5:22", tcp_flags::SYN, (1, 0), b""),
        tcp(CLIENT, SERVER, tcp_flags::ACK, (1, 1), b"from the middle"),
        wrong,
        vec![0; 9],
    ];
    let (report, sent) = replayed(&plain(&config), &pcap(&frames));
    let expected = [("bad_transport_checksum", 1), ("firewall_denied", 1), ("no_connection", 1), ("truncated", 1)];
    assert_eq!(report.dropped_by_reason.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!((report.forwarded, sent.len()), (0, 0));
}

#[test]
fn checksums_that_the_capturing_host_had_not_made_can_be_believed() {
    let config = config();
    let mut frame = tcp(CLIENT, SERVER, tcp_flags::SYN, (1, 0), b"");
    frame[24..26].fill(0);
    frame[50..52].fill(0);
    let capture = pcap([&frame]);
    let (report, _) = replayed(&plain(&config), &capture);
    assert_eq!(report.dropped_by_reason.get("bad_ip_checksum"), Some(&1));
    assert!(report.describe().contains("--ignore-checksums"), "{}", report.describe());
    let (report, _) = replayed(&Replay { ignore_checksums: true, ..plain(&config) }, &capture);
    assert_eq!(report.forwarded, 1, "{report:?}");
}

#[test]
fn a_capture_that_begins_in_the_middle_is_picked_up_when_that_is_asked_for() {
    let mut config = config();
    let capture = pcap(&[tcp(CLIENT, SERVER, tcp_flags::ACK, (101, 901), b"ask")]);
    let (report, _) = replayed(&plain(&config), &capture);
    assert_eq!(report.dropped_by_reason.get("no_connection"), Some(&1));
    assert!(report.describe().contains("--loose"));
    config.tracking.loose = true;
    let (report, _) = replayed(&plain(&config), &capture);
    assert_eq!((report.forwarded, report.connections.at_end), (1, 1));
}

#[test]
fn connections_end_on_the_captures_clock() {
    let config = config();
    let mut writer = PcapWriter::new(Vec::new()).expect("memory takes it");
    let datagram = |port: u16| {
        let source = format!("10.0.0.5:{port}");
        build::udp(&tuple(17, &source, "198.51.100.7:53"), b"question")
    };
    // UDP without an answer lives for 30 s; a leap of three years and back is no time for the connections.
    for (seconds, port) in [(0, 1), (10, 2), (35, 3), (94_608_000, 4), (50, 5)] {
        writer.write(Instant::from_millis(BEGIN_MS + 1000 * seconds), &datagram(port)).expect("memory takes it");
    }
    let (report, _) = replayed(&plain(&config), &writer.finish().expect("memory takes it"));
    let Connections { begun, ended, peak, at_end } = report.connections;
    assert_eq!((begun, ended, peak, at_end), (5, 2, 3, 3));
    assert_eq!((report.out_of_order, report.time_leaps, report.duration_s), (0, 1, 50.0));
    assert!(report.describe().contains("1 packet: stamped more than a week"), "{}", report.describe());
}

#[test]
fn connections_end_in_gaps_however_many_there_are() {
    let config = config();
    let mut writer = PcapWriter::new(Vec::new()).expect("memory takes it");
    // Six days each: more timers are due in all of them than are played one by one.
    for number in 0..500_u64 {
        let source = format!("10.0.0.5:{}", 1024 + number);
        let datagram = build::udp(&tuple(17, &source, "198.51.100.7:53"), b"question");
        writer.write(Instant::from_millis(BEGIN_MS + number * 6 * 86_400_000), &datagram).expect("memory takes it");
    }
    let (report, _) = replayed(&plain(&config), &writer.finish().expect("memory takes it"));
    assert_eq!((report.forwarded, report.time_leaps, report.connections.ended), (500, 0, 499));
}

#[test]
fn absurd_time_stamps_cost_no_time() {
    let config = config();
    let mut writer = PcapWriter::new(Vec::new()).expect("memory takes it");
    // Up and down between the epoch and the last moment that a record can name, over and over.
    let last_ms = u64::from(u32::MAX) * 1000;
    for number in 0..2000_u64 {
        let source = format!("10.0.0.5:{}", 1024 + number);
        let datagram = build::udp(&tuple(17, &source, "198.51.100.7:53"), b"question");
        let at_ms = [0, last_ms, BEGIN_MS][number as usize % 3];
        writer.write(Instant::from_millis(at_ms), &datagram).expect("memory takes it");
    }
    let (report, _) = replayed(&plain(&config), &writer.finish().expect("memory takes it"));
    assert_eq!((report.packets, report.forwarded, report.duration_s), (2000, 2000, 0.0));
    assert!(report.time_leaps > 600, "{}", report.time_leaps);
    // Nothing but what each packet itself takes was done.
    assert_eq!(report.connections.ended, 0);
}

#[test]
fn truncated_frames_are_forwarded_if_their_headers_are_there() {
    let config = config();
    let whole = tcp(CLIENT, SERVER, tcp_flags::SYN, (1, 0), &[7; 1000]);
    for (kept_bytes, forwarded) in [(60, 1), (54, 1), (50, 0)] {
        let mut writer = PcapngWriter::new(Vec::new(), ["any"]).expect("memory takes it");
        let at = Instant::from_millis(BEGIN_MS);
        let wire_bytes = u32::try_from(whole.len()).expect("it is short");
        writer.write(0, at, &whole[..kept_bytes], wire_bytes).expect("memory takes it");
        let (report, sent) = replayed(&plain(&config), &writer.finish().expect("memory takes it"));
        assert_eq!((report.truncated, report.forwarded), (1, forwarded), "{kept_bytes}: {report:?}");
        assert!(sent.iter().all(|(_, frame)| frame.len() == kept_bytes));
        assert!(report.describe().contains("1 packet: cut short"));
    }
}

#[test]
fn a_capture_that_ends_within_a_packet_is_played_as_far_as_it_goes() {
    let config = config();
    let capture = pcap(&exchange(CLIENT, SERVER)[..3]);
    let (report, _) = replayed(&plain(&config), &capture[..capture.len() - 1]);
    assert_eq!((report.packets, report.is_truncated), (2, true));
    let (report, _) = replayed(&Replay { limit: 1, ..plain(&config) }, &capture);
    assert_eq!((report.packets, report.is_truncated), (1, false));
}

#[test]
fn packets_of_other_links_and_both_families_are_played() {
    let mut config = config();
    config.source_nat.clear();
    let packet = |source: &str, destination: &str| build::udp(&tuple(17, source, destination), b"x")[14..].to_vec();
    let mut capture = pcap(&[
        packet("10.0.0.5:1", "192.0.2.9:2"),
        packet("[fd00::5]:1", "[2001:db8::9]:2"),
        packet("192.0.2.9:2", "10.0.0.5:1"),
    ]);
    capture[20..24].copy_from_slice(&101_u32.to_le_bytes());
    let (report, sent) = replayed(&plain(&config), &capture);
    assert_eq!((report.forwarded, report.connections.begun), (3, 2), "{report:?}");
    assert_eq!(sent.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1, 1, 0]);
    // A link type without IP packets is said to be that, packet by packet.
    capture[20..24].copy_from_slice(&105_u32.to_le_bytes());
    let (report, _) = replayed(&plain(&config), &capture);
    assert_eq!(report.dropped_by_reason.get("unsupported_link_protocol"), Some(&3));
}

#[test]
fn what_is_for_the_gateway_itself_is_taken_or_answered() {
    let config = config();
    let host = Ipv4Addr::new(10, 0, 0, 5);
    let ping = Tuple::echo(host.into(), Ipv4Addr::new(10, 0, 0, 1).into(), 7);
    let frames = [
        build::arp_request(MacAddress([2, 9, 9, 9, 9, 9]), host, Ipv4Addr::new(10, 0, 0, 1)),
        build::echo(&ping, build::Echo { is_reply: false, sequence: 1 }, b"data"),
    ];
    let (report, sent) = replayed(&plain(&config), &pcap(&frames));
    assert_eq!((report.taken, report.forwarded, report.dropped), (1, 1, 0), "{report:?}");
    assert_eq!(sent.len(), 1, "the answer to the ping");
    assert_eq!(tuple_of(sent[0].1.clone()).destination_ip(), IpAddr::from(host));
}

fn interfaces(names: &[&str]) -> Vec<CaptureInterface> {
    let writer = PcapngWriter::new(Vec::new(), names.iter().copied()).expect("memory takes it");
    let bytes = writer.finish().expect("memory takes it");
    let mut reader = CaptureReader::new(&*bytes).expect("it was written");
    assert_eq!(reader.read(&mut Vec::new()).expect("it was written"), None);
    reader.interfaces().to_vec()
}

#[test]
fn the_port_is_that_of_the_map_the_name_the_order_or_the_source() {
    use ingress::Certainty::{Guessed, Known};
    let config = config();
    let forwarding = player::forwarding_config(&config);
    let from_inside = Envelope::default().udp(&tuple(17, "10.0.0.5:1", "192.0.2.9:2"), b"");
    let from_nowhere = Envelope::default().udp(&tuple(17, "169.254.0.5:1", "10.0.0.9:2"), b"");
    let map: Vec<PortMapping> =
        vec!["uplink=outside".parse().expect("a mapping"), "2=inside".parse().expect("a mapping")];
    /// The port map, the capture's interfaces, that of the packet, and the packet itself.
    type Captured<'a> = (&'a [PortMapping], &'a [&'a str], usize, &'a [u8]);
    let cases: [(Captured<'_>, (u8, ingress::Certainty)); 9] = [
        ((&map, &["uplink", "eth1", "x"], 0, &from_inside), (1, Known)),
        ((&map, &["uplink", "eth0", "x"], 2, &from_inside), (0, Known)),
        ((&[], &["eth1", "eth0"], 0, &from_inside), (1, Known)),
        ((&[], &["inside", "other"], 0, &from_nowhere), (0, Known)),
        ((&[], &["a", "b"], 1, &from_inside), (1, Known)),
        ((&[], &["any"], 0, &from_inside), (0, Known)),
        ((&[], &["a", "b", "c"], 1, &from_inside), (0, Known)),
        ((&[], &["any"], 0, &from_nowhere), (1, Guessed)),
        ((&[], &["any"], 0, b"no packet"), (0, Guessed)),
    ];
    for ((port_map, names, number, frame), (port, certainty)) in cases {
        let chooser = IngressChooser::new(&config, &forwarding, port_map).expect("the ports are there");
        let mut bytes = frame.to_vec();
        let length = u32::try_from(bytes.len()).expect("it is short");
        let interfaces = interfaces(names);
        let mut captured = CapturedFrame::new(&mut bytes, interfaces[number].link_type, length, false);
        let chosen = chooser.choose(&interfaces, number, &mut captured);
        assert_eq!(chosen, (PortId(port), certainty), "{names:?}, {number}");
    }
    let wrong = ["0=elsewhere".parse().expect("a mapping")];
    let error = IngressChooser::new(&config, &forwarding, &wrong).err().expect("no such port").to_string();
    assert_eq!(error, "--port-map: there is no port \"elsewhere\": write one of \"inside\", \"outside\"");
    assert!("uplink:outside".parse::<PortMapping>().is_err());
}
