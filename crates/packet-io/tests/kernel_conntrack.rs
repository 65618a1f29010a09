//! Verdicts of Linux's connection tracking compared with those of `flow`: ICMP errors, UDP without checksum, SCTP.
//!
//! ```text
//!   end_a ──► port_a │ conntrack ─► rules: DSCP := valid or invalid │ port_b ──► end_b
//! ```
//! No packet is dropped: every packet comes out marked with the verdict.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use std::time::Duration;

use flow::conntrack::{ProtocolState, Tracker};
use flow::wire::build::{Envelope, IcmpHeader};
use flow::wire::{Headers, MacAddress, Parsed, ip_protocol, parse};
use flow::{Direction, Disposition, Frame, Instant, PortId, Tuple};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::poller::{Poller, Token};
use packet_io::sysctl;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 99);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 2);
const OTHER6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 0x99);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 2);
/// The time limit for the kernel's processing of a packet on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// The DSCP that the rules write.
const VALID: u8 = 1;
const INVALID: u8 = 2;
const RULES: &str = "table inet conntrack_state {
    chain forward {
        type filter hook forward priority filter; policy accept;
        ct state invalid meta nfproto ipv4 ip dscp set 2 accept
        ct state invalid meta nfproto ipv6 ip6 dscp set 2 accept
        meta nfproto ipv4 ip dscp set 1
        meta nfproto ipv6 ip6 dscp set 1
    }
}";

/// A router with its links' other ends held by this program: the client's, then the server's.
struct Router {
    io: AfPacketIo,
    poller: Poller,
    /// Link addresses of each end and of the router's port facing it.
    macs: [(MacAddress, MacAddress); 2],
    _namespaces: [Namespace; 2],
}

impl Router {
    /// `None`, with a message, where the machine forbids namespaces or has no nftables.
    fn start() -> Option<Self> {
        packet_io::namespace::for_tests()?;
        let (router, ends) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        ends.run(|| sysctl::quieten_ipv6().unwrap()).unwrap();
        let macs = router.run(|| cable(&ends)).unwrap();
        if !load_rules(&router) {
            packet_io::namespace::skip("nft is not there, or this kernel takes no stateful rules");
            return None;
        }
        let open = || AfPacketIo::open(&[PortConfig::new("end_a"), PortConfig::new("end_b")]).unwrap();
        let io = ends.run(open).unwrap();
        let poller = Poller::new().unwrap();
        for (number, descriptor) in io.descriptors().into_iter().enumerate() {
            poller.add(descriptor, Token(number as u64)).unwrap();
        }
        Some(Self { io, poller, macs, _namespaces: [router, ends] })
    }

    fn envelope(&self, direction: Direction) -> Envelope<'static> {
        let (source, destination) = self.macs[direction.index()];
        Envelope { source, destination, ..Envelope::default() }
    }

    /// The kernel's verdict on the frame, sent by the end that sends packets of `direction`.
    fn is_valid(&mut self, direction: Direction, frame: &[u8]) -> bool {
        let mut bytes = frame.to_vec();
        let port = PortId(direction.index() as u8);
        let sent = Frame::new(&mut bytes, 0, frame.len(), port).unwrap();
        self.io.transmit(port, &sent).unwrap();
        loop {
            let mut verdict = None;
            let received = self.io.poll(&mut |batch| {
                for frame in batch {
                    frame.disposition = Disposition::Consumed;
                    verdict = verdict.or(dscp(frame.bytes()).filter(|dscp| [VALID, INVALID].contains(dscp)));
                }
            });
            if let Some(dscp) = verdict {
                return dscp == VALID;
            }
            if received.unwrap() == 0 {
                let mut ready = Vec::new();
                self.poller.wait(&mut ready, Some(PATIENCE)).unwrap();
                assert!(!ready.is_empty(), "the kernel lost the packet: {frame:02x?}");
            }
        }
    }
}

fn dscp(frame: &[u8]) -> Option<u8> {
    match (frame.get(12..14)?, frame.get(14..16)?) {
        ([0x08, 0x00], [_, service]) => Some(service >> 2),
        ([0x86, 0xdd], [high, low]) => Some((high & 0x0f) << 2 | low >> 6),
        _ => None,
    }
}

fn cable(ends: &Namespace) -> [(MacAddress, MacAddress); 2] {
    sysctl::quieten_ipv6().unwrap();
    let macs = [("port_a", "end_a", 1u8), ("port_b", "end_b", 2)].map(|(port, end, network)| {
        let mut netlink = Netlink::open().unwrap();
        netlink.create_veth(port, end, ends).unwrap();
        let bring_up = || {
            let mut netlink = Netlink::open().unwrap();
            netlink.set_up(end, true).unwrap();
            netlink.interface(end).unwrap().mac
        };
        let end_mac = ends.run(bring_up).unwrap();
        netlink.set_up(port, true).unwrap();
        netlink.add_address(port, Prefix::new(Ipv4Addr::new(10, network, 0, 1).into(), 24)).unwrap();
        let wide = 0xfd00 + u16::from(network);
        netlink.add_address(port, Prefix::new(Ipv6Addr::new(wide, 0, 0, 0, 0, 0, 0, 1).into(), 64)).unwrap();
        for host in [2, 0x99] {
            let last = if host == 2 { 2 } else { 99 };
            netlink.add_neighbour(port, Ipv4Addr::new(10, network, 0, last).into(), end_mac).unwrap();
            netlink.add_neighbour(port, Ipv6Addr::new(wide, 0, 0, 0, 0, 0, 0, host).into(), end_mac).unwrap();
        }
        (MacAddress(end_mac), MacAddress(netlink.interface(port).unwrap().mac))
    });
    sysctl::write("net/ipv4/ip_forward", "1").unwrap();
    sysctl::write("net/ipv6/conf/all/forwarding", "1").unwrap();
    for scope in ["all", "port_a", "port_b"] {
        sysctl::write(&format!("net/ipv4/conf/{scope}/rp_filter"), "0").unwrap();
    }
    macs
}

fn load_rules(router: &Namespace) -> bool {
    let mut nft = std::process::Command::new("nft");
    nft.args(["-f", "-"]).stdin(Stdio::piped());
    let Ok(mut child) = router.spawn_command(nft) else { return false };
    child.stdin.take().unwrap().write_all(RULES.as_bytes()).unwrap();
    child.wait().unwrap().success()
}

fn read(frame: &[u8]) -> Option<Headers> {
    let mut bytes = frame.to_vec();
    let frame = Frame::new(&mut bytes, 0, frame.len(), PortId(0)).unwrap();
    match parse(&frame) {
        Ok(Parsed::Ip(headers)) => Some(headers),
        _ => None,
    }
}

#[test]
fn kernel_and_flow_refuse_the_same_icmp_errors() {
    let Some(mut router) = Router::start() else { return };
    let unreachable =
        |address: IpAddr| IcmpHeader { kind: if address.is_ipv4() { 3 } else { 1 }, code: 1, parameter: 0 };
    let families: [(IpAddr, IpAddr, IpAddr); 2] =
        [(CLIENT.into(), SERVER.into(), OTHER.into()), (CLIENT6.into(), SERVER6.into(), OTHER6.into())];
    for (client, server, other) in families {
        let tuple = Tuple::new(ip_protocol::UDP, (client, 4000).into(), (server, 53).into());
        let question = router.envelope(Direction::Original).udp(&tuple, b"question");
        assert!(router.is_valid(Direction::Original, &question));
        for (destination, is_right) in [(client, true), (other, false)] {
            let mut error =
                router.envelope(Direction::Reply).icmp_error(server, unreachable(server), &question[14..]).unwrap();
            readdress(&mut error, destination);
            assert_eq!(router.is_valid(Direction::Reply, &error), is_right, "the kernel, of one to {destination}");
            assert_eq!(read(&error).is_some(), is_right, "flow, of one to {destination}");
        }
    }
}

/// Gives an ICMP error another destination, checksums included.
fn readdress(error: &mut [u8], destination: IpAddr) {
    let Some(mut headers) = read(error) else { panic!("it is sound") };
    let flow::wire::Transport::IcmpError(about) = headers.transport else { panic!("it is an error") };
    let length_bytes = error.len();
    let mut frame = Frame::new(error, 0, length_bytes, PortId(0)).unwrap();
    let (source, to) = (headers.tuple.source, Tuple::new(0, (destination, 0).into(), (destination, 0).into()));
    flow::wire::Packet { frame: &mut frame, headers: &mut headers }.rewrite_icmp_error(
        &about.inner,
        &source,
        &to.destination,
    );
}

#[test]
fn kernel_and_flow_pass_udp_over_ipv6_without_checksum_and_not_with_a_wrong_one() {
    let Some(mut router) = Router::start() else { return };
    let tuple = Tuple::v6(ip_protocol::UDP, (CLIENT6, 4000), (SERVER6, 4789));
    let mut datagram = router.envelope(Direction::Original).udp(&tuple, b"a tunnelled frame");
    for (checksum, passes) in [([0, 0], true), ([0, 1], false)] {
        datagram[14 + 40 + 6..][..2].copy_from_slice(&checksum);
        assert_eq!(router.is_valid(Direction::Original, &datagram), passes, "the kernel, of {checksum:?}");
        assert_eq!(read(&datagram).is_some(), passes, "flow, of {checksum:?}");
    }
}

/// INIT or INIT ACK, that offers a tag.
fn offering(kind: u8, tag: u32) -> Vec<u8> {
    let mut chunk = vec![kind, 0, 0, 20];
    chunk.extend(tag.to_be_bytes());
    chunk.extend([0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1]);
    chunk
}

#[test]
fn kernel_and_flow_pass_and_refuse_the_same_packets_of_sctp_associations() {
    use Direction::{Original, Reply};
    const TO_CLIENT: u32 = 0xaaaa_0001;
    const TO_SERVER: u32 = 0xbbbb_0002;
    let Some(mut router) = Router::start() else { return };
    let simple = |kind: u8, flags: u8| vec![kind, flags, 0, 4];
    let data = vec![0, 3, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    let cookie_echo = vec![10, 0, 0, 8, 1, 2, 3, 4];
    let shutdown = vec![7, 0, 0, 8, 0, 0, 0, 1];
    let opened = || {
        vec![
            (Original, 0, offering(1, TO_CLIENT)),
            (Reply, TO_CLIENT, offering(2, TO_SERVER)),
            (Original, TO_SERVER, cookie_echo.clone()),
            (Reply, TO_CLIENT, simple(11, 0)),
        ]
    };
    let after = |rest: Vec<(Direction, u32, Vec<u8>)>| opened().into_iter().chain(rest).collect::<Vec<_>>();
    let scripts = [
        // From beginning to end, with forged packets in between.
        after(vec![
            (Original, TO_SERVER, data.clone()),
            (Reply, TO_CLIENT, data.clone()),
            (Original, TO_SERVER, simple(4, 0)),
            (Reply, TO_CLIENT, simple(5, 0)),
            (Original, 7, data.clone()),
            (Reply, 7, simple(6, 0)),
            (Original, TO_CLIENT, simple(6, 0)),
            (Reply, TO_CLIENT, data.clone()),
            (Original, TO_SERVER, shutdown.clone()),
            (Reply, 7, simple(8, 0)),
            (Reply, TO_CLIENT, simple(8, 0)),
            (Original, 7, simple(14, 0)),
            (Original, TO_SERVER, simple(14, 0)),
        ]),
        after(vec![(Reply, TO_CLIENT, simple(6, 0)), (Original, 0, offering(1, 9))]),
        after(vec![(Original, TO_CLIENT, simple(6, 1))]),
        after(vec![(Original, TO_SERVER, simple(6, 1))]),
        vec![(Original, 9, data.clone())],
        vec![(Original, 9, cookie_echo.clone())],
        vec![(Original, 9, simple(6, 0))],
        vec![
            (Original, 9, simple(4, 0)),
            (Reply, 8, simple(5, 0)),
            (Original, 9, data.clone()),
            (Reply, 7, data.clone()),
        ],
        vec![
            (Original, 0, offering(1, TO_CLIENT)),
            (Reply, 7, offering(2, TO_SERVER)),
            (Original, 7, cookie_echo.clone()),
        ],
        vec![(Original, 3, offering(1, TO_CLIENT))],
        vec![(Original, 0, offering(1, 0))],
    ];
    // Steps that the kernel passes and `flow` refuses, explained in docs/conformance.md. (script, step)
    let stricter = [(0, 13), (10, 0)];
    let mut differ = Vec::new();
    for (number, script) in scripts.iter().enumerate() {
        let tuple = Tuple::v4(ip_protocol::SCTP, (CLIENT, 5000 + number as u16), (SERVER, 2905));
        let mut association = Association::default();
        for (step, (direction, tag, chunks)) in script.iter().enumerate() {
            let tuple = if *direction == Original { tuple } else { tuple.inverse() };
            let packet = router.envelope(*direction).sctp(&tuple, *tag, chunks);
            let kernel = router.is_valid(*direction, &packet);
            let passes = association.passes(*direction, &packet);
            if passes != kernel {
                println!("script {number}, step {step}: {chunks:?} passes here: {passes}, there: {kernel}");
                differ.push((number, step, passes));
            }
        }
    }
    assert_eq!(differ, stricter.map(|(number, step)| (number, step, false)));
}

/// An association as `flow` tracks it.
#[derive(Default)]
struct Association {
    known: Option<(ProtocolState, u8)>,
}

impl Association {
    fn passes(&mut self, direction: Direction, frame: &[u8]) -> bool {
        let tracker = Tracker::default();
        let Some(headers) = read(frame) else { return false };
        match &mut self.known {
            Some((state, flags)) => {
                tracker.advance(Instant::from_millis(1), state, flags, direction, &headers).verdict.is_ok()
            }
            none => {
                *none = tracker.begin(&headers).ok().map(|(state, _)| (state, 0));
                none.is_some()
            }
        }
    }
}
