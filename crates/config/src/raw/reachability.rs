//! `[reachability]` as written.

use serde::Deserialize;
use toml::Spanned;

use crate::diagnostic::Text;

/// `[reachability]` as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawReachability {
    /// What is tracked for groups that have no list of their own. Default: every port and the gateway of every route.
    pub track: Option<Vec<Spanned<RawTrack>>>,
    /// Time between two probes of a next hop.
    pub probe_interval: Option<Text>,
    /// Probes without an answer until a next hop is lost.
    pub probe_misses: Option<Spanned<u8>>,
    /// How long something that came back must stay.
    pub up_delay: Option<Text>,
    /// How long a node must reach more than the holder before it takes the addresses.
    pub move_after: Option<Text>,
}

/// An entry of `track` as written: a port or a next hop.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTrack {
    /// Name of a port.
    pub port: Option<Text>,
    /// Address of a neighbour on a port's network.
    pub next_hop: Option<Text>,
    /// How much it counts. Default: `100` for a port, `50` for a next hop.
    pub weight: Option<Spanned<u16>>,
}
