//! Packets at a node that has taken over, whose connections were replicated compactly, or not at all.

use flow::connection::flags;
use flow::conntrack::{ProtocolState, TcpState};
use flow::wire::Transport;
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::nat::{Mapping, SOURCE_PORTS_DEFAULT};

use super::*;

const ACK: u8 = tcp_flags::ACK;

/// The inside may begin connections, under the shared address.
fn bench(config: RecoveryConfig, entries: Vec<(Tuple, FilterMatch)>) -> Bench {
    bench_with(config, entries, true)
}

/// As [`bench`]; without `translates`, under its own addresses.
fn bench_with(config: RecoveryConfig, entries: Vec<(Tuple, FilterMatch)>, translates: bool) -> Bench {
    let inside = Conditions {
        ingress: std::vec![INSIDE],
        sources: std::vec!["10.1.0.0/25".parse().unwrap()],
        ..Conditions::default()
    };
    let rule = Rule { name: "out".into(), conditions: inside.clone(), action: Action::Accept, log: false };
    let translate =
        SourceRule { conditions: inside, action: SourceAction::Compute(std::vec![SHARED.into()], Mapping::default()) };
    let nat = Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: translates.then_some(translate).into_iter().collect(),
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: 2.try_into().unwrap(),
        key: HashKey([7, 8]),
    });
    let firewall = Firewall::new(FirewallConfig { rules: std::vec![rule], ..FirewallConfig::default() });
    let chain = ChainBuilder::new().push(firewall.unwrap()).push(nat.unwrap()).build().unwrap();
    let tracker = Tracker::new(TrackerConfig::default());
    let mut bench = Bench::of(Pipeline::new(NodeId(0), 256, HashKey([1, 2]), tracker, chain));
    let _ = bench.pipeline.recovery.begin(bench.now, &config, entries.len() as u64);
    bench.links.entries = entries;
    bench
}

fn outwards(port: u16) -> Tuple {
    Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80))
}

/// The answers to what [`outwards`] is, as the server sends them to the shared address.
fn answers(bench: &Bench, port: u16) -> Tuple {
    bench.pipeline.chain().restore(&outwards(port), Some(INSIDE)).expect("the rules let it begin").reply
}

fn state(state: TcpState) -> FilterMatch {
    let state = ProtocolState { state: state as u8, ..ProtocolState::default() };
    FilterMatch {
        owner: NodeId(1),
        state: Some((state, flags::REPLIED | flags::ASSURED)),
        class: None,
        is_of_hosts: false,
    }
}

const MEMBER: FilterMatch = FilterMatch { owner: NodeId(1), state: None, class: None, is_of_hosts: false };

fn tcp(tuple: &Tuple, flags: u8, sequence: u32, acknowledgement: u32, payload: &[u8]) -> Vec<u8> {
    build::tcp(tuple, build::Tcp { flags, sequence, acknowledgement, ..build::Tcp::default() }, payload)
}

fn segment_of(frame: &[u8]) -> (Tuple, flow::wire::TcpSegment) {
    let headers = headers(frame);
    let Transport::Tcp(segment) = headers.transport else { panic!("a TCP segment") };
    (headers.tuple, segment)
}

#[test]
fn a_connection_goes_on_whichever_side_sends_first() {
    for entries in [state(TcpState::Established), MEMBER] {
        for client_first in [true, false] {
            let mut bench = bench(RecoveryConfig::default(), std::vec![(outwards(4000), entries)]);
            let reply = answers(&bench, 4000);
            let out = tcp(&outwards(4000), ACK, 900_000, 70_000, b"question");
            let back = tcp(&reply, ACK, 70_000, 900_008, b"answer");
            let mut sides = [(INSIDE, out), (OUTSIDE, back)];
            if !client_first {
                sides.reverse();
            }
            for (port, frame) in sides {
                let sent = bench.feed_one(port, frame).expect("it passes");
                let expected = if port == INSIDE { reply.inverse() } else { outwards(4000).inverse() };
                assert_eq!(segment_of(&sent).0, expected, "translated as before");
            }
            let counters = bench.pipeline.recovery.counters();
            assert_eq!((counters.restored, counters.missed, bench.pipeline.counters().taken_over), (1, 0, 1));
            let (_, connection) = bench.pipeline.table().iter().next().unwrap();
            assert_eq!((connection.owner, connection.protocol.state), (NodeId(0), TcpState::Established as u8));
        }
    }
}

/// The client's ports that were asked about an answer, as it would see the questions.
fn asked(bench: &mut Bench) -> Vec<u16> {
    let questions = core::mem::take(&mut bench.links.posted);
    let port_of = |frame: Vec<u8>| {
        let (tuple, segment) = segment_of(&frame);
        assert_eq!((tuple.source_ip(), tuple.destination_ip()), (SERVER.into(), CLIENT.into()));
        assert_eq!((segment.payload_bytes, segment.flags), (0, ACK), "a keep-alive");
        tuple.destination_port
    };
    questions.into_iter().map(port_of).collect()
}

#[test]
fn an_answer_that_may_be_to_several_ports_of_a_host_is_asked_about_and_its_owner_goes_on() {
    let entries = (1024..=u16::MAX).map(|port| (outwards(port), MEMBER)).collect();
    let mut bench = bench(RecoveryConfig::default(), entries);
    let reply = answers(&bench, 4000);
    let answer = |bench: &mut Bench| bench.feed_one(OUTSIDE, tcp(&reply, ACK | tcp_flags::FIN, 700, 900, b"whose?"));
    assert!(answer(&mut bench).is_none());
    assert_eq!(bench.dropped(DropReason::RecoveryAmbiguous), 1);
    let ports = asked(&mut bench);
    assert!(ports.contains(&4000) && ports.len() > 50, "all that the outside port stands for: {ports:?}");
    assert!(answer(&mut bench).is_none() && asked(&mut bench).is_empty(), "a window of segments asks once");

    // Half of them deny it, which the server must not receive: it would end the right one.
    for port in ports.iter().copied().filter(|port| *port != 4000).step_by(2) {
        assert!(bench.feed_one(INSIDE, tcp(&outwards(port), tcp_flags::RST, 900, 0, b"")).is_none());
    }
    let denials = bench.dropped(DropReason::RecoveryDenial) as usize;
    bench.now = bench.now + Duration::from_millis(200);
    assert!(answer(&mut bench).is_none());
    assert_eq!(asked(&mut bench).len(), ports.len() - denials, "the others are asked again");

    let acknowledgement = bench.feed_one(INSIDE, tcp(&outwards(4000), ACK, 900, 700, b"")).expect("it is mine");
    assert_eq!(segment_of(&acknowledgement).0, reply.inverse());
    assert!(answer(&mut bench).is_some(), "now its connection is known");
    let other = *ports.iter().find(|port| **port != 4000).unwrap();
    assert!(bench.feed_one(INSIDE, tcp(&outwards(other), tcp_flags::RST, 900, 0, b"")).is_none(), "a late denial");
    let counters = bench.pipeline.recovery.counters();
    assert_eq!((counters.restored, counters.ambiguous, counters.denials), (1, 3, denials as u64 + 1));
}

#[test]
fn a_pair_of_hosts_restores_what_is_not_translated_and_nothing_that_is() {
    let hosts = FilterMatch { is_of_hosts: true, ..MEMBER };
    // What a service inside sends to a client outside; the two hosts have a connection that began inside as well.
    let of_service = Tuple::v4(ip_protocol::TCP, (CLIENT, 80), (SERVER, 10_029));
    let entries = || std::vec![(outwards(4000), hosts), (of_service, hosts)];
    let sends_ack = |bench: &mut Bench, tuple: &Tuple| bench.feed_one(INSIDE, tcp(tuple, ACK, 700, 900, b"page"));
    let mut translating = bench(RecoveryConfig::default(), entries());
    for tuple in [of_service, outwards(4000)] {
        assert!(
            sends_ack(&mut translating, &tuple).is_none(),
            "under another port its receiver would reset it: {tuple}"
        );
    }
    let reply = answers(&translating, 4000);
    assert!(translating.feed_one(OUTSIDE, tcp(&reply, ACK, 700, 900, b"answer")).is_none());
    assert!(asked(&mut translating).is_empty(), "no port is asked for that the filter cannot hold");
    let counters = translating.pipeline.recovery.counters();
    assert_eq!((counters.restored, counters.missed), (0, 3));

    let mut plain = bench_with(RecoveryConfig::default(), entries(), false);
    for tuple in [of_service, outwards(4000)] {
        let sent = sends_ack(&mut plain, &tuple).expect("it goes on under its own addresses");
        assert_eq!(segment_of(&sent).0, tuple);
    }
    assert_eq!(plain.pipeline.recovery.counters().restored, 2);
}

#[test]
fn of_several_ports_that_a_filter_seems_to_know_none_gets_the_answer_before_one_has_acknowledged() {
    let mut bench = bench(RecoveryConfig::default(), Vec::new());
    let reply = answers(&bench, 4000);
    let mut originals = Vec::new();
    bench.pipeline.chain().originals_of(&reply, &mut originals);
    let is_other = |original: &&Tuple| original.source_ip() == CLIENT && original.source_port != 4000;
    let mistaken = *originals.iter().find(is_other).unwrap();
    bench.links.entries = std::vec![(mistaken, MEMBER), (outwards(4000), MEMBER)];
    let _ = bench.pipeline.recovery.begin(bench.now, &RecoveryConfig::default(), 2);
    assert!(bench.feed_one(OUTSIDE, tcp(&reply, ACK, 700, 900, b"whose?")).is_none());
    let mut ports = asked(&mut bench);
    ports.sort_unstable();
    let mut expected = std::vec![4000, mistaken.source_port];
    expected.sort_unstable();
    assert_eq!(ports, expected);
    assert!(bench.feed_one(INSIDE, tcp(&mistaken, tcp_flags::RST, 900, 0, b"")).is_none());
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4000), ACK, 900, 700, b"")).is_some());
    assert!(bench.feed_one(OUTSIDE, tcp(&reply, ACK, 700, 900, b"repeated")).is_some());
}

#[test]
fn a_reset_that_nobody_asked_for_passes() {
    let mut bench = bench(RecoveryConfig::default(), std::vec![(outwards(4000), MEMBER)]);
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4000), tcp_flags::RST, 900, 0, b"")).is_some());
}

/// A bogus reply: from a server of its own for each number, to a port of the shared address.
fn bogus(number: u32) -> Tuple {
    let server = Ipv4Addr::from_bits(0xcb00_0000 + number);
    Tuple::v4(ip_protocol::TCP, (server, 443), (SHARED, 2048 + (number % 60_000) as u16))
}

#[test]
fn ambiguous_replies_of_one_source_are_charged_and_those_of_others_are_not_held_to_that() {
    let entries = (4000..5200).map(|port| (outwards(port), MEMBER)).collect();
    let mut bench = bench(RecoveryConfig { misses_per_source_max: 2, ..RecoveryConfig::default() }, entries);
    for port in 4000..4100 {
        let reply = answers(&bench, port);
        assert!(bench.feed_one(OUTSIDE, tcp(&reply, ACK, 1, 1, b"")).is_none());
    }
    let counters = bench.pipeline.recovery.counters();
    assert!(counters.ambiguous > 0 && counters.ambiguous + counters.unasked == 100, "{counters:?}");
    assert_eq!(bench.dropped(DropReason::RecoverySourceLimit), counters.unasked);
    // What two misses allow, and the work of the packet that overdrew it.
    let of_one = counters.tuples / counters.ambiguous;
    assert!(counters.tuples <= 2 * 160 + 2 * of_one, "{counters:?}");
    assert!(bench.feed_one(OUTSIDE, tcp(&bogus(1), ACK, 1, 1, b"")).is_none());
    assert_eq!(bench.pipeline.recovery.counters().missed, 1, "another source is asked for");
}

#[test]
fn a_flood_of_bogus_replies_causes_no_more_work_than_the_budget_and_holds_up_no_original_direction() {
    const REPLIES: u32 = 20_000;
    let mut bench = bench(RecoveryConfig::default(), (4000..4041).map(|port| (outwards(port), MEMBER)).collect());
    let began = bench.now;
    for number in 0..REPLIES {
        bench.now = began + Duration::from_micros(50) * number;
        assert!(bench.feed_one(OUTSIDE, tcp(&bogus(number), ACK, 1, 1, b"")).is_none());
        if number % 500 == 499 {
            let inside = outwards(4000 + (number / 500) as u16);
            assert!(bench.feed_one(INSIDE, tcp(&inside, ACK, 1, 1, b"")).is_some(), "inside hosts go on at once");
        }
    }
    let counters = bench.pipeline.recovery.counters();
    // A second, a tenth at once, and the packet that overdrew the budget.
    let budget = 65_536 * 11 / 10 + 2 * 4096;
    assert!(counters.tuples > 50_000 && counters.tuples <= budget, "{counters:?}");
    let looked_for = bench.links.looked_for.get();
    assert!(looked_for <= budget + u64::from(REPLIES) + 1000, "{looked_for} tuples were looked for");
    assert_eq!(counters.over_budget, bench.dropped(DropReason::RecoveryWorkLimit));
    assert_eq!(counters.over_budget + counters.missed, u64::from(REPLIES), "each is counted");
    assert_eq!(counters.restored, 40);

    bench.now = bench.now + Duration::from_millis(200);
    let reply = answers(&bench, 4040);
    assert!(
        bench.feed_one(OUTSIDE, tcp(&reply, ACK, 1, 1, b"repeated")).is_some(),
        "and so do replies that come again"
    );
}

#[test]
fn replies_that_restore_their_connections_are_not_charged() {
    let entries = (4000..4200).map(|port| (outwards(port), MEMBER)).collect();
    let mut bench = bench(RecoveryConfig { misses_per_source_max: 1, ..RecoveryConfig::default() }, entries);
    for port in 4000..4200 {
        let reply = answers(&bench, port);
        assert!(bench.feed_one(OUTSIDE, tcp(&reply, ACK, 1, 1, b"")).is_some(), "port {port}");
    }
    assert_eq!(bench.pipeline.recovery.counters().restored, 200);
}

#[test]
fn a_connection_goes_on_in_the_state_that_was_replicated() {
    let mut bench = bench(RecoveryConfig::default(), std::vec![(outwards(4000), state(TcpState::FinWait))]);
    let fin = tcp(&answers(&bench, 4000), ACK | tcp_flags::FIN, 70_000, 900_000, b"");
    assert!(bench.feed_one(OUTSIDE, fin).is_some());
    let (_, connection) = bench.pipeline.table().iter().next().unwrap();
    assert_eq!(connection.protocol.state, TcpState::LastAck as u8, "the second FIN");
}

#[test]
fn an_icmp_error_about_a_replicated_connection_finds_it() {
    let mut bench = bench(RecoveryConfig::default(), std::vec![(outwards(4000), MEMBER)]);
    let reply = answers(&bench, 4000);
    let quoted = tcp(&reply.inverse(), ACK, 1, 1, b"too large");
    let header = build::IcmpHeader { kind: 3, code: 4, parameter: 1400 };
    let error = Envelope::default().icmp_error(SERVER.into(), header, &quoted[14..]).unwrap();
    let sent = bench.feed_one(OUTSIDE, error).expect("it goes to the client");
    assert_eq!(headers(&sent).tuple.destination_ip(), CLIENT);
}

#[test]
fn what_no_filter_names_is_dropped_and_a_new_connection_begins_as_ever() {
    let mut bench = bench(RecoveryConfig::default(), std::vec![(outwards(4000), MEMBER)]);
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4001), ACK, 5, 5, b"who?")).is_none());
    assert_eq!(bench.dropped(DropReason::NoConnection), 1);
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4002), tcp_flags::SYN, 5, 0, b"")).is_some());
    assert_eq!((bench.pipeline.recovery.counters().missed, bench.pipeline.counters().begun), (1, 1));
}

#[test]
fn nothing_passes_by_a_false_hit_that_the_rules_deny() {
    // A stranger's tuple, of which the filter seems to know.
    let stranger = Tuple::v4(ip_protocol::TCP, (SERVER, 99), (SHARED, 22));
    let mut bench = bench(RecoveryConfig::default(), std::vec![(stranger, state(TcpState::Established))]);
    assert!(bench.feed_one(OUTSIDE, tcp(&stranger, ACK, 5, 5, b"let me in")).is_none());
    let counters = bench.pipeline.recovery.counters();
    assert_eq!((counters.denied, counters.restored, bench.pipeline.table().len()), (1, 0, 0));
}

#[test]
fn one_source_asks_no_more_often_than_it_may_and_others_are_not_held_to_that() {
    let config = RecoveryConfig { misses_per_source_max: 10, ..RecoveryConfig::default() };
    let mut bench = bench(config, std::vec![(outwards(9999), MEMBER)]);
    let stranger = |port| Tuple::v4(ip_protocol::TCP, (Ipv4Addr::new(203, 0, 113, 9), port), (SHARED, 80));
    (1..=50).for_each(|port| assert!(bench.feed_one(OUTSIDE, tcp(&stranger(port), ACK, 1, 1, b"")).is_none()));
    let counters = bench.pipeline.recovery.counters();
    assert_eq!((counters.missed, counters.unasked, bench.dropped(DropReason::RecoverySourceLimit)), (10, 40, 40));
    assert!(bench.feed_one(INSIDE, tcp(&outwards(9999), ACK, 1, 1, b"")).is_some());
}

#[test]
fn no_more_is_restored_than_was_replicated() {
    let entries: Vec<_> = (4000..4200).map(|port| (outwards(port), MEMBER)).collect();
    let mut bench = bench(RecoveryConfig::default(), entries);
    // The peer said that it had one connection.
    let _ = bench.pipeline.recovery.begin(bench.now, &RecoveryConfig::default(), 1);
    (4000..4200).for_each(|port| drop(bench.feed_one(INSIDE, tcp(&outwards(port), ACK, 1, 1, b""))));
    assert_eq!(bench.pipeline.recovery.counters().restored, 65);
    bench.pipeline.recovery.end_if_over(bench.now);
    assert!(!bench.pipeline.recovery.is_active() && bench.pipeline.recovery.counters().used_up == 1);
}

#[test]
fn a_recovery_ends_in_time() {
    let config = RecoveryConfig { lasts: Duration::from_secs(60), ..RecoveryConfig::default() };
    let mut bench = bench(config, std::vec![(outwards(4000), MEMBER), (outwards(4001), MEMBER)]);
    bench.now = bench.now + Duration::from_secs(59);
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4000), ACK, 1, 1, b"")).is_some());
    bench.now = bench.now + Duration::from_secs(1);
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4001), ACK, 1, 1, b"")).is_none());
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4000), ACK, 1, 1, b"")).is_some(), "what is back stays");
    bench.pipeline.recovery.end_if_over(bench.now);
    assert!(!bench.pipeline.recovery.is_active());
}

#[test]
fn after_a_cold_start_trusted_hosts_go_on_at_once_and_others_by_way_of_them() {
    let config = RecoveryConfig { cold_start: std::vec![INSIDE], ..RecoveryConfig::default() };
    let mut bench = bench_with(config, Vec::new(), false);
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4000), ACK, 500, 600, b"go on")).is_some());
    assert!(bench.feed_one(OUTSIDE, tcp(&outwards(4000).inverse(), ACK, 600, 505, b"gladly")).is_some());

    // The server sends first: the client is probed whether it knows the connection.
    let reply = outwards(4001).inverse();
    let probe = bench.feed_one(OUTSIDE, tcp(&reply, ACK, 7000, 8000, b"not to be seen")).expect("a keep-alive");
    let (tuple, segment) = segment_of(&probe);
    assert_eq!((tuple, segment.sequence, segment.payload_bytes), (outwards(4001).inverse(), 6999, 0));
    assert!(bench.pipeline.lookup(&reply).is_none(), "nothing is believed yet");
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4001), ACK, 8000, 7000, b"")).is_some(), "the client knows it");
    let repeated = bench.feed_one(OUTSIDE, tcp(&reply, ACK, 7000, 8000, b"to be seen")).expect("sent again");
    assert_eq!(segment_of(&repeated).1.payload_bytes, 10);
    let counters = bench.pipeline.recovery.counters();
    assert_eq!((counters.cold_started, counters.probed), (2, 1));
}

#[test]
fn an_answer_that_may_be_to_several_connections_proves_nothing() {
    let config = RecoveryConfig { cold_start: std::vec![INSIDE], blocks: true, ..RecoveryConfig::default() };
    let mut bench = bench(config, Vec::new());
    let reply = answers(&bench, 4000);
    for _ in 0..2 {
        assert!(bench.feed_one(OUTSIDE, tcp(&reply, ACK, 600, 505, b"to which port?")).is_none());
    }
    assert_eq!(bench.pipeline.table().len(), 0);
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4000), ACK, 505, 600, b"mine")).is_some());
    assert!(bench.feed_one(OUTSIDE, tcp(&reply, ACK, 600, 509, b"to that one")).is_some());
}

#[test]
fn a_reset_or_a_stranger_begins_nothing_by_a_cold_start() {
    let config = RecoveryConfig { cold_start: std::vec![INSIDE], ..RecoveryConfig::default() };
    let mut bench = bench(config, Vec::new());
    assert!(bench.feed_one(INSIDE, tcp(&outwards(4000), ACK | tcp_flags::RST, 5, 5, b"")).is_none());
    let elsewhere = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (CLIENT, 4000));
    assert!(bench.feed_one(OUTSIDE, tcp(&elsewhere, ACK, 5, 5, b"to nobody's address")).is_none());
    assert_eq!((bench.pipeline.table().len(), bench.dropped(DropReason::NoConnection)), (0, 2));
}

#[test]
fn a_blocked_segment_passes_when_it_is_retransmitted() {
    let config = RecoveryConfig { blocks: true, ..RecoveryConfig::default() };
    let mut bench = bench_with(config, Vec::new(), false);
    let reply = outwards(4000).inverse();
    let mut sends = |sequence| bench.feed_one(OUTSIDE, tcp(&reply, ACK, sequence, 1, b"data")).is_some();
    assert_eq!([sends(100), sends(104), sends(100), sends(104)], [false, false, true, true]);
    let counters = bench.pipeline.recovery.counters();
    assert_eq!((counters.blocked, counters.unblocked, bench.dropped(DropReason::RecoveryBlocked)), (2, 1, 2));
}

#[test]
fn an_answer_by_udp_goes_on_and_a_question_that_nobody_asked_does_not() {
    let udp = |port| Tuple::v4(ip_protocol::UDP, (CLIENT, port), (SERVER, 53));
    let mut bench = bench(RecoveryConfig::default(), std::vec![(udp(4000), MEMBER)]);
    let reply = bench.pipeline.chain().restore(&udp(4000), Some(INSIDE)).unwrap().reply;
    let sent = bench.feed_one(OUTSIDE, build::udp(&reply, b"answer")).expect("it goes to the client");
    assert_eq!(headers(&sent).tuple, udp(4000).inverse());
    let other = Tuple { destination_port: reply.destination_port + 1, ..reply };
    assert!(bench.feed_one(OUTSIDE, build::udp(&other, b"?")).is_none());
    assert_eq!(bench.dropped(DropReason::FirewallDenied), 1);
}
