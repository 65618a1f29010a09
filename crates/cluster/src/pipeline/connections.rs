//! The connections of a node: the table, and all that changes when a connection enters it, changes hands or leaves it. A packet
//! moves the automaton of its connection on and passes the chain here.

use alloc::boxed::Box;
use alloc::vec::Vec;

use flow::connection::flags;
use flow::conntrack::{Advance, Change, Tracker};
use flow::table::{InsertError, Slot, Table};
use flow::wire::{Headers, Packet, TcpHeader, TunnelEnd};
use flow::{BATCH_FRAMES_MAX, Connection, Direction, DropReason, HashKey, Instant, NodeId, Tuple};
use network_functions::chain::Chain;
use network_functions::expectation::Fulfilled;
use network_functions::function::{AcceptedClient, CloseReason, HandshakeExchange, Verdict};
use network_functions::syn_proxy::SynProxyState;
use replication::representation::precise::{EndCause, Ended};

use super::change::TableChange;
use super::classes::ClassCounters;
use super::counters::PipelineCounters;
use super::elsewhere::ForwardedElsewhere;
use super::fast_path::FastPath;
use super::functions::Functions;
use super::limits::Sources;
use super::lookup::StateLookup;
use super::packet_path::GatewayReason;
use super::plan::Plans;
use super::relations::Relations;
use super::resets::Resets;
use super::shard::Shard;
use super::sharing::Sharing;
use super::tombstones::Tombstones;
use crate::forwarding::AsReceived;
use crate::observation::{ConnectionChange, Observation, Step};

/// See the [module](self).
pub(super) struct Connections {
    pub(super) node: NodeId,
    pub(super) table: Table,
    pub(super) plans: Plans,
    pub(super) tracker: Tracker,
    pub(super) functions: Functions,
    pub(super) relations: Relations,
    pub(super) sources: Sources,
    pub(super) tombstones: Tombstones,
    pub(super) resets: Resets,
    pub(super) shard: Shard,
    /// Other nodes forward beside this one.
    pub(super) sharing: Option<Box<Sharing>>,
    pub(super) forwarded_elsewhere: ForwardedElsewhere,
    /// Something below forwards packets of established connections.
    pub(super) fast_path: Option<Box<FastPath>>,
    /// Connections that are not here are looked up at other nodes.
    pub(super) state_lookup: Option<Box<StateLookup>>,
    pub(super) observation: Observation,
    pub(super) changes: Vec<TableChange>,
    pub(super) counters: PipelineCounters,
}

impl Connections {
    pub(super) fn new(node: NodeId, connections_max: u32, key: HashKey, tracker: Tracker, chain: Chain) -> Self {
        Self {
            node,
            table: Table::new(connections_max, key),
            plans: Plans::new(connections_max),
            tracker,
            functions: Functions::new(chain),
            relations: Relations::default(),
            sources: Sources::default(),
            tombstones: Tombstones::new(connections_max),
            resets: Resets::default(),
            shard: Shard::default(),
            sharing: None,
            forwarded_elsewhere: ForwardedElsewhere::Never,
            fast_path: None,
            state_lookup: None,
            observation: Observation::default(),
            changes: Vec::with_capacity(4 * BATCH_FRAMES_MAX),
            counters: PipelineCounters::default(),
        }
    }

    /// The connection that has `tuple`, and which way it goes on it.
    pub(super) fn lookup(&self, tuple: &Tuple) -> Option<(Slot, Direction)> {
        self.table.lookup(self.table.hash(tuple), tuple)
    }

    /// The tunnel that packets of this direction leave in.
    ///
    /// # Errors
    /// There is one, and it is not known here.
    #[inline(always)]
    pub(super) fn tunnel(&self, slot: Slot, direction: Direction) -> Result<Option<TunnelEnd>, DropReason> {
        match direction {
            Direction::Original => self.functions.chain.tunnel(record(&self.table, slot)),
            Direction::Reply => Ok(None),
        }
    }

    /// A packet of this direction, which all functions have processed, as it came in.
    #[cold]
    pub(super) fn as_received(&self, slot: Slot, direction: Direction, packet: &Packet<'_, '_>) -> AsReceived {
        let (connection, chain) = (record(&self.table, slot), &self.functions.chain);
        let is_renumbered = chain.renumbers() && chain.needs_packets(connection);
        let changed = if is_renumbered { TcpHeader::of(packet) } else { None };
        let tcp_header = changed.and_then(|changed| {
            let mut header = changed;
            header.edit(packet, |quoted| chain.restore_quoted(connection, quoted, direction));
            (header != changed).then_some(header)
        });
        AsReceived { tuple: *connection.tuple(direction), tcp_header }
    }

    /// A number for a tuple, and another one for its inverse; the table's hash is the same for both.
    pub(super) fn directed_hash(&self, tuple: &Tuple) -> u64 {
        let is_reversed = (tuple.source, tuple.source_port) > (tuple.destination, tuple.destination_port);
        self.table.hash(tuple) ^ u64::from(is_reversed)
    }

    /// The version that a new connection with this tuple begins with: newer than all of an ended one that is remembered.
    #[inline]
    pub(super) fn first_version(&self, original: &Tuple) -> u32 {
        if self.tombstones.is_empty() { 1 } else { self.tombstones.first_version(self.directed_hash(original)) }
    }

    /// Another node forwards beside this one and is alive.
    pub(super) fn has_living_peer(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| !sharing.live_owners.is_empty())
    }

    /// Connections that are not in the table are looked up at other nodes.
    pub(super) fn looks_up(&self) -> bool {
        self.state_lookup.as_ref().is_some_and(|state_lookup| state_lookup.has_peers())
    }

    /// Enters a new connection; when the table is full, in the place of one that was never answered, if one is near.
    pub(super) fn enter(&mut self, now: Instant, connection: Connection, hash: u64) -> Result<Slot, DropReason> {
        self.insert_or_displace(connection, hash, now, |_| true).map_err(|refusal| match refusal {
            InsertError::TupleInUse => DropReason::TupleInUse,
            InsertError::Full => DropReason::TableFull,
        })
    }

    /// As [`Connections::insert`]; when the table is full, in the place of a connection near that is not assured and `may_go`.
    pub(super) fn insert_or_displace(
        &mut self,
        connection: Connection,
        hash: u64,
        now: Instant,
        may_go: impl Fn(&Connection) -> bool,
    ) -> Result<Slot, InsertError> {
        match self.insert(connection, hash, now) {
            Err(InsertError::Full) => {}
            result => return result,
        }
        let victim = self.table.early_drop_candidate(hash, may_go).ok_or(InsertError::Full)?;
        self.counters.early_dropped += 1;
        self.end(victim, CloseReason::Terminated);
        self.insert(connection, hash, now)
    }

    /// Enters a connection into the table, counted to its source, and known to the worker that its replies come to.
    /// `hash` is that of its original tuple.
    pub(super) fn insert(&mut self, connection: Connection, hash: u64, now: Instant) -> Result<Slot, InsertError> {
        let slot = self.table.insert_hashed(connection, hash, now)?;
        self.plans.void(slot);
        if !self.resets.is_empty() {
            self.resets.forget(&connection);
        }
        self.sources.add(&connection.original);
        self.functions.note_entered(&connection);
        self.shard.note_entered(&connection);
        if let Some(state_lookup) = &mut self.state_lookup {
            state_lookup.note_entered(&connection);
        }
        if let Some(sharing) = &mut self.sharing {
            sharing.note_entered(now, slot);
        }
        Ok(slot)
    }

    /// Takes a connection out of the table and out of all that [`Connections::insert`] entered it into, with what is known of
    /// its relations to others. Peers are not informed.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Connection> {
        let removed = self.table.remove(slot)?;
        if removed.owner != self.node {
            self.changes.push(TableChange::Copied { slot });
        }
        self.sources.subtract(&removed.original);
        self.functions.note_left(&removed);
        self.shard.note_removed(&removed);
        if let Some(state_lookup) = &mut self.state_lookup {
            state_lookup.note_left(&removed);
        }
        if let Some(fast_path) = &mut self.fast_path {
            fast_path.forget(slot);
        }
        self.relations.forget(&removed);
        Some(removed)
    }

    /// Ends a connection; peers are informed.
    pub(super) fn end(&mut self, slot: Slot, reason: CloseReason) {
        let entered_at = self.entered_at(slot);
        let Some(connection) = self.remove(slot) else { return };
        self.functions.chain.close(&connection, reason);
        self.counters.ended += 1;
        if self.observation.is_following() {
            self.observation.note_connection(ConnectionChange::Ended, &connection, entered_at);
        }
        let cause = match reason {
            CloseReason::Timeout if self.sharing.is_some() => EndCause::TimedOut,
            CloseReason::Failed => EndCause::Failed,
            _ => EndCause::Other,
        };
        let ended = Ended { cause, ..Ended::from(&connection) };
        self.changes.push(TableChange::Ended { slot, ended });
    }

    /// Ends a connection of this node's because its server has failed: both ends are reset.
    pub(super) fn end_failed(&mut self, now: Instant, slot: Slot) {
        self.take_seen(slot);
        let connection = record(&self.table, slot);
        let is_own = connection.owner == self.node;
        // The numbers of a proxied server differ on the two sides.
        let proxied = self.functions.chain.state_of::<SynProxyState>(connection);
        let to_client = proxied.map_or(0, |state| state.sequence_offset());
        self.resets.note_ended(now, connection, is_own.then_some(to_client));
        // Peers accept the end of a connection only from its owner.
        self.claim(now, slot);
        self.end(slot, CloseReason::Failed);
    }

    /// This node becomes the owner of a connection that it holds a replica of, without having seen a packet of it. When the last
    /// one came is not known: the connection gets its state's whole time from now.
    pub(super) fn claim(&mut self, now: Instant, slot: Slot) {
        let node = self.node;
        let Some(connection) = self.table.get_mut(slot).filter(|connection| connection.owner != node) else { return };
        connection.take_over(node);
        let timeout = self.tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
        self.table.expire_sooner(slot, now + timeout);
    }

    /// This node becomes the owner of a connection that it knows as well as its former owner did.
    pub(super) fn take_over_shared(&mut self, now: Instant, slot: Slot) {
        let connection = record_mut(&mut self.table, slot);
        connection.flags &= !flags::REPLICA;
        connection.take_over(self.node);
        if let Some(sharing) = &mut self.sharing {
            sharing.note_update(now, slot);
        }
    }

    /// A function has changed its state by a packet of a peer-owned connection: this node replicates that, and so is its
    /// owner. True if it was peer-owned.
    pub(super) fn take_over_if_peer_owned(&mut self, now: Instant, slot: Slot) -> bool {
        let is_peer_owned = self.sharing.is_some() && record(&self.table, slot).owner != self.node;
        if is_peer_owned {
            self.take_over_shared(now, slot);
            self.counters.taken_over += 1;
        }
        is_peer_owned
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

    /// Takes over what the fast path saw of a connection, before one of its packets is tracked.
    #[inline(always)]
    pub(super) fn take_seen(&mut self, slot: Slot) {
        if let Some(fast_path) = &mut self.fast_path {
            let _ = fast_path.take_seen(slot, record_mut(&mut self.table, slot), &self.tracker);
        }
    }

    /// A packet of the connection was sent on, if it is still there: the fast path follows.
    #[inline(always)]
    pub(super) fn follow_in_fast_path(&mut self, slot: Slot) {
        if let Some(fast_path) = &mut self.fast_path
            && let Some(connection) = self.table.get_mut(slot)
        {
            fast_path.follow(slot, connection, &self.tracker);
        }
    }

    /// Another node is about to become the owner of a connection: what the fast path saw is taken over, and its packets come to this node.
    pub(super) fn leave_fast_path(&mut self, slot: Slot) {
        if let Some(fast_path) = &mut self.fast_path {
            fast_path.remove_and_fold(slot, record_mut(&mut self.table, slot), &self.tracker);
        }
    }

    /// Whether an own connection needs no more than the fast path does, as far as others than the fast path know.
    pub(super) fn check_for_fast_path(
        &self,
        now: Instant,
        connection: &Connection,
        is_backed_up: impl FnOnce() -> bool,
    ) -> Result<(), GatewayReason> {
        if self.observation.looks_at(connection) {
            return Err(GatewayReason::Traced);
        }
        if self.functions.chain.tunnel(connection) != Ok(None) {
            return Err(GatewayReason::Tunnel);
        }
        if self.functions.chain.needs_packets(connection) {
            return Err(GatewayReason::Function);
        }
        if self.forwarded_elsewhere.concerns(now, &self.tracker, connection) {
            return Err(GatewayReason::ForwardedElsewhere);
        }
        if is_backed_up() { Ok(()) } else { Err(GatewayReason::NotAcknowledged) }
    }

    /// Has the functions begin a connection with its first packet: that of an accepted client, if a function has answered it.
    pub(super) fn init(
        &mut self,
        now: Instant,
        connection: &mut Connection,
        packet: &Packet<'_, '_>,
        accepted: Option<AcceptedClient>,
    ) -> Result<(), DropReason> {
        let Functions { chain, output, .. } = &mut self.functions;
        let mut runtime = output.runtime(now, self.node, &mut self.relations.expectations);
        runtime.handshake.accepted = accepted;
        let tuples = self.shard.tuples(&self.table);
        if self.observation.attends() {
            let mut function_observer = self.observation.function_observer(chain, packet.headers.tuple);
            chain.init_watched(&mut runtime, &tuples, connection, packet, &mut function_observer)
        } else {
            chain.init(&mut runtime, &tuples, connection, packet)
        }
    }

    /// Whether the rules permit a packet for the node itself that crosses it, from one port to an address of another: as if it began a
    /// connection.
    ///
    /// # Errors
    /// They do not.
    pub(super) fn check_rules(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Result<(), DropReason> {
        let (protocol, timeout) = self.tracker.begin(packet.headers)?;
        let mut connection = Connection::new(packet.headers.tuple, self.node, protocol, now + timeout);
        match self.init(now, &mut connection, packet, None) {
            Err(reason @ (DropReason::FirewallDenied | DropReason::RateLimited)) => Err(reason),
            _ => Ok(()),
        }
    }

    /// Moves the connection's automaton on, taking the connection over if it was a replica. The second value is true then.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        packet: &Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
    ) -> (Advance, bool) {
        let Self { node, table, tracker, functions, forwarded_elsewhere, counters, .. } = &mut *self;
        let connection = record_mut(table, slot);
        let taken_over = connection.flags & flags::REPLICA != 0;
        if taken_over {
            connection.flags &= !flags::REPLICA;
            tracker.take_over(connection.original.protocol, &mut connection.protocol);
            counters.taken_over += 1;
        } else if connection.owner == *node && forwarded_elsewhere.concerns(now, tracker, connection) {
            tracker.take_over(connection.original.protocol, &mut connection.protocol);
            counters.relearnt += 1;
        }
        if connection.owner != *node {
            connection.take_over(*node);
        }
        let renumbered = as_sent(&functions.chain, connection, packet, direction);
        let headers = renumbered.as_ref().unwrap_or(packet.headers);
        let advance = tracker.advance(now, &mut connection.protocol, &mut connection.flags, direction, headers);
        if advance.verdict.is_ok() {
            count(connection, packet, direction, &mut functions.output.classes);
        }
        if advance.change != Change::None {
            connection.bump_version();
        }
        if let Some(timeout) = advance.timeout {
            self.set_expiry(slot, now + timeout);
        }
        (advance, taken_over)
    }

    /// Moves the automaton on for what most packets are: a plain segment of a connection that this node owns. False,
    /// and nothing done, for all others.
    #[inline(always)]
    pub(super) fn advance_plain(
        &mut self,
        now: Instant,
        packet: &Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
    ) -> bool {
        let Self { node, table, tracker, functions, forwarded_elsewhere, .. } = &mut *self;
        let connection = record_mut(table, slot);
        if connection.owner != *node || connection.flags & flags::REPLICA != 0 {
            return false;
        }
        if forwarded_elsewhere.concerns(now, tracker, connection) {
            return false;
        }
        // What a function has renumbered is not what the tracker is to see, and needs a second look.
        if as_sent(&functions.chain, connection, packet, direction).is_some() {
            return false;
        }
        let flags = connection.flags;
        let Some(timeout) = tracker.advance_plain(&mut connection.protocol, flags, direction, packet.headers) else {
            return false;
        };
        count(connection, packet, direction, &mut functions.output.classes);
        let expires_at = now + timeout;
        if expires_at.as_nanos() >= connection.expires_at_nanos {
            connection.expires_at_nanos = expires_at.as_nanos();
        } else {
            table.expire_sooner(slot, expires_at);
        }
        true
    }

    /// Tracks a plain segment of a connection that this node owns, and has the functions process it. `None`, and nothing done,
    /// for all other packets.
    #[inline(always)]
    pub(super) fn process_plain(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
    ) -> Option<(Verdict, bool)> {
        if !self.advance_plain(now, packet, slot, direction) {
            return None;
        }
        if self.observation.attends() {
            self.observation.step(Step::plain_segment(record(&self.table, slot)));
        }
        Some(self.process(now, packet, slot, direction))
    }

    /// The chain's verdict on a packet, and whether a function changed its state.
    pub(super) fn process(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
    ) -> (Verdict, bool) {
        let revision = self.relations.expectations.revision();
        let connection = record_mut(&mut self.table, slot);
        let Functions { chain, output, .. } = &mut self.functions;
        let class = output.classes.class(connection);
        let mut runtime = output.runtime(now, self.node, &mut self.relations.expectations);
        let processed = if self.observation.attends() {
            let mut function_observer = self.observation.function_observer(chain, packet.headers.tuple);
            chain.process_watched(&mut runtime, connection, packet, direction, &mut function_observer)
        } else {
            chain.process(&mut runtime, connection, packet, direction)
        };
        let HandshakeExchange { to_server, refused, waits_until, .. } = runtime.handshake;
        if to_server.is_some() {
            output.to_server = to_server;
        }
        if refused.is_some() {
            output.refused = refused;
        }
        if waits_until.is_some() {
            output.waits_until = waits_until;
        }
        output.classes.note_processed(class, connection);
        if processed.states_changed {
            connection.bump_version();
            self.plans.void(slot);
            if self.relations.expectations.has(&connection.original) {
                connection.flags |= flags::EXPECTS;
            }
            if self.relations.expectations.revision() != revision {
                self.relations.announce(&connection.original);
            }
        }
        (processed.verdict, processed.states_changed)
    }

    /// A connection has begun in `slot`. If it was expected, its master's backups learn that it has come.
    pub(super) fn note_if_expected(&mut self, now: Instant, slot: Slot, tuple: &Tuple) {
        let Some(Fulfilled { master, is_used_up }) = self.relations.expectations.fulfil(now, tuple) else { return };
        record_mut(&mut self.table, slot).flags |= flags::RELATED;
        self.relations.set_master(tuple, Some(master));
        self.counters.related += 1;
        if is_used_up {
            self.note_used_up(&master, tuple);
        }
    }

    /// What was expected as `tuple` has come: the backups of the connection that announced it must learn so. That one may be
    /// another worker's.
    pub(super) fn note_used_up(&mut self, master: &Tuple, tuple: &Tuple) {
        if let Some((slot, Direction::Original)) = self.lookup(master) {
            record_mut(&mut self.table, slot).bump_version();
            self.changes.push(TableChange::FunctionsChanged { slot });
            self.relations.announce(master);
        } else {
            self.relations.announce_begun(master, tuple);
        }
    }

    pub(super) fn note_change(&mut self, slot: Slot, change: Change, previous_state: u8) {
        self.changes.push(TableChange::Changed { slot, change, previous_state });
        if change == Change::State {
            self.follow(ConnectionChange::Changed, slot);
        }
    }

    /// Shows a change of the connection in a slot to those who watch connections.
    #[inline]
    pub(super) fn follow(&mut self, change: ConnectionChange, slot: Slot) {
        if self.observation.is_following() {
            let entered_at = self.entered_at(slot);
            self.observation.note_connection(change, record(&self.table, slot), entered_at);
        }
    }

    /// Notes a step of the packet that is being handled, if it is watched.
    #[inline]
    pub(super) fn observe(&mut self, step: Step) {
        if self.observation.attends() {
            self.observation.step(step);
        }
    }

    /// When the connection in a slot was entered.
    fn entered_at(&self, slot: Slot) -> Instant {
        self.table.cold(slot).map_or(Instant::ZERO, |cold| Instant::from_nanos(cold.created_at_nanos))
    }
}

/// The connection in a slot that a lookup has just given.
#[inline(always)]
pub(super) fn record(table: &Table, slot: Slot) -> &Connection {
    table.get(slot).expect("lookups give occupied slots")
}

/// As [`record`], to be changed.
#[inline(always)]
pub(super) fn record_mut(table: &mut Table, slot: Slot) -> &mut Connection {
    table.get_mut(slot).expect("lookups give occupied slots")
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

/// Counts a packet that passes, to its connection and its class, unless it was counted before it waited for an answer.
#[inline(always)]
pub(super) fn count(
    connection: &mut Connection,
    packet: &Packet<'_, '_>,
    direction: Direction,
    classes: &mut ClassCounters,
) {
    if classes.is_counted {
        return;
    }
    let (packets, bytes) = (packet.frame.packets(), u64::from(packet.headers.l3_bytes));
    connection.packets[direction.index()] += packets;
    connection.bytes[direction.index()] += bytes;
    classes.note_packets(connection, packets, bytes);
}
