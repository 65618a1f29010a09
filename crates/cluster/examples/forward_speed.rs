//! The cost of a packet in the forwarder: `cargo run --release -p cluster --example forward_speed`.
#![expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant as Clock;

use cluster::forwarding::{Admission, Config, Forwarder, Port, Prefix, ReversePath, Route};
use flow::wire::build::{self, Envelope};
use flow::wire::{MacAddress, Packet, Parsed, ip_protocol, parse};
use flow::{Checksum, Disposition, Frame, Instant, PortId, Tuple};

const ROUTES: u32 = 4000;
const HOSTS: u32 = 200;
const PACKETS: u32 = 4_000_000;
const MAC: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

fn host(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 10).to_bits() + index % HOSTS)
}

fn forwarder(now: Instant) -> Forwarder {
    let port = |mac, address: Ipv4Addr| Port {
        mac,
        mtu_bytes: 1500,
        own: vec![],
        shared: vec![Prefix::new(address.into(), 24).into()],
        mss_clamp: None,
        reverse_path: ReversePath::default(),
        router_advertisements: None,
    };
    let network = |index: u32| Ipv4Addr::from_bits(Ipv4Addr::new(100, 0, 0, 0).to_bits() + (index << 8));
    let route = |index| Route {
        destination: Prefix::new(IpAddr::V4(network(index)), 24),
        gateway: GATEWAY.into(),
        port: PortId(1),
    };
    let config = Config {
        ports: vec![port(MAC[0], Ipv4Addr::new(10, 0, 0, 1)), port(MAC[1], Ipv4Addr::new(192, 0, 2, 1))],
        routes: (0..ROUTES).map(route).collect(),
        direct_return: vec![],
        seed: 1,
    };
    let mut forwarder = Forwarder::new(config).expect("the configuration is right");
    forwarder.set_held(now, cluster::GroupSet::ALL);
    let neighbours = (0..HOSTS).map(|index| (0, host(index), Ipv4Addr::new(10, 0, 0, 1)));
    for (port, address, shared) in neighbours.chain([(1, GATEWAY, Ipv4Addr::new(192, 0, 2, 1))]) {
        let mut bytes = build::arp_request(MacAddress([2, 1, 1, 1, 1, 1]), address, shared);
        let length_bytes = bytes.len();
        let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(port)).expect("it fits");
        forwarder.handle_arp(now, &frame, 14);
    }
    forwarder
}

fn measure(name: &str, destination: impl Fn(u32) -> Ipv4Addr, ingress: u8) {
    let now = Instant::from_millis(1000);
    let mut forwarder = forwarder(now);
    let envelope = Envelope { destination: MAC[usize::from(ingress)], ..Envelope::default() };
    let source = (Ipv4Addr::new(203, 0, 113, 5), 1);
    let frames: Vec<Vec<u8>> = (0..1024)
        .map(|index| envelope.udp(&Tuple::v4(ip_protocol::UDP, source, (destination(index), 2)), &[0; 22]))
        .collect();
    let mut parsed: Vec<_> = frames
        .into_iter()
        .map(|mut bytes| {
            let length_bytes = bytes.len();
            let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(ingress)).expect("it fits");
            let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("a built frame parses") };
            (bytes, headers)
        })
        .collect();
    let original = parsed.clone();
    let began = Clock::now();
    let mut spent_on_copies = std::time::Duration::ZERO;
    for round in 0..PACKETS / 1024 {
        for (bytes, headers) in &mut parsed {
            let length_bytes = bytes.len();
            let mut frame = Frame::new(bytes, 0, length_bytes, PortId(ingress)).expect("it fits");
            frame.checksum = Checksum::Valid;
            let mut packet = Packet { frame: &mut frame, headers: &mut headers.clone() };
            assert_eq!(forwarder.admit(now, &packet), Admission::Transit);
            assert!(matches!(black_box(forwarder.forward(now, &mut packet)), Disposition::Transmit(_)), "{round}");
        }
        let copying = Clock::now();
        for ((bytes, _), (fresh, _)) in parsed.iter_mut().zip(&original) {
            bytes.copy_from_slice(fresh);
        }
        spent_on_copies += copying.elapsed();
    }
    let spent = began.elapsed() - spent_on_copies;
    let packets = f64::from(PACKETS / 1024 * 1024);
    println!("{name}: {:.1} ns a packet (admit and forward)", spent.as_nanos() as f64 / packets);
}

fn main() {
    println!("{ROUTES} routes, {HOSTS} neighbours");
    measure(
        "to a gateway, another route each packet",
        |index| Ipv4Addr::from_bits(0x6400_0005 + ((index * 997 % ROUTES) << 8)),
        0,
    );
    measure("to a neighbour, another each packet", host, 1);
}
