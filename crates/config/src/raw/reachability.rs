//! `[reachability]` as written.

use serde::Deserialize;
use toml::Spanned;

use crate::diagnostic::Text;
use crate::value::{AddressText, DurationText};

/// The section configures which ports and next hops a node tracks. The weights of those that it does not reach add up, and the shared
/// addresses move to a node that reaches more.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawReachability {
    /// Ports and next hops that are tracked for groups without a list of their own, at most 64 next hops. `[]` tracks nothing. Default: every port, and the next
    /// hop of every route.
    pub track: Option<Vec<Spanned<RawTrack>>>,
    /// Interval of probes to a next hop (ARP requests, neighbour solicitations).
    pub probe_interval: Option<DurationText>,
    /// Number of unanswered probes after which a next hop is lost.
    pub probe_misses: Option<Spanned<u8>>,
    /// Time that a returned port or next hop must stay up before a standby counts it as reached.
    pub up_delay: Option<DurationText>,
    /// Time for which a standby must reach more than the active node before it takes the addresses.
    pub move_after: Option<DurationText>,
}

/// Each entry of a list `track` is a port or a next hop.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTrack {
    /// Name of a port. It is lost while its interface is down. An entry has either `port` or `next_hop`.
    pub port: Option<Text>,
    /// Address of a neighbour on the network of a port; a link-local one is followed by `%` and the name of its port. It is lost while it does not answer, or while its port is down.
    pub next_hop: Option<AddressText>,
    /// Weight of the entry. Default: `100` for a port, `50` for a next hop.
    pub weight: Option<Spanned<u16>>,
}
