//! Why a starting node must not take the shared addresses.
//!
//! A node that starts knows nothing of the others. Before it takes addresses it makes sure that no other host has them:
//!
//! - It probes for them ([`Forwarder::probe_addresses`](crate::forwarding::Forwarder::probe_addresses)) while it listens after its start. While
//!   another host defends one of them, the node is passive, and goes on probing.
//! - While it receives packets of a configured peer that it cannot authenticate or accept, it is passive too: that peer lives,
//!   may hold the addresses, and its heartbeats do not count. As soon as it has accepted a heartbeat of any peer, this counts
//!   no more: the cluster works, and what a third node's packets hide is found by probing.
//!
//! A node stops being a starting one when it first holds addresses. After an accepted heartbeat of a peer that holds the
//! addresses, defended addresses are as they should be: when that peer dies, nothing waits for probes.
//!
//! Two nodes that start together and reject each other, or cannot reach each other, must not both stay passive. Both probe; of
//! two that probe the one with the lower link address goes first, and the other then finds the addresses defended.

use core::time::Duration;

use flow::random::SplitMix64;
use flow::{Instant, NodeId};
use replication::secure::ChannelError;

use super::error::NodeError;
use super::event::{Events, NodeEvent, PassiveReason, Rejection};
use crate::forwarding::{AddressReport, AddressReportKind, Forwarder};
use crate::group::GroupSet;
use crate::role::{Heartbeats, Roles, State};

/// Probes that are sent while a starting node listens (RFC 5227 section 1.1: PROBE_NUM).
const PROBES_AT_START: u32 = 3;
/// Parts of the time for which a starting node listens; a probe is sent after each [`PARTS_PER_PROBE`], so that an answer to the
/// last one arrives before the time is over: at 0, 80 and 160 ms of 300 ms.
const PARTS_OF_START: u32 = 15;
const PARTS_PER_PROBE: u32 = 4;
/// A passive node probes this often, shortened or lengthened at random by up to a fifth.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const JITTER_SHARE: u64 = 5;
/// A reason counts so long after it was last found.
const REASON_LASTS: Duration = Duration::from_secs(3);
/// Probes without an answer after which a defended address is free.
const UNANSWERED_MIN: u8 = 2;

impl Rejection {
    /// Whether an error in a peer's packet shows that the two nodes are configured otherwise.
    const fn of(error: &NodeError) -> Option<Self> {
        match error {
            NodeError::Channel(ChannelError::Unprotected) => Some(Self::PlainText),
            NodeError::Channel(_) => Some(Self::NotAuthenticated),
            NodeError::NotSecured => Some(Self::Encrypted),
            NodeError::NotItsOwn { named, .. } => Some(Self::NamesAnotherNode(*named)),
            NodeError::Heartbeat(_) => Some(Self::Unreadable),
            _ => None,
        }
    }
}

/// What a starting node has found.
#[derive(Debug)]
pub(super) struct Passive {
    /// The node has held no addresses since its start.
    is_starting: bool,
    started_at: Instant,
    startup_hold: Duration,
    probes_sent: u32,
    probe_at: Instant,
    jitter: SplitMix64,
    /// An address that another host has, when that was last seen, and the probes since.
    defended: Option<(AddressReport, Instant, u8)>,
    /// A host that probes for the same address and goes first.
    contested: Option<(AddressReport, Instant)>,
    /// When a host was last seen to probe that comes after this node.
    outranked_at: Option<Instant>,
    rejected: Option<(NodeId, Rejection, Instant)>,
    /// Some peer's heartbeat was accepted since the start.
    has_accepted: bool,
    /// When a peer was last found to be down.
    peer_lost_at: Option<Instant>,
    /// What was reported last.
    reported: Option<PassiveReason>,
    looked_at: Instant,
}

impl Passive {
    /// Of a node that starts at `now` and listens for `startup_hold`.
    pub(super) const fn new(startup_hold: Duration, seed: u64, now: Instant) -> Self {
        Self {
            // A node that does not listen waits for no peer.
            is_starting: !startup_hold.is_zero(),
            started_at: now,
            startup_hold,
            probes_sent: 0,
            probe_at: now,
            jitter: SplitMix64::new(seed),
            defended: None,
            contested: None,
            outranked_at: None,
            rejected: None,
            has_accepted: false,
            peer_lost_at: None,
            reported: None,
            looked_at: now,
        }
    }

    /// Another worker decides.
    pub(super) const fn follow(&mut self) {
        self.is_starting = false;
    }

    /// Probes for the addresses, weighs what was found, and lets the roles know. To be called before the roles decide.
    pub(super) fn update(&mut self, now: Instant, roles: &mut Roles, forwarder: &mut Forwarder, events: &mut Events) {
        if !self.is_starting {
            return;
        }
        if roles.holds_any() {
            // What is found of the addresses from now on are conflicts.
            self.is_starting = false;
            forwarder.stop_probing();
            self.report(now, None, events);
            roles.set_passive(now, false);
            return;
        }
        while let Some(address_report) = forwarder.poll_address_report() {
            let is_held = roles.is_held_by_peer(now, address_report.group);
            self.note_address_report(now, address_report, is_held);
        }
        self.looked_at = now;
        self.forget(now);
        if self.takes_probe(now) {
            forwarder.probe_addresses(GroupSet::ALL);
        }
        let reason = self.reason(now);
        self.report(now, reason, events);
        roles.set_passive(now, reason.is_some());
    }

    /// Reports a reason once the probes of the start are over: a node that joins one that holds the addresses finds them
    /// defended until it has received a heartbeat.
    fn report(&mut self, now: Instant, reason: Option<PassiveReason>, events: &mut Events) {
        let is_over = self.probing_ends_at() <= now || reason.is_none();
        if is_over && self.reported != reason {
            self.reported = reason;
            events.push(now, NodeEvent::Passive(reason));
        }
    }

    /// A peer's packet was refused. Whether [`Passive::update`] is to follow.
    #[must_use]
    pub(super) fn note_rejected(&mut self, now: Instant, from: NodeId, error: &NodeError) -> bool {
        Rejection::of(error).is_some_and(|reason| self.reject(now, from, reason))
    }

    fn reject(&mut self, now: Instant, peer: NodeId, reason: Rejection) -> bool {
        let counts = self.is_starting && !self.has_accepted;
        if counts {
            let first = self.rejected.map_or((peer, reason), |(peer, reason, _)| (peer, reason));
            self.rejected = Some((first.0, first.1, now));
        }
        counts
    }

    /// A peer's heartbeats were read, before the roles weigh them. Whether [`Passive::update`] is to follow.
    #[must_use]
    pub(super) fn handle_heartbeats(&mut self, now: Instant, heartbeats: &Heartbeats, roles: &Roles) -> bool {
        if !self.is_starting {
            return false;
        }
        let Heartbeats { first, groups, .. } = heartbeats;
        if !roles.knows_any_of(heartbeats) {
            return self.reject(now, first.node, Rejection::GroupsDiffer);
        }
        self.note_accepted(first.state.holds_addresses() || groups.iter().any(|group| group.state.holds_addresses()));
        true
    }

    fn probing_ends_at(&self) -> Instant {
        self.started_at + self.startup_hold * (PARTS_PER_PROBE * PROBES_AT_START) / PARTS_OF_START
    }

    fn note_address_report(&mut self, now: Instant, address_report: AddressReport, is_held_by_peer: bool) {
        match address_report.kind {
            AddressReportKind::InUse if is_held_by_peer => {}
            AddressReportKind::InUse => {
                // The first host that was found is the one that is reported, as long as it is there.
                let first = self.defended.map_or(address_report, |(first, ..)| first);
                self.defended = Some((first, now, 0));
            }
            AddressReportKind::ProbedFirst => self.contested = Some((address_report, now)),
            AddressReportKind::ProbedSecond => self.outranked_at = Some(now),
        }
    }

    /// A peer's heartbeat was accepted; `holds`: the peer holds addresses.
    fn note_accepted(&mut self, holds: bool) {
        (self.has_accepted, self.rejected, self.contested) = (true, None, None);
        if holds {
            self.defended = None;
        }
    }

    /// A peer is down that was up: the host that was found before may have been that peer. It is there no longer once
    /// [`UNANSWERED_MIN`] probes are not answered, however short ago it answered one.
    pub(super) const fn note_lost_peer(&mut self, now: Instant) {
        self.peer_lost_at = Some(now);
    }

    /// Forgets what was found too long ago.
    fn forget(&mut self, now: Instant) {
        let is_over = |at: Instant| at + REASON_LASTS <= now;
        let may_be_lost_peer = |at: Instant| self.peer_lost_at.is_some_and(|lost_at| at <= lost_at);
        let is_old = |at: Instant| is_over(at) || may_be_lost_peer(at);
        self.defended = self.defended.filter(|(_, at, unanswered)| !is_old(*at) || *unanswered < UNANSWERED_MIN);
        self.contested = self.contested.filter(|(_, at)| !is_over(*at));
        self.outranked_at = self.outranked_at.filter(|at| !is_over(*at));
        self.rejected = self.rejected.filter(|(.., at)| !is_over(*at));
    }

    /// Why the node must not take the addresses now.
    fn reason(&self, now: Instant) -> Option<PassiveReason> {
        if !self.is_starting {
            return None;
        }
        // What two nodes that start together find of each other counts only if they have not come to know each other
        // meanwhile.
        let contested =
            self.contested.filter(|_| self.probing_ends_at() <= now).map(|(address_report, _)| address_report);
        if let Some(AddressReport { port, address, mac, .. }) =
            self.defended.map(|(address_report, ..)| address_report).or(contested)
        {
            return Some(PassiveReason::AddressDefended { port, address, mac });
        }
        match self.rejected {
            // The peer probes: it is passive itself, and comes after this node.
            _ if self.outranked_at.is_some() => None,
            Some((peer, reason, _)) => Some(PassiveReason::PeerRejected { peer, reason }),
            None => None,
        }
    }

    /// Why the node takes no shared addresses, for operators.
    pub(super) fn status(&self, now: Instant, roles: &Roles) -> Option<PassiveReason> {
        let is_listening = roles.states().any(|state| state == State::Init);
        let is_probing = self.is_starting && is_listening && now < self.probing_ends_at();
        if is_probing { Some(PassiveReason::Probing) } else { self.reason(now) }
    }

    /// A probe is sent if it is time. True: now.
    fn takes_probe(&mut self, now: Instant) -> bool {
        let is_at_start = self.probes_sent < PROBES_AT_START;
        let is_due = self.probe_at <= now && (is_at_start || self.is_under_suspicion());
        if is_due {
            self.probes_sent = self.probes_sent.saturating_add(1);
            if let Some((.., unanswered)) = &mut self.defended {
                *unanswered = unanswered.saturating_add(1);
            }
            let interval = if self.probes_sent < PROBES_AT_START {
                self.startup_hold * PARTS_PER_PROBE / PARTS_OF_START
            } else {
                let nanos = PROBE_INTERVAL.as_nanos() as u64;
                let share = nanos / JITTER_SHARE;
                Duration::from_nanos(self.jitter.between(nanos - share, nanos + share))
            };
            self.probe_at = now + interval;
        }
        is_due
    }

    /// There is a reason against taking the addresses, or would be if no other spoke for it.
    const fn is_under_suspicion(&self) -> bool {
        self.defended.is_some() || self.contested.is_some() || self.rejected.is_some()
    }

    /// When there is something to do though nothing comes.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if !self.is_starting {
            return None;
        }
        let probes = self.probes_sent < PROBES_AT_START || self.is_under_suspicion();
        let observed_at = [
            self.defended.filter(|(.., unanswered)| *unanswered >= UNANSWERED_MIN).map(|(_, at, _)| at),
            self.contested.map(|(_, at)| at),
            self.outranked_at,
            self.rejected.map(|(.., at)| at),
        ];
        let expiry = observed_at.into_iter().flatten().map(|at| at + REASON_LASTS).min();
        // Then what was found counts, and is reported.
        let end = Some(self.probing_ends_at()).filter(|at| *at > self.looked_at);
        [probes.then_some(self.probe_at), expiry, end].into_iter().flatten().min()
    }
}
