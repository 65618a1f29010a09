//! Hosts that claim an address which this node answers for (RFC 5227 section 2.4).
//!
//! A gateway cannot give its address up for another host's sake: it defends it, as section 2.4 (c) allows a host to that must
//! keep its address. The defence is an announcement at once, at most one for each address in [`DEFENCE_INTERVAL`], so that two
//! nodes that both hold an address do not flood the link. It is repeated after the last claim: when the claimant has left, the
//! neighbours' caches have this node's link address again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use flow::wire::MacAddress;
use flow::{Instant, PortId};

use super::forwarder::Forwarder;
use crate::group::GroupSet;

/// An address is announced against a claim at most this often.
const DEFENCE_INTERVAL: Duration = Duration::from_secs(1);
/// When it is announced again, counted from the last claim.
const DEFENCES_AFTER_CLAIM: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// Claimed addresses that are defended at a time; claims on further ones are counted only.
pub const CONFLICTS_MAX: usize = 64;

/// Another host claims one of the addresses that this node answers for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressConflict {
    /// The port on whose link the claim was received.
    pub port: PortId,
    /// The address.
    pub address: IpAddr,
    /// The claimant's link address.
    pub mac: MacAddress,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    conflict: AddressConflict,
    claimed_at: Instant,
    /// When the address is to be announced next.
    due: Instant,
    /// When it was announced last.
    defended_at: Option<Instant>,
}

/// The claims of the last seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Conflicts {
    claims: Vec<Claim>,
    /// New claims, to be polled by the node.
    reports: VecDeque<AddressConflict>,
    /// This node gives way to claims for so long after each.
    gives_way_for: Option<Duration>,
    /// When a claim was last given way to.
    accepted_at: Option<Instant>,
}

impl Conflicts {
    /// A claim was received. A claimant is reported once, until it has been silent.
    fn note(&mut self, now: Instant, conflict: AddressConflict) {
        let same =
            |claim: &&mut Claim| claim.conflict.port == conflict.port && claim.conflict.address == conflict.address;
        let has_room = self.claims.len() < CONFLICTS_MAX;
        let is_news = match self.claims.iter_mut().find(same) {
            Some(claim) => {
                let is_another = claim.conflict.mac != conflict.mac;
                claim.conflict = conflict;
                claim.claimed_at = now;
                claim.due = claim.defended_at.map_or(now, |at| now.max(at + DEFENCE_INTERVAL));
                is_another
            }
            None if has_room => {
                self.claims.push(Claim { conflict, claimed_at: now, due: now, defended_at: None });
                true
            }
            None => false,
        };
        if is_news && self.reports.len() < CONFLICTS_MAX {
            self.reports.push_back(conflict);
        }
    }

    /// A claim that is not contested: it is reported as any other.
    fn note_accepted(&mut self, now: Instant, conflict: AddressConflict) {
        let is_news = self.accepted_at.is_none();
        self.accepted_at = Some(now);
        if is_news && self.reports.len() < CONFLICTS_MAX {
            self.reports.push_back(conflict);
        }
    }

    /// An address that is to be announced now.
    fn next_defence(&mut self, now: Instant) -> Option<(PortId, IpAddr)> {
        let index = self.claims.iter().position(|claim| claim.due <= now)?;
        let claim = &mut self.claims[index];
        let AddressConflict { port, address, .. } = claim.conflict;
        claim.defended_at = Some(now);
        let repetitions = DEFENCES_AFTER_CLAIM.map(|after| claim.claimed_at + after);
        match repetitions.into_iter().find(|at| *at > now) {
            Some(at) => claim.due = at.max(now + DEFENCE_INTERVAL),
            None => drop(self.claims.swap_remove(index)),
        }
        Some((port, address))
    }

    /// When an address is to be announced next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.claims.iter().map(|claim| claim.due).min()
    }
}

impl Forwarder {
    /// Another host claims an address that this node answers for.
    pub(super) fn note_conflict(&mut self, now: Instant, conflict: AddressConflict) {
        let AddressConflict { port, address, .. } = conflict;
        let group = self.addresses.find(address, port).and_then(|local| local.group);
        if group.is_some_and(|group| self.leaving.contains(group)) {
            return;
        }
        self.counters.address_conflicts += 1;
        if self.conflicts.gives_way_for.is_some() && self.path_frames.may_be_peer(port, conflict.mac) {
            self.conflicts.note_accepted(now, conflict);
            return;
        }
        self.conflicts.note(now, conflict);
        self.defend(now);
    }

    /// Groups that this node holds until another node has taken them: whoever claims their addresses may.
    pub fn set_leaving(&mut self, groups: GroupSet) {
        if self.leaving != groups {
            self.leaving = groups;
            self.forget_conflicts(groups);
        }
    }

    /// For how long after each claim of a peer this node announces nothing itself: another active node has the neighbours' packets.
    /// `None`: every claim is contested.
    pub fn set_gives_way(&mut self, gives_way_for: Option<Duration>) {
        self.conflicts.gives_way_for = gives_way_for;
        if gives_way_for.is_none() {
            self.conflicts.accepted_at = None;
        }
    }

    /// Whether another active node was lately found to claim the addresses.
    pub(super) fn gives_way(&self, now: Instant) -> bool {
        let until = self.conflicts.accepted_at.zip(self.conflicts.gives_way_for).map(|(at, time)| at + time);
        until.is_some_and(|until| now < until)
    }

    /// A claimant that was not reported before.
    pub fn poll_conflict(&mut self) -> Option<AddressConflict> {
        self.conflicts.reports.pop_front()
    }

    /// Announces the addresses whose defence is due. An address that this node no longer answers for is not defended.
    pub(super) fn defend(&mut self, now: Instant) {
        while let Some((port, address)) = self.conflicts.next_defence(now) {
            if self.answers_for(address, port) {
                self.push_announcement(port, address);
                self.counters.defences += 1;
            }
        }
    }

    /// Addresses of these groups are another node's now: whoever claims them may.
    pub(super) fn forget_conflicts(&mut self, gone: GroupSet) {
        let addresses = &self.addresses;
        self.conflicts.claims.retain(|claim| {
            let AddressConflict { port, address, .. } = claim.conflict;
            let group = addresses.find(address, port).and_then(|local| local.group);
            !group.is_some_and(|group| gone.contains(group))
        });
    }
}
