//! Processes peers' updates: which one prevails, and the resulting requests to the kernel.
//!
//! | known here | the peer's update | result |
//! |---|---|---|
//! | nothing | any | a replica |
//! | nothing, and the peer restarted while this node was primary | of a connection found in its kernel | the peer is sent a deletion |
//! | a replica of the same peer | any | it replaces the former state |
//! | a replica of another peer | newer | its owner is now this peer |
//! | an owned connection | newer | its owner is the peer; if this node has seen more of it, it takes it over again and replicates it |
//! | an owned connection with packets here | newer, of a peer that has seen no packet | this node stays the owner and replicates it |
//! | any | older | it is ignored |

use flow::Instant;
use flow::NodeId;
use flow::netfilter::{Entry, Status, TcpState, Tuple};
use flow::serial::is_before;
use replication::representation::kernel::{Ended, Origin, Update};
use replication::{ApplyError, Handle};

use super::{ConnectionChange, Connections, ends_s};
use crate::config::{Mode, SyncRole};
use crate::event::SyncEvent;
use crate::mirror::{Record, beyond, flag};

impl Connections {
    /// Applies a peer's update. `round` marks the current resynchronisation.
    pub(crate) fn apply(&mut self, now: Instant, from: NodeId, round: bool, update: &Update) -> Result<(), ApplyError> {
        match self.mirror.find(&update.entry.original, update.entry.zone) {
            None => self.apply_new(now, from, round, update),
            Some(handle) => {
                self.apply_to_known(handle, from, round, update);
                Ok(())
            }
        }
    }

    fn apply_new(&mut self, now: Instant, from: NodeId, round: bool, update: &Update) -> Result<(), ApplyError> {
        // The peer restarted while this node got all packets. The peer found the connection in its kernel; this node
        // does not know it, so it has ended meanwhile.
        if update.origin.is_unseen && self.restarted.contains(from) {
            let Update { entry, origin, .. } = update;
            let origin = Origin { version: beyond(origin.version), owner: self.node, is_unseen: false };
            self.counters.updates_refused += 1;
            self.names.push_back(Ended { original: entry.original, zone: entry.zone, origin });
            self.changes.push(ConnectionChange::Refused(from));
            return Ok(());
        }
        let floor_s = self.timeout_floor_s;
        let Ok((handle, record)) = self.mirror.insert(&update.entry, from) else {
            self.note_full(now, SyncEvent::ReplicaIncomplete(from));
            return Err(ApplyError::Full);
        };
        record.expires_s = ends_s(now, update.entry.timeout_s.unwrap_or(0).max(floor_s));
        self.counters.replicas_stored += 1;
        self.store_update(handle, from, round, update);
        self.queue(handle, flag::DIRTY);
        Ok(())
    }

    fn apply_to_known(&mut self, handle: Handle, from: NodeId, round: bool, update: &Update) {
        let (node, is_primary) = (self.node, self.role == SyncRole::Primary);
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let owner = record.owner();
        if owner != from && !prevails(record, node, is_primary, from, update.origin) {
            self.counters.updates_stale += 1;
            let stays_here = owner == node && !record.is_any(flag::UNSEEN);
            if stays_here && !is_before(update.origin.version, record.version) {
                // The peer would otherwise remain an owner, too.
                record.version = beyond(update.origin.version);
                record.set(flag::REPLICATED, true);
                self.changes.push(ConnectionChange::Changed(handle));
                self.count_unreplicated(handle);
            }
            return;
        }
        // Two nodes that each saw packets become owners concurrently; neither's update may hide the other's state. A
        // later connection with the same tuple is ahead by more than one owner, or follows a different owner.
        let owners_between = (update.origin.version >> 16).wrapping_sub(record.version >> 16) as u16;
        let is_same = owner == node && !record.is_any(flag::UNSEEN) && owners_between <= 1;
        let is_ahead_of_update = is_same && has_newer_state(record, &update.entry);
        let has_changed = self.replace(handle, from, round, update, is_ahead_of_update);
        self.counters.replicas_stored += 1;
        // The kernel continues to check segments against its windows, which are outdated if segments come here again.
        // So it must be set to pass them, even if nothing else has changed.
        let has_windows = owner == node && self.mirror.get(handle).is_some_and(|record| record.tcp_state().is_some());
        if has_changed || has_windows {
            self.queue(handle, flag::DIRTY);
        }
        let is_sole_primary = is_primary && self.mode == Mode::PrimaryBackup && !self.primaries.contains(from);
        if is_ahead_of_update {
            self.counters.merged += 1;
            self.take_over(handle, false);
        } else if owner == node && is_sole_primary {
            // The former primary's last state of a connection that this node continues.
            self.take_over(handle, true);
        }
    }

    /// Replaces the known state by an update. Returns whether the kernel needs a request.
    fn replace(&mut self, handle: Handle, from: NodeId, round: bool, update: &Update, keeps_state: bool) -> bool {
        let Some(record) = self.mirror.get_mut(handle) else { return false };
        let (status, state) = (record.status(), record.tcp_state());
        let was_going = record.is_any(flag::GONE | flag::ENDING);
        let mut has_changed = record.set_reply(&update.entry.reply);
        let needs_replacing = has_changed;
        if keeps_state {
            let mut entry = update.entry.clone();
            entry.status = entry.status.map(|update| update.union(status));
            if is_further(record.protocol(), state, entry.tcp().map(|info| info.state)) {
                entry.protocol_info = None;
            }
            has_changed |= record.merge(&entry);
        } else {
            has_changed |= record.merge(&update.entry);
        }
        // Permanent status bits cannot be cleared: this is another connection with the same tuple.
        let lasting = Status::SEEN_REPLY.union(Status::ASSURED);
        let is_another = status.without(record.status()).intersects(lasting);
        record.set(flag::GONE | flag::ENDING | flag::VERIFY, false);
        if (needs_replacing || is_another) && record.is_any(flag::IN_KERNEL) {
            record.set(flag::REPLACE, true);
        }
        has_changed |= record.expectations() != update.expectations.as_slice();
        let is_missing = !record.is_any(flag::IN_KERNEL);
        self.store_update(handle, from, round, update);
        has_changed || is_missing || was_going
    }

    fn store_update(&mut self, handle: Handle, from: NodeId, round: bool, update: &Update) {
        let takes_expectations = self.takes_expectations;
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let before = record.owner();
        if before == self.node {
            self.update_expectations_of(handle, false);
        }
        let Some(record) = self.mirror.get_mut(handle) else { return };
        record.set_owner(from);
        record.version = update.origin.version;
        record.set(flag::UNSEEN, update.origin.is_unseen);
        record.set(flag::REPLICATED, false);
        record.set(flag::ROUND, round);
        if takes_expectations && record.expectations() != update.expectations.as_slice() {
            record.rare_mut().expectations.clone_from(&update.expectations);
            record.drop_empty_rare();
        }
        if before != from {
            self.count_owner(before, from);
            self.set_unreplicated(handle, None);
            self.end_deferral(handle);
        }
        self.changes.push(ConnectionChange::ReplicaChanged(handle));
    }

    /// Applies a peer's deletion.
    pub(crate) fn delete(&mut self, from: NodeId, ended: &Ended) {
        let is_primarys = self.primaries.contains(from);
        self.delete_named(from, &ended.original, ended.zone, ended.origin, is_primarys);
    }

    /// As [`Connections::delete`]; `is_primarys` states that the peer gets the packets.
    pub(crate) fn delete_named(
        &mut self,
        from: NodeId,
        original: &Tuple,
        zone: u16,
        origin: Origin,
        is_primarys: bool,
    ) {
        let Some(handle) = self.mirror.find(original, zone) else { return };
        let (node, is_primary) = (self.node, self.role == SyncRole::Primary);
        let Some(record) = self.mirror.get(handle) else { return };
        let owner = record.owner();
        // The peer may have become owner and seen the end before it sent either.
        let counts = owner == from || prevails(record, node, is_primary, from, origin);
        // A connection that this node only found in its kernel, and that a node with packets reports as ended.
        let is_disowned = owner == node && record.is_any(flag::UNSEEN) && !is_primary && !origin.is_unseen;
        if !counts && !is_disowned {
            self.counters.ends_stale += 1;
            return;
        }
        self.counters.ends_applied += 1;
        let may_live_here =
            record.is_any(flag::IN_KERNEL) && (is_primary || (record.is_any(flag::FOUND) && !is_primarys));
        if !record.is_any(flag::IN_KERNEL) && owner != node {
            return self.drop_replica(handle);
        }
        if owner != from {
            if owner == node {
                self.update_expectations_of(handle, false);
            }
            self.count_owner(owner, from);
            if let Some(record) = self.mirror.get_mut(handle) {
                record.set_owner(from);
                record.set(flag::REPLICATED, false);
            }
            self.set_unreplicated(handle, None);
            self.end_deferral(handle);
            self.changes.push(ConnectionChange::ReplicaChanged(handle));
        }
        if may_live_here {
            if let Some(record) = self.mirror.get_mut(handle) {
                record.set(flag::ENDING, true);
            }
            self.queue(handle, flag::VERIFY);
        } else {
            self.queue(handle, flag::GONE);
        }
        // For the peer, the replica here no longer exists.
        self.changes.push(ConnectionChange::ReplicaChanged(handle));
    }
}

/// Whether an update of `from` overrides another node's state.
fn prevails(record: &Record, node: NodeId, is_primary: bool, from: NodeId, origin: Origin) -> bool {
    let owner = record.owner();
    if owner == node && record.is_any(flag::UNSEEN) != origin.is_unseen && (is_primary || record.is_any(flag::UNSEEN)) {
        return record.is_any(flag::UNSEEN);
    }
    if owner == node && is_primary && origin.is_unseen {
        return false;
    }
    is_before(record.version, origin.version) || (record.version == origin.version && from < owner)
}

/// Whether this node has newer state of its connection than the update.
fn has_newer_state(record: &Record, update: &Entry) -> bool {
    let lasting = Status::SEEN_REPLY.union(Status::ASSURED);
    let status = update.status.unwrap_or(record.status());
    record.status().without(status).intersects(lasting)
        || is_further(record.protocol(), record.tcp_state(), update.tcp().map(|info| info.state))
}

/// Whether one state of TCP's automaton follows the other within a connection.
pub(crate) fn is_further(protocol: u8, one: Option<TcpState>, other: Option<TcpState>) -> bool {
    let rank = |state: TcpState| match state {
        TcpState::None => 0,
        TcpState::SynSent => 1,
        TcpState::SynSent2 => 2,
        TcpState::SynRecv => 3,
        TcpState::Established => 4,
        TcpState::FinWait => 5,
        TcpState::CloseWait => 6,
        TcpState::LastAck => 7,
        TcpState::TimeWait => 8,
        TcpState::Close => 9,
    };
    match (protocol, one, other) {
        (6, Some(one), Some(other)) => rank(one) > rank(other),
        _ => false,
    }
}
