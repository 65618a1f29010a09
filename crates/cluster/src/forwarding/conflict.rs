//! Hosts that claim an address which this node holds (RFC 5227 section 2.4).
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
    /// This node yields to claims for so long after each.
    pub(super) yield_period: Option<Duration>,
    /// When a claim was last given way to.
    pub(super) accepted_at: Option<Instant>,
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
    pub(super) fn note_accepted(&mut self, now: Instant, conflict: AddressConflict) {
        let is_news = self.accepted_at.is_none();
        self.accepted_at = Some(now);
        if is_news && self.reports.len() < CONFLICTS_MAX {
            self.reports.push_back(conflict);
        }
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
