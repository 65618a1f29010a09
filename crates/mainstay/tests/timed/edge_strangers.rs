//! A host in a customer's network that floods frames in the name of edges and nodes, at nodes and edges that run.

use std::thread;
use std::time::Duration;

use api::EventKind;
use cluster::forwarding::is_path_frame;
use flow::PacketBatch;
use flow::wire::MacAddress;
use lab::testbed::stranger::{Stranger, forged_control_frames};
use lab::testbed::topology::Topology;
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::namespace::Namespace;

use super::edges::{edge_configuration, wait_for_flows};
use crate::common::forwarded::{self, connect, echo_inside, exchange};
use crate::common::program::{Folder, Program, wait_for, wait_until};

/// Forged frames, of each of the kinds; a thousand a second.
const FORGED: u64 = 1000;
/// The number of the first edge.
const EDGE: u8 = 200;

/// Floods the frames from a host by its interface.
fn flood(host: &Namespace, interface: &str) {
    let frames = forged_control_frames();
    let mut stranger = Stranger::open(host, interface, MacAddress::BROADCAST).expect("the interface is there");
    for _ in 0..FORGED {
        frames.iter().for_each(|frame| stranger.send(frame));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Frames between nodes and edges that a host receives, while its edge sends a hundred to a node.
fn control_frames_seen(host: &Namespace, edge: &Program) -> usize {
    let sent = || {
        let ports = edge.status().map(|status| status.ports).unwrap_or_default();
        ports.iter().find(|port| port.name == "node-0").map_or(0, |port| port.sent_packets)
    };
    let mut io = host
        .run(|| AfPacketIo::open(&[PortConfig::new("bridge")]).expect("the interface is there"))
        .expect("it is there");
    let (mut seen, before) = (0, sent());
    wait_for("the edge sends heartbeats", || {
        let count = &mut |batch: &mut PacketBatch<'_>| {
            seen += batch.iter().filter(|frame| is_path_frame(frame.bytes())).count();
        };
        io.poll(count).expect("it receives");
        sent() >= before + 100
    });
    seen
}

/// Changes of roles, peers and edges that a program has reported.
fn changes(program: &Program) -> usize {
    let events = program.client().events().expect("it answers");
    let is_change = |kind| {
        [
            EventKind::BecameActive,
            EventKind::BecameStandby,
            EventKind::PeerDown,
            EventKind::PeerUp,
            EventKind::PathDown,
            EventKind::PathUp,
        ]
        .contains(&kind)
    };
    events.iter().filter(|event| is_change(event.kind)).count()
}

fn dropped(program: &Program, reason: &str) -> u64 {
    let drops = program.status().map(|status| status.drops).unwrap_or_default();
    drops.iter().find(|drop| drop.reason == reason).map_or(0, |drop| drop.packets)
}

fn start_nodes(topology: &Topology, folder: &Folder, security: &str) -> [Program; 2] {
    let nodes = [0, 1].map(|id| {
        let sections = format!("{security}\n[failure_detection]\nedges_max = 4\n");
        let text = forwarded::configuration(id, "", "", "", &sections);
        let node = Program::start(&topology.nodes[id], folder, &id.to_string(), "gateway", &text);
        if id == 0 {
            node.wait_for_role("active");
        }
        node
    });
    nodes[1].wait_for_role("standby");
    wait_until("a take-over is ready", || {
        let takeover = nodes[0].status().ok_or("it does not answer")?.takeover;
        if takeover.ready { Ok(()) } else { Err(takeover.obstacles.join("; ")) }
    });
    nodes
}

#[test]
fn a_host_before_an_edge_cannot_move_flows_or_roles_by_forged_frames() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let topology = Topology::build_with_edges().expect("namespaces can be made");
    let folder = Folder::new("strangers");
    let key = folder.make_key("cluster.key");
    let nodes = start_nodes(&topology, &folder, &format!("pre_shared_keys = [{key:?}]"));
    let edges = [0, 1].map(|side: usize| {
        let name = format!("edge-{side}");
        let text = edge_configuration(EDGE + side as u8, &key);
        Program::start(&topology.edges[side], &folder, &name, "edge", &text)
    });
    wait_for_flows(&edges, [true, false]);
    echo_inside(&topology);
    let mut stream = connect(&topology);
    exchange(&mut stream, b"before");
    assert_eq!(control_frames_seen(&topology.client, &edges[0]), 0, "heartbeats stay between edge and nodes");
    let programs = || nodes.iter().chain(&edges);
    let before: Vec<usize> = programs().map(changes).collect();

    flood(&topology.client, "bridge");
    let sent = FORGED * forged_control_frames().len() as u64;
    wait_for("the edge has counted them", || dropped(&edges[0], "control_from_host") >= sent);
    exchange(&mut stream, b"afterwards");
    assert_eq!(programs().map(changes).collect::<Vec<_>>(), before, "{}{}", edges[0].log(), nodes[0].log());
    assert_eq!([nodes[0].role(), nodes[1].role()], ["active", "standby"]);
    wait_for_flows(&edges, [true, false]);
    // None went further, and the operator sees where they came from.
    for node in &nodes {
        assert_eq!(dropped(node, "control_unauthenticated") + dropped(node, "control_from_host"), 0);
    }
    let events = edges[0].client().events().expect("it answers");
    let is_named = |event: &&api::Event| event.detail.contains("port network") && event.detail.contains("host");
    assert!(events.iter().find(is_named).is_some(), "{events:#?}");
}

#[test]
fn a_host_on_the_link_of_nodes_cannot_move_roles_by_forged_frames_with_a_key_and_without() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    for is_plain in [false, true] {
        let topology = Topology::build().expect("namespaces can be made");
        let folder = Folder::new("strangers");
        let key = folder.make_key("cluster.key");
        let security = if is_plain { "mode = \"plain\"".to_owned() } else { format!("pre_shared_keys = [{key:?}]") };
        let nodes = start_nodes(&topology, &folder, &security);
        let before = nodes.each_ref().map(changes);
        flood(&topology.client, "bridge");
        for node in &nodes {
            let reason = "control_unauthenticated";
            wait_for("the node has counted them", || dropped(node, reason) >= FORGED);
        }
        assert_eq!(nodes.each_ref().map(changes), before, "plain: {is_plain}\n{}{}", nodes[0].log(), nodes[1].log());
        assert_eq!([nodes[0].role(), nodes[1].role()], ["active", "standby"]);
    }
}
