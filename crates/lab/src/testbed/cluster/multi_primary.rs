//! All nodes at work: the groups in their configurations, and when each has its own.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::topology::{Both, CLIENT, INSIDE, NODES_MAX, OUTSIDE, PREFIX_BITS};
use super::super::ways::{SECOND_OUTSIDE, WAYS};
use api::{NodeRole, NodeStatus};

/// The groups, in the order of the nodes that are preferred for them.
const GROUPS: [&str; NODES_MAX] = ["left", "right", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];

/// The shared addresses of a group, counted from those of the first.
fn shared(first: Both<IpAddr>, group: usize) -> Both<IpAddr> {
    first.map(|address| match address {
        IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from(u32::from(address) + group as u32)),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) + group as u128)),
    })
}

/// The sections of the groups in a node's configuration, one for each node.
pub(super) fn groups(number: usize, nodes: usize) -> String {
    let mut text = String::new();
    for (preferred, name) in GROUPS.iter().take(nodes).enumerate() {
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
pub(super) fn port_addresses(nodes: usize) -> [String; 2] {
    [INSIDE, OUTSIDE].map(|first| {
        let sections = GROUPS.iter().take(nodes).enumerate().map(|(group, name)| {
            format!("[[port.group]]\nname = \"{name}\"\naddresses = {}\n", addresses(shared(first, group)))
        });
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

/// Since when each node has had its group and none of another of these nodes, in nanoseconds of the monotonic clock. Groups of nodes that
/// may join later are with any of them.
///
/// # Errors
/// One has not: who has what.
pub(super) fn since_when_each_has_its_group(nodes: &[NodeStatus]) -> Result<u64, String> {
    let held = |node: &NodeStatus| {
        let active = node.groups.iter().filter(|group| group.role == NodeRole::Active);
        active.map(|group| group.name.clone()).collect::<Vec<_>>()
    };
    let of_these = &GROUPS[..nodes.len().min(GROUPS.len())];
    let has_own =
        |(node, own): (&NodeStatus, &str)| held(node).iter().filter(|name| of_these.contains(&name.as_str())).eq([own]);
    let is_settled = nodes.len() > 1 && nodes.iter().zip(GROUPS).all(has_own);
    let since = nodes.iter().flat_map(|node| &node.groups).map(|group| group.role_since_ns).max();
    match since {
        Some(since) if is_settled => Ok(since),
        _ => {
            let words = nodes.iter().map(|node| format!("node {} holds {:?}", node.name, held(node)));
            Err(words.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::ways::{SECOND_INSIDE, WAYS};

    #[test]
    fn groups_have_addresses_of_their_own_and_the_second_has_that_of_the_ways() {
        assert_eq!((shared(INSIDE, 1), shared(OUTSIDE, 1)), (SECOND_INSIDE, SECOND_OUTSIDE));
        let last = shared(OUTSIDE, NODES_MAX - 1);
        assert!(WAYS.iter().all(|way| way.server.iter().all(|server| !last.contains(server))));
        assert_eq!(port_addresses(4)[0].matches("[[port.group]]").count(), 4);
    }
}
