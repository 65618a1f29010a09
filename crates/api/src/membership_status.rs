//! Members of the cluster, and the source of their list.

use serde::{Deserialize, Serialize};

use crate::MemberState;
use crate::report::Report;

/// Members of the cluster, and the source of their list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct MembershipStatus {
    /// `gossip` or `etcd`.
    pub source: String,
    /// Whether the source is reachable: etcd has a quorum, or another member gossips. The last known list remains in force while it is not.
    #[report(gauge("membership_source_reachable", source = self.source,
        help = "1 if the source of members is reachable, else 0: the last known list stays in force."))]
    pub reachable: bool,
    /// Time since which that is so.
    pub since_ns: u64,
    /// Why it is not reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The last record or change of the list that was refused, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// This node's state in its own record: `active`, `draining` or `left`.
    pub own_state: MemberState,
    /// Version of this node's own record.
    pub own_version: u64,
    /// Version of the settings of the cluster. 0: there are none.
    #[report(gauge("membership_settings_version"))]
    pub settings_version: u64,
    /// Backups of each connection by the settings. Left out: by the configuration file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backups: Option<u8>,
    /// Version of the configuration file by the settings.
    pub configuration_version: u64,
    /// Changes of the list since the start.
    #[report(counter(
        "membership_changes_total",
        help = "Changes of the members and of the settings of the cluster."
    ))]
    pub changes: u64,
    /// The other members, by their numbers.
    #[report(gauge("membership_members", value = self.members.len(),
        help = "Members of the cluster that are peers of this node."))]
    #[report(gauge("membership_members_unrecorded", value = self.members.iter().filter(|member| !member.recorded).count(),
        help = "Of `membership_members`, those without a record in the source."))]
    pub members: Vec<MemberStatus>,
}

/// Another member of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its number.
    pub id: u8,
    /// Its name.
    pub name: String,
    /// Its address for replication.
    pub address: String,
    /// `active` or `draining`.
    pub state: MemberState,
    /// Version of its record.
    pub version: u64,
    /// Whether the source has its record. A member without one remains a peer while it is up.
    pub recorded: bool,
}
