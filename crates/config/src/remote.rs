//! The control API over TCP, as configured.

use std::net::SocketAddr;
use std::path::PathBuf;

use api::Role;

/// How the API is offered from afar, as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteAccess {
    /// Where to listen.
    pub listen: SocketAddr,
    /// File of tokens.
    pub tokens: Option<PathBuf>,
    /// What the gateway shows; without, there is no TLS.
    pub identity: Option<Identity>,
    /// Whose certificates are taken from clients.
    pub client_authority: Option<PathBuf>,
    /// The names that certificates of clients may have, and what these may do.
    pub clients: Vec<(String, Role)>,
}

/// A certificate with its key, in PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate, followed by those that lead to the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}
