//! A node's roles: an automaton for each group of shared addresses.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId};

use super::order::LatestHeartbeat;
use super::{
    Config, Event, GroupConfig, GroupHeartbeat, Heartbeat, Heartbeats, Order, RoleAutomaton, State, UnknownPeer,
};
use crate::group::{GROUPS_MAX, GroupId, GroupSet};

/// The states in order of their importance for a node that is in several of them.
const STATES_BY_RANK: [State; 6] =
    [State::Active, State::Leaving, State::TakingOver, State::Init, State::Standby, State::Left];

/// Chooses, together with those of the other nodes, who holds which group.
#[derive(Clone, Debug)]
pub struct Roles {
    automata: Vec<RoleAutomaton>,
    /// By what the nodes know the groups; empty where there is one.
    identities: Vec<u32>,
    /// The place of the next heartbeat.
    order: Order,
    /// The latest heartbeat of each peer.
    latest: Vec<(NodeId, LatestHeartbeat)>,
}

impl Roles {
    /// Roles that begin to listen now.
    ///
    /// # Panics
    /// With more than [`GROUPS_MAX`] groups, or with peers that [`RoleAutomaton::new`] refuses.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        Self::of(config, |config| RoleAutomaton::new(config, now))
    }

    /// Roles that decide nothing: they are set by [`Roles::follow`].
    ///
    /// # Panics
    /// As [`Roles::new`].
    #[must_use]
    pub fn following(config: Config, now: Instant) -> Self {
        Self::of(config, |config| RoleAutomaton::following(config, now))
    }

    fn of(config: Config, automaton: impl Fn(Config) -> RoleAutomaton) -> Self {
        assert!(config.groups.len() <= GROUPS_MAX);
        let identities = identities(&config);
        let order = Order { incarnation: config.incarnation, sequence: 0 };
        let latest = config.peers.iter().map(|peer| (*peer, LatestHeartbeat::default())).collect();
        Self { automata: each(config).into_iter().map(automaton).collect(), identities, order, latest }
    }

    /// The groups, in their order.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.automata.len()).map(GroupId::at)
    }

    /// Whether nodes that know each other's groups by these configurations' numbers mean the same.
    #[must_use]
    pub fn are_those_of(&self, config: &Config) -> bool {
        each(config.clone()).len() == self.automata.len() && identities(config) == self.identities
    }

    /// As [`RoleAutomaton::handle_peer_up`], for every group.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn handle_peer_up(&mut self, now: Instant, node: NodeId) -> Result<(), UnknownPeer> {
        self.automata.iter_mut().try_for_each(|automaton| automaton.handle_peer_up(now, node))
    }

    /// As [`RoleAutomaton::handle_peer_down`], for every group.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn handle_peer_down(&mut self, now: Instant, node: NodeId) -> Result<(), UnknownPeer> {
        self.automata.iter_mut().try_for_each(|automaton| automaton.handle_peer_down(now, node))
    }

    /// As [`RoleAutomaton::handle_peer_deaf`], for every group.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn handle_peer_deaf(&mut self, now: Instant, node: NodeId) -> Result<(), UnknownPeer> {
        self.automata.iter_mut().try_for_each(|automaton| automaton.handle_peer_deaf(now, node))
    }

    /// As [`RoleAutomaton::was_received_within`], of any group: they are sent together.
    #[must_use]
    pub fn was_received_within(&self, now: Instant, node: NodeId, age: Duration) -> bool {
        self.automata.iter().any(|automaton| automaton.was_received_within(now, node, age))
    }

    /// As [`RoleAutomaton::handle_absence`], for every group. From now on heartbeats count only if they answer one that this
    /// node has sent since, for half of the time for which peers are waited for: in the other half any will do, so that a node
    /// which its peers do not receive still learns how they stand before it takes anything.
    pub fn handle_absence(&mut self, now: Instant, absence: Duration) {
        let limits = self.automata.iter_mut().map(|automaton| automaton.handle_absence(now, absence));
        if let Some(until) = limits.fold(None, Option::max) {
            let next = Order { sequence: self.order.sequence + 1, ..self.order };
            let any_from = now + until.saturating_since(now) / 2;
            self.latest.iter_mut().for_each(|(_, latest)| latest.await_answer(next, any_from));
        }
    }

    /// As [`RoleAutomaton::set_informed`]: connections belong to no group.
    pub fn set_informed(&mut self, now: Instant, informed: bool) {
        self.automata.iter_mut().for_each(|automaton| automaton.set_informed(now, informed));
    }

    /// Whether a peer's heartbeats are not older than the latest ones that were admitted, nor than this node's last pause.
    pub fn admits(&mut self, now: Instant, said: &Heartbeats) -> bool {
        let own = self.order;
        let latest = self.latest.iter_mut().find(|(node, _)| *node == said.first.node);
        latest.is_none_or(|(_, latest)| {
            !latest.is_stale(now, said.answers) && latest.admit(said.order, said.answers, own)
        })
    }

    /// The heartbeats of a peer. Where both nodes have several groups, these go by their identities, and those that this node
    /// does not have are passed over; else the peer's first group is this node's first.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn handle_heartbeats(&mut self, now: Instant, said: &Heartbeats) -> Result<(), UnknownPeer> {
        if said.groups.is_empty() || self.identities.is_empty() {
            return self.automata[0].handle_heartbeat(now, &said.first);
        }
        for group in &said.groups {
            let Some(index) = self.identities.iter().position(|identity| *identity == group.identity) else { continue };
            let GroupHeartbeat { state, priority, term, unreached, .. } = *group;
            let heartbeat = Heartbeat { state, priority, term, unreached, ..said.first };
            self.automata[index].handle_heartbeat(now, &heartbeat)?;
        }
        Ok(())
    }

    /// Whether the heartbeats are about any of this node's groups, as [`Roles::handle_heartbeats`] reads them.
    #[must_use]
    pub fn knows_any_of(&self, said: &Heartbeats) -> bool {
        let is_known = |identity: u32| self.identities.contains(&identity);
        said.groups.is_empty() || self.identities.is_empty() || said.groups.iter().any(|group| is_known(group.identity))
    }

    /// As [`RoleAutomaton::set_synchronised`]: connections belong to no group.
    pub fn set_synchronised(&mut self, now: Instant, synchronised: bool) {
        self.automata.iter_mut().for_each(|automaton| automaton.set_synchronised(now, synchronised));
    }

    /// As [`RoleAutomaton::is_unconfirmed`], in any group.
    #[must_use]
    pub fn is_unconfirmed(&self, now: Instant) -> bool {
        self.automata.iter().any(|automaton| automaton.is_unconfirmed(now))
    }

    /// As [`RoleAutomaton::set_replicated`]: connections belong to no group.
    pub fn set_replicated(&mut self, now: Instant, has_replicated: bool) {
        self.automata.iter_mut().for_each(|automaton| automaton.set_replicated(now, has_replicated));
    }

    /// As [`RoleAutomaton::is_outranked`], in any group.
    #[must_use]
    pub fn is_outranked(&self) -> bool {
        self.automata.iter().any(RoleAutomaton::is_outranked)
    }

    /// As [`RoleAutomaton::set_filling`], for every group.
    pub fn set_filling(&mut self, now: Instant, is_filling: bool) {
        self.automata.iter_mut().for_each(|automaton| automaton.set_filling(now, is_filling));
    }

    /// As [`RoleAutomaton::set_unreached`], for one group; without effect for a group that does not exist.
    pub fn set_unreached(&mut self, now: Instant, group: GroupId, unreached: u16) {
        if let Some(automaton) = self.automata.get_mut(group.index()) {
            automaton.set_unreached(now, unreached);
        }
    }

    /// As [`RoleAutomaton::set_passive`], for every group: another host with one address shows that the configuration is wrong.
    pub fn set_passive(&mut self, now: Instant, passive: bool) {
        self.automata.iter_mut().for_each(|automaton| automaton.set_passive(now, passive));
    }

    /// As [`RoleAutomaton::could_serve`], of all groups.
    #[must_use]
    pub fn could_serve(&self) -> bool {
        self.automata.iter().all(RoleAutomaton::could_serve)
    }

    /// Whether this node takes nothing over: see [`Roles::set_passive`].
    #[must_use]
    pub fn is_passive(&self) -> bool {
        self.automata.iter().any(RoleAutomaton::is_passive)
    }

    /// As [`RoleAutomaton::unreached`].
    #[must_use]
    pub fn unreached(&self, group: GroupId) -> u16 {
        self.automata.get(group.index()).map_or(0, RoleAutomaton::unreached)
    }

    /// What [`Event::BecomeActive`] asked for is done for the group.
    pub fn handle_state_usable(&mut self, now: Instant, group: GroupId) {
        if let Some(automaton) = self.automata.get_mut(group.index()) {
            automaton.handle_state_usable(now);
        }
    }

    /// An operator wants the node to hand over all that it holds and take no part any more.
    pub fn leave(&mut self, now: Instant) {
        self.automata.iter_mut().for_each(|automaton| automaton.leave(now));
    }

    /// An operator wants the node back.
    pub fn rejoin(&mut self, now: Instant) {
        self.automata.iter_mut().for_each(|automaton| automaton.rejoin(now));
    }

    /// As [`RoleAutomaton::reconfigure`], with a configuration [of these groups](Roles::are_those_of).
    pub fn reconfigure(&mut self, now: Instant, config: Config) {
        debug_assert!(self.are_those_of(&config), "groups stay while a node works");
        for (automaton, config) in self.automata.iter_mut().zip(each(config)) {
            automaton.reconfigure(now, config);
        }
    }

    /// As [`RoleAutomaton::set_peers`], for every group. Roles that [follow](Roles::following) expect no heartbeats of peers.
    ///
    /// # Panics
    /// As [`RoleAutomaton::set_peers`].
    pub fn set_peers(&mut self, now: Instant, peers: &[NodeId]) {
        self.latest.retain(|(peer, _)| peers.contains(peer));
        let added: Vec<_> = peers.iter().filter(|id| self.peers().all(|peer| peer != **id)).copied().collect();
        self.latest.extend(added.into_iter().map(|peer| (peer, LatestHeartbeat::default())));
        let deciding = self.automata.iter_mut().filter(|automaton| !automaton.follows);
        deciding.for_each(|automaton| automaton.set_peers(now, peers));
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.automata.iter_mut().for_each(|automaton| automaton.handle_timeout(now));
    }

    /// When [`Roles::handle_timeout`] or [`Roles::poll_heartbeats`] next has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.automata.iter().filter_map(RoleAutomaton::poll_timeout).min()
    }

    /// The latest heartbeat of a peer that this node has admitted: what its own ones to that peer answer.
    #[must_use]
    pub fn latest_of(&self, node: NodeId) -> Option<Order> {
        self.latest.iter().find(|(of, _)| *of == node).and_then(|(_, latest)| latest.order())
    }

    /// The heartbeats that are due to every peer now: of all groups as soon as one is due. What they answer depends on the
    /// peer: see [`Roles::latest_of`].
    pub fn poll_heartbeats(&mut self, now: Instant) -> Option<Heartbeats> {
        if !self.automata.iter().any(|automaton| automaton.is_heartbeat_due(now)) {
            return None;
        }
        let said: Vec<Heartbeat> = self.automata.iter_mut().map(|automaton| automaton.next_heartbeat(now)).collect();
        let of_group = |(identity, said): (&u32, &Heartbeat)| GroupHeartbeat {
            identity: *identity,
            state: said.state,
            priority: said.priority,
            term: said.term,
            unreached: said.unreached,
        };
        let groups = self.identities.iter().zip(&said).map(of_group).collect();
        self.order.sequence += 1;
        Some(Heartbeats { first: said[0], groups, order: Some(self.order), answers: None })
    }

    /// What is to be done, and of which group.
    pub fn poll_event(&mut self) -> Option<(GroupId, Event)> {
        let groups = self.groups();
        groups.zip(&mut self.automata).find_map(|(group, automaton)| Some((group, automaton.poll_event()?)))
    }

    /// The lead's state of the group, and the group's latest take-over that it knows of.
    pub fn follow(&mut self, now: Instant, group: GroupId, state: State, term: u64) {
        if let Some(automaton) = self.automata.get_mut(group.index()) {
            automaton.follow(now, state, term);
        }
    }

    /// This node's state in the group; [`State::Left`] of one that there is not.
    #[must_use]
    pub fn state(&self, group: GroupId) -> State {
        self.automata.get(group.index()).map_or(State::Left, RoleAutomaton::state)
    }

    /// The states of all groups, in their order.
    pub fn states(&self) -> impl Iterator<Item = State> + '_ {
        self.automata.iter().map(RoleAutomaton::state)
    }

    /// The role of the whole node: it is active if it is for any group.
    #[must_use]
    pub fn summary(&self) -> State {
        let is_in = |state: &&State| self.states().any(|own| own == **state);
        STATES_BY_RANK.iter().find(is_in).copied().unwrap_or(State::Left)
    }

    /// The number of the group's latest take-over that this node knows of.
    #[must_use]
    pub fn term(&self, group: GroupId) -> u64 {
        self.automata.get(group.index()).map_or(0, RoleAutomaton::term)
    }

    /// This node's priority for the group.
    #[must_use]
    pub fn priority(&self, group: GroupId) -> u8 {
        self.automata.get(group.index()).map_or(0, RoleAutomaton::priority)
    }

    /// The groups whose addresses this node holds.
    #[must_use]
    pub fn held(&self) -> GroupSet {
        self.groups_in(State::holds_addresses)
    }

    /// The groups whose packets this node forwards.
    #[must_use]
    pub fn forwarded(&self) -> GroupSet {
        self.groups_in(State::forwards)
    }

    /// The groups for which this node is active.
    #[must_use]
    pub fn active(&self) -> GroupSet {
        self.groups_in(|state| state == State::Active)
    }

    /// Whether this node holds the addresses of any group.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        self.states().any(State::holds_addresses)
    }

    /// Whether this node forwards packets of any group.
    #[must_use]
    pub fn forwards_any(&self) -> bool {
        self.states().any(State::forwards)
    }

    /// Whether this node claims all connections, whichever node owned them: it holds the addresses of all groups. A node that
    /// shares the groups with others claims only the connections that it owns.
    #[must_use]
    pub fn claims_all(&self) -> bool {
        self.are_all(State::holds_addresses)
    }

    /// The groups that are in such a state.
    #[must_use]
    pub fn groups_in(&self, is_such: impl Fn(State) -> bool) -> GroupSet {
        self.groups().filter(|group| is_such(self.state(*group))).collect()
    }

    /// Whether all groups are in such a state.
    #[must_use]
    pub fn are_all(&self, is_such: impl Fn(State) -> bool) -> bool {
        self.states().all(is_such)
    }

    /// The number that nodes have in common if they are configured alike.
    #[must_use]
    pub fn configuration(&self) -> Option<u64> {
        self.automata[0].configuration()
    }

    /// The peers from which heartbeats are expected.
    pub fn peers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.latest.iter().map(|(peer, _)| *peer)
    }

    /// Whether a peer's current heartbeat shows that the peer holds the group.
    #[must_use]
    pub fn is_held_by_peer(&self, now: Instant, group: GroupId) -> bool {
        self.peers().filter_map(|peer| self.peer(now, peer, group)).any(|heartbeat| heartbeat.state.holds_addresses())
    }

    /// Whether a peer holds the group, or takes part and may come to hold it.
    #[must_use]
    pub fn may_be_held_by_peer(&self, now: Instant, group: GroupId) -> bool {
        self.peers().filter_map(|peer| self.peer(now, peer, group)).any(|heartbeat| heartbeat.state != State::Left)
    }

    /// What a peer last said of the group, while it counts.
    #[must_use]
    pub fn peer(&self, now: Instant, node: NodeId, group: GroupId) -> Option<Heartbeat> {
        self.automata.get(group.index())?.peer(now, node)
    }
}

/// A configuration for each group.
fn each(mut config: Config) -> Vec<Config> {
    let groups = core::mem::take(&mut config.groups);
    if groups.is_empty() {
        return alloc::vec![config];
    }
    let of = |GroupConfig { priority, preempt, .. }| Config { priority, preempt, ..config.clone() };
    groups.into_iter().map(of).collect()
}

/// A group that is alone needs no name.
fn identities(config: &Config) -> Vec<u32> {
    let groups = if config.groups.len() > 1 { &config.groups[..] } else { &[] };
    groups.iter().map(|group| group.identity).collect()
}

#[cfg(test)]
mod tests;
