//! Once the network is quiet, both nodes know the same connections in the same state.

use std::collections::BTreeMap;

use cluster::node::Node;
use flow::conntrack::TcpState;
use flow::wire::ip_protocol;
use flow::{Connection, NodeId};
use replication::representation::Selection;

/// The first difference between what two nodes know, in words. One that was `full` need not know everything.
pub(crate) fn difference(selection: Selection, one: &Node, other: &Node, full: [bool; 2]) -> Option<String> {
    let known = |node: &Node| -> BTreeMap<String, Connection> {
        let table = node.pipeline().table();
        // Of what is put off, others know nothing yet, and need not.
        let told = table.iter().filter(|(slot, _)| !node.is_deferred(*slot));
        told.map(|(_, connection)| (connection.original.to_string(), *connection)).collect()
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
            let copy = others.get(&connection.original.to_string())?;
            differs(selection, connection, copy).map(|what| format!("{}: {what}", connection.original))
        })
    })
}

/// A connection that should have left the table: its state's time is long over, and nothing was sent since.
pub(crate) fn leaked(node: &Node) -> Option<String> {
    let ended = |connection: &Connection| {
        let state = connection.protocol.state;
        match connection.original.protocol {
            ip_protocol::TCP => state == TcpState::TimeWait as u8 || state == TcpState::Close as u8,
            // A damaged header makes a packet of another protocol, which is remembered for longer.
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
        return Some(format!("answers come as {} to node 0 and as {} to node 1", one.reply, other.reply));
    }
    if one.owner != other.owner {
        return Some(format!("its master is node {} to node 0 and node {} to node 1", one.owner.0, other.owner.0));
    }
    let (master, copy) = if one.owner == NodeId(0) { (one, other) } else { (other, one) };
    let states = (master.protocol.state, copy.protocol.state);
    match selection {
        Selection::Eager if states.0 != states.1 || master.version != copy.version => Some(format!(
            "master has state {} version {:#x}, copy has state {} version {:#x}",
            states.0, master.version, states.1, copy.version
        )),
        Selection::Selective(told) if told.contains(states.0) && states.0 != states.1 => {
            Some(format!("master has state {}, copy has state {}", states.0, states.1))
        }
        _ if master.is_older_than(copy.version) => {
            Some(format!("copy has version {:#x}, newer than its master's {:#x}", copy.version, master.version))
        }
        _ => None,
    }
}
