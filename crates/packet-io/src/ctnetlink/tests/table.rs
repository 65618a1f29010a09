//! Entries put into the kernel's table, and read back.

use flow::netfilter::{
    Discriminator, Entry, HelperName, LABELS_BYTES, ProtocolInfo, SequenceAdjustment, Status, SynProxy, TcpFlags,
    TcpState,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::super::*;
use super::samples::{self, ASSURED, other, ports, tcp, tuple};
use super::{conntrack_list, dump, execute, load_rules, namespace};

/// Makes the kernel track in a namespace, and use labels there.
const RULES: &str = "table inet tracking {
    chain output {
        type filter hook output priority 0
        ct label set 1
    }
}";

/// The kernel's report of a connection that was created as `entry`.
fn as_reported(entry: &Entry) -> Entry {
    let mut reported = entry.clone();
    let plain = entry.original.inverse();
    let mut status = entry.status.unwrap_or_default().union(Status::CONFIRMED);
    let port = |of: &flow::netfilter::Tuple| match of.discriminator {
        Discriminator::Icmp { id, .. } => (0, id),
        _ => of.ports(),
    };
    if (entry.reply.destination, port(&entry.reply).1) != (plain.destination, port(&plain).1) {
        status = status.union(Status::SOURCE_NAT);
    }
    if (entry.reply.source, port(&entry.reply).0) != (plain.source, port(&plain).0) {
        status = status.union(Status::DESTINATION_NAT);
    }
    if status.intersects(Status::SOURCE_NAT.union(Status::DESTINATION_NAT)) {
        // If either side is translated, the kernel marks both as decided.
        status = status.union(Status::SOURCE_NAT_DONE).union(Status::DESTINATION_NAT_DONE);
    }
    if let Some(extra) = &entry.extra {
        let bits = [
            (extra.helper.is_some(), Status::HELPER),
            (extra.master.is_some(), Status::EXPECTED),
            (extra.sequence_adjustment.is_some(), Status::SEQUENCE_ADJUST),
        ];
        status = bits.into_iter().filter(|(set, _)| *set).fold(status, |status, (_, bit)| status.union(bit));
    }
    // Scales apply where both sides offered them.
    if let Some(ProtocolInfo::Tcp(info)) = &mut reported.protocol_info
        && let Some(sides) = &mut info.sides
        && !sides.iter().all(|side| side.flags.contains(TcpFlags::WINDOW_SCALE))
    {
        sides.iter_mut().for_each(|side| side.window_scale = 0);
    }
    reported.status = Some(status);
    reported.mark = Some(entry.mark.unwrap_or_default());
    reported
}

/// Creates a connection, and asserts that the kernel reports the requested fields.
fn assert_taken(table: &mut TableSocket, entry: &Entry) {
    assert_eq!(execute(table, Request::Create(entry)), Ok(()), "{entry:?}");
    let mut found = table.get(&entry.original, entry.zone).unwrap().expect("it was created");
    assert!(found.id.take().is_some());
    let (reported_s, asked_s) = (found.timeout_s.unwrap(), entry.timeout_s.unwrap());
    assert!(reported_s <= asked_s && asked_s - reported_s < 10, "{reported_s} of {asked_s} seconds");
    found.timeout_s = entry.timeout_s;
    assert_eq!(found, as_reported(entry));
}

#[test]
fn connections_of_all_protocols_are_read_back_unchanged() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut table = TableSocket::open().unwrap();
        let sctp = ProtocolInfo::Sctp { state: 4, verification_tags: [1, 0x0102_0304] };
        let entries = [
            tcp(1000),
            Entry { protocol_info: Some(sctp), ..other(tuple("10.0.0.1", "10.0.0.2", 132, ports(1, 2))) },
            other(tuple("10.0.0.1", "10.0.0.2", 17, ports(0x1234, 53))),
            other(tuple("10.0.0.1", "10.0.0.2", 47, ports(0x1234, 2))),
            other(tuple("10.0.0.1", "10.0.0.2", 50, Discriminator::Nothing)),
            other(tuple("10.0.0.1", "10.0.0.2", 1, Discriminator::Icmp { kind: 8, code: 0, id: 0x1234 })),
            other(tuple("fd00::1", "fd00::2", 58, Discriminator::Icmp { kind: 128, code: 0, id: 0x1234 })),
            other(tuple("fd00::1", "fd00::2", 17, ports(0x1234, 53))),
            Entry { zone: 7, ..tcp(1000) },
            Entry { mark: Some(0xdead_beef), ..tcp(1001) },
            Entry { status: Some(Status::CONFIRMED), ..tcp(1002) },
            Entry { status: Some(ASSURED.union(Status::FIXED_TIMEOUT)), ..tcp(1003) },
        ];
        for entry in &entries {
            assert_taken(&mut table, entry);
        }
        assert_eq!(dump(DumpFilter::default()).len(), entries.len());
        let Some(list) = conntrack_list() else { return };
        let lines = [
            "ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1000 dport=80 src=10.0.0.2 dst=10.0.0.1 sport=80 dport=1000 \
             [ASSURED] mark=5 zone=7",
            "sport=1001 dport=80 src=10.0.0.2 dst=10.0.0.1 sport=80 dport=1001 [ASSURED] mark=3735928559",
            "srckey=0x1234 dstkey=0x2",
            "src=fd00::1 dst=fd00::2 type=128 code=0 id=4660 src=fd00::2 dst=fd00::1 type=129 code=0 id=4660",
            "unknown  50",
            "[UNREPLIED] src=10.0.0.2 dst=10.0.0.1 sport=80 dport=1002",
        ];
        for line in lines {
            assert!(list.contains(line), "conntrack(8) prints \"{line}\" in\n{list}");
        }
    };
    namespace.run(work).unwrap();
}

#[test]
fn translated_connections_are_read_back() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut table = TableSocket::open().unwrap();
        let mut entries = Vec::from([(); 5].map(|()| tcp(0)));
        for (number, entry) in entries.iter_mut().enumerate() {
            entry.original.discriminator = ports(1000 + number as u16, 80);
            entry.reply = entry.original.inverse();
        }
        entries[0].reply.destination = "192.0.2.1".parse().unwrap();
        entries[1].reply.destination = "192.0.2.1".parse().unwrap();
        entries[1].reply.discriminator = ports(80, 5003);
        entries[2].reply.source = "192.0.2.9".parse().unwrap();
        entries[2].reply.discriminator = ports(8080, 1002);
        entries[3].reply.source = "192.0.2.9".parse().unwrap();
        entries[3].reply.destination = "192.0.2.1".parse().unwrap();
        // The port alone.
        entries[4].reply.discriminator = ports(8080, 1004);
        let mut ping = other(tuple("10.0.0.7", "10.0.0.2", 1, Discriminator::Icmp { kind: 8, code: 0, id: 7 }));
        ping.reply.destination = "192.0.2.1".parse().unwrap();
        ping.reply.discriminator = Discriminator::Icmp { kind: 0, code: 0, id: 99 };
        let mut v6 = other(tuple("fd00::7", "fd00::2", 17, ports(1, 53)));
        (v6.reply.source, v6.reply.destination) = ("fd00::53".parse().unwrap(), "fd00::99".parse().unwrap());
        let mut tunnel = other(tuple("10.0.0.1", "10.0.0.2", 50, Discriminator::Nothing));
        tunnel.reply.source = "10.0.0.9".parse().unwrap();
        entries.extend([ping, v6, tunnel]);
        for entry in &entries {
            assert_taken(&mut table, entry);
        }

        // Its reply tuple is that of another connection: both cannot exist.
        let mut late = tcp(2000);
        late.reply = entries[0].reply;
        assert_eq!(execute(&mut table, Request::Create(&late)), Err(RequestError::Exists));
        assert_eq!(table.get(&late.original, 0).unwrap(), None);
    };
    namespace.run(work).unwrap();
}

#[test]
fn labels_helpers_masters_and_shifted_numbers_are_read_back() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        if !load_rules(RULES) {
            return;
        }
        let mut table = TableSocket::open().unwrap();
        let mut labelled = tcp(1000);
        let mut labels = [0; LABELS_BYTES];
        (labels[0], labels[15]) = (0x02, 0x80);
        labelled.extra_mut().labels = Some(labels);
        assert_taken(&mut table, &labelled);
        labelled.extra_mut().labels = Some([0xa5; LABELS_BYTES]);
        assert_eq!(execute(&mut table, Request::Update(&labelled)), Ok(()));
        let found = table.get(&labelled.original, 0).unwrap().unwrap();
        assert_eq!(found.extra.unwrap().labels, Some([0xa5; LABELS_BYTES]));

        // Labels without any set bit are not reported.
        let mut shifted = tcp(1001);
        let adjustment =
            |position| SequenceAdjustment { correction_position: position, offset_before: 3, offset_after: u32::MAX };
        shifted.extra_mut().sequence_adjustment = Some([adjustment(70_000), adjustment(5)]);
        shifted.extra_mut().syn_proxy =
            Some(SynProxy { initial_sequence: 1, server_initial_sequence: 0x0102_0304, timestamp_offset: 3 });
        assert_taken(&mut table, &shifted);

        let mut control = tcp(1002);
        control.extra_mut().helper = HelperName::new(b"ftp");
        assert_taken(&mut table, &control);
        let mut data = tcp(1003);
        data.extra_mut().master = Some(control.original);
        assert_taken(&mut table, &data);
        assert_eq!(execute(&mut table, Request::Update(&data)), Ok(()), "the bit EXPECTED is no change");
        let forgetful = Entry { extra: None, mark: Some(9), ..data.clone() };
        assert_eq!(execute(&mut table, Request::Update(&forgetful)), Ok(()), "also for an update that clears it");
        let mut translated = tcp(1006);
        translated.extra_mut().master = Some(control.original);
        translated.reply.destination = "192.0.2.1".parse().unwrap();
        assert_taken(&mut table, &translated);

        let mut orphan = tcp(1004);
        orphan.extra_mut().master = Some(tcp(999).original);
        assert_eq!(execute(&mut table, Request::Create(&orphan)), Err(RequestError::Missing));
        let mut strange = tcp(1005);
        strange.extra_mut().helper = HelperName::new(b"no-such-helper");
        assert_eq!(execute(&mut table, Request::Create(&strange)), Err(RequestError::Unsupported));
    };
    namespace.run(work).unwrap();
}

#[test]
fn any_accepted_connection_is_read_back() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut table = TableSocket::open().unwrap();
        let (mut runner, strategy) = (TestRunner::deterministic(), samples::entries());
        for _ in 0..1000 {
            let mut entry = strategy.new_tree(&mut runner).unwrap().current();
            // Attributes with prerequisites have separate tests, as have the kernel's status bits.
            (entry.extra, entry.id) = (None, None);
            let settable = ASSURED.union(Status::FIXED_TIMEOUT).union(Status::HELPER);
            entry.status = Some(Status(entry.status.unwrap_or_default().0 & settable.0));
            // The kernel limits timeouts to 2^31 of its ticks.
            entry.timeout_s = Some(entry.timeout_s.unwrap_or_default() % 1_000_000 + 100);
            // The kernel always reports TCP's sides, with zeros for fields that were not stated.
            if entry.original.protocol == 132 || entry.tcp().is_some_and(|info| info.sides.is_none()) {
                continue;
            }
            assert_taken(&mut table, &entry);
            assert_eq!(execute(&mut table, Request::Delete(&entry)), Ok(()));
        }
    };
    namespace.run(work).unwrap();
}

#[test]
fn an_update_changes_permitted_fields_only() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut table = TableSocket::open().unwrap();
        let mut entry = tcp(1000);
        entry.reply.destination = "192.0.2.1".parse().unwrap();
        assert_taken(&mut table, &entry);
        entry.mark = Some(77);
        entry.timeout_s = Some(50);
        entry.status = None;
        let Some(ProtocolInfo::Tcp(info)) = &mut entry.protocol_info else { unreachable!() };
        info.state = TcpState::TimeWait;
        assert_eq!(execute(&mut table, Request::Update(&entry)), Ok(()));
        let found = table.get(&entry.original, 0).unwrap().unwrap();
        assert_eq!((found.mark, found.reply), (entry.mark, entry.reply));
        assert!(found.timeout_s.unwrap() <= 50);
        assert_eq!(found.protocol_info, entry.protocol_info);

        // A seen reply is permanent; the rest of such an update is applied.
        let newer = Entry { status: Some(Status::CONFIRMED), mark: Some(78), ..entry.clone() };
        assert_eq!(execute(&mut table, Request::Update(&newer)), Ok(()));
        let found = table.get(&entry.original, 0).unwrap().unwrap();
        assert!(found.status.unwrap().contains(ASSURED));
        assert_eq!(found.mark, Some(78));

        // A fixed timeout cannot be changed, either.
        let fixed = Entry { status: Some(ASSURED.union(Status::FIXED_TIMEOUT)), ..tcp(1001) };
        assert_taken(&mut table, &fixed);
        for status in [fixed.status, Some(ASSURED), None] {
            let newer = Entry { status, timeout_s: Some(5), mark: status.map(|status| status.0), ..fixed.clone() };
            assert_eq!(execute(&mut table, Request::Update(&newer)), Ok(()));
            let found = table.get(&fixed.original, 0).unwrap().unwrap();
            assert!(found.timeout_s.unwrap() > 900);
            assert_eq!(found.mark.filter(|_| status.is_some()), status.map(|status| status.0));
        }

        // The kernel has no space for labels where no rule uses them.
        let mut labelled = tcp(1001);
        labelled.extra_mut().labels = Some([1; LABELS_BYTES]);
        assert_eq!(execute(&mut table, Request::Update(&labelled)), Err(RequestError::Unsupported));
    };
    namespace.run(work).unwrap();
}

#[test]
fn each_request_of_a_batch_has_a_separate_result() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut table = TableSocket::open().unwrap();
        let entries: Vec<_> = (1..=1000).map(tcp).collect();
        table.execute(entries.iter().map(Request::Create), &mut |place, error| panic!("{place}: {error}")).unwrap();
        assert_eq!(dump(DumpFilter::default()).len(), 1000);

        // Every third is deleted, and missing for all later requests.
        table.execute(entries.iter().step_by(3).map(Request::Delete), &mut |_, error| panic!("{error}")).unwrap();
        let mut refused = Vec::new();
        let mut note = |place, error| refused.push((place, error));
        table.execute(entries.iter().map(Request::Update), &mut note).unwrap();
        let missing: Vec<_> = (0..1000).step_by(3).map(|place| (place, RequestError::Missing)).collect();
        assert_eq!(refused, missing);
        let mut refused = Vec::new();
        let mut note = |place, error| refused.push((place, error));
        table.execute(entries.iter().map(Request::Create), &mut note).unwrap();
        let there: Vec<_> =
            (0..1000).filter(|place| place % 3 != 0).map(|place| (place, RequestError::Exists)).collect();
        assert_eq!(refused, there);

        table.flush().unwrap();
        assert_eq!(dump(DumpFilter::default()), []);
        let timeless = Entry { timeout_s: None, ..tcp(1) };
        assert_eq!(execute(&mut table, Request::Create(&timeless)), Err(RequestError::Invalid));
    };
    namespace.run(work).unwrap();
}

#[test]
fn a_connection_is_deleted_only_if_its_identifier_matches() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut table = TableSocket::open().unwrap();
        execute(&mut table, Request::Create(&tcp(1))).unwrap();
        let first = table.get(&tcp(1).original, 0).unwrap().unwrap();
        execute(&mut table, Request::Delete(&first)).unwrap();
        // The kernel derives the identifier from the connection's memory address: sooner or later another connection
        // reuses it.
        let elsewhere = (2..32).find_map(|number| {
            execute(&mut table, Request::Create(&tcp(number))).unwrap();
            execute(&mut table, Request::Create(&tcp(1))).unwrap();
            let renewed = table.get(&tcp(1).original, 0).unwrap().unwrap();
            if renewed.id == first.id {
                execute(&mut table, Request::Delete(&renewed)).unwrap();
                return None;
            }
            Some(renewed)
        });
        assert!(elsewhere.is_some(), "each time it reused the first one's memory");
        assert_eq!(execute(&mut table, Request::Delete(&first)), Err(RequestError::Missing), "it is another one");
        assert_eq!(execute(&mut table, Request::Delete(&tcp(1))), Ok(()));
    };
    namespace.run(work).unwrap();
}

#[test]
fn a_dump_returns_matching_entries_in_parts() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut table = TableSocket::open().unwrap();
        let marked = |port| Entry { mark: Some(u32::from(port) % 10), zone: port % 3, ..tcp(port) };
        let entries: Vec<_> = (1..=3000).map(marked).collect();
        table.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();
        let (mut dump_of_all, mut parts, mut count) = (Dump::connections(DumpFilter::default()).unwrap(), 0, 0);
        let end = loop {
            let progress = dump_of_all.receive(&mut |_| count += 1).unwrap();
            parts += 1;
            if progress != DumpProgress::More {
                break progress;
            }
        };
        assert_eq!((end, count), (DumpProgress::Ended { was_interrupted: false }, 3000));
        assert!(parts > 10, "{parts}");

        let count = |filter| dump(filter).len();
        assert_eq!(count(DumpFilter { zone: Some(0), ..DumpFilter::default() }), 1000);
        assert_eq!(count(DumpFilter { zone: Some(2), ..DumpFilter::default() }), 1000);
        assert_eq!(count(DumpFilter { mark: Some((7, u32::MAX)), ..DumpFilter::default() }), 300);
        assert_eq!(count(DumpFilter { mark: Some((1, 1)), ..DumpFilter::default() }), 1500);
        assert_eq!(count(DumpFilter { status: Some(ASSURED), ..DumpFilter::default() }), 3000);
        assert_eq!(count(DumpFilter { status: Some(Status::SOURCE_NAT), ..DumpFilter::default() }), 0);
    };
    namespace.run(work).unwrap();
}
