//! Addresses that no port and no route may have, link-local ones, checks of sources and router advertisements.

use std::net::IpAddr;

use cluster::forwarding::{ReversePath, RouterAdvertisements};

use super::*;

const INSIDE: &str = "\"fd00::1/64\"]";
const OUTSIDE: &str = "[\"192.0.2.10/24\"]";
const ROUTE: &str = "[[route]]\nto = \"0.0.0.0/0\"";

/// Replaces parts of [`GOOD`].
fn with(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(GOOD.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

fn good(changes: &[(&str, &str)]) -> Config {
    let text = with(changes);
    check(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).config
}

#[test]
fn no_packets_are_routed_to_networks_that_no_router_forwards_to() {
    for (to, kind, remedy) in [
        ("224.0.0.0/4", "multicast", "unicast"),
        ("239.1.0.0/16", "multicast", "unicast"),
        ("255.255.255.255", "broadcast", "stays on its link"),
        ("127.0.0.0/8", "loopback", "remove the route"),
        ("0.0.0.0/8", "of no host", "0.0.0.0/0"),
        ("169.254.0.0/16", "link-local", "stay on their link"),
    ] {
        let said = said(&with(&[("to = \"0.0.0.0/0\"", &format!("to = \"{to}\""))]));
        assert!(said.contains(kind) && said.contains(remedy), "{to}: {said}");
    }
    for (to, kind, remedy) in [
        ("ff00::/8", "multicast", "unicast"),
        ("ff05::/16", "multicast", "unicast"),
        ("fe80::/10", "link-local", "stay on their link"),
        ("fe80::/64", "link-local", "stay on their link"),
        ("::1/128", "loopback", "remove the route"),
        ("::ffff:10.0.0.0/104", "IPv4-mapped", "IPv4 prefix"),
    ] {
        let said = said(&with(&[(ROUTE, &format!("[[route]]\nto = \"{to}\"\nvia = \"fd00::2\"\n{ROUTE}"))]));
        assert!(said.contains(kind) && said.contains(remedy), "{to}: {said}");
    }
    for to in ["0.0.0.0/1", "128.0.0.0/1", "192.0.0.0/3"] {
        good(&[("to = \"0.0.0.0/0\"", &format!("to = \"{to}\""))]);
    }
}

#[test]
fn no_port_has_an_address_that_no_packet_carries() {
    for (address, problem) in [
        ("::ffff:192.0.2.77/120", "write 192.0.2.77"),
        ("255.255.255.255/32", "unicast"),
        ("0.0.0.1/8", "unicast"),
        ("127.0.0.1/8", "unicast"),
        ("ff02::1/64", "unicast"),
        ("fe80::1/8", "write fe80::1/64"),
    ] {
        let said = said(&with(&[(OUTSIDE, &format!("[\"192.0.2.10/24\", \"{address}\"]"))]));
        assert!(said.contains(problem), "{address}: {said}");
    }
}

#[test]
fn each_port_may_have_the_same_link_local_address_once() {
    let both = [(INSIDE, "\"fd00::1/64\", \"fe80::1/64\"]"), (OUTSIDE, "[\"192.0.2.10/24\", \"fe80::1/64\"]")];
    let config = good(&both);
    let own: Vec<usize> = config.ports.iter().map(|port| port.addresses.len()).collect();
    assert_eq!(own, [3, 2]);
    let twice = said(&with(&[(OUTSIDE, "[\"192.0.2.10/24\", \"fe80::1/64\", \"fe80::1/64\"]")]));
    assert!(twice.contains("fe80::1 is listed twice"), "{twice}");
}

#[test]
fn a_link_local_next_hop_belongs_to_the_port_that_is_named_in_either_way() {
    let route = |keys: &str| with(&[(ROUTE, &format!("[[route]]\nto = \"::/0\"\n{keys}\n{ROUTE}"))]);
    let via: IpAddr = "fe80::1".parse().unwrap();
    for (keys, port) in [
        ("via = \"fe80::1%outside\"", 1),
        ("via = \"fe80::1%eth1\"", 1),
        ("via = \"fe80::1%inside\"", 0),
        ("via = \"fe80::1\"\nport = \"outside\"", 1),
        ("via = \"fe80::1%eth0\"\nport = \"inside\"", 0),
    ] {
        let route_read = check(&route(keys)).unwrap().config.routes[0];
        assert_eq!((route_read.via, route_read.port), (via, PortId(port)), "{keys}");
    }
    for (keys, problem) in [
        ("via = \"fe80::1\"", "add port = \"inside\", or write \"fe80::1%inside\""),
        ("via = \"fe80::1%eth7\"", "there is no port \"eth7\" after the %"),
        ("via = \"fe80::1%eth0\"\nport = \"outside\"", "write one of the two"),
        ("via = \"fe80::1\"\nport = \"nowhere\"", "there is no port \"nowhere\""),
        ("via = \"fd00::9\"\nport = \"outside\"", "fd00::9 is on no network of port \"outside\""),
        ("via = \"ff02::2\"\nport = \"outside\"", "no router can have the address ff02::2"),
    ] {
        let said = said(&route(keys));
        assert!(said.contains(problem), "{keys}: {said}");
    }
    let own = with(&[
        (INSIDE, "\"fd00::1/64\", \"fe80::1/64\"]"),
        (ROUTE, "[[route]]\nto = \"::/0\"\nvia = \"fe80::1%inside\"\n[[route]]\nto = \"0.0.0.0/0\""),
    ]);
    assert!(said(&own).contains("the gateway's own address on port \"inside\""), "{}", said(&own));
    let elsewhere = own.replace("fe80::1%inside", "fe80::1%outside");
    assert_eq!(check(&elsewhere).unwrap().config.routes[0].port, PortId(1));
}

#[test]
fn a_tracked_next_hop_may_be_link_local_with_its_port() {
    let tracked = |hop: &str| format!("{GOOD}[reachability]\ntrack = [{{ next_hop = \"{hop}\" }}]\n");
    assert!(check(&tracked("fe80::2%outside")).is_ok(), "{}", said(&tracked("fe80::2%outside")));
    assert!(said(&tracked("fe80::2")).contains("write \"fe80::2%inside\""));
}

#[test]
fn the_check_of_sources_is_automatic_unless_it_is_chosen() {
    let config = good(&[]);
    assert!(config.ports.iter().all(|port| port.reverse_path == ReversePath::Automatic));
    for (written, mode) in [("strict", ReversePath::Strict), ("loose", ReversePath::Loose), ("off", ReversePath::Off)] {
        let config = good(&[(OUTSIDE, &format!("{OUTSIDE}\nreverse_path = \"{written}\""))]);
        assert_eq!(config.ports[1].reverse_path, mode);
    }
    let said = said(&with(&[(OUTSIDE, &format!("{OUTSIDE}\nreverse_path = \"none\""))]));
    assert!(said.contains("write \"strict\" or \"loose\" or \"off\""), "{said}");
}

/// The inside port with a link-local address, and its section with these keys.
fn advertising(keys: &str) -> String {
    with(&[(INSIDE, &format!("\"fd00::1/64\", \"fe80::1/64\"]\n[port.router_advertisements]\n{keys}"))])
}

#[test]
fn a_port_that_advertises_routers_has_the_defaults_of_the_standard() {
    let config = check(&advertising("")).unwrap().config;
    let settings = config.ports[0].router_advertisements.clone().unwrap();
    assert_eq!(
        settings,
        RouterAdvertisements { interval_min: Duration::from_secs(200), ..RouterAdvertisements::default() }
    );
    assert_eq!(config.ports[1].router_advertisements, None);
    let config =
        check(&advertising("interval_max = \"4s\"\nname_servers = [\"fd00::53\"]\nmtu = 1400\nmanaged = true"))
            .unwrap()
            .config;
    let settings = config.ports[0].router_advertisements.clone().unwrap();
    assert_eq!((settings.interval_min, settings.lifetime), (Duration::from_secs(3), Duration::from_secs(12)));
    assert_eq!((settings.mtu_bytes, settings.is_managed, settings.name_servers.len()), (Some(1400), true, 1));
}

#[test]
fn settings_that_would_make_hosts_lose_their_router_are_refused() {
    for (keys, problem) in [
        ("interval_max = \"1s\"", "choose a duration from \"4s\""),
        ("interval_min = \"500s\"", "too close to the longest"),
        ("lifetime = \"1m\"", "before the next advertisement"),
        ("preferred_lifetime = \"60d\"", "write a preferred_lifetime of at most \"30d\""),
        ("mtu = 576", "choose a number from 1280"),
        ("preference = \"highest\"", "write \"high\" or \"medium\" or \"low\""),
        ("name_servers = [\"192.0.2.53\"]", "no IPv6 address of a name server"),
        ("interval = \"5s\"", "interval"),
    ] {
        let said = said(&advertising(keys));
        assert!(check(&advertising(keys)).is_err() && said.contains(problem), "{keys}: {said}");
    }
    assert!(check(&advertising("lifetime = \"0s\"")).is_ok(), "a router that is nobody's default router");
    let without_address = with(&[(INSIDE, "\"fd00::1/64\"]\n[port.router_advertisements]")]);
    assert!(
        said(&without_address).contains("add \"fe80::1/64\" to the port's addresses"),
        "{}",
        said(&without_address)
    );
}
