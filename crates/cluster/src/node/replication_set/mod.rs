//! What this node replicates, and to whom: the sessions with its peers, the connections that are deferred, and what goes by a
//! filter.
//!
//! ```text
//!   pipeline ─ changes ─► on_change ─┬─ deferred: nothing, until the connection is old enough
//!                                    ├─ in the filter: the compact sender ═══════► peers' receivers
//!                                    └─ precise: marked in every session ═══════► peers' tables
//! ```

pub(super) mod compact;
mod deferral;
mod peers;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::conntrack::{Change, TcpState};
use flow::table::Slot;
use flow::wire::ip_protocol;
use flow::{Connection, Instant, NodeId};
use replication::representation::precise::{self, Ended};
use replication::representation::{Selection, is_worth_replicating};
use replication::{Handle, Session};

use super::NodeError;
use super::peer::{Peer, sessions};
use super::store::{ReplicaStore, holding};
use crate::pipeline::{Pipeline, TableChange};

use compact::Compact;
pub(super) use deferral::Deferral;
pub(super) use peers::Peers;

/// What this node replicates, and to whom.
pub(super) struct ReplicationSet {
    pub(super) id: NodeId,
    pub(super) selection: Selection,
    /// How long a connection's first reply waits until a backup has the connection.
    pub(super) hold_first_reply: Duration,
    pub(super) peers: Peers,
    /// The place of the peer whose session sends next.
    pub(super) next_session: usize,
    /// Connections that are replicated only once they have lived for a while, if any are.
    pub(super) deferral: Option<Box<Deferral>>,
    /// What connections are replicated compactly by, if they are.
    pub(super) compact: Option<Box<Compact>>,
    pub(super) attributes: Vec<u8>,
}

impl ReplicationSet {
    /// The table has changed: marks what the peers need of it.
    pub(super) fn on_change(&mut self, now: Instant, pipeline: &Pipeline, change: &TableChange) {
        if self.defers(now, pipeline, change) {
            return;
        }
        match change {
            TableChange::Began { slot } => self.on_begun(now, pipeline, *slot),
            TableChange::Copied { slot } => {
                self.note_replica_compactly(pipeline, *slot);
                self.note_copied(pipeline, *slot);
            }
            TableChange::TakenOver { slot } => {
                self.note_copied(pipeline, *slot);
                if !self.replicate_compactly(now, pipeline, *slot) {
                    self.on_taken_over(pipeline, *slot);
                }
            }
            TableChange::FunctionsChanged { slot } => {
                self.note_copied(pipeline, *slot);
                if !self.replicate_functions_compactly(now, pipeline, *slot) {
                    sessions(&mut self.peers).for_each(|session| session.mark_changed(Handle(slot.0)));
                }
            }
            TableChange::Changed { slot, change, previous_state } => {
                if !self.replicate_change_compactly(now, pipeline, *slot, *change, *previous_state) {
                    self.on_automaton_changed(pipeline, *slot, *change, *previous_state);
                }
            }
            TableChange::Ended { slot, ended } => {
                if self.remove_compactly(pipeline, *slot, &ended.original) {
                    self.on_ended(*slot, ended);
                }
            }
            TableChange::Displaced { slot, original } => {
                self.remove_compactly(pipeline, *slot, original);
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
        speaks_for_all: bool,
        from: NodeId,
        datagram: &[u8],
    ) -> Result<(), NodeError> {
        let place = self.peers.place(from)?;
        let Some((session, mut store)) = self.session(pipeline, speaks_for_all, place) else { return Ok(()) };
        Ok(session.handle_datagram(now, datagram, &mut store)?)
    }

    /// The next message of a session, the peers in turn.
    pub(super) fn poll_sessions(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        speaks_for_all: bool,
        buffer: &mut Vec<u8>,
    ) -> Option<NodeId> {
        let count = self.peers.len();
        let first = self.next_session;
        for place in (0..count).map(|offset| (first + offset) % count) {
            if !self.peers[place].can_be_told() || self.peers[place].refused.is_some() {
                continue;
            }
            let Some((session, mut store)) = self.session(pipeline, speaks_for_all, place) else { continue };
            if session.poll_transmit(now, &mut store, buffer) {
                self.next_session = (place + 1) % count;
                return Some(self.peers[place].id);
            }
        }
        None
    }

    /// The session with a peer, and the table as it sees it.
    pub(super) fn session<'a>(
        &'a mut self,
        pipeline: &'a mut Pipeline,
        speaks_for_all: bool,
        place: usize,
    ) -> Option<(&'a mut Session, ReplicaStore<'a>)> {
        let Peer { session, resync, replica, .. } = &mut self.peers[place];
        let store = ReplicaStore {
            node: self.id,
            pipeline,
            resync,
            counters: replica,
            speaks_for_all,
            cells: self.compact.as_mut().map(|compact| &mut compact.cells),
            deferral: self.deferral.as_deref(),
        };
        Some((session.as_mut()?, store))
    }

    /// A connection is replicated for the first time.
    fn on_begun(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) {
        // The slot may have held a copy of which the sessions still know something.
        sessions(&mut self.peers).for_each(|session| session.forget(Handle(slot.0)));
        if self.replicate_compactly(now, pipeline, slot) {
            return;
        }
        self.mark_changed(slot, !self.hold_first_reply.is_zero());
    }

    /// This node has become master of the connection.
    fn on_taken_over(&mut self, pipeline: &Pipeline, slot: Slot) {
        // A first reply may wait until the former master has received it.
        self.mark_changed(slot, pipeline.is_sharing() && !self.hold_first_reply.is_zero());
    }

    fn mark_changed(&mut self, slot: Slot, is_awaited: bool) {
        for session in sessions(&mut self.peers) {
            session.mark_changed(Handle(slot.0));
            if is_awaited {
                session.ask_for_acknowledgement();
            }
        }
    }

    fn on_automaton_changed(&mut self, pipeline: &Pipeline, slot: Slot, change: Change, previous_state: u8) {
        let Some(connection) = pipeline.connection(slot) else { return };
        let (protocol, state) = (connection.original.protocol, connection.protocol.state);
        if is_worth_replicating(self.selection, protocol, previous_state, state, change)
            || is_needed_by_guests(connection, change)
        {
            sessions(&mut self.peers).for_each(|session| session.mark_changed(Handle(slot.0)));
        }
    }

    /// A copy in the slot came, changed, went, or has another master.
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
        // Who was its master before knows it, even if this one was never replicated.
        let had_another_master = ended.owner == self.id && ended.version >> 16 != 0;
        self.attributes.clear();
        precise::encode_ended(ended, &mut self.attributes);
        for session in sessions(&mut self.peers) {
            if had_another_master {
                session.mark_deleted_anyway(Handle(slot.0), &self.attributes);
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
            session.tell_end(&self.attributes);
        }
    }

    /// Remembers the ends that cannot be sent to peers.
    pub(super) fn remember_unsent_ends(&mut self, now: Instant, pipeline: &mut Pipeline) {
        for peer in &mut self.peers {
            let Some(session) = &mut peer.session else { continue };
            while session.poll_untold_end(&mut self.attributes) {
                // They were encoded here.
                if let Ok(ended) = precise::decode_ended(&self.attributes) {
                    pipeline.remember_ended(now, &ended);
                }
            }
        }
    }
}

/// Whether a change of a shared connection is replicated whatever the selection says: the other node's automaton sees a part of
/// the segments and needs it.
fn is_needed_by_guests(connection: &Connection, change: Change) -> bool {
    let is_shared = connection.original.protocol == ip_protocol::TCP && connection.flags & flags::SHARED != 0;
    is_shared && change == Change::State && connection.protocol.state != TcpState::CloseWait as u8
}
