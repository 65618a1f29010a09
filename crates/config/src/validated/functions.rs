//! The chain and what its functions are to do.

use std::net::IpAddr;
use std::time::Duration;

use network_functions::port_range::PortRange;

use super::Prefix;

/// A network function of the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// `[classifier]`.
    Classifier,
    /// `[firewall]`.
    Firewall,
    /// `[url_filter]`.
    UrlFilter,
    /// `[rate_limit]`.
    RateLimit,
    /// `[syn_proxy]`.
    SynProxy,
    /// `[[service]]`.
    LoadBalancer,
    /// `[nat]`.
    Nat,
    /// `[ftp]`.
    Ftp,
}

impl Function {
    /// All functions, with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("classifier", Self::Classifier),
        ("firewall", Self::Firewall),
        ("url_filter", Self::UrlFilter),
        ("rate_limit", Self::RateLimit),
        ("syn_proxy", Self::SynProxy),
        ("load_balancer", Self::LoadBalancer),
        ("nat", Self::Nat),
        ("ftp", Self::Ftp),
    ];

    /// The head of its section in the file.
    #[must_use]
    pub const fn section(self) -> &'static str {
        match self {
            Self::Classifier => "[classifier]",
            Self::Firewall => "[firewall]",
            Self::UrlFilter => "[url_filter]",
            Self::RateLimit => "[rate_limit]",
            Self::SynProxy => "[syn_proxy]",
            Self::LoadBalancer => "[[service]]",
            Self::Nat => "[nat]",
            Self::Ftp => "[ftp]",
        }
    }
}

/// What becomes of connections when the firewall's rules change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnReload {
    /// They go on, even if the new rules deny them.
    #[default]
    Keep,
    /// Those that the new rules would not let in are ended.
    Reevaluate,
}

impl OnReload {
    /// All choices, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("keep", Self::Keep), ("reevaluate", Self::Reevaluate)];
}

/// A source translation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceNat {
    /// Source prefixes, any of which; never empty; all of one family.
    pub source: Vec<Prefix>,
    /// Destination prefixes, any of which; empty: all.
    pub destination: Vec<Prefix>,
    /// IP protocol; `None`: all.
    pub protocol: Option<u8>,
    /// Addresses to translate to, 1 to 256, of the same family.
    pub to: Vec<IpAddr>,
    /// How address and port outside are computed; `None`: they are chosen among those that are free.
    pub mapping: Option<NatMapping>,
    /// They are chosen for each inside end point, towards all destinations.
    pub is_endpoint_independent: bool,
}

/// How a source translation is computed (RFC 7422).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatMapping {
    /// Under the secret of [`super::Config::nat_mapping_key`].
    pub is_keyed: bool,
    /// Ports of an inside address; `None`: as many as there are for each.
    pub block_ports: Option<u16>,
}

/// A destination translation (port forwarding).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DestinationNat {
    /// Address that clients connect to.
    pub destination: IpAddr,
    /// IP protocol; `None`: all.
    pub protocol: Option<u8>,
    /// Ports that clients connect to; `None`: all.
    pub ports: Option<PortRange>,
    /// The server, of the same family.
    pub to: IpAddr,
    /// The server's port that the first of `ports` becomes; `None`: ports stay.
    pub to_port: Option<u16>,
}

/// The FTP helper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ftp {
    /// Ports of control connections.
    pub ports: Vec<PortRange>,
    /// Addresses other than the announcer's are believed.
    pub loose: bool,
    /// Ports below 1024 are believed.
    pub privileged_ports: bool,
    /// How long an announced connection is waited for.
    pub timeout: Duration,
}
