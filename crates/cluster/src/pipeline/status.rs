//! What is known of a pipeline from outside: its connections, its counters, what waits.

use flow::connection::flags;
use flow::fragments::FragmentTable;
use flow::table::{Slot, Table};
use flow::wire::ip_protocol;
use flow::{Connection, Direction, DropReason, Instant, Tuple};
use network_functions::chain::{Chain, ChainCounters};
use network_functions::class::Class;
use network_functions::expectation::Expectations;
use network_functions::log::Log;
use replication::deferral::Age;

use super::Pipeline;
use super::classes::ClassTraffic;
use super::connections::Connections;
use super::counters::PipelineCounters;
use super::fast_path::FastPath;
use super::resets::ResetCounters;
use super::shard::{Place, ShardCounters};
use super::sharing::SharingCounters;
use super::tombstones::TombstoneCounters;
use crate::observation::Observation;

/// Status.
impl Pipeline {
    /// The connections.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.connections.table
    }

    /// The connections, to be changed behind the node's back: for simulations that break something on purpose.
    pub const fn table_to_break(&mut self) -> &mut Table {
        &mut self.connections.table
    }

    /// The connection that has `tuple`, and which way it goes on it.
    #[must_use]
    pub fn lookup(&self, tuple: &Tuple) -> Option<(Slot, Direction)> {
        self.connections.lookup(tuple)
    }

    /// A connection, to be read.
    #[must_use]
    pub fn connection(&self, slot: Slot) -> Option<&Connection> {
        self.connections.table.get(slot)
    }

    /// The chain.
    #[must_use]
    pub const fn chain(&self) -> &Chain {
        &self.connections.functions.chain
    }

    /// The chain's counters.
    #[must_use]
    pub const fn chain_counters(&self) -> &ChainCounters {
        &self.connections.functions.output.counters
    }

    /// The class of a connection; `None` without a classifier.
    #[must_use]
    pub fn class(&self, connection: &Connection) -> Option<Class> {
        self.connections.functions.output.classes.class(connection)
    }

    /// The traffic of each class, by [`Class::index`]; `None` without a classifier.
    #[must_use]
    pub fn class_traffic(&self) -> Option<[ClassTraffic; Class::COUNT]> {
        let below = self.connections.fast_path.as_deref().map(FastPath::classes);
        self.connections.functions.output.classes.traffic(below)
    }

    /// What functions said to the operator.
    pub const fn log(&mut self) -> &mut Log {
        &mut self.connections.functions.output.log
    }

    /// Entries of functions that were not logged because of a limit.
    #[must_use]
    pub const fn dropped_log_entries(&self) -> u64 {
        self.connections.functions.output.log.dropped_entries()
    }

    /// The pipeline's counters.
    #[must_use]
    pub const fn counters(&self) -> &PipelineCounters {
        &self.connections.counters
    }

    /// Counts a packet that was dropped outside the pipeline's sight.
    pub const fn count_drop(&mut self, reason: DropReason) {
        self.connections.counters.drops[reason as usize] += 1;
    }

    /// Who watches packets and connections.
    #[must_use]
    pub const fn observation(&self) -> &Observation {
        &self.connections.observation
    }

    /// As [`Pipeline::observation`], to be changed.
    pub const fn observation_mut(&mut self) -> &mut Observation {
        &mut self.connections.observation
    }

    /// Its place among the node's workers.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.connections.shard.place()
    }

    /// What was handed over, and what was taken.
    #[must_use]
    pub const fn shard_counters(&self) -> ShardCounters {
        self.connections.shard.counters
    }

    /// Counts frames that another worker has handed over.
    pub(crate) const fn count_taken(&mut self, frames: usize) {
        self.connections.shard.counters.taken += frames as u64;
    }

    /// Reply tuples of other workers' connections that are known here.
    #[must_use]
    pub fn redirects(&self) -> usize {
        self.connections.shard.redirects.len()
    }

    /// Announcements that found no room.
    #[must_use]
    pub const fn announcements_lost(&self) -> u64 {
        self.connections.relations.announcements_lost
    }

    /// The connections that are expected.
    #[must_use]
    pub const fn expectations(&self) -> &Expectations {
        &self.connections.relations.expectations
    }

    /// The original tuple of the connection on whose behalf this one was expected, if it was.
    #[must_use]
    pub fn related_to(&self, connection: &Connection) -> Option<&Tuple> {
        self.connections.relations.master_of(connection)
    }

    /// Connections that the source of `tuple` has, if they are limited.
    #[must_use]
    pub fn connections_of_source(&self, tuple: &Tuple) -> Option<u32> {
        self.connections.sources.count(tuple)
    }

    /// Packets of which some fragments have come.
    #[must_use]
    pub const fn fragments(&self) -> &FragmentTable {
        &self.fragments
    }

    /// Whether other nodes forward beside this one.
    #[must_use]
    pub const fn is_sharing(&self) -> bool {
        self.connections.sharing.is_some()
    }

    /// Counters of shared connections; all zero while no node forwards beside this one.
    #[must_use]
    pub fn sharing_counters(&self) -> SharingCounters {
        self.connections.sharing.as_ref().map_or_else(SharingCounters::default, |sharing| sharing.counters)
    }

    /// The connection's owner is another node, which lives and forwards: it alone replicates it.
    #[must_use]
    pub fn has_live_owner(&self, connection: &Connection) -> bool {
        self.connections.sharing.as_ref().is_some_and(|sharing| sharing.live_owners.contains(&connection.owner))
    }

    /// Packets that wait for an update of a peer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the first of them has waited long enough.
    #[must_use]
    pub fn waiting_deadline(&self) -> Option<Instant> {
        self.waiting.deadline()
    }

    /// Ends that are remembered, and what came of them.
    #[must_use]
    pub fn tombstones(&self) -> TombstoneCounters {
        self.connections.tombstones.counters()
    }

    /// Resets of connections whose server has failed.
    #[must_use]
    pub const fn reset_counters(&self) -> ResetCounters {
        self.connections.resets.counters()
    }

    /// Whether connections are being re-evaluated by the chain.
    #[must_use]
    pub const fn is_reevaluating(&self) -> bool {
        self.reevaluation.is_active()
    }

    /// Whether the connection, which has just begun or changed, is of use to others before it is old: connections are
    /// expected on its behalf, or it was expected, or its packets come, or may come, to other nodes as well.
    pub(crate) fn is_needed_by_others(&self, slot: Slot) -> bool {
        let related = |flags: u8| flags & (flags::RELATED | flags::EXPECTS | flags::SHARED) != 0;
        let may_be_shared = self.connections.sharing.as_ref().is_some_and(|sharing| !sharing.is_symmetric);
        may_be_shared || self.connection(slot).is_some_and(|connection| related(connection.flags))
    }

    /// The age of a connection of this node's that began at `began`. One with packets in both directions, of a protocol with an
    /// end, is open until its end; the age of others is the time from their first packet to the last.
    pub(crate) fn age(&self, slot: Slot, began: Instant) -> Age {
        let Connections { node, table, tracker, .. } = &self.connections;
        let Some(connection) = table.get(slot).filter(|connection| connection.owner == *node) else { return Age::Gone };
        if connection.original.protocol == ip_protocol::TCP && connection.flags & flags::REPLIED != 0 {
            return Age::Open;
        }
        let timeout = tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
        let last_packet_ns = connection.expires_at_nanos.saturating_sub(timeout.as_nanos() as u64);
        Age::Observed(Instant::from_nanos(last_packet_ns).saturating_since(began))
    }
}
