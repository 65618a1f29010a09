//! A session with a real conntrackd, which has a real kernel's connections: everything that one can replicate to the other, both ways, and
//! what becomes of it when messages are lost and processes die. `docs/conntrackd.md` has what was learnt.

#[path = "../common/mod.rs"]
mod common;
mod daemon;
mod sync;
mod world;

use daemon::{Cache, Transport};
use flow::netfilter::{
    Discriminator, Entry, Expectation, HelperName, LABELS_BYTES, ProtocolInfo, Status, TcpInfo, TcpState, Tuple,
};
use packet_io::ctnetlink::Request;
use replication::conntrackd::FtfwEvent;
use world::World;

/// What has been seen both ways and will not be given up.
const ESTABLISHED: Status = Status::SEEN_REPLY.union(Status::ASSURED).union(Status::CONFIRMED);
const SOURCE_NAT: Status = Status::SOURCE_NAT.union(Status::SOURCE_NAT_DONE).union(Status::DESTINATION_NAT_DONE);
const DESTINATION_NAT: Status =
    Status::DESTINATION_NAT.union(Status::SOURCE_NAT_DONE).union(Status::DESTINATION_NAT_DONE);

fn tuple(protocol: u8, source: &str, destination: &str, ports: (u16, u16)) -> Tuple {
    let discriminator = Discriminator::Ports { source: ports.0, destination: ports.1 };
    Tuple { source: source.parse().unwrap(), destination: destination.parse().unwrap(), protocol, discriminator }
}

/// A TCP connection of IPv4 from the port.
fn v4(port: u16) -> Entry {
    tcp(tuple(6, "10.1.0.10", "198.51.100.10", (port, 80)))
}

/// The same of IPv6.
fn v6(port: u16) -> Entry {
    tcp(tuple(6, "fd00:1::10", "2001:db8:2::10", (port, 80)))
}

fn tcp(original: Tuple) -> Entry {
    Entry {
        status: Some(ESTABLISHED),
        timeout_s: Some(1000),
        mark: Some(0),
        protocol_info: Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::Established, sides: None })),
        ..Entry::new(original, original.inverse())
    }
}

fn translated(entry: Entry, reply: Tuple, status: Status) -> Entry {
    Entry { reply, status: Some(ESTABLISHED.union(status)), ..entry }
}

fn ping(identifier: u16) -> Entry {
    let discriminator = Discriminator::Icmp { kind: 8, code: 0, id: identifier };
    let original = Tuple { protocol: 1, discriminator, ..tuple(1, "10.1.0.10", "198.51.100.10", (0, 0)) };
    Entry {
        status: Some(Status::CONFIRMED),
        timeout_s: Some(1000),
        mark: Some(0),
        ..Entry::new(original, original.inverse())
    }
}

fn state(entry: &Entry) -> Option<TcpState> {
    entry.tcp().map(|tcp| tcp.state)
}

/// Puts connections into conntrackd's kernel, and waits until the peer has received them as they are.
#[track_caller]
fn conntrackd_sends(world: &mut World, entries: &[Entry]) {
    world.change(entries.iter().map(Request::Create));
    world.until("conntrackd sends them", |world| {
        entries.iter().all(|entry| world.peer.table.copies.contains_key(&(entry.original, entry.zone)))
    });
    for entry in entries {
        let copy = &world.peer.table.copies[&(entry.original, entry.zone)];
        assert_eq!((copy.reply, copy.status, copy.mark), (entry.reply, entry.status, entry.mark), "{copy:?}");
        assert_eq!(state(copy), state(entry), "{copy:?}");
        assert!(copy.timeout_s.is_some_and(|seconds| (900..=1000).contains(&seconds)), "{copy:?}");
    }
    assert_eq!(world.peer.errors, [""; 0]);
}

/// Has the peer send connections to conntrackd, which commits them; they are then in its kernel as they are.
#[track_caller]
fn conntrackd_receives(world: &mut World, entries: &[Entry]) {
    let before = world.external("ct").len();
    entries.iter().cloned().for_each(|entry| world.peer.put(entry));
    world.until("conntrackd has them", |world| world.external("ct").len() == before + entries.len());
    world.ask("-c");
    for entry in entries {
        let mut known = None;
        world.until("they are committed", |world| {
            known = world.kernel_entry(&entry.original, entry.zone);
            known.is_some()
        });
        let known = known.unwrap();
        assert_eq!((known.reply, known.mark), (entry.reply, entry.mark), "{known:?}");
        let [sent, now] = [entry, &known].map(|entry| entry.status.unwrap());
        assert!(now.contains(sent), "{known:?}");
        assert_eq!(state(&known), state(entry), "{known:?}");
    }
}

#[test]
fn interop_conntrackd_sends_what_begins_changes_and_ends() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    let mut entry = v4(4000);
    conntrackd_sends(&mut world, std::slice::from_ref(&entry));
    (entry.mark, entry.timeout_s) = (Some(7), Some(500));
    entry.protocol_info = Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::CloseWait, sides: None }));
    world.change([Request::Update(&entry)]);
    world.until("the change", |world| {
        let copy = world.peer.table.copy(&entry.original);
        copy.is_some_and(|copy| copy.mark == Some(7) && state(copy) == Some(TcpState::CloseWait))
    });
    world.change([Request::Delete(&entry)]);
    world.until("the end", |world| world.peer.table.copies.is_empty());
}

#[test]
fn interop_conntrackd_receives_what_begins_changes_and_ends() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    world.peer.put(v4(4000));
    world.until("it is there", |world| world.external("ct").iter().any(|line| line.contains("ESTABLISHED")));
    let closing = ProtocolInfo::Tcp(TcpInfo { state: TcpState::CloseWait, sides: None });
    world.peer.put(Entry { protocol_info: Some(closing), ..v4(4000) });
    world.until("the change", |world| {
        let lines = world.external("ct");
        lines.len() == 1 && lines[0].contains("CLOSE_WAIT") && lines[0].contains("sport=4000")
    });
    world.peer.end(&v4(4000).original);
    world.until("the end", |world| world.external("ct").is_empty());
    conntrackd_receives(&mut world, &[v4(4001)]);
}

#[test]
fn interop_conntrackd_direct_injection_needs_no_commit() {
    let Some(mut world) = World::build(Transport::V4, Cache::Direct) else { return };
    let mut entry = v4(4000);
    world.peer.put(entry.clone());
    world.until("it is in the kernel", |world| world.kernel_entry(&entry.original, 0).is_some());
    entry.mark = Some(9);
    world.peer.put(entry.clone());
    world.until("the change is", |world| {
        world.kernel_entry(&entry.original, 0).is_some_and(|known| known.mark == Some(9))
    });
    world.peer.end(&entry.original);
    world.until("it is not any more", |world| world.kernel_entry(&entry.original, 0).is_none());
    assert!(world.peer.table.copies.is_empty(), "conntrackd does not send its own injections");
}

#[test]
fn interop_conntrackd_nat_both_ways() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    let masqueraded = |to| tuple(6, "198.51.100.10", "198.51.100.1", (80, to));
    let own = [
        translated(v4(5000), masqueraded(5000), SOURCE_NAT),
        translated(v4(5001), masqueraded(6001), SOURCE_NAT),
        translated(v4(5002), tuple(6, "10.7.7.7", "10.1.0.10", (8080, 5002)), DESTINATION_NAT),
        translated(v6(5003), tuple(6, "2001:db8:2::10", "2001:db8:2::1", (80, 6003)), SOURCE_NAT),
        translated(v6(5004), tuple(6, "fd07::7", "fd00:1::10", (80, 5004)), DESTINATION_NAT),
    ];
    conntrackd_sends(&mut world, &own);
    world.kernel.flush().unwrap();
    world.until("all have ended", |world| world.peer.table.copies.is_empty());
    conntrackd_receives(&mut world, &own);
}

#[test]
fn interop_conntrackd_ipv6_and_icmp_both_ways() {
    let Some(mut world) = World::build(Transport::V6, Cache::External) else { return };
    let mut udp = Entry { protocol_info: None, ..v6(4001) };
    (udp.original.protocol, udp.reply.protocol) = (17, 17);
    let own = [v6(4000), udp, ping(0x0102), v4(4003)];
    conntrackd_sends(&mut world, &own);
    world.kernel.flush().unwrap();
    world.until("all have ended", |world| world.peer.table.copies.is_empty());
    conntrackd_receives(&mut world, &own);
}

#[test]
fn interop_conntrackd_marks_zones_labels_and_helpers_both_ways() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    let marked = Entry { mark: Some(0xdead_beef), ..v4(4000) };
    let zoned = Entry { zone: 5, ..v4(4001) };
    let mut helped = v4(4002);
    (helped.original, helped.reply) = {
        let original = tuple(6, "10.1.0.10", "198.51.100.10", (4002, 21));
        (original, original.inverse())
    };
    helped.extra_mut().helper = HelperName::new(b"ftp");
    helped.status = Some(ESTABLISHED.union(Status::HELPER));
    let own = [marked, zoned, helped.clone()];
    conntrackd_sends(&mut world, &own);
    let copy = world.peer.table.copy(&helped.original).unwrap();
    assert_eq!(copy.extra.as_ref().and_then(|extra| extra.helper), HelperName::new(b"ftp"));
    world.kernel.flush().unwrap();
    world.until("all have ended", |world| world.peer.table.copies.is_empty());
    let mut labelled = v4(4003);
    let mut labels = [0; LABELS_BYTES];
    (labels[0], labels[9]) = (1 << 3, 1 << 6);
    labelled.extra_mut().labels = Some(labels);
    let own = [own.as_slice(), &[labelled.clone()]].concat();
    conntrackd_receives(&mut world, &own);
    let helper = world.kernel_entry(&helped.original, 0).and_then(|known| known.extra).and_then(|extra| extra.helper);
    assert_eq!(helper, HelperName::new(b"ftp"));
    let known = world.kernel_entry(&labelled.original, 0).and_then(|known| known.extra).and_then(|extra| extra.labels);
    // A kernel gives connections labels only once a rule of the namespace uses them.
    assert!(known.is_none_or(|known| known == labels), "{known:?}");
}

#[test]
fn interop_conntrackd_expectations_both_ways() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    let mut master = tcp(tuple(6, "10.1.0.10", "198.51.100.10", (4002, 21)));
    master.extra_mut().helper = HelperName::new(b"ftp");
    master.status = Some(ESTABLISHED.union(Status::HELPER));
    let expectation = Expectation {
        master: master.original,
        expected: tuple(6, "198.51.100.10", "10.1.0.10", (0, 2049)),
        mask: tuple(6, "255.255.255.255", "255.255.255.255", (0, 0xffff)),
        zone: 0,
        timeout_s: Some(300),
        flags: 0,
        class: 0,
        helper: HelperName::new(b"ftp"),
        function: None,
        nat: None,
    };
    conntrackd_sends(&mut world, std::slice::from_ref(&master));
    world.change([Request::CreateExpectation(&expectation)]);
    world.until("it is expected", |world| world.peer.table.expected.contains_key(&expectation.expected));
    let copy = &world.peer.table.expected[&expectation.expected];
    assert_eq!((copy.master, copy.mask, copy.helper), (expectation.master, expectation.mask, expectation.helper));
    world.change([Request::DeleteExpectation(&expectation)]);
    world.until("it is not any more", |world| world.peer.table.expected.is_empty());
    world.kernel.flush().unwrap();
    world.until("its master has ended", |world| world.peer.table.copies.is_empty());

    conntrackd_receives(&mut world, &[master]);
    let handle = world.peer.table.put_expectation(expectation.clone());
    world.peer.session.mark_expectation_changed(handle);
    world.until("conntrackd has it", |world| world.external("expect").iter().any(|line| line.contains("dport=2049")));
    world.peer.table.take_expectation(handle);
    world.peer.session.mark_expectation_deleted(handle, &expectation);
    world.until("it has it no more", |world| world.external("expect").is_empty());
}

#[test]
fn interop_conntrackd_gaps_are_asked_for_both_ways() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    world.peer.losses.next_sent = 1;
    world.peer.put(v4(4000));
    world.until("what was lost comes", |world| world.external("ct").len() == 1);
    let status = world.peer.session.status();
    assert_eq!((status.lost, status.resent, status.timed_out), (1, 1, 0), "conntrackd asked for it");

    world.peer.losses.next_received = 1;
    let [first, second] = [v4(5000), v4(5001)];
    world.change([Request::Create(&first)]);
    world.until("it is lost", |world| world.peer.losses.next_received == 0);
    world.change([Request::Create(&second)]);
    world.until("both come", |world| world.peer.table.copies.len() == 2);
    assert_eq!(world.peer.session.status().missed, 1);
}

#[test]
fn interop_conntrackd_resynchronisation_both_ways() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    let own: Vec<Entry> = (0..50).map(|number| v4(4000 + number)).collect();
    conntrackd_sends(&mut world, &own);
    (0..50).for_each(|number| world.peer.put(v6(5000 + number)));
    world.until("conntrackd has them", |world| world.external("ct").len() == 50);

    world.ask("-f external");
    assert_eq!(world.external("ct").len(), 0);
    world.peer.events.clear();
    world.ask("-n");
    world.until("all of them again", |world| world.external("ct").len() == 50);
    assert!(world.peer.events.contains(&FtfwEvent::ResyncRequested), "{:?}", world.peer.events);

    world.peer.table.copies.clear();
    world.ask("-B");
    world.until("conntrackd has sent all", |world| world.peer.table.copies.len() == 50);
    world.peer.table.copies.clear();
    world.peer.session.request_resync();
    world.until("it was asked for all", |world| world.peer.table.copies.len() == 50);
}

#[test]
fn interop_conntrackd_multicast() {
    for transport in [Transport::MulticastV4, Transport::MulticastV6] {
        let Some(mut world) = World::build(transport, Cache::External) else { return };
        conntrackd_sends(&mut world, &[v4(4000), v6(4001)]);
        conntrackd_receives(&mut world, &[v4(5000), v6(5001)]);
    }
}

#[test]
fn interop_conntrackd_either_is_restarted() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    let own: Vec<Entry> = (0..20).map(|number| v4(4000 + number)).collect();
    conntrackd_sends(&mut world, &own);
    (0..20).for_each(|number| world.peer.put(v4(5000 + number)));
    world.until("conntrackd has them", |world| world.external("ct").len() == 20);

    world.daemon.kill();
    world.daemon.run(&world.namespace);
    world.until("it has received everything once more", |world| world.external("ct").len() == 20);
    assert!(world.peer.events.contains(&FtfwEvent::PeerRestarted), "{:?}", world.peer.events);
    conntrackd_sends(&mut world, &[v4(6000)]);

    // The peer's process is another one, which has nothing of conntrackd's yet.
    world.peer.session = world::session();
    world.peer.table.copies.clear();
    world.until("it asks for everything", |world| world.peer.table.copies.len() == 21);
    world.peer.put(v4(7000));
    world.until("and is received", |world| world.external("ct").iter().any(|line| line.contains("sport=7000")));
}

#[test]
fn interop_conntrackd_a_lossy_link_changes_nothing_in_the_end() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    world.peer.losses.percent = 20;
    let own: Vec<Entry> = (0..1000).map(|number| v4(10_000 + number)).collect();
    for (round, some) in own.chunks(50).enumerate() {
        world.change(some.iter().map(Request::Create));
        (0..50).for_each(|number| world.peer.put(v6(10_000 + round as u16 * 50 + number)));
        world.peer.pump();
    }
    world.until("each has the other's", |world| {
        world.peer.table.copies.len() == 1000
            && world.peer.session.status().in_flight == 0
            && world.external("ct").len() == 1000
    });
    let status = world.peer.session.status();
    assert!(status.lost > 0 && status.missed > 0, "the link was too good: {status:?}");
}

#[test]
fn interop_conntrackd_is_not_overrun_by_all_connections_at_once() {
    let Some(mut world) = World::build(Transport::V4, Cache::External) else { return };
    const CONNECTIONS: usize = 40_000;
    for number in 0..CONNECTIONS as u16 {
        world.peer.table.put(v4(number));
    }
    world.peer.session.resync();
    world.until("all are replicated", |world| world.peer.session.status().sent_all);
    let status = world.peer.session.status();
    assert_eq!((status.resent, status.timed_out), (0, 0), "nothing was lost: {status:?}");
    let statistics = world.ask("-s cache");
    let external = statistics.split_once("cache:external").map(|(_, external)| external).unwrap_or_default();
    assert!(external.contains(&CONNECTIONS.to_string()), "{statistics}");
}
