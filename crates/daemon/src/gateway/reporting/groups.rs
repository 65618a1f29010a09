//! Groups of shared addresses, as they are reported to operators. A single group is not: its role is the node's.

use cluster::GroupId;
use cluster::node::{NodeStatus, PeerStatus};
use flow::Instant;

use crate::describe;
use api::{GroupStatus, NodeRole};
use config::validated::Config;

/// The groups' names, and since when this node has its roles in them; empty where there is one.
pub(super) struct GroupRoles(Vec<(String, Instant)>);

impl GroupRoles {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        let groups = if config.groups.len() > 1 { &config.groups[..] } else { &[] };
        Self(groups.iter().map(|group| (group.name.clone(), now)).collect())
    }

    /// The group's name in words.
    pub(super) fn name(&self, group: GroupId) -> Option<String> {
        self.0.get(group.index()).map(|(name, _)| format!("group {name}"))
    }

    /// A take-over in words.
    pub(super) fn take_over(&self, group: GroupId, term: u64) -> String {
        let of = self.name(group).map_or_else(String::new, |name| format!(" of {name}"));
        format!("take-over {term}{of}")
    }

    pub(super) fn note_change(&mut self, group: GroupId, at: Instant) {
        if let Some((_, since)) = self.0.get_mut(group.index()) {
            *since = at;
        }
    }

    pub(super) fn statuses(&self, status: &NodeStatus) -> Vec<GroupStatus> {
        let groups = self.0.iter().zip(&status.groups);
        let status = groups.map(|((name, since), group)| GroupStatus {
            name: name.clone(),
            role: describe::role(group.role),
            role_since_ns: since.as_nanos(),
            priority: group.priority,
            term: group.term,
        });
        status.collect()
    }

    /// The names of the groups whose addresses a peer's heartbeat claims.
    pub(super) fn held_by(&self, peer: &PeerStatus) -> Vec<String> {
        let groups = self.0.iter().enumerate();
        let held = groups.filter(|(index, _)| peer.holds(GroupId::at(*index)));
        held.map(|(_, (name, _))| name.clone()).collect()
    }
}

/// The role in a peer's heartbeat: active, if it is for any group.
pub(super) fn peer_role(peer: &PeerStatus) -> NodeRole {
    let heartbeats = || peer.heartbeats.iter().flatten();
    let heartbeat = heartbeats().find(|heartbeat| heartbeat.state.holds_addresses()).or_else(|| heartbeats().next());
    heartbeat.map_or(NodeRole::Unknown, |heartbeat| describe::role(heartbeat.state))
}
