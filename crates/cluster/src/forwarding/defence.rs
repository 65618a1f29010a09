//! The defence of addresses that other hosts claim; see [`super::conflict`].

use core::time::Duration;

use flow::Instant;

use super::conflict::AddressConflict;
use super::forwarder::Forwarder;
use crate::group::GroupSet;

impl Forwarder {
    /// Another host claims an address that this node holds.
    pub(super) fn note_conflict(&mut self, now: Instant, conflict: AddressConflict) {
        let AddressConflict { port, address, .. } = conflict;
        let group = self.addresses.find(address, port).and_then(|local| local.group);
        if group.is_some_and(|group| self.leaving.contains(group)) {
            return;
        }
        self.counters.address_conflicts += 1;
        if self.conflicts.yield_period.is_some() && self.path_frames.may_be_peer(port, conflict.mac) {
            self.conflicts.note_accepted(now, conflict);
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

    /// For how long after each claim of a peer this node announces nothing itself: another active node has the neighbours' packets.
    /// `None`: every claim is contested.
    pub fn set_yields(&mut self, yield_period: Option<Duration>) {
        self.conflicts.yield_period = yield_period;
        if yield_period.is_none() {
            self.conflicts.accepted_at = None;
        }
    }

    /// Whether another active node was lately found to claim the addresses.
    pub(super) fn yields(&self, now: Instant) -> bool {
        let until = self.conflicts.accepted_at.zip(self.conflicts.yield_period).map(|(at, time)| at + time);
        until.is_some_and(|until| now < until)
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
