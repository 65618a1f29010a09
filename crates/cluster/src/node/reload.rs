//! Another configuration for a node that works.
//!
//! All that can be refused is refused before anything changes. What then changes, changes between two packets: none is
//! handled half by the old configuration and half by the new.

use alloc::vec::Vec;
use core::time::Duration;

use flow::conntrack::{Tracker, TrackerConfig};
use flow::{Instant, NodeId};
use network_functions::chain::Chain;
use replication::representation::Selection;
use replication::secure::SecurityReconfiguration;

use super::config::check_groups;
use super::{ConfigError, Node};
use crate::{failure_detector, forwarding, role};

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
    /// Which changes the peers are told.
    pub selection: Selection,
    /// How long at most a connection's first reply waits for a backup to confirm the connection; zero: not at all.
    pub hold_first_reply: Duration,
    /// Where other nodes forward beside this one: how long at most a packet that cannot be judged waits for what they tell.
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
    /// All go on. If they were being held against the rules before, nobody needs to know any more.
    Keep,
    /// They are held against the new rules, and end where these do not allow them.
    Judge,
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
    /// Connections are being held against the new chain: [`super::NodeEvent::Judged`] follows.
    pub judges: bool,
}

/// Why a node did not take another configuration. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReloadError {
    /// Addresses or routes.
    #[error(transparent)]
    Forwarding(#[from] forwarding::ReconfigureError),
    /// Failure detection.
    #[error(transparent)]
    Detection(#[from] failure_detector::ConfigError),
    /// Replication.
    #[error(transparent)]
    Replication(#[from] replication::ConfigError),
    /// The chain would look for states where they are not.
    #[error("the chain is not laid out for the connections that there are: restart the node")]
    ChainLayout,
    /// Encryption begins or ends.
    #[error("[replication.security] begins or ends to encrypt: restart the node")]
    SecurityDiffers,
    /// Groups of shared addresses were added, removed or renamed.
    #[error("the groups of shared addresses are not those that the node began with: restart the node")]
    GroupsDiffer,
    /// Addresses are of a group that there is not, or a peer's certificate cannot be told from others.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The peers are others.
    #[error("the peers are not those that the node began with: restart the node")]
    PeersDiffer,
}

impl Node {
    /// Takes another configuration. Connections go on, whatever it says, unless it asks to hold them against it.
    ///
    /// # Errors
    /// It cannot be taken; nothing has changed.
    pub fn reload(&mut self, now: Instant, new: Reconfiguration) -> Result<Reloaded, ReloadError> {
        self.check_reload(&new)?;
        for peer in &new.peers {
            let Some(known) = self.replication.peers.get_mut(peer.id) else { continue };
            known.detector.set_config(now, peer.detector)?;
            known.paths.set_config(now, peer.detector)?;
            known.session.iter_mut().try_for_each(|session| session.set_batch_delay(peer.batch_delay))?;
        }
        if let Some(security) = &new.security {
            self.renew_security(now, security);
        }
        let announces = self.forwarder.reconfigure(now, new.forwarding)?;
        self.pipeline.renew(Tracker::new(new.tracker), new.chain);
        self.replication.selection = new.selection;
        self.replication.hold_first_reply = new.hold_first_reply;
        self.pipeline.set_wait_for_peer(new.wait_for_peer);
        match new.reevaluation {
            Reevaluation::AsBefore => {}
            Reevaluation::Keep => self.judging.forgive(&mut self.pipeline),
            Reevaluation::Judge => {
                self.judging.owe();
                self.judge_as_roles_are();
            }
        }
        // Last, because it may make this node active, or another.
        self.roles.reconfigure(now, new.role);
        self.handle_role_events(now);
        Ok(Reloaded { announces, judges: self.pipeline.is_reevaluating() })
    }

    /// Finds whatever [`Node::reload`] could stumble over half-way.
    fn check_reload(&self, new: &Reconfiguration) -> Result<(), ReloadError> {
        if !new.chain.continues(self.pipeline.chain()) {
            return Err(ReloadError::ChainLayout);
        }
        if !self.roles.are_those_of(&new.role) {
            return Err(ReloadError::GroupsDiffer);
        }
        check_groups(&new.role, &new.forwarding)?;
        self.forwarder.check_reconfiguration(&new.forwarding)?;
        let mut ids: Vec<NodeId> = new.peers.iter().map(|peer| peer.id).collect();
        let mut known: Vec<NodeId> = self.replication.peers.iter().map(|peer| peer.id).collect();
        ids.sort_unstable();
        known.sort_unstable();
        if ids != known {
            return Err(ReloadError::PeersDiffer);
        }
        self.check_security(new.security.as_ref())?;
        for peer in &new.peers {
            peer.detector.check()?;
            let session = self.replication.peers.get(peer.id).and_then(|known| known.session.as_ref());
            session.map_or(Ok(()), |session| session.check_batch_delay(peer.batch_delay))?;
        }
        Ok(())
    }
}
