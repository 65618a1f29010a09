//! `[port.router_advertisements]` as written.

use serde::Deserialize;
use toml::Spanned;

use crate::diagnostic::Text;
use crate::value::{AddressText, DurationText};

/// The section has the port advertise the gateway as router to IPv6 hosts that configure themselves (RFC 4861). The router is the shared
/// link-local address of the port, `fe80::1/64` for example, which stays through a failover. The networks of the port's other shared IPv6
/// addresses are advertised with it. When no node is left to hold the addresses, the port advertises the end of the router.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRouterAdvertisements {
    /// Longest time between two advertisements to all hosts.
    pub interval_max: Option<DurationText>,
    /// Shortest time between two advertisements to all hosts, at most three quarters of `interval_max`. Default: a third of `interval_max`.
    pub interval_min: Option<DurationText>,
    /// How long hosts may use the router after an advertisement: `"0s"`, for a router that is nobody's default router, or at least
    /// `interval_max`. Default: three times `interval_max`.
    pub lifetime: Option<DurationText>,
    /// Rank among the routers of the link (RFC 4191).
    pub preference: Option<Text>,
    /// Whether hosts get their addresses by DHCPv6 (the flag M).
    pub managed: Option<bool>,
    /// Whether hosts get other settings by DHCPv6 (the flag O).
    pub other: Option<bool>,
    /// Whether hosts reach addresses of the advertised networks without a router (the flag L).
    pub on_link: Option<bool>,
    /// Whether hosts make themselves addresses in the advertised networks (the flag A). It applies to networks of 64 bits only.
    pub autonomous: Option<bool>,
    /// How long hosts count the advertised networks after an advertisement.
    pub valid_lifetime: Option<DurationText>,
    /// How long hosts use their addresses in the advertised networks for new connections; at most `valid_lifetime`.
    pub preferred_lifetime: Option<DurationText>,
    /// MTU of the link in bytes. Default: none is advertised.
    pub mtu: Option<Spanned<u32>>,
    /// IPv6 addresses of name servers (RFC 8106), at most 16. They count for as long as the router's `lifetime`, or three times
    /// `interval_max` if that is longer.
    #[serde(default)]
    pub name_servers: Vec<AddressText>,
}
