//! An edge in `mainstay status`.

use std::time::Duration;

use api::{DetectorState, EdgeStatus, Status};
use console::{Table, count};

/// Its connections and held packets.
pub(super) fn describe(status: &Status, edge: &EdgeStatus) -> String {
    let connections = &status.connections;
    let resent = format!(
        "{} segments · {} SYNs · {} acknowledgements",
        count(edge.resent_segments),
        count(edge.resent_syns),
        count(edge.resent_acknowledgements)
    );
    format!(
        "Connections  {} of {}, {} moved\nPackets      {} entered · {} left\nHeld         {} of {} segments, {} bytes · {} \
         evicted\nResent       {resent}\n",
        count(connections.count),
        count(connections.max),
        count(edge.moved),
        count(edge.entered),
        count(edge.left),
        count(edge.held_segments),
        count(edge.held_segments_max),
        count(edge.held_bytes),
        count(edge.evicted),
    )
}

/// Its nodes.
pub(super) fn node_table(status: &Status, edge: &EdgeStatus) -> Table {
    let mut table = Table::of("NODE|DETECTOR|>FOR|FLOWS|SERVES|ADDRESS");
    for node in &edge.nodes {
        let since = node.since_ns.map(|since| Duration::from_nanos(status.monotonic_now_ns.saturating_sub(since)));
        let since = since.map_or_else(|| "-".to_owned(), console::duration);
        let serves: Vec<String> = node.serves.iter().map(u8::to_string).collect();
        let detector = if node.detector == DetectorState::Down { "DOWN" } else { node.detector.name() };
        table.row([
            node.id.to_string(),
            detector.to_owned(),
            since,
            if node.drained && node.forwards { "no new" } else { console::yes_no(node.forwards) }.to_owned(),
            if serves.is_empty() { "-".to_owned() } else { serves.join(" ") },
            node.link_address.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}
