//! The program for XDP in the drivers of virtual cables: which frames reach packet sockets, checksums that somebody else completes, who
//! takes over what is pinned, and interfaces that have no XDP.

mod common;

use std::time::{Duration, Instant};

use common::{Bpffs, Hosts, Network, PATIENCE, PORTS, SERVER_PORT, address, prepare, translated_plan};
use fast_path::{Config, Error, FastPath, Hook, Outcome};
use flow::wire::{self, Parsed};
use flow::{Checksum, Disposition};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::interface::{Offload, set_offload};

fn config() -> Config {
    Config { heartbeat_age_max: PATIENCE * 10, hook: Hook::Xdp, connections_max: 16, ..Config::default() }
}

/// Packet sockets on the gateway's interfaces, as a gateway has them.
fn watch(network: &Network) -> AfPacketIo {
    let config = |port| PortConfig { ether_types: vec![0x0800, 0x86dd, 0x0806], ..PortConfig::new(port) };
    network.gateway.run(|| AfPacketIo::open(&PORTS.map(config)).unwrap()).unwrap()
}

/// The destination ports of UDP packets that have come, with the states of their checksums.
fn datagrams(io: &mut AfPacketIo) -> Vec<(u16, Checksum)> {
    let mut seen = Vec::new();
    let take = &mut |batch: &mut flow::PacketBatch<'_>| {
        for frame in batch {
            frame.disposition = Disposition::Consumed;
            let state = frame.checksum;
            if let Ok(Parsed::Ip(headers)) = wire::parse(frame)
                && headers.tuple.protocol == 17
            {
                seen.push((headers.tuple.destination_port, state));
            }
        }
    };
    while io.poll(take).unwrap() > 0 {}
    seen
}

/// Waits until a datagram to this port has come; returns all that have come until then.
fn wait_for_datagram(io: &mut AfPacketIo, port: u16) -> Vec<(u16, Checksum)> {
    let (begin, mut seen) = (Instant::now(), Vec::new());
    while !seen.iter().any(|(known, _)| *known == port) {
        assert!(begin.elapsed() < PATIENCE, "no datagram to port {port} has come: {seen:?}");
        seen.extend(datagrams(io));
    }
    seen
}

#[test]
fn packet_sockets_see_what_is_left_and_nothing_that_is_forwarded() {
    let Some(network) = Network::new() else { return };
    let Some(mut fast_path) = common::load(&config()) else { return };
    prepare(&network, Hook::Xdp);
    network.attach(&mut fast_path);
    let (hosts, mut sockets) = (Hosts::open(&network), watch(&network));
    fast_path.install(&translated_plan(network.ports())).unwrap();
    for _ in 0..5 {
        assert!(hosts.exchange());
    }
    assert_eq!(fast_path.counters().unwrap().of(Outcome::Forwarded), 10);
    // Not installed: it comes last, on the same cable.
    hosts.client.send_to(b"other", (address(4, 2, 2), SERVER_PORT + 1)).unwrap();
    let seen = wait_for_datagram(&mut sockets, SERVER_PORT + 1);
    assert_eq!(seen.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [SERVER_PORT + 1]);
    // Switched off, it leaves everything.
    fast_path.set_enabled(false);
    assert!(!hosts.exchange());
    assert_eq!(wait_for_datagram(&mut sockets, SERVER_PORT).len(), 1);
    assert_eq!(fast_path.counters().unwrap().of(Outcome::Forwarded), 10);
}

#[test]
fn nothing_is_forwarded_once_the_heartbeat_is_old() {
    let Some(network) = Network::new() else { return };
    let age_max = Duration::from_millis(50);
    let Some(mut fast_path) = common::load(&Config { heartbeat_age_max: age_max, ..config() }) else { return };
    prepare(&network, Hook::Xdp);
    network.attach(&mut fast_path);
    let (hosts, mut sockets) = (Hosts::open(&network), watch(&network));
    fast_path.install(&translated_plan(network.ports())).unwrap();
    fast_path.beat(fast_path::now() + PATIENCE);
    assert!(hosts.exchange());
    let too_old = fast_path::now().as_nanos() - 2 * age_max.as_nanos() as u64;
    fast_path.beat(flow::Instant::from_nanos(too_old));
    let before = fast_path.counters().unwrap();
    assert!(!hosts.exchange());
    assert_eq!(wait_for_datagram(&mut sockets, SERVER_PORT).len(), 1);
    // The hosts' own frames, of neighbour discovery for example, are counted as well.
    let after = fast_path.counters().unwrap();
    assert!(after.of(Outcome::Heartbeat) > before.of(Outcome::Heartbeat));
    assert_eq!(after.of(Outcome::Forwarded), before.of(Outcome::Forwarded));
}

#[test]
fn a_frame_whose_checksum_somebody_else_completes_is_left_with_the_note_of_it() {
    let Some(network) = Network::new() else { return };
    let Some(mut fast_path) = common::load(&config()) else { return };
    prepare(&network, Hook::Xdp);
    network.client.run(|| set_offload("host", Offload::TransmitChecksum, true).unwrap()).unwrap();
    network.attach(&mut fast_path);
    let (hosts, mut sockets) = (Hosts::open(&network), watch(&network));
    fast_path.install(&translated_plan(network.ports())).unwrap();
    assert!(!hosts.exchange());
    let seen = wait_for_datagram(&mut sockets, SERVER_PORT);
    assert!(matches!(seen[..], [(_, Checksum::Partial { .. })]), "{seen:?}");
    assert_eq!(fast_path.counters().unwrap().of(Outcome::Partial), 1);
}

#[test]
fn what_is_pinned_goes_on_and_either_hook_takes_it_over() {
    let Some(network) = Network::new() else { return };
    if common::load(&config()).is_none() {
        return;
    }
    let Some(bpffs) = Bpffs::mount() else { return };
    let pinned = |hook| Config { pin_directory: Some(bpffs.path("pins")), hook, ..config() };
    prepare(&network, Hook::Xdp);
    let hosts = Hosts::open(&network);
    let mut fast_path = common::load(&pinned(Hook::Xdp)).unwrap();
    network.attach(&mut fast_path);
    fast_path.install_with_record(&translated_plan(network.ports()), b"record").unwrap();
    drop(fast_path);
    assert!(hosts.exchange(), "nobody has the fast path open, and it forwards");

    let mut fast_path = FastPath::load(&pinned(Hook::Xdp)).unwrap();
    network.attach(&mut fast_path);
    let (_, activity) = fast_path.activities().next().expect("the connection is still installed");
    assert_eq!(activity.packets, [1, 1]);
    assert!(hosts.exchange());
    drop(fast_path);

    // The same maps and connections, at the other hook.
    let mut fast_path = FastPath::load(&pinned(Hook::Tc)).unwrap();
    network.attach(&mut fast_path);
    assert!(hosts.exchange());
    let files = || -> Vec<String> {
        let entries = std::fs::read_dir(bpffs.path("pins")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(!files().iter().any(|name| name.starts_with("link-xdp-")), "{:?}", files());
    drop(fast_path);
    assert!(hosts.exchange());
    FastPath::remove_pins(&bpffs.path("pins")).unwrap();

    // Without the program for XDP, there is nothing to take over for it.
    drop(FastPath::load(&pinned(Hook::Tc)).unwrap());
    let refused = FastPath::load(&pinned(Hook::Xdp)).unwrap_err();
    assert!(matches!(&refused, Error::Pins { detail, .. } if detail.contains("for XDP")), "{refused}");
    FastPath::remove_pins(&bpffs.path("pins")).unwrap();
}

#[test]
fn an_interface_without_native_xdp_or_with_another_program_is_refused() {
    let Some(network) = Network::new() else { return };
    let Some(mut fast_path) = common::load(&config()) else { return };
    let refused = network.gateway.run(|| fast_path.attach("lo").unwrap_err()).unwrap();
    assert!(matches!(refused, Error::Native { .. }), "{refused}");
    assert!(refused.to_string().starts_with("lo takes no native XDP program"), "{refused}");
    network.attach(&mut fast_path);
    let mut second = common::load(&config()).unwrap();
    let refused = network.gateway.run(|| second.attach(PORTS[0]).unwrap_err()).unwrap();
    assert!(refused.to_string().contains("another XDP program is there"), "{refused}");
}

#[test]
fn frames_for_another_link_address_are_left() {
    let Some(network) = Network::new() else { return };
    let Some(mut fast_path) = common::load(&config()) else { return };
    prepare(&network, Hook::Xdp);
    network.attach(&mut fast_path);
    let hosts = Hosts::open(&network);
    fast_path.install(&translated_plan(network.ports())).unwrap();
    let [client, _] = network.ports();
    fast_path.set_link_address(client, [2, 0, 0, 0, 0, 7]).unwrap();
    assert!(!hosts.exchange());
    assert!(fast_path.counters().unwrap().of(Outcome::Host) > 0);
    // The interface is attached already; its address is read again.
    network.attach(&mut fast_path);
    assert!(hosts.exchange());
}
