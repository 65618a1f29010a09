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
use replication::secure::SecurityReconfiguration;

use super::config::check_groups;
use super::error::ReloadError;
use super::peers::Peers;
use crate::failure_detector;
use crate::forwarding::{self, Forwarder};
use crate::pipeline::Pipeline;
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
    /// The peers, who are the same.
    pub peers: Vec<PeerReconfiguration>,
    /// What the channels with them are secured by, where they are.
    pub security: Option<SecurityReconfiguration>,
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

/// What can change of how a node deals with a peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerReconfiguration {
    /// The peer.
    pub id: NodeId,
    /// How it is watched. The peer is asked to agree before the pace slackens (RFC 5880 section 6.8.3).
    pub detector: failure_detector::Config,
    /// How long changes may wait for others to share their datagram with.
    pub batch_delay: Duration,
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
        pipeline: &Pipeline,
        roles: &Roles,
        forwarder: &Forwarder,
        peers: &Peers,
    ) -> Result<(), ReloadError> {
        if !self.chain.continues(pipeline.chain()) {
            return Err(ReloadError::ChainLayout);
        }
        if !roles.are_those_of(&self.role) {
            return Err(ReloadError::GroupsDiffer);
        }
        check_groups(&self.role, &self.forwarding)?;
        forwarder.check_reconfiguration(&self.forwarding)?;
        let mut ids: Vec<NodeId> = self.peers.iter().map(|peer| peer.id).collect();
        let mut known: Vec<NodeId> = peers.iter().map(|peer| peer.id).collect();
        ids.sort_unstable();
        known.sort_unstable();
        if ids != known {
            return Err(ReloadError::PeersDiffer);
        }
        peers.check_security(self.security.as_ref())?;
        for peer in &self.peers {
            peer.detector.check()?;
            let session = peers.get(peer.id).and_then(|known| known.session.as_ref());
            session.map_or(Ok(()), |session| session.check_batch_delay(peer.batch_delay))?;
        }
        Ok(())
    }

    /// Reconfigures detectors, sessions and channels.
    ///
    /// # Errors
    /// None after [`Reconfiguration::check`].
    pub(super) fn apply_to_peers(&self, now: Instant, peers: &mut Peers) -> Result<(), ReloadError> {
        for new in &self.peers {
            let Some(peer) = peers.get_mut(new.id) else { continue };
            peer.detector.set_config(now, new.detector)?;
            peer.paths.set_config(now, new.detector)?;
            peer.session.iter_mut().try_for_each(|session| session.set_batch_delay(new.batch_delay))?;
        }
        self.security.iter().for_each(|security| peers.renew_security(now, security));
        Ok(())
    }
}
