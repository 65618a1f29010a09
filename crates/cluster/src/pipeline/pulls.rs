//! Packets of connections that other nodes have: the state of such a connection is pulled, and its packets are handled once more.
//!
//! ```text
//!  this node                                     the node that has the connection
//!    │ packet, no connection: an index has it      │
//!    │ ── pull ──────────────────────────────────► │ takes over what its fast path saw; its record becomes a replica of
//!    │ ◄──────────────────────────────── state ─── │ this node's, with a version of the next owner
//!    │ enters it as a replica that it owns,        │
//!    │ and replicates it; the packet takes it over │
//! ```
//!
//! A fragment moves no connection: anybody can forge one, and an edge sends fragments by their addresses alone, to other nodes than the
//! connection's. It gets a copy, which passes it, and the owner stays.
//!
//! Both compute the same version from the record, so that an update of either is older or newer on every node. A replica of a live third node stays as it is:
//! the new owner's update reaches that node and ends its ownership.

use alloc::boxed::Box;
use alloc::vec::Vec;

use flow::connection::flags;
use flow::table::Slot;
use flow::wire::{Packet, Transport};
use flow::{Disposition, DropReason, Instant, NodeId, NodeSet};
use replication::representation::precise;
use state_service::index::ShapeError;
use state_service::lookup::{Lookup, Outcome, Table};
use state_service::message::{Key, MessageError, STATE_BYTES_MAX};

use super::arrival::{Arrival, wanted};
use super::change::TableChange;
use super::connections::{Connections, record, record_mut};
use super::lookup::{StateLookup, StateServiceConfig, StateServiceStatus, drop_reason};
use super::waiting::WAITING_FRAMES_MAX;
use super::{Applied, ChainStates, Pipeline};

/// Packets without a connection.
impl Pipeline {
    /// Looks the connection of a packet up at other nodes. `None`: it is handled as one of no connection.
    #[cold]
    pub(super) fn look_up_elsewhere(
        &mut self,
        arrival: &Arrival,
        packet: &Packet<'_, '_>,
    ) -> Option<Result<Disposition, DropReason>> {
        if arrival.origin.is_looked_up || !self.connections.looks_up() {
            return None;
        }
        let wanted = wanted(packet.headers);
        let may_begin = match packet.headers.transport {
            Transport::IcmpOther(..) => return None,
            // No query is worth an error of no connection.
            Transport::IcmpError(_) => true,
            _ => {
                !self.waiting.may_be_answer(&mut self.connections, arrival, packet)
                    || self.connections.would_accept(arrival.now, packet)
            }
        };
        let is_fragment = packet.headers.is_fragment;
        match self.connections.state_lookup.as_mut()?.look_up(arrival.now, wanted, may_begin, is_fragment) {
            Lookup::Begin(()) | Lookup::Process(()) | Lookup::TakeOver(()) => None,
            Lookup::Dropped((), reason) => Some(Err(drop_reason(reason))),
            Lookup::Waits => {
                let is_held = self.waiting.hold_for_state(&mut self.connections, arrival, packet, wanted);
                Some(if is_held { Ok(Disposition::Consumed) } else { Err(DropReason::LookupLimit) })
            }
        }
    }
}

/// The state service, if there is one.
impl Pipeline {
    /// Looks connections up at other nodes from now on. Before the first connection. `incarnation` differs from that of former runs of the process.
    ///
    /// # Errors
    /// There are more connections than an index may have.
    pub(crate) fn set_state_service(&mut self, config: StateServiceConfig, incarnation: u32) -> Result<(), ShapeError> {
        debug_assert!(self.connections.table.is_empty(), "what is there already would not be found");
        let connections_max = self.connections.table.capacity();
        let state_lookup = StateLookup::new(config, connections_max, WAITING_FRAMES_MAX, incarnation)?;
        self.connections.state_lookup = Some(Box::new(state_lookup));
        Ok(())
    }

    /// Whether there is a state service.
    pub(crate) const fn has_state_service(&self) -> bool {
        self.connections.state_lookup.is_some()
    }

    /// The live peers that have a state service are these from now on.
    pub(crate) fn set_state_peers(&mut self, now: Instant, peers: NodeSet) {
        if let Some(state_lookup) = &mut self.connections.state_lookup {
            state_lookup.set_peers(now, peers);
            self.take_results(now);
        }
    }

    /// A message of a peer. That of a peer that is not alive, as far as this node knows, is ignored.
    ///
    /// # Errors
    /// It is no message, or contradicts former ones.
    pub(crate) fn handle_state_message(
        &mut self,
        now: Instant,
        from: NodeId,
        message: &[u8],
    ) -> Result<(), MessageError> {
        let Some(mut state_lookup) = self.connections.state_lookup.take() else { return Ok(()) };
        state_lookup.note_received(message);
        let result = if state_lookup.is_peer(from) {
            let mut held = HeldConnections { connections: &mut self.connections, now };
            state_lookup.service.handle_peer(now, from, message, &mut held)
        } else {
            Ok(())
        };
        self.connections.state_lookup = Some(state_lookup);
        self.take_results(now);
        result
    }

    /// Does what is due of lookups.
    pub(crate) fn serve_state_service(&mut self, now: Instant) {
        if let Some(state_lookup) = &mut self.connections.state_lookup {
            state_lookup.service.handle_timeout(now);
            self.take_results(now);
        }
    }

    /// When [`Pipeline::serve_state_service`] has something to do next.
    pub(crate) fn state_service_at(&self) -> Option<Instant> {
        self.connections.state_lookup.as_ref()?.service.poll_timeout()
    }

    /// Writes the next message for a peer over `buffer`.
    pub(crate) fn poll_state_message(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<NodeId> {
        self.connections.state_lookup.as_mut()?.poll_transmit(now, buffer)
    }

    /// How the state service stands; `None`: there is none.
    #[must_use]
    pub fn state_service_status(&self) -> Option<StateServiceStatus> {
        self.connections.state_lookup.as_ref().map(|state_lookup| state_lookup.status())
    }

    /// Acts on the results of lookups. Packets that go on are among the released ones.
    fn take_results(&mut self, now: Instant) {
        loop {
            let state_lookup = self.connections.state_lookup.as_mut();
            match state_lookup.and_then(|state_lookup| state_lookup.service.poll_outcome()) {
                Some(Outcome::Pulled { key, from, state, .. }) => {
                    let entered = self.enter_pulled(now, from, &key, &state, true);
                    self.release_looked_up(&key, entered.err());
                }
                Some(Outcome::Copied { key, from, state, .. }) => {
                    let entered = self.enter_pulled(now, from, &key, &state, false);
                    self.release_looked_up(&key, entered.err());
                }
                Some(Outcome::Begin { key, .. }) => self.release_looked_up(&key, None),
                Some(Outcome::Dropped { key, reason, .. }) => self.release_looked_up(&key, Some(drop_reason(reason))),
                // Nodes behind edges compute where packets land: nobody forges packets or places replicas.
                Some(Outcome::Forged { .. } | Outcome::Answer { .. } | Outcome::Loads { .. }) => {}
                None => return,
            }
        }
    }

    /// The packets that wait for a state go on, or are dropped.
    fn release_looked_up(&mut self, key: &Key, dropped: Option<DropReason>) {
        let packets = self.waiting.note_looked_up(&key.tuple, dropped.is_none());
        if let Some(reason) = dropped {
            self.connections.counters.drops[reason as usize] += packets;
        }
    }

    /// Enters a connection as a peer has sent it. If it `takes_over`, this node is its owner, and replicates it.
    ///
    /// # Errors
    /// Why its packets are dropped: it cannot be read, has ended here, contradicts another one, or the table is full.
    fn enter_pulled(
        &mut self,
        now: Instant,
        from: NodeId,
        key: &Key,
        state: &[u8],
        takes_over: bool,
    ) -> Result<(), DropReason> {
        let unknown = DropReason::UnknownConnection;
        let mut copy = precise::decode(now, state, &ChainStates(self.chain())).map_err(|_| unknown)?;
        let relations = precise::relations(state).map_err(|_| unknown)?;
        if ![copy.original, copy.reply].contains(&key.tuple) {
            return Err(unknown);
        }
        let Connections { node, tracker, .. } = &self.connections;
        let former = copy.owner;
        if takes_over {
            copy.take_over(*node);
        }
        // A packet of it has just arrived.
        let timeout = tracker.timeout(copy.original.protocol, &copy.protocol, copy.flags);
        copy.expires_at_nanos = (now + timeout).as_nanos();
        let applied = self.replicas().apply(now, from, copy);
        if applied == Applied::Taken {
            self.apply_relations(now, &copy.original, &relations).map_err(|_| unknown)?;
        }
        let Some((slot, _)) = self.connections.lookup(&key.tuple) else {
            return Err(if applied == Applied::Full { DropReason::TableFull } else { unknown });
        };
        if applied == Applied::Taken && takes_over {
            self.connections.changes.push(TableChange::Pulled { slot, from, former });
        }
        Ok(())
    }
}

/// The table, for the pulls of peers.
struct HeldConnections<'a> {
    connections: &'a mut Connections,
    now: Instant,
}

impl Table for HeldConnections<'_> {
    fn hand_over(&mut self, to: NodeId, key: &Key, state: &mut Vec<u8>) -> bool {
        let Some((slot, _)) = self.connections.lookup(&key.tuple) else { return false };
        self.connections.leave_fast_path(slot);
        let has_room = self.encode(slot, state);
        if has_room {
            self.yield_to(to, slot);
        }
        has_room
    }

    fn copy(&mut self, key: &Key, state: &mut Vec<u8>) -> bool {
        self.connections.lookup(&key.tuple).is_some_and(|(slot, _)| self.encode(slot, state))
    }
}

impl HeldConnections<'_> {
    /// Appends the state of the connection in the slot. Whether it has room in a message.
    fn encode(&self, slot: Slot, state: &mut Vec<u8>) -> bool {
        let Connections { table, functions, relations, .. } = &*self.connections;
        let connection = record(table, slot);
        precise::encode(self.now, connection, &ChainStates(&functions.chain), state);
        relations.encode(self.now, connection, state);
        state.len() <= STATE_BYTES_MAX
    }

    /// `to` is about to become the owner of the connection in the slot: the record is a replica of its from now on, unless another live node owns the
    /// connection.
    fn yield_to(&mut self, to: NodeId, slot: Slot) {
        let Connections { node, table, plans, sharing, changes, .. } = &mut *self.connections;
        let connection = record_mut(table, slot);
        let owner = connection.owner;
        let is_others = owner != *node && sharing.as_ref().is_some_and(|sharing| sharing.live_owners.contains(&owner));
        if owner == to || is_others {
            return;
        }
        if let Some(sharing) = sharing.as_mut().filter(|_| owner == *node) {
            sharing.note_lost(self.now, slot);
        }
        connection.take_over(to);
        connection.flags |= flags::REPLICA;
        plans.void(slot);
        changes.push(TableChange::Copied { slot });
    }
}
