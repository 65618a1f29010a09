//! `[classifier]` as it is written.

use serde::Deserialize;
use toml::Spanned;

use super::super::value::{PortText, ProtocolText};
use super::Text;

/// The section finds the traffic class of each connection: `"web"`, `"video"`, `"voice"`, `"messaging"`, `"mail"`, `"p2p"`, `"transfer"`,
/// `"remote"` or `"network"`; `"unknown"` is none of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawClassifier {
    /// Whether names and ports that are built in apply below the rules.
    pub built_in: Option<bool>,
    /// Packets with payload of a connection that are inspected at most. The connection then keeps the class that is known.
    pub packets_max: Option<Spanned<u8>>,
    /// `[[classifier.rule]]`.
    #[serde(default)]
    pub rule: Vec<Spanned<RawClassRule>>,
    /// `[[classifier.mark]]`.
    #[serde(default)]
    pub mark: Vec<Spanned<RawClassMark>>,
}

/// Each section assigns names and ports to a class. They come before those that are built in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawClassRule {
    /// Class of the connections.
    pub class: Text,
    /// Domains of servers, up to 65536 in all rules. Each stands for itself and all names in it; the longest that matches decides.
    #[serde(default)]
    pub names: Vec<Text>,
    /// Protocol of `ports`: `"tcp"`, `"udp"` or `"sctp"`. Default: all three.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// Destination ports and ranges. The first rule that lists a port decides. What the payload shows comes before the port.
    #[serde(default)]
    pub ports: Vec<Spanned<PortText>>,
}

/// Each section marks the packets of a class. They then pass the gateway's process, not the fast path in the kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawClassMark {
    /// Class of the packets.
    pub class: Text,
    /// Differentiated services code point (DSCP) that they leave with.
    pub dscp: Spanned<u8>,
}
