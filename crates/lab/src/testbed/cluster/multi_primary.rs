//! Both nodes at work: the groups in their configurations, and when each has its own.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::super::topology::{CLIENT, INSIDE, OUTSIDE, PREFIX_BITS};
use super::super::ways::{SECOND_INSIDE, SECOND_OUTSIDE, WAYS};
use api::NodeStatus;

/// The groups, in the order of the nodes that are preferred for them.
const GROUPS: [&str; 2] = ["left", "right"];

/// The sections of the groups in a node's configuration.
pub(super) fn groups(number: usize) -> String {
    let mut text = String::new();
    for (preferred, name) in GROUPS.iter().enumerate() {
        let priority = if preferred == number { 200 } else { 100 };
        // Writing to a string cannot fail.
        let _ = write!(text, "[[group]]\nname = \"{name}\"\npriority = {priority}\n\n");
    }
    text
}

/// Addresses of both families with the lengths of their networks, as a list.
pub(super) fn addresses(both: [IpAddr; 2]) -> String {
    format!("[\"{}/{}\", \"{}/{}\"]", both[0], PREFIX_BITS[0], both[1], PREFIX_BITS[1])
}

/// The groups' addresses on the inside and on the outside.
pub(super) fn port_addresses() -> [String; 2] {
    [[INSIDE, SECOND_INSIDE], [OUTSIDE, SECOND_OUTSIDE]].map(|shared| {
        let of_groups = GROUPS.iter().zip(shared);
        let sections = of_groups
            .map(|(group, shared)| format!("[[port.group]]\nname = \"{group}\"\naddresses = {}\n", addresses(shared)));
        sections.collect()
    })
}

/// Which of the outside addresses the client has, by its server: so the server's way back is chosen.
pub(super) fn translations() -> String {
    let mut text = String::new();
    for way in WAYS {
        for (family, client) in CLIENT.into_iter().enumerate() {
            let (server, outside) = (way.server[family], [OUTSIDE, SECOND_OUTSIDE][way.back][family]);
            let _ = write!(
                text,
                "[[nat.source]]\nsource = [\"{client}\"]\ndestination = [\"{server}\"]\nto = [\"{outside}\"]\n\n"
            );
        }
    }
    text
}

/// Since when each node has had its group and no other, in nanoseconds of the monotonic clock.
///
/// # Errors
/// One has not: who has what.
pub(super) fn since_when_each_has_its_group(nodes: &[NodeStatus]) -> Result<u64, String> {
    let held = |node: &NodeStatus| {
        let active = node.groups.iter().filter(|group| group.role == "active");
        active.map(|group| group.name.clone()).collect::<Vec<_>>()
    };
    let is_settled = nodes.len() == GROUPS.len() && nodes.iter().zip(GROUPS).all(|(node, own)| held(node) == [own]);
    let since = nodes.iter().flat_map(|node| &node.groups).map(|group| group.role_since_ns).max();
    match since {
        Some(since) if is_settled => Ok(since),
        _ => {
            let words = nodes.iter().map(|node| format!("node {} holds {:?}", node.name, held(node)));
            Err(words.collect::<Vec<_>>().join(", "))
        }
    }
}
