//! Roles: which node takes over which connections.

use flow::table::Slot;
use flow::{Instant, NodeId};
use replication::Handle;

use super::{Connections, NodeSet};
use crate::config::{Mode, SyncRole};
use crate::event::SyncEvent;
use crate::mirror::{Record, flag};

impl Connections {
    /// Takes over the replicas of the owners that `may_claim` selects, without requests for those in the kernel.
    /// Returns their number.
    pub(crate) fn claim(&mut self, may_claim: impl Fn(NodeId) -> bool) -> u32 {
        let node = self.node;
        let mut claimed = 0;
        let mut from = Handle(0);
        while let Some(handle) = self.mirror.next_occupied(from) {
            from = Handle(handle.0 + 1);
            let Some(record) = self.mirror.get_mut(handle) else { continue };
            if record.is_any(flag::GONE | flag::ENDING) {
                continue;
            }
            if record.owner() == node {
                if record.is_any(flag::UNSEEN) && self.role == SyncRole::Primary {
                    record.set(flag::UNSEEN, false);
                    self.replicate(handle);
                }
            } else if may_claim(record.owner()) {
                self.take_over(handle, true);
                claimed += 1;
            }
        }
        claimed
    }

    /// Removes a peer's replicas that its resynchronisation did not confirm, or takes them over as sole primary.
    pub(crate) fn sweep(&mut self, peer: NodeId, round: bool, from: Slot, slots: usize) -> Option<Slot> {
        let stop = from.0.saturating_add(slots as u32);
        let owns_orphans = self.role == SyncRole::Primary;
        let mut next = Handle(from.0);
        while let Some(handle) = self.mirror.next_occupied_below(next, stop) {
            next = Handle(handle.0 + 1);
            let Some(record) = self.mirror.get(handle) else { continue };
            let is_left = record.owner() == peer && record.is_any(flag::ROUND) != round;
            if !is_left || record.is_any(flag::GONE | flag::ENDING) {
                continue;
            }
            if owns_orphans && self.mode == Mode::PrimaryBackup {
                self.take_over(handle, true);
            } else {
                self.counters.replicas_unconfirmed += 1;
                let ended = self.mirror.get(handle).map(|record| self.name(record));
                ended.iter().for_each(|ended| self.delete(peer, ended));
            }
        }
        (stop < self.mirror.slots_used()).then_some(Slot(stop))
    }

    /// Sets the role, by the operator or the manager of the addresses.
    pub(crate) fn set_role(&mut self, now: Instant, role: SyncRole, may_claim: impl Fn(NodeId) -> bool) {
        self.role = role;
        self.restarted = NodeSet::default();
        self.follow_role(now);
        let claimed = if role == SyncRole::Primary { self.claim(may_claim) } else { 0 };
        if role == SyncRole::Primary {
            self.queue_missing();
        }
        self.counters.claimed += u64::from(claimed);
        self.events.push(now, SyncEvent::RoleChanged { role, claimed });
    }

    /// Queues all connections that the kernel lacks.
    pub(crate) fn queue_missing(&mut self) {
        let mut from = Handle(0);
        while let Some(handle) = self.mirror.next_occupied(from) {
            from = Handle(handle.0 + 1);
            let is_missing = |record: &Record| !record.is_any(flag::IN_KERNEL | flag::GONE | flag::ENDING);
            if self.mirror.get(handle).is_some_and(is_missing) {
                self.queue(handle, flag::DIRTY);
            }
        }
    }
}
