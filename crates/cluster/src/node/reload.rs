//! Another configuration for a node that works.
//!
//! All that can be refused is refused before anything changes. What then changes, changes between two packets: none is
//! handled half by the old configuration and half by the new.

use alloc::vec::Vec;
use core::time::Duration;

use flow::conntrack::TrackerConfig;
use flow::{Instant, NodeId};
use network_functions::chain::Chain;
use replication::representation::Selection;
use replication::secure::Security;

use super::config::{PeerBuilder, PeerConfig, check_groups};
use super::error::ReloadError;
use super::peer::Peer;
use super::peers::Peers;
use super::replication_set::{BackupsShape, ReplicationSet};
use crate::forwarding::{self, Forwarder};
use crate::pipeline::{Pipeline, Place};
use crate::role::{self, Roles};

/// What can change while a node works.
#[derive(Debug)]
pub struct Reconfiguration {
    /// Timeouts and options of connection tracking; a connection has them from its next packet on.
    pub tracker: TrackerConfig,
    /// The functions, built within the [layout](Chain::layout) of the chain in force.
    pub chain: Chain,
    /// What of the connections that began under earlier rules.
    pub reevaluation: Reevaluation,
    /// What connections are translated to has changed: flows of datagrams end whose translation is not configured any more.
    pub translates_otherwise: bool,
    /// Addresses and routes, for the same ports.
    pub forwarding: forwarding::Config,
    /// The choice of who holds the addresses; node and peers stay.
    pub role: role::Config,
    /// Which changes are replicated to the peers.
    pub selection: Selection,
    /// How long at most a connection's first reply waits for a backup to confirm the connection; zero: not at all.
    pub hold_first_reply: Duration,
    /// Where other nodes forward beside this one: how long at most a packet that cannot be decided waits for their updates.
    pub wait_for_peer: Duration,
    /// The peers from now on. Of one that stays, the failure detector and `batch_delay` of the session change: the peer is asked to
    /// agree before the pace slackens (RFC 5880 section 6.8.3). A session with one that is new sends it all connections.
    pub peers: Vec<PeerConfig>,
    /// How many backups connections have, and on which nodes. `None` where the node began without [`super::NodeConfig::backups`], and only there.
    pub backups: Option<BackupsShape>,
    /// What the channels with them are secured by, where they are.
    pub security: Option<Security>,
    /// Numbers of the sessions with new peers come from it; differs from reload to reload and from worker to worker.
    pub seed: u64,
}

/// What of the connections that began under earlier rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reevaluation {
    /// The rules are what they were: if connections are being held against them, that goes on.
    AsBefore,
    /// All go on. A re-evaluation by the rules before is stopped.
    Keep,
    /// They are re-evaluated by the new rules, and end where these do not allow them.
    Reevaluate,
}

/// What a reload set going.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reloaded {
    /// Shared addresses are new, and are being announced.
    pub announces: bool,
    /// Connections are being re-evaluated by the new chain: [`super::NodeEvent::Reevaluated`] follows.
    pub reevaluates: bool,
}

impl Reconfiguration {
    /// Finds whatever the node could stumble over half-way.
    ///
    /// # Errors
    /// Why the configuration cannot be taken.
    pub(super) fn check(
        &self,
        node: NodeId,
        pipeline: &Pipeline,
        roles: &Roles,
        forwarder: &Forwarder,
        replication: &ReplicationSet,
    ) -> Result<(), ReloadError> {
        let (peers, is_compact) = (&replication.peers, replication.compact.is_some());
        if !self.chain.continues(pipeline.chain()) {
            return Err(ReloadError::ChainLayout);
        }
        if !roles.are_those_of(&self.role) {
            return Err(ReloadError::GroupsDiffer);
        }
        check_groups(&self.role, &self.forwarding)?;
        forwarder.check_reconfiguration(&self.forwarding)?;
        if self.backups.is_some() != replication.backups.is_some() {
            return Err(ReloadError::BackupsDiffer);
        }
        let ids = self.peer_ids();
        let is_twice = |index: usize| ids[..index].contains(&ids[index]);
        if ids.contains(&node) || (0..ids.len()).any(is_twice) || ids.len() > role::PEERS_MAX {
            return Err(ReloadError::PeersDiffer);
        }
        let are_same = ids.len() == peers.len() && ids.iter().all(|id| peers.get(*id).is_some());
        if !are_same && is_compact {
            return Err(ReloadError::PeersOfFilter);
        }
        peers.check_security(self.security.as_ref(), &ids)?;
        for peer in &self.peers {
            peer.detector.check()?;
            let session = peers.get(peer.id).and_then(|known| known.session.as_ref());
            let batch_delay = peer.session.map_or(Duration::ZERO, |session| session.batch_delay);
            session.map_or(Ok(()), |session| session.check_batch_delay(batch_delay))?;
        }
        Ok(())
    }

    /// The numbers of the peers.
    pub(super) fn peer_ids(&self) -> Vec<NodeId> {
        self.peers.iter().map(|peer| peer.id).collect()
    }

    /// Removes peers, reconfigures detectors, sessions and channels of those that stay, and adds peers.
    ///
    /// # Errors
    /// A new peer's session cannot be had; nothing has changed. None else after [`Reconfiguration::check`].
    pub(super) fn apply_to_peers(
        &self,
        now: Instant,
        node: NodeId,
        pipeline: &Pipeline,
        peers: &mut Peers,
    ) -> Result<(), ReloadError> {
        let (place, connections_max) = (pipeline.place(), pipeline.table().capacity());
        let builder = PeerBuilder { node, connections_max, security: self.security.as_ref(), compact: None };
        let seeds = (1..).map(|nth| self.seed.rotate_left(16).wrapping_add(nth));
        let new = self.peers.iter().zip(seeds).filter(|(peer, _)| peers.get(peer.id).is_none());
        let added = new.map(|(peer, seed)| Ok(with_place(builder.build(peer, seed, now)?, place)));
        let added = added.collect::<Result<Vec<_>, ReloadError>>()?;
        peers.retain(now, &self.peer_ids());
        for new in &self.peers {
            let Some(peer) = peers.get_mut(new.id) else { continue };
            peer.detector.set_config(now, new.detector)?;
            peer.paths.set_config(now, new.detector)?;
            let batch_delay = new.session.map_or(Duration::ZERO, |session| session.batch_delay);
            peer.session.iter_mut().try_for_each(|session| session.set_batch_delay(batch_delay))?;
        }
        self.security.iter().for_each(|security| peers.renew_security(now, security));
        added.into_iter().for_each(|peer| peers.add(now, peer));
        Ok(())
    }
}

/// The peer, as this one of several workers has it: the lead alone watches peers.
pub(super) fn with_place(mut peer: Peer, place: Place) -> Peer {
    peer.channel.iter_mut().for_each(|channel| channel.set_worker(place.worker));
    peer.is_watched = place.is_alone() || place.leads();
    peer
}
