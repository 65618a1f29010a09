//! `[replication.backups]`: each connection is replicated to some of the peers.

use serde::Deserialize;
use toml::Spanned;

use super::diagnostic::Text;
use super::value::PathText;
use crate::validated::Backups;

/// The section replicates each connection only to the nodes that [edges](../edge.md) would send its packets to after failures. Each node
/// then needs memory and messages for a share of the connections. Without it, every peer has every connection. It needs several peers, a
/// [group](#group) for each node, and edges. All nodes must have the same values. `count` and
/// `edge_nodes` can be changed by a reload, and by the settings of the [membership](../membership.md#records). Other changes need a restart.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawBackups {
    /// Number of replicas of a connection: so many nodes may fail at once without a loss. It is below the number of `edge_nodes`.
    pub count: Option<Spanned<u8>>,
    /// `node.id` of the nodes that the edges distribute packets to, as their `[[edge.node]]` name them, whether they are there
    /// or not. Default: this node and all peers; where `membership.source` is not the file, all below `node.nodes`.
    pub edge_nodes: Option<Vec<Spanned<u8>>>,
    /// File with the edges' `edge.hash_key`. Both edges need that key, also with `affinity = "learned"`. Its mode is 0600.
    pub edge_hash_key: PathText,
    /// Nodes advertise which connections they have, so that a node that receives a packet of another one's connection requests its state from one peer.
    /// Without that, it requests the state from all peers, and a flood of packets of no connection causes as many messages.
    pub broadcast: Option<bool>,
    /// Queries a second for connections that no advertisement has, each for up to 64 connections. This limits the messages of a flood.
    pub queries_per_s: Option<Spanned<u32>>,
    /// Requests a second for states of connections that peers have.
    pub pulls_per_s: Option<Spanned<u32>>,
    /// The edges' `edge.affinity`. If it differs between the edges, it is that of the edge on the side where connections begin.
    pub edge_affinity: Option<Text>,
}

/// The settings with their names, as a comparison lists them.
#[must_use]
pub fn entries(backups: Option<&Backups>) -> Vec<(&'static str, String)> {
    let written = |write: fn(&Backups) -> String| backups.map_or_else(|| "none".to_owned(), write);
    vec![
        ("count", written(|backups| backups.count.to_string())),
        ("edge_nodes", written(|backups| backups.edge_nodes.iter().map(|node| format!("{} ", node.0)).collect())),
        ("edge_hash_key", written(|backups| backups.edge_hash_key.display().to_string())),
        ("broadcast", written(|backups| backups.lookup.broadcast.to_string())),
        ("queries_per_s", written(|backups| backups.lookup.queries_per_s.to_string())),
        ("pulls_per_s", written(|backups| backups.lookup.pulls_per_s.to_string())),
        ("edge_affinity", written(|backups| format!("{:?}", backups.edge_affinity))),
    ]
}
