//! Scenarios with several workers on each node.

use std::time::Duration;
use std::vec::Vec;

use flow::wire::{Transport, build, ip_protocol, tcp_flags};
use flow::{DropReason, NodeId, Tuple, WorkerId};

use super::cluster::{CLIENT, CLIENT_MAC, INSIDE, Options, SERVER, port_mac, segment, syn, syn_ack};
use super::large_packets::{datagram, piece, put_together};
use super::site::{FORWARDED, Site, ports_answered_elsewhere};
use crate::node::{NodeEvent, USABLE_WITHIN};

const ACK: u8 = tcp_flags::ACK;

#[test]
fn connections_are_shared_out_and_all_of_them_outlive_their_node() {
    for workers in [2, 3] {
        let mut site = Site::started(workers);
        let ports: Vec<(u16, u16)> = (40_000..40_048).map(|port| (port, site.connect(port))).collect();
        let shares = site.connections(0);
        assert!(shares.iter().all(|share| *share > 5), "{shares:?}");
        assert_eq!(site.connections(1), shares, "each copy lies with the worker that its packets will come to");
        assert_eq!(site.handed_over(0), 0, "NAT chose ports whose replies come back to the worker that chose them");

        site.kill(0);
        site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
        for (port, seen_port) in ports {
            site.exchange(port, seen_port);
        }
        assert_eq!(site.handed_over(1), 0);
        assert_eq!(site.connections(1), shares);
    }
}

#[test]
fn a_packet_that_comes_to_the_wrong_worker_is_handed_to_the_right_one() {
    let mut site = Site::started(2);
    for wrong in [WorkerId(0), WorkerId(1)] {
        site.arrives_at = Some(wrong);
        let first = 41_000 + 100 * u16::from(wrong.0);
        let ports: Vec<(u16, u16)> = (first..first + 16).map(|port| (port, site.connect(port))).collect();
        ports.iter().for_each(|(port, seen_port)| site.exchange(*port, *seen_port));
    }
    let shares = site.connections(0);
    assert!(shares.iter().all(|share| *share >= 8) && shares.iter().sum::<u32>() == 32, "{shares:?}");
    assert_eq!(site.connections(1), shares);
    let taken: u64 = site.nodes[0].iter().map(|node| node.pipeline().shard_counters().taken).sum();
    assert_eq!(taken, site.handed_over(0));
    assert!(taken >= 5 * 16, "about half of all packets");
}

#[test]
fn replies_that_come_to_another_worker_are_handed_over_before_and_after_a_take_over() {
    let mut site = Site::started(2);
    let ports: Vec<(u16, WorkerId)> = ports_answered_elsewhere(2).take(8).collect();
    for (port, worker) in &ports {
        let before = site.worker(0, *worker).pipeline().table().len();
        site.connect_in(*port);
        assert_eq!(site.worker(0, *worker).pipeline().table().len(), before + 1);
    }
    assert_eq!((site.redirects(0), site.redirects(1)), (8, 8), "the standby's workers know it, too");
    assert_eq!(site.handed_over(0), 2 * 8, "the client's SYN/ACK and its answer");

    site.kill(0);
    site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
    ports.iter().for_each(|(port, _)| site.exchange_in(*port));
    assert_eq!(site.handed_over(1), 8);

    // The connections end, and with them what is remembered of them.
    for (port, _) in &ports {
        site.client_sends(FORWARDED.1, *port, segment(tcp_flags::RST | ACK, 5001, 1001));
    }
    site.run_until("the connections to be forgotten", |site| site.connections(1) == [0, 0]);
    assert_eq!(site.redirects(1), 0);
}

#[test]
fn the_first_reply_of_a_connection_answered_elsewhere_waits_for_the_backup_like_any_other() {
    let options = Options { hold_first_reply: Duration::from_secs(1), ..Options::default() };
    let mut site = Site::start([2, 2], options);
    site.run_until("node 1 to be synchronised", |site| {
        site.lead(0).holds_addresses()
            && site.nodes[0].iter().all(|node| node.status(site.now).peers[0].could_take_over())
    });
    let (port, worker) = ports_answered_elsewhere(2).next().unwrap();
    site.is_replication_down = true;
    site.server_sends(port, FORWARDED.0, syn());
    assert!(site.client_receives().is_some());
    site.client_sends(FORWARDED.1, port, syn_ack());
    assert!(site.server_receives().is_none(), "the backup knows nothing yet");
    site.is_replication_down = false;
    site.run(Duration::from_millis(150));
    assert!(site.server_receives().is_some());
    let status = site.worker(0, worker).status(site.now);
    assert_eq!((status.replies_held, status.replies_overdue), (1, 0));
    assert_eq!(site.dropped(0, DropReason::StrayHandOver), 0);
}

#[test]
fn fragments_reach_the_worker_of_their_connection_whatever_order_they_come_in() {
    let mut site = Site::started(3);
    for (port, order) in (4000..4016).zip([[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]].into_iter().cycle()) {
        let out = Tuple::v4(ip_protocol::UDP, (CLIENT, port), (SERVER, 53));
        site.client_sends_frame(|envelope| envelope.udp(&out, b"question"));
        let back = site.server_receives().expect("the question passes").tuple.inverse();
        let answer = datagram(&back, 4000);
        for nth in order {
            site.server_sends_frame(|envelope| piece(envelope, &back, &answer, nth));
        }
        assert_eq!(put_together(core::iter::from_fn(|| site.client_receives())), out.inverse());
    }
    assert_eq!(site.connections(0).iter().sum::<u32>(), 16, "no piece began a connection of its own");
    assert!(site.connections(0).iter().all(|share| *share > 0));
    assert!(site.handed_over(0) > 0);
}

#[test]
fn an_icmp_error_reaches_the_worker_of_the_connection_that_it_is_about() {
    let mut site = Site::started(2);
    let (port, _) = ports_answered_elsewhere(2).next().unwrap();
    site.server_sends(port, FORWARDED.0, syn());
    let syn = site.client_receives().expect("the SYN passes");
    let packet = &syn.bytes[usize::from(syn.headers.l3_offset)..];
    let envelope =
        build::Envelope { source: CLIENT_MAC, destination: port_mac(0, INSIDE), ..build::Envelope::default() };
    let header = build::IcmpHeader { kind: 3, code: 3, parameter: 0 };
    site.hand_in(0, INSIDE, envelope.icmp_error(CLIENT.into(), header, packet).unwrap());
    let error = site.server_receives().expect("the error passes");
    let Transport::IcmpError(about) = error.headers.transport else { panic!("an error stays one") };
    assert_eq!((about.inner.source_port, about.inner.destination_port), (port, FORWARDED.0));
}

#[test]
fn a_reply_to_a_connection_that_ended_is_dropped_and_the_stale_redirect_forgotten() {
    let mut site = Site::started(2);
    let (port, worker) = ports_answered_elsewhere(2).next().unwrap();
    site.connect_in(port);
    site.are_messages_held = true;
    site.server_sends(port, FORWARDED.0, segment(tcp_flags::RST | ACK, 1001, 5001));
    assert!(site.client_receives().is_some(), "the reset itself passes");
    site.run_until("the connection to be forgotten", |site| site.worker(0, worker).pipeline().table().is_empty());
    site.client_sends(FORWARDED.1, port, segment(ACK, 5001, 1001));
    assert!(site.server_receives().is_none());
    assert_eq!(site.dropped(0, DropReason::StrayHandOver), 1);
    site.are_messages_held = false;
    site.deliver();
    assert_eq!(site.redirects(0), 0);
}

#[test]
fn a_connection_whose_replies_would_be_taken_for_anothers_is_ended() {
    let mut site = Site::started(2);
    let (port, worker) = ports_answered_elsewhere(2).next().unwrap();
    // The client sends first, from its service's port: the tuple is that of the replies to come. Its address is not
    // translated to the server's side here but it is a connection of its own all the same.
    site.client_sends(FORWARDED.1, port, syn());
    assert!(site.server_receives().is_some());
    site.server_sends(port, FORWARDED.0, syn());
    assert_eq!(
        site.worker(0, worker).pipeline().table().len(),
        0,
        "refused by the worker that has the other connection"
    );
    assert_eq!((site.redirects(0), site.connections(0).iter().sum::<u32>()), (0, 1));
}

#[test]
fn addresses_are_announced_when_all_workers_are_usable() {
    let mut site = Site::started(2);
    let seen_ports: Vec<(u16, u16)> = (40_000..40_016).map(|port| (port, site.connect(port))).collect();
    let before = site.announcements;
    site.are_messages_held = true;
    site.kill(0);
    site.run_until("node 1 to notice", |site| site.lead(1).status(site.now).peers[0].down_since.is_some());
    site.run(USABLE_WITHIN / 2);
    assert!(!site.lead(1).holds_addresses() && site.announcements == before, "the other worker has not received it");
    site.are_messages_held = false;
    site.deliver();
    assert!(site.lead(1).holds_addresses() && site.announcements > before);
    assert!(!site.events(1).iter().any(|event| matches!(event, NodeEvent::WorkerLate(_))));
    seen_ports.into_iter().for_each(|(port, seen_port)| site.exchange(port, seen_port));
}

#[test]
fn a_worker_that_hangs_does_not_keep_the_node_from_taking_over() {
    let mut site = Site::started(2);
    site.events(1);
    site.are_messages_held = true;
    site.kill(0);
    site.run_until("node 1 to take over all the same", |site| site.lead(1).holds_addresses());
    let events = site.events(1);
    assert!(events.contains(&NodeEvent::WorkerLate(WorkerId(1))), "{events:?}");
}

#[test]
fn a_node_that_leaves_takes_all_its_workers_with_it() {
    let mut site = Site::started(2);
    let seen_ports: Vec<(u16, u16)> = (40_000..40_016).map(|port| (port, site.connect(port))).collect();
    let now = site.now;
    site.nodes[0][0].leave(now);
    site.run_until("node 1 to have the addresses", |site| site.lead(1).holds_addresses());
    site.run_until("node 0 to be standby", |site| !site.lead(0).holds_addresses());
    site.run(Duration::from_millis(5));
    assert!(site.nodes[0].iter().all(|node| !node.holds_addresses()));
    seen_ports.into_iter().for_each(|(port, seen_port)| site.exchange(port, seen_port));
    assert_eq!(site.nodes[0].iter().map(|node| node.pipeline().counters().taken_over).sum::<u64>(), 0);
}

#[test]
fn nodes_with_different_numbers_of_workers_do_not_replicate_and_report_the_reason() {
    for workers in [[1, 2], [2, 3]] {
        let mut site = Site::start(workers, Options::default());
        site.run_until("node 0 to be active", |site| site.lead(0).holds_addresses());
        site.run(Duration::from_secs(2));
        let expected = NodeEvent::WorkersDiffer { peer: NodeId(1), theirs: workers[1], ours: workers[0] };
        assert_eq!(site.events(0).iter().filter(|event| **event == expected).count(), 1, "said once");
        for port in 40_000..40_008 {
            let _ = site.connect(port);
        }
        assert_eq!(site.connections(1).iter().sum::<u32>(), 0);
        for node in site.nodes.iter().flatten() {
            let peer = &node.status(site.now).peers[0];
            assert!(peer.refused.is_some() && !peer.could_take_over());
        }
        // Failure detection goes on: the addresses still move.
        site.kill(0);
        site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
    }
}

#[test]
fn pings_to_a_shared_address_are_answered_by_whichever_worker_they_come_to() {
    let mut site = Site::started(2);
    let shared = super::cluster::SHARED_INSIDE;
    let envelope =
        build::Envelope { source: CLIENT_MAC, destination: port_mac(0, INSIDE), ..build::Envelope::default() };
    for identifier in 0..16 {
        let tuple = Tuple::echo(CLIENT.into(), shared.into(), identifier);
        site.hand_in(0, INSIDE, envelope.echo(&tuple, build::Echo::default(), b"ping"));
        let answer = site.client_receives().expect("an echo");
        assert!(matches!(answer.headers.transport, Transport::IcmpQuery(query) if query.is_reply));
    }
    assert!(site.nodes[0].iter().all(|node| node.pipeline().counters().forwarded > 0), "both answered some");
}

#[test]
fn protocols_without_ports_pass_through_nat_whichever_worker_their_replies_come_to() {
    let mut site = Site::started(3);
    let gre =
        |source, destination| Tuple { protocol: 47, ..Tuple::v4(ip_protocol::TCP, (source, 0), (destination, 0)) };
    let envelope = |port| build::Envelope {
        source: if port == INSIDE { CLIENT_MAC } else { super::cluster::SERVER_MAC },
        destination: port_mac(0, port),
        ..build::Envelope::default()
    };
    site.hand_in(0, INSIDE, envelope(INSIDE).raw(&gre(CLIENT, SERVER), &[0; 16]));
    let outgoing = site.server_receives().expect("it passes").tuple;
    assert_eq!(outgoing.source_ip(), super::cluster::SHARED_OUTSIDE);
    let answer = gre(SERVER, super::cluster::SHARED_OUTSIDE);
    site.hand_in(0, super::cluster::OUTSIDE, envelope(super::cluster::OUTSIDE).raw(&answer, &[0; 16]));
    assert_eq!(site.client_receives().expect("the answer passes").tuple.destination_ip(), CLIENT);
    assert_eq!(site.connections(0).iter().sum::<u32>(), 1);
}

#[test]
fn a_syn_ack_after_a_take_over_in_mid_handshake_finds_its_connection() {
    let mut site = Site::started(2);
    let now = site.now;
    // By default its client repeats the SYN.
    site.nodes[0].iter_mut().for_each(|node| node.set_start(now, replication::representation::Start::FirstPacket));
    let mut begun = Vec::new();
    for port in 40_000..40_016 {
        site.client_sends(port, 80, syn());
        begun.push((port, site.server_receives().expect("the SYN passes").tuple.source_port));
    }
    site.kill(0);
    site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
    for (port, seen_port) in begun {
        site.server_sends(80, seen_port, syn_ack());
        assert_eq!(site.client_receives().expect("the SYN/ACK passes").tuple.destination_port, port);
    }
}
