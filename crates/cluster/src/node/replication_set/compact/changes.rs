//! How changes of the connection table reach the filter, or a session where the filter cannot represent them.

use flow::connection::flags;
use flow::conntrack::Change;
use flow::table::Slot;
use flow::{Connection, Instant, Tuple};
use replication::Handle;
use replication::compact::CellState;
use replication::representation::is_worth_replicating;
use replication::representation::precise;

use super::Compact;
use super::mixture::Candidate;
use crate::node::replication_set::ReplicationSet;
use crate::node::store::ChainStates;
use crate::node::{NodeEvent, peer};
use crate::pipeline::Pipeline;

/// Connections that one call of [`ReplicationSet::handle_compact_timeout`] replicates as records, at most.
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
    /// Whether an entry of the filter can represent the connection. An entry of a pair of hosts does not name a translation (MLCBF,
    /// section 2.2.1 C aggregates for firewalls, which translate nothing).
    fn can_hold(&self, connection: &Connection) -> bool {
        !self.is_of_hosts || connection.reply == connection.original.inverse()
    }

    /// Inserts the slot's connection, which this node owns, or updates its state.
    fn enter(&mut self, pipeline: &Pipeline, slot: Slot, connection: &Connection) {
        let (name, state) = (name(pipeline, &connection.original), CellState::of(connection));
        match self.cells.filtered(slot, name) {
            Some(before) => self.sender.modify(&connection.original, before, state),
            None => self.sender.insert(&connection.original, state),
        }
        self.cells.set_filtered(slot, name, state);
    }

    /// The connection's state has changed.
    fn change(&mut self, pipeline: &Pipeline, slot: Slot, connection: &Connection) {
        let (name, state) = (name(pipeline, &connection.original), CellState::of(connection));
        if let Some(before) = self.cells.filtered(slot, name).filter(|before| *before != state) {
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

    /// This node no longer owns the connection. Returns whether it was replicated as a record.
    pub(in crate::node) fn leave(&mut self, pipeline: &Pipeline, slot: Slot, original: &Tuple) -> bool {
        let (was_precise, state) = self.cells.forget(slot, name(pipeline, original));
        if let Some(state) = state {
            self.sender.remove(original, state);
        }
        was_precise
    }
}

impl ReplicationSet {
    /// A connection has begun, or was taken over. Returns whether the filter represents it; otherwise it is replicated as a record.
    pub(in crate::node) fn replicate_compactly(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) -> bool {
        let Some(compact) = &mut self.compact else { return false };
        let Some(connection) = pipeline.connection(slot).filter(|connection| connection.owner == self.id) else {
            return true;
        };
        let name = name(pipeline, &connection.original);
        if compact.cells.is_precise_as(slot, name) {
            return false;
        }
        let refused_before = compact.sender.refused();
        let can_hold = compact.can_hold(connection);
        if can_hold {
            compact.enter(pipeline, slot, connection);
            compact.inherited.take(&connection.original);
        }
        let has_no_room = compact.mixture.is_mixed() && compact.sender.refused() != refused_before;
        if !can_hold || has_no_room || !is_restorable(pipeline, connection) {
            compact.mixture.note_urgent(now, slot, name);
        } else {
            let cells = &compact.cells;
            let lives =
                |it: &Candidate| cells.filtered(it.slot, it.name).is_some() && !cells.is_precise_as(it.slot, it.name);
            compact.mixture.note_begun(now, slot, name, lives);
        }
        true
    }

    /// As [`ReplicationSet::replicate_compactly`], for a change of a connection's protocol state.
    pub(in crate::node) fn replicate_change_compactly(
        &mut self,
        now: Instant,
        pipeline: &Pipeline,
        slot: Slot,
        change: Change,
        previous_state: u8,
    ) -> bool {
        let Some(compact) = &mut self.compact else { return false };
        let Some(connection) = pipeline.connection(slot).filter(|connection| connection.owner == self.id) else {
            return true;
        };
        let (protocol, state) = (connection.original.protocol, connection.protocol.state);
        let is_precise = compact.cells.is_precise_as(slot, name(pipeline, &connection.original));
        if is_worth_replicating(self.selection, protocol, previous_state, state, change) {
            if is_precise {
                compact.spend_precisely(now, PRECISE_BYTES_BESIDE, self.peers.len());
            }
            compact.change(pipeline, slot, connection);
        }
        !is_precise
    }

    /// As [`ReplicationSet::replicate_compactly`], for a change of a function's state, which the filter cannot represent.
    pub(in crate::node) fn replicate_functions_compactly(
        &mut self,
        now: Instant,
        pipeline: &Pipeline,
        slot: Slot,
    ) -> bool {
        let Some(compact) = &mut self.compact else { return false };
        let Some(connection) = pipeline.connection(slot).filter(|connection| connection.owner == self.id) else {
            return true;
        };
        let name = name(pipeline, &connection.original);
        if compact.cells.is_precise_as(slot, name) {
            return false;
        }
        if !is_restorable(pipeline, connection) {
            compact.mixture.note_urgent(now, slot, name);
        }
        true
    }

    /// The slot holds a replica, or has become empty.
    pub(in crate::node) fn note_replica_compactly(&mut self, pipeline: &Pipeline, slot: Slot) {
        let Some(compact) = &mut self.compact else { return };
        match pipeline.connection(slot) {
            None => compact.cells.clear_copy(slot),
            Some(connection) if connection.owner != self.id => {
                // This node may have owned it until now.
                let _ = compact.leave(pipeline, slot, &connection.original);
                compact.cells.set_precise(slot, name(pipeline, &connection.original));
            }
            Some(_) => {}
        }
    }

    /// A connection that this node owned has ended, or was evicted. Returns whether peers may have its record.
    pub(in crate::node) fn remove_compactly(&mut self, pipeline: &Pipeline, slot: Slot, original: &Tuple) -> bool {
        match &mut self.compact {
            Some(compact) => compact.leave(pipeline, slot, original),
            None => true,
        }
    }

    /// Does what is due in compact replication. `forwards`: this node forwards packets of some group. Returns what happened to a recovery.
    pub(in crate::node) fn handle_compact_timeout(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        forwards: bool,
    ) -> Option<NodeEvent> {
        self.compact.as_ref()?;
        for _ in 0..PROMOTED_PER_TIMEOUT_MAX {
            let Some(candidate) = self.compact.as_mut().and_then(|compact| compact.pop_due(now)) else { break };
            self.promote(now, pipeline, candidate);
        }
        self.look_for_confirmations(pipeline);
        self.let_go_while_standing_by(now, pipeline, forwards);
        self.doubt_what_peers_claim(now, pipeline, forwards);
        let event = self.look_after_recovery(now, pipeline, forwards);
        if let Some(compact) = &mut self.compact {
            compact.sender.handle_timeout(now);
            compact.inherited.handle_timeout(now);
        }
        for receiver in self.peers.iter_mut().filter_map(|peer| peer.compact.as_mut()) {
            receiver.handle_timeout(now);
        }
        event
    }

    /// Replicates a connection as a record from now on.
    fn promote(&mut self, now: Instant, pipeline: &Pipeline, candidate: Candidate) {
        let Candidate { slot, name: known_as, .. } = candidate;
        let Some(compact) = &mut self.compact else { return };
        let Some(connection) = pipeline.connection(slot).filter(|connection| connection.owner == self.id) else {
            return;
        };
        if name(pipeline, &connection.original) != known_as || compact.cells.is_precise_as(slot, known_as) {
            return;
        }
        self.attributes.clear();
        precise::encode(now, connection, &ChainStates(pipeline.chain()), &mut self.attributes);
        compact.spend_precisely(now, self.attributes.len() + PRECISE_BYTES_BESIDE, self.peers.len());
        compact.counters.long_lived += u64::from(!candidate.is_urgent);
        compact.counters.urgent += u64::from(candidate.is_urgent);
        compact.cells.set_precise(slot, known_as);
        compact.mixture.await_confirmation(candidate);
        peer::sessions(&mut self.peers).for_each(|session| session.mark_changed(Handle(slot.0)));
    }

    /// Removes connections from the filter whose records the peers have acknowledged.
    fn look_for_confirmations(&mut self, pipeline: &Pipeline) {
        let Some(compact) = &mut self.compact else { return };
        for _ in 0..CONFIRMED_PER_TIMEOUT_MAX.min(compact.mixture.unconfirmed()) {
            let Some(candidate) = compact.mixture.pop_unconfirmed() else { return };
            let Candidate { slot, name: known_as, .. } = candidate;
            let connection = pipeline.connection(slot);
            let Some(connection) = connection.filter(|it| name(pipeline, &it.original) == known_as) else { continue };
            let is_confirmed =
                |session: &replication::Session| session.is_open() && session.is_acknowledged(Handle(slot.0));
            if !self.peers.iter().filter_map(|peer| peer.session.as_ref()).all(is_confirmed) {
                compact.mixture.await_confirmation(candidate);
            } else if let Some(state) = compact.cells.take_filtered(slot, known_as) {
                compact.sender.remove(&connection.original, state);
            }
        }
    }
}
