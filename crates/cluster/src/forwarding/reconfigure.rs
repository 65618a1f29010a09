//! Other addresses and routes for a forwarder that works.

use alloc::vec::Vec;

use flow::Instant;

use super::address::{LocalAddress, LocalAddresses};
use super::config::{Config, ConfigError};
use super::forwarder::{Forwarder, Warming, port_to, route_table};
use super::learning::Sharing;
use super::source_check::Sources;
use crate::group::GroupSet;

/// Why a forwarder cannot take another configuration while it works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReconfigureError {
    /// The configuration itself is unsound.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Ports, or their link addresses, are not those that it began with.
    #[error("ports were added, removed or replaced: restart the node, so that it opens them")]
    PortsDiffer,
}

impl Forwarder {
    /// Whether [`Forwarder::reconfigure`] would take the configuration.
    ///
    /// # Errors
    /// Why not.
    pub fn check_reconfiguration(&self, config: &Config) -> Result<(), ReconfigureError> {
        config.check()?;
        let macs = |ports: &[super::Port]| ports.iter().map(|port| port.mac).collect::<Vec<_>>();
        if macs(&config.ports) != macs(&self.ports) { Err(ReconfigureError::PortsDiffer) } else { Ok(()) }
    }

    /// Takes other addresses, routes and MTUs for its ports. What it knows of neighbours, and packets that wait for one, stay.
    /// Shared addresses that are new and held are announced (with all the others, which does no harm). Addresses that are gone
    /// are not announced: the forwarder no longer holds them. True when addresses are announced.
    ///
    /// # Errors
    /// The configuration cannot be taken; nothing has changed.
    pub fn reconfigure(&mut self, now: Instant, config: Config) -> Result<bool, ReconfigureError> {
        self.check_reconfiguration(&config)?;
        let addresses = LocalAddresses::new(&config.ports);
        let is_new = |local: &LocalAddress| self.addresses.shared(GroupSet::ALL).all(|known| known != local);
        let announces = addresses.shared(self.held).any(is_new);
        let routers = self.advertised_routers();
        self.void_plans();
        self.neighbours.unpin_all();
        (self.routes, self.next_hops) = route_table(&config, &mut self.neighbours, now);
        self.sources = Sources::new(&config, port_to(&self.routes, &self.next_hops));
        self.addresses = addresses;
        self.clamps_segments = config.ports.iter().any(|port| port.mss_clamp.is_some());
        let advertises_other =
            config.ports.iter().zip(&self.ports).any(|(new, old)| {
                (&new.router_advertisements, &new.shared) != (&old.router_advertisements, &old.shared)
            });
        self.advertising.deprecate(now, &self.ports, &config.ports);
        self.ports = config.ports;
        self.withdraw_ended(now, &routers);
        if advertises_other {
            self.advertising.follow(now, &self.ports);
        }
        if !config.routes.is_empty() && self.sharing != Sharing::Follower {
            // A new gateway's link address is to be known before the first packet needs it.
            let everybody = self.warming.is_some_and(|warming| warming.everybody);
            self.warming = Some(Warming { slot: 0, at: now, everybody });
        }
        // A running announcement counts through addresses that are others now: it begins anew.
        if announces || self.announcement.is_some() {
            self.announce(now, self.held);
        }
        Ok(announces)
    }
}
