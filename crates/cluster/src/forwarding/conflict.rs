//! Hosts that claim an address which this node holds (RFC 5227 section 2.4).
//!
//! A gateway cannot give its address up for another host's sake: it defends it, as section 2.4 (c) allows a host to that must
//! keep its address. The defence is an announcement at once, at most one for each address in [`DEFENCE_INTERVAL`], so that two
//! nodes that both hold an address do not flood the link. It is repeated after the last claim: when the claimant has left, the
//! neighbours' caches have this node's link address again.
//!
//! One claimant is not contested: a peer that took a group over while this node, which held it before, did not receive it. Two
//! active nodes would take the neighbours from each other again and again. A claim that was contested before this node knew of
//! the peer's silence is accepted from then on.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use flow::wire::MacAddress;
use flow::{Instant, PortId};

use crate::group::{GROUPS_MAX, GroupId, GroupSet};

/// An address is announced against a claim at most this often.
const DEFENCE_INTERVAL: Duration = Duration::from_secs(1);
/// When it is announced again, counted from the last claim.
const DEFENCES_AFTER_CLAIM: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// Claimed addresses that are defended at a time; claims on further ones are counted only.
pub const CONFLICTS_MAX: usize = 64;

/// Another host claims one of the addresses that this node holds.
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
pub(super) struct Claim {
    pub(super) conflict: AddressConflict,
    claimed_at: Instant,
    /// When the address is to be announced next.
    due: Instant,
    /// When it was announced last.
    defended_at: Option<Instant>,
}

/// The claims of the last seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Conflicts {
    pub(super) claims: Vec<Claim>,
    /// New claims, to be polled by the node.
    pub(super) reports: VecDeque<AddressConflict>,
    /// Groups for which this node yields to the claims of a peer, for so long after each.
    pub(super) yields: GroupSet,
    pub(super) yield_period: Duration,
    /// When a claim of an address of each group was last accepted.
    pub(super) accepted_at: [Option<Instant>; GROUPS_MAX],
}

impl Conflicts {
    /// A claim was received. A claimant is reported once, until it has been silent.
    pub(super) fn note(&mut self, now: Instant, conflict: AddressConflict) {
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
    pub(super) fn note_accepted(&mut self, now: Instant, group: GroupId, conflict: AddressConflict) {
        let is_news = self.accepted_at[group.index()].replace(now).is_none();
        if is_news && self.reports.len() < CONFLICTS_MAX {
            self.reports.push_back(conflict);
        }
    }

    /// Accepts the noted claims for which `group_of` names a group. They were reported before.
    pub(super) fn accept_noted(&mut self, group_of: impl Fn(&AddressConflict) -> Option<GroupId>) {
        let accepted_at = &mut self.accepted_at;
        self.claims.retain(|claim| {
            let group = group_of(&claim.conflict);
            if let Some(group) = group {
                let latest = &mut accepted_at[group.index()];
                *latest = (*latest).max(Some(claim.claimed_at));
            }
            group.is_none()
        });
    }

    /// Groups whose addresses another active node was lately found to claim, to which this one yields.
    pub(super) fn yielded(&self, now: Instant) -> GroupSet {
        let is_recent = |at: &Option<Instant>| at.is_some_and(|at| now < at + self.yield_period);
        let recent = self.accepted_at.iter().enumerate().filter(|(_, at)| is_recent(at));
        recent.map(|(index, _)| GroupId::at(index)).collect::<GroupSet>().and(self.yields)
    }

    /// An address that is to be announced now.
    pub(super) fn next_defence(&mut self, now: Instant) -> Option<(PortId, IpAddr)> {
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
