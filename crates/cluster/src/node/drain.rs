//! Taking a node out of service, and back in.
//!
//! A drained node holds no addresses and is not chosen to, but copies its peers' connections on: it can be upgraded, or
//! come back, without a connection noticing.

use core::time::Duration;

use flow::Instant;

use super::readiness::obstacles_of_peer;
use super::{GroupStatus, Node, NodeEvent, NodeStatus};
use crate::role::State;

/// How long a node that is being drained waits for another to take its addresses, before it goes on as before. Shorter
/// than the time after which a leaving node gives them up whoever takes them.
pub const DRAIN_HANDOVER_MAX: Duration = Duration::from_secs(3);

/// Why a node is not drained: connections would be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DrainRefused {
    /// This node is the only one.
    #[error("there is no peer that could take over")]
    NoPeer,
    /// No other node has all connections and may be chosen.
    #[error("no peer could take over without losing connections")]
    NobodyReady,
    /// This node stands by for nobody: it may be the next that is needed.
    #[error("no peer holds the addresses, so that this node may have to")]
    NobodyHolds,
}

impl Node {
    /// Hands the addresses over, if this node holds them, and takes no part any more until [`Node::undrain`]. Forced, it
    /// does so even if nobody takes them.
    ///
    /// # Errors
    /// Why that would lose connections; the node goes on as before.
    pub fn drain(&mut self, now: Instant, is_forced: bool) -> Result<(), DrainRefused> {
        if !is_forced {
            self.check_drain(now)?;
        }
        let is_to_be_relieved = self.roles.states().any(|state| matches!(state, State::Active | State::TakingOver));
        if is_to_be_relieved && !is_forced {
            self.drain_given_up_at = Some(now + DRAIN_HANDOVER_MAX);
        }
        self.begin_leaving(now);
        Ok(())
    }

    /// Takes part again: stands by, or goes on holding the addresses if nobody has taken them yet.
    pub fn undrain(&mut self, now: Instant) {
        self.drain_given_up_at = None;
        self.stay();
        self.roles.rejoin(now);
        self.handle_role_events(now);
    }

    fn check_drain(&self, now: Instant) -> Result<(), DrainRefused> {
        let status = self.status(now);
        status.groups.iter().try_for_each(|group| check_group(group, &status))
    }

    /// Goes on if nobody has come to relieve a node that may not leave unrelieved.
    pub(super) fn look_after_drain(&mut self, now: Instant) {
        if self.roles.states().all(|state| state != State::Leaving) && !self.is_replicating_before_leaving() {
            self.drain_given_up_at = None;
        }
        if self.drain_given_up_at.is_some_and(|at| at <= now) {
            self.undrain(now);
            self.events.push(now, NodeEvent::DrainGivenUp);
        }
    }
}

/// Whether a node can do without this one in the group.
fn check_group(group: &GroupStatus, status: &NodeStatus) -> Result<(), DrainRefused> {
    let peers = &status.peers;
    match group.role {
        State::Left | State::Leaving => Ok(()),
        _ if peers.is_empty() => Err(DrainRefused::NoPeer),
        State::Active | State::TakingOver => {
            let is_somebody_ready = peers.iter().any(|peer| obstacles_of_peer(peer, group, status).is_empty());
            if is_somebody_ready { Ok(()) } else { Err(DrainRefused::NobodyReady) }
        }
        State::Init | State::Standby => {
            let is_held = peers.iter().any(|peer| peer.holds(group.group));
            if is_held { Ok(()) } else { Err(DrainRefused::NobodyHolds) }
        }
    }
}
