//! Replicas of other nodes' connections.

use flow::connection::flags;
use flow::serial::is_before;
use flow::table::{InsertError, Slot};
use flow::{Connection, Direction, Instant, NodeId, Tuple, conntrack};
use network_functions::function::CloseReason;
use replication::representation::precise::{EndCause, Ended};

use super::change::TableChange;
use super::connections::{Connections, record, record_mut};
use super::waiting::Waiting;

/// The outcome of a replica that a peer sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It is in the table now.
    Taken,
    /// The table has a newer version of the connection, from another owner.
    Stale,
    /// The table is full.
    Full,
    /// One of its tuples is that of a connection of which this node knows better.
    Conflict,
    /// The connection has ended here, and the end is sent to the peer.
    Ended,
}

/// What is done with replicas that their owner has not sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StaleReplicas {
    /// They are removed: their owner has ended them.
    Remove,
    /// This node becomes their owner, and replicates them to its backups.
    Claim,
}

/// The replicas of other nodes' connections in a pipeline.
pub struct Replicas<'a> {
    pub(super) connections: &'a mut Connections,
    pub(super) waiting: &'a mut Waiting,
}

impl Replicas<'_> {
    /// Enters a connection as `from` replicates it. What the same node sent earlier is replaced, whatever the versions (its
    /// messages come in order, and a tuple may have been used again); what another node owns only by a newer
    /// version. Nodes that could not reach each other may both own a connection with the same version: then that of
    /// the lower number counts, on both, or they would differ for ever.
    pub fn apply(&mut self, now: Instant, from: NodeId, copy: Connection) -> Applied {
        let applied = self.enter(now, from, copy);
        if applied == Applied::Taken && self.waiting.len() > 0 {
            let table = &self.connections.table;
            [copy.original, copy.reply].iter().for_each(|tuple| self.waiting.note_known(table.hash(tuple)));
        }
        applied
    }

    fn enter(&mut self, now: Instant, from: NodeId, mut copy: Connection) -> Applied {
        let known = self.connections.lookup(&copy.original);
        let known_as_original = known.filter(|(_, direction)| *direction == Direction::Original).map(|(slot, _)| slot);
        if self.is_refused(from, &copy, known_as_original) {
            return Applied::Ended;
        }
        copy.flags = copy.flags & !flags::UNSEEN | flags::REPLICA;
        if let Some(slot) = known_as_original {
            let connection = record(&self.connections.table, slot);
            if !prevails(from, copy.version, connection) {
                if connection.owner == self.connections.node {
                    // The other node has not learnt yet that this one knows better, or has forgotten it.
                    self.connections.changes.push(TableChange::TakenOver { slot });
                }
                return Applied::Stale;
            }
            if connection.reply == copy.reply {
                self.update(now, from, slot, copy);
                return Applied::Taken;
            }
        }
        // Where both ends use one port (IKE, NTP, SIP), one connection may have both of the replica's tuples, the other way round.
        let by_reply =
            self.connections.lookup(&copy.reply).filter(|(slot, _)| known.is_none_or(|(known, _)| known != *slot));
        for (slot, _) in [known, by_reply].into_iter().flatten() {
            // A stale replica of the same peer is replaced; what this node or a third one owns is not.
            let is_replaced = self.connections.table.get(slot).is_some_and(|other| {
                other.owner == from || (other.original == copy.original && prevails(from, copy.version, other))
            });
            if !is_replaced {
                return Applied::Conflict;
            }
            if let Some(removed) =
                self.connections.remove(slot).filter(|removed| removed.owner == self.connections.node)
            {
                self.connections.changes.push(TableChange::Displaced { slot, original: removed.original });
            }
        }
        // What this node forwarded in vain, for example in a flood before it handed over, keeps no answered connection out.
        let (node, hash) = (self.connections.node, self.connections.table.hash(&copy.original));
        let is_answered = |connection: &Connection| connection.flags & flags::REPLIED != 0;
        let may_go = |other: &Connection| other.owner == node && is_answered(&copy) && !is_answered(other);
        match self.connections.insert_or_displace(copy, hash, now, may_go) {
            Ok(slot) => {
                self.connections.changes.push(TableChange::Copied { slot });
                Applied::Taken
            }
            Err(InsertError::Full) => Applied::Full,
            Err(InsertError::TupleInUse) => Applied::Conflict,
        }
    }

    /// Whether a replica is of a connection that has ended here, and `from` must learn so: see [`super::tombstones`]. `known` is where
    /// a connection with the same original tuple lies.
    fn is_refused(&mut self, from: NodeId, copy: &Connection, known: Option<Slot>) -> bool {
        if self.connections.tombstones.is_empty() {
            return false;
        }
        let name = self.connections.directed_hash(&copy.original);
        let Connections { node, table, tombstones, changes, .. } = &mut *self.connections;
        let is_own = known.map(|slot| record(table, slot).owner == *node);
        let Some(version) = tombstones.refusal(name, copy, is_own) else { return false };
        changes.push(match known {
            // The tuple was used again here since: the new connection is replicated, with a version that counts more.
            Some(slot) => {
                let connection = record_mut(table, slot);
                if !is_before(copy.version, connection.version) {
                    connection.version = version;
                }
                TableChange::TakenOver { slot }
            }
            None => {
                let ended = Ended { original: copy.original, version, owner: *node, cause: EndCause::Other };
                TableChange::Refused { to: from, ended }
            }
        });
        true
    }

    /// Replaces the record in a slot by the same connection as `from` knows it.
    fn update(&mut self, now: Instant, from: NodeId, slot: Slot, mut copy: Connection) {
        self.connections.leave_fast_path(slot);
        let Connections { node, table, plans, functions, sharing, changes, .. } = &mut *self.connections;
        let connection = record_mut(table, slot);
        let lacks_something =
            sharing.as_mut().is_some_and(|sharing| sharing.merge(now, (*node, from), slot, connection, &mut copy));
        copy.packets = connection.packets;
        copy.bytes = connection.bytes;
        let expires_at = Instant::from_nanos(copy.expires_at_nanos);
        let is_sooner = copy.expires_at_nanos < connection.expires_at_nanos;
        functions.note_left(connection);
        *connection = copy.with_timer_of(connection);
        plans.void(slot);
        functions.note_entered(connection);
        if is_sooner {
            table.expire_sooner(slot, expires_at);
        }
        changes.push(TableChange::Copied { slot });
        if lacks_something {
            let merged = record(&self.connections.table, slot);
            let timeout = self.connections.tracker.timeout(merged.original.protocol, &merged.protocol, merged.flags);
            if now + timeout < expires_at {
                self.connections.set_expiry(slot, now + timeout);
            }
            self.connections.take_over_shared(now, slot);
            self.connections.changes.push(TableChange::TakenOver { slot });
        }
    }

    /// Ends what this node owns and what conflicts with a replica: a connection with one of its tuples, which began while the
    /// nodes could not reach each other (for example a server's answer that matched no known connection).
    pub fn end_conflicting(&mut self, copy: &Connection) {
        for tuple in [&copy.original, &copy.reply] {
            let Some((slot, _)) = self.connections.lookup(tuple) else { continue };
            if record(&self.connections.table, slot).owner == self.connections.node {
                self.connections.end(slot, CloseReason::Terminated);
            }
        }
    }

    /// Removes the replica that has ended according to `from`, unless another node has become its owner since. A connection of
    /// this node's ends if `from` became its owner and ended it without this node having learnt so: other backups are
    /// informed. True if it was there.
    pub fn delete(&mut self, now: Instant, from: NodeId, ended: &Ended) -> bool {
        let Some((slot, Direction::Original)) = self.connections.lookup(&ended.original) else { return false };
        let version = ended.version;
        let connection = record_mut(&mut self.connections.table, slot);
        if !prevails(from, version, connection) {
            return false;
        }
        if ended.cause == EndCause::Failed {
            // Should its segments come here, they are answered as at its owner.
            self.connections.resets.note_ended(now, connection, None);
        }
        if connection.owner == self.connections.node {
            if connection.is_older_than(version) {
                connection.version = version;
            }
            let reason = if ended.cause == EndCause::Failed { CloseReason::Failed } else { CloseReason::Terminated };
            self.connections.end(slot, reason);
        } else {
            self.connections.remove(slot);
        }
        true
    }

    /// This node becomes the owner of a replica without having seen a packet of it, and replicates it to its backups.
    pub fn claim(&mut self, now: Instant, slot: Slot) {
        let former = record(&self.connections.table, slot).owner;
        self.connections.claim(now, slot);
        self.connections.changes.push(TableChange::Claimed { slot, former });
    }

    /// Applies `stale` to replicas of `from` that it has not sent again: those whose [`flags::RESYNCED`] is not `epoch`. Looks
    /// at `slots_max` connections from `cursor` on; returns where to go on, `None` at the end.
    pub fn sweep(
        &mut self,
        now: Instant,
        from: NodeId,
        epoch: bool,
        stale: StaleReplicas,
        cursor: Slot,
        slots_max: usize,
    ) -> Option<Slot> {
        let mut next = cursor;
        for _ in 0..slots_max {
            let slot = self.connections.table.next_occupied(next)?;
            let connection = record(&self.connections.table, slot);
            let is_stale = connection.owner == from
                && connection.flags & flags::REPLICA != 0
                && (connection.flags & flags::RESYNCED != 0) != epoch;
            match stale {
                _ if !is_stale => {}
                StaleReplicas::Remove => drop(self.connections.remove(slot)),
                StaleReplicas::Claim => self.claim(now, slot),
            }
            next = Slot(slot.0 + 1);
        }
        Some(next)
    }

    /// The owner's timer has run out for a connection of which a packet was forwarded here a moment ago: it lives, and this
    /// node is its owner now. True if so.
    pub fn refuse_end(&mut self, now: Instant, from: NodeId, original: &Tuple) -> bool {
        let Some((slot, Direction::Original)) = self.connections.lookup(original) else { return false };
        let connection = record(&self.connections.table, slot);
        if connection.owner != from || conntrack::is_closing(original.protocol, &connection.protocol) {
            return false;
        }
        let timeout = self.connections.tracker.timeout(original.protocol, &connection.protocol, connection.flags);
        let Some(sharing) = &mut self.connections.sharing else { return false };
        if !sharing.was_just_forwarded(now, slot, timeout) {
            return false;
        }
        sharing.counters.ends_refused += 1;
        self.connections.take_over_shared(now, slot);
        self.connections.set_expiry(slot, now + timeout);
        self.connections.changes.push(TableChange::TakenOver { slot });
        true
    }
}

/// Whether `version` in an update of `from` counts more than what is known.
fn prevails(from: NodeId, version: u32, known: &Connection) -> bool {
    known.owner == from || known.is_older_than(version) || (known.version == version && from < known.owner)
}
