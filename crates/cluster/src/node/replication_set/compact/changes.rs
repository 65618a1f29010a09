//! How changes of the connection table reach the filter, or a session where the filter cannot represent them.

use flow::connection::flags;
use flow::table::Slot;
use flow::{Connection, Instant, Tuple};
use network_functions::class::Class;
use replication::compact::CellState;
use replication::representation::precise;
use replication::{Handle, Session};

use super::Compact;
use super::leaving::Leaving;
use super::mixture::Candidate;
use super::standby::StandbyComparison;
use crate::node::event::NodeEvent;
use crate::node::peer::{Peer, sessions};
use crate::node::peers::Peers;
use crate::pipeline::ChainStates;
use crate::pipeline::Pipeline;

/// Connections that one call of [`Compact::handle_timeout`] replicates as records, at most.
const PROMOTED_PER_TIMEOUT_MAX: usize = 64;
/// Acknowledgements that one call looks for, at most.
const CONFIRMED_PER_TIMEOUT_MAX: usize = 64;
/// Bytes of a message about a connection beside its attributes, and of the later deletion.
const PRECISE_BYTES_BESIDE: usize = 64;

/// The name of a connection in its slot's cell. The table's hash is the same in both directions; two connections may differ in
/// their direction alone.
pub(in crate::node) fn name(pipeline: &Pipeline, original: &Tuple) -> u32 {
    let is_reversed = (original.source, original.source_port) > (original.destination, original.destination_port);
    pipeline.table().hash(original) as u32 ^ u32::from(is_reversed)
}

/// Whether the chain can restore the connection from its tuple: no state of it needs a record.
fn is_restorable(pipeline: &Pipeline, connection: &Connection) -> bool {
    let chain = pipeline.chain();
    // A connection restored by a reply has function states without an ingress port. It can be restored in the same way again.
    let is_as_restored = || {
        let restored = chain.restore(&connection.original, None);
        restored.is_some_and(|made| made.reply == connection.reply && made.functions == connection.functions)
    };
    connection.flags & (flags::EXPECTS | flags::RELATED) == 0 && (chain.is_restorable(connection) || is_as_restored())
}

impl Compact {
    /// The class that an entry of the filter holds of the connection: one that its port does not show, where cells have states.
    fn class(&self, pipeline: &Pipeline, connection: &Connection) -> Option<Class> {
        let is_held = self.has_states && connection.flags & flags::REPLIED != 0;
        if is_held { pipeline.chain().class_to_restore(connection) } else { None }
    }

    /// What an entry of the filter holds of the connection.
    fn cell(&self, pipeline: &Pipeline, connection: &Connection) -> CellState {
        let state = CellState::of(connection);
        let protocol = connection.original.protocol;
        let state = if self.is_of_established { state.as_established(protocol) } else { state };
        self.class(pipeline, connection).map_or(state, |class| state.with_class(class.number()))
    }

    /// Whether an entry of the filter is enough to restore the connection.
    fn is_restorable(&self, pipeline: &Pipeline, connection: &Connection) -> bool {
        let has_no_relations = connection.flags & (flags::EXPECTS | flags::RELATED) == 0;
        has_no_relations && self.class(pipeline, connection).is_some() || is_restorable(pipeline, connection)
    }

    /// Whether an entry of the filter can represent the connection. An entry of a pair of hosts does not name a translation (MLCBF,
    /// section 2.2.1 C aggregates for firewalls, which translate nothing).
    fn can_hold(&self, connection: &Connection) -> bool {
        !self.is_of_hosts || connection.reply == connection.original.inverse()
    }

    /// Inserts the slot's connection, which this node owns, or updates its state.
    fn enter(&mut self, pipeline: &Pipeline, slot: Slot, connection: &Connection) {
        let (name, state) = (name(pipeline, &connection.original), self.cell(pipeline, connection));
        if self.is_of_established && !state.is_established(connection.original.protocol) {
            return;
        }
        match self.cells.filtered(slot, name) {
            Some(before) => self.sender.modify(&connection.original, before, state),
            None => self.sender.insert(&connection.original, state),
        }
        self.cells.set_filtered(slot, name, state);
    }

    /// The connection's state has changed. `is_worth`: the selection replicates the change. An establishment is sent in any case:
    /// the connection's first entry may still wait.
    fn change(&mut self, pipeline: &Pipeline, slot: Slot, connection: &Connection, is_worth: bool) {
        let (name, state) = (name(pipeline, &connection.original), self.cell(pipeline, connection));
        if self.is_of_established {
            let protocol = connection.original.protocol;
            match self.cells.filtered(slot, name) {
                None if state.is_established(protocol) && !self.cells.is_precise_as(slot, name) => {
                    return self.enter(pipeline, slot, connection);
                }
                // It is over, though its record stays for a while.
                Some(_) if !state.is_established(protocol) => {
                    if let Some(before) = self.cells.take_filtered(slot, name) {
                        self.sender.remove(&connection.original, before);
                    }
                    return;
                }
                _ => {}
            }
        }
        let is_sent = |before: &CellState| {
            *before != state && (is_worth || self.sender.is_establishment(&connection.original, *before, state))
        };
        if let Some(before) = self.cells.filtered(slot, name).filter(is_sent) {
            self.sender.modify(&connection.original, before, state);
            self.cells.set_filtered(slot, name, state);
        }
    }

    /// The next connection to replicate as a record now. It may use the rest of the filter's budget.
    fn pop_due(&mut self, now: Instant) -> Option<Candidate> {
        let spare_at = self.sender.spare_budget_at();
        self.mixture.pop_due(now, spare_at)
    }

    /// So many bytes are sent to each of so many peers as records. They count against the filter's budget as well.
    fn spend_precisely(&mut self, now: Instant, bytes: usize, peers: usize) {
        self.mixture.spend(now, bytes * peers);
        self.sender.charge(now, bytes);
    }

    /// A connection has begun, or was taken over. Returns whether the filter represents it; otherwise it is replicated as a record.
    pub(in crate::node) fn replicate(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) -> bool {
        let Some(connection) = self.own(pipeline, slot) else { return true };
        let name = name(pipeline, &connection.original);
        if self.cells.is_precise_as(slot, name) {
            return false;
        }
        let refused_before = self.sender.refused();
        let can_hold = self.can_hold(connection);
        if can_hold {
            self.enter(pipeline, slot, connection);
            self.inherited.take(&connection.original);
        }
        let has_no_room = self.mixture.is_mixed() && self.sender.refused() != refused_before;
        if !can_hold || has_no_room || !self.is_restorable(pipeline, connection) {
            self.mixture.note_urgent(now, slot, name);
        } else {
            let cells = &self.cells;
            let lives =
                |it: &Candidate| cells.filtered(it.slot, it.name).is_some() && !cells.is_precise_as(it.slot, it.name);
            self.mixture.note_begun(now, slot, name, lives);
        }
        true
    }

    /// As [`Compact::replicate`], for a change of a connection's protocol state that is worth replicating or not.
    pub(in crate::node) fn replicate_change(
        &mut self,
        now: Instant,
        pipeline: &Pipeline,
        slot: Slot,
        is_worth: bool,
        peers: usize,
    ) -> bool {
        let Some(connection) = self.own(pipeline, slot) else { return true };
        let is_precise = self.cells.is_precise_as(slot, name(pipeline, &connection.original));
        if is_worth && is_precise {
            self.spend_precisely(now, PRECISE_BYTES_BESIDE, peers);
        }
        self.change(pipeline, slot, connection, is_worth);
        self.note_lacking(now, pipeline, slot);
        !is_precise
    }

    /// As [`Compact::replicate`], for a change of a function's state. The filter can represent the class only.
    pub(in crate::node) fn replicate_functions(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) -> bool {
        let Some(connection) = self.own(pipeline, slot) else { return true };
        let name = name(pipeline, &connection.original);
        if self.cells.is_precise_as(slot, name) {
            return false;
        }
        if !self.is_restorable(pipeline, connection) {
            self.mixture.note_urgent(now, slot, name);
        } else if self.has_states {
            // The class may have changed.
            self.change(pipeline, slot, connection, true);
        }
        true
    }

    /// The slot holds a replica, or has become empty.
    pub(in crate::node) fn note_replica(&mut self, pipeline: &Pipeline, slot: Slot) {
        match pipeline.connection(slot) {
            None => self.cells.clear_copy(slot),
            Some(connection) if connection.owner != self.node => {
                // This node may have owned it until now.
                let _ = self.remove(pipeline, slot, &connection.original);
                self.cells.set_precise(slot, name(pipeline, &connection.original));
            }
            Some(_) => {}
        }
    }

    /// A connection that this node owned has ended, was evicted, or has another owner. Returns whether it was replicated as a
    /// record.
    pub(in crate::node) fn remove(&mut self, pipeline: &Pipeline, slot: Slot, original: &Tuple) -> bool {
        let (was_precise, state) = self.cells.forget(slot, name(pipeline, original));
        if let Some(state) = state {
            self.sender.remove(original, state);
        }
        was_precise
    }

    /// The connection in the slot, if this node owns it.
    fn own<'a>(&self, pipeline: &'a Pipeline, slot: Slot) -> Option<&'a Connection> {
        pipeline.connection(slot).filter(|connection| connection.owner == self.node)
    }
}

/// A node that leaves.
impl Compact {
    /// The node is about to leave: all that the filter holds is sent at once, and what it does not hold as records.
    pub(in crate::node) fn begin_leaving(&mut self, now: Instant) {
        self.leaving = Leaving::begin();
        self.sender.flush(now);
    }

    /// The node stays.
    pub(in crate::node) const fn end_leaving(&mut self) {
        self.leaving = Leaving::No;
    }

    /// Replicates the connection as a record if the node leaves and the filter does not hold it, although an end may take it for established.
    fn note_lacking(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) {
        let holds_all = self.has_states && !self.is_of_established;
        if holds_all || !self.leaving.is_in_progress() {
            return;
        }
        let Some(connection) = self.own(pipeline, slot) else { return };
        let (name, state) = (name(pipeline, &connection.original), CellState::of(connection));
        let protocol = connection.original.protocol;
        let is_lacking = state.is_answered(protocol) && !state.is_established(protocol);
        if is_lacking && !self.cells.is_precise_as(slot, name) {
            self.mixture.note_urgent(now, slot, name);
        }
    }
}

/// What is due.
impl Compact {
    /// Does what is due. `forwards`: this node forwards packets of some group. Returns what happened to a recovery.
    pub(in crate::node) fn handle_timeout(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        peers: &mut Peers,
        forwards: bool,
    ) -> Option<NodeEvent> {
        for slot in self.leaving.step(pipeline.table()) {
            self.note_lacking(now, pipeline, slot);
        }
        for _ in 0..PROMOTED_PER_TIMEOUT_MAX {
            let Some(candidate) = self.pop_due(now) else { break };
            self.promote(now, pipeline, peers, candidate);
        }
        self.look_for_confirmations(pipeline, peers);
        self.compare_as_standby(now, pipeline, peers, forwards);
        self.claimed.step(now, self.node, pipeline, peers, forwards);
        let event = self.advance_recovery(now, pipeline, peers, forwards);
        self.sender.handle_timeout(now);
        self.inherited.handle_timeout(now);
        for receiver in peers.iter_mut().filter_map(|peer| peer.compact.as_mut()) {
            receiver.handle_timeout(now);
        }
        event
    }

    /// Replicates a connection as a record from now on.
    fn promote(&mut self, now: Instant, pipeline: &Pipeline, peers: &mut Peers, candidate: Candidate) {
        let Candidate { slot, name: known_as, .. } = candidate;
        let Some(connection) = self.own(pipeline, slot) else { return };
        if name(pipeline, &connection.original) != known_as || self.cells.is_precise_as(slot, known_as) {
            return;
        }
        self.attributes.clear();
        precise::encode(now, connection, &ChainStates(pipeline.chain()), &mut self.attributes);
        self.spend_precisely(now, self.attributes.len() + PRECISE_BYTES_BESIDE, peers.len());
        self.counters.long_lived += u64::from(!candidate.is_urgent);
        self.counters.urgent += u64::from(candidate.is_urgent);
        self.cells.set_precise(slot, known_as);
        self.mixture.await_confirmation(candidate);
        sessions(peers).for_each(|session| session.mark_changed(Handle(slot.0)));
    }

    /// Removes connections from the filter whose records the peers have acknowledged.
    fn look_for_confirmations(&mut self, pipeline: &Pipeline, peers: &[Peer]) {
        for _ in 0..CONFIRMED_PER_TIMEOUT_MAX.min(self.mixture.unconfirmed()) {
            let Some(candidate) = self.mixture.pop_unconfirmed() else { return };
            let Candidate { slot, name: known_as, .. } = candidate;
            let connection = pipeline.connection(slot);
            let Some(connection) = connection.filter(|it| name(pipeline, &it.original) == known_as) else { continue };
            let is_confirmed = |session: &Session| session.is_open() && session.is_acknowledged(Handle(slot.0));
            if !peers.iter().filter_map(|peer| peer.session.as_ref()).all(is_confirmed) {
                self.mixture.await_confirmation(candidate);
            } else if let Some(state) = self.cells.take_filtered(slot, known_as) {
                self.sender.remove(&connection.original, state);
            }
        }
    }

    /// This node no longer forwards: its connections belong to the active node, or soon will.
    pub(in crate::node) fn begin_standby(&mut self, now: Instant) {
        self.standby = StandbyComparison::begin(now);
    }

    /// This node has given a group away and forwards others. The filter does not name groups, so all its connections are marked as
    /// replicas: a packet that comes here shows that the connection is this node's still.
    pub(in crate::node) fn give_away(&mut self, now: Instant, peers: &[Peer]) {
        self.claimed.mark_all(Slot(0));
        let later = peers.iter().filter(|peer| peer.id > self.node).count();
        self.standby = StandbyComparison::begin_beside(now, later, self.recovery.lasts);
        self.sender.flush(now);
    }

    /// While this node is standby, removes its connections that the active node has, and marks the others as replicas: see
    /// [`StandbyComparison`]. A node that has given a group away and forwards others removes those of which no packet has come since.
    fn compare_as_standby(&mut self, now: Instant, pipeline: &mut Pipeline, peers: &mut Peers, forwards: bool) {
        let is_beside = forwards && self.standby.is_beside(now);
        if forwards && !is_beside {
            self.standby.end().into_iter().for_each(|not_compared| self.claimed.mark_all(not_compared));
            return;
        }
        let mut compared = 0;
        while let Some(slot) = self.standby.next(now, pipeline.table(), compared) {
            compared += 1;
            let Some(connection) = self.own(pipeline, slot) else { continue };
            let (original, is_copy) = (connection.original, connection.flags & flags::REPLICA != 0);
            if is_beside && !is_copy {
                continue;
            }
            if self.standby.removes(now) && is_taken(peers, &original) {
                let was_precise = self.remove(pipeline, slot, &original);
                pipeline.let_go(slot);
                self.counters.let_go += 1;
                if was_precise {
                    sessions(peers).for_each(|session| session.forget(Handle(slot.0)));
                }
            } else if !is_copy {
                pipeline.keep_as_copy(slot);
            }
        }
    }
}

/// Whether the filter of a live peer has the connection. Without fingerprints, too many lookups are wrong. What the peer had before it
/// restarted does not count: nobody else may have it now.
fn is_taken(peers: &[Peer], original: &Tuple) -> bool {
    let receivers = peers.iter().filter(|peer| peer.is_up()).filter_map(|peer| peer.compact.as_ref());
    receivers.filter(|receiver| receiver.is_sure()).any(|receiver| receiver.lookup_present(original).is_some())
}
