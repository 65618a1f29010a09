//! Which sources are believed on which port, and destinations that are not for forwarding.

use core::net::SocketAddr;

use super::*;

const BRANCH: PortId = PortId(2);
const BRANCH_MAC: MacAddress = MacAddress([2, 0xaa, 0, 0, 0, 3]);
const BRANCH_SHARED: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 1);
const BRANCH_HOST: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 9);

/// The bench with a third port, whose network and one behind it have no default route.
fn bench(change: impl Fn(&mut Config)) -> Bench {
    let mut config = config();
    let mut branch = config.ports[0].clone();
    (branch.mac, branch.shared) = (BRANCH_MAC, vec![Prefix::new(BRANCH_SHARED.into(), 24).into()]);
    config.ports.push(branch);
    let destination = Prefix::new(Ipv4Addr::new(203, 0, 113, 0).into(), 24);
    config.routes.push(Route { destination, gateway: BRANCH_HOST.into(), port: BRANCH });
    change(&mut config);
    let now = Instant::from_millis(1_000_000);
    let mut bench = Bench { now, forwarder: Forwarder::new(config).unwrap() };
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    bench
}

/// What becomes of a datagram: the reason for which it is refused, if it is.
fn refusal(
    bench: &mut Bench,
    port: PortId,
    source: impl Into<IpAddr>,
    destination: impl Into<IpAddr>,
) -> Option<DropReason> {
    let mac = [INSIDE_MAC, OUTSIDE_MAC, BRANCH_MAC][usize::from(port.0)];
    let envelope = Envelope { source: HOST_MAC, destination: mac, ..Envelope::default() };
    let (source, destination) = (SocketAddr::new(source.into(), 4000), SocketAddr::new(destination.into(), 53));
    let mut bytes = envelope.udp(&Tuple::new(ip_protocol::UDP, source, destination), b"");
    let length_bytes = bytes.len();
    let frame = &mut Frame::new(&mut bytes, 0, length_bytes, port).unwrap();
    let mut headers = match parse(frame) {
        Ok(Parsed::Ip(headers)) => headers,
        other => return other.err(),
    };
    match bench.forwarder.admit(bench.now, &Packet { frame, headers: &mut headers }) {
        Admission::Refused(reason) => Some(reason),
        Admission::Transit | Admission::Local | Admission::Own => None,
    }
}

fn set(mode: ReversePath) -> impl Fn(&mut Config) {
    move |config| config.ports.iter_mut().for_each(|port| port.reverse_path = mode)
}

#[test]
fn the_gateways_own_addresses_come_from_nobody_whatever_the_port_believes() {
    for mode in [ReversePath::Automatic, ReversePath::Strict, ReversePath::Loose, ReversePath::Off] {
        let mut bench = bench(|config| {
            set(mode)(config);
            config.ports[0].own.push(Prefix::new(Ipv4Addr::new(10, 0, 0, 2).into(), 24));
        });
        let own: [IpAddr; 5] = [
            INSIDE_SHARED.into(),
            OUTSIDE_SHARED.into(),
            Ipv4Addr::new(10, 0, 0, 2).into(),
            INSIDE6.into(),
            OUTSIDE6.into(),
        ];
        for source in own {
            for port in [INSIDE, OUTSIDE, BRANCH] {
                let [beyond, shared]: [IpAddr; 2] = if source.is_ipv4() {
                    [SERVER.into(), INSIDE_SHARED.into()]
                } else {
                    [SERVER6.into(), INSIDE6.into()]
                };
                for destination in [beyond, shared] {
                    let refused = refusal(&mut bench, port, source, destination);
                    assert_eq!(
                        refused,
                        Some(DropReason::MartianAddress),
                        "{source} by {port:?} to {destination}, {mode:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn addresses_that_no_host_has_come_from_nobody() {
    let mut bench = bench(set(ReversePath::Off));
    for source in ["255.255.255.255", "10.0.0.255", "192.0.2.255", "224.0.0.5", "0.0.0.0", "0.1.2.3", "127.0.0.1"] {
        let source: IpAddr = source.parse().unwrap();
        assert_eq!(refusal(&mut bench, INSIDE, source, SERVER), Some(DropReason::MartianAddress), "{source}");
    }
    for source in ["::1", "::", "ff02::1", "::ffff:10.0.0.9", "fe80::9"] {
        let source: IpAddr = source.parse().unwrap();
        assert_eq!(refusal(&mut bench, INSIDE, source, SERVER6), Some(DropReason::MartianAddress), "{source}");
    }
    assert_eq!(refusal(&mut bench, INSIDE, HOST, Ipv4Addr::LOCALHOST), Some(DropReason::MartianAddress));
    // A host that sends itself a packet needs no router.
    assert_eq!(refusal(&mut bench, INSIDE, HOST, HOST), Some(DropReason::MartianAddress));
    assert_eq!(refusal(&mut bench, OUTSIDE, SERVER6, SERVER6), Some(DropReason::MartianAddress));
}

#[test]
fn by_default_what_lies_behind_a_port_without_a_default_route_comes_by_it_alone() {
    let mut bench = bench(|_| {});
    let somewhere = Ipv4Addr::new(8, 8, 8, 8);
    // The default route is outside.
    let believed = [
        (INSIDE, HOST),
        (OUTSIDE, SERVER),
        (OUTSIDE, somewhere),
        (BRANCH, BRANCH_HOST),
        (BRANCH, Ipv4Addr::new(203, 0, 113, 7)),
    ];
    for (port, source) in believed {
        assert_eq!(refusal(&mut bench, port, source, Ipv4Addr::new(9, 9, 9, 9)), None, "{source} by {port:?}");
    }
    let forged = [
        (OUTSIDE, HOST),
        (BRANCH, HOST),
        (OUTSIDE, BRANCH_HOST),
        (INSIDE, SERVER),
        (BRANCH, somewhere),
        (OUTSIDE, Ipv4Addr::new(203, 0, 113, 7)),
    ];
    for (port, source) in forged {
        for destination in [Ipv4Addr::new(9, 9, 9, 9), INSIDE_SHARED] {
            let refused = refusal(&mut bench, port, source, destination);
            assert_eq!(refused, Some(DropReason::ReversePath), "{source} by {port:?} to {destination}");
        }
    }
    assert_eq!(refusal(&mut bench, OUTSIDE, HOST6, SERVER6), Some(DropReason::ReversePath));
    assert_eq!(refusal(&mut bench, OUTSIDE, SERVER6, HOST6), None);
    assert_eq!(refusal(&mut bench, INSIDE, HOST6, SERVER6), None);
}

#[test]
fn a_family_without_a_default_route_is_strict_on_its_own() {
    let mut bench = bench(|config| config.routes.retain(|route| route.destination.address.is_ipv4()));
    assert_eq!(refusal(&mut bench, OUTSIDE, GATEWAY6, HOST6), None);
    assert_eq!(refusal(&mut bench, OUTSIDE, SERVER6, HOST6), Some(DropReason::ReversePath), "no route leads there");
    assert_eq!(refusal(&mut bench, OUTSIDE, SERVER, HOST), None);
}

#[test]
fn loose_ports_take_each_others_sources_and_ports_that_are_off_take_all() {
    let mut one = bench(|config| config.ports[2].reverse_path = ReversePath::Loose);
    assert_eq!(refusal(&mut one, BRANCH, SERVER, HOST), None, "replies may come back by another way out");
    assert_eq!(refusal(&mut one, OUTSIDE, Ipv4Addr::new(203, 0, 113, 7), HOST), None);
    assert_eq!(refusal(&mut one, BRANCH, HOST, SERVER), Some(DropReason::ReversePath), "the inside is strict");
    let mut strict = bench(set(ReversePath::Strict));
    assert_eq!(refusal(&mut strict, OUTSIDE, SERVER, HOST), None);
    assert_eq!(refusal(&mut strict, BRANCH, SERVER, HOST), Some(DropReason::ReversePath));
    let mut off = bench(|config| config.ports[1].reverse_path = ReversePath::Off);
    assert_eq!(refusal(&mut off, OUTSIDE, HOST, SERVER), None);
    let mut loose = bench(set(ReversePath::Loose));
    assert_eq!(refusal(&mut loose, OUTSIDE, HOST, SERVER), None);
}

#[test]
fn a_backends_answers_with_the_address_of_its_service_pass_on_the_port_to_the_backend() {
    let mut bench = bench(|config| config.direct_return.push((OUTSIDE_SHARED.into(), HOST.into())));
    assert_eq!(refusal(&mut bench, INSIDE, OUTSIDE_SHARED, SERVER), None);
    for port in [OUTSIDE, BRANCH] {
        assert_eq!(refusal(&mut bench, port, OUTSIDE_SHARED, SERVER), Some(DropReason::MartianAddress));
    }
}

#[test]
fn what_is_for_all_hosts_of_a_network_is_not_routed() {
    let mut bench = bench(set(ReversePath::Off));
    for destination in ["255.255.255.255", "10.0.0.255", "192.0.2.255", "224.0.0.5", "239.1.2.3"] {
        let destination: IpAddr = destination.parse().unwrap();
        for (port, source) in [(INSIDE, HOST), (OUTSIDE, SERVER)] {
            let refused = refusal(&mut bench, port, source, destination);
            assert_eq!(refused, Some(DropReason::LinkBroadcast), "{destination} by {port:?}");
        }
    }
}

#[test]
fn a_network_of_two_addresses_has_no_broadcast() {
    let pair = Prefix::new(Ipv4Addr::new(192, 0, 2, 128).into(), 31);
    let other = Ipv4Addr::new(192, 0, 2, 129);
    let mut bench = bench(|config| {
        config.ports[1].shared = vec![pair.into()];
        config.routes.retain(|route| route.destination.address.is_ipv4());
        config.routes[0].gateway = other.into();
    });
    assert_eq!(refusal(&mut bench, OUTSIDE, other, HOST), None);
    assert_eq!(refusal(&mut bench, INSIDE, HOST, other), None);
}

#[test]
fn a_reload_of_the_check_counts_for_the_next_packet() {
    let mut bench = Bench::settled();
    assert_eq!(refusal(&mut bench, OUTSIDE, HOST, SERVER), Some(DropReason::ReversePath));
    let mut other = config();
    set(ReversePath::Off)(&mut other);
    let revision = bench.forwarder.plan_revision();
    bench.forwarder.reconfigure(bench.now, other).unwrap();
    assert_eq!(refusal(&mut bench, OUTSIDE, HOST, SERVER), None);
    assert_ne!(bench.forwarder.plan_revision(), revision, "plans are void");
}
