//! Edges whose kernels forward the packets of settled flows: through the failure of a node, and until the edge itself fails.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use api::FastPathStatus;

use super::edges::wait_for_flows;
use crate::common::forwarded::{self, connect, echo_inside, exchange};
use crate::common::program::{Folder, PATIENCE, Program, wait_until};
use lab::testbed::topology::Topology;

/// Connections through the edges.
const CONNECTIONS: usize = 20;
/// Exchanges on each of them.
const EXCHANGES: u64 = 50;
/// What comes back while all edges forward.
const QUESTION: &[u8] = b"is an edge there?";
/// An answer that takes longer does not come: a round trip takes a millisecond.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

fn edge_configuration(id: u8, key: &Path) -> String {
    super::edges::edge_configuration(id, key) + "[recovery]\npolicy = \"syn-only\"\n[fast_path]\nenabled = true\n"
}

/// Two nodes, of which the first is active, between two edges.
fn start(topology: &Topology, folder: &Folder) -> ([Program; 2], [Program; 2]) {
    let key = folder.make_key("cluster.key");
    let nodes = [0, 1].map(|id| {
        // The kernel of a killed node would forward for a moment longer.
        let sections =
            format!("pre_shared_keys = [{key:?}]\n[failure_detection]\nedges_max = 4\n[fast_path]\nenabled = false\n");
        let text = forwarded::configuration(id, "", "", "", &sections);
        let node = Program::start(&topology.nodes[id], folder, &id.to_string(), "gateway", &text);
        if id == 0 {
            node.wait_for_role("active");
        }
        node
    });
    let edges = [0, 1].map(|side: usize| {
        let text = edge_configuration(200 + side as u8, &key);
        Program::start(&topology.edges[side], folder, &format!("edge-{side}"), "edge", &text)
    });
    wait_for_flows(&edges, [true, false]);
    nodes[1].wait_for_role("standby");
    (nodes, edges)
}

fn status(edge: &Program) -> Option<FastPathStatus> {
    edge.status()?.fast_path.map(|path| *path)
}

/// Exchanges on all connections until both kernels forward them.
fn settle(edges: &[Program; 2], streams: &mut [TcpStream]) {
    wait_until("the kernels forward all connections", || {
        streams.iter_mut().for_each(|stream| exchange(stream, b"until it is settled"));
        let settled = edges.each_ref().map(|edge| status(edge).map_or(0, |path| path.connections));
        if settled.iter().all(|settled| *settled >= CONNECTIONS as u64) { Ok(()) } else { Err(format!("{settled:?}")) }
    });
}

/// Packets that an edge's kernel has forwarded, and those that it left to the edge. Frames to groups and between the nodes, which look for each
/// other on these ports a hundred times a second, are no packets of flows (`host`).
fn forwarded_by(edge: &Program) -> [u64; 2] {
    let path = status(edge).expect("it answers");
    let is_left = |name: &str| !["forwarded", "host"].contains(&name);
    [path.packets, path.outcomes.iter().filter(|count| is_left(&count.outcome)).map(|count| count.packets).sum()]
}

/// Whether a text comes back soon.
fn is_answered(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
    stream.write_all(QUESTION).unwrap();
    let is_answered = stream.read_exact(&mut [0; QUESTION.len()]).is_ok();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    is_answered
}

fn send_signal(program: &Program, signal: &str) {
    let sent = Command::new("kill").args([signal, &program.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "a signal can be sent");
}

#[test]
fn connections_forwarded_by_the_kernel_outlive_a_node_and_end_with_their_edge() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let topology = Topology::build_with_edges().expect("namespaces can be made");
    let folder = Folder::new("edge-fast-path");
    let ([active, standby], edges) = start(&topology, &folder);
    if edges[0].status().is_some_and(|status| status.fast_path.is_none()) {
        packet_io::namespace::skip(edges[0].log());
        return;
    }
    echo_inside(&topology);
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&topology)).collect();
    settle(&edges, &mut streams);

    // Text and answer of each exchange are forwarded by the kernels alone, but for an ARP request.
    let before = edges.each_ref().map(forwarded_by);
    for _ in 0..EXCHANGES {
        streams.iter_mut().for_each(|stream| exchange(stream, b"text"));
    }
    let least = 2 * EXCHANGES * CONNECTIONS as u64;
    for (edge, before) in edges.iter().zip(before) {
        wait_until("what the kernel forwarded is counted", || {
            let by_kernel = forwarded_by(edge)[0] - before[0];
            if by_kernel >= least { Ok(()) } else { Err(format!("{by_kernel} of {least}")) }
        });
        let by_edge = forwarded_by(edge)[1] - before[1];
        assert!(by_edge <= least / 20, "{by_edge} packets passed the edge itself: {:#?}", status(edge));
    }

    wait_until("a take-over is ready", || {
        let takeover = active.status().ok_or("it does not answer")?.takeover;
        if takeover.ready { Ok(()) } else { Err(takeover.obstacles.join("; ")) }
    });
    active.kill();
    wait_for_flows(&edges, [false, true]);
    streams.iter_mut().for_each(|stream| exchange(stream, b"after the failure"));
    standby.wait_for_role("active");
    settle(&edges, &mut streams);

    // A stalled edge, whose heartbeat stops, forwards nothing; then it goes on.
    send_signal(&edges[0], "-STOP");
    let stalled = wait_until("the kernel forwards nothing beside a stalled edge", || {
        streams.iter_mut().position(|stream| !is_answered(stream)).ok_or_else(|| "all are answered".to_owned())
    });
    send_signal(&edges[0], "-CONT");
    streams[stalled].read_exact(&mut [0; QUESTION.len()]).expect("the answer comes late");
    wait_for_flows(&edges, [false, true]);
    settle(&edges, &mut streams);

    let [inside, _outside] = edges;
    inside.kill();
    wait_until("the kernel forwards nothing without the edge", || {
        if streams.iter_mut().any(is_answered) { Err("one is answered".to_owned()) } else { Ok(()) }
    });
}
