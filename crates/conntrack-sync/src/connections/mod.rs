//! The connections, and what becomes of them: all that sessions, the kernel and the operator's words have in common.

mod dump;
pub(super) mod dump_state;
pub(super) mod expectation_table;
mod expecting;
pub(super) mod injection;
pub(super) mod injection_queue;
pub(super) mod kernel;
mod roles;
pub(super) mod told;
pub(super) mod walk;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::netfilter::{Entry, Expectation};
use flow::{Instant, NodeId};
use replication::Handle;
use replication::representation::kernel::{Ended, Speaker};

use self::dump_state::DumpState;
use self::expectation_table::ExpectationTable;
use self::injection_queue::InjectionQueue;
use super::config::{Injection, Mode, SyncRole};
use super::event::{Events, SyncEvent};
use super::filter::SyncFilter;
use super::mirror::{Mirror, Record, flag};
use super::status::SyncCounters;

/// What sessions are to learn of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touched {
    /// A connection of this node's changed in a way worth telling.
    Changed(Handle),
    /// A copy came, changed, went, or has another master.
    Copied(Handle),
    /// A connection of this node's has ended. Whoever was its master before knows it even if it was never told of this one.
    /// Its name waits in `names`, and for a conntrackd the whole of it in `ended_entries`.
    Ended { handle: Handle, had_another_master: bool },
    /// A connection of this node's is gone that nobody was told of.
    Forgotten(Handle),
    /// What this peer says of the next connection in `names` is not so: it has ended.
    Refused(NodeId),
    /// A copy is this node's from now on.
    TakenOver(Handle),
    /// An expectation of this node's came, or changed.
    ExpectationChanged(Handle),
    /// It is over. It waits in `ended_expectations`.
    ExpectationEnded(Handle),
}

const _: () = assert!(size_of::<Touched>() <= 8, "a role may touch all connections at once");

/// A set of nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Living([u64; 4]);

impl Living {
    pub(super) const ALL: Self = Self([u64::MAX; 4]);

    pub(super) const fn contains(self, node: NodeId) -> bool {
        self.0[node.0 as usize >> 6] & 1 << (node.0 & 63) != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    pub(super) const fn set(&mut self, node: NodeId, is_living: bool) {
        let word = &mut self.0[node.0 as usize >> 6];
        if is_living { *word |= 1 << (node.0 & 63) } else { *word &= !(1 << (node.0 & 63)) }
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
    /// Peers that are heard.
    pub(super) living: Living,
    /// Peers that say that they are primary.
    pub(super) primaries: Living,
    /// Peers that were started anew while this node was primary.
    pub(super) restarted: Living,
    /// Some peer is a conntrackd.
    pub(super) has_conntrackd: bool,
    pub(super) expecting: ExpectationTable,
    pub(super) touched: Vec<Touched>,
    pub(super) names: VecDeque<Ended>,
    pub(super) ended_entries: VecDeque<Entry>,
    pub(super) ended_expectations: VecDeque<Expectation>,
    pub(super) counters: SyncCounters,
    /// Connections of which this node is master.
    pub(super) own: u32,
    /// Room was missing, and that was said.
    pub(super) lacks_room: bool,
    pub(super) events: Events,
}

impl Connections {
    /// A peer's connection may be created in the kernel now.
    pub(super) fn may_create(&self) -> bool {
        self.injection == Injection::Direct || self.role == SyncRole::Primary
    }

    /// Requests to the kernel can wait for further changes: another node forwards, and this kernel's table is known.
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

    /// A record is about to have another master.
    pub(super) fn count_owner(&mut self, from: NodeId, to: NodeId) {
        self.own -= u32::from(from == self.node);
        self.own += u32::from(to == self.node);
    }

    /// This node goes on with a copy as its master.
    pub(super) fn take_over(&mut self, handle: Handle, is_unseen: bool) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let from = record.owner();
        record.take_over(self.node);
        record.set(flag::UNSEEN, is_unseen);
        record.set(flag::ENDING | flag::GONE, false);
        // Whoever was its master knows it, whatever the filter says.
        record.set(flag::TOLD, true);
        let node = self.node;
        self.count_owner(from, node);
        self.touched.push(Touched::TakenOver(handle));
        self.tell_expectations_of(handle, true);
    }

    /// The peers are told of a change, if it is worth it.
    #[inline]
    pub(super) fn tell(&mut self, handle: Handle) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        record.version = record.version.wrapping_add(1);
        if !self.filter.is_worth_replicating(record) {
            self.counters.withheld += u64::from(!record.is_any(flag::TOLD));
            return;
        }
        record.set(flag::TOLD, true);
        self.counters.told += 1;
        self.touched.push(Touched::Changed(handle));
    }

    /// A connection of this node's has ended.
    pub(super) fn end_own(&mut self, handle: Handle) {
        self.tell_expectations_of(handle, false);
        let Some(record) = self.mirror.get(handle) else { return };
        let touched = if record.is_any(flag::TOLD) {
            self.names.push_back(self.name(record));
            if self.has_conntrackd {
                self.ended_entries.push_back(record.entry());
            }
            Touched::Ended { handle, had_another_master: record.version >> 16 != 0 }
        } else {
            self.counters.never_told += 1;
            Touched::Forgotten(handle)
        };
        self.queue.refused_now -= u32::from(record.is_any(flag::REFUSED));
        self.mirror.remove(handle);
        self.own -= 1;
        self.note_room();
        self.counters.ended += 1;
        self.touched.push(touched);
    }

    /// The first connection at or after `from` of which the peers are told.
    pub(super) fn next_told(&self, from: Handle) -> Option<Handle> {
        let mut from = from;
        loop {
            let handle = self.mirror.next_occupied(from)?;
            let record = self.mirror.get(handle)?;
            if self.is_own(record) && record.is_any(flag::TOLD) {
                return Some(handle);
            }
            from = Handle(handle.0 + 1);
        }
    }

    /// What a connection is called on the wire when it has ended.
    pub(super) fn name(&self, record: &Record) -> Ended {
        Ended { original: record.original(), zone: record.zone(), speaker: speaker(record) }
    }

    pub(super) fn note_full(&mut self, now: Instant, event: SyncEvent) {
        self.counters.no_room += 1;
        if !core::mem::replace(&mut self.lacks_room, true) {
            self.events.push(now, event);
        }
    }
}

pub(super) fn speaker(record: &Record) -> Speaker {
    Speaker { version: record.version, owner: record.owner(), is_unseen: record.is_any(flag::UNSEEN) }
}

/// Seconds of the table's clock.
pub(super) const fn seconds(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000_000) as u32
}

/// When something is over that has so long left, on the same clock.
pub(super) const fn ends_s(now: Instant, left_s: u32) -> u32 {
    seconds(now).saturating_add(left_s)
}
