//! `[url_filter]` as it is written.

use serde::Deserialize;
use toml::Spanned;

use super::super::value::{DurationText, PathText, PortText, PrefixText, SocketAddressText};
use super::Text;

/// The section has connections refused by the host that they ask for, or by the path of an HTTP request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawUrlFilter {
    /// `[[url_filter.list]]`.
    #[serde(default)]
    pub list: Vec<Spanned<RawUrlList>>,
    /// `[[url_filter.rule]]`.
    #[serde(default)]
    pub rule: Vec<Spanned<RawUrlRule>>,
    /// `[url_filter.server]`.
    pub server: Option<Spanned<RawUrlServer>>,
}

/// The section has hosts that no list has asked about at a server, over HTTP. Its answers are cached in a multi-level filter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawUrlServer {
    /// Address and port of the server. Requests leave from the host's own addresses.
    pub address: SocketAddressText,
    /// Names of categories that the server answers, up to 120. Hosts in others count as `"uncategorised"`.
    pub categories: Vec<Text>,
    /// What happens to a connection whose host is being asked about: `"wait"` holds its request, `"pass"` lets it continue, `"block"` refuses
    /// it.
    pub on_unknown: Option<Text>,
    /// What happens to a connection for whose host no answer can be had: `"pass"` or `"block"`.
    pub on_failure: Option<Text>,
    /// Time that a request takes, and for which a connection waits, at most.
    pub timeout: Option<DurationText>,
    /// Answers that are cached.
    pub cache_entries: Option<Spanned<u32>>,
    /// Time for which an answer is used. A used one is asked for again before.
    pub cache_lifetime: Option<DurationText>,
    /// File with a token that is sent with each request (`Authorization: Bearer`). Its mode is 0600. Default: none is sent.
    pub token: Option<PathText>,
    /// PEM file with the certificates of the authority of the server. With it, requests are made over TLS. Default: over plain TCP.
    pub authority: Option<PathText>,
    /// Name that the server's certificate has. Default: the address. Needs `authority`.
    pub server_name: Option<Text>,
    /// PEM file with the certificate that the gateway shows to the server. Default: none is shown. Needs `authority`.
    pub certificate: Option<PathText>,
    /// PEM file with the certificate's private key, mode 0600.
    pub key: Option<PathText>,
}

/// Each section is a file with hosts of a category. A reload reads all files again. Several sections may have the same category.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawUrlList {
    /// Category of what the file lists.
    pub category: Text,
    /// Absolute path of the file, up to 256 MiB.
    pub path: PathText,
    /// How the file is written. `"plain"`: a host, which includes the names in it, or a host and a path prefix, a line. `"hosts"`: an
    /// address and host names a line. `"rpz"`: a response policy zone of DNS.
    pub format: Option<Text>,
}

/// Each section selects TCP connections, and with `dns` questions over UDP. The first section that matches a connection decides.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawUrlRule {
    /// Name of the rule in status, metrics and the log. It is unique.
    pub name: Text,
    /// Prefixes, one of which contains the source. Default: any source.
    #[serde(default)]
    pub source: Vec<PrefixText>,
    /// Prefixes, one of which contains the destination, as the client knows it. Default: any destination.
    #[serde(default)]
    pub destination: Vec<PrefixText>,
    /// Destination ports and ranges of TCP connections. Default: any port.
    #[serde(default)]
    pub ports: Vec<Spanned<PortText>>,
    /// Categories that are blocked. `"uncategorised"` are hosts that no list has.
    #[serde(default)]
    pub block: Vec<Text>,
    /// Categories that are allowed, also where a host is in a blocked one as well.
    #[serde(default)]
    pub allow: Vec<Text>,
    /// What happens to a blocked connection. `"reset"` resets client and server. `"block-page"` sends the client of an HTTP request a page
    /// and resets other connections. `"log"` lets it pass, counts and logs it.
    pub action: Option<Text>,
    /// What happens to a connection whose first bytes show no host: `"allow"` or `"block"`, which resets it.
    pub undecided: Option<Text>,
    /// What happens to a DNS question over UDP to port 53 for a blocked host: `"off"` (it passes), `"nxdomain"` (the gateway responds that
    /// the name does not exist) or `"drop"`.
    pub dns: Option<Text>,
    /// Whether QUIC connections are decided about, too: UDP to the rule's ports, or to port 443 if it has none. Datagrams of a blocked one are
    /// dropped; clients go on over TCP.
    pub quic: Option<bool>,
    /// Whether blocked connections are logged. Default: `false`.
    pub log: Option<bool>,
}
