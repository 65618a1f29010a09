//! Arguments that name a running gateway.

use std::path::PathBuf;

use clap::Args;

use control::remote::Identity;
use control::target::{RemoteTarget, Target};

/// The control API of a running gateway.
#[derive(Debug, Args)]
pub struct SocketArgs {
    /// Control socket
    #[arg(long, value_name = "PATH", default_value = config::CONTROL_SOCKET_DEFAULT)]
    pub socket: PathBuf,
    /// A gateway on another host, at its control.listen
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "socket")]
    pub connect: Option<String>,
    /// With --connect: certificates of the authority that signed the gateway's; without them there is no TLS
    #[arg(long, value_name = "FILE", env = "MAINSTAY_AUTHORITY")]
    pub authority: Option<PathBuf>,
    /// With --connect: the name in the gateway's certificate [default: the host]
    #[arg(long, value_name = "NAME", requires = "authority")]
    pub server_name: Option<String>,
    /// With --connect: file with this user's token, mode 0600
    #[arg(long, value_name = "FILE", env = "MAINSTAY_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// With --connect: this user's certificate
    #[arg(long, value_name = "FILE", requires_all = ["authority", "key"])]
    pub certificate: Option<PathBuf>,
    /// With --connect: the certificate's private key, mode 0600
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
}

impl SocketArgs {
    /// The gateway that is meant.
    #[must_use]
    pub fn target(&self) -> Target {
        let Some(address) = &self.connect else { return Target::Socket(self.socket.clone()) };
        let identity = self.certificate.clone().zip(self.key.clone());
        Target::Remote(Box::new(RemoteTarget {
            address: address.clone(),
            authority: self.authority.clone(),
            server_name: self.server_name.clone(),
            identity: identity.map(|(certificate, key)| Identity { certificate, key }),
            token: self.token_file.clone(),
        }))
    }
}
