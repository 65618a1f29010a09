//! What the table's changes make the node tell compactly.

use flow::connection::flags;
use flow::conntrack::Change;
use flow::table::Slot;
use flow::{Connection, Instant, Tuple};
use replication::Handle;
use replication::compact::CellState;
use replication::representation::is_worth_telling;
use replication::representation::precise;

use super::Compact;
use super::mixture::Candidate;
use crate::node::replication_set::ReplicationSet;
use crate::node::store::ChainStates;
use crate::node::{NodeEvent, peer};
use crate::pipeline::Pipeline;

/// Connections that are told precisely in one call of [`ReplicationSet::handle_compact_timeout`], at most.
const PROMOTED_PER_TIMEOUT_MAX: usize = 64;
/// Confirmations that are looked for in one call.
const CONFIRMED_PER_TIMEOUT_MAX: usize = 64;
/// Bytes of a message about a connection beside its attributes, and of the end that follows some day.
const PRECISE_BYTES_BESIDE: usize = 64;

/// What stands for a connection in its slot's cell. The table's hash is the same both ways; two connections may differ in
/// nothing else.
pub(in crate::node) fn name(pipeline: &Pipeline, original: &Tuple) -> u32 {
    let is_reversed = (original.source, original.source_port) > (original.destination, original.destination_port);
    pipeline.table().hash(original) as u32 ^ u32::from(is_reversed)
}

/// The chain makes the connection again as it is, and nothing is known of it that only precise words tell.
fn is_restorable(pipeline: &Pipeline, connection: &Connection) -> bool {
    let chain = pipeline.chain();
    // What was restored by an answer has states that do not know where it came in. So it was made, and so it can be again.
    let is_as_restored = || {
        let restored = chain.restore(&connection.original, None);
        restored.is_some_and(|made| made.reply == connection.reply && made.functions == connection.functions)
    };
    connection.flags & (flags::EXPECTS | flags::RELATED) == 0 && (chain.is_restorable(connection) || is_as_restored())
}

impl Compact {
    /// Whether an entry of the filter can stand for the connection. A pair of hosts does not say which of the translations that
    /// connections between them may have this one has ([compact replication, section 2.2.1 C] aggregates for firewalls, which
    /// translate nothing).
    fn can_hold(&self, connection: &Connection) -> bool {
        !self.is_of_hosts || connection.reply == connection.original.inverse()
    }

    /// The connection in the slot is this node's, and it is new to the peers, or has changed.
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

    /// The next connection to be told precisely now. What the filter leaves of the budget is there for it as well.
    fn pop_due(&mut self, now: Instant) -> Option<Candidate> {
        let spare_at = self.sender.spare_budget_at();
        self.mixture.pop_due(now, spare_at)
    }

    /// So many bytes are told each of so many peers precisely: they come off what the filter may take, too.
    fn spend_precisely(&mut self, now: Instant, bytes: usize, peers: usize) {
        self.mixture.spend(now, bytes * peers);
        self.sender.charge(now, bytes);
    }

    /// A connection is this node's no more. Whether it was told precisely.
    pub(in crate::node) fn leave(&mut self, pipeline: &Pipeline, slot: Slot, original: &Tuple) -> bool {
        let (was_precise, state) = self.cells.forget(slot, name(pipeline, original));
        if let Some(state) = state {
            self.sender.remove(original, state);
        }
        was_precise
    }
}

impl ReplicationSet {
    /// A connection began, or was taken over. Whether it is told by the filter; else it is told precisely.
    pub(in crate::node) fn tell_compactly(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) -> bool {
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
            compact.heirlooms.take(&connection.original);
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

    /// As [`ReplicationSet::tell_compactly`], for a change of a connection's automaton.
    pub(in crate::node) fn tell_changed_compactly(
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
        if is_worth_telling(self.selection, protocol, previous_state, state, change) {
            if is_precise {
                compact.spend_precisely(now, PRECISE_BYTES_BESIDE, self.peers.len());
            }
            compact.change(pipeline, slot, connection);
        }
        !is_precise
    }

    /// As [`ReplicationSet::tell_compactly`], for a change of a function's state: the filter cannot tell it.
    pub(in crate::node) fn tell_functions_compactly(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) -> bool {
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

    /// What lies in the slot is a copy, or nothing any more.
    pub(in crate::node) fn note_copied_compactly(&mut self, pipeline: &Pipeline, slot: Slot) {
        let Some(compact) = &mut self.compact else { return };
        match pipeline.connection(slot) {
            None => compact.cells.clear_copy(slot),
            Some(connection) if connection.owner != self.id => {
                // It may have been this node's a moment ago.
                let _ = compact.leave(pipeline, slot, &connection.original);
                compact.cells.set_precise(slot, name(pipeline, &connection.original));
            }
            Some(_) => {}
        }
    }

    /// A connection that this node was master of has ended, or gave way. Whether peers may have to be told precisely.
    pub(in crate::node) fn tell_left_compactly(&mut self, pipeline: &Pipeline, slot: Slot, original: &Tuple) -> bool {
        match &mut self.compact {
            Some(compact) => compact.leave(pipeline, slot, original),
            None => true,
        }
    }

    /// Does what is due of what is told compactly.
    /// `forwards`: this node forwards packets of some group. Returns what happened to a recovery.
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
            compact.heirlooms.handle_timeout(now);
        }
        for receiver in self.peers.iter_mut().filter_map(|peer| peer.compact.as_mut()) {
            receiver.handle_timeout(now);
        }
        event
    }

    /// A connection is told precisely from now on.
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

    /// What peers have confirmed to have precisely need not be in the filter as well.
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
