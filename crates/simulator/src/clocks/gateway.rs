//! A gateway, as far as membership goes: its own record, and those that it knows.

use std::net::SocketAddr;
use std::time::Duration;

use flow::{Instant, NodeId};
use membership::{Limits, Member, MemberState, Membership, OwnRecord, Settings};

use crate::Sabotage;
use crate::report::{Outcome, Problem};

/// The gateways of a cluster.
pub(super) const COUNT: usize = 3;
/// How long members are kept that have gone.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(30);

/// Much longer than any run.
const NEVER: Duration = Duration::from_secs(86_400);

pub(super) struct Gateway {
    pub(super) own: OwnRecord,
    pub(super) membership: Membership,
    is_locked: bool,
}

impl Gateway {
    /// One that starts on this host.
    pub(super) fn start(id: usize, host: u8, unix_time: Duration, sabotage: Option<Sabotage>) -> Self {
        let (name, state) = (String::new(), MemberState::Active);
        let node = NodeId(id as u8);
        let (replication, detection) = (end(host, 3780), end(host, 3784));
        let member = Member { id: node, name, replication, detection, state, version: 0 };
        let is_locked = sabotage == Some(Sabotage::LockedVersions);
        let forget_after = if is_locked { NEVER } else { FORGET_AFTER };
        let limits = Limits { nodes: COUNT as u8, forget_after };
        let own = OwnRecord::new(member, unix_time, FORGET_AFTER);
        Self { own, membership: Membership::new(node, limits), is_locked }
    }

    /// A record of its own number. That another node has the number would be reported.
    pub(super) fn handle_own_record(&mut self, now: Instant, recorded: &Member) {
        if !self.is_locked {
            let _ = self.own.handle_record(now, recorded);
        }
    }

    /// The settings by the complete list. Those that are refused would be reported.
    pub(super) fn handle_settings(&mut self, now: Instant, settings: Option<Settings>) {
        if settings.is_some() || !self.is_locked {
            let _ = self.membership.handle_listed_settings(now, settings);
        }
    }

    pub(super) fn apply_changes(&mut self, now: Instant, is_up: [bool; COUNT]) {
        while self.membership.poll_change(now, |other| is_up[usize::from(other.0)]).is_some() {}
    }

    fn knows_address_of(&self, other: &Self) -> bool {
        self.membership.peers().any(|(peer, _)| peer.replication == other.own.member().replication)
    }
}

/// An address of a host.
pub(super) fn end(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

/// What failure detection of gateway `id` reports: two that run are up for each other when they have each other's addresses.
pub(super) fn is_up_for(gateways: [Option<&Gateway>; COUNT], id: usize) -> [bool; COUNT] {
    gateways.map(|other| {
        let both = gateways[id].zip(other);
        both.is_some_and(|(one, other)| one.knows_address_of(other) && other.knows_address_of(one))
    })
}

/// Checks that each gateway knows the others by the records that they publish. With gossip a version may have changed a moment ago.
pub(super) fn verify(gateways: [Option<&Gateway>; COUNT], is_exact: bool, now: Instant, outcome: &mut Outcome) {
    for gateway in gateways.into_iter().flatten() {
        let own = gateway.own.member();
        let known: Vec<&Member> = gateway.membership.peers().map(|(member, _)| member).collect();
        let others = gateways.into_iter().flatten().map(|other| other.own.member()).filter(|other| other.id != own.id);
        let is_known = |other: &Member| {
            let alike = |known: &&&Member| Member { version: other.version, ..(**known).clone() } == *other;
            known.iter().find(alike).is_some_and(|known| !is_exact || known.version == other.version)
        };
        let missed: Vec<String> = others.filter(|other| !is_known(other)).map(Member::to_string).collect();
        if !missed.is_empty() {
            let known: Vec<String> = known.into_iter().map(Member::to_string).collect();
            outcome.problem(now, Problem::MemberLost, format!("gateway {own} knows {known:?}, not {missed:?}"));
        }
    }
}
