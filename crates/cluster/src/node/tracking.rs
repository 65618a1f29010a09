//! What the node reaches: its ports and the next hops behind them.
//!
//! The weights of what is not reached are added up for each group of shared addresses, and the sum is what
//! [`Roles`](crate::role::Roles) compare between nodes. Two nodes never notice the failure, or the return, of something
//! that both use at the same instant. So what counts depends on the node's state in the group:
//!
//! | | a port | a next hop |
//! |---|---|---|
//! | the node holds the group, or begins | counts as not reached while it is down | … once it left `probe_misses` probes unanswered |
//! | the node is standby | … and for `up_delay` after it came up | … as soon as it left one unanswered, and for `up_delay` after it came back |
//!
//! The active node is thus the last to lose what all nodes lose, and the first to have it back: the addresses move only for
//! what the active node alone has lost, and a port that goes up and down attracts nothing. Next hops behind a port that is down
//! are unknown: the port's weight counts, theirs does not.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use flow::{Instant, NodeId, PortId};

use super::event::{Consequence, Events, NodeEvent, Target};
use crate::forwarding::Forwarder;
use crate::group::GroupId;
use crate::role::{Roles, State};

/// Next hops that a node probes at most: those of further [`Tracked`] entries count as reached.
pub const NEXT_HOPS_TRACKED_MAX: usize = 64;
/// The largest weight of a tracked port or next hop. The sum of all weights fits the heartbeat's 16 bits.
pub const TRACKED_WEIGHT_MAX: u16 = 255;
const _: () = assert!((NEXT_HOPS_TRACKED_MAX + 64) * TRACKED_WEIGHT_MAX as usize <= u16::MAX as usize);

/// What is tracked, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrackingConfig {
    /// What counts for each group of shared addresses, in the groups' order; a group beyond the end tracks nothing.
    pub groups: Vec<Vec<Tracked>>,
    /// Time between two probes of a next hop.
    pub probe_interval: Duration,
    /// Probes in a row without an answer until a next hop counts as lost, at least 1.
    pub probe_misses: u8,
    /// How long something that came back must stay before a standby node counts it as reached.
    pub up_delay: Duration,
}

impl Default for TrackingConfig {
    /// Nothing is tracked; a lost next hop is noticed after about a second.
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            probe_interval: Duration::from_millis(300),
            probe_misses: 3,
            up_delay: Duration::from_secs(2),
        }
    }
}

/// Something that a node should reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracked {
    /// What.
    pub target: Target,
    /// How much it counts while it is not reached, up to [`TRACKED_WEIGHT_MAX`].
    pub weight: u16,
}

/// The state of a port's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// The interface is switched on and has carrier.
    pub is_up: bool,
    /// The link's speed in Mbit/s, where it is known.
    pub speed_mbps: Option<u32>,
}

/// A port, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortTrack {
    /// The port.
    pub port: PortId,
    /// Its link.
    pub link: LinkState,
    /// Since when it is up, or down.
    pub since: Instant,
    /// From when on a standby node counts it as reached.
    counts_at: Instant,
}

/// Whether a next hop answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextHopState {
    /// It has been probed too seldom to be known, or its port is down.
    Unknown,
    /// It answers.
    Reached,
    /// It left [`TrackingConfig::probe_misses`] probes in a row unanswered.
    Lost,
}

/// A next hop, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHopTrack {
    /// The port on whose link it is.
    pub port: PortId,
    /// Its address.
    pub address: IpAddr,
    /// Whether it answers.
    pub state: NextHopState,
    /// Since when.
    pub since: Instant,
    /// From when on a standby node counts it as reached.
    counts_at: Instant,
    /// When it was last probed.
    probed_at: Option<Instant>,
    /// Probes in a row without an answer.
    misses: u8,
}

/// How strictly reach is summed; see the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Judgement {
    /// What was reached counts as reached until it is lost for sure.
    Lenient,
    /// What is uncertain counts as not reached.
    Strict,
}

impl Judgement {
    const fn of(state: State) -> Self {
        match state {
            State::Standby | State::Left => Self::Strict,
            State::Init | State::TakingOver | State::Active | State::Leaving => Self::Lenient,
        }
    }
}

/// A change of what the node reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Down(Target),
    Up(Target),
}

/// Follows ports and next hops.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    config: TrackingConfig,
    ports: Vec<PortTrack>,
    next_hops: Vec<NextHopTrack>,
    /// When next hops are probed next; `None`: there are none.
    probe_at: Option<Instant>,
    /// When the sums were last taken.
    summed_at: Instant,
}

impl Tracking {
    /// Takes another configuration. What is known of ports, and of next hops that stay, is kept.
    pub(super) fn configure(&mut self, now: Instant, config: TrackingConfig) {
        let before = core::mem::take(&mut self.next_hops);
        for tracked in config.groups.iter().flatten() {
            let Target::NextHop(port, address) = tracked.target else { continue };
            let is_it = |hop: &&NextHopTrack| hop.port == port && hop.address == address;
            if self.next_hops.iter().any(|hop| is_it(&hop)) || self.next_hops.len() == NEXT_HOPS_TRACKED_MAX {
                continue;
            }
            let known = before.iter().find(is_it).copied();
            self.next_hops.push(known.unwrap_or(NextHopTrack {
                port,
                address,
                state: NextHopState::Unknown,
                since: now,
                counts_at: now,
                probed_at: None,
                misses: 0,
            }));
        }
        self.config = config;
        self.probe_at = (!self.next_hops.is_empty()).then_some(now);
    }

    /// The port's link is in this state from now on. Returns whether it went down or came up; when a port is first seen, only
    /// that it is down is a change.
    pub(super) fn handle_link(&mut self, now: Instant, port: PortId, link: LinkState) -> Option<Change> {
        let Some(known) = self.ports.iter_mut().find(|known| known.port == port) else {
            self.ports.push(PortTrack { port, link, since: now, counts_at: now });
            self.ports.sort_unstable_by_key(|known| known.port);
            self.forget_behind(now, port);
            return (!link.is_up).then_some(Change::Down(Target::Port(port)));
        };
        let was_up = core::mem::replace(&mut known.link, link).is_up;
        if was_up == link.is_up {
            return None;
        }
        let counts_at = if link.is_up { now + self.config.up_delay } else { now };
        (known.since, known.counts_at) = (now, counts_at);
        self.forget_behind(now, port);
        Some(if link.is_up { Change::Up(Target::Port(port)) } else { Change::Down(Target::Port(port)) })
    }

    /// The port went down or came up: nothing is known of the next hops behind it. They are probed at once.
    fn forget_behind(&mut self, now: Instant, port: PortId) {
        for hop in self.next_hops.iter_mut().filter(|hop| hop.port == port) {
            if hop.state != NextHopState::Unknown {
                (hop.state, hop.since) = (NextHopState::Unknown, now);
            }
            (hop.counts_at, hop.probed_at, hop.misses) = (now, None, 0);
            self.probe_at = Some(now);
        }
    }

    /// Takes note of the answers to the last probes, and sends the next, if it is time. Reports each next hop that was lost or
    /// is reached again.
    fn probe(&mut self, now: Instant, forwarder: &mut Forwarder, mut changed: impl FnMut(Change)) {
        if self.probe_at.is_none_or(|at| now < at) {
            return;
        }
        self.probe_at = Some(now + self.config.probe_interval);
        let (ports, config) = (&self.ports, &self.config);
        for hop in self.next_hops.iter_mut().filter(|hop| !is_down(ports, hop.port)) {
            if let Some(probed_at) = hop.probed_at {
                let is_answered = forwarder.confirmed_at(hop.port, hop.address).is_some_and(|at| probed_at <= at);
                hop.note(now, is_answered, config).into_iter().for_each(&mut changed);
            }
            hop.probed_at = Some(now);
            // A neighbour that does not answer may have another link address now.
            forwarder.probe_next_hop(now, hop.port, hop.address, hop.misses > 0);
        }
    }

    /// The weights of all that counts as not reached for the group, added up.
    fn unreached(&self, now: Instant, group: GroupId, state: State) -> u16 {
        let judgement = Judgement::of(state);
        let tracked = self.config.groups.get(group.index()).map_or(&[][..], Vec::as_slice);
        let is_unreached = |tracked: &&Tracked| match tracked.target {
            Target::Port(port) => self.is_port_unreached(now, port, judgement),
            Target::NextHop(port, address) => {
                let counts_itself = |other: &Tracked| other.target == Target::Port(port) && other.weight > 0;
                if self.is_port_unreached(now, port, judgement) {
                    !tracked_by(&self.config.groups, group).any(counts_itself)
                } else {
                    self.next_hops
                        .iter()
                        .find(|hop| hop.port == port && hop.address == address)
                        .is_some_and(|hop| hop.is_unreached(now, judgement))
                }
            }
        };
        tracked.iter().filter(is_unreached).fold(0, |sum, tracked| sum.saturating_add(tracked.weight))
    }

    fn is_port_unreached(&self, now: Instant, port: PortId, judgement: Judgement) -> bool {
        self.ports
            .iter()
            .find(|known| known.port == port)
            .is_some_and(|known| !known.link.is_up || (judgement == Judgement::Strict && now < known.counts_at))
    }

    /// When [`Tracking::probe`] or [`Tracking::unreached`] must be called though nothing happened.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ports = self.ports.iter().map(|port| port.counts_at);
        let settling = ports.chain(self.next_hops.iter().map(|hop| hop.counts_at)).filter(|at| self.summed_at < *at);
        settling.chain(self.probe_at).min()
    }

    /// Probes next hops that are due, and has the roles compare what this node reaches.
    pub(super) fn update(&mut self, now: Instant, roles: &mut Roles, forwarder: &mut Forwarder, events: &mut Events) {
        let mut changes = Vec::new();
        self.probe(now, forwarder, |change| changes.push(change));
        self.summed_at = now;
        for group in roles.groups() {
            let unreached = self.unreached(now, group, roles.state(group));
            roles.set_unreached(now, group, unreached);
        }
        changes.into_iter().for_each(|change| self.report(now, change, roles, events));
    }

    /// Reports a change, with what follows from it by the sums that the roles have.
    pub(super) fn report(&self, now: Instant, change: Change, roles: &Roles, events: &mut Events) {
        let event = match change {
            Change::Down(target) => NodeEvent::Unreached { target, consequence: self.consequence(now, target, roles) },
            Change::Up(target) => NodeEvent::Reached { target },
        };
        events.push(now, event);
    }

    /// What follows from the loss of `target`.
    fn consequence(&self, now: Instant, target: Target, roles: &Roles) -> Consequence {
        if !self.tracks(target) {
            return Consequence::NotTracked;
        }
        let forwarded = || roles.groups().filter(|group| roles.state(*group).forwards());
        if forwarded().next().is_none() {
            return Consequence::StandsBy;
        }
        let reaches_more = |peer: &NodeId| {
            forwarded().any(|group| {
                roles.peer(now, *peer, group).is_some_and(|heartbeat| {
                    let could_serve = heartbeat.synchronised && !heartbeat.passive && heartbeat.state == State::Standby;
                    could_serve && heartbeat.unreached < roles.unreached(group)
                })
            })
        };
        roles.peers().find(reaches_more).map_or(Consequence::NoPeerReachesMore, Consequence::PeerReachesMore)
    }

    fn tracks(&self, target: Target) -> bool {
        self.config.groups.iter().flatten().any(|tracked| tracked.target == target && tracked.weight > 0)
    }

    pub(super) fn ports(&self) -> &[PortTrack] {
        &self.ports
    }

    pub(super) fn next_hops(&self) -> &[NextHopTrack] {
        &self.next_hops
    }
}

impl NextHopTrack {
    /// The last probe was answered, or was not.
    fn note(&mut self, now: Instant, is_answered: bool, config: &TrackingConfig) -> Option<Change> {
        let target = Target::NextHop(self.port, self.address);
        if is_answered {
            self.misses = 0;
            let before = core::mem::replace(&mut self.state, NextHopState::Reached);
            if before != NextHopState::Reached {
                self.since = now;
            }
            if before == NextHopState::Lost {
                self.counts_at = now + config.up_delay;
                return Some(Change::Up(target));
            }
            return None;
        }
        self.misses = self.misses.saturating_add(1);
        if self.misses < config.probe_misses || self.state == NextHopState::Lost {
            return None;
        }
        (self.state, self.since) = (NextHopState::Lost, now);
        Some(Change::Down(target))
    }

    fn is_unreached(&self, now: Instant, judgement: Judgement) -> bool {
        match judgement {
            Judgement::Lenient => self.state == NextHopState::Lost,
            Judgement::Strict => self.state != NextHopState::Reached || self.misses > 0 || now < self.counts_at,
        }
    }
}

fn is_down(ports: &[PortTrack], port: PortId) -> bool {
    ports.iter().any(|known| known.port == port && !known.link.is_up)
}

fn tracked_by(groups: &[Vec<Tracked>], group: GroupId) -> impl Iterator<Item = &Tracked> {
    groups.get(group.index()).into_iter().flatten()
}

#[cfg(test)]
mod tests;
