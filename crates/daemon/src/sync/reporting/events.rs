//! The node's events in the terms of the control API.

use conntrack_sync::{KernelRefusal, Obstacle, SyncEvent};
use flow::NodeId;

use api::EventKind;
use console::counted;

/// An event in the terms of the control API.
pub(super) fn describe(event: SyncEvent) -> (EventKind, String) {
    let peer = |id: NodeId| format!("node {}", id.0);
    let connections = |count: u64| counted(usize::try_from(count).unwrap_or(usize::MAX), "connection");
    match event {
        SyncEvent::PeerUp(id) => (EventKind::PeerUp, peer(id)),
        SyncEvent::PeerSilent(id) => (EventKind::PeerDown, format!("nothing is received from node {} any more", id.0)),
        SyncEvent::PeerLeft(id) => (EventKind::PeerDown, format!("node {} has closed its session", id.0)),
        SyncEvent::PeerRestarted(id) => (EventKind::PeerRestarted, peer(id)),
        SyncEvent::ResyncStarted(id) => (EventKind::ResyncStarted, peer(id)),
        SyncEvent::ResyncCompleted(id) => (EventKind::ResyncEnded, peer(id)),
        SyncEvent::Synchronised(id) => (EventKind::Synchronised, peer(id)),
        SyncEvent::ReplicasDiffer { peer: id, connections: count } => (
            EventKind::ReplicasDiffer,
            format!("{} of node {} are not here as it sent them", connections(count.into()), id.0),
        ),
        SyncEvent::ReplicasAgree { peer: id, repaired } => {
            (EventKind::ReplicasAgree, format!("with node {}: {} put right", id.0, connections(repaired.into())))
        }
        SyncEvent::ChannelSecured(id) => (EventKind::ChannelSecured, peer(id)),
        SyncEvent::SessionKeysExchanged(id) => (EventKind::SessionKeysExchanged, peer(id)),
        SyncEvent::PeerRole { peer: id, role } => (EventKind::RoleChanged, format!("node {} is {}", id.0, role.name())),
        SyncEvent::RoleChanged { role, claimed } => (
            EventKind::RoleChanged,
            format!("this node is {} now; {} of others are its own", role.name(), connections(claimed.into())),
        ),
        SyncEvent::Claimed { peer: id, connections: count } => (
            EventKind::RoleChanged,
            format!(
                "{} of node {}, which does not forward any more, are this node's now",
                connections(count.into()),
                id.0
            ),
        ),
        SyncEvent::SplitBrain(id) => (EventKind::SplitBrain, split_brain(id)),
        SyncEvent::SplitBrainOver(id) => (EventKind::SplitBrainEnded, peer(id)),
        SyncEvent::EventsLost => (
            EventKind::EventsLost,
            "the kernel found no room for them; its table is compared with what is known".to_owned(),
        ),
        SyncEvent::Recovered { repaired } => {
            (EventKind::EventsRecovered, format!("{} made good", connections(repaired)))
        }
        SyncEvent::DumpFailed => {
            (EventKind::Warning, "the kernel's table could not be read; it is tried again".to_owned())
        }
        SyncEvent::FewReplicated(share) => (EventKind::Warning, Obstacle::FewReplicated(share).to_string()),
        SyncEvent::InjectionFails(refusal) => (EventKind::Warning, injection_fails(refusal)),
        SyncEvent::InjectionWorks => (EventKind::EventsRecovered, "the kernel takes connections again".to_owned()),
        SyncEvent::TableFull => (
            EventKind::Warning,
            "no more connections of this kernel are remembered: raise kernel.connections_max, on all nodes".to_owned(),
        ),
        SyncEvent::ReplicaIncomplete(id) => (
            EventKind::Warning,
            format!("node {}'s connections no longer fit: raise kernel.connections_max to its value", id.0),
        ),
    }
}

pub(super) fn split_brain(id: NodeId) -> String {
    format!(
        "this node and node {} are both primary: see whether keepalived's advertisements reach both, and look at its link",
        id.0
    )
}

pub(super) fn injection_fails(refusal: KernelRefusal) -> String {
    format!("the kernel does not take peers' connections: {refusal}")
}
