//! A tuple that is used again: a packet on the record of a connection that is closing may begin another one.
//!
//! The new connection is a first one for every function: the record ends, with all that is kept by it, and another begins. Without
//! functions the tracker decides alone, as Linux does.
//!
//! ```text
//!   SYN, the SYN proxy answers now      ─► answered by a cookie; the record stays
//!   SYN, the proxied server is awaited  ─► answered by a cookie; the record stays
//!   ACK of a valid cookie               ─► the record ends, the client's connection begins
//!   SYN after both FINs, or after a RST ─► the record ends, the SYN begins a connection; also on a replica after the first FIN
//!   SYN/ACK that agrees to a SYN which passed on the record ─► the record ends; the client's next SYN begins a connection
//! ```
//! The last row is the server's word: the SYN passed because only the end points knew whether the former connection lived.

use flow::connection::flags;
use flow::conntrack::{begins_anew, has_restarted, is_closing};
use flow::table::Slot;
use flow::wire::{Headers, Packet, Transport, tcp_flags};
use flow::{Connection, Direction, Disposition, DropReason, Instant};
use network_functions::function::{AcceptedClient, CloseReason};

use super::Pipeline;
use super::arrival::Arrival;
use super::change::TableChange;
use super::connections::{Connections, record, record_mut};
use super::edge::Edge;
use super::packet::prepare;

/// How far before the end of what its client has sent a connection may have begun, if an acknowledgement with a valid cookie is of its own
/// handshake and late.
const LATE_BYTES_MAX: u32 = 1 << 20;

impl Pipeline {
    /// Handles a packet on a closing connection, or on one whose proxied server is awaited, that is, or may be, of another one with the same tuple. `None`, and nothing done: it is of
    /// the connection.
    pub(super) fn handle_rebirth<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        (slot, direction): (Slot, Direction),
        edge: &mut E,
    ) -> Option<Result<Disposition, DropReason>> {
        const KIND: u8 = tcp_flags::SYN | tcp_flags::ACK | tcp_flags::FIN | tcp_flags::RST;
        const SYN_ACK: u8 = tcp_flags::SYN | tcp_flags::ACK;
        let Transport::Tcp(segment) = packet.headers.transport else { return None };
        let connection = record(&self.connections.table, slot);
        let is_closing = is_closing(connection.original.protocol, &connection.protocol);
        let awaiting = self.connections.awaiting_state(connection);
        let may_be_another = is_closing || awaiting.is_some();
        if !may_be_another || packet.headers.is_fragment || self.connections.functions.chain.is_empty() {
            return None;
        }
        match segment.flags & KIND {
            tcp_flags::SYN if !is_closing => self.handle_syn_of_awaiting(arrival, packet, direction),
            // A client that probes its closed window.
            tcp_flags::ACK if awaiting.is_some_and(|state| state.is_acknowledged_by(&segment)) => None,
            tcp_flags::SYN => self.handle_syn_of_closing(arrival, packet, (slot, direction), edge),
            tcp_flags::ACK => {
                let client = self.accepted_anew(arrival.now, packet, slot, direction)?;
                Some(self.reopen(arrival, packet, slot, Some(client), edge))
            }
            // No function has seen the SYN that it answers: it passed elsewhere, on an older replica.
            SYN_ACK if is_closing && !self.connections.functions.chain.has_default_states(connection) => {
                Some(Err(DropReason::NoConnection))
            }
            _ => None,
        }
    }

    fn handle_syn_of_closing<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        (slot, direction): (Slot, Direction),
        edge: &mut E,
    ) -> Option<Result<Disposition, DropReason>> {
        let connection = record(&self.connections.table, slot);
        let Connection { original, protocol, .. } = connection;
        let has_ended = begins_anew(original.protocol, protocol, direction, packet.headers)
            || self.connections.may_have_ended_elsewhere(connection);
        let proxy = self.connections.functions.chain.handshake_proxy();
        let is_guarded = proxy.is_some_and(|proxy| proxy.guards(arrival.now, packet));
        if !is_guarded && !has_ended {
            return None;
        }
        if !self.begins {
            return Some(Err(DropReason::NotActive));
        }
        // Begun in earnest only once: here, if it is answered or refused, or else when the former connection has ended.
        if is_guarded && self.waiting.rehearse(&mut self.connections, arrival.now, packet).is_err() {
            match prepare(&mut self.connections, arrival, packet, None) {
                Err(DropReason::SynProxied) => return Some(self.connections.answer_handshake(arrival.now, packet)),
                Err(reason) => return Some(Err(reason)),
                Ok(_) => {}
            }
        }
        Some(self.reopen(arrival, packet, slot, None, edge))
    }

    /// A client that has restarted begins with another number (RFC 9293 section 3.4.1). A forged SYN looks alike, so the opening ends only
    /// by the acknowledgement of the new cookie.
    fn handle_syn_of_awaiting(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Option<Result<Disposition, DropReason>> {
        let proxy = self.connections.functions.chain.handshake_proxy()?;
        if direction == Direction::Reply {
            return None;
        }
        if !self.begins {
            return Some(Err(DropReason::NotActive));
        }
        if proxy.guards(arrival.now, packet)
            && let Err(reason) = prepare(&mut self.connections, arrival, packet, None)
            && reason != DropReason::SynProxied
        {
            return Some(Err(reason));
        }
        Some(self.connections.answer_handshake(arrival.now, packet))
    }

    /// The client whose acknowledgement of a cookie begins a connection with the tuple of the one in `slot`.
    fn accepted_anew(
        &self,
        now: Instant,
        packet: &Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
    ) -> Option<AcceptedClient> {
        let proxy = self.connections.functions.chain.handshake_proxy().filter(|_| self.begins)?;
        let client = proxy.client(now, packet)?;
        let known = record(&self.connections.table, slot);
        let former = &known.protocol.peers[direction.index()];
        let sent = former.end.wrapping_sub(client.sequence);
        let is_closing = is_closing(known.original.protocol, &known.protocol);
        if is_closing && former.window_max != 0 && (1..=LATE_BYTES_MAX).contains(&sent) {
            return None;
        }
        proxy.note_accepted(client.rule);
        Some(client)
    }

    /// A connection has ended and another begins with its tuple: that of the client whose cookie was accepted, or with the packet. It may
    /// begin at another node than the one that replicated the former one: its versions count from where those of the former one cannot
    /// come to.
    pub(super) fn reopen<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        client: Option<AcceptedClient>,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        if record(&self.connections.table, slot).owner != self.connections.node {
            // Peers accept the end of a connection only from its owner.
            self.connections.take_over_shared(arrival.now, slot);
            self.connections.changes.push(TableChange::TakenOver { slot });
        }
        let version = record(&self.connections.table, slot).version_of_successor();
        self.connections.end(slot, CloseReason::TcpClosed);
        let tuple = packet.headers.tuple;
        let sent = match client {
            Some(client) => self.begin_proxied(arrival, packet, client, edge),
            None => self.handle_unknown(arrival, packet, edge),
        };
        if let Some((slot, _)) = self.connections.lookup(&tuple) {
            record_mut(&mut self.connections.table, slot).version = version;
        }
        sent
    }
}

impl Connections {
    /// Whether a closing connection may be further on than its record: the record is a replica of a node that is gone, and peers are not
    /// sent the last steps of an end.
    fn may_have_ended_elsewhere(&self, connection: &Connection) -> bool {
        let is_replica = connection.flags & flags::REPLICA != 0;
        let sharing = self.sharing.as_deref();
        is_replica && sharing.is_none_or(|sharing| !sharing.live_owners.contains(&connection.owner))
    }

    /// Whether a packet, which tracking has just passed on the connection when it was in state `before`, shows that the end points have
    /// replaced it, and functions keep states of the former one.
    pub(super) fn is_replaced(&self, slot: Slot, before: u8, headers: &Headers) -> bool {
        let connection = record(&self.table, slot);
        has_restarted(connection.original.protocol, before, &connection.protocol, headers)
            && !self.functions.chain.has_default_states(connection)
    }
}
