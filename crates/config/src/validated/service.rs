//! `[[service]]`: what the load balancer spreads, and how its backends are checked.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use network_functions::load_balancer::ServiceConfig;

/// A service with its checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// The service as the load balancer takes it.
    pub config: ServiceConfig,
    /// How its backends are checked, if at all.
    pub check: Option<HealthCheck>,
}

/// How backends are checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthCheck {
    /// What is checked.
    pub kind: CheckKind,
    /// The path that is requested by HTTP.
    pub path: String,
    /// The name of the server in requests by HTTP and in TLS; `None`: its address.
    pub server_name: Option<String>,
    /// The certificates of the authorities that the server's certificate is verified by, in a file; `None`: it is not verified, as
    /// `verify = false` requests.
    pub authorities: Option<PathBuf>,
    /// The program of a check by command, with its arguments.
    pub command: Vec<String>,
    /// The time from one check to the next.
    pub interval: Duration,
    /// When a check without an answer has failed.
    pub timeout: Duration,
    /// Successful checks in a row after which a failed backend is up.
    pub rise: u8,
    /// Failed checks in a row after which a backend has failed.
    pub fall: u8,
    /// By how much of the interval the time to the next check varies, in percent, either way.
    pub jitter_percent: u8,
    /// Whether a refused connection makes a backend down at once.
    pub fast_fail: bool,
    /// The port that is checked, if it is not the backend's.
    pub port: Option<u16>,
    /// The address that checks come from, if the kernel does not choose it.
    pub source: Option<IpAddr>,
}

/// What is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckKind {
    /// A TCP connection opens.
    #[default]
    Tcp,
    /// A request by HTTP is answered with a status of 200 to 399.
    Http,
    /// The same over TLS.
    Https,
    /// An echo request is answered.
    Icmp,
    /// A program succeeds.
    Command,
}

impl CheckKind {
    /// All kinds, with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("tcp", Self::Tcp),
        ("http", Self::Http),
        ("https", Self::Https),
        ("icmp", Self::Icmp),
        ("command", Self::Command),
    ];

    /// Whether a check requests a path.
    #[must_use]
    pub const fn requests(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether a check opens a TCP connection.
    #[must_use]
    pub const fn connects(self) -> bool {
        matches!(self, Self::Tcp | Self::Http | Self::Https)
    }
}

impl Service {
    /// What a check of a backend, by its position, is about; `None` if it needs a port that is not known. The port is 0 if no port is
    /// known and none is needed.
    #[must_use]
    pub fn checked_end(&self, backend: usize) -> Option<SocketAddr> {
        let backend = self.config.backends.get(backend)?;
        let of_service = || match &self.config.ports[..] {
            [range] if range.count() == 1 => Some(range.first()),
            _ => None,
        };
        let check = self.check.as_ref()?;
        let port = check.port.or(backend.port).or_else(of_service);
        let port = if check.kind.connects() { port? } else { port.unwrap_or(0) };
        Some(SocketAddr::new(backend.address, port))
    }
}
