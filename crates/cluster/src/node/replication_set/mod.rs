//! What this node replicates, and to whom: the sessions with its peers, the connections that are deferred, and what goes by a
//! filter.
//!
//! ```text
//!   pipeline ─ changes ─► on_change ─┬─ withheld: nothing, until the connection is answered
//!                                    ├─ deferred: nothing, until the connection is old enough
//!                                    ├─ in the filter: the compact sender ═══════► peers' receivers
//!                                    └─ precise: marked in every session ═══════► peers' tables
//! ```

mod backups;
pub(super) mod compact;
mod deferral;
mod members;
mod over_paths;
mod unanswered;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::conntrack::{Change, TcpState};
use flow::serial::is_before;
use flow::table::Slot;
use flow::wire::ip_protocol;
use flow::{Connection, Instant, NodeId, Tuple};
use replication::deferral::{Config, ConfigError};
use replication::representation::precise::{self, Ended};
use replication::representation::{Selection, Start, is_worth_replicating};
use replication::{Handle, Link, Session, SessionStatus};

use super::error::NodeError;
use super::event::{Events, NodeEvent};
use super::peer::{self, Peer, sessions, sessions_with};
use super::peers::Peers;
use super::store::{ReplicaStore, holding};
use crate::pipeline::{FilterMatch, Pipeline, TableChange};

pub(super) use backups::Backups;
pub use backups::{BACKUPS_MAX, BackupsConfig, BackupsShape, BackupsStatus};
use compact::{Compact, recovery_lookup};
pub(super) use deferral::Deferral;
use deferral::{LOOKS_PER_TIMEOUT_MAX, Verdict};
use members::{SLOTS_PER_TIMEOUT_MAX, is_claimed_once_lost};
pub(super) use over_paths::PathBudget;
pub use over_paths::SERVICE_PATH_BYTES_PER_S_DEFAULT;
pub(super) use unanswered::Unanswered;

/// What this node replicates, and to whom.
pub(super) struct ReplicationSet {
    pub(super) id: NodeId,
    pub(super) selection: Selection,
    /// How long a connection's first reply waits until a backup has the connection.
    pub(super) hold_first_reply: Duration,
    pub(super) peers: Peers,
    /// The place of the peer whose session sends next.
    pub(super) next_session: usize,
    /// Connections that are not replicated because they are not answered.
    pub(super) unanswered: Unanswered,
    /// Connections that are replicated only once they have lived for a while, if any are.
    pub(super) deferral: Option<Box<Deferral>>,
    /// What connections are replicated compactly by, if they are.
    pub(super) compact: Option<Box<Compact>>,
    /// The peers that each connection is replicated to, if they are not all.
    pub(super) backups: Option<Box<Backups>>,
    pub(super) attributes: Vec<u8>,
    /// The rate of updates over service paths.
    pub(super) path_budget: PathBudget,
}

/// Updates to the peers, and from them.
impl ReplicationSet {
    /// Replicates what the pipeline changed.
    pub(super) fn replicate_changes(&mut self, now: Instant, pipeline: &mut Pipeline) {
        let changes = pipeline.take_changes();
        for change in &changes {
            self.on_change(now, pipeline, change);
        }
        pipeline.return_changes(changes);
    }

    /// The table has changed: marks what the peers need of it.
    fn on_change(&mut self, now: Instant, pipeline: &Pipeline, change: &TableChange) {
        let is_awaited = !self.hold_first_reply.is_zero();
        let verdict = self
            .deferral
            .as_deref_mut()
            .map_or(Verdict::Replicate, |deferral| deferral.on_change(now, pipeline, change, self.id, is_awaited));
        let verdict = self.unanswered.on_change(pipeline, change, self.id, is_awaited, verdict);
        match (verdict, change) {
            (Verdict::Replicate, _) => self.replicate(now, pipeline, change),
            (
                Verdict::BeginAndReplicate,
                TableChange::FunctionsChanged { slot }
                | TableChange::TakenOver { slot }
                | TableChange::Claimed { slot, .. }
                | TableChange::Pulled { slot, .. },
            ) => {
                self.on_begun(now, pipeline, *slot);
                self.replicate(now, pipeline, change);
            }
            (Verdict::Begin, TableChange::Changed { slot, .. }) => self.on_begun(now, pipeline, *slot),
            // The slot may have held a replica of which the sessions still know something.
            (Verdict::Defer, TableChange::Began { slot }) => self.forget(*slot),
            (Verdict::EndUnreplicated, TableChange::Ended { slot, ended }) => {
                self.attributes.clear();
                precise::encode_ended(ended, &mut self.attributes);
                for session in sessions(&mut self.peers) {
                    session.mark_deleted(Handle(slot.0), &self.attributes);
                }
            }
            _ => {}
        }
    }

    fn replicate(&mut self, now: Instant, pipeline: &Pipeline, change: &TableChange) {
        match change {
            TableChange::Began { slot } => self.on_begun(now, pipeline, *slot),
            TableChange::Copied { slot } => {
                let is_own = pipeline.connection(*slot).is_some_and(|connection| connection.owner == self.id);
                self.backups.iter_mut().filter(|_| !is_own).for_each(|backups| backups.clear(*slot));
                self.compact.iter_mut().for_each(|compact| compact.note_replica(pipeline, *slot));
                self.note_copied(pipeline, *slot);
            }
            TableChange::TakenOver { slot } | TableChange::Claimed { slot, .. } | TableChange::Pulled { slot, .. } => {
                if let Some(backups) = &mut self.backups {
                    let claimed_from =
                        if let TableChange::Claimed { former, .. } = change { Some(*former) } else { None };
                    backups.take_over(self.id, pipeline, &self.peers, *slot, claimed_from);
                    if let TableChange::Pulled { from, former, .. } = change {
                        for node in [*from, *former].into_iter().filter(|node| *node != self.id) {
                            backups.add(*slot, node);
                        }
                    }
                }
                self.note_copied(pipeline, *slot);
                if !self.is_in_filter(|compact| compact.replicate(now, pipeline, *slot)) {
                    self.on_taken_over(pipeline, *slot);
                }
            }
            TableChange::FunctionsChanged { slot } => {
                self.note_copied(pipeline, *slot);
                if !self.is_in_filter(|compact| compact.replicate_functions(now, pipeline, *slot)) {
                    self.mark_changed(*slot, false);
                }
            }
            TableChange::Changed { slot, change, previous_state } => {
                let Some(connection) = pipeline.connection(*slot) else { return };
                let (protocol, state) = (connection.original.protocol, connection.protocol.state);
                let is_worth = is_worth_replicating(self.selection, protocol, *previous_state, state, *change);
                let peers = self.peers.len();
                if !self.is_in_filter(|compact| compact.replicate_change(now, pipeline, *slot, is_worth, peers))
                    && (is_worth || is_needed_by_peers(connection, *change))
                {
                    self.mark_changed(*slot, false);
                }
            }
            TableChange::Ended { slot, ended } => {
                let compact = self.compact.as_deref_mut();
                if compact.is_none_or(|compact| compact.remove(pipeline, *slot, &ended.original)) {
                    self.on_ended(*slot, ended);
                }
            }
            TableChange::Displaced { slot, original } => {
                self.backups.iter_mut().for_each(|backups| backups.clear(*slot));
                if let Some(compact) = &mut self.compact {
                    let _ = compact.remove(pipeline, *slot, original);
                }
            }
            TableChange::Refused { to, ended } => self.send_end(*to, ended),
        }
    }

    /// A message of a peer's session.
    ///
    /// # Errors
    /// Why the session did not take it.
    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        claims_all: bool,
        from: NodeId,
        datagram: &[u8],
    ) -> Result<(), NodeError> {
        self.remember_unsent_ends(now, pipeline);
        let place = self.peers.place(from)?;
        if let Some(theirs) = self.peers[place].refused {
            let ours = pipeline.place().steering.workers();
            return Err(NodeError::WorkersDiffer { peer: from, theirs: theirs.workers, ours });
        }
        let Some((session, mut store)) = self.session(pipeline, claims_all, place) else { return Ok(()) };
        Ok(session.handle_datagram(now, datagram, &mut store)?)
    }

    /// A compact datagram from a peer.
    ///
    /// # Errors
    /// Why it was not taken.
    pub(super) fn handle_compact(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        forwards: bool,
        from: NodeId,
        datagram: &[u8],
    ) -> Result<Option<NodeEvent>, NodeError> {
        let Some(compact) = &mut self.compact else { return Err(NodeError::NotCompact(from)) };
        compact.handle_datagram(now, pipeline, &mut self.peers, forwards, from, datagram)
    }

    /// Passes on what happened to the sessions. `forwards`: this node forwards packets of some group. `is_sharing`: others forward beside
    /// it.
    pub(super) fn handle_session_events(
        &mut self,
        now: Instant,
        (forwards, is_sharing): (bool, bool),
        events: &mut Events,
    ) {
        for place in 0..self.peers.len() {
            let (peer, mut compact) = (&mut self.peers[place], self.compact.as_deref_mut());
            let id = peer.id;
            let has_restarted = peer.report_session_events(now, events, |event| {
                compact.iter_mut().for_each(|compact| compact.note_session(now, id, event));
            });
            if has_restarted
                && (!forwards || is_sharing)
                && let Some(compact) = &mut self.compact
            {
                compact.keep_filter_of_restarted(now, &mut self.peers, id);
            }
        }
        self.peers.note_arrivals();
        self.peers.iter_mut().for_each(Peer::note_sent_all);
    }

    /// The next datagram of a session or a filter, the peers in turn.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        claims_all: bool,
        buffer: &mut Vec<u8>,
    ) -> Option<NodeId> {
        let count = self.peers.len();
        let first = self.next_session;
        for place in (0..count).map(|offset| (first + offset) % count) {
            if !self.peers[place].takes_updates() || self.route_of(place).is_some() {
                continue;
            }
            let Some((session, mut store)) = self.session(pipeline, claims_all, place) else { continue };
            session.set_prefers_new(false);
            if session.poll_transmit(now, &mut store, buffer) {
                self.next_session = (place + 1) % count;
                return Some(self.peers[place].id);
            }
        }
        let has_rate = self.uses_service_paths();
        let is_meant = |peer: &Peer| !(has_rate && peer.service_route().is_some());
        let compact = self.compact.as_mut();
        compact.and_then(|compact| compact.poll_transmit(now, &mut self.peers, is_meant, buffer))
    }

    /// The session with a peer, and the table as it sees it.
    pub(super) fn session<'a>(
        &'a mut self,
        pipeline: &'a mut Pipeline,
        claims_all: bool,
        place: usize,
    ) -> Option<(&'a mut Session, ReplicaStore<'a>)> {
        let Peer { id, session, resync, replica, .. } = &mut self.peers[place];
        let store = ReplicaStore {
            node: self.id,
            peer: *id,
            pipeline,
            resync,
            counters: replica,
            claims_all,
            cells: self.compact.as_mut().map(|compact| &mut compact.cells),
            backups: self.backups.as_deref_mut(),
            deferral: self.deferral.as_deref(),
            unanswered: &self.unanswered,
        };
        Some((session.as_mut()?, store))
    }

    /// Does what is due of what is deferred, of the backups, and of what is replicated compactly. Returns what happened to a recovery.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        forwards: bool,
    ) -> Option<NodeEvent> {
        if let Some(deferral) = &mut self.deferral {
            deferral.insertion.handle_timeout(now);
            self.look_at_deferred(now, pipeline, LOOKS_PER_TIMEOUT_MAX);
        }
        if let Some(backups) = &mut self.backups {
            // A peer without state service would drop packets of connections that it does not have. One that has sent no heartbeat yet does
            // not forward.
            let has_service = pipeline.has_state_service();
            let needs_all = |peer: &Peer| has_service && peer.can_back_up() && peer.has_state_service == Some(false);
            backups.set_complete(now, self.peers.iter().any(needs_all));
            backups.follow(now, self.id, &self.peers, forwards);
            backups.handle_timeout(now, self.id, pipeline, &mut self.peers);
            self.replicate_changes(now, pipeline);
        }
        let compact = self.compact.as_deref_mut();
        let event = compact.and_then(|compact| compact.handle_timeout(now, pipeline, &mut self.peers, forwards));
        self.remember_unsent_ends(now, pipeline);
        event
    }

    /// When deferral, the backups or compact replication have something to do next. Sessions have their own timers.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let deferral = self.deferral.as_ref().and_then(|deferral| deferral.insertion.poll_timeout());
        let free_at = if self.uses_service_paths() { self.path_budget.free_at() } else { Instant::ZERO };
        let compact = self.compact.as_ref().and_then(|compact| compact.poll_timeout()).map(|at| at.max(free_at));
        let backups = self.backups.as_ref().and_then(|backups| backups.poll_timeout());
        [deferral, compact, backups].into_iter().flatten().min()
    }
}

/// Unanswered connections, deferral, and a departure for which all is replicated.
impl ReplicationSet {
    /// From now on connections are replicated from this packet on. Those that are withheld now are replicated if that differs from before.
    pub(super) fn set_start(&mut self, now: Instant, pipeline: &Pipeline, start: Start) {
        if self.unanswered.start() != start {
            self.replicate_unanswered(now, pipeline);
            self.unanswered.set_start(start);
            let is_of_established = start == Start::Established;
            self.compact.iter_mut().for_each(|compact| compact.set_of_established(is_of_established));
        }
    }

    /// Replicates all connections that nobody has answered, unless they are deferred.
    fn replicate_unanswered(&mut self, now: Instant, pipeline: &Pipeline) {
        for slot in self.unanswered.take_all() {
            if !self.is_deferred(slot) {
                self.on_begun(now, pipeline, slot);
            }
        }
    }

    /// Connections that are not replicated because they are not answered.
    pub(super) const fn unanswered(&self) -> u32 {
        self.unanswered.len()
    }

    /// From now on connections are deferred as configured; `None`: they are all replicated as soon as they begin. Those that
    /// are deferred now are replicated if the configuration differs from the one before.
    ///
    /// # Errors
    /// The configuration is unsound; nothing has changed.
    pub(super) fn set_deferral(
        &mut self,
        now: Instant,
        pipeline: &Pipeline,
        config: Option<Config>,
    ) -> Result<(), ConfigError> {
        config.iter().try_for_each(Config::check)?;
        if self.deferral.as_ref().map(|deferral| deferral.insertion.config()) != config {
            self.replicate_deferred(now, pipeline);
            let connections_max = pipeline.table().capacity();
            self.deferral = config.map(|config| Box::new(Deferral::new(config, connections_max, now)));
        }
        Ok(())
    }

    /// Whether the connection in the slot is not replicated for now.
    pub(super) fn is_deferred(&self, slot: Slot) -> bool {
        self.unanswered.is_withheld(slot) || self.deferral.as_ref().is_some_and(|deferral| deferral.is_deferred(slot))
    }

    /// Replicates all connections that are deferred, at once, and defers none from now on.
    fn replicate_deferred(&mut self, now: Instant, pipeline: &Pipeline) {
        if let Some(deferral) = &mut self.deferral {
            deferral.insertion.suspend();
            self.look_at_deferred(now, pipeline, usize::MAX);
        }
    }

    /// Replicates all connections that are withheld or deferred, and no further one waits.
    fn replicate_waiting(&mut self, now: Instant, pipeline: &Pipeline) {
        self.unanswered.suspend();
        self.replicate_unanswered(now, pipeline);
        self.replicate_deferred(now, pipeline);
    }

    /// Replicates all connections that are withheld or deferred. `resumes_deferral`: further ones are.
    pub(super) fn flush_deferred(&mut self, now: Instant, pipeline: &Pipeline, resumes_deferral: bool) {
        self.replicate_waiting(now, pipeline);
        if resumes_deferral {
            self.resume_deferral();
        }
    }

    /// Connections are withheld and deferred again, as configured.
    pub(super) fn resume_deferral(&mut self) {
        self.unanswered.resume();
        self.deferral.iter_mut().for_each(|deferral| deferral.insertion.resume());
        self.compact.iter_mut().for_each(|compact| compact.end_leaving());
    }

    /// Replicates the connections that are old enough by `now`, of `looks_max` that are looked at.
    fn look_at_deferred(&mut self, now: Instant, pipeline: &Pipeline, looks_max: usize) {
        let mut looks_left = looks_max;
        while let Some(deferral) = &mut self.deferral
            && let Some(slot) = deferral.poll_due(now, pipeline, &mut looks_left)
        {
            // One that is not answered is replicated with its answer.
            if !self.unanswered.is_withheld(slot) {
                self.on_begun(now, pipeline, slot);
            }
        }
    }

    /// Replicates all that peers would need if this node left.
    pub(super) fn replicate_all(&mut self, now: Instant, pipeline: &Pipeline) {
        self.replicate_waiting(now, pipeline);
        self.compact.iter_mut().for_each(|compact| compact.begin_leaving(now));
        sessions(&mut self.peers).for_each(Session::ask_for_acknowledgement);
    }

    /// Whether every backup that is alive has acknowledged the connection. A filter's entries are not acknowledged one by one.
    pub(super) fn is_backed_up(&self, slot: Slot) -> bool {
        // A connection that began a moment ago has none yet.
        let nodes = self.backups.as_ref().map(|backups| backups.of(slot)).filter(|nodes| !nodes.is_empty());
        self.compact.is_some() || peer::is_backed_up(&self.peers, nodes, slot)
    }

    /// Whether a peer whose session is open has not acknowledged all that this node has to send it.
    pub(super) fn has_unacknowledged(&self) -> bool {
        let statuses = self.peers.iter().filter_map(|peer| peer.session.as_ref()).map(Session::status);
        let is_behind =
            |status: SessionStatus| status.link == Link::Open && (status.queued > 0 || status.in_flight > 0);
        statuses.into_iter().any(is_behind) || self.has_unacknowledged_filter()
    }

    /// Whether those of the peers that are meant have acknowledged all that they need of this worker's connections.
    pub(super) fn has_replicated_to(&self, is_meant: impl Fn(&Peer) -> bool) -> bool {
        let statuses = self.peers.iter().filter(|peer| is_meant(peer)).filter_map(|peer| peer.session.as_ref());
        let has_all = |status: SessionStatus| {
            status.link == Link::Open && status.sent_all && status.queued == 0 && status.in_flight == 0
        };
        self.unanswered() == 0
            && self.deferral.as_ref().is_none_or(|deferral| deferral.deferred() == 0)
            && self.backups.as_ref().is_none_or(|backups| !backups.is_marking())
            && statuses.map(Session::status).all(has_all)
            && !self.has_unacknowledged_filter()
    }

    /// Where the first connection from `from` on lies that another node is still to claim from this one, which forwards nothing any more.
    /// `None`: there is none, or no node that would claim it.
    pub(super) fn next_unclaimed(&self, pipeline: &Pipeline, from: Slot) -> Option<Slot> {
        let backups = self.backups.as_ref()?;
        let claimants =
            || self.peers.iter().filter(|peer| backups.claims(peer)).filter_map(|peer| peer.session.as_ref());
        claimants().next()?;
        let mut slot = from;
        for _ in 0..SLOTS_PER_TIMEOUT_MAX {
            slot = pipeline.table().next_occupied(slot)?;
            let is_own = pipeline.connection(slot).is_some_and(|it| it.owner == self.id && is_claimed_once_lost(it));
            if is_own && claimants().any(|session| session.is_open() && session.is_replicated(Handle(slot.0))) {
                return Some(slot);
            }
            slot = Slot(slot.0 + 1);
        }
        Some(slot)
    }

    fn has_unacknowledged_filter(&self) -> bool {
        self.compact.as_ref().is_some_and(|compact| compact.has_unacknowledged(&self.peers))
    }
}

/// Recovery: connections that only filters of other nodes know.
impl ReplicationSet {
    /// This node has taken over, or a peer has died: a recovery begins.
    pub(super) fn begin_recovery(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        has_taken_over: bool,
    ) -> Option<NodeEvent> {
        self.compact.as_mut()?.begin_recovery(now, pipeline, &mut self.peers, has_taken_over)
    }

    /// This node forwards less than before, and its connections may be another node's.
    pub(super) fn give_away(&mut self, now: Instant) {
        self.compact.iter_mut().for_each(|compact| compact.give_away(now, &self.peers));
    }

    /// This node forwards nothing any more: there is nothing to recover, and what it owns may be another node's.
    pub(super) fn stand_by(&mut self, now: Instant, pipeline: &mut Pipeline) {
        match &mut self.compact {
            Some(compact) => compact.stand_by(now, pipeline, &mut self.peers),
            None => pipeline.recovery.end(),
        }
    }

    /// What peers replicated compactly of the connection that began with this tuple, whether a recovery is running or not, if
    /// the chain can restore the connection.
    pub(super) fn recovery_lookup(&self, pipeline: &Pipeline, original: &Tuple) -> Option<FilterMatch> {
        let filter_match = recovery_lookup(&self.peers, original)?;
        filter_match.may_stand_for(pipeline.chain(), original, None).then_some(filter_match)
    }
}

/// What each kind of change means to the sessions.
impl ReplicationSet {
    /// Whether the filter represents what was changed: then no session needs it.
    fn is_in_filter(&mut self, enter: impl FnOnce(&mut Compact) -> bool) -> bool {
        self.compact.as_deref_mut().is_some_and(enter)
    }

    fn forget(&mut self, slot: Slot) {
        sessions(&mut self.peers).for_each(|session| session.forget(Handle(slot.0)));
    }

    /// A connection is replicated for the first time.
    fn on_begun(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) {
        // The slot may have held a replica of which the sessions still know something.
        self.forget(slot);
        if self.is_in_filter(|compact| compact.replicate(now, pipeline, slot)) {
            return;
        }
        if let Some(backups) = &mut self.backups {
            backups.begin(self.id, pipeline, slot);
        }
        self.mark_changed(slot, !self.hold_first_reply.is_zero());
    }

    /// This node has taken the connection over.
    fn on_taken_over(&mut self, pipeline: &Pipeline, slot: Slot) {
        // A first reply may wait until the former owner has received it.
        self.mark_changed(slot, pipeline.is_sharing() && !self.hold_first_reply.is_zero());
    }

    /// The backups must receive the connection in the slot. `is_awaited`: a first reply waits for their acknowledgement.
    fn mark_changed(&mut self, slot: Slot, is_awaited: bool) {
        let nodes = self.backups.as_ref().map(|backups| backups.of(slot));
        for session in sessions_with(&mut self.peers, nodes) {
            session.mark_changed(Handle(slot.0));
            if is_awaited {
                session.ask_for_acknowledgement();
            }
        }
    }

    /// A replica in the slot came, changed, went, or has another owner.
    fn note_copied(&mut self, pipeline: &Pipeline, slot: Slot) {
        let node = self.id;
        for peer in &mut self.peers {
            let id = peer.id;
            if let Some(session) = &mut peer.session {
                session.note_copy(Handle(slot.0), |key| holding(pipeline, node, id, key, slot));
            }
        }
    }

    /// A connection of this node's has ended.
    fn on_ended(&mut self, slot: Slot, ended: &Ended) {
        // Its former owner knows it, even if this one was never replicated.
        let had_another_owner = ended.owner == self.id && ended.version >> 16 != 0;
        self.attributes.clear();
        precise::encode_ended(ended, &mut self.attributes);
        let nodes = self.backups.as_mut().map(|backups| backups.take(slot));
        for peer in &mut self.peers {
            let is_backup = nodes.is_none_or(|nodes| nodes.contains(peer.id));
            let Some(session) = &mut peer.session else { continue };
            // Nodes that are away may have it, too.
            if had_another_owner && (is_backup || !session.is_open()) {
                session.mark_deleted_unconditionally(Handle(slot.0), &self.attributes);
            } else {
                session.mark_deleted(Handle(slot.0), &self.attributes);
            }
        }
    }

    /// A peer replicated a connection that has ended here.
    fn send_end(&mut self, to: NodeId, ended: &Ended) {
        if let Some(session) = self.peers.get_mut(to).and_then(|peer| peer.session.as_mut()) {
            self.attributes.clear();
            precise::encode_ended(ended, &mut self.attributes);
            session.replicate_end(&self.attributes);
        }
    }

    /// Remembers the ends that cannot be sent to peers.
    fn remember_unsent_ends(&mut self, now: Instant, pipeline: &mut Pipeline) {
        for peer in &mut self.peers {
            let Some(session) = &mut peer.session else { continue };
            while session.poll_unsent_end(&mut self.attributes) {
                // They were encoded here. A node that has left the backups of a connection is sent the end of one that goes on.
                if let Ok(ended) = precise::decode_ended(&self.attributes).as_ref()
                    && !(self.backups.is_some() && is_alive(pipeline, ended))
                {
                    pipeline.remember_ended(now, ended);
                }
            }
        }
    }
}

/// Whether the connection goes on, with the owner that the end names or with a later one: the end was for a node that left its backups.
fn is_alive(pipeline: &Pipeline, ended: &Ended) -> bool {
    let connection = pipeline.lookup(&ended.original).and_then(|(slot, _)| pipeline.connection(slot));
    connection.is_some_and(|connection| !is_before(connection.version | 0xffff, ended.version))
}

/// Whether a change of a shared connection is replicated whatever the selection: the other node's automaton sees a part of the
/// segments and needs it.
fn is_needed_by_peers(connection: &Connection, change: Change) -> bool {
    let is_shared = connection.original.protocol == ip_protocol::TCP && connection.flags & flags::SHARED != 0;
    is_shared && change == Change::State && connection.protocol.state != TcpState::CloseWait as u8
}
