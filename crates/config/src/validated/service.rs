//! `[[service]]`: what the load balancer spreads, and how its backends are checked.

use std::net::{IpAddr, SocketAddr};
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
    /// The time from one check to the next.
    pub interval: Duration,
    /// When a check without an answer has failed.
    pub timeout: Duration,
    /// Successful checks in a row after which a failed backend is up.
    pub rise: u8,
    /// Failed checks in a row after which a backend has failed.
    pub fall: u8,
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
}

impl CheckKind {
    /// Both kinds, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("tcp", Self::Tcp), ("http", Self::Http)];
}

impl Service {
    /// Where a check of a backend, by its position, connects to; `None` if the port is not known.
    #[must_use]
    pub fn checked_end(&self, backend: usize) -> Option<SocketAddr> {
        let backend = self.config.backends.get(backend)?;
        let of_service = || match &self.config.ports[..] {
            [range] if range.count() == 1 => Some(range.first()),
            _ => None,
        };
        let port = self.check.as_ref()?.port.or(backend.port).or_else(of_service)?;
        Some(SocketAddr::new(backend.address, port))
    }
}
