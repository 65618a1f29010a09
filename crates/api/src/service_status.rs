//! The services of a load balancer.

use serde::{Deserialize, Serialize};

use crate::BackendState;
use crate::report::Report;

/// A service.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(service = self.name))]
pub struct ServiceStatus {
    /// Name of the service.
    pub name: String,
    /// Address that clients connect to.
    pub address: String,
    /// Protocol, by name.
    pub protocol: String,
    /// Ports and ranges that clients connect to, separated by commas. Empty: all.
    pub ports: String,
    /// Choice of the backend of a new connection: `maglev` or `least-connections`.
    pub scheduler: String,
    /// Whether the backends are checked.
    pub checked: bool,
    /// Connections that this node refused because no backend took new ones.
    #[report(counter("service_refused_connections_total"))]
    pub refused: u64,
    /// Backends of the service.
    #[report(nested)]
    pub backends: Vec<BackendStatus>,
}

/// A result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CheckStatus {
    /// Time of the result.
    pub at_ns: u64,
    /// Whether the check succeeded.
    pub succeeded: bool,
    /// Reason of the failure, in words. It is empty if the check succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A backend of a service.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(backend = self.address))]
pub struct BackendStatus {
    /// Address of the server, with its port if it has one of its own.
    pub address: String,
    /// `up`, `starting` (in a slow start), `down` (its checks failed) or `drained` (its weight is 0).
    #[report(gauge("backend_up", value = self.state != BackendState::Down,
        help = "1 while the checks of the service's backend succeed, or while it is not checked."))]
    pub state: BackendState,
    /// Weight of the backend.
    pub weight: u8,
    /// Share of its weight that the backend gets: less than 1 in a slow start.
    #[serde(default)]
    #[report(gauge("backend_share"))]
    pub share: f64,
    /// Connections to the backend in the table, replicas included.
    #[report(gauge("backend_connections"))]
    pub connections: u64,
    /// Connections to the backend that began on this node.
    #[report(counter("backend_connections_opened_total"))]
    pub begun: u64,
    /// Last result of the backend's checks. It is absent before the first one, and where the backend is not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_check: Option<CheckStatus>,
}
