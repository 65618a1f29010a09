//! No update of a connection is applied after a newer one of the same owner.

use std::collections::{BTreeMap, BTreeSet};

use cluster::node::Node;
use flow::connection::flags;
use flow::wire::ip_protocol;
use flow::{Connection, Instant, NodeId};

use crate::report::{Outcome, Problem};
use crate::topology::NODES;

/// A connection's tuple as a key: addresses, ports, protocol.
type Name = ([u8; 16], [u8; 16], u16, u16, u8);

fn name(connection: &Connection) -> Name {
    let tuple = &connection.original;
    (tuple.source, tuple.destination, tuple.source_port, tuple.destination_port, tuple.protocol)
}

/// The newest and the oldest version of each connection seen on each node.
#[derive(Default)]
pub(crate) struct Order {
    newest: [BTreeMap<Name, (NodeId, u32)>; NODES],
    first: [BTreeMap<Name, Connection>; NODES],
}

impl Order {
    /// The node has restarted empty.
    pub(crate) fn forget(&mut self, node: usize) {
        self.newest[node].clear();
        self.first[node].clear();
    }

    /// A connection that the node itself removed may be replicated to it again.
    pub(super) fn before_datagram(&mut self, node: usize, value: &Node) {
        let table = value.pipeline().table();
        let present: BTreeSet<Name> = table.iter().map(|(_, connection)| name(connection)).collect();
        self.newest[node].retain(|name, _| present.contains(name));
        self.first[node].retain(|name, _| present.contains(name));
    }

    /// Only TCP is checked: its tuples are unique in a run, so a version never legitimately restarts.
    pub(super) fn after_datagram(&mut self, now: Instant, node: usize, value: &Node, outcome: &mut Outcome) {
        for (_, connection) in value.pipeline().table().iter() {
            if connection.original.protocol != ip_protocol::TCP {
                continue;
            }
            let name = name(connection);
            if let Some((owner, version)) = self.newest[node].get(&name) {
                let is_backward = connection.is_older_than(*version);
                if is_backward {
                    let text = format!(
                        "node {node} knew version {version:#x} of node {} and now has {:#x} of node {}: {}",
                        owner.0, connection.version, connection.owner.0, connection.original
                    );
                    outcome.problem(now, Problem::StaleUpdate, text);
                }
            }
            self.newest[node].insert(name, (connection.owner, connection.version));
            self.first[node].entry(name).or_insert(*connection);
        }
    }

    /// A replica on the node that is newer than the first version it received. A node that applies late messages would
    /// return to that version.
    pub(crate) fn stale_replica(&self, node: usize, value: &Node) -> Option<(NodeId, Connection)> {
        let replicas = value.pipeline().table().iter().filter(|(_, replica)| replica.flags & flags::REPLICA != 0);
        let mut stale = replicas.filter_map(|(_, replica)| {
            let first = self.first[node].get(&name(replica))?;
            (first.is_older_than(replica.version) && first.owner == replica.owner).then_some((replica.owner, *first))
        });
        stale.next()
    }
}
