//! Compact replication: connections as entries of a filter, beside the records that sessions replicate.
//!
//! The session with each peer runs in every mode: it finds the peer, reports liveness, and replicates the records of connections that
//! the filter cannot represent. Beside it, in its own datagrams, a [`CompactSender`] replicates this node's connections to all
//! peers, and a [`CompactReceiver`] for each peer holds that peer's filter. The filter does not change the table: only after a
//! take-over, packets without a connection are looked up in it ([`crate::pipeline::RecoveryConfig`]).
//!
//! ```text
//!   pipeline ─ changes ─►─┬─ in the filter: CompactSender ══► peers' CompactReceivers
//!                         └─ as records (mixture): sessions ─► peers' tables
//!   peers' CompactSenders ══► CompactReceivers ─ lookup ─► pipeline, after a take-over
//! ```
//!
//! [`CompactSender`]: replication::compact::CompactSender
//! [`CompactReceiver`]: replication::compact::CompactReceiver

mod cells;
mod changes;
mod claimed;
mod inherited;
mod leaving;
mod mixture;
mod receiving;
mod standby;
mod status;

use alloc::vec::Vec;

use flow::{Instant, NodeId};
use replication::SessionEvent;
use replication::compact::{CompactConfig, CompactSender, ReceiverLimits, Representation};

use crate::node::error::ConfigError;
use crate::pipeline::{Pipeline, RecoveryConfig};

pub(in crate::node) use cells::Cells;
use claimed::ClaimedComparison;
use inherited::InheritedFilters;
pub(in crate::node) use inherited::Readvertised;
use leaving::Leaving;
use mixture::Mixture;
pub use mixture::WhichPrecise;
pub(in crate::node) use receiving::recovery_lookup;
use standby::StandbyComparison;
pub use status::{CompactStatus, InheritedStatus, PrecisionCounters};

/// Configuration of compact replication.
#[derive(Clone, Debug)]
pub struct CompactNodeConfig {
    /// The stream of filters.
    pub config: CompactConfig,
    /// Which connections are replicated as records as well.
    pub precise: WhichPrecise,
    /// How this node recovers connections from a peer's filter after a take-over.
    pub recovery: RecoveryConfig,
}

/// How many times larger than this node's a peer's filter may be, so that a peer with a new, larger size is not refused.
const PEERS_FILTER_LARGER_MAX: usize = 4;

impl CompactNodeConfig {
    /// How large a peer's filter may be.
    pub(in crate::node) fn receiver_limits(&self) -> ReceiverLimits {
        let own_words = self.config.filter_bytes().unwrap_or(0) / size_of::<u32>();
        let words_max = own_words.saturating_mul(PEERS_FILTER_LARGER_MAX).max(ReceiverLimits::default().words_max);
        ReceiverLimits { words_max }
    }
}

/// State of compact replication.
pub(in crate::node) struct Compact {
    node: NodeId,
    pub(in crate::node) sender: CompactSender,
    pub(in crate::node) cells: Cells,
    /// The filter's entries are pairs of hosts.
    is_of_hosts: bool,
    /// The filter's entries have states.
    has_states: bool,
    /// Only established connections have entries, in that state, until they are over.
    is_of_established: bool,
    mixture: Mixture,
    inherited: InheritedFilters,
    recovery: RecoveryConfig,
    standby: StandbyComparison,
    claimed: ClaimedComparison,
    leaving: Leaving,
    counters: PrecisionCounters,
    /// A recovery begins if entries arrive until then.
    awaits_entries_until: Option<Instant>,
    attributes: Vec<u8>,
}

impl Compact {
    pub(in crate::node) fn new(
        config: &CompactNodeConfig,
        node: NodeId,
        peers: &[NodeId],
        connections_max: u32,
    ) -> Result<Self, ConfigError> {
        let mut sender = CompactSender::new(config.config, peers)?;
        // A peer is reachable once its session is open.
        peers.iter().for_each(|peer| sender.peer_lost(*peer));
        Ok(Self {
            node,
            sender,
            cells: Cells::new(connections_max),
            is_of_hosts: config.config.representation == Representation::HostAggregate,
            has_states: config.config.representation.has_states(),
            is_of_established: false,
            mixture: Mixture::new(config.precise, connections_max),
            inherited: InheritedFilters::default(),
            recovery: config.recovery.clone(),
            standby: StandbyComparison::default(),
            claimed: ClaimedComparison::default(),
            leaving: Leaving::default(),
            counters: PrecisionCounters::default(),
            awaits_entries_until: None,
            attributes: Vec::new(),
        })
    }

    /// Whether only established connections have entries, from now on.
    pub(super) const fn set_of_established(&mut self, is_of_established: bool) {
        self.is_of_established = is_of_established;
    }

    /// Notes whether the peer is reachable.
    pub(in crate::node) fn note_session(&mut self, now: Instant, peer: NodeId, event: SessionEvent) {
        match event {
            SessionEvent::PeerUp => {
                self.sender.peer_back(now, peer);
                self.inherited.peer_back(now, peer);
            }
            // It may have restarted before it was missed. Its filters are gone all the same.
            SessionEvent::PeerRestarted => {
                self.sender.peer_restarted(now, peer);
                self.inherited.peer_restarted(now, peer);
            }
            SessionEvent::PeerSilent | SessionEvent::PeerLeft => {
                self.sender.peer_lost(peer);
                self.inherited.peer_lost(peer);
            }
            _ => {}
        }
    }

    /// When it has something to do next.
    pub(in crate::node) fn poll_timeout(&self) -> Option<Instant> {
        let precise_at = self.mixture.poll_timeout(self.sender.spare_budget_at());
        let timeouts = [self.sender.poll_timeout(), self.inherited.poll_timeout(), precise_at];
        let timeouts = timeouts.into_iter().chain([self.standby.poll_timeout(), self.claimed.poll_timeout()]);
        let looks_at = self.leaving.is_looking().then_some(Instant::ZERO);
        timeouts.chain([self.awaits_entries_until, looks_at]).flatten().min()
    }

    pub(in crate::node) fn status(&self, pipeline: &Pipeline) -> CompactStatus {
        CompactStatus {
            sender: self.sender.status(),
            inherited: self.inherited.status(),
            precision: self.counters,
            recovery: pipeline.recovery.counters(),
            recovery_ends_at: pipeline.recovery.ends_at(),
        }
    }
}
