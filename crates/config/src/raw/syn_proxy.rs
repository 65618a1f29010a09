//! `[syn_proxy]` as it is written.

use serde::Deserialize;
use toml::Spanned;

use super::super::value::{DurationText, PathText, PortText, PrefixText};
use super::Text;

/// The section has SYNs to servers answered by the gateway (SYN cookies), so that a flood of SYNs takes no memory and reaches no server.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSynProxy {
    /// File with the secret of the cookies, which `mainstay key` makes. Its mode is 0600 and its content is the same on all nodes. Default:
    /// a secret derived from `replication.security.pre_shared_keys`; one drawn at the start where there is no peer.
    pub key: Option<PathText>,
    /// `[[syn_proxy.rule]]`.
    #[serde(default)]
    pub rule: Vec<Spanned<RawSynProxyRule>>,
}

/// Each section selects TCP connections by their destination, as clients know it. The first section that matches a connection decides.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSynProxyRule {
    /// Name of the rule in status, metrics and events. It is unique and the same on all nodes.
    pub name: Text,
    /// Prefixes, one of which contains the destination. Default: any destination.
    #[serde(default)]
    pub destination: Vec<PrefixText>,
    /// Ports and ranges, one of which contains the destination port. Default: any port.
    #[serde(default)]
    pub ports: Vec<Spanned<PortText>>,
    /// When the gateway answers in place of servers: `"off"` never, `"auto"` while `syn_rate` or `half_open` is reached, `"always"`.
    pub mode: Option<Text>,
    /// SYNs in a second, of all workers, that switch the rule on with `mode = "auto"`. 0: the rate does not matter.
    pub syn_rate: Option<Spanned<u32>>,
    /// Connections without the client's last acknowledgement, replicas included, that switch the rule on with `mode = "auto"`. 0: their
    /// number does not matter.
    pub half_open: Option<Spanned<u32>>,
    /// Time for which the rule stays on after the rate, or the number, has fallen below half of the threshold.
    pub hold: Option<DurationText>,
    /// Maximum segment size that clients are offered over IPv4, in bytes; over IPv6 20 less. It is that of the servers.
    pub mss: Option<Spanned<u16>>,
    /// Window scale that clients are offered. Windows are translated if a server has another one, so it limits them only.
    pub window_scale: Option<Spanned<u8>>,
    /// Whether clients are offered selective acknowledgements. The servers must support them.
    pub sack: Option<bool>,
    /// Whether clients are offered timestamps. The servers must support them. Without them, cookies cannot carry window scales and
    /// selective acknowledgements, and neither is offered.
    pub timestamps: Option<bool>,
}
