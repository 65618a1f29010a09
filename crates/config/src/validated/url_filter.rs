//! `[url_filter]`: lists of hosts, and rules by their categories.

use std::net::SocketAddr;
use std::path::PathBuf;

use network_functions::url_filter::rules::{ListConfig, RuleConfig};
use network_functions::url_filter::server::ServerConfig;

/// A list, and its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UrlList {
    /// The file.
    pub path: PathBuf,
    /// Its category and format.
    pub config: ListConfig,
}

/// A categorisation server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UrlServer {
    /// Where it is.
    pub address: SocketAddr,
    /// The file of the token that it wants.
    pub token: Option<PathBuf>,
    /// How it is asked over TLS; `None`: over plain TCP.
    pub tls: Option<UrlServerTls>,
    /// What is asked and cached.
    pub config: ServerConfig,
}

/// TLS to a categorisation server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UrlServerTls {
    /// The file with the certificates of the server's authority.
    pub authority: PathBuf,
    /// The name in the server's certificate; `None`: its address.
    pub server_name: Option<String>,
    /// The files of the certificate that the gateway shows, and of its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Lists and rules of the URL filter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UrlFilter {
    /// The lists in their order.
    pub lists: Vec<UrlList>,
    /// The rules in their order. No two have the same name.
    pub rules: Vec<RuleConfig>,
    /// The server that is asked about hosts in no list.
    pub server: Option<UrlServer>,
}
