//! Copies of other nodes' connections.

use flow::connection::flags;
use flow::table::{InsertError, Slot};
use flow::{Connection, Direction, Instant, NodeId, Tuple};
use network_functions::function::CloseReason;

use super::sharing::Word;
use super::{Pipeline, TableChange, record, record_mut};

/// What became of a copy that a peer sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It is in the table now.
    Taken,
    /// The table has newer word of the connection, from another master.
    Stale,
    /// The table is full.
    Full,
    /// One of its tuples is that of a connection of which this node knows better.
    Conflict,
    /// The connection has ended here, and the peer is told so.
    Ended,
}

/// What becomes of copies that their master has not told again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remnants {
    /// They are removed: their master has ended them.
    Remove,
    /// This node becomes their master, and tells its backups.
    Claim,
}

impl Pipeline {
    /// Enters what `from` says of a connection. What the same node said earlier is replaced, whatever the versions (its
    /// messages come in order, and a tuple may have been used again); what another node is master of only by a newer
    /// version. Nodes that did not hear each other may both be master of a connection with the same version: then that of
    /// the lower number counts, on both, or they would differ for ever.
    pub fn apply_copy(&mut self, now: Instant, from: NodeId, mut copy: Connection) -> Applied {
        if let Some(refused) = self.refuse_ended(from, &copy) {
            return refused;
        }
        copy.flags = copy.flags & !flags::UNSEEN | flags::COPY;
        let known = self.lookup(&copy.original);
        if let Some((slot, Direction::Original)) = known {
            let connection = record(&self.table, slot);
            if !prevails(from, copy.version, connection) {
                if connection.owner == self.node {
                    // The other node has not heard yet that this one knows better, or has forgotten it.
                    self.changes.push(TableChange::TakenOver { slot });
                }
                return Applied::Stale;
            }
            if connection.reply == copy.reply {
                let word = self.weigh_word(now, from, slot, &mut copy);
                let connection = record_mut(&mut self.table, slot);
                copy.packets = connection.packets;
                copy.bytes = connection.bytes;
                let expires_at = Instant::from_nanos(copy.expires_at_nanos);
                let is_sooner = copy.expires_at_nanos < connection.expires_at_nanos;
                *connection = copy.with_timer_of(connection);
                if is_sooner {
                    self.table.expire_sooner(slot, expires_at);
                }
                self.changes.push(TableChange::Copied { slot });
                if word == Word::LacksSomething {
                    self.take_over_shared(now, slot);
                    self.changes.push(TableChange::TakenOver { slot });
                }
                self.note_told(slot);
                return Applied::Taken;
            }
        }
        // Where both ends use one port (IKE, NTP, SIP), one connection may have both of the copy's tuples, the other way round.
        let by_reply = self.lookup(&copy.reply).filter(|(slot, _)| known.is_none_or(|(known, _)| known != *slot));
        for (slot, _) in [known, by_reply].into_iter().flatten() {
            // A remnant of the same peer gives way; what this node or a third one is master of does not.
            let gives_way = self.table.get(slot).is_some_and(|other| {
                other.owner == from || (other.original == copy.original && prevails(from, copy.version, other))
            });
            if !gives_way {
                return Applied::Conflict;
            }
            if let Some(removed) = self.remove_untold(slot).filter(|removed| removed.owner == self.node) {
                self.changes.push(TableChange::Displaced { slot, original: removed.original });
            }
        }
        match self.insert(copy, self.table.hash(&copy.original), now) {
            Ok(slot) => {
                self.changes.push(TableChange::Copied { slot });
                self.note_told(slot);
                Applied::Taken
            }
            Err(InsertError::Full) => Applied::Full,
            Err(InsertError::TupleInUse) => Applied::Conflict,
        }
    }

    /// Ends what this node is master of and what stands in the way of a copy: a connection with one of its tuples, which
    /// began while the nodes could not hear each other (a server's answer that no connection was known for, say).
    pub fn give_way(&mut self, copy: &Connection) {
        for tuple in [&copy.original, &copy.reply] {
            let Some((slot, _)) = self.lookup(tuple) else { continue };
            if record(&self.table, slot).owner == self.node {
                self.end(slot, CloseReason::Terminated);
            }
        }
    }

    /// Removes the copy that `from` says has ended, unless another node has become its master since. A connection of this
    /// node's ends if `from` became its master and ended it without this node having heard: other backups are told. True if
    /// it was there.
    pub fn delete_copy(&mut self, from: NodeId, original: &Tuple, version: u32) -> bool {
        let Some((slot, Direction::Original)) = self.lookup(original) else { return false };
        let is_its = self.table.get(slot).is_some_and(|connection| prevails(from, version, connection));
        if is_its && record(&self.table, slot).owner == self.node {
            let connection = record_mut(&mut self.table, slot);
            if connection.is_older_than(version) {
                connection.version = version;
            }
            self.end(slot, CloseReason::Terminated);
        } else if is_its {
            self.remove_untold(slot);
        }
        is_its
    }

    /// What lies in the slot is a peer's, or was: sessions look again.
    pub(super) fn note_copy_gone(&mut self, slot: Slot, removed: &Connection) {
        if removed.owner != self.node {
            self.changes.push(TableChange::Copied { slot });
        }
    }

    /// Does with copies of `from` that it has not told again, those whose [`flags::RESYNCED`] is not `told`, what
    /// `remnants` says. Looks at `slots_max` connections from `cursor` on; returns where to go on, `None` at the end.
    pub fn sweep_copies(
        &mut self,
        now: Instant,
        from: NodeId,
        told: bool,
        remnants: Remnants,
        cursor: Slot,
        slots_max: usize,
    ) -> Option<Slot> {
        let mut next = cursor;
        for _ in 0..slots_max {
            let slot = self.table.next_occupied(next)?;
            let connection = record(&self.table, slot);
            let is_remnant = connection.owner == from
                && connection.flags & flags::COPY != 0
                && (connection.flags & flags::RESYNCED != 0) != told;
            match remnants {
                _ if !is_remnant => {}
                Remnants::Remove => drop(self.remove_untold(slot)),
                Remnants::Claim => {
                    self.claim(now, slot);
                    self.changes.push(TableChange::TakenOver { slot });
                }
            }
            next = Slot(slot.0 + 1);
        }
        Some(next)
    }

    /// Another node has the connection that this one was master of: it goes, untold.
    pub fn let_go(&mut self, slot: Slot) {
        let _ = self.remove_untold(slot);
    }

    /// A connection that this node is master of may go on elsewhere: should its packets come here again, its windows are learnt
    /// afresh, as a copy's.
    pub fn keep_as_copy(&mut self, slot: Slot) {
        if let Some(connection) = self.table.get_mut(slot) {
            connection.flags |= flags::COPY;
        }
    }

    /// The connection that has `tuple`, and which way it goes on it.
    #[must_use]
    pub fn lookup(&self, tuple: &Tuple) -> Option<(Slot, Direction)> {
        self.table.lookup(self.table.hash(tuple), tuple)
    }

    /// A connection, to be read.
    #[must_use]
    pub fn connection(&self, slot: Slot) -> Option<&Connection> {
        self.table.get(slot)
    }

    /// This node becomes master of a connection that it holds a copy of, without having seen a packet of it. When the last
    /// one came is not known: the connection gets its state's whole time from now.
    pub fn claim(&mut self, now: Instant, slot: Slot) {
        let node = self.node;
        let Some(connection) = self.table.get_mut(slot).filter(|connection| connection.owner != node) else { return };
        connection.take_over(node);
        let timeout = self.tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
        self.table.expire_sooner(slot, now + timeout);
    }
}

/// Whether `version` in the word of `from` counts more than what is known.
fn prevails(from: NodeId, version: u32, known: &Connection) -> bool {
    known.owner == from || known.is_older_than(version) || (known.version == version && from < known.owner)
}
