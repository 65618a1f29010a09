//! What makes the node one of a cluster: time passes, roles change, operators give orders, other workers send messages.

use flow::conntrack::Tracker;
use flow::{Instant, PortId, WorkerId};

use super::Node;
use super::departure::{self, DRAIN_HANDOVER_MAX, DrainRefused, REPLICATED_WITHIN};
use super::error::ReloadError;
use super::event::NodeEvent;
use super::peer::Peer;
use super::reload::{Reconfiguration, Reevaluation, Reloaded};
use super::tracking::{LinkState, TrackingConfig};
use super::worker_link::{LeadView, WorkerMessage};
use crate::failure_detector;
use crate::forwarding::PathId;
use crate::group::GroupSet;
use crate::role::{Event, State};

/// Connections whose time has come that are ended in one call of [`Node::handle_timeout`].
const EXPIRIES_PER_TIMEOUT_MAX: usize = 256;

/// Time.
impl Node {
    /// Does what is due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.service_gap.note_service(now, &mut self.roles, &mut self.replication.peers);
        self.advance_departure(now);
        let claims_all = self.claims_all();
        self.replication.peers.handle_timeout(now, &mut self.pipeline, claims_all);
        self.handle_path_events(now);
        self.handle_session_events(now);

        self.advance_take_overs(now);
        self.tracking.update(now, &mut self.roles, &mut self.forwarder, &mut self.events);
        self.update_passive(now);
        self.note_replicated(now);
        self.roles.handle_timeout(now);
        self.handle_role_events(now);
        self.update_announcing(now);
        while let Some(conflict) = self.forwarder.poll_conflict() {
            self.events.push(now, NodeEvent::AddressConflict(conflict));
        }
        let has_rate = self.replication.path_budget.has_rate();
        self.replication.peers.report(now, &self.roles, has_rate, &mut self.events);
        if self.departure.is_given_up(now, &self.roles) {
            self.undrain(now);
            self.events.push(now, NodeEvent::DrainGivenUp);
        }

        self.forwarder.handle_timeout(now);
        self.reinject_replies(now);
        self.follow_state_peers(now);
        self.pipeline.serve_state_service(now);
        self.pipeline.set_live_owners(self.replication.peers.live_owners());
        self.reinject_waiting(now);
        let (peers, roles) = (&self.replication.peers, &self.roles);
        let copies = |owner| peers.copy_expiry(owner, roles);
        self.pipeline.sweep_fast_path(now, &mut self.forwarder);
        self.pipeline.serve_handshakes(now, &mut self.forwarder);
        self.more_expiries = self.pipeline.expire(now, EXPIRIES_PER_TIMEOUT_MAX, copies);
        self.reevaluation.step(now, &mut self.pipeline, &mut self.events);
        self.pipeline.send_resets(now, &mut self.forwarder);
        self.replication.replicate_changes(now, &mut self.pipeline);
        self.serve_tunnel(now);
        let forwards = self.roles.forwards_any();
        if self.replication.backups.is_some() && self.place().leads() {
            self.replication.peers.note_forwarding(now, &self.roles);
        }
        let event = self.replication.handle_timeout(now, &mut self.pipeline, forwards);
        self.events.extend(now, event);
        self.edges.handle_timeout(now);
    }

    /// When [`Node::handle_timeout`] has something to do next; `None` when only a packet can change that.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_sweeping = || self.replication.peers.iter().any(|peer| peer.resync.is_sweeping());
        if self.more_expiries || self.pipeline.is_reevaluating() || is_sweeping() {
            return Some(Instant::ZERO);
        }
        let free_at = self.replication.path_budget.free_at();
        let peers = self.replication.peers.iter().flat_map(|peer| peer.poll_timeouts(free_at));
        let parts = [
            self.roles.poll_timeout(),
            self.forwarder.poll_timeout(),
            self.held.poll_timeout(),
            self.pipeline.next_expiry(),
            self.pipeline.waiting_deadline(),
            self.pipeline.recovery.ends_at(),
            self.replication.poll_timeout(),
            self.pipeline.state_service_at(),
            self.workers.poll_timeout(),
            self.tracking.poll_timeout(),
            self.passive.poll_timeout(),
            self.announcing.poll_timeout(),
            self.departure.poll_timeout(self.service_gap.served_at()),
            self.tunnel.as_ref().and_then(|tunnel| tunnel.poll_timeout()),
            self.edges.poll_timeout(),
        ];
        peers.chain(parts).flatten().min()
    }
}

/// Peers and roles.
impl Node {
    /// Failure detectors may have found that a peer is up or down.
    pub(super) fn handle_path_events(&mut self, now: Instant) {
        if self.replication.peers.handle_path_events(now, &mut self.roles, &mut self.events) {
            self.passive.note_lost_peer(now);
            self.begin_recovery(now, false);
            self.follow_state_peers(now);
        }
        self.handle_role_events(now);
    }

    /// Sessions may have made progress, of this worker or of others.
    pub(super) fn handle_session_events(&mut self, now: Instant) {
        let forwarding = (self.roles.forwards_any(), self.pipeline.is_sharing());
        self.replication.handle_session_events(now, forwarding, &mut self.events);
        let is_informed = self.replication.peers.have_sent_all() && self.workers.are_synchronised();
        let (synchronised, is_filling) =
            (self.has_all_copies(), self.tunnel.as_ref().is_some_and(|tunnel| tunnel.is_filling_mirror()));
        self.roles.set_informed(now, is_informed);
        self.roles.set_filling(now, is_filling);
        self.roles.set_synchronised(now, synchronised);
        self.handle_role_events(now);
    }

    /// The automata of the roles learn whether an active node that outranks this one has its connections: an active node that
    /// was received again just now may still count as down.
    pub(super) fn note_replicated(&mut self, now: Instant) {
        if self.roles.holds_any() {
            let has_replicated = self.replication.has_replicated_to(|_| true) && self.workers.have_replicated_all();
            self.roles.set_replicated(now, has_replicated);
        }
    }

    pub(super) fn handle_role_events(&mut self, now: Instant) {
        while let Some((group, event)) = self.roles.poll_event() {
            match event {
                Event::BecomeActive { term } => {
                    // Replicas lie in the table that packets are looked up in: there is nothing to commit but to have the other
                    // workers forward.
                    self.awaiting_first_packet = Some(self.pipeline.counters().taken_over);
                    self.events.push(now, NodeEvent::BecameActive { group, term });
                    self.reevaluation.follow_roles(&self.roles, &mut self.pipeline);
                    self.begin_recovery(now, true);
                    if !self.workers.awaits_others(now, group, term) {
                        self.roles.handle_state_usable(now, group);
                    }
                }
                Event::AnnounceAddresses { term } => {
                    self.forwarder.set_held(now, self.roles.held());
                    self.forwarder.announce(now, GroupSet::EMPTY.with(group));
                    self.events.push(now, NodeEvent::AddressesAnnounced { group, term });
                }
                Event::BecomeStandby => {
                    self.workers.cancel(group);
                    self.replication.flush_deferred(now, &self.pipeline, !self.departure.is_in_progress());
                    self.forwarder.set_held(now, self.roles.held());
                    if self.departure.is_in_progress() && !self.roles.may_be_held_by_peer(now, group) {
                        self.forwarder.withdraw_routers(now, GroupSet::EMPTY.with(group));
                    }
                    self.follow_roles(now);
                    self.give_away(now);
                    self.events.push(now, NodeEvent::BecameStandby { group });
                }
            }
        }
    }

    /// The roles decide for which groups this node forwards now: it re-evaluates connections, or is standby.
    fn follow_roles(&mut self, now: Instant) {
        self.reevaluation.follow_roles(&self.roles, &mut self.pipeline);
        self.pipeline.set_fast_path_groups(self.roles.forwarded(), self.is_alone());
        if !self.roles.forwards_any() {
            self.replication.stand_by(now, &mut self.pipeline);
        }
    }

    /// A group is another node's from now on, and this node goes on forwarding others.
    fn give_away(&mut self, now: Instant) {
        if self.roles.forwards_any() {
            self.replication.give_away(now);
            self.begin_recovery(now, false);
        }
    }

    /// This node has taken over, or a peer has died: a recovery begins if this node forwards.
    fn begin_recovery(&mut self, now: Instant, has_taken_over: bool) {
        if self.roles.forwards_any() {
            let event = self.replication.begin_recovery(now, &mut self.pipeline, has_taken_over);
            self.events.extend(now, event);
        }
    }

    /// Weighs whether this node, which has just started, must not take addresses.
    pub(super) fn update_passive(&mut self, now: Instant) {
        self.passive.update(now, &mut self.roles, &mut self.forwarder, &mut self.events);
    }

    /// Adapts how often addresses are announced to how the peers stand. To be called after the roles have decided.
    pub(super) fn update_announcing(&mut self, now: Instant) {
        if self.place().leads() {
            let peers = &mut self.replication.peers;
            self.announcing.update(now, &self.roles, peers, &mut self.forwarder, &mut self.pipeline);
        }
    }
}

/// Operators.
impl Node {
    /// Gives the addresses up in good order, so that the peer takes them before this node ends.
    pub fn leave(&mut self, now: Instant) {
        self.departure.give_up_at(None);
        self.depart(now);
    }

    /// Hands the addresses over, if this node holds them, and takes no part any more until [`Node::undrain`]. Forced, it
    /// does so even if no peer takes them.
    ///
    /// # Errors
    /// Why that would lose connections; the node goes on as before.
    pub fn drain(&mut self, now: Instant, is_forced: bool) -> Result<(), DrainRefused> {
        if !is_forced {
            departure::check_drain(&self.status(now))?;
            if self.roles.states().any(|state| matches!(state, State::Active | State::TakingOver)) {
                self.departure.give_up_at(Some(now + DRAIN_HANDOVER_MAX));
            }
        }
        self.depart(now);
        Ok(())
    }

    /// Takes part again: is standby, or goes on holding the addresses if no peer has taken them yet.
    pub fn undrain(&mut self, now: Instant) {
        self.departure.give_up_at(None);
        self.departure.end(&mut self.replication);
        self.roles.rejoin(now);
        self.handle_role_events(now);
    }

    fn depart(&mut self, now: Instant) {
        let until = if self.roles.holds_any() { now + REPLICATED_WITHIN } else { now };
        self.departure.begin(now, until, &mut self.replication, &self.pipeline);
        self.advance_departure(now);
    }

    /// Gives the addresses up once the peers have everything, or it took too long.
    fn advance_departure(&mut self, now: Instant) {
        let (replication, workers) = (&self.replication, &self.workers);
        let has_replicated_all = || replication.has_replicated_to(Peer::is_up) && workers.have_replicated_all();
        if self.departure.becomes_ready(now, has_replicated_all) && self.place().leads() {
            self.roles.leave(now);
            self.handle_role_events(now);
            self.update_announcing(now);
        }
        self.departure.note_claims(&self.replication, &self.pipeline);
    }

    /// Whether a node that leaves may end: it holds no addresses, its peers have acknowledged everything, and own the connections that
    /// they are to claim.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let has_handed_over = self.departure.has_handed_over() && self.workers.have_handed_over();
        !self.holds_addresses() && !self.has_unacknowledged() && has_handed_over
    }

    /// Takes another configuration. Connections go on, whatever it allows, unless it asks for their re-evaluation.
    ///
    /// # Errors
    /// It cannot be taken; nothing has changed.
    pub fn reload(&mut self, now: Instant, new: Reconfiguration) -> Result<Reloaded, ReloadError> {
        new.check(self.id, &self.pipeline, &self.roles, &self.forwarder, &self.replication)?;
        new.apply_to_peers(now, self.id, &self.pipeline, &mut self.replication.peers)?;
        new.security.iter().for_each(|security| self.edges.renew_security(now, security));
        if let (Some(backups), Some(shape)) = (&mut self.replication.backups, new.backups) {
            backups.set_shape(now, shape);
        }
        self.roles.set_peers(now, &new.peer_ids());
        let announces = self.forwarder.reconfigure(now, new.forwarding)?;
        self.pipeline.renew(Tracker::new(new.tracker), new.chain);
        self.pipeline.invalidate_fast_path();
        self.replication.selection = new.selection;
        self.replication.hold_first_reply = new.hold_first_reply;
        self.pipeline.set_wait_for_peer(new.wait_for_peer);
        match new.reevaluation {
            Reevaluation::AsBefore => {}
            Reevaluation::Keep => self.reevaluation.cancel(&mut self.pipeline),
            Reevaluation::Reevaluate => self.reevaluation.require(true, &self.roles, &mut self.pipeline),
        }
        if new.translates_otherwise {
            self.reevaluation.require(false, &self.roles, &mut self.pipeline);
        }
        // Last, because it may make this node active, or another.
        self.roles.reconfigure(now, new.role);
        self.handle_role_events(now);
        Ok(Reloaded { announces, reevaluates: self.pipeline.is_reevaluating() })
    }

    /// An input of a function has changed, for example the health of a backend: connections that may not continue end, without
    /// regard to the rules.
    pub fn handle_input_change(&mut self) {
        self.reevaluation.require(false, &self.roles, &mut self.pipeline);
    }

    /// Has the node track the targets of `config` from now on. To be called for the lead worker alone, and again after each
    /// [`Node::reload`].
    pub fn set_tracking(&mut self, now: Instant, config: TrackingConfig) {
        self.tracking.configure(now, config);
        self.tracking.update(now, &mut self.roles, &mut self.forwarder, &mut self.events);
        self.handle_role_events(now);
    }

    /// A port's link is in this state from now on. What follows is in the datagrams that are to be polled.
    pub fn handle_link(&mut self, now: Instant, port: PortId, link: LinkState) {
        self.pipeline.invalidate_fast_path();
        let change = self.tracking.handle_link(now, port, link);
        self.tracking.update(now, &mut self.roles, &mut self.forwarder, &mut self.events);
        if let Some(change) = change {
            self.tracking.report(now, change, &self.roles, &mut self.events);
        }
        self.handle_role_events(now);
    }

    /// Has failures detected also over the links of these ports, each named as the same link's port is on the peers. The lead
    /// alone detects them, and chooses the path that carries the updates of all workers; paths that there are already go on. `config` is for the sessions of new ones.
    ///
    /// # Errors
    /// The configuration of the sessions cannot be used.
    pub fn set_service_paths(
        &mut self,
        ports: &[(PortId, PathId)],
        config: failure_detector::Config,
        seed: u64,
    ) -> Result<(), failure_detector::ConfigError> {
        config.check()?;
        self.forwarder.set_paths(self.id, ports.to_vec());
        if self.place().leads() {
            for peer in &mut self.replication.peers {
                peer.paths.set_service(peer.id, ports, config, seed);
            }
        }
        Ok(())
    }
}

/// Other workers.
impl Node {
    /// The next message to another worker, and its receiver. To be polled, and to be carried, before the packets leave that were
    /// handled last: then no reply overtakes the message that redirects it.
    pub fn poll_worker_message(&mut self) -> Option<(WorkerId, WorkerMessage)> {
        let place = self.place();
        if place.is_alone() {
            return None;
        }
        self.workers.collect(&mut self.pipeline, &mut self.forwarder);
        let (peers, is_departing) = (&self.replication.peers, self.departure.is_in_progress());
        if place.leads() {
            let is_leaving = is_departing || self.roles.is_outranked();
            let is_forwarded_elsewhere = self.announcing.is_forwarded_elsewhere();
            self.workers.publish(place, &self.roles, peers, is_leaving, is_forwarded_elsewhere);
        } else {
            let has_replicated_all = is_departing && self.replication.has_replicated_to(Peer::is_up);
            let has_handed_over = self.departure.has_handed_over();
            self.workers.report(peers.have_been_copied(), has_replicated_all, has_handed_over);
        }
        self.workers.poll()
    }

    /// A message from another worker.
    pub fn handle_worker_message(&mut self, now: Instant, from: WorkerId, message: WorkerMessage) {
        match message {
            WorkerMessage::LeadView(view) => self.follow_lead(now, &view),
            WorkerMessage::Report(report) => {
                if self.workers.note_report(from, report) {
                    self.advance_take_overs(now);
                    self.handle_session_events(now);
                }
            }
            WorkerMessage::Neighbour(learning) => self.forwarder.handle_learning(now, &learning),
            WorkerMessage::Redirect(redirect) => {
                self.pipeline.handle_redirect(from, redirect);
                self.reinject_waiting(now);
                self.replication.replicate_changes(now, &mut self.pipeline);
            }
            WorkerMessage::Announcement(announcement) => {
                self.pipeline.handle_announcement(now, &announcement);
                self.replication.replicate_changes(now, &mut self.pipeline);
            }
        }
    }

    /// The lead worker decides: what it knows of peers and roles counts here.
    fn follow_lead(&mut self, now: Instant, view: &LeadView) {
        self.departure.follow(now, view.is_leaving, &mut self.replication, &self.pipeline);
        self.announcing.note_forwarded_elsewhere(now, view.is_forwarded_elsewhere, &mut self.pipeline);
        let is_any_lost = view.apply_to_peers(&mut self.replication.peers);
        self.follow_state_peers(now);
        let before = self.roles.forwarded();
        self.workers.follow_roles(now, view, &mut self.roles);
        let after = self.roles.forwarded();
        self.forwarder.set_held(now, after);
        if !after.without(before).is_empty() {
            self.awaiting_first_packet = Some(self.pipeline.counters().taken_over);
            self.begin_recovery(now, true);
        } else if is_any_lost {
            self.begin_recovery(now, false);
        }
        if !before.without(after).is_empty() {
            self.replication.flush_deferred(now, &self.pipeline, !self.departure.is_in_progress());
        }
        if before != after {
            self.follow_roles(now);
        }
        if !before.without(after).is_empty() {
            self.give_away(now);
        }
    }

    /// Goes on with the take-overs for which all workers are ready, or one has been waited for too long.
    fn advance_take_overs(&mut self, now: Instant) {
        while let Some(group) = self.workers.poll_usable(now, &self.roles, &mut self.events) {
            self.roles.handle_state_usable(now, group);
            self.handle_role_events(now);
        }
    }
}
