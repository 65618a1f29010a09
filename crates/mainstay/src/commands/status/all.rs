//! `mainstay status --all`: the members of a cluster, a line each.
//!
//! A gateway at a socket is asked for what it knows of the others. One that is asked from afar names the others' addresses, and each is asked
//! itself, at the same port and with the same credentials.

use std::net::SocketAddr;

use serde::Serialize;

use super::text::COLUMNS_MAX;
use api::{DetectorState, NodeRole, PathState, PeerStatus, Status};
use console::{Table, count, yes_no};
use control::client::Client;
use control::target::{RemoteTarget, Target};

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Members {
    members: Vec<Member>,
}

/// A member.
#[derive(Debug, Serialize)]
struct Member {
    id: u8,
    /// Its name, where it is known.
    name: Option<String>,
    role: NodeRole,
    /// Whether the node is received by the one that was asked; always, of that one.
    up: bool,
    /// Whether a take-over now would keep all connections. Absent of a node that was not asked itself.
    ready: Option<bool>,
    /// Its connections. Absent of a node that was not asked itself.
    connections: Option<u64>,
    /// Fingerprint of its configuration, where it is known.
    configuration: Option<String>,
    /// Number of the node that reports this.
    reported_by: u8,
}

impl Member {
    fn itself(status: &Status) -> Self {
        Self {
            id: status.node.id,
            name: Some(status.node.name.clone()),
            role: status.node.role,
            up: true,
            ready: Some(status.takeover.ready),
            connections: Some(status.connections.count),
            configuration: Some(status.configuration.clone()).filter(|text| !text.is_empty()),
            reported_by: status.node.id,
        }
    }

    fn as_peer(status: &Status, peer: &PeerStatus) -> Self {
        let members = status.membership.iter().flat_map(|membership| &membership.members);
        let name = members.into_iter().find(|member| member.id == peer.id).map(|member| member.name.clone());
        Self {
            id: peer.id,
            name,
            role: peer.role,
            up: is_up(peer),
            ready: None,
            connections: None,
            configuration: peer.configuration.clone(),
            reported_by: status.node.id,
        }
    }
}

fn is_up(peer: &PeerStatus) -> bool {
    peer.detector == DetectorState::Up || peer.paths.iter().any(|path| path.state == PathState::Up)
}

/// The node that was asked, and its peers, in the order of their numbers.
pub(super) fn members(status: &Status, asked: &Target) -> Members {
    let mut members = vec![Member::itself(status)];
    for peer in &status.peers {
        let itself = target_of(peer, asked).and_then(|target| Client::open(target).ok()?.status().ok());
        let itself = itself.filter(|answer| answer.node.id == peer.id);
        members.push(itself.map_or_else(|| Member::as_peer(status, peer), |answer| Member::itself(&answer)));
    }
    members.sort_by_key(|member| member.id);
    Members { members }
}

/// Where a peer that is up is asked, if the first one was asked from afar: at the host of its replication address.
fn target_of(peer: &PeerStatus, asked: &Target) -> Option<Target> {
    let Target::Remote(remote) = asked else { return None };
    let host = peer.address.parse::<SocketAddr>().ok().filter(|_| is_up(peer))?.ip();
    let port = remote.address.rsplit_once(':')?.1.parse().ok()?;
    let address = SocketAddr::new(host, port).to_string();
    Some(Target::Remote(Box::new(RemoteTarget { address, ..(**remote).clone() })))
}

/// The members as people read them.
pub(super) fn describe(Members { members }: &Members) -> String {
    let mut table = Table::of("NODE|NAME|ROLE|UP|READY|>CONNECTIONS|CONFIGURATION|FROM");
    let unknown = || "-".to_owned();
    for member in members {
        table.row([
            member.id.to_string(),
            member.name.clone().unwrap_or_else(unknown),
            member.role.to_string(),
            yes_no(member.up).to_owned(),
            member.ready.map_or_else(unknown, |ready| yes_no(ready).to_owned()),
            member.connections.map_or_else(unknown, count),
            member.configuration.clone().unwrap_or_else(unknown),
            if member.reported_by == member.id { "itself".to_owned() } else { format!("node {}", member.reported_by) },
        ]);
    }
    table.render_within(COLUMNS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_dead_peer_has_a_line_that_the_asked_node_reports() {
        let mut status = crate::commands::tests::node_status();
        let dead = PeerStatus { id: 2, detector: DetectorState::Down, role: NodeRole::Active, ..PeerStatus::default() };
        status.peers.push(dead);
        let text = describe(&members(&status, &Target::Socket(PathBuf::from("/run/none"))));
        let expected = "\
NODE  NAME  ROLE     UP   READY  CONNECTIONS  CONFIGURATION     FROM
0     left  active   yes  yes         12 345  0123456789abcdef  itself
1     -     standby  yes  -                -  -                 node 0
2     -     active   no   -                -  -                 node 0
";
        assert_eq!(text, expected);
    }
}
