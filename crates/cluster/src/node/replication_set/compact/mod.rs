//! Connections told compactly: as entries of a filter beside the precise words of a session.
//!
//! The session with each peer goes on in every mode: it finds the peer, says who lives, and tells precisely what is told
//! precisely. Beside it, in datagrams of its own, runs a [`CompactSender`] that tells all peers of this node's own connections,
//! and for each peer a [`CompactReceiver`] that holds what the peer told. The table is not touched by the latter: only when
//! this node takes over, packets of no connection are asked for in it ([`crate::pipeline::RecoveryConfig`]).
//!
//! ```text
//!   pipeline ─ changes ─► telling ─┬─ in the filter: CompactSender ════════► peers' CompactReceivers
//!                                  └─ precise (mixture): sessions ─────────► peers' tables
//!   peers' CompactSenders ════════► CompactReceivers ─ recall ─► pipeline, after a take-over
//! ```
//!
//! [`CompactSender`]: replication::compact::CompactSender
//! [`CompactReceiver`]: replication::compact::CompactReceiver

mod cells;
mod doubting;
mod heirlooms;
mod mixture;
mod receiving;
mod standing_by;
mod status;
mod telling;

use flow::{Instant, NodeId};
use replication::SessionEvent;
use replication::compact::{CompactConfig, CompactSender, ReceiverLimits, Representation};

use crate::node::ConfigError;
use crate::pipeline::RecoveryConfig;

pub(in crate::node) use cells::Cells;
use doubting::Doubting;
use heirlooms::Heirlooms;
pub(in crate::node) use heirlooms::ToldOn;
use mixture::Mixture;
pub use mixture::WhichPrecise;
pub(in crate::node) use receiving::recall;
use standing_by::StandingBy;
pub use status::{CompactStatus, HeirloomStatus, PrecisionCounters};

/// How connections are told compactly.
#[derive(Clone, Debug)]
pub struct CompactNodeConfig {
    /// The stream of filters.
    pub config: CompactConfig,
    /// Which connections are told precisely as well.
    pub precise: WhichPrecise,
    /// How this node goes on with what it was told, once it takes over.
    pub recovery: RecoveryConfig,
}

/// A peer's filter may be larger than this node's by so much: a peer that is being given more room is not refused.
const PEERS_FILTER_LARGER_MAX: usize = 4;

impl CompactNodeConfig {
    /// How large a filter is taken from a peer.
    pub(in crate::node) fn receiver_limits(&self) -> ReceiverLimits {
        let own_words = self.config.filter_bytes().unwrap_or(0) / size_of::<u32>();
        let words_max = own_words.saturating_mul(PEERS_FILTER_LARGER_MAX).max(ReceiverLimits::default().words_max);
        ReceiverLimits { words_max }
    }
}

/// What a node has for telling connections compactly.
pub(in crate::node) struct Compact {
    pub(in crate::node) sender: CompactSender,
    pub(in crate::node) cells: Cells,
    /// The filter holds pairs of hosts.
    is_of_hosts: bool,
    mixture: Mixture,
    heirlooms: Heirlooms,
    recovery: RecoveryConfig,
    standing_by: StandingBy,
    doubting: Doubting,
    counters: PrecisionCounters,
    /// A recovery begins if something to recover is told until then.
    awaits_entries_until: Option<Instant>,
}

impl Compact {
    pub(in crate::node) fn new(
        config: &CompactNodeConfig,
        peers: &[NodeId],
        connections_max: u32,
    ) -> Result<Self, ConfigError> {
        let mut sender = CompactSender::new(config.config, peers)?;
        // They are told once their sessions hear them, and whatever is said reaches them.
        peers.iter().for_each(|peer| sender.peer_lost(*peer));
        Ok(Self {
            sender,
            cells: Cells::new(connections_max),
            is_of_hosts: config.config.representation == Representation::HostAggregate,
            mixture: Mixture::new(config.precise, connections_max),
            heirlooms: Heirlooms::default(),
            recovery: config.recovery.clone(),
            standing_by: StandingBy::default(),
            doubting: Doubting::default(),
            counters: PrecisionCounters::default(),
            awaits_entries_until: None,
        })
    }

    /// The peer listens, or does not.
    pub(in crate::node) fn note_session(&mut self, now: Instant, peer: NodeId, event: SessionEvent) {
        match event {
            SessionEvent::PeerUp => {
                self.sender.peer_back(now, peer);
                self.heirlooms.peer_back(now, peer);
            }
            // It may have been away for too short a time to be missed: what it had is gone all the same.
            SessionEvent::PeerRestarted => {
                self.sender.peer_restarted(now, peer);
                self.heirlooms.peer_restarted(now, peer);
            }
            SessionEvent::PeerSilent | SessionEvent::PeerLeft => {
                self.sender.peer_lost(peer);
                self.heirlooms.peer_lost(peer);
            }
            _ => {}
        }
    }

    /// When it has something to do next.
    pub(in crate::node) fn poll_timeout(&self) -> Option<Instant> {
        let precise_at = self.mixture.poll_timeout(self.sender.spare_budget_at());
        let told_by = [self.sender.poll_timeout(), self.heirlooms.poll_timeout(), precise_at];
        let told_by = told_by.into_iter().chain([self.standing_by.poll_timeout(), self.doubting.poll_timeout()]);
        told_by.chain([self.awaits_entries_until]).flatten().min()
    }
}
