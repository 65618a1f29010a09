//! `[replication.backups]`.

use cluster::node::BACKUPS_MAX;
use cluster::pipeline::state_service_connections_max;
use flow::{NODES_MAX, NodeId, NodeSet};
use network_functions::load_balancer::Mode;
use toml::Spanned;

use super::super::backups::RawBackups;
use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawConfig, RawReplication};
use super::super::validated::{BackupLookup, Backups, Config, Function, Node, Replication, Representation, Service};
use super::common::{absolute_path, affinity, flag, within};

const SUBJECT: &str = "[replication.backups]";

/// The backups of each connection; `None`: every peer has every connection. `peers`: the nodes that are peers, or may become some.
pub(super) fn backups(
    raw: &RawReplication,
    node: &Node,
    peers: &[NodeId],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Backups> {
    let section = raw.backups.as_ref()?.get_ref();
    let count = within("replication.backups.count", section.count.as_ref(), 1, 1..=BACKUPS_MAX as u8, diagnostics);
    let edge_nodes = edge_nodes(section, node, peers, diagnostics);
    let path = absolute_path("replication.backups.edge_hash_key", &section.edge_hash_key, diagnostics);
    let edge_affinity = affinity("replication.backups.edge_affinity", section.edge_affinity.as_ref(), diagnostics);
    if let Some(written) = section.count.as_ref().filter(|_| u32::from(count) >= edge_nodes.len()) {
        let mistake = Mistake::new(
            format!("the edges distribute to {} nodes, the owner included", edge_nodes.len()),
            format!("choose a number below {}, or name all nodes in edge_nodes", edge_nodes.len()),
        );
        diagnostics.error(written.span(), "replication.backups.count", mistake);
    }
    let lookup = lookup(section, diagnostics);
    Some(Backups { count, edge_nodes, edge_hash_key: path.unwrap_or_default(), edge_affinity, lookup })
}

fn lookup(section: &RawBackups, diagnostics: &mut Diagnostics<'_>) -> BackupLookup {
    let mut rate = |key: &str, written: Option<&Spanned<u32>>, default: u32, most: u32| {
        within(&format!("replication.backups.{key}"), written, default, 1..=most, diagnostics)
    };
    let queries_per_s = rate("queries_per_s", section.queries_per_s.as_ref(), 200, 100_000);
    let pulls_per_s = rate("pulls_per_s", section.pulls_per_s.as_ref(), 100_000, 10_000_000);
    let broadcast = flag("replication.backups.broadcast", section.broadcast, true, diagnostics);
    BackupLookup { broadcast, queries_per_s, pulls_per_s }
}

/// The nodes of the edges: this one and peers, each once.
fn edge_nodes(section: &RawBackups, node: &Node, peers: &[NodeId], diagnostics: &mut Diagnostics<'_>) -> NodeSet {
    const KEY: &str = "replication.backups.edge_nodes";
    let known: Vec<NodeId> = [node.id].into_iter().chain(peers.iter().copied()).collect();
    // Edges keep the place of a node that is no peer at present.
    let may_be_named = |id: NodeId| known.contains(&id) || id.0 < node.nodes;
    diagnostics.describe(KEY, None, format!("ids from 0 to {}", NODES_MAX - 1));
    let Some(written) = &section.edge_nodes else { return known.into_iter().collect() };
    let mut nodes = NodeSet::EMPTY;
    for written in written {
        let id = NodeId(*written.get_ref());
        let mistake = if !may_be_named(id) {
            Mistake::new(
                format!("node {} is neither this node nor a peer, and node.nodes is {}", id.0, node.nodes),
                "name nodes of this cluster, add a [[replication.peer]], or raise node.nodes",
            )
        } else if usize::from(id.0) >= NODES_MAX {
            let remedy = format!("leave it out, or give the node an id below {NODES_MAX}");
            Mistake::new(format!("edges have no node {}", id.0), remedy)
        } else if !nodes.insert(id) {
            Mistake::new(format!("node {} is named twice", id.0), "name each node once")
        } else {
            continue;
        };
        diagnostics.error(written.span(), KEY, mistake);
    }
    nodes
}

/// `peers` and `edges_max`: how many of them there may be. Finds settings with which packets land elsewhere than the edges' hash predicts, or every peer needs every connection.
pub(super) fn check(
    raw: &RawConfig,
    section: &RawReplication,
    (replication, (peers, edges_max)): (&Replication, (usize, u8)),
    diagnostics: &mut Diagnostics<'_>,
) {
    let (Some(written), Some(backups)) = (&section.backups, &replication.backups) else { return };
    let contradictions = [
        (peers < 2, "the only peer has every connection anyway", "remove it"),
        (
            backups.edge_nodes.len() < 2,
            "the edges distribute to less than two nodes, so that there is no backup",
            "name all nodes of the edges in edge_nodes; their ids are below 64",
        ),
        (
            edges_max == 0,
            "there are no edges, and without them all connections of a failed node move together with its addresses",
            "remove it, or set failure_detection.edges_max and place edges in front of the nodes",
        ),
        (
            raw.group.len() <= 1,
            "with one group of addresses one node forwards, and the node that takes over needs all connections",
            "remove it, or add a [[group]] for each node",
        ),
        (
            replication.representation.is_compact(),
            "all peers receive one filter of all connections, so that none is a backup, and the state service pulls records, which no peer has",
            "remove it: every peer restores every connection, or choose a precise replication.representation",
        ),
        (
            replication.representation == Representation::None,
            "nothing is replicated that could have backups",
            "remove it, or choose another replication.representation",
        ),
    ];
    for (_, problem, remedy) in contradictions.iter().filter(|(is_so, ..)| *is_so) {
        diagnostics.error(written.span(), SUBJECT, Mistake::new(*problem, *remedy));
    }
}

/// Finds functions whose connections need each other on a node, and connections that peers could not find.
pub(super) fn check_functions(raw: &RawConfig, config: &Config, diagnostics: &mut Diagnostics<'_>) {
    let section = raw.replication.as_ref().and_then(|section| section.get_ref().backups.as_ref());
    let (workers, connections_max) = (u32::from(config.workers.count.max(1)), state_service_connections_max());
    if let Some(written) = section.filter(|_| u64::from(config.connections_max.div_ceil(workers)) > connections_max) {
        let mistake = Mistake::new(
            format!("a worker advertises at most {connections_max} connections"),
            format!("lower limits.connections_max to {}, or raise workers.count", connections_max * u64::from(workers)),
        );
        diagnostics.error(written.span(), SUBJECT, mistake);
    }
    let is_nat = |service: &Service| service.config.mode == Mode::Nat;
    let has_destinations = !config.destination_nat.is_empty() || config.services.iter().any(is_nat);
    if let Some(written) = section.filter(|_| workers > 1 && has_destinations) {
        let mistake = Mistake::new(
            "replies of a connection whose destination is translated come to another worker, which cannot find it at peers",
            "set workers.count to 1, or remove [[nat.destination]] and each [[service]] that translates",
        );
        diagnostics.error(written.span(), SUBJECT, mistake);
    }
    if let Some(written) = section.filter(|_| config.chain.contains(&Function::Ftp)) {
        let mistake = Mistake::new(
            "the FTP helper needs the announcement of a data connection on every node where that connection may begin",
            "remove it, or leave \"ftp\" out of the chain",
        );
        diagnostics.error(written.span(), SUBJECT, mistake);
    }
}
