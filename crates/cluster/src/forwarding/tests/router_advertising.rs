//! Routers that are advertised to hosts, and link-local addresses of several ports.

use flow::wire::icmpv6::NEIGHBOUR_HOP_LIMIT;

use super::*;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const HOST_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Both ports have the same link-local address; the inside advertises it.
fn advertising() -> Config {
    let mut config = config();
    config.ports.iter_mut().for_each(|port| port.shared.push(Prefix::new(ROUTER.into(), 64).into()));
    config.ports[0].router_advertisements = Some(RouterAdvertisements::default());
    config
}

fn bench() -> Bench {
    Bench { now: Instant::from_millis(1_000_000), forwarder: Forwarder::new(advertising()).unwrap() }
}

/// An advertisement as it was sent: its port and receiver, and the lifetime of the router in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Advertised {
    port: PortId,
    to: (MacAddress, Ipv6Addr),
    lifetime_s: u16,
}

fn advertised(port: PortId, bytes: &[u8]) -> Option<Advertised> {
    if !matches!(EthernetView::new_checked(bytes).unwrap().ether_type(), ether_type::IPV6) {
        return None;
    }
    let headers = headers(bytes);
    let Transport::IcmpOther(icmpv6::kind::ROUTER_ADVERTISEMENT, _) = headers.transport else { return None };
    assert_eq!((headers.ttl, headers.tuple.source_ip()), (NEIGHBOUR_HOP_LIMIT, ROUTER.into()));
    assert_eq!(link(bytes).0, if port == INSIDE { INSIDE_MAC } else { OUTSIDE_MAC });
    let IpAddr::V6(to) = headers.tuple.destination_ip() else { panic!("of IPv6") };
    let lifetime_at = usize::from(headers.l4_offset) + 6;
    let lifetime_s = u16::from_be_bytes([bytes[lifetime_at], bytes[lifetime_at + 1]]);
    Some(Advertised { port, to: (link(bytes).1, to), lifetime_s })
}

/// The advertisements that are to be sent now.
fn drained(bench: &mut Bench) -> Vec<Advertised> {
    bench.drain().iter().filter_map(|(out, bytes)| advertised(out.port, bytes)).collect()
}

fn to_all(lifetime_s: u16) -> Advertised {
    Advertised { port: INSIDE, to: (MacAddress([0x33, 0x33, 0, 0, 0, 1]), ALL_NODES), lifetime_s }
}

fn solicitation(source: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
    let destination = MacAddress([0x33, 0x33, 0, 0, 0, 2]);
    let envelope = Envelope { source: HOST_MAC, destination, ttl: hop_limit, ..Envelope::default() };
    let tuple = Tuple::v6(ip_protocol::ICMPV6, (source, 0), (ALL_ROUTERS, 0));
    let header = build::IcmpHeader { kind: icmpv6::kind::ROUTER_SOLICITATION, code: 0, parameter: 0 };
    let option = [1, 1, 2, 0xbb, 0, 0, 0, 1];
    envelope.icmp(&tuple, header, if source.is_unspecified() { &[] } else { &option })
}

#[test]
fn a_router_is_advertised_when_it_is_held_often_at_first_and_within_the_intervals_later() {
    let mut bench = bench();
    assert_eq!(bench.run_ms(60_000).iter().filter_map(|(_, out, bytes)| advertised(out.port, bytes)).count(), 0);
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    let sent = bench.run_ms(3 * 3_600_000);
    let sent = sent.iter().filter_map(|(ms, out, bytes)| Some((*ms, advertised(out.port, bytes)?)));
    let times_ms: Vec<u64> = sent.inspect(|(_, sent)| assert_eq!(*sent, to_all(1800))).map(|(ms, _)| ms).collect();
    assert_eq!(times_ms[0], 0, "at once");
    let gaps_ms: Vec<u64> = times_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps_ms[..3].iter().all(|gap| *gap <= 16_000), "{gaps_ms:?}");
    assert!(gaps_ms[3..].iter().all(|gap| (198_000..=600_000).contains(gap)), "{gaps_ms:?}");
    assert_eq!(bench.forwarder.counters().router_advertisements, times_ms.len() as u64);
}

#[test]
fn a_solicitation_is_answered_to_the_host_and_one_without_an_address_to_all_but_not_at_any_rate() {
    let mut bench = bench();
    assert_eq!(bench.feed(INSIDE, solicitation(HOST_LINK_LOCAL, 255)).disposition, Disposition::Consumed);
    assert_eq!(drained(&mut bench), [], "a node that stands by is silent");
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    assert_eq!(drained(&mut bench), [to_all(1800)]);
    bench.feed(INSIDE, solicitation(HOST_LINK_LOCAL, 255));
    let answer = Advertised { port: INSIDE, to: (HOST_MAC, HOST_LINK_LOCAL), lifetime_s: 1800 };
    assert_eq!(drained(&mut bench), [answer]);
    let fed = bench.feed(INSIDE, solicitation(HOST_LINK_LOCAL, 254));
    assert_eq!(fed.disposition, Disposition::Drop(DropReason::Malformed), "a router has passed it on");
    for _ in 0..100 {
        bench.feed(INSIDE, solicitation(Ipv6Addr::UNSPECIFIED, 255));
    }
    let sent = bench.run_ms(3_600);
    let to_hosts: Vec<_> =
        sent.iter().filter_map(|(ms, out, bytes)| Some((*ms, advertised(out.port, bytes)?))).collect();
    assert!(matches!(to_hosts[..], [(3_000..=3_500, sent)] if sent == to_all(1800)), "{to_hosts:?}");
    bench.feed(OUTSIDE, solicitation(HOST_LINK_LOCAL, 255));
    assert_eq!(drained(&mut bench), [], "this port advertises nothing");
}

#[test]
fn a_router_that_is_handed_over_is_not_withdrawn_and_one_that_nobody_will_hold_is() {
    let mut bench = bench();
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    bench.drain();
    bench.forwarder.set_held(bench.now, GroupSet::EMPTY);
    assert_eq!(drained(&mut bench), []);
    bench.forwarder.withdraw_routers(bench.now, GroupSet::ALL);
    assert_eq!(drained(&mut bench), [to_all(0)]);
}

#[test]
fn a_reload_withdraws_a_router_that_it_ends_and_advertises_changed_settings_at_once() {
    let mut bench = bench();
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    bench.drain();
    let mut other = advertising();
    other.ports[0].router_advertisements.as_mut().unwrap().lifetime = Duration::from_secs(900);
    bench.forwarder.reconfigure(bench.now, other.clone()).unwrap();
    assert_eq!(drained(&mut bench), [to_all(900)]);
    other.routes.clear();
    bench.forwarder.reconfigure(bench.now, other.clone()).unwrap();
    assert_eq!(drained(&mut bench), [], "nothing that is advertised to hosts has changed");
    other.ports[0].router_advertisements = None;
    bench.forwarder.reconfigure(bench.now, other.clone()).unwrap();
    assert_eq!(drained(&mut bench), [to_all(0)]);
    bench.forwarder.reconfigure(bench.now, advertising()).unwrap();
    assert_eq!(drained(&mut bench), [to_all(1800)]);
    let mut without_address = advertising();
    without_address.ports[0].shared.pop();
    bench.forwarder.reconfigure(bench.now, without_address).unwrap();
    assert_eq!(drained(&mut bench), [to_all(0)]);
}

#[test]
fn each_port_answers_solicitations_of_its_own_link_local_address_and_takes_it_for_a_hosts_on_another() {
    let mut bench = Bench { now: Instant::from_millis(1_000_000), forwarder: Forwarder::new(advertising()).unwrap() };
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    bench.drain();
    for (port, mac) in [(INSIDE, INSIDE_MAC), (OUTSIDE, OUTSIDE_MAC)] {
        bench.feed(port, build::neighbour_solicitation(HOST_MAC, HOST_LINK_LOCAL, ROUTER));
        let answers = bench.drain();
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].0.port, neighbour_message(&answers[0].1).link_address), (port, Some(mac)));
    }
    // Without the address on the outside, a router there may have it.
    let mut other = advertising();
    other.ports[1].shared.pop();
    other.routes[1].gateway = ROUTER.into();
    bench.forwarder.reconfigure(bench.now, other).unwrap();
    bench.drain();
    let flags = advertisement_flags::SOLICITED | advertisement_flags::OVERRIDE;
    bench.feed(OUTSIDE, build::neighbour_advertisement(GATEWAY_MAC, ROUTER, (OUTSIDE_MAC, OUTSIDE6), flags));
    assert_eq!(bench.forwarder.neighbour(OUTSIDE, ROUTER.into()), Some((NeighbourState::Reachable, GATEWAY_MAC)));
    let fed = bench.feed(INSIDE, to_server6());
    assert_eq!((fed.disposition, link(&fed.bytes)), (Disposition::Transmit(OUTSIDE), (OUTSIDE_MAC, GATEWAY_MAC)));
}

#[test]
fn nothing_is_forwarded_from_or_to_link_local_addresses() {
    let mut bench = Bench { now: Instant::from_millis(1_000_000), forwarder: Forwarder::new(advertising()).unwrap() };
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    let envelope = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ..Envelope::default() };
    let elsewhere = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);
    for (source, destination) in [(HOST_LINK_LOCAL, SERVER6), (HOST6, elsewhere)] {
        let frame = envelope.udp(&Tuple::v6(ip_protocol::UDP, (source, 1), (destination, 2)), b"");
        assert_eq!(bench.feed(INSIDE, frame).disposition, Disposition::Drop(DropReason::MartianAddress));
    }
}

/// Networks of the advertisements that are to be sent now: each with its valid and its preferred lifetime in seconds.
fn networks(bench: &mut Bench) -> Vec<Vec<(Ipv6Addr, u32, u32)>> {
    let sent = bench.drain().into_iter().filter(|(out, bytes)| advertised(out.port, bytes).is_some());
    let of_one = |bytes: Vec<u8>| {
        let mut options = &bytes[usize::from(headers(&bytes).l4_offset) + 16..];
        let mut found = vec![];
        while let [kind, units, ..] = *options {
            let (option, rest) = options.split_at(usize::from(units) * 8);
            let number = |at: usize| u32::from_be_bytes(option[at..at + 4].try_into().unwrap());
            if kind == 3 {
                let network = Ipv6Addr::from_bits(u128::from_be_bytes(option[16..32].try_into().unwrap()));
                found.push((network, number(4), number(8)));
            }
            options = rest;
        }
        found
    };
    sent.map(|(_, bytes)| of_one(bytes)).collect()
}

#[test]
fn a_network_that_a_reload_removes_is_deprecated_for_two_hours_or_until_it_is_back() {
    const NETWORKS: [Ipv6Addr; 2] =
        [Ipv6Addr::new(0xfd00, 0xa, 0, 0, 0, 0, 0, 0), Ipv6Addr::new(0xfd00, 0xb, 0, 0, 0, 0, 0, 0)];
    let with = |networks: &[Ipv6Addr]| {
        let mut config = advertising();
        config.ports[0].shared.retain(|shared| shared.prefix.address == ROUTER || shared.prefix.address.is_ipv4());
        let own = |network: &Ipv6Addr| Prefix::new(Ipv6Addr::from_bits(network.to_bits() + 1).into(), 64);
        config.ports[0].shared.extend(networks.iter().map(|network| Shared::from(own(network))));
        config
    };
    let now = Instant::from_millis(1_000_000);
    let mut bench = Bench { now, forwarder: Forwarder::new(with(&NETWORKS)).unwrap() };
    let alive = |network| (network, 30 * 86_400, 7 * 86_400);
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    assert_eq!(networks(&mut bench), [NETWORKS.map(alive)]);
    bench.forwarder.reconfigure(bench.now, with(&NETWORKS[..1])).unwrap();
    assert_eq!(networks(&mut bench), [[alive(NETWORKS[0]), (NETWORKS[1], 7200, 0)]]);
    // A second reload keeps it, and the time goes on.
    bench.now = bench.now + Duration::from_secs(3600);
    bench.forwarder.reconfigure(bench.now, with(&[])).unwrap();
    let deprecated = [(NETWORKS[1], 3600, 0), (NETWORKS[0], 7200, 0)];
    assert!(networks(&mut bench).contains(&deprecated.to_vec()));
    bench.forwarder.reconfigure(bench.now, with(&NETWORKS)).unwrap();
    assert_eq!(networks(&mut bench), [NETWORKS.map(alive)], "both are back");
    // A router that ends with its networks deprecates them, too.
    let mut without = with(&NETWORKS[..1]);
    without.ports[0].router_advertisements = None;
    bench.forwarder.reconfigure(bench.now, without).unwrap();
    assert_eq!(networks(&mut bench), [NETWORKS.map(|network| (network, 7200, 0))]);
    bench.forwarder.reconfigure(bench.now, with(&NETWORKS[..1])).unwrap();
    assert_eq!(networks(&mut bench), [[alive(NETWORKS[0]), (NETWORKS[1], 7200, 0)]]);
    bench.now = bench.now + Duration::from_secs(2 * 3600);
    assert!(networks(&mut bench).iter().all(|sent| *sent == [alive(NETWORKS[0])]), "its time is over");
}
