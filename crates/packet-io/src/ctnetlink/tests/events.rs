//! Events of real traffic.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};

use flow::netfilter::{Status, TcpState, ZoneDirection};

use super::super::filter::{Ignore, TcpStates};
use super::super::*;
use super::samples::tcp;
use super::{dump, execute, load_rules, namespace, wait_for};
use crate::netlink::Prefix;

/// Makes the kernel track and mark packets, and translate one port to another.
const RULES: &str = "table ip tracking {
    chain translate {
        type nat hook output priority -100
        tcp dport 8000 redirect to :9000
    }
    chain output {
        type filter hook output priority 0
        ct mark set 7
        ct label set 3
    }
}";

fn began(port: u16) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Began(entry) if entry.original.ports().1 == port)
}

#[test]
fn events_of_a_tcp_connection_are_reported() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        if !load_rules(RULES) {
            return;
        }
        let mut socket = EventSocket::open(&EventOptions::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:9000").unwrap();
        let mut client = TcpStream::connect("127.0.0.1:8000").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"a question").unwrap();
        server.read_exact(&mut [0; 10]).unwrap();
        let established = |event: &Event| matches!(event, Event::Changed(entry) if entry.tcp().is_some_and(|tcp| tcp.state == TcpState::Established));
        let events = wait_for(&mut socket, established);
        let Some((Cause::Packets, Event::Began(first))) = events.first() else { panic!("{events:?}") };
        let client_port = client.local_addr().unwrap().port();
        assert_eq!(first.original.ports(), (client_port, 8000));
        assert_eq!(first.reply.ports(), (9000, client_port), "it is redirected");
        assert_eq!(first.tcp().unwrap().state, TcpState::SynSent);
        assert_eq!(first.mark, Some(7));
        assert_eq!(first.extra.as_ref().unwrap().labels.unwrap()[0], 1 << 3);
        let (_, Event::Changed(last)) = events.last().unwrap() else { unreachable!() };
        assert!(last.status.unwrap().contains(Status::SEEN_REPLY.union(Status::DESTINATION_NAT)));
        assert!(last.tcp().unwrap().sides.is_some());

        client.shutdown(std::net::Shutdown::Write).unwrap();
        server.read_to_end(&mut Vec::new()).unwrap();
        drop((client, server));
        let time_wait = |event: &Event| matches!(event, Event::Changed(entry) if entry.tcp().is_some_and(|tcp| tcp.state == TcpState::TimeWait));
        wait_for(&mut socket, time_wait);

        let mut table = TableSocket::open().unwrap();
        execute(&mut table, Request::Delete(first)).unwrap();
        let events = wait_for(&mut socket, |event| matches!(event, Event::Ended(_)));
        let Some((cause, Event::Ended(ended))) = events.last() else { unreachable!() };
        assert_eq!((*cause, ended.id, ended.original), (Cause::Program(table.port()), first.id, first.original));
        assert!(ended.id.is_some());
    };
    namespace.run(work).unwrap();
}

#[test]
fn events_of_a_udp_connection_are_reported() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        if !load_rules(RULES) {
            return;
        }
        let mut socket = EventSocket::open(&EventOptions::default()).unwrap();
        let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:5353").unwrap());
        here.send_to(b"a question", "127.0.0.1:5353").unwrap();
        there.send_to(b"an answer", here.local_addr().unwrap()).unwrap();
        let answered = |event: &Event| matches!(event, Event::Changed(entry) if entry.status.unwrap().contains(Status::SEEN_REPLY));
        let events = wait_for(&mut socket, answered);
        let Some((Cause::Packets, Event::Began(entry))) = events.first() else { panic!("{events:?}") };
        assert_eq!(entry.original.ports(), (here.local_addr().unwrap().port(), 5353));
        assert!(entry.timeout_s.unwrap() > 0);

        // It expires at once: the next lookup ends it.
        let mut table = TableSocket::open().unwrap();
        socket.ignore_program(table.port());
        execute(&mut table, Request::Update(&Entry { timeout_s: Some(0), status: None, ..entry.clone() })).unwrap();
        while table.get(&entry.original, 0).unwrap().is_some() {}
        let events = wait_for(&mut socket, |event| matches!(event, Event::Ended(_)));
        assert!(matches!(events.last(), Some((Cause::Packets, Event::Ended(ended))) if ended.id == entry.id));
    };
    namespace.run(work).unwrap();
}

#[test]
fn events_of_one_kernel_are_injected_into_another() {
    let (Some(here), Some(there)) = (namespace(), namespace()) else { return };
    let send = || {
        if !load_rules(RULES) {
            return None;
        }
        let listener = TcpListener::bind("127.0.0.1:9000").unwrap();
        let client = TcpStream::connect("127.0.0.1:8000").unwrap();
        let (server, _) = listener.accept().unwrap();
        let all = dump(DumpFilter::default());
        Some((all, client, server))
    };
    let Some((all, ..)) = here.run(send).unwrap() else { return };
    let take = || {
        assert!(load_rules(RULES));
        let mut table = TableSocket::open().unwrap();
        table.execute(all.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();
        dump(DumpFilter::default())
    };
    let comparable = |mut entry: Entry| {
        assert!(entry.status.unwrap().intersects(Status::DESTINATION_NAT), "the redirected one");
        (entry.id, entry.timeout_s) = (None, None);
        entry
    };
    let taken = there.run(take).unwrap();
    assert_eq!(
        taken.into_iter().map(comparable).collect::<Vec<_>>(),
        all.into_iter().map(comparable).collect::<Vec<_>>()
    );
}

#[test]
fn events_of_an_ignored_program_do_not_arrive() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut socket = EventSocket::open(&EventOptions::default()).unwrap();
        let (mut ours, mut other) = (TableSocket::open().unwrap(), TableSocket::open().unwrap());
        socket.ignore_program(ours.port());
        let entries: Vec<_> = (1..=100).map(tcp).collect();
        ours.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();
        let mark = |entry: &Entry| Entry { mark: Some(6), ..entry.clone() };
        let marked: Vec<_> = entries.iter().map(mark).collect();
        ours.execute(marked.iter().map(Request::Update), &mut |_, error| panic!("{error}")).unwrap();
        ours.execute(entries.iter().take(99).map(Request::Delete), &mut |_, error| panic!("{error}")).unwrap();
        execute(&mut other, Request::Delete(&entries[99])).unwrap();
        let mut events = Vec::new();
        let received = socket.receive(10, &mut |cause, event| events.push((cause, event))).unwrap();
        assert_eq!((received.messages, received.is_drained), (1, true), "the kernel filtered the others");
        let [(cause, Event::Ended(entry))] = &events[..] else { panic!("{events:?}") };
        assert_eq!((*cause, entry.original), (Cause::Program(other.port()), entries[99].original));
    };
    namespace.run(work).unwrap();
}

#[test]
fn the_kernel_filters_ignored_events() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        if !load_rules(RULES) {
            return;
        }
        let ignore = Ignore { addresses: vec![Prefix::new([127, 0, 0, 9].into(), 32)], ..Ignore::default() };
        let tcp_states = Some(TcpStates::from_iter([TcpState::Established, TcpState::TimeWait]));
        let filter = EventFilter { ignore: vec![ignore], tcp_states, ..EventFilter::default() };
        let options = EventOptions { filter, expectations: false, ..EventOptions::default() };
        let mut socket = EventSocket::open(&options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:9000").unwrap();
        let connection = TcpStream::connect("127.0.0.1:8000").unwrap();
        let ignored = UdpSocket::bind("127.0.0.9:0").unwrap();
        ignored.send_to(b"ignored", "127.0.0.1:7").unwrap();
        let plain = UdpSocket::bind("127.0.0.8:0").unwrap();
        plain.send_to(b"of it they do", "127.0.0.1:7").unwrap();
        let events = wait_for(&mut socket, began(7));
        let reported: Vec<_> = events.iter().map(|(_, event)| event).collect();
        let [Event::Changed(established), Event::Began(datagram)] = reported[..] else { panic!("{reported:?}") };
        assert_eq!(established.tcp().unwrap().state, TcpState::Established);
        assert_eq!(datagram.original.source, plain.local_addr().unwrap().ip());
        drop((listener, connection));
    };
    namespace.run(work).unwrap();
}

#[test]
fn a_zone_of_one_direction_is_reported_and_can_be_filtered() {
    const ZONES: &str = "table ip zones {
        chain output {
            type filter hook output priority -300
            udp dport 7 ct original zone set 5
            udp dport 8 ct zone set 6
            udp dport 10 ct reply zone set 7
        }
    }";
    let Some(namespace) = namespace() else { return };
    let work = || {
        if !load_rules(ZONES) {
            return;
        }
        let ignore = |zone| Ignore { zone: Some(zone), ..Ignore::default() };
        let mut all = EventSocket::open(&EventOptions::default()).unwrap();
        let filter = EventFilter { ignore: vec![ignore(5), ignore(6), ignore(7)], ..EventFilter::default() };
        let mut filtered = EventSocket::open(&EventOptions { filter, ..EventOptions::default() }).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for port in [7, 8, 10, 9] {
            socket.send_to(b"into a zone", ("127.0.0.1", port)).unwrap();
        }
        let events = wait_for(&mut all, began(9));
        let entries = events.iter().filter_map(|(_, event)| match event {
            Event::Began(entry) => Some(entry),
            _ => None,
        });
        let zone_of = |entry: &Entry| (entry.original.ports().1, entry.zone, entry.zone_direction());
        let zones: Vec<_> = entries.clone().map(zone_of).collect();
        let (original, reply) = (Some(ZoneDirection::Original), Some(ZoneDirection::Reply));
        assert_eq!(zones, [(7, 5, original), (8, 6, None), (10, 7, reply), (9, 0, None)]);
        let passed = wait_for(&mut filtered, |_| true);
        assert!(began(9)(&passed[0].1), "{passed:?}");

        // They are found, changed and deleted by their original tuple and zone.
        let mut table = TableSocket::open().unwrap();
        for entry in entries {
            let zone = entry.zone_of_original();
            assert_eq!(table.get(&entry.original, zone).unwrap().map(|found| found.id), Some(entry.id));
            execute(&mut table, Request::Update(&Entry { mark: Some(3), ..entry.clone() })).unwrap();
            execute(&mut table, Request::Delete(entry)).unwrap();
            // Created again, they are in the same zones in the same directions, as packets see them.
            execute(&mut table, Request::Create(entry)).unwrap();
            let back = table.get(&entry.original, zone).unwrap().expect("it was created");
            assert_eq!((back.zone, back.zone_direction()), (entry.zone, entry.zone_direction()));
            let reply_zone = if entry.zone_direction() == original { 0 } else { entry.zone };
            assert!(table.get(&entry.reply, reply_zone).unwrap().is_some(), "replies find it: {entry:?}");
        }
    };
    namespace.run(work).unwrap();
}
