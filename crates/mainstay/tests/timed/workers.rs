//! Gateways with several workers, as operators run them: real packets through real threads.

use std::net::TcpStream;

use crate::common::forwarded::{self, FORWARDED, connect, echo_inside, exchange};
use crate::common::program::{Folder, Program, mainstay, until, wait_until};
use api::{EventKind, FlowFilterText, NodeRole, PacketPath, Status};
use lab::testbed::topology::Topology;

/// Connections through the gateway: so many that no worker is left without.
const CONNECTIONS: usize = 40;

/// The network and its two gateways, node 0 active, and their files; nothing where the machine forbids namespaces, which is
/// printed.
fn start(workers: [u8; 2]) -> Option<(Topology, [Program; 2], Folder)> {
    packet_io::namespace::for_tests()?;
    let topology = Topology::build().expect("namespaces can be made");
    let folder = Folder::new("workers");
    let key = folder.make_key("cluster.key");
    let [active, standby] = [0, 1].map(|id| {
        let workers = format!("[workers]\ncount = {}\npin = true", workers[id]);
        let text = forwarded::configuration(id, &workers, "", "", &format!("pre_shared_keys = [{key:?}]"));
        let node = Program::start(&topology.nodes[id], &folder, &id.to_string(), "gateway", &text);
        // A node that starts more than the startup hold before its peer becomes active whatever its priority is. On a busy
        // machine that can be either of two that start together.
        if id == 0 {
            node.wait_for_role("active");
        }
        node
    });
    Some((topology, [active, standby], folder))
}

/// Waits until `gateway` has `role` and a take-over is ready; fails with its status and its log if it never is.
fn ready(gateway: &Program, role: &str) {
    wait_until(&format!("the node is {role} and ready"), || {
        let status = gateway.status();
        let is_ready = status.as_ref().is_some_and(|status| status.node.role.name() == role && status.takeover.ready);
        is_ready.then_some(()).ok_or_else(|| format!("{status:#?}\n{}", gateway.log()))
    });
}

#[test]
fn connections_whose_replies_come_to_another_worker_pass_and_outlive_their_node() {
    let _turn = crate::take_turn();
    let Some((topology, [active, standby], _folder)) = start([2, 2]) else { return };
    echo_inside(&topology);
    ready(&active, "active");
    ready(&standby, "standby");
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&topology)).collect();
    streams.iter_mut().for_each(|stream| exchange(stream, b"before"));

    let status = active.status().expect("it answers");
    let [first, second] = &status.workers[..] else { panic!("two workers: {status:?}") };
    assert!(first.connections > 5 && second.connections > 5, "{status:#?}");
    assert_eq!(status.connections.count, first.connections + second.connections);
    assert!(first.redirects > 0 && second.redirects > 0 && first.taken > 0 && second.taken > 0, "{status:#?}");
    let mut flows = 0;
    let mut client = active.client();
    client
        .flows(FlowFilterText { port: Some(FORWARDED.1), ..FlowFilterText::default() }, 1000, |_| flows += 1)
        .unwrap();
    assert_eq!(flows, CONNECTIONS, "the flows of all workers are listed");
    let samples = client.counters().unwrap();
    let connections = samples.iter().find(|sample| sample.name == "mainstay_connections").expect("it is counted");
    assert!(connections.value >= CONNECTIONS as f64);
    until("the standby has all copies, and knows where their replies come to", || {
        let copies = standby.status()?;
        let redirects = |status: &Status| status.workers.iter().map(|worker| worker.redirects).collect::<Vec<_>>();
        (copies.connections.count == status.connections.count && redirects(&copies) == redirects(&status)).then_some(())
    });

    active.kill();
    streams.iter_mut().for_each(|stream| exchange(stream, b"after"));
    let status = standby.status().expect("it answers");
    assert_eq!(status.node.role, NodeRole::Active);
    assert!(status.workers.iter().all(|worker| worker.forwarded > 0 && worker.taken > 0), "{status:#?}");
    let events = standby.client().events().unwrap();
    let first_packets = events.iter().filter(|event| event.kind == EventKind::FirstPacketForwarded).count();
    assert_eq!(first_packets, 1, "whichever worker it came to: {events:#?}");
}

/// Exchanges text on all connections until the gateway's kernel forwards each of them, and then once more.
fn exchange_in_kernel(gateway: &Program, streams: &mut [TcpStream], text: &[u8]) {
    wait_until("the kernel forwards all connections", || {
        streams.iter_mut().for_each(|stream| exchange(stream, text));
        let filter = FlowFilterText { port: Some(FORWARDED.1), ..FlowFilterText::default() };
        let (mut by_kernel, mut reasons) = (0, Vec::new());
        let listed = gateway.client().flows(filter, 1000, |flow| match flow.path {
            Some(PacketPath::Kernel) => by_kernel += 1,
            _ => reasons.push(flow.gateway_reason),
        });
        listed.map_err(|error| error.to_string())?;
        if by_kernel == streams.len() { Ok(()) } else { Err(format!("{reasons:?}\n{}", gateway.log())) }
    });
    let forwarded = || gateway.status().and_then(|status| status.fast_path).map_or(0, |path| path.packets);
    let before = forwarded();
    streams.iter_mut().for_each(|stream| exchange(stream, text));
    until("the kernel has counted them", || (forwarded() >= before + 2 * streams.len() as u64).then_some(()));
}

#[test]
fn the_kernel_forwards_the_connections_of_all_workers_through_a_reload_a_drain_and_a_kill() {
    let _turn = crate::take_turn();
    let Some((topology, [first, second], _folder)) = start([2, 2]) else { return };
    echo_inside(&topology);
    ready(&first, "active");
    ready(&second, "standby");
    if first.status().is_some_and(|status| status.fast_path.is_none()) {
        packet_io::namespace::skip("the kernel does not forward established connections here");
        return;
    }
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&topology)).collect();
    exchange_in_kernel(&first, &mut streams, b"at the first node");
    let status = first.status().expect("it answers");
    assert!(status.workers.iter().all(|worker| worker.connections > 5), "{status:#?}");
    assert_eq!(status.fast_path.expect("there is one").connections, CONNECTIONS as u64);

    first.order("reload");
    exchange_in_kernel(&first, &mut streams, b"after a reload");
    first.order("drain");
    second.wait_for_role("active");
    exchange_in_kernel(&second, &mut streams, b"at the second node");
    assert!(first.status().and_then(|status| status.fast_path).is_some_and(|path| !path.forwarding));

    first.order("undrain");
    ready(&first, "standby");
    second.kill();
    first.wait_for_role("active");
    exchange_in_kernel(&first, &mut streams, b"at the first node again");
    connect(&topology);
}

#[test]
fn nodes_with_different_numbers_of_workers_report_it_and_end_in_good_order() {
    let _turn = crate::take_turn();
    let Some((_topology, [active, standby], _folder)) = start([2, 1]) else { return };
    let reasons = until("the nodes refuse each other", || {
        let [first, second] = [active.status()?, standby.status()?];
        let is_reported = first.takeover.obstacles.iter().any(|reason| reason.contains("workers.count"));
        (first.node.role == NodeRole::Active && is_reported && !second.takeover.ready)
            .then_some(first.takeover.obstacles)
    });
    assert!(!reasons.is_empty());
    let events = active.client().events().unwrap();
    let is_reported = events.iter().any(|event| event.detail.contains("node 1 runs 1 workers, this node 2"));
    assert!(is_reported, "{events:#?}");
    assert!(active.log().contains("workers.count"), "{}", active.log());

    active.terminate();
    standby.wait_for_role("active");
}

#[test]
fn reloads_and_a_rolling_restart_reach_every_worker_and_lose_no_connection() {
    let _turn = crate::take_turn();
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let output = mainstay(&["demo", "--rolling-restart", "--workers", "2", "--seconds", "2", "--json"])
        .output()
        .expect("the program can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(result["connections"].as_u64() > Some(60), "{result:#}");
    assert_eq!(result["survived"], result["connections"], "{result:#}");
}
