//! Peers that may forward packets though this node holds the addresses.
//!
//! A silent peer is dead or cut off; no rule can tell. If it is not known to stand by (it was drained, say), it may have taken
//! the addresses, announced them, and forward. Then neighbours that learnt its link address send their packets to it, also after
//! it has died. So the node that holds the addresses announces them often while such a peer is silent, and when it is back.
//!
//! Two nodes that are both active must not take the neighbours from each other again and again: a connection goes on where its
//! packets stay. The node that took over later keeps announcing, as it keeps the addresses when the split ends. The one that
//! was active before gives way: while it receives the other's claims it announces nothing; when they cease, the other is gone.
//! What a peer may have forwarded also makes this node's knowledge of its connections old: see the pipeline's `elsewhere`.

use core::time::Duration;

use flow::Instant;

use super::Node;
use crate::forwarding::ANNOUNCE_REFRESH_DEFAULT;
use crate::group::{GroupId, GroupSet};
use crate::role::State;

/// How often addresses are announced while a peer is silent: at first, for how long, and then.
const REFRESH_AFTER_LOSS: Duration = Duration::from_secs(1);
const REFRESHED_AFTER_LOSS: Duration = Duration::from_secs(60);
const REFRESH_WHILE_SILENT: Duration = Duration::from_secs(10);

/// What was last known of a peer's role.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum LastKnown {
    /// Nothing was received of it since the start.
    #[default]
    Nothing,
    /// It says that it has left the choice of who holds the addresses.
    Left,
    /// It says how it stands.
    Present,
    /// It has been silent since then, and may forward.
    SilentSince(Instant),
}

/// How often to announce addresses.
#[derive(Debug)]
pub(super) struct Announcing {
    /// While nothing happens; `None`: not at all.
    refresh: Option<Duration>,
    /// When addresses are announced less often again.
    often_until: Option<Instant>,
    /// A peer is silent that is not known to have left.
    is_anyone_silent: bool,
    /// This node held addresses when it last looked at its peers.
    held: bool,
    /// It held addresses already when a peer fell silent: of two active nodes it gives way.
    gives_way: bool,
    /// A peer may forward packets of this node's connections.
    pub(super) is_forwarded_elsewhere: bool,
}

impl Default for Announcing {
    fn default() -> Self {
        Self {
            refresh: Some(ANNOUNCE_REFRESH_DEFAULT),
            often_until: None,
            is_anyone_silent: false,
            held: false,
            gives_way: false,
            is_forwarded_elsewhere: false,
        }
    }
}

impl Announcing {
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.often_until
    }
}

impl Node {
    /// How often the addresses that this node holds are announced again; zero: never. Randomly shortened or lengthened by up to
    /// a tenth.
    pub fn set_announce_refresh(&mut self, now: Instant, interval: Duration) {
        self.announcing.refresh = (!interval.is_zero()).then_some(interval);
        self.set_refresh(now);
    }

    /// Looks how the peers stand, as far as the roles know. To be called after the roles have decided.
    pub(super) fn look_for_other_forwarders(&mut self, now: Instant) {
        if !self.place().leads() {
            return;
        }
        let held = self.roles.forwarded();
        self.forwarder.set_leaving(self.roles.groups_in(|state| state == State::Leaving));
        let mut may_forward = false;
        for index in 0..self.replication.peers.len() {
            let id = self.replication.peers[index].id;
            let said = |group: GroupId| self.roles.peer(now, id, group).map(|said| (group, said.state));
            let mut states = self.roles.groups().filter_map(said).peekable();
            let before = self.replication.peers[index].last_known;
            let known = if states.peek().is_none() {
                match before {
                    LastKnown::Present => LastKnown::SilentSince(now),
                    _ => before,
                }
            } else {
                let takes_part = |state: State| state != State::Left;
                let claims = |state: State| state.holds_addresses() || state == State::TakingOver;
                let (mut is_present, mut claimed) = (false, GroupSet::EMPTY);
                for (group, state) in states {
                    is_present |= takes_part(state);
                    claimed = if claims(state) { claimed.with(group) } else { claimed };
                }
                may_forward |= !claimed.and(held).is_empty();
                if matches!(before, LastKnown::SilentSince(_)) {
                    // Neighbours may have learnt the returning peer's link address. Of groups that it holds as well, the roles
                    // decide, and whoever keeps them announces them.
                    self.forwarder.announce(now, held.without(claimed));
                }
                if is_present { LastKnown::Present } else { LastKnown::Left }
            };
            if let LastKnown::SilentSince(since) = known {
                may_forward = true;
                if known != before {
                    self.announcing.gives_way = self.announcing.held;
                    self.announcing.often_until = Some(since + REFRESHED_AFTER_LOSS);
                }
            }
            self.replication.peers[index].last_known = known;
        }
        let is_anyone_silent =
            self.replication.peers.iter().any(|peer| matches!(peer.last_known, LastKnown::SilentSince(_)));
        self.announcing.often_until = self.announcing.often_until.filter(|until| is_anyone_silent && *until > now);
        self.announcing.is_anyone_silent = is_anyone_silent;
        self.announcing.gives_way &= is_anyone_silent && !held.is_empty();
        self.announcing.held = !held.is_empty();
        self.set_refresh(now);
        self.note_forwarded_elsewhere(now, may_forward);
    }

    fn set_refresh(&mut self, now: Instant) {
        let Announcing { often_until, is_anyone_silent, gives_way, .. } = self.announcing;
        let while_silent = if often_until.is_some() { REFRESH_AFTER_LOSS } else { REFRESH_WHILE_SILENT };
        let often = is_anyone_silent.then_some(while_silent);
        let refresh = often.into_iter().chain(self.announcing.refresh).min();
        self.forwarder.set_announce_refresh(now, refresh);
        // The other node's claims come as often as this node's would; two of them may be lost.
        self.forwarder.set_gives_way(gives_way.then(|| while_silent * 5 / 2));
    }

    pub(super) fn note_forwarded_elsewhere(&mut self, now: Instant, may_be: bool) {
        self.announcing.is_forwarded_elsewhere = may_be;
        self.pipeline.set_forwarded_elsewhere(now, may_be);
    }

    /// Reports hosts that claim this node's addresses.
    pub(super) fn report_conflicts(&mut self, now: Instant) {
        while let Some(conflict) = self.forwarder.poll_conflict() {
            self.events.push(now, super::NodeEvent::AddressConflict(conflict));
        }
    }
}
