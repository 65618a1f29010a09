//! In a quiet network, both nodes have the same connections in the same state.

use std::collections::BTreeMap;

use cluster::node::Node;
use flow::conntrack::TcpState;
use flow::wire::ip_protocol;
use flow::{Connection, NodeId};
use replication::representation::Selection;

/// The first difference between the tables of two nodes, as text. A node that was `full` may lack connections.
pub(crate) fn difference(selection: Selection, one: &Node, other: &Node, full: [bool; 2]) -> Option<String> {
    let known = |node: &Node| -> BTreeMap<String, Connection> {
        let table = node.pipeline().table();
        // Deferred connections are not replicated yet.
        let replicated = table.iter().filter(|(slot, _)| !node.is_deferred(*slot));
        replicated.map(|(_, connection)| (connection.original.to_string(), *connection)).collect()
    };
    let (ones, others) = (known(one), known(other));
    let missing = |from: &BTreeMap<String, Connection>, at: &BTreeMap<String, Connection>, node: u8| {
        let name = from.keys().find(|name| !at.contains_key(*name))?;
        let connection = &from[name];
        Some(format!(
            "node {node} does not know {name}, state {}, owner {}, version {:#x}",
            connection.protocol.state, connection.owner.0, connection.version
        ))
    };
    let missing_at = |node: usize, from, at| if full[node] { None } else { missing(from, at, node as u8) };
    missing_at(1, &ones, &others).or_else(|| missing_at(0, &others, &ones)).or_else(|| {
        ones.values().find_map(|connection| {
            let replica = others.get(&connection.original.to_string())?;
            differs(selection, connection, replica).map(|what| format!("{}: {what}", connection.original))
        })
    })
}

/// A connection that should have expired: its timeout is long past, and nothing was sent since.
pub(crate) fn leaked(node: &Node) -> Option<String> {
    let ended = |connection: &Connection| {
        let state = connection.protocol.state;
        match connection.original.protocol {
            ip_protocol::TCP => state == TcpState::TimeWait as u8 || state == TcpState::Close as u8,
            // A damaged header makes a packet of another protocol, whose connection has a longer timeout.
            protocol => matches!(protocol, ip_protocol::UDP | ip_protocol::ICMP | ip_protocol::ICMPV6),
        }
    };
    let table = node.pipeline().table();
    let (_, connection) = table.iter().find(|(_, connection)| ended(connection))?;
    Some(format!(
        "still there: {}, state {}, owner {}, version {:#x}, flags {:#x}",
        connection.original, connection.protocol.state, connection.owner.0, connection.version, connection.flags
    ))
}

fn differs(selection: Selection, one: &Connection, other: &Connection) -> Option<String> {
    if one.reply != other.reply {
        return Some(format!("the reply tuple is {} on node 0 and {} on node 1", one.reply, other.reply));
    }
    if one.owner != other.owner {
        return Some(format!("its owner is node {} on node 0 and node {} on node 1", one.owner.0, other.owner.0));
    }
    let (owner, replica) = if one.owner == NodeId(0) { (one, other) } else { (other, one) };
    let states = (owner.protocol.state, replica.protocol.state);
    match selection {
        Selection::Eager if states.0 != states.1 || owner.version != replica.version => Some(format!(
            "owner has state {} version {:#x}, replica has state {} version {:#x}",
            states.0, owner.version, states.1, replica.version
        )),
        Selection::Selective(replicated) if replicated.contains(states.0) && states.0 != states.1 => {
            Some(format!("owner has state {}, replica has state {}", states.0, states.1))
        }
        _ if owner.is_older_than(replica.version) => {
            Some(format!("replica has version {:#x}, newer than its owner's {:#x}", replica.version, owner.version))
        }
        _ => None,
    }
}
