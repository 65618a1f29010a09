//! The defence of addresses that other hosts claim; see [`super::conflict`].

use core::net::IpAddr;
use core::time::Duration;

use flow::{Instant, PortId};

use super::conflict::AddressConflict;
use super::forwarder::Forwarder;
use crate::group::{GroupId, GroupSet};

impl Forwarder {
    /// Another host claims an address that this node holds.
    pub(super) fn note_conflict(&mut self, now: Instant, conflict: AddressConflict) {
        let AddressConflict { port, address, .. } = conflict;
        let group = self.group_of(address, port);
        if group.is_some_and(|group| self.leaving.contains(group)) {
            return;
        }
        self.counters.address_conflicts += 1;
        if let Some(group) = group.filter(|group| self.conflicts.yields.contains(*group))
            && self.path_frames.may_be_peer(port, conflict.mac)
        {
            self.conflicts.note_accepted(now, group, conflict);
            self.end_announcement(now, GroupSet::EMPTY.with(group));
            return;
        }
        self.conflicts.note(now, conflict);
        self.defend(now);
    }

    /// Groups that this node holds until another node has taken them: claims of their addresses are accepted.
    pub fn set_leaving(&mut self, groups: GroupSet) {
        if self.leaving != groups {
            self.leaving = groups;
            self.forget_conflicts(groups);
        }
    }

    /// Groups whose addresses this node does not announce for `yield_period` after each claim of a peer: another active node has
    /// the neighbours' packets. Claims of others' addresses are contested. Noted claims of these groups are contested no more.
    pub fn set_yields(&mut self, now: Instant, groups: GroupSet, yield_period: Duration) {
        let (come, gone) = (groups.without(self.conflicts.yields), self.conflicts.yields.without(groups));
        (self.conflicts.yields, self.conflicts.yield_period) = (groups, yield_period);
        for (index, at) in self.conflicts.accepted_at.iter_mut().enumerate() {
            *at = at.filter(|_| !gone.contains(GroupId::at(index)));
        }
        if come.is_empty() {
            return;
        }
        let Self { addresses, path_frames, conflicts, .. } = &mut *self;
        conflicts.accept_noted(|AddressConflict { port, address, mac }| {
            let group = addresses.find(*address, *port)?.group?;
            (come.contains(group) && path_frames.may_be_peer(*port, *mac)).then_some(group)
        });
        let yielded = self.conflicts.yielded(now);
        self.end_announcement(now, yielded);
    }

    /// The group of a shared address; `None` for others.
    fn group_of(&self, address: IpAddr, port: PortId) -> Option<GroupId> {
        self.addresses.find(address, port).and_then(|local| local.group)
    }

    /// A claimant that was not reported before.
    pub fn poll_conflict(&mut self) -> Option<AddressConflict> {
        self.conflicts.reports.pop_front()
    }

    /// Announces the addresses whose defence is due. An address that this node no longer holds is not defended.
    pub(super) fn defend(&mut self, now: Instant) {
        while let Some((port, address)) = self.conflicts.next_defence(now) {
            if self.holds_on_port(address, port) {
                self.push_announcement(port, address);
                self.counters.defences += 1;
            }
        }
    }

    /// Addresses of these groups are another node's now: claims of them are accepted.
    pub(super) fn forget_conflicts(&mut self, gone: GroupSet) {
        let addresses = &self.addresses;
        self.conflicts.claims.retain(|claim| {
            let AddressConflict { port, address, .. } = claim.conflict;
            let group = addresses.find(address, port).and_then(|local| local.group);
            !group.is_some_and(|group| gone.contains(group))
        });
    }
}
