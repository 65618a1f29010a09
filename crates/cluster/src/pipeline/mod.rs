//! A packet's way through the connection table, the tracker and the chain of functions.
//!
//! ```text
//! batch ─► parse, have records fetched ─► for each: look up ┬ known ──► tracker ─► chain ──┬─► edge.forward
//!                                                           ├ unknown ► begin ──► chain ───┘
//!                                                           ├ ICMP error ► translate ──────┘
//!                                                           └ for the node itself ► edge
//! ```
//! Fragments go the way of their first one, which alone has the ports: see [`flow::fragments`].
//!
//! The pipeline knows connections; what lies around it (addresses, routes, neighbours) is the [`Edge`]'s.
//! What changes is left in [`Pipeline::take_changes`] for whoever tells the backups.

mod announcing;
mod batch;
mod connections;
mod counters;
mod elsewhere;
mod expiry;
mod fragments;
mod guests;
mod icmp_error;
mod lazily;
mod limits;
mod observing;
mod recovery;
mod related;
mod renewal;
mod replica;
mod shard;
mod sharing;
#[cfg(test)]
mod tests;
mod tombstones;
mod waiting;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use flow::conntrack::{Change, Tracker};
use flow::fragments::FragmentTable;
use flow::table::{Slot, Table};
use flow::wire::Packet;
use flow::{BATCH_FRAMES_MAX, Connection, Disposition, DropReason, Frame, HashKey, Instant, NodeId, Tuple};
use network_functions::chain::{Chain, ChainCounters};
use network_functions::expectation::Expectations;
use network_functions::log::Log;

use replication::representation::precise::Ended;

use crate::forwarding::Admission;
use crate::observation::{Observation, Way};
use announcing::Announcements;
use batch::Pending;
use elsewhere::ForwardedElsewhere;
use limits::Sources;
use shard::Shard;
use sharing::Sharing;

pub use announcing::{ANNOUNCEMENTS_WAITING_MAX, Announcement};
pub use counters::PipelineCounters;
pub use elsewhere::QUIET_MIN;
pub use expiry::CopyExpiry;
pub use limits::{Limits, SourceLimit};
pub use recovery::{MISSES_PER_SOURCE_MAX_DEFAULT, RECOVERY_LASTS_DEFAULT, Recalled, RecoveryConfig, RecoveryCounters};
use recovery::{Recollection, Recovery};
use related::Related;
pub use replica::{Applied, Remnants};
pub use shard::{HandedFrame, Place, Redirect, ShardCounters};
pub use sharing::{SharingConfig, SharingCounters, WAIT_FOR_PEER_DEFAULT};
use tombstones::Tombstones;
pub use tombstones::{TOMBSTONE_LIFETIME, TOMBSTONES_MAX, TombstoneCounters};
pub(crate) use waiting::Released;
pub use waiting::{WAITING_BYTES_MAX, WAITING_FRAMES_MAX, WAITING_FRAMES_PER_SOURCE_MAX};

/// What lies around the pipeline: the node's own addresses, the ways out, and the backups.
pub trait Edge {
    /// An ARP packet that begins at `offset` in the frame.
    fn handle_arp(&mut self, now: Instant, frame: &mut Frame<'_>, offset: u16) -> Disposition;

    /// A frame by which a peer is detected over this link (see [`crate::forwarding::PATH_ETHER_TYPE`]).
    fn handle_path_frame(&mut self, now: Instant, frame: &mut Frame<'_>) -> Disposition {
        let _ = (now, frame);
        Disposition::Drop(DropReason::UnsupportedLinkProtocol)
    }

    /// Whether a packet is to pass, is for the node itself, or is refused: judged as it came in, before any function.
    fn admit(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Admission;

    /// A packet for the node itself that belongs to no connection: neighbour discovery, a ping.
    fn handle_local(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition;

    /// Whether the first answer to a connection is kept back until a backup knows the connection. True takes the packet:
    /// the edge keeps a copy and hands it in again.
    fn holds_first_reply(&mut self, now: Instant, slot: Slot, packet: &Packet<'_, '_>) -> bool {
        let _ = (now, slot, packet);
        false
    }

    /// What another node that is gone, or stands by, told of the connection that began with this tuple. Only while a recovery
    /// lasts ([`Pipeline::begin_recovery`]).
    fn recall(&self, original: &Tuple) -> Option<Recalled> {
        let _ = original;
        None
    }

    /// Sends a packet, already translated, on its way.
    fn forward(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition;

    /// Sends a packet that the pipeline made itself, already translated, on its way: it leaves with the node's own frames, or
    /// not at all where there is no room for it. Only while a recovery lasts.
    fn post(&mut self, now: Instant, packet: &mut Packet<'_, '_>) {
        let _ = (now, packet);
    }

    /// Where [`Edge::forward`] would send a packet with this tuple, for those who look on.
    fn way(&self, tuple: &Tuple) -> Option<Way> {
        let _ = tuple;
        None
    }

    /// The packet that was given to [`Edge::forward`] last, or was not for a function's verdict, does not leave at once: it
    /// was dropped, or it waits for something. It came in with the tuple `as_received`. Whoever sent it may have to be told
    /// why, now or later, in terms of the packet as it was sent.
    fn note_not_sent(&mut self, now: Instant, packet: &mut Packet<'_, '_>, as_received: &Tuple) {
        let _ = (now, packet, as_received);
    }
}

/// What happened to a connection that the backups may have to be told.
#[derive(Clone, Copy, Debug)]
pub enum TableChange {
    /// It began.
    Began {
        /// Where it lies.
        slot: Slot,
    },
    /// This node became its master. The former one and the other backups must learn of it whatever state the connection
    /// is in: what they say of it themselves no longer counts here.
    TakenOver {
        /// Where it lies.
        slot: Slot,
    },
    /// A function changed its state, or what is expected on its behalf changed: its backups must learn of it whatever
    /// state it is in.
    FunctionsChanged {
        /// Where it lies.
        slot: Slot,
    },
    /// It changed.
    Changed {
        /// Where it lies.
        slot: Slot,
        /// How much changed.
        change: Change,
        /// Its protocol's state before.
        previous_state: u8,
    },
    /// It ended; the slot may hold another connection by now.
    Ended {
        /// Where it lay.
        slot: Slot,
        /// Its name.
        ended: Ended,
    },
    /// What lies in the slot has another node for its master, or had: a copy came, changed or went.
    Copied {
        /// Where it lies or lay.
        slot: Slot,
    },
    /// A connection that this node was master of gave way to a peer's word of one with the same tuple: it has not ended.
    Displaced {
        /// Where it lay.
        slot: Slot,
        /// Its tuple.
        original: Tuple,
    },
    /// A peer told of a connection that has ended here: it must learn so.
    Refused {
        /// The peer.
        to: NodeId,
        /// The end, newer than the peer's word.
        ended: Ended,
    },
}

/// The connection table with everything that acts on it.
pub struct Pipeline {
    node: NodeId,
    table: Table,
    tracker: Tracker,
    chain: Chain,
    /// [`Chain::packets_use_states`].
    packets_use_states: bool,
    chain_counters: ChainCounters,
    log: Log,
    expectations: Expectations,
    related: Related,
    tombstones: Tombstones,
    announcements: Announcements,
    counters: PipelineCounters,
    changes: Vec<TableChange>,
    /// A place for each packet of a batch.
    pending: Vec<Pending>,
    /// Connections from this slot on are still to be held against the configuration in force.
    unjudged_from: Option<Slot>,
    fragments: FragmentTable,
    sources: Option<Sources>,
    /// Packets of no connection are asked for.
    recovery: Option<Box<Recovery>>,
    recovery_counters: RecoveryCounters,
    key: HashKey,
    /// Other nodes forward beside this one.
    sharing: Option<Box<Sharing>>,
    forwarded_elsewhere: ForwardedElsewhere,
    /// Connections may begin.
    begins: bool,
    pub(crate) shard: Shard,
    pub(crate) observation: Observation,
}

impl Pipeline {
    /// A pipeline of `node` for at most `connections_max` connections.
    #[must_use]
    pub fn new(node: NodeId, connections_max: u32, key: HashKey, tracker: Tracker, chain: Chain) -> Self {
        let chain_counters = chain.new_counters();
        Self {
            node,
            table: Table::new(connections_max, key),
            tracker,
            packets_use_states: chain.packets_use_states(),
            chain,
            chain_counters,
            log: Log::default(),
            expectations: Expectations::default(),
            related: Related::default(),
            tombstones: Tombstones::new(connections_max),
            announcements: Announcements::default(),
            counters: PipelineCounters::default(),
            changes: Vec::with_capacity(4 * BATCH_FRAMES_MAX),
            pending: vec![Pending::EMPTY; BATCH_FRAMES_MAX],
            unjudged_from: None,
            fragments: FragmentTable::new(Limits::default().fragments, key),
            sources: None,
            recovery: None,
            recovery_counters: RecoveryCounters::default(),
            key,
            sharing: None,
            forwarded_elsewhere: ForwardedElsewhere::Never,
            begins: true,
            shard: Shard::default(),
            observation: Observation::default(),
        }
    }

    /// The same pipeline, which holds nothing yet, with these limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        debug_assert!(self.table.is_empty(), "what is there already would not be counted");
        let connections_max = self.table.capacity();
        self.fragments = FragmentTable::new(limits.fragments, self.key);
        self.sources = limits.sources.map(|limit| Sources::new(limit, connections_max, self.key));
        self
    }

    /// The connections.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// The connections, to be changed behind the node's back: for simulations that break something on purpose.
    pub const fn table_to_break(&mut self) -> &mut Table {
        &mut self.table
    }

    /// The chain.
    #[must_use]
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The chain's counters.
    #[must_use]
    pub const fn chain_counters(&self) -> &ChainCounters {
        &self.chain_counters
    }

    /// What functions said to the operator.
    pub const fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Entries of functions that were not logged because of a limit.
    #[must_use]
    pub const fn dropped_log_entries(&self) -> u64 {
        self.log.dropped_entries()
    }

    /// The pipeline's counters.
    #[must_use]
    pub const fn counters(&self) -> &PipelineCounters {
        &self.counters
    }

    /// Counts a packet that was dropped outside the pipeline's sight.
    pub const fn count_drop(&mut self, reason: DropReason) {
        self.counters.drops[reason as usize] += 1;
    }

    /// What changed since the last call, oldest first. The caller gives the vector back empty with
    /// [`Pipeline::return_changes`], so that none is allocated on the packet path.
    #[must_use]
    pub fn take_changes(&mut self) -> Vec<TableChange> {
        core::mem::take(&mut self.changes)
    }

    /// Takes back what [`Pipeline::take_changes`] gave, to be filled again.
    pub fn return_changes(&mut self, mut changes: Vec<TableChange>) {
        changes.clear();
        self.changes = changes;
    }
}

/// The connection in a slot that a lookup has just given.
fn record(table: &Table, slot: Slot) -> &Connection {
    table.get(slot).expect("lookups give occupied slots")
}

/// As [`record`], to be changed.
fn record_mut(table: &mut Table, slot: Slot) -> &mut Connection {
    table.get_mut(slot).expect("lookups give occupied slots")
}
