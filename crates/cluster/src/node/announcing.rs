//! Peers that may forward packets though this node holds the addresses.
//!
//! A silent peer is dead or partitioned; no rule can distinguish these. If it is not known to be standby (because it was drained, for
//! example), it may have taken the addresses, announced them, and forward. Then neighbours that learnt its link address send
//! their packets to it, also after it has died. So the node that holds the addresses announces them often while such a peer is
//! silent, and when it is back.
//!
//! Two nodes that are both active must not take the neighbours from each other again and again: a connection goes on where its
//! packets stay. The node that took over later keeps announcing, as it keeps the addresses when the split ends. The one that
//! was active before yields, group by group: while it receives the other's claims it announces nothing; when they cease, the
//! other is gone. The other may find the silence first: what this node had contested until then, it contests no more.
//! What a peer may have forwarded also makes this node's knowledge of its connections old: see the pipeline's `elsewhere`.

use core::time::Duration;

use flow::Instant;

use super::peer::{LastKnown, Peer};
use crate::forwarding::{ANNOUNCE_REFRESH_DEFAULT, Forwarder};
use crate::group::{GroupId, GroupSet};
use crate::pipeline::Pipeline;
use crate::role::{Roles, State};

/// How often addresses are announced while a peer is silent: at first, for how long, and then.
const REFRESH_AFTER_LOSS: Duration = Duration::from_secs(1);
const REFRESHED_AFTER_LOSS: Duration = Duration::from_secs(60);
const REFRESH_WHILE_SILENT: Duration = Duration::from_secs(10);

/// How often to announce addresses.
#[derive(Debug)]
pub(super) struct Announcing {
    /// While nothing happens; `None`: not at all.
    refresh: Option<Duration>,
    /// When addresses are announced less often again.
    often_until: Option<Instant>,
    /// A peer is silent that is not known to have left.
    is_any_silent: bool,
    /// What this node held when it last looked at its peers.
    held: GroupSet,
    /// What it held already when a peer fell silent: of two active nodes it yields.
    yields: GroupSet,
    /// A peer may forward packets of this node's connections.
    is_forwarded_elsewhere: bool,
}

impl Default for Announcing {
    fn default() -> Self {
        Self {
            refresh: Some(ANNOUNCE_REFRESH_DEFAULT),
            often_until: None,
            is_any_silent: false,
            held: GroupSet::EMPTY,
            yields: GroupSet::EMPTY,
            is_forwarded_elsewhere: false,
        }
    }
}

impl Announcing {
    /// Addresses are announced again at this interval while nothing happens; zero: never.
    pub(super) fn set_interval(&mut self, now: Instant, interval: Duration, forwarder: &mut Forwarder) {
        self.refresh = (!interval.is_zero()).then_some(interval);
        self.set_refresh(now, forwarder);
    }

    /// Looks how the peers stand, as far as the roles know. To be called after the roles have decided, for the lead worker.
    pub(super) fn update(
        &mut self,
        now: Instant,
        roles: &Roles,
        peers: &mut [Peer],
        forwarder: &mut Forwarder,
        pipeline: &mut Pipeline,
    ) {
        let held = roles.forwarded();
        forwarder.set_leaving(roles.groups_in(|state| state == State::Leaving));
        let mut may_forward = false;
        for peer in peers.iter_mut() {
            let (known, claimed) = know(now, roles, peer);
            may_forward |= !claimed.and(held).is_empty() || matches!(known, LastKnown::SilentSince(_));
            match (peer.last_known, known) {
                // Neighbours may have learnt the returning peer's link address. Of groups that it holds as well, the roles
                // decide, and the node that keeps them announces them.
                (LastKnown::SilentSince(_), LastKnown::Present | LastKnown::Left) => {
                    forwarder.announce(now, held.without(claimed));
                }
                (before, LastKnown::SilentSince(since)) if before != known => {
                    self.yields = self.held;
                    self.often_until = Some(since + REFRESHED_AFTER_LOSS);
                }
                _ => {}
            }
            peer.last_known = known;
        }
        let is_any_silent = peers.iter().any(|peer| matches!(peer.last_known, LastKnown::SilentSince(_)));
        self.often_until = self.often_until.filter(|until| is_any_silent && *until > now);
        self.is_any_silent = is_any_silent;
        self.yields = if is_any_silent { self.yields.and(held) } else { GroupSet::EMPTY };
        self.held = held;
        self.set_refresh(now, forwarder);
        self.note_forwarded_elsewhere(now, may_forward, pipeline);
    }

    fn set_refresh(&self, now: Instant, forwarder: &mut Forwarder) {
        let while_silent = if self.often_until.is_some() { REFRESH_AFTER_LOSS } else { REFRESH_WHILE_SILENT };
        let often = self.is_any_silent.then_some(while_silent);
        forwarder.set_announce_refresh(now, often.into_iter().chain(self.refresh).min());
        // The other node's claims come as often as this node's would; two of them may be lost.
        forwarder.set_yields(now, self.yields, while_silent * 5 / 2);
    }

    /// Whether a peer may forward packets of this node's connections: the lead worker finds out, the others follow.
    pub(super) fn note_forwarded_elsewhere(&mut self, now: Instant, may_be: bool, pipeline: &mut Pipeline) {
        self.is_forwarded_elsewhere = may_be;
        pipeline.set_forwarded_elsewhere(now, may_be);
    }

    pub(super) const fn is_forwarded_elsewhere(&self) -> bool {
        self.is_forwarded_elsewhere
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.often_until
    }
}

/// What is known of the peer's role now, and the groups whose packets it forwards by its own account.
fn know(now: Instant, roles: &Roles, peer: &Peer) -> (LastKnown, GroupSet) {
    let state_of = |group: GroupId| roles.peer(now, peer.id, group).map(|heartbeat| (group, heartbeat.state));
    let (mut is_received, mut is_present, mut claimed) = (false, false, GroupSet::EMPTY);
    for (group, state) in roles.groups().filter_map(state_of) {
        is_received = true;
        is_present |= state != State::Left;
        claimed = if state.forwards() { claimed.with(group) } else { claimed };
    }
    let known = match peer.last_known {
        _ if is_present => LastKnown::Present,
        _ if is_received => LastKnown::Left,
        LastKnown::Present => LastKnown::SilentSince(now),
        before => before,
    };
    (known, claimed)
}
