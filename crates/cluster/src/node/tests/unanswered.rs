//! Connections that nobody has answered are not replicated, and nothing that is promised needs them to be.

use std::time::Duration;
use std::vec::Vec;

use flow::conntrack::TcpState;
use flow::wire::{ip_protocol, tcp_flags};
use flow::{DropReason, Tuple};
use network_functions::syn_proxy::Mode;
use replication::representation::Start;

use super::cluster::{CLIENT, Cluster, Compactly, INSIDE, OUTSIDE, Options, SERVER, segment, syn, syn_ack};
use super::compact::{self, MULTI_LEVEL, outwards};
use super::{ACK, FIN_ACK, exchange, ftp};
use crate::group::{GroupId, GroupSet};
use crate::role::State;

const RST_ACK: u8 = tcp_flags::RST | ACK;

fn roomy() -> Options {
    Options { connections_max: 16_384, ..Options::default() }
}

/// Messages about connections that node 0 has sent.
fn messages(cluster: &Cluster) -> u64 {
    cluster.node(0).status(cluster.now).peers[0].session.expect("it replicates").messages_sent
}

fn unanswered(cluster: &Cluster) -> u32 {
    cluster.node(0).status(cluster.now).unanswered
}

/// The port that the server sees the client's SYN under.
fn syn_passes(cluster: &mut Cluster, port: u16) -> u16 {
    cluster.client_sends(port, syn(), b"");
    cluster.server_receives().expect("the SYN passes").tuple.source_port
}

fn take_over(cluster: &mut Cluster) {
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
}

#[test]
fn ten_thousand_unanswered_syns_make_no_message_and_no_standby_entry() {
    let mut cluster = Cluster::start(roomy());
    let before = messages(&cluster);
    for port in 20_000..30_000 {
        let _ = syn_passes(&mut cluster, port);
    }
    cluster.run(Duration::from_millis(100));
    assert_eq!((cluster.connections(0), unanswered(&cluster)), (10_000, 10_000));
    assert_eq!((messages(&cluster) - before, cluster.connections(1)), (0, 0));
    // Nor do they when they expire.
    cluster.run(Duration::from_secs(130));
    assert_eq!((cluster.connections(0), unanswered(&cluster)), (0, 0));
    assert_eq!((messages(&cluster) - before, cluster.connections(1)), (0, 0));
}

#[test]
fn ten_thousand_refused_syns_make_no_message_either() {
    let mut cluster = Cluster::start(roomy());
    let before = messages(&cluster);
    for port in 20_000..30_000 {
        let seen_port = syn_passes(&mut cluster, port);
        cluster.server_sends(seen_port, segment(RST_ACK, 0, 1001), b"");
        cluster.client_receives().expect("the refusal passes");
    }
    cluster.run(Duration::from_secs(20));
    assert_eq!((messages(&cluster) - before, cluster.connections(1)), (0, 0));
}

#[test]
fn a_full_synchronisation_leaves_unanswered_connections_out_and_the_digests_agree() {
    let mut cluster = Cluster::start(roomy());
    let old = cluster.connect(40_000);
    cluster.kill(1);
    cluster.run(Duration::from_millis(300));
    for port in 20_000..20_100 {
        let _ = syn_passes(&mut cluster, port);
    }
    cluster.restart(1);
    cluster.run_until("node 1 to have the connection", |cluster| cluster.is_settled() && cluster.connections(1) > 0);
    cluster.run(Duration::from_secs(3));
    assert_eq!((cluster.connections(1), unanswered(&cluster)), (1, 100));
    let session = cluster.node(1).status(cluster.now).peers[0].session.expect("it replicates");
    assert_eq!(session.anti_entropy.divergent, 0, "{:?}", session.anti_entropy);
    take_over(&mut cluster);
    exchange(&mut cluster, 40_000, old, 1001, 5001);
}

#[test]
fn a_handshake_across_a_failover_completes_when_the_client_repeats_its_syn() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = syn_passes(&mut cluster, 40_000);
    take_over(&mut cluster);
    // The answer to the first SYN is of no connection here: it is dropped, and not answered by a reset.
    cluster.server_sends(seen_port, syn_ack(), b"");
    assert!(cluster.client_receives().is_none());
    assert!(cluster.server_receives().is_none());
    let seen_port = cluster.connect(40_000);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
}

#[test]
fn a_connection_survives_from_its_answer_on() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = syn_passes(&mut cluster, 40_000);
    assert_eq!(cluster.connections(1), 0);
    cluster.server_sends(seen_port, syn_ack(), b"");
    cluster.client_receives().expect("the SYN/ACK passes");
    assert_eq!((cluster.connections(1), unanswered(&cluster)), (1, 0), "the backup has it before the client");
    take_over(&mut cluster);
    // The client is established, and repeats nothing but its data.
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
}

#[test]
fn a_node_that_leaves_replicates_its_unanswered_connections_first() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = syn_passes(&mut cluster, 40_000);
    let now = cluster.now;
    cluster.node_mut(0).leave(now);
    // One that begins meanwhile is replicated at once.
    let latest = syn_passes(&mut cluster, 40_001);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    assert_ne!(cluster.node(0).role(), State::Active);
    for (port, seen_port) in [(40_000, seen_port), (40_001, latest)] {
        cluster.server_sends(seen_port, syn_ack(), b"");
        assert_eq!(cluster.client_receives().expect("the SYN/ACK passes").tuple.destination_port, port);
    }
}

#[test]
fn a_stream_without_replies_keeps_its_translation_across_a_failover() {
    let mut cluster = Cluster::start(Options::default());
    let tuple = Tuple::v4(ip_protocol::UDP, (CLIENT, 40_000), (SERVER, 514));
    let sends = |cluster: &mut Cluster| {
        cluster.client_sends_frame(|envelope| envelope.udp(&tuple, b"line"));
        cluster.server_receives().expect("it passes").tuple
    };
    let seen = sends(&mut cluster);
    take_over(&mut cluster);
    assert_eq!(sends(&mut cluster), seen);
    // No end repeats a datagram: the answer to one that was sent before the failure comes after it.
    cluster.server_sends_frame(|envelope| envelope.udp(&seen.inverse(), b"answer"));
    assert_eq!(cluster.client_receives().expect("the answer passes").tuple, tuple.inverse());
}

#[test]
fn replies_that_may_come_by_another_node_find_the_connection_there() {
    let mut cluster = Cluster::start(Options { is_translated: false, has_groups: true, ..Options::default() });
    cluster.run_until("each node to hold its group", |cluster| {
        (0..2).all(|id| cluster.node(id).roles().held() == GroupSet::EMPTY.with(GroupId(id)))
    });
    cluster.via = Some(0);
    cluster.client_sends(40_000, syn(), b"");
    cluster.server_receives().expect("the SYN passes");
    assert_eq!((cluster.connections(1), unanswered(&cluster)), (1, 0));
    cluster.via = Some(1);
    cluster.server_sends_frame(|envelope| envelope.tcp(&outwards(40_000).inverse(), syn_ack(), b""));
    cluster.client_receives().expect("the SYN/ACK passes by the other node");
}

#[test]
fn a_syn_whose_reply_would_wait_for_a_backup_is_replicated_at_once() {
    let mut cluster = Cluster::start(Options { hold_first_reply: Duration::from_secs(1), ..Options::default() });
    let _ = syn_passes(&mut cluster, 40_000);
    assert_eq!((cluster.connections(1), unanswered(&cluster)), (1, 0));
}

#[test]
fn an_announced_connection_uses_up_its_announcement_and_is_replicated_at_its_syn() {
    let mut cluster = Cluster::start(Options::default());
    let control = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 21));
    let mut control = ftp::connect(&mut cluster, INSIDE, control).expect("the firewall lets it out");
    let target = ftp::active_mode_at(&mut cluster, &mut control, 5000);
    let data = ftp::data_from_server(target);
    cluster.server_sends_frame(|envelope| envelope.tcp(&data, syn(), b""));
    cluster.client_receives().expect("it was announced");
    assert_eq!((cluster.connections(1), unanswered(&cluster)), (2, 0));
    take_over(&mut cluster);
    let mut data = ftp::connect(&mut cluster, OUTSIDE, data).expect("the repeated SYN passes");
    ftp::exchange(&mut cluster, &mut data);
}

#[test]
fn a_client_that_the_syn_proxy_has_answered_has_its_connection_replicated_at_once() {
    let mut cluster = Cluster::start(Options { syn_proxy: Mode::Always, ..Options::default() });
    cluster.client_sends(40_000, syn(), b"");
    let cookie = cluster.client_receives().expect("the proxy answers").headers;
    let flow::wire::Transport::Tcp(cookie) = cookie.transport else { panic!("it is TCP") };
    assert_eq!(cluster.connections(0), 0);
    cluster.client_sends(40_000, segment(ACK, 1001, cookie.sequence.wrapping_add(1)), b"");
    cluster.server_receives().expect("the server is sent a SYN");
    assert_eq!((cluster.connections(1), unanswered(&cluster)), (1, 0));
}

#[test]
fn a_reused_tuple_is_replicated_with_its_answer() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    cluster.client_sends(40_000, segment(FIN_ACK, 1001, 5001), b"");
    cluster.server_sends(seen_port, segment(FIN_ACK, 5001, 1002), b"");
    cluster.client_sends(40_000, segment(ACK, 1002, 5002), b"");
    while cluster.server_receives().is_some() || cluster.client_receives().is_some() {}
    cluster.client_sends(40_000, segment(tcp_flags::SYN, 900_000, 0), b"");
    let seen_port = cluster.server_receives().expect("the SYN passes").tuple.source_port;
    cluster.run(Duration::from_millis(5));
    assert_eq!((cluster.connections(1), unanswered(&cluster)), (0, 1), "the former one has ended there");
    cluster.server_sends(seen_port, segment(tcp_flags::SYN | ACK, 70_000, 900_001), b"");
    cluster.client_receives().expect("the SYN/ACK passes");
    take_over(&mut cluster);
    exchange(&mut cluster, 40_000, seen_port, 900_001, 70_001);
}

#[test]
fn connections_are_replicated_from_the_configured_packet_on() {
    for (start, after_syn, after_answer) in
        [(Start::FirstPacket, 1, 1), (Start::HandshakeReply, 0, 1), (Start::Established, 0, 0)]
    {
        let mut cluster = Cluster::start(Options::default());
        let now = cluster.now;
        cluster.node_mut(0).set_start(now, start);
        let seen_port = syn_passes(&mut cluster, 40_000);
        assert_eq!(cluster.connections(1), after_syn, "{start:?}");
        cluster.server_sends(seen_port, syn_ack(), b"");
        assert_eq!(cluster.connections(1), after_answer, "{start:?}");
        cluster.client_receives().expect("the SYN/ACK passes");
        cluster.client_sends(40_000, segment(ACK, 1001, 5001), b"");
        cluster.server_receives().expect("the ACK passes");
        assert_eq!(cluster.connections(1), 1, "{start:?}");
        take_over(&mut cluster);
        exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    }
}

#[test]
fn another_start_replicates_what_was_withheld() {
    let mut cluster = Cluster::start(Options::default());
    let _ = syn_passes(&mut cluster, 40_000);
    let now = cluster.now;
    cluster.node_mut(0).set_start(now, Start::FirstPacket);
    cluster.deliver();
    assert_eq!((cluster.connections(1), unanswered(&cluster)), (1, 0));
}

/// Words of the filter that node 0 has sent for so many connections that open and close.
fn filter_words(start: Start, connections: u16) -> u64 {
    let mut cluster = Cluster::start(compact::options(Compactly::of(MULTI_LEVEL)));
    let now = cluster.now;
    (0..2).for_each(|id| cluster.node_mut(id).set_start(now, start));
    let sent = |cluster: &Cluster| cluster.node(0).status(cluster.now).compact.expect("it is compact").sender.words;
    let before = sent(&cluster);
    for port in 20_000..20_000 + connections {
        compact::connect(&mut cluster, port);
        cluster.run(Duration::from_millis(11));
        cluster.client_sends(port, segment(FIN_ACK, 1001, 5001), b"");
        cluster.run(Duration::from_millis(11));
        let back = outwards(port).inverse();
        cluster.server_sends_frame(|envelope| envelope.tcp(&back, segment(FIN_ACK, 5001, 1002), b""));
        cluster.client_sends(port, segment(ACK, 1002, 5002), b"");
        cluster.run(Duration::from_millis(11));
        while cluster.server_receives().is_some() || cluster.client_receives().is_some() {}
    }
    cluster.run(Duration::from_secs(130));
    sent(&cluster) - before
}

#[test]
fn a_filter_of_established_connections_takes_half_the_words() {
    let (all, established) = (filter_words(Start::HandshakeReply, 50), filter_words(Start::Established, 50));
    assert!(established > 0 && established * 2 <= all, "{established} of {all} words");
}

#[test]
fn a_filter_of_established_connections_restores_open_and_half_closed_ones() {
    let mut cluster = Cluster::start(compact::options(Compactly::of(MULTI_LEVEL)));
    let now = cluster.now;
    (0..2).for_each(|id| cluster.node_mut(id).set_start(now, Start::Established));
    let open = [20_000, 20_001, 20_002];
    open.iter().for_each(|port| compact::connect(&mut cluster, *port));
    // The client of the second has finished, and the third is over.
    for port in [20_001, 20_002] {
        assert!(compact::client_segment_passes(&mut cluster, port, FIN_ACK, 1001, 5001));
    }
    cluster.client_sends(20_002, segment(RST_ACK, 1002, 5001), b"");
    cluster.run(Duration::from_millis(50));
    while cluster.server_receives().is_some() {}
    take_over(&mut cluster);
    assert!(open[..2].iter().all(|port| compact::goes_on(&mut cluster, *port)));
    let passes = compact::client_segment_passes(&mut cluster, 20_002, ACK, 1_000_001, 2_000_001);
    assert!(!passes, "nothing is known of what is over");
    assert!(cluster.dropped(1, DropReason::NoConnection) > 0);
    let states: Vec<u8> = cluster.node(1).pipeline().table().iter().map(|(_, known)| known.protocol.state).collect();
    assert!(states.contains(&(TcpState::Established as u8)), "{states:?}");
}
