//! Packets of connections whose master is another living node: see [`super::sharing`].

use flow::connection::flags;
use flow::conntrack::{Advance, Change, Next, TcpState, is_in_handshake};
use flow::table::Slot;
use flow::wire::{Headers, Packet, Transport, ip_protocol, tcp_flags};
use flow::{Connection, Direction, Instant};

use super::connections::{as_sent, count};
use super::sharing::Sharing;
use super::{Edge, Pipeline, TableChange, record, record_mut};
use crate::observation::Step;

/// What becomes of a packet of a connection that another node may be master of.
enum Guest {
    /// It is the master's, or makes this node the master as ever.
    No,
    /// It waits for what the master is about to tell.
    Waits,
    /// The automaton was moved on. True: this node has become master, and must say so.
    Advanced(Advance, bool),
}

impl Pipeline {
    /// Moves a connection's automaton on; `None` if the packet waits for another node. True: this node has become its master,
    /// and must say so.
    pub(super) fn track<E: Edge>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
        edge: &mut E,
    ) -> Option<(Advance, bool)> {
        if self.sharing.is_none() {
            return Some(self.advance(now, packet, slot, direction));
        }
        let is_answered = record(&self.table, slot).flags & flags::REPLIED != 0;
        match self.advance_guest(now, packet, slot, direction) {
            Guest::Waits => None,
            Guest::Advanced(advance, is_taken_over) => {
                let is_first_reply = is_taken_over && !is_answered && direction == Direction::Reply;
                let goes_on = advance.next == Next::Keep && !packet.headers.is_fragment;
                if is_first_reply && goes_on && edge.holds_first_reply(now, slot, packet) {
                    // The former master knows of the beginning alone, as a backup would.
                    self.changes.push(TableChange::TakenOver { slot });
                    self.observe(Step::HeldForBackup);
                    return None;
                }
                Some((advance, is_taken_over))
            }
            Guest::No => {
                let (advance, is_taken_over) = self.advance(now, packet, slot, direction);
                match advance.verdict {
                    Err(reason) if !is_taken_over && self.waits_for_peer(now, packet, reason) => None,
                    _ => Some((advance, is_taken_over)),
                }
            }
        }
    }

    /// Moves a connection's automaton on by a packet that came to a guest.
    fn advance_guest(&mut self, now: Instant, packet: &Packet<'_, '_>, slot: Slot, direction: Direction) -> Guest {
        let Some(sharing) = self.sharing.as_deref() else { return Guest::No };
        let connection = record(&self.table, slot);
        if connection.owner == self.node || !sharing.living.contains(&connection.owner) {
            let is_alone = sharing.living.is_empty() || connection.owner != self.node;
            if connection.flags & flags::SHARED != 0 && is_alone {
                self.stop_sharing(slot);
            }
            return Guest::No;
        }
        let Some(is_found_shared) = manner(sharing, now, slot, connection) else { return Guest::No };

        let (mut advanced, before) = (*connection, connection.protocol.state);
        if is_found_shared {
            advanced.flags |= flags::SHARED;
        }
        let renumbered = as_sent(&self.chain, connection, packet, direction);
        let headers = renumbered.as_ref().unwrap_or(packet.headers);
        let advance = self.tracker.advance(now, &mut advanced.protocol, &mut advanced.flags, direction, headers);
        if let Err(reason) = advance.verdict {
            if self.waits_for_peer(now, packet, reason) {
                return Guest::Waits;
            }
            // The master may know of a handshake that is over and be unable to say so: then the copy is as old as any.
            let is_old = is_in_handshake(advanced.original.protocol, &advanced.protocol);
            return if is_old && !is_found_shared { Guest::No } else { Guest::Advanced(advance, false) };
        }
        count(&mut advanced, packet, direction);
        *record_mut(&mut self.table, slot) = advanced;
        if let Some(timeout) = advance.timeout {
            self.set_expiry(slot, now + timeout);
        }
        let is_news = is_found_shared || is_news(before, &advanced, &advance, headers);
        let is_taken_over = self.note_guest_packet(now, slot, is_found_shared, is_news);
        Guest::Advanced(advance, is_taken_over)
    }

    /// Becomes master if there is something to tell, or the master must be shown that the connection lives.
    fn note_guest_packet(&mut self, now: Instant, slot: Slot, is_found_shared: bool, is_news: bool) -> bool {
        let connection = record(&self.table, slot);
        let timeout = self.tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
        let Some(sharing) = self.sharing.as_deref_mut() else { return false };
        let is_renewal_due = sharing.note_forwarded(now, slot, timeout);
        sharing.counters.shared += u64::from(is_found_shared);
        sharing.counters.renewed += u64::from(is_renewal_due && !is_news);
        if !is_news && !is_renewal_due {
            return false;
        }
        self.take_over_shared(now, slot);
        self.counters.taken_over += 1;
        true
    }

    /// A function has changed its state by a packet that came to a guest, who must tell it and so be master.
    pub(super) fn take_over_if_guest(&mut self, now: Instant, slot: Slot) -> bool {
        let is_guest = self.sharing.is_some() && record(&self.table, slot).owner != self.node;
        if is_guest {
            self.take_over_shared(now, slot);
            self.counters.taken_over += 1;
        }
        is_guest
    }
}

/// Whether a living peer's connection is found to be shared by a packet that comes here; `None` if it is rather one that moves
/// here, to be taken over as ever.
fn manner(sharing: &Sharing, now: Instant, slot: Slot, connection: &Connection) -> Option<bool> {
    let Connection { original, protocol, .. } = connection;
    if original.protocol != ip_protocol::TCP || connection.flags & flags::SHARED != 0 {
        return Some(false);
    }
    if sharing.was_just_lost(now, slot) {
        return Some(true);
    }
    is_in_handshake(original.protocol, protocol).then_some(false)
}

/// Whether the master's automaton cannot do without what this packet did to the copy's, which was in state `before`. That a FIN
/// was acknowledged it can, and of a copy that is behind it need not hear.
fn is_news(before: u8, connection: &Connection, advance: &Advance, headers: &Headers) -> bool {
    let state = connection.protocol.state;
    let is_worth_telling = match &headers.transport {
        Transport::Tcp(segment) if segment.has(tcp_flags::RST) => true,
        Transport::Tcp(_) => state != before && state != TcpState::CloseWait as u8,
        _ => advance.change == Change::State,
    };
    is_worth_telling || advance.next != Next::Keep
}
