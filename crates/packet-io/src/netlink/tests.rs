//! Interfaces created and changed in namespaces.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::*;
use crate::namespace::{Namespace, NamespaceSupport, probe};
use crate::sysctl;

const HERE_V4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const THERE_V4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const THERE_V6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 2);

/// Two namespaces joined by a cable `left` – `right`, or `None` (with a message) where the machine forbids it.
fn joined_namespaces() -> Option<(Namespace, Namespace)> {
    let support = probe();
    if support != NamespaceSupport::Available {
        crate::namespace::skip(format_args!("{support:?}"));
        return None;
    }
    let (here, there) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    here.run(|| Netlink::open().unwrap().create_veth("left", "right", &there)).unwrap().unwrap();
    Some((here, there))
}

#[test]
fn both_ends_of_a_cable_accept_settings_and_addresses() {
    let Some((here, there)) = joined_namespaces() else { return };
    here.run(|| {
        let mut netlink = Netlink::open().unwrap();
        netlink.set_mac("left", [2, 0, 0, 0, 0, 1]).unwrap();
        netlink.set_mtu("left", 9000).unwrap();
        netlink.set_up("left", true).unwrap();
        netlink.add_address("left", Prefix::new(HERE_V4.into(), 24)).unwrap();
        netlink.add_address("left", Prefix::new(HERE_V4.into(), 24)).unwrap();
    })
    .unwrap();
    there
        .run(|| {
            sysctl::quieten_ipv6().unwrap();
            let mut netlink = Netlink::open().unwrap();
            netlink.set_up("right", true).unwrap();
            netlink.add_address("right", Prefix::new(THERE_V6.into(), 64)).unwrap();
            assert!(netlink.interface("right").unwrap().addresses.contains(&Prefix::new(THERE_V6.into(), 64)));
            netlink.delete_address("right", Prefix::new(THERE_V6.into(), 64)).unwrap();
            assert!(!netlink.interface("right").unwrap().addresses.contains(&Prefix::new(THERE_V6.into(), 64)));
            std::net::UdpSocket::bind((THERE_V6, 0)).unwrap_err();
        })
        .unwrap();

    let look = || here.run(|| Netlink::open().unwrap().interface("left").unwrap()).unwrap();
    // The kernel detects the other end's state a moment later.
    let (begin, mut left) = (Instant::now(), look());
    while !left.running && begin.elapsed() < Duration::from_secs(10) {
        left = look();
    }
    assert_eq!((left.mac, left.mtu_bytes), ([2, 0, 0, 0, 0, 1], 9000));
    assert!(left.up && left.running && !left.loopback);
    assert!(left.addresses.contains(&Prefix::new(HERE_V4.into(), 24)));
}

#[test]
fn a_bridge_takes_ports() {
    let Some((here, _there)) = joined_namespaces() else { return };
    here.run(|| {
        let mut netlink = Netlink::open().unwrap();
        netlink.create_bridge("bridge").unwrap();
        netlink.attach_to_bridge("left", "bridge").unwrap();
        let bridge = netlink.interface("bridge").unwrap();
        assert_eq!(netlink.interface("left").unwrap().bridge_index, Some(bridge.index));
    })
    .unwrap();
}

/// Two namespaces on a bridge in a third one, with permanent neighbour entries; a socket in each.
#[test]
fn isolated_ports_of_a_bridge_exchange_nothing_until_the_isolation_ends() {
    let Some((switch, left)) = joined_namespaces() else { return };
    let right = Namespace::new().unwrap();
    let mac = |number| [2, 0, 0, 0, 0, number];
    switch
        .run(|| {
            let mut netlink = Netlink::open().unwrap();
            netlink.create_veth("second", "right", &right).unwrap();
            netlink.create_bridge("bridge").unwrap();
            for name in ["left", "second"] {
                netlink.attach_to_bridge(name, "bridge").unwrap();
                netlink.set_up(name, true).unwrap();
            }
            netlink.set_up("bridge", true).unwrap();
        })
        .unwrap();
    let socket = |namespace: &Namespace, own: (Ipv4Addr, u8), other: (Ipv4Addr, u8)| {
        let open = || {
            let mut netlink = Netlink::open().unwrap();
            netlink.set_mac("right", mac(own.1)).unwrap();
            netlink.set_up("right", true).unwrap();
            netlink.add_address("right", Prefix::new(own.0.into(), 24)).unwrap();
            netlink.add_neighbour("right", other.0.into(), mac(other.1)).unwrap();
            std::net::UdpSocket::bind((own.0, 4000)).unwrap()
        };
        namespace.run(open).unwrap()
    };
    let sender = socket(&left, (HERE_V4, 1), (THERE_V4, 2));
    let receiver = socket(&right, (THERE_V4, 2), (HERE_V4, 1));
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let isolate = |isolated| {
        let set = |name| Netlink::open().unwrap().set_isolated(name, isolated).unwrap();
        switch.run(|| ["left", "second"].into_iter().for_each(set)).unwrap();
    };
    let mut buffer = [0; 1];
    // Ports of a bridge forward a moment after they are up.
    let begin = Instant::now();
    receiver.set_nonblocking(true).unwrap();
    while receiver.recv(&mut buffer).is_err() && begin.elapsed() < Duration::from_secs(10) {
        let _ = sender.send_to(&[1], (THERE_V4, 4000));
    }
    while receiver.recv(&mut buffer).is_ok() {}
    receiver.set_nonblocking(false).unwrap();
    assert_eq!(buffer, [1]);
    isolate(true);
    sender.send_to(&[2], (THERE_V4, 4000)).unwrap();
    isolate(false);
    sender.send_to(&[3], (THERE_V4, 4000)).unwrap();
    while buffer == [1] {
        receiver.recv(&mut buffer).unwrap();
    }
    assert_eq!(buffer, [3], "frames sent during the isolation are lost");
}

#[test]
fn routes_and_neighbours_are_used() {
    let Some((here, _there)) = joined_namespaces() else { return };
    here.run(|| {
        let mut netlink = Netlink::open().unwrap();
        netlink.set_up("left", true).unwrap();
        netlink.add_address("left", Prefix::new(HERE_V4.into(), 24)).unwrap();
        let unrouted = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let target = (Ipv4Addr::new(192, 0, 2, 1), 9);
        assert_eq!(unrouted.connect(target).unwrap_err().raw_os_error(), Some(libc::ENETUNREACH));
        netlink.add_neighbour("left", THERE_V4.into(), [2, 0, 0, 0, 0, 2]).unwrap();
        netlink.add_route(Prefix::DEFAULT_V4, THERE_V4.into()).unwrap();
        unrouted.connect(target).unwrap();
        assert_eq!(unrouted.local_addr().unwrap().ip(), HERE_V4);
        netlink.delete_route(Prefix::DEFAULT_V4, THERE_V4.into()).unwrap();
        assert!(netlink.add_route(Prefix::DEFAULT_V6, THERE_V4.into()).is_err());
    })
    .unwrap();
}

#[test]
fn deleting_one_end_deletes_the_other() {
    let Some((here, there)) = joined_namespaces() else { return };
    here.run(|| Netlink::open().unwrap().delete("left")).unwrap().unwrap();
    let error = there.run(|| Netlink::open().unwrap().interface("right")).unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no interface \"right\" in this network namespace: check the name, or create it first"
    );
}

#[test]
fn an_invalid_name_is_refused_and_a_name_in_use_is_reported() {
    let Some((here, there)) = joined_namespaces() else { return };
    here.run(|| {
        let mut netlink = Netlink::open().unwrap();
        assert!(matches!(netlink.create_veth("a/b", "right", &there), Err(IoError::Misuse(_))));
        assert!(matches!(netlink.create_bridge("a-name-of-16-byte"), Err(IoError::Misuse(_))));
        let taken = netlink.create_bridge("left").unwrap_err();
        assert_eq!(taken.errno(), Some(libc::EEXIST));
        assert!(taken.to_string().starts_with("making the bridge left"), "{taken}");
    })
    .unwrap();
}

/// Polls until the interface is in a state that is `wanted`, and returns all changes up to it.
fn changes_until(monitor: &mut LinkMonitor, wanted: impl Fn(LinkState) -> bool) -> Vec<LinkChange> {
    let (begin, mut changes) = (Instant::now(), Vec::new());
    while !changes.last().is_some_and(|change: &LinkChange| wanted(change.state)) {
        assert!(begin.elapsed() < Duration::from_secs(10), "{changes:?}");
        changes.extend(monitor.poll().unwrap());
    }
    changes
}

#[test]
fn monitor_reports_switch_carrier_and_a_recreated_interface() {
    let Some((here, there)) = joined_namespaces() else { return };
    let switch = |namespace: &Namespace, name: &'static str, up| {
        namespace.run(move || Netlink::open().unwrap().set_up(name, up)).unwrap().unwrap();
    };
    // The cable's end is monitored as the second name; the first does not exist.
    let names = vec!["none".to_owned(), "left".to_owned()];
    let mut monitor = here.run(move || LinkMonitor::open(names)).unwrap().unwrap();
    let listed: Vec<LinkState> = monitor.states().collect();
    assert_eq!(listed[0], LinkState::default());
    assert!(listed[1].index.is_some() && !listed[1].is_up, "{listed:?}");

    here.run(|| {
        switch(&here, "left", true);
        switch(&there, "right", true);
        changes_until(&mut monitor, |state| state.is_up);
        // The other end goes down: this end is up without carrier.
        switch(&there, "right", false);
        let changes = changes_until(&mut monitor, |state| !state.is_up);
        assert!(changes.iter().all(|change| change.watched == 1), "{changes:?}");
        switch(&there, "right", true);
        changes_until(&mut monitor, |state| state.is_up);
        switch(&here, "left", false);
        changes_until(&mut monitor, |state| !state.is_up);

        let mut netlink = Netlink::open().unwrap();
        netlink.set_up("left", true).unwrap();
        let before = changes_until(&mut monitor, |state| state.is_up).last().unwrap().state.index;
        netlink.delete("left").unwrap();
        let gone = changes_until(&mut monitor, |state| state.index.is_none());
        assert!(!gone.last().unwrap().state.is_up);
        netlink.create_veth("left", "right", &there).unwrap();
        let back = changes_until(&mut monitor, |state| state.index.is_some());
        assert_ne!(back.last().unwrap().state.index, before);
    })
    .unwrap();
}
