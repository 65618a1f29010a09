//! Scenarios with something below the nodes that forwards packets of established connections.

use std::boxed::Box;
use std::time::Duration;
use std::vec::Vec;

use flow::fast_path::NextHop;
use flow::table::Slot;
use flow::wire::{ip_protocol, tcp_flags};
use flow::{DropReason, PortId, Tuple};
use network_functions::tuple_filter::TupleFilter;

use super::below::{FIRST_INTERFACE, PLACES, Program};
use super::cluster::{
    CLIENT, CLIENT_MAC, Cluster, INSIDE, OUTSIDE, Options, SERVER, SERVER_MAC, port_mac, rules, segment,
};
use super::operations::with_rules;
use super::site::Site;
use super::{ACK, FIN_ACK, exchange, ftp};
use crate::node::LinkState;
use crate::observation::{Dropped, PacketFilter, Subject, WatchId};
use crate::pipeline::{GatewayReason, PacketPath};

/// Two nodes, each with a program below it, of which the first is active.
fn start(options: Options) -> (Cluster, [Program; 2]) {
    let mut cluster = Cluster::start(options);
    let programs = [0, 1].map(|id| {
        let program = Program::default();
        set(&mut cluster, id, &program);
        program
    });
    beat(&mut cluster);
    (cluster, programs)
}

/// A node has this program below it from now on.
fn set(cluster: &mut Cluster, id: u8, program: &Program) {
    let now = cluster.now;
    cluster.node_mut(id).set_fast_path(now, Box::new(program.clone()));
}

/// As the loop does that drives the nodes.
fn beat(cluster: &mut Cluster) {
    let now = cluster.now;
    cluster.living().for_each(|node| node.beat_fast_path(now));
}

/// A connection of so many packets that it could be installed with the next one. Returns the port that the server sees.
fn connected(cluster: &mut Cluster, port: u16) -> u16 {
    let seen_port = cluster.connect(port);
    for exchanged in 0..3 {
        exchange(cluster, port, seen_port, 1001 - 8 * 3 + 8 * exchanged, 5001 - 6 * 3 + 6 * exchanged);
    }
    seen_port
}

/// A connection that is installed below node 0. Returns the port that the server sees.
fn installed(cluster: &mut Cluster, program: &Program) -> u16 {
    let seen_port = connected(cluster, 40_000);
    cluster.run(Duration::from_millis(5));
    exchange(cluster, 40_000, seen_port, 1001, 5001);
    assert_eq!(program.below().installed.len(), 1);
    seen_port
}

/// Where node 0 keeps its only connection.
fn only_slot(cluster: &Cluster) -> Slot {
    cluster.node(0).pipeline().table().next_occupied(Slot(0)).expect("there is one")
}

/// The path of the packets of a node's first connection.
fn path(cluster: &Cluster, id: u8) -> Option<PacketPath> {
    let pipeline = cluster.node(id).pipeline();
    let slot = pipeline.table().next_occupied(Slot(0))?;
    cluster.node(id).packet_path(cluster.now, &pipeline.connection(slot)?.original)
}

#[test]
fn an_established_connection_is_installed_as_its_packets_go_out() {
    let (mut cluster, [program, other]) = start(Options::default());
    let seen_port = installed(&mut cluster, &program);
    let mut below = program.below();
    let plan = below.only().0;
    let [out, back] = plan.directions;
    assert_eq!((out.ingress, back.ingress), (FIRST_INTERFACE, FIRST_INTERFACE + 1));
    assert_eq!((out.tuple.source_port, out.translated.source_port), (40_000, seen_port));
    assert_eq!(back.translated, out.tuple.inverse());
    let hop = |index: u32| below.hops[&index];
    let own = |port: PortId| port_mac(0, port).0;
    let link = |hop: NextHop| (hop.ifindex, hop.source, hop.destination, hop.mtu_bytes);
    assert_eq!(link(hop(out.next_hop)), (FIRST_INTERFACE + 1, own(OUTSIDE), SERVER_MAC.0, 1500));
    assert_eq!(link(hop(back.next_hop)), (FIRST_INTERFACE, own(INSIDE), CLIENT_MAC.0, 1500));
    assert_eq!((below.is_enabled, below.beaten_at.is_some()), (true, true));
    assert!(!other.below().is_enabled, "the standby's forwards nothing");
}

#[test]
fn a_short_connection_is_not_installed() {
    let (mut cluster, [program, _]) = start(Options::default());
    let seen_port = cluster.connect(40_000);
    cluster.run(Duration::from_millis(5));
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    cluster.client_sends(40_000, segment(FIN_ACK, 1009, 5007), b"");
    assert_eq!(program.below().installations, 0);
}

#[test]
fn a_connection_is_installed_once_its_backup_has_it() {
    let (mut cluster, [program, _]) = start(Options::default());
    cluster.is_replication_down = true;
    let seen_port = connected(&mut cluster, 40_000);
    assert_eq!(path(&cluster, 0), Some(PacketPath::Gateway(GatewayReason::FewPackets)));
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    assert!(program.below().installed.is_empty());
    assert_eq!(path(&cluster, 0), Some(PacketPath::Gateway(GatewayReason::NotAcknowledged)));
    cluster.is_replication_down = false;
    cluster.run_until("the backup to have it", |cluster| cluster.connections(1) == 1 && cluster.is_settled());
    assert_eq!(path(&cluster, 0), Some(PacketPath::Gateway(GatewayReason::NextPacket)));
    exchange(&mut cluster, 40_000, seen_port, 1009, 5007);
    assert_eq!(program.below().installed.len(), 1);
    assert_eq!(path(&cluster, 0), Some(PacketPath::Kernel));
    assert_eq!(path(&cluster, 1), Some(PacketPath::Gateway(GatewayReason::NotOwner)));
}

#[test]
fn a_connection_without_a_place_below_goes_through_the_node() {
    let (mut cluster, [program, _]) = start(Options::default());
    let ports = 40_000..=40_000 + PLACES as u16;
    let seen_ports: Vec<u16> = ports.clone().map(|port| connected(&mut cluster, port)).collect();
    cluster.run(Duration::from_millis(5));
    let mut paths = Vec::new();
    for (port, seen_port) in ports.zip(seen_ports) {
        exchange(&mut cluster, port, seen_port, 1001, 5001);
        let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80));
        paths.push(cluster.node(0).packet_path(cluster.now, &tuple));
    }
    assert_eq!(program.below().installed.len(), PLACES);
    assert_eq!(paths.pop(), Some(Some(PacketPath::Gateway(GatewayReason::Full))));
    assert!(paths.iter().all(|path| *path == Some(PacketPath::Kernel)), "{paths:?}");
}

#[test]
fn a_connection_whose_packets_a_function_needs_goes_through_the_node() {
    let (mut cluster, [program, _]) = start(Options::default());
    let control = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 21));
    let mut control = ftp::connect(&mut cluster, INSIDE, control).expect("the firewall lets it out");
    for _ in 0..3 {
        ftp::exchange(&mut cluster, &mut control);
        cluster.run(Duration::from_millis(5));
    }
    assert_eq!(path(&cluster, 0), Some(PacketPath::Gateway(GatewayReason::Function)));
    assert_eq!(program.below().installations, 0);
}

#[test]
fn a_node_without_a_fast_path_names_no_paths() {
    let mut cluster = Cluster::start(Options::default());
    let _ = cluster.connect(40_000);
    assert_eq!(path(&cluster, 0), None);
}

#[test]
fn packets_that_were_seen_below_count_and_move_the_windows() {
    let (mut cluster, [program, _]) = start(Options::default());
    let seen_port = installed(&mut cluster, &program);
    let slot = only_slot(&cluster);
    let before = *cluster.node(0).pipeline().connection(slot).expect("it is there");
    {
        let mut below = program.below();
        let activity = &mut below.only().1;
        (activity.packets, activity.bytes) = ([3, 2], [300, 200]);
        let windows = activity.windows.as_mut().expect("it is TCP");
        // The server has sent 600 bytes that the node has not seen.
        windows.sides[1].end += 600;
        windows.sides[0].acknowledged_max = windows.sides[1].end;
    }
    // It acknowledges what the node has not seen, out of order, so that it comes to the node.
    cluster.client_sends(40_000, segment(ACK, 1009, 5007 + 600), b"more");
    assert!(cluster.server_receives().is_some());
    assert_eq!(cluster.dropped(0, DropReason::OutOfWindow), 0);
    let after = *cluster.node(0).pipeline().connection(slot).expect("it is there");
    assert_eq!(after.packets[0], before.packets[0] + 4, "three below, and one through the node");
    assert_eq!(after.packets[1], before.packets[1] + 2);
    assert_eq!(after.bytes[1], before.bytes[1] + 200);
    assert_eq!(program.below().only().1.windows.expect("it is TCP").sides[0].end, 1009 + 4, "the node has raised it");
    let status = cluster.node(0).pipeline().fast_path_status().expect("there is one");
    assert_eq!((status.connections, status.packets, status.bytes), (1, 5, 500));
    let traffic = |port| cluster.node(0).pipeline().fast_path_traffic(port);
    let (original, reply) = ((3, 300 + 3 * 14), (2, 200 + 2 * 14));
    for (port, (received, sent)) in [(INSIDE, (original, reply)), (OUTSIDE, (reply, original))] {
        let counted = traffic(port);
        assert_eq!((counted.received_frames, counted.received_bytes), received);
        assert_eq!((counted.sent_frames, counted.sent_bytes), sent);
    }
    exchange(&mut cluster, 40_000, seen_port, 1013, 5607);
}

#[test]
fn a_connection_that_ends_is_removed() {
    let (mut cluster, [program, _]) = start(Options::default());
    let seen_port = installed(&mut cluster, &program);
    cluster.client_sends(40_000, segment(FIN_ACK, 1009, 5007), b"");
    assert!(cluster.server_receives().is_some());
    assert!(program.below().installed.is_empty(), "what follows a FIN is the tracker's");
    assert_eq!(path(&cluster, 0), Some(PacketPath::Gateway(GatewayReason::State)));
    cluster.server_sends(seen_port, segment(ACK, 5007, 1010), b"");
    assert!(cluster.client_receives().is_some());
    assert!(program.below().installed.is_empty());
}

#[test]
fn a_connection_with_packets_below_does_not_expire() {
    let (mut cluster, [program, _]) = start(Options::default());
    let _ = installed(&mut cluster, &program);
    let slot = only_slot(&cluster);
    let expires_at = |cluster: &Cluster| cluster.node(0).pipeline().connection(slot).expect("it is there").expires_at();
    let before = expires_at(&cluster);
    cluster.run(Duration::from_secs(2));
    assert_eq!(expires_at(&cluster), before, "nothing was seen");
    {
        let mut below = program.below();
        let activity = &mut below.only().1;
        activity.packets = [1, 0];
        activity.last_packet_ns = cluster.now.as_nanos();
    }
    cluster.run(Duration::from_millis(200));
    let gained = expires_at(&cluster).saturating_since(before);
    assert!(gained > Duration::from_millis(1500), "{gained:?}");
}

#[test]
fn after_a_reload_or_a_change_of_a_link_each_connection_goes_through_the_node_once_more() {
    let (mut cluster, [program, _]) = start(Options::default());
    let seen_port = installed(&mut cluster, &program);
    let before = program.below().generation();
    let now = cluster.now;
    let new = with_rules(&cluster, 0, rules(None));
    cluster.node_mut(0).reload(now, new).expect("it is sound");
    let reloaded = program.below().generation();
    assert_ne!(reloaded, before);
    exchange(&mut cluster, 40_000, seen_port, 1009, 5007);
    assert_eq!(program.below().counts(), (2, 1));

    cluster.node_mut(0).handle_link(now, OUTSIDE, LinkState { is_up: true, speed_mbps: None });
    assert_ne!(program.below().generation(), reloaded);
    // One that is idle leaves its place.
    cluster.run(Duration::from_millis(300));
    assert!(program.below().installed.is_empty());
}

#[test]
fn each_worker_installs_its_own_connections_and_follows_a_generation_that_another_begins() {
    let mut site = Site::started(2);
    let programs = Program::of_workers(2);
    let now = site.now;
    for (worker, program) in site.nodes[0].iter_mut().zip(&programs) {
        worker.set_fast_path(now, Box::new(program.clone()));
        worker.beat_fast_path(now);
    }
    let ports: Vec<(u16, u16)> = (40_000..40_008).map(|port| (port, site.connect(port))).collect();
    let exchange = |site: &mut Site| {
        for _ in 0..6 {
            ports.iter().for_each(|(port, seen_port)| site.exchange(*port, *seen_port));
            site.run(Duration::from_millis(5));
        }
    };
    let in_force =
        || -> Vec<u32> { programs.iter().map(|program| program.below().in_force().count() as u32).collect() };
    exchange(&mut site);
    let shares = site.connections(0);
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    assert_eq!(in_force(), shares);

    // Links are the lead's.
    let now = site.now;
    site.nodes[0][0].handle_link(now, OUTSIDE, LinkState { is_up: true, speed_mbps: None });
    assert_eq!(in_force(), [0, 0]);
    exchange(&mut site);
    assert_eq!(in_force(), shares);
}

/// Has node 0 look at packets as the loop does that drives it.
fn watch(cluster: &mut Cluster, id: WatchId, filter: PacketFilter) {
    let observation = cluster.node_mut(0).pipeline_mut().observation_mut();
    observation.begin(id, Subject::Packets(filter), 100).expect("there is room");
    beat(cluster);
}

#[test]
fn a_connection_whose_packets_are_watched_goes_through_the_node_and_others_do_not() {
    let (mut cluster, [program, _]) = start(Options::default());
    let seen_port = installed(&mut cluster, &program);
    let dropped = PacketFilter { dropped: Some(Dropped::Anyhow), ..PacketFilter::default() };
    watch(&mut cluster, WatchId(1), dropped);
    assert_eq!(path(&cluster, 0), Some(PacketPath::Kernel), "no packet is dropped below");

    let port = |port| TupleFilter { port: Some(port), ..TupleFilter::default() };
    watch(&mut cluster, WatchId(2), PacketFilter { tuple: port(40_001), ..PacketFilter::default() });
    assert_eq!(path(&cluster, 0), Some(PacketPath::Gateway(GatewayReason::NextPacket)));
    exchange(&mut cluster, 40_000, seen_port, 1009, 5007);
    assert_eq!(path(&cluster, 0), Some(PacketPath::Kernel), "it is another connection");

    watch(&mut cluster, WatchId(3), PacketFilter { tuple: port(seen_port), ..PacketFilter::default() });
    exchange(&mut cluster, 40_000, seen_port, 1017, 5013);
    assert_eq!(path(&cluster, 0), Some(PacketPath::Gateway(GatewayReason::Traced)), "replies come in with this port");
    cluster.node_mut(0).pipeline_mut().observation_mut().end(WatchId(3));
    exchange(&mut cluster, 40_000, seen_port, 1025, 5019);
    assert_eq!(path(&cluster, 0), Some(PacketPath::Kernel));
}

#[test]
fn nothing_is_forwarded_below_while_another_node_is_active() {
    let (mut cluster, [program, _]) = start(Options::default());
    let _ = installed(&mut cluster, &program);
    let now = cluster.now;
    cluster.node_mut(0).drain(now, false).expect("the other node is ready");
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    assert!(!program.below().is_enabled, "without waiting for the next turn");
    assert_eq!(path(&cluster, 0), Some(PacketPath::Gateway(GatewayReason::Inactive)));
}

#[test]
fn the_survivor_installs_connections_of_which_both_sides_were_seen() {
    let (mut cluster, [_, program]) = start(Options::default());
    let seen_port = cluster.connect(40_000);
    cluster.run_until("the backup to have it", |cluster| cluster.connections(1) == 1 && cluster.is_settled());
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    beat(&mut cluster);
    // The session with the dead node is still open, and the server sends nothing that could be acknowledged.
    for sequence in (1_000_000..1_000_020).step_by(4) {
        cluster.client_sends(40_000, segment(ACK, sequence, 2_000_000), b"data");
        assert!(cluster.server_receives().is_some());
        cluster.server_sends(seen_port, segment(ACK, 2_000_000, sequence + 4), b"");
        assert!(cluster.client_receives().is_some());
    }
    assert_eq!(program.below().installed.len(), 1);
    cluster.client_sends(40_000, segment(tcp_flags::RST | ACK, 1_000_020, 2_000_000), b"");
    assert!(program.below().installed.is_empty());
}

#[test]
fn next_hops_follow_their_neighbours() {
    let (mut cluster, [program, _]) = start(Options::default());
    let _ = installed(&mut cluster, &program);
    let hops = program.below().hops.len();
    assert_eq!(hops, 2);
    // Neither answers when it is asked to confirm its link address.
    cluster.isolated_ports = std::vec![(0, INSIDE), (0, OUTSIDE)];
    cluster.run(Duration::from_secs(30));
    program.below().only().1.packets = [1, 1];
    cluster.run(Duration::from_secs(5));
    assert!(program.below().hops.is_empty(), "their packets come to the node, which asks everybody");
    assert_eq!(path(&cluster, 0), Some(PacketPath::Gateway(GatewayReason::NextHop)));
}

/// A node whose peer is dead, with an installed connection of which records are kept. Returns the port that the server sees.
fn alone(cluster: &mut Cluster, program: &Program) -> u16 {
    program.below().keeps_records = true;
    cluster.kill(1);
    cluster.run_until("node 0 to find itself alone", |cluster| cluster.node(0).is_alone());
    beat(cluster);
    installed(cluster, program)
}

#[test]
fn a_node_that_was_alone_goes_on_after_a_restart_with_what_was_forwarded_below_meanwhile() {
    let (mut cluster, [program, _]) = start(Options::default());
    assert!(!program.below().is_lasting, "the peer would take over");
    let seen_port = alone(&mut cluster, &program);
    assert!(program.below().is_lasting);
    assert!(cluster.node(0).is_outlasted_by_fast_path());
    let generation = program.below().generation();
    cluster.restart(0);
    {
        // Packets that the node has not seen.
        let mut below = program.below();
        let activity = &mut below.only().1;
        let sides = &mut activity.windows.as_mut().expect("it is TCP").sides;
        (sides[0].end, sides[1].end) = (sides[0].end + 8_000_000, sides[1].end + 6_000_000);
        (activity.packets, activity.last_packet_ns) = ([9, 9], cluster.now.as_nanos());
    }
    set(&mut cluster, 0, &program);
    assert_eq!(cluster.connections(0), 1);
    let now = cluster.now;
    cluster.node_mut(0).handle_link(now, OUTSIDE, LinkState { is_up: true, speed_mbps: None });
    beat(&mut cluster);
    assert_eq!(program.below().forwards_in(), Some(generation), "its role is open");
    cluster.run_until("the node to be active again", |cluster| cluster.node(0).holds_addresses());
    beat(&mut cluster);
    assert_ne!(program.below().generation(), generation, "each connection is looked at once more");
    exchange(&mut cluster, 40_000, seen_port, 1009 + 8_000_000, 5007 + 6_000_000);
    exchange(&mut cluster, 40_000, seen_port, 1017 + 8_000_000, 5013 + 6_000_000);
    assert_eq!(program.below().counts(), (2, 1), "it is installed again");
}

#[test]
fn what_was_left_below_ends_where_a_peer_is_active() {
    let (mut cluster, [program, _]) = start(Options::default());
    let _ = alone(&mut cluster, &program);
    cluster.kill(0);
    cluster.restart(1);
    cluster.run_until("node 1 to be active", |cluster| cluster.node(1).holds_addresses());
    cluster.restart(0);
    set(&mut cluster, 0, &program);
    beat(&mut cluster);
    assert!(program.below().is_enabled, "no peer is known yet");
    cluster.run_until("the nodes to know each other", |cluster| !cluster.node(0).is_alone());
    beat(&mut cluster);
    assert_eq!(program.below().forwards_in(), None);
    assert!(!program.below().is_lasting);
}

#[test]
fn records_that_cannot_be_read_are_removed() {
    let (mut cluster, [program, _]) = start(Options::default());
    let _ = alone(&mut cluster, &program);
    program.below().records.values_mut().for_each(|record| record.truncate(7));
    cluster.restart(0);
    set(&mut cluster, 0, &program);
    assert_eq!((cluster.connections(0), program.below().installed.len()), (0, 0));
}

#[test]
fn what_the_rules_after_a_restart_deny_ends() {
    let (mut cluster, [program, _]) = start(Options::default());
    let _ = alone(&mut cluster, &program);
    cluster.restart(0);
    let (now, new) = (cluster.now, with_rules(&cluster, 0, rules(Some(40_000))));
    cluster.node_mut(0).reload(now, new).expect("it is sound");
    set(&mut cluster, 0, &program);
    assert_eq!(cluster.connections(0), 1, "its role is open");
    cluster.run_until("the node to be active again", |cluster| cluster.node(0).holds_addresses());
    beat(&mut cluster);
    cluster.client_sends(40_000, segment(ACK, 1009, 5007), b"denied");
    assert!(cluster.server_receives().is_none());
    assert_eq!((cluster.connections(0), program.below().installed.len()), (0, 0));
}
