//! The connections: the state shared by sessions, the kernel's events and the operator's orders.

mod deferral;
mod dump;
pub(super) mod dump_state;
pub(super) mod expectation_table;
mod expectations;
pub(super) mod injection;
pub(super) mod injection_queue;
pub(super) mod kernel;
pub(super) mod refresh;
mod roles;
mod unreplicated;
pub(super) mod updates;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::netfilter::{Entry, Expectation};
use flow::{Instant, NodeId};
use replication::Handle;
use replication::representation::kernel::{Ended, Origin};

pub(super) use self::deferral::Deferral;
use self::dump_state::DumpState;
use self::expectation_table::ExpectationTable;
use self::injection_queue::InjectionQueue;
use super::config::{Injection, Mode, SyncRole};
use super::event::{Events, SyncEvent};
use super::filter::SyncFilter;
use super::mirror::{Mirror, Record, flag};
use super::status::SyncCounters;
use super::unreplicated::Unreplicated;

/// A change that sessions must process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionChange {
    /// A connection of this node changed in a replicated field.
    Changed(Handle),
    /// A replica was added, changed or removed, or its owner changed.
    ReplicaChanged(Handle),
    /// A connection of this node ended. A former owner knows it even if this node never replicated it. Its name is
    /// queued in `names`, and for conntrackd the whole entry in `ended_entries`.
    Ended { handle: Handle, had_other_owner: bool },
    /// A connection of this node that was never replicated is gone.
    NeverReplicated(Handle),
    /// This peer's update for the next connection in `names` is wrong: the connection has ended.
    Refused(NodeId),
    /// This node took over a replica.
    TakenOver(Handle),
    /// An expectation of this node's add_own, or changed.
    ExpectationChanged(Handle),
    /// It is over. It waits in `ended_expectations`.
    ExpectationEnded(Handle),
}

const _: () = assert!(size_of::<ConnectionChange>() <= 8, "a role may touch all connections at once");

/// A set of nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeSet([u64; 4]);

impl NodeSet {
    pub(super) const ALL: Self = Self([u64::MAX; 4]);

    pub(super) const fn contains(self, node: NodeId) -> bool {
        self.0[node.0 as usize >> 6] & 1 << (node.0 & 63) != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    pub(super) const fn set(&mut self, node: NodeId, is_member: bool) {
        let word = &mut self.0[node.0 as usize >> 6];
        if is_member { *word |= 1 << (node.0 & 63) } else { *word &= !(1 << (node.0 & 63)) }
    }
}

/// The connections.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) node: NodeId,
    pub(super) mode: Mode,
    pub(super) role: SyncRole,
    pub(super) injection: Injection,
    pub(super) filter: SyncFilter,
    pub(super) takes_expectations: bool,
    pub(super) timeout_floor_s: u32,
    pub(super) mirror: Mirror,
    pub(super) queue: InjectionQueue,
    pub(super) dump: DumpState,
    /// Peers with a live session.
    pub(super) alive: NodeSet,
    /// Peers with the primary role.
    pub(super) primaries: NodeSet,
    /// Peers that restarted while this node was primary.
    pub(super) restarted: NodeSet,
    /// Whether a peer uses conntrackd's protocol.
    pub(super) has_conntrackd: bool,
    pub(super) expecting: ExpectationTable,
    pub(super) changes: Vec<ConnectionChange>,
    pub(super) names: VecDeque<Ended>,
    pub(super) ended_entries: VecDeque<Entry>,
    pub(super) ended_expectations: VecDeque<Expectation>,
    pub(super) counters: SyncCounters,
    /// The number of connections that this node owns.
    pub(super) own: u32,
    /// The connections that are deferred, if any are.
    pub(super) deferral: Option<Deferral>,
    /// Of those owned, the ones that are not replicated.
    pub(super) unreplicated: Unreplicated,
    /// Whether a lack of room has been reported.
    pub(super) lacks_room: bool,
    pub(super) events: Events,
}

impl Connections {
    /// A peer's connection may be created in the kernel now.
    pub(super) fn may_create(&self) -> bool {
        self.injection == Injection::Direct || self.role == SyncRole::Primary
    }

    /// Whether requests to the kernel wait for further changes: another node forwards, and this kernel's table is known.
    pub(super) fn delays_requests(&self) -> bool {
        let is_recovering = self.counters.overruns > self.counters.recoveries;
        self.mode == Mode::PrimaryBackup
            && self.role == SyncRole::Backup
            && self.dump.is_initialised
            && !is_recovering
            && !self.primaries.is_empty()
    }

    pub(super) fn is_own(&self, record: &Record) -> bool {
        record.owner() == self.node
    }

    /// Updates the count of owned connections for a change of owner.
    pub(super) fn count_owner(&mut self, from: NodeId, to: NodeId) {
        self.own -= u32::from(from == self.node);
        self.own += u32::from(to == self.node);
    }

    /// Takes over a replica as its owner.
    pub(super) fn take_over(&mut self, handle: Handle, is_unseen: bool) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let from = record.owner();
        record.take_over(self.node);
        record.set(flag::UNSEEN, is_unseen);
        record.set(flag::ENDING | flag::GONE, false);
        // The former owner knows it, whatever the filter excludes.
        record.set(flag::REPLICATED, true);
        let node = self.node;
        self.count_owner(from, node);
        self.changes.push(ConnectionChange::TakenOver(handle));
        self.count_unreplicated(handle);
        self.update_expectations_of(handle, true);
    }

    /// Replicates a change, unless the filter excludes the connection.
    #[inline]
    pub(super) fn replicate(&mut self, handle: Handle) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        record.version = record.version.wrapping_add(1);
        if !self.filter.is_worth_replicating(record) {
            self.counters.withheld += u64::from(!record.is_any(flag::REPLICATED));
            return self.count_unreplicated(handle);
        }
        if !record.is_any(flag::REPLICATED) && self.is_deferred(handle) {
            self.counters.withheld += 1;
            return self.count_unreplicated(handle);
        }
        let Some(record) = self.mirror.get_mut(handle) else { return };
        record.set(flag::REPLICATED, true);
        self.counters.replicated += 1;
        self.changes.push(ConnectionChange::Changed(handle));
        self.count_unreplicated(handle);
    }

    /// Ends a connection of this node.
    pub(super) fn end_own(&mut self, handle: Handle) {
        self.update_expectations_of(handle, false);
        self.set_unreplicated(handle, None);
        self.end_deferral(handle);
        let Some(record) = self.mirror.get(handle) else { return };
        let changes = if record.is_any(flag::REPLICATED) {
            self.names.push_back(self.name(record));
            if self.has_conntrackd {
                self.ended_entries.push_back(record.entry());
            }
            ConnectionChange::Ended { handle, had_other_owner: record.version >> 16 != 0 }
        } else {
            self.counters.never_replicated += 1;
            ConnectionChange::NeverReplicated(handle)
        };
        self.queue.refused_now -= u32::from(record.is_any(flag::REFUSED));
        self.mirror.remove(handle);
        self.own -= 1;
        self.note_room();
        self.counters.ended += 1;
        self.changes.push(changes);
    }

    /// The first replicated connection at or after `from` that this node owns.
    pub(super) fn next_replicated(&self, from: Handle) -> Option<Handle> {
        let mut from = from;
        loop {
            let handle = self.mirror.next_occupied(from)?;
            let record = self.mirror.get(handle)?;
            if self.is_own(record) && record.is_any(flag::REPLICATED) {
                return Some(handle);
            }
            from = Handle(handle.0 + 1);
        }
    }

    /// The identification of an ended connection on the wire.
    pub(super) fn name(&self, record: &Record) -> Ended {
        Ended { original: record.original(), zone: record.zone(), origin: origin(record) }
    }

    pub(super) fn note_full(&mut self, now: Instant, event: SyncEvent) {
        self.counters.no_room += 1;
        if !core::mem::replace(&mut self.lacks_room, true) {
            self.events.push(now, event);
        }
    }
}

pub(super) fn origin(record: &Record) -> Origin {
    Origin { version: record.version, owner: record.owner(), is_unseen: record.is_any(flag::UNSEEN) }
}

/// Seconds of the table's clock.
pub(super) const fn seconds(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000_000) as u32
}

/// The expiry time of a remaining lifetime, on the same clock.
pub(super) const fn ends_s(now: Instant, left_s: u32) -> u32 {
    seconds(now).saturating_add(left_s)
}
