//! What one kernel knows, its peer's knows.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};

use api::{FlowFilterText, NodeRole, SessionState, SyncOrder};
use flow::netfilter::{
    Discriminator, Entry, Expectation, HelperName, ProtocolInfo, Status, TcpInfo, TcpState, Tuple, ZoneDirection,
};
use packet_io::ctnetlink::TableSocket;
use packet_io::sysctl;

use crate::common::sync::{SyncPair, established, inside, tuple, wait_until};

#[test]
fn connections_appear_in_the_other_kernel_change_there_and_end() {
    let Some(pair) = SyncPair::new("basics") else { return };
    let [left, right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    right.wait_until_safe();

    let mut entry = established(1);
    entry.mark = Some(0x2a);
    pair.table(0).create(std::slice::from_ref(&entry));
    let copy = pair.table(1).wait_for(&entry, |found| found.mark == Some(0x2a));
    assert_eq!(copy.tcp().map(|info| info.state), Some(TcpState::Established));

    entry.mark = Some(0x17);
    entry.protocol_info = Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::FinWait, sides: None }));
    pair.table(0).update(std::slice::from_ref(&entry));
    let copy = pair.table(1).wait_for(&entry, |found| found.mark == Some(0x17));
    assert_eq!(copy.tcp().map(|info| info.state), Some(TcpState::FinWait));

    pair.table(0).delete(std::slice::from_ref(&entry));
    pair.table(1).wait_until_gone(&entry);
}

#[test]
fn translation_helper_and_ipv6_are_kept() {
    let Some(pair) = SyncPair::new("kinds") else { return };
    let [left, right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();

    let mut translated = established(1);
    translated.reply.destination = "192.0.2.10".parse().expect("an address");
    translated.reply.discriminator = Discriminator::Ports { source: 443, destination: 20_001 };
    let mut six = established(2);
    six.original.source = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 5).into();
    six.original.destination = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 80).into();
    six.reply = six.original.inverse();
    let helped_tuple = Tuple { discriminator: Discriminator::Ports { source: 4000, destination: 21 }, ..tuple(6, 3) };
    let mut helped = Entry { original: helped_tuple, reply: helped_tuple.inverse(), ..established(3) };
    helped.extra_mut().helper = HelperName::new(b"ftp");
    let udp = Entry { protocol_info: None, original: tuple(17, 5), reply: tuple(17, 5).inverse(), ..established(5) };
    pair.table(0).create(&[translated.clone(), six.clone(), helped.clone(), udp.clone()]);

    let copy = pair.table(1).wait_for(&translated, |_| true);
    assert_eq!(copy.reply, translated.reply);
    assert!(copy.status.is_some_and(|status| status.contains(Status::SOURCE_NAT.union(Status::ASSURED))), "{copy:?}");
    assert_eq!(pair.table(1).wait_for(&six, |_| true).reply, six.reply);
    let copy = pair.table(1).wait_for(&helped, |_| true);
    assert_eq!(copy.extra.and_then(|extra| extra.helper), HelperName::new(b"ftp"));
    assert!(pair.table(1).wait_for(&udp, |_| true).status.is_some_and(|status| status.contains(Status::SEEN_REPLY)));

    let mut flows = Vec::new();
    let filter = FlowFilterText { source: Some("192.0.2.10".into()), ..FlowFilterText::default() };
    right.client().flows(filter, 10, |flow| flows.push(flow)).expect("it answers");
    let [flow] = &flows[..] else { panic!("{flows:?}") };
    assert_eq!((flow.role.as_str(), flow.owner, flow.state.as_str()), ("backup", 0, "ESTABLISHED"));
    assert_eq!(flow.translated.as_ref().expect("it is translated").source, "192.0.2.10:20001");
}

#[test]
fn announced_connections_are_announced_there_too() {
    let Some(pair) = SyncPair::new("announced") else { return };
    let [left, _right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    let control = Tuple { discriminator: Discriminator::Ports { source: 4000, destination: 21 }, ..tuple(6, 1) };
    let mut master = Entry { original: control, reply: control.inverse(), ..established(1) };
    master.extra_mut().helper = HelperName::new(b"ftp");
    pair.table(0).create(std::slice::from_ref(&master));
    pair.table(1).wait_for(&master, |_| true);
    let all_bits = "255.255.255.255".parse().expect("a mask");
    let ports = |source, destination| Discriminator::Ports { source, destination };
    let announced = Expectation {
        master: control,
        expected: Tuple { discriminator: ports(0, 5001), ..control },
        mask: Tuple { source: all_bits, destination: all_bits, protocol: 6, discriminator: ports(0, u16::MAX) },
        zone: 0,
        timeout_s: None,
        flags: 0,
        class: 0,
        helper: None,
        function: None,
        nat: None,
    };
    pair.table(0).announce(&announced);
    let is_there = |found: &[Expectation]| found.iter().any(|one| one.expected == announced.expected);
    wait_until("the other kernel expects it", || {
        let found = pair.table(1).announced();
        if is_there(&found) { Ok(()) } else { Err(format!("{found:?}")) }
    });
    pair.table(0).delete(std::slice::from_ref(&master));
    wait_until("it ends with the connection that announced it", || {
        let found = pair.table(1).announced();
        if is_there(&found) { Err(format!("{found:?}")) } else { Ok(()) }
    });
}

#[test]
fn two_nodes_can_use_conntrackds_protocol_as_well() {
    let Some(pair) = SyncPair::new("ftfw") else { return };
    let start = |side: usize| {
        let (own, other) = (side + 1, 2 - side);
        let text = format!(
            "[node]\nid = {side}\nname = \"node-{side}\"\ncontrol_socket = \"CONTROL\"\n[conntrackd]\n\
             local = \"10.99.0.{own}:3780\"\npeer = \"10.99.0.{other}:3780\"\npeer_id = {}\n",
            1 - side
        );
        pair.start(side, &text)
    };
    let [left, right] = [start(0), start(1)];
    left.order(SyncOrder::Primary);
    let mut entry = Entry { mark: Some(5), ..established(1) };
    pair.table(0).create(std::slice::from_ref(&entry));
    let copy = pair.table(1).wait_for(&entry, |found| found.mark == Some(5));
    assert_eq!(copy.tcp().map(|info| info.state), Some(TcpState::Established));
    entry.mark = Some(6);
    pair.table(0).update(std::slice::from_ref(&entry));
    pair.table(1).wait_for(&entry, |found| found.mark == Some(6));
    left.wait_until_safe();
    assert_eq!(right.client().status().expect("it answers").peers[0].session, SessionState::Conntrackd);
    pair.table(0).delete(std::slice::from_ref(&entry));
    pair.table(1).wait_until_gone(&entry);
}

#[test]
fn changes_by_real_packets_are_replicated() {
    let Some(pair) = SyncPair::new("packets") else { return };
    // Something has to ask for the state of connections, or none are tracked.
    let tracking =
        "table inet track { chain incoming { type filter hook input priority 0; ct state invalid drop; }; }\n";
    if !pair.load_rules(0, tracking) {
        return;
    }
    let [left, _right] = pair.start_both("[kernel]\nevents = \"all\"\n");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();

    let (mut client, mut server) = inside(&pair.machines[0], || {
        let listener = TcpListener::bind("127.0.0.1:7000").expect("a free port");
        let client = TcpStream::connect("127.0.0.1:7000").expect("it listens");
        (client, listener.accept().expect("it was connected to").0)
    });
    let port = client.local_addr().expect("it has one").port();
    let original = Tuple {
        source: "127.0.0.1".parse().expect("an address"),
        destination: "127.0.0.1".parse().expect("an address"),
        protocol: 6,
        discriminator: Discriminator::Ports { source: port, destination: 7000 },
    };
    let entry = Entry::new(original, original.inverse());
    let state = |found: &Entry| found.tcp().map(|info| info.state);
    pair.table(1).wait_for(&entry, |found| state(found) == Some(TcpState::Established));
    client.write_all(b"hello").expect("it is connected");
    server.read_exact(&mut [0; 5]).expect("it is connected");
    drop(client);
    drop(server);
    pair.table(1).wait_for(&entry, |found| state(found) == Some(TcpState::TimeWait));
}

#[test]
fn what_the_file_leaves_out_is_not_replicated() {
    let Some(pair) = SyncPair::new("filter") else { return };
    let filters = "[filter]\nprotocols = [\"tcp\"]\n[[filter.ignore]]\naddresses = [\"10.1.0.1\"]\n[[filter.ignore]]\nmark = \"0x1/0x1\"\n";
    let [left, right] = pair.start_both(filters);
    left.order(SyncOrder::Primary);
    left.wait_until_safe();

    let marked = Entry { mark: Some(3), ..established(60_000) };
    let udp = Entry {
        protocol_info: None,
        original: tuple(17, 60_001),
        reply: tuple(17, 60_001).inverse(),
        ..established(1)
    };
    let handshake = Entry {
        protocol_info: Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::SynSent, sides: None })),
        status: None,
        timeout_s: Some(60),
        ..established(60_002)
    };
    let replicated = established(60_003);
    pair.table(0).create(&[established(1), marked.clone(), udp.clone(), handshake.clone(), replicated.clone()]);
    pair.table(1).wait_for(&replicated, |_| true);
    // The replicated one was created after those that are left out.
    assert_eq!(pair.table(1).count(), 1);
    let readiness = right.order(SyncOrder::Nothing);
    assert!(readiness.failover_safe, "{readiness:?}");
}

#[test]
fn many_connections_from_before_the_start_are_replicated() {
    const MANY: u32 = 20_000;
    let Some(pair) = SyncPair::new("many") else { return };
    let entries: Vec<Entry> = (0..MANY).map(established).collect();
    // As the status advises. Else their ends have events only if something else on the machine listened at their begin.
    inside(&pair.machines[0], || sysctl::write("net/netfilter/nf_conntrack_events", "1").expect("it can be set"));
    pair.table(0).create(&entries);
    let [left, right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    pair.table(1).wait_for_count(MANY as usize);
    left.wait_until_safe();
    right.wait_until_safe();
    pair.table(0).delete(&entries[..5000]);
    pair.table(1).wait_for_count(15_000);
    let status = right.client().status().expect("it answers");
    let sync = status.sync.expect("it is mainstay sync");
    assert_eq!((sync.kernel.own, sync.kernel.copies, sync.kernel.injected), (0, 15_000, 15_000));
    wait_until("the other node has all", || {
        let status = left.client().status().expect("it answers");
        let peer = &status.peers[0];
        if peer.synchronised && peer.role == NodeRole::Backup { Ok(()) } else { Err(format!("{peer:?}")) }
    });
}

#[test]
fn a_zone_of_one_direction_is_of_that_direction_on_the_other_node() {
    let Some(pair) = SyncPair::new("zones") else { return };
    let [left, _right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    for (number, direction) in [(1, ZoneDirection::Original), (2, ZoneDirection::Reply)] {
        let mut entry = Entry { zone: 5, ..established(number) };
        entry.extra_mut().zone_direction = Some(direction);
        pair.table(0).create(&[entry.clone()]);
        let find = |tuple, zone| {
            inside(&pair.machines[1], || TableSocket::open().expect("netlink").get(&tuple, zone).expect("netlink"))
        };
        let copy = wait_until("it is replicated", || {
            find(entry.original, entry.zone_of_original()).ok_or_else(|| format!("{entry:?}"))
        });
        assert_eq!((copy.zone, copy.zone_direction()), (5, Some(direction)));
        let reply_zone = if direction == ZoneDirection::Reply { 5 } else { 0 };
        assert!(find(entry.reply, reply_zone).is_some(), "replies find it");
        assert!(find(entry.reply, 5 - reply_zone).is_none(), "in their own zone alone");
        pair.table(0).delete(&[entry.clone()]);
        wait_until("its end is replicated", || {
            find(entry.original, entry.zone_of_original()).map_or(Ok(()), |copy| Err(format!("{copy:?}")))
        });
    }
}
