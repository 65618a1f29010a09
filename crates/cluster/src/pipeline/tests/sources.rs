//! What one source may have, and what a flood cannot take from others.

use network_functions::function::CloseReason;

use super::*;

fn limited(connections_max: u32) -> Limits {
    let sources = Some(SourceLimit { connections_max: Some(connections_max), ..SourceLimit::default() });
    Limits { sources, ..Limits::default() }
}

fn syn(client: Ipv4Addr, port: u16) -> Vec<u8> {
    let tuple = Tuple::v4(ip_protocol::TCP, (client, port), (SERVER, 80));
    build::tcp(&tuple, build::Tcp { flags: tcp_flags::SYN, sequence: 1000, ..build::Tcp::default() }, b"")
}

#[test]
fn a_source_has_so_many_connections_and_another_when_one_ends() {
    let mut bench = Bench::new(false, 64, limited(2));
    bench.connect(CLIENT, 4000);
    bench.connect(CLIENT, 4001);
    assert!(bench.feed_one(INSIDE, syn(CLIENT, 4002)).is_none());
    assert_eq!(bench.dropped(DropReason::SourceLimit), 1);
    let other = Ipv4Addr::new(10, 1, 0, 11);
    assert!(bench.feed_one(INSIDE, syn(other, 4000)).is_some(), "others have their own");
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, 4000), (SERVER, 80));
    let data = build::Tcp { flags: tcp_flags::ACK, sequence: 1006, acknowledgement: 5001, ..build::Tcp::default() };
    assert!(bench.feed_one(INSIDE, build::tcp(&tuple, data, b"x")).is_some(), "what it has goes on");

    let (slot, _) = bench.pipeline.lookup(&tuple).unwrap();
    bench.pipeline.connections.end(slot, CloseReason::Terminated);
    assert!(bench.feed_one(INSIDE, syn(CLIENT, 4002)).is_some());
}

#[test]
fn a_source_begins_connections_at_its_rate_and_what_it_has_is_not_held_to_it() {
    let sources = Some(SourceLimit { begun_per_second_max: Some(5), ..SourceLimit::default() });
    let mut bench = Bench::new(false, 64, Limits { sources, ..Limits::default() });
    bench.connect(CLIENT, 4000);
    let begun = (1..50).filter(|port| bench.feed_one(INSIDE, syn(CLIENT, 4000 + port)).is_some()).count();
    assert_eq!((begun, bench.dropped(DropReason::SourceRate)), (4, 45));
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, 4000), (SERVER, 80));
    let data = build::Tcp { flags: tcp_flags::ACK, sequence: 1006, acknowledgement: 5001, ..build::Tcp::default() };
    assert!(bench.feed_one(INSIDE, build::tcp(&tuple, data, b"x")).is_some());
    bench.now = bench.now + Duration::from_millis(200);
    assert!(bench.feed_one(INSIDE, syn(CLIENT, 5000)).is_some(), "one more in a fifth of a second");
    assert!(bench.feed_one(INSIDE, syn(CLIENT, 5001)).is_none());
}

#[test]
fn an_ipv6_link_is_one_source() {
    let mut bench = Bench::new(false, 64, limited(2));
    let from = |host: u16| Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, host);
    let ask = |host| build::udp(&Tuple::v6(ip_protocol::UDP, (from(host), 4000), (SERVER6, 53)), b"?");
    assert!(bench.feed_one(INSIDE, ask(1)).is_some() && bench.feed_one(INSIDE, ask(2)).is_some());
    assert!(bench.feed_one(INSIDE, ask(3)).is_none());
    assert_eq!(bench.dropped(DropReason::SourceLimit), 1);
}

#[test]
fn copies_of_other_nodes_connections_count_and_are_never_refused() {
    let mut bench = Bench::new(false, 64, limited(1));
    let copy = |port| {
        let tuple = Tuple::v4(ip_protocol::UDP, (CLIENT, port), (SERVER, 53));
        Connection::new(tuple, NodeId(1), flow::conntrack::ProtocolState::default(), Instant::from_millis(90_000))
    };
    for port in 1..=3 {
        assert_eq!(bench.pipeline.replicas().apply(bench.now, NodeId(1), copy(port)), Applied::Taken);
    }
    assert_eq!(bench.pipeline.connections_of_source(&copy(1).original), Some(3));
    assert!(bench.feed_one(INSIDE, syn(CLIENT, 4000)).is_none());
    for port in 1..=3 {
        assert!(bench.pipeline.replicas().delete(bench.now, NodeId(1), &Ended::from(&copy(port))));
    }
    assert_eq!(bench.pipeline.connections_of_source(&copy(1).original), Some(0));
    assert!(bench.feed_one(INSIDE, syn(CLIENT, 4000)).is_some());
}

#[test]
fn counts_stay_true_when_connections_never_come_to_be_are_reopened_or_expire() {
    let mut bench = Bench::new(false, 4, limited(100));
    for port in 0..50 {
        // In a table of four, most of these displace another.
        let _ = bench.feed_one(INSIDE, syn(CLIENT, 4000 + port));
    }
    let count = bench.pipeline.connections_of_source(&headers(&syn(CLIENT, 1)).tuple);
    assert_eq!(count, Some(bench.pipeline.table().len()));
    bench.now = bench.now + Duration::from_secs(600);
    bench.pipeline.expire(bench.now, 100, |_| ReplicaExpiry::Recheck(Duration::ZERO));
    assert_eq!(bench.pipeline.connections_of_source(&headers(&syn(CLIENT, 1)).tuple), Some(0));
}

/// A table almost full of established connections, and a flood of SYNs from everywhere that never go on.
#[test]
fn a_syn_flood_takes_no_established_connection_and_new_ones_still_get_in() {
    const ESTABLISHED: u16 = 3000;
    let mut bench = Bench::new(false, 4096, Limits::default());
    for port in 0..ESTABLISHED {
        bench.connect(CLIENT, 1024 + port);
    }
    let flood = |number: u32| syn(Ipv4Addr::from_bits(Ipv4Addr::new(100, 64, 0, 0).to_bits() + number), 6000);
    for number in 0..20_000 {
        let _ = bench.feed_one(OUTSIDE, flood(number));
    }
    assert_eq!(bench.pipeline.table().len(), 4096, "the flood fills what is left");
    assert!(bench.pipeline.counters().early_dropped > 10_000, "and displaces its own kind");
    let late = Ipv4Addr::new(10, 1, 0, 99);
    for port in 0..100 {
        bench.connect(late, 2000 + port);
        let _ = bench.feed_one(OUTSIDE, flood(20_000 + u32::from(port)));
    }
    for (client, ports) in [(CLIENT, 1024..1024 + ESTABLISHED), (late, 2000..2100)] {
        for port in ports {
            let tuple = Tuple::v4(ip_protocol::TCP, (client, port), (SERVER, 80));
            let data =
                build::Tcp { flags: tcp_flags::ACK, sequence: 1006, acknowledgement: 5001, ..build::Tcp::default() };
            assert!(bench.feed_one(INSIDE, build::tcp(&tuple, data, b"still here")).is_some(), "{client}:{port}");
        }
    }
}
