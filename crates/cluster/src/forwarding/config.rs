//! The configuration of a forwarder, checked before use.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use flow::wire::MacAddress;
use flow::wire::ipv4::IPV4_HEADER_BYTES;
use flow::wire::ipv6::IPV6_HEADER_BYTES;
use flow::wire::router::RouterPreference;
use flow::wire::tcp::TCP_HEADER_BYTES;
use flow::{PortId, Prefix};

use crate::group::GroupId;

/// Addresses of either kind that a port can have.
pub const ADDRESSES_PER_PORT_MAX: usize = 64;
/// Routes that a forwarder can have, those that follow from the ports' addresses included.
pub const ROUTES_MAX: usize = 16_384;

/// An address that the cluster shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// The address and its network.
    pub prefix: Prefix,
    /// The group that it moves with.
    pub group: GroupId,
}

/// An address of the first group, which is the only one unless there are several.
impl From<Prefix> for Shared {
    fn from(prefix: Prefix) -> Self {
        Self { prefix, group: GroupId::FIRST }
    }
}

/// The largest TCP segment that is to be agreed on for a port's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MssClamp {
    /// What fits the port's MTU with headers without options: 40 bytes less for IPv4, 60 for IPv6.
    Mtu,
    /// So many bytes of payload, whatever the family.
    Bytes(u16),
}

/// How the sources of packets that come in by a port are compared with the routes (RFC 3704).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReversePath {
    /// [`ReversePath::Loose`] for a family of which the port has a default route, else [`ReversePath::Strict`].
    #[default]
    Automatic,
    /// The route to the source leads by the port.
    Strict,
    /// There is a route to the source, by the port or by one that is not strict.
    Loose,
    /// They are not compared.
    Off,
}

/// How the shared link-local addresses of a port are advertised as routers (RFC 4861 section 6.2.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouterAdvertisements {
    /// The longest time between two advertisements to all hosts.
    pub interval_max: Duration,
    /// The shortest.
    pub interval_min: Duration,
    /// How long hosts may use the router by default; zero: never.
    pub lifetime: Duration,
    /// How hosts rank it among others.
    pub preference: RouterPreference,
    /// Hosts get addresses by DHCPv6.
    pub is_managed: bool,
    /// Hosts get other settings by DHCPv6.
    pub has_other: bool,
    /// Hosts find addresses of the port's networks on the link.
    pub is_on_link: bool,
    /// Hosts make themselves addresses in the port's networks.
    pub is_autonomous: bool,
    /// How long the networks count.
    pub valid_lifetime: Duration,
    /// How long addresses in them are used for new connections.
    pub preferred_lifetime: Duration,
    /// The MTU of the link, if it is to be said.
    pub mtu_bytes: Option<u32>,
    /// Name servers for the hosts.
    pub name_servers: Vec<Ipv6Addr>,
    /// How long the name servers may be used.
    pub name_servers_lifetime: Duration,
}

impl Default for RouterAdvertisements {
    fn default() -> Self {
        let interval_max = Duration::from_secs(600);
        let lifetime = interval_max * 3;
        Self {
            interval_max,
            interval_min: interval_max * 33 / 100,
            lifetime,
            preference: RouterPreference::Medium,
            is_managed: false,
            has_other: false,
            is_on_link: true,
            is_autonomous: true,
            valid_lifetime: Duration::from_secs(30 * 86_400),
            preferred_lifetime: Duration::from_secs(7 * 86_400),
            mtu_bytes: None,
            name_servers: Vec::new(),
            name_servers_lifetime: lifetime,
        }
    }
}

/// A port and the addresses on its link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its link address.
    pub mac: MacAddress,
    /// The largest packet that its link takes, from the IP header on.
    pub mtu_bytes: u32,
    /// Addresses that are this node's alone; they are answered for whatever its role.
    pub own: Vec<Prefix>,
    /// Addresses that the cluster shares; they are answered for while their group is held.
    pub shared: Vec<Shared>,
    /// To what the maximum segment size of TCP connections through the port is lowered, if at all.
    pub mss_clamp: Option<MssClamp>,
    /// Which sources are believed of packets that come in by it.
    pub reverse_path: ReversePath,
    /// How its shared link-local addresses are advertised as routers, if they are.
    pub router_advertisements: Option<RouterAdvertisements>,
}

/// A route to a network that is not on a port's own link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The network.
    pub destination: Prefix,
    /// Who forwards to it: a neighbour on the port's link.
    pub gateway: IpAddr,
    /// The port on whose link the gateway is.
    pub port: PortId,
}

/// The configuration of a forwarder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The ports; [`PortId`] is the index.
    pub ports: Vec<Port>,
    /// The routes. Networks of the ports' own addresses need none.
    pub routes: Vec<Route>,
    /// The address of each service with direct return, beside each of its backends, which have that address too.
    pub direct_return: Vec<(IpAddr, IpAddr)>,
    /// Secret that spreads neighbours over their table, so that no attacker can choose addresses that collide.
    pub seed: u64,
}

/// Why a configuration cannot be used. The operator's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The prefix is longer than the address.
    #[error("{0}: the prefix is longer than the address; give at most 32 bits for IPv4, 128 for IPv6")]
    PrefixLength(Prefix),
    /// There is no such port.
    #[error("a route uses port {}, which is not configured", .0.0)]
    UnknownPort(PortId),
    /// The gateway is not on the port's link.
    #[error("gateway {gateway} is in no network of port {}; give the port an address in the gateway's network", port.0)]
    GatewayNotOnLink {
        /// The gateway.
        gateway: IpAddr,
        /// The port.
        port: PortId,
    },
    /// IPv4 through an IPv6 gateway or the other way round.
    #[error("the route to {0} has a gateway of the other address family")]
    FamilyMismatch(Prefix),
    /// More ports than a [`PortId`] can name.
    #[error("{0} ports are too many: 256 at most")]
    TooManyPorts(usize),
    /// More than [`ADDRESSES_PER_PORT_MAX`].
    #[error("{0} addresses on one port are too many: 64 at most")]
    TooManyAddresses(usize),
    /// More than [`ROUTES_MAX`].
    #[error("{0} routes are too many: 16384 at most; aggregate them")]
    TooManyRoutes(usize),
    /// An MTU that IP does not allow (RFC 791 section 3.1: 68 bytes; RFC 8200 section 5: 1280 bytes).
    #[error("an MTU of {0} bytes is less than IP needs: give at least 68, and 1280 for IPv6")]
    MtuTooSmall(u32),
}

impl Config {
    /// Checks the configuration.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.ports.len() > 256 {
            return Err(ConfigError::TooManyPorts(self.ports.len()));
        }
        let connected: usize = self.ports.iter().map(|port| port.own.len() + port.shared.len()).sum();
        if self.routes.len() + connected > ROUTES_MAX {
            return Err(ConfigError::TooManyRoutes(self.routes.len() + connected));
        }
        self.ports.iter().try_for_each(check_port)?;
        self.routes.iter().try_for_each(|route| self.check_route(route))
    }

    fn check_route(&self, route: &Route) -> Result<(), ConfigError> {
        let Route { destination, gateway, port } = *route;
        if !destination.is_valid() {
            return Err(ConfigError::PrefixLength(destination));
        }
        if destination.address.is_ipv4() != gateway.is_ipv4() {
            return Err(ConfigError::FamilyMismatch(destination));
        }
        let on = self.ports.get(usize::from(port.0)).ok_or(ConfigError::UnknownPort(port))?;
        if !on.is_on_link(gateway) {
            return Err(ConfigError::GatewayNotOnLink { gateway, port });
        }
        Ok(())
    }
}

impl Port {
    /// The networks on its link.
    pub(super) fn networks(&self) -> impl Iterator<Item = &Prefix> + Clone {
        self.own.iter().chain(self.shared.iter().map(|shared| &shared.prefix))
    }

    /// Whether the address is in one of the networks on the port's link, IPv6's link-local network included.
    #[must_use]
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        link_local || self.networks().any(|prefix| prefix.contains(address))
    }

    /// The most payload of a segment that passes the port, if it is clamped.
    pub(super) fn segment_bytes_max(&self, version: u8) -> Option<u16> {
        let ip_header_bytes = if version == 4 { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
        match self.mss_clamp? {
            MssClamp::Bytes(bytes) => Some(bytes),
            MssClamp::Mtu => {
                let headers_bytes = (ip_header_bytes + TCP_HEADER_BYTES) as u32;
                Some(u16::try_from(self.mtu_bytes.saturating_sub(headers_bytes)).unwrap_or(u16::MAX))
            }
        }
    }
}

fn check_port(port: &Port) -> Result<(), ConfigError> {
    let addresses = port.own.len() + port.shared.len();
    if addresses > ADDRESSES_PER_PORT_MAX {
        return Err(ConfigError::TooManyAddresses(addresses));
    }
    let mut all = port.networks();
    if let Some(prefix) = all.clone().find(|prefix| !prefix.is_valid()) {
        return Err(ConfigError::PrefixLength(*prefix));
    }
    let mtu_bytes_min = if all.any(|prefix| prefix.address.is_ipv6()) { 1280 } else { 68 };
    if port.mtu_bytes < mtu_bytes_min {
        return Err(ConfigError::MtuTooSmall(port.mtu_bytes));
    }
    Ok(())
}
