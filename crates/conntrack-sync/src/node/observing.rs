//! The operator's view.

use alloc::vec::Vec;

use flow::Instant;
use replication::Handle;

use super::SyncNode;
use crate::config::SyncRole;
use crate::mirror::flag;
use crate::peer::Peer;
use crate::readiness::{Obstacle, Readiness};
use crate::status::{SyncFlow, SyncFlows, SyncPeerStatus, SyncStatus};

impl SyncNode {
    /// Whether all known connections are usable, and a failover now would be safe.
    #[must_use]
    pub fn readiness(&self, _now: Instant) -> Readiness {
        let connections = &self.connections;
        let queue = &connections.queue;
        let mut obstacles = Vec::new();
        let mut add = |is_so: bool, obstacle: Obstacle| {
            if is_so {
                obstacles.push(obstacle);
            }
        };
        let is_recovering = connections.counters.overruns > connections.counters.recoveries;
        add(!connections.dump.is_initialised, Obstacle::NotInitialised);
        add(connections.role == SyncRole::Fault, Obstacle::Fault);
        add(is_recovering, Obstacle::EventsLost);
        add(self.coverage.coverage.is_nearly_none(), Obstacle::FewReplicated(self.coverage.coverage));
        let pending = if connections.may_create() { connections.overdue() as u32 } else { 0 };
        add(pending > 0, Obstacle::Pending(pending));
        add(queue.refused_now > 0, Obstacle::NotInKernel(queue.refused_now, queue.failing()));
        let unreplicated = connections.unreplicated;
        let unreplicated = unreplicated.unintended();
        add(unreplicated.total() > 0, Obstacle::Unreplicated(unreplicated));
        for peer in &self.peers {
            add_obstacles_of(&peer.status(), &mut add);
        }
        let is_usable = connections.dump.is_initialised && pending == 0 && queue.refused_now == 0;
        Readiness { is_usable, obstacles }
    }

    /// The node's figures.
    #[must_use]
    pub fn status(&self, now: Instant) -> SyncStatus {
        let connections = &self.connections;
        let queue = &connections.queue;
        SyncStatus {
            node: connections.node,
            mode: connections.mode,
            role: connections.role,
            injection: connections.injection,
            connections: connections.mirror.len(),
            connections_max: self.connections_max,
            own: connections.own,
            unreplicated: connections.unreplicated,
            replicas: connections.mirror.len() - connections.own,
            pending: queue.pending(),
            not_in_kernel: queue.refused_now,
            retries: queue.retries(),
            failing: queue.failing(),
            is_recovering: connections.counters.overruns > connections.counters.recoveries,
            is_initialised: connections.dump.is_initialised,
            split_brains: self.split_brains,
            counters: connections.counters,
            injected: queue.counters,
            peers: self.peers.iter().map(Peer::status).collect(),
            readiness: self.readiness(now),
        }
    }

    /// At most `flows_max` connections from the slot `from` on.
    #[must_use]
    pub fn flows(&self, from: u32, flows_max: usize) -> SyncFlows {
        let connections = &self.connections;
        let mut page = SyncFlows::default();
        let mut next = Handle(from);
        while let Some(handle) = connections.mirror.next_occupied(next) {
            if page.flows.len() >= flows_max {
                page.next = Some(handle.0);
                break;
            }
            next = Handle(handle.0 + 1);
            let Some(record) = connections.mirror.get(handle) else { continue };
            page.flows.push(SyncFlow {
                slot: handle.0,
                entry: record.entry(),
                owner: record.owner(),
                version: record.version,
                is_in_kernel: record.is_any(flag::IN_KERNEL),
                is_unseen: record.is_any(flag::UNSEEN),
                is_pending: record.is_any(flag::QUEUED | flag::RETRYING),
                is_replicated: record.is_any(flag::REPLICATED),
            });
        }
        page
    }
}

fn add_obstacles_of(peer: &SyncPeerStatus, add: &mut impl FnMut(bool, Obstacle)) {
    add(peer.is_split, Obstacle::SplitBrain(peer.id));
    add(peer.role == Some(SyncRole::Fault), Obstacle::PeerAtFault(peer.id));
    if !peer.is_up {
        return add(true, Obstacle::Silent(peer.id));
    }
    add(!peer.is_complete && !peer.lacks_room, Obstacle::IncompleteFromPeer(peer.id));
    add(peer.lacks_room, Obstacle::NoRoom(peer.id));
    if let Some(session) = &peer.conntrackd {
        add(!session.sent_all, Obstacle::IncompleteToPeer(peer.id));
    }
    let Some(session) = &peer.session else { return };
    add(!session.sent_all, Obstacle::IncompleteToPeer(peer.id));
    add(session.anti_entropy.divergent > 0, Obstacle::Differs(peer.id));
}
