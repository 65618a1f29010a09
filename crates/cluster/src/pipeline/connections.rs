//! Packets of connections: those of known ones move them on, others begin one.

use flow::connection::flags;
use flow::conntrack::{Advance, Change, Next, state_name};
use flow::table::{InsertError, Slot};
use flow::wire::{Headers, Packet, Transport};
use flow::{Connection, Direction, Disposition, DropReason, Frame, Instant, SegmentationKind};
use network_functions::chain::{Chain, Runtime};
use network_functions::function::{CloseReason, Judgement, Verdict};
use replication::representation::precise::Ended;

use super::{Edge, Pipeline, TableChange, record, record_mut};
use crate::observation::{ConnectionChange, Step};

impl Pipeline {
    pub(super) fn handle_known<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        if self.unjudged_from.is_some_and(|from| from <= slot) && self.judge(now, slot) == Judgement::Ends {
            self.observe(Step::Disallowed);
            return Err(DropReason::FirewallDenied);
        }
        if self.advance_plain(now, packet, slot, direction) {
            if self.observation.attends() {
                self.observe_plain_segment(slot);
            }
            let (verdict, states_changed) = self.run_chain(now, packet, slot, direction);
            if states_changed {
                self.changes.push(TableChange::FunctionsChanged { slot });
            }
            return self.send_known(now, packet, slot, direction, verdict, edge);
        }
        let known = record(&self.table, slot);
        let previous_state = known.protocol.state;
        let is_first_reply = direction == Direction::Reply && known.flags & (flags::REPLIED | flags::COPY) == 0;
        if is_first_reply && edge.holds_first_reply(now, slot, packet) {
            self.observe(Step::HeldForBackup);
            return Ok(Disposition::Consumed);
        }
        let master = known.owner;
        let Some((advance, mut taken_over)) = self.track(now, packet, slot, direction, edge) else {
            return Ok(Disposition::Consumed);
        };
        if self.recovery.is_some() && advance.verdict.is_ok() {
            self.note_if_disowned(packet, slot, direction);
        }
        if self.observation.attends() {
            self.observe_tracking(slot, previous_state, &advance, taken_over.then_some(master));
        }
        if advance.next == Next::Reopen {
            if taken_over {
                self.changes.push(TableChange::TakenOver { slot });
            }
            return self.reopen(now, packet, slot, is_local, edge);
        }
        let (verdict, states_changed) = match advance.verdict {
            Ok(()) => self.run_chain(now, packet, slot, direction),
            Err(reason) => (Verdict::Drop(reason), false),
        };
        taken_over |= states_changed && self.take_over_if_guest(now, slot);
        let sent = self.send_known(now, packet, slot, direction, verdict, edge);
        if taken_over {
            // Also of one that ends: of the end of a connection that was never told of, peers are not told.
            self.changes.push(TableChange::TakenOver { slot });
        }
        if advance.next == Next::Close {
            self.end(slot, CloseReason::TcpClosed);
        } else if taken_over {
            self.follow(ConnectionChange::TakenOver, slot);
        } else if states_changed {
            self.changes.push(TableChange::FunctionsChanged { slot });
        } else if advance.change != Change::None {
            self.note_change(slot, advance.change, previous_state);
        }
        sent
    }

    /// A connection has ended and another begins with its tuple. It may begin elsewhere than the former one was told from:
    /// its versions count from where those of the former one cannot come to.
    fn reopen<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let version = record(&self.table, slot).version_of_successor();
        self.end(slot, CloseReason::TcpClosed);
        let tuple = packet.headers.tuple;
        let sent = self.handle_unknown(now, packet, self.table.hash(&tuple), is_local, edge);
        if let Some((slot, _)) = self.lookup(&tuple) {
            record_mut(&mut self.table, slot).version = version;
        }
        sent
    }

    /// Sends a packet of a connection on its way; what stays behind is noted as it was received.
    #[inline(always)]
    fn send_known<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
        verdict: Verdict,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let sent = self.send(now, packet, verdict, edge);
        if let Ok(Disposition::Transmit(port)) = sent {
            record_mut(&mut self.table, slot).note_egress(direction, port);
        } else {
            let as_received = *record(&self.table, slot).tuple(direction);
            edge.note_not_sent(now, packet, &as_received);
        }
        sent
    }

    /// Moves the connection's automaton on, taking the connection over if it was a copy.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        packet: &Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
    ) -> (Advance, bool) {
        let connection = record_mut(&mut self.table, slot);
        let taken_over = connection.flags & flags::COPY != 0;
        if taken_over {
            connection.flags &= !flags::COPY;
            self.tracker.take_over(connection.original.protocol, &mut connection.protocol);
            self.counters.taken_over += 1;
        } else if connection.owner == self.node && self.forwarded_elsewhere.concerns(now, &self.tracker, connection) {
            self.tracker.take_over(connection.original.protocol, &mut connection.protocol);
            self.counters.relearnt += 1;
        }
        if connection.owner != self.node {
            connection.take_over(self.node);
        }
        let renumbered = as_sent(&self.chain, connection, packet, direction);
        let headers = renumbered.as_ref().unwrap_or(packet.headers);
        let advance = self.tracker.advance(now, &mut connection.protocol, &mut connection.flags, direction, headers);
        if advance.verdict.is_ok() {
            count(connection, packet, direction);
        }
        if advance.change != Change::None {
            connection.bump_version();
        }
        if let Some(timeout) = advance.timeout {
            self.set_expiry(slot, now + timeout);
        }
        (advance, taken_over)
    }

    /// Moves the automaton on for what most packets are: a plain segment of a connection that this node is master of. False,
    /// and nothing done, for all others.
    #[inline(always)]
    fn advance_plain(&mut self, now: Instant, packet: &Packet<'_, '_>, slot: Slot, direction: Direction) -> bool {
        let connection = record_mut(&mut self.table, slot);
        if connection.owner != self.node || connection.flags & flags::COPY != 0 {
            return false;
        }
        if self.forwarded_elsewhere.concerns(now, &self.tracker, connection) {
            return false;
        }
        // What a function has renumbered is not what the tracker is to see, and needs a second look.
        if as_sent(&self.chain, connection, packet, direction).is_some() {
            return false;
        }
        let flags = connection.flags;
        let Some(timeout) = self.tracker.advance_plain(&mut connection.protocol, flags, direction, packet.headers)
        else {
            return false;
        };
        count(connection, packet, direction);
        self.set_expiry(slot, now + timeout);
        true
    }

    #[inline(always)]
    pub(super) fn set_expiry(&mut self, slot: Slot, expires_at: Instant) {
        let connection = record_mut(&mut self.table, slot);
        if expires_at.as_nanos() >= connection.expires_at_nanos {
            connection.expires_at_nanos = expires_at.as_nanos();
        } else {
            self.table.expire_sooner(slot, expires_at);
        }
    }

    /// Whether packets of no connection may begin one from now on.
    pub(crate) const fn set_begins(&mut self, begins: bool) {
        self.begins = begins;
    }

    pub(super) fn handle_unknown<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        hash: u64,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let tuple = packet.headers.tuple;
        let first_version = self.first_version(&tuple);
        if self.sharing.is_some()
            && self.may_be_answer(now, packet, is_local)
            && self.waits_for_peer(now, packet, DropReason::NoConnection)
        {
            return Ok(Disposition::Consumed);
        }
        if is_local && matches!(packet.headers.transport, Transport::IcmpQuery(_)) {
            return Ok(edge.handle_local(now, packet));
        }
        if !self.begins {
            return Err(DropReason::NotActive);
        }
        let (protocol, timeout) = self.tracker.begin(packet.headers)?;
        self.observe(Step::Begins { state: state_name(tuple.protocol, &protocol) });
        self.check_source(now, &tuple)?;
        let mut connection = Connection::new(tuple, self.node, protocol, now + timeout);
        connection.version = first_version;
        let mut runtime = Runtime {
            now,
            node: self.node,
            counters: &mut self.chain_counters,
            log: &mut self.log,
            expectations: &mut self.expectations,
        };
        let tuples = self.shard.tuples(&self.table);
        if self.observation.attends() {
            let mut onlooker = self.observation.onlooker(&self.chain, tuple);
            self.chain.init_watched(&mut runtime, &tuples, &mut connection, packet, &mut onlooker)?;
        } else {
            self.chain.init(&mut runtime, &tuples, &mut connection, packet)?;
        }
        if is_local && connection.reply.source == tuple.destination {
            return Err(DropReason::LocalUnhandled);
        }
        count(&mut connection, packet, Direction::Original);
        let slot = self.enter(now, connection, hash)?;
        let (verdict, _) = self.run_chain(now, packet, slot, Direction::Original);
        let sent = self.send(now, packet, verdict, edge);
        if !is_on_its_way(sent) {
            edge.note_not_sent(now, packet, &tuple);
        }
        match sent {
            Err(reason) | Ok(Disposition::Drop(reason)) => {
                // A connection whose first packet went nowhere never was.
                self.remove_untold(slot);
                Err(reason)
            }
            Ok(disposition) => {
                if let Disposition::Transmit(port) = disposition {
                    record_mut(&mut self.table, slot).note_egress(Direction::Original, port);
                }
                self.note_begun(now, &tuple);
                self.counters.begun += 1;
                self.note_if_expected(now, slot, &tuple);
                self.changes.push(TableChange::Began { slot });
                self.follow(ConnectionChange::Began, slot);
                Ok(disposition)
            }
        }
    }

    /// Enters a new connection; when the table is full, in the place of one that was never answered, if one is near.
    pub(super) fn enter(&mut self, now: Instant, connection: Connection, hash: u64) -> Result<Slot, DropReason> {
        let refusal = match self.insert(connection, hash, now) {
            Ok(slot) => return Ok(slot),
            Err(refusal) => refusal,
        };
        match refusal {
            InsertError::TupleInUse => Err(DropReason::TupleInUse),
            InsertError::Full => {
                let victim = self.table.early_drop_candidate(hash).ok_or(DropReason::TableFull)?;
                self.counters.early_dropped += 1;
                self.end(victim, CloseReason::Terminated);
                self.insert(connection, hash, now).map_err(|_| DropReason::TableFull)
            }
        }
    }

    /// What the chain says of a packet, and whether a function changed its state.
    fn run_chain(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
    ) -> (Verdict, bool) {
        let revision = self.expectations.revision();
        let connection = record_mut(&mut self.table, slot);
        let mut runtime = Runtime {
            now,
            node: self.node,
            counters: &mut self.chain_counters,
            log: &mut self.log,
            expectations: &mut self.expectations,
        };
        let processed = if self.observation.attends() {
            let mut onlooker = self.observation.onlooker(&self.chain, packet.headers.tuple);
            self.chain.process_watched(&mut runtime, connection, packet, direction, &mut onlooker)
        } else {
            self.chain.process(&mut runtime, connection, packet, direction)
        };
        if processed.states_changed {
            connection.bump_version();
            if self.expectations.has(&connection.original) {
                connection.flags |= flags::EXPECTS;
            }
            if self.expectations.revision() != revision {
                let master = connection.original;
                self.tell_workers_expected(&master);
            }
        }
        (processed.verdict, processed.states_changed)
    }

    fn note_change(&mut self, slot: Slot, change: Change, previous_state: u8) {
        self.changes.push(TableChange::Changed { slot, change, previous_state });
        if change == Change::State {
            self.follow(ConnectionChange::Changed, slot);
        }
    }

    /// Ends a connection and leaves word of it.
    pub(super) fn end(&mut self, slot: Slot, reason: CloseReason) {
        let entered_at = self.entered_at(slot);
        if let Some(connection) = self.remove_untold(slot) {
            self.chain.close(&connection, reason);
            self.counters.ended += 1;
            if self.observation.is_following() {
                self.observation.note_connection(ConnectionChange::Ended, &connection, entered_at);
            }
            let has_timed_out = self.sharing.is_some() && reason == CloseReason::Timeout;
            let ended = Ended { has_timed_out, ..Ended::from(&connection) };
            self.changes.push(TableChange::Ended { slot, ended });
        }
    }

    /// Enters a connection into the table, counted to its source, and known to the worker that its replies come to.
    /// `hash` is that of its original tuple.
    pub(super) fn insert(&mut self, connection: Connection, hash: u64, now: Instant) -> Result<Slot, InsertError> {
        let slot = self.table.insert_hashed(connection, hash, now)?;
        self.count_of_source(&connection.original);
        self.shard.note_entered(&connection);
        self.begin_mark(now, slot);
        Ok(slot)
    }

    /// Takes a connection out of the table and out of all that [`Pipeline::insert`] entered it into, with what is known of
    /// its relations to others.
    pub(super) fn remove_untold(&mut self, slot: Slot) -> Option<Connection> {
        let removed = self.table.remove(slot)?;
        self.note_copy_gone(slot, &removed);
        self.discount_of_source(&removed.original);
        self.shard.note_removed(&removed);
        self.forget_relations(&removed);
        Some(removed)
    }

    /// Does with a packet what the chain says.
    #[inline(always)]
    pub(super) fn send<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        verdict: Verdict,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        match verdict {
            Verdict::Forward => Ok(self.forward(now, packet, edge)),
            Verdict::Reply => Ok(Disposition::Transmit(packet.frame.ingress)),
            Verdict::Queued => Ok(Disposition::Consumed),
            Verdict::Drop(reason) => Err(reason),
        }
    }
}

/// The headers of a packet as connection tracking is to see them, where they differ from those that came in: a function gives
/// segments of this connection other numbers.
#[inline(always)]
pub(super) fn as_sent(
    chain: &Chain,
    connection: &Connection,
    packet: &Packet<'_, '_>,
    direction: Direction,
) -> Option<Headers> {
    if chain.renumbers() { chain.as_sent(connection, packet.headers, direction) } else { None }
}

/// Counts a packet that passes.
#[inline(always)]
pub(super) fn count(connection: &mut Connection, packet: &Packet<'_, '_>, direction: Direction) {
    connection.packets[direction.index()] += packets_in(packet.frame);
    connection.bytes[direction.index()] += u64::from(packet.headers.l3_bytes);
}

/// The packet leaves with its batch: nobody has to be told anything.
#[inline(always)]
pub(super) const fn is_on_its_way(sent: Result<Disposition, DropReason>) -> bool {
    matches!(sent, Ok(Disposition::Transmit(_)))
}

/// Packets that the frame stands for on the wire.
fn packets_in(frame: &Frame<'_>) -> u64 {
    let segmentation = frame.segmentation;
    if segmentation.kind == SegmentationKind::None || segmentation.size_bytes == 0 {
        return 1;
    }
    let payload = frame.bytes().len().saturating_sub(usize::from(segmentation.header_bytes));
    payload.div_ceil(usize::from(segmentation.size_bytes)).max(1) as u64
}
