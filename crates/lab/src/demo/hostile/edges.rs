//! Attacks on edges, and on the nodes behind them.

use std::net::SocketAddr;

use super::edge_site::EdgeSite;
use super::report::Observed;
use crate::demo::run::RunError;
use crate::testbed::many_nodes::StateService;
use crate::testbed::stranger::{Stranger, forged_control_frames};
use crate::testbed::syn_flood::{Flood, FloodPacket, FloodPlan};
use crate::testbed::topology::{BRIDGE, CLIENT, INTERFACES, SERVER, SERVER_PORTS, link_address};
use api::{EventKind, Flow, FlowFilterText, Status};
use flow::Tuple;
use flow::wire::build::Envelope;
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{MacAddress, ip_protocol};

/// Forged frames of each kind.
const FORGED: u64 = 500;
/// SYNs of a flood, and how many a second.
const FLOOD: u64 = 30_000;
const SYNS_PER_S: u32 = 5_000;

fn dropped(status: &Status, reason: &str) -> u64 {
    status.drops.iter().find(|drop| drop.reason == reason).map_or(0, |drop| drop.packets)
}

/// The link address of node a, which packets of clients are addressed to. The edge chooses the node that gets them.
fn router(site: &EdgeSite<'_>) -> Result<MacAddress, RunError> {
    Ok(link_address(&site.many.topology.nodes[0], INTERFACES[0])?)
}

/// The TCP connections of the client over IPv4, as it knows them.
fn connections(site: &EdgeSite<'_>) -> Result<Vec<Tuple>, RunError> {
    let mut tuples = Vec::new();
    for node in 0..site.many.topology.nodes.len() {
        let mut take = |flow: Flow| {
            let ends = [&flow.original.source, &flow.original.destination].map(|end| end.parse::<SocketAddr>());
            if let [Ok(source), Ok(destination)] = ends
                && flow.protocol == "tcp"
                && source.ip() == CLIENT[0]
                && usize::from(flow.owner) == node
            {
                tuples.push(Tuple::new(ip_protocol::TCP, source, destination));
            }
        };
        let listed = site.many.cluster.client(node)?.flows(FlowFilterText::default(), u64::MAX, &mut take);
        listed.map_err(|error| RunError::Attack(error.to_string()))?;
    }
    Ok(tuples)
}

/// Frames that the edges have received.
fn received(site: &EdgeSite<'_>) -> u64 {
    site.edges().iter().flat_map(|edge| &edge.ports).map(|port| port.received_packets).sum()
}

/// Peers, nodes and paths that were lost since the start, by all edges.
fn losses(site: &EdgeSite<'_>) -> usize {
    let is_loss = |kind| matches!(kind, EventKind::PeerDown | EventKind::PathDown);
    site.many.edges.events().iter().filter(|event| is_loss(event.kind)).count()
}

/// Heartbeats in the names of edges and nodes, from a host of the customers' network.
pub(super) fn control_frames(site: &mut EdgeSite<'_>) -> Result<Observed, RunError> {
    let mut stranger = Stranger::open(&site.many.topology.client, BRIDGE, MacAddress::BROADCAST)?;
    let (frames, before) = (forged_control_frames(), losses(site));
    for _ in 0..FORGED {
        frames.iter().for_each(|frame| stranger.send(frame));
    }
    let sent = FORGED * frames.len() as u64;
    let mut seen = 0;
    let all = site.until(|| {
        seen = site.edges().first().map_or(0, |edge| dropped(edge, "control_from_host"));
        seen >= sent
    })?;
    let nodes: u64 = site.many.cluster.statuses().iter().map(|node| dropped(node, "control_unauthenticated")).sum();
    let lost = losses(site) - before;
    Ok(Observed {
        held: all && nodes == 0 && lost == 0,
        observed: format!(
            "{seen} of {sent} frames dropped at the edge, {nodes} reached a node; {lost} losses of nodes"
        ),
        operator_sees: format!("drops at the inside edge: control_from_host {seen}"),
    })
}

/// SYNs with spoofed sources, more than the edge's index has places at first.
pub(super) fn syn_flood(site: &mut EdgeSite<'_>) -> Result<Observed, RunError> {
    let client = &site.many.topology.client;
    let entered = |site: &EdgeSite<'_>| {
        let inside = site.edges().into_iter().next().and_then(|edge| edge.edge);
        inside.map(|edge| (edge.entered, edge.evicted)).unwrap_or_default()
    };
    let (before, lost_before) = (entered(site), losses(site));
    let SocketAddr::V4(destination) = SocketAddr::new(SERVER[0], SERVER_PORTS[0]) else {
        return Ok(Observed::broken("the server has no IPv4 address".to_owned()));
    };
    let plan = FloodPlan {
        source: link_address(client, BRIDGE)?,
        next_hops: vec![router(site)?],
        destination,
        packet: FloodPacket::Syn,
        packets_per_s: SYNS_PER_S,
        seed: 4,
    };
    let flood = Flood::start(client, BRIDGE, plan)?;
    let mut now = before;
    let has_entered = site.until(|| {
        now = entered(site);
        now.0 - before.0 >= FLOOD
    })?;
    let sent = flood.sent();
    drop(flood);
    let lost = losses(site) - lost_before;
    let (more, evicted) = (now.0 - before.0, now.1 - before.1);
    Ok(Observed {
        held: has_entered && lost == 0,
        observed: format!(
            "{sent} SYNs sent, {more} packets entered at the edge; {lost} nodes were taken for dead meanwhile"
        ),
        operator_sees: format!("edge: entered {more}, evicted {evicted} held segments"),
    })
}

/// Fragments of connections that pass, from a stranger, which land at nodes that do not own them.
pub(super) fn forged_fragments(site: &mut EdgeSite<'_>) -> Result<Observed, RunError> {
    let mut stranger = Stranger::open(&site.many.topology.client, BRIDGE, router(site)?)?;
    let before = StateService::of(&site.many.cluster).pulls;
    let handed = |site: &EdgeSite<'_>| -> u64 {
        let statuses = site.many.cluster.statuses();
        statuses.iter().filter_map(|status| status.state_service.as_deref()).map(|service| service.handed_over).sum()
    };
    let handed_before = handed(site);
    let received_before = received(site);
    let connections = connections(site)?;
    let mut sent = 0;
    for identification in 0..FORGED as u32 {
        for flow in &connections {
            let fragment = FragmentHeader { offset_bytes: 0, more: true, identification };
            let frame = Envelope { fragment: Some(fragment), ..stranger.envelope() }.raw(flow, &[0; 64]);
            stranger.send(&frame);
            sent += 1;
        }
    }
    let has_arrived = site.until(|| received(site) - received_before >= sent)?;
    let pulled = StateService::of(&site.many.cluster).pulls - before;
    let handed_over = handed(site) - handed_before;
    Ok(Observed {
        held: sent > 0 && has_arrived && pulled == 0 && handed_over == 0,
        observed: format!(
            "{sent} fragments of connections sent; {pulled} states pulled, {handed_over} connections handed over"
        ),
        operator_sees: format!("state_service: pulled {pulled}, handed_over {handed_over}"),
    })
}
