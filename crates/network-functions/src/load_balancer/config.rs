//! Services and backends in the operator's form, and what is wrong with them.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use flow::wire::Encapsulation;

use super::quic::QuicConfig;
use crate::port_range::PortRange;

/// The maximum number of services: each that balances by hashing has a table of 128 KiB.
pub const SERVICES_MAX: usize = 256;
/// The maximum number of backends of a service: the table has more than a hundred entries for each.
pub const BACKENDS_MAX: usize = 512;
/// The maximum weight of a backend.
pub const WEIGHT_MAX: u8 = 100;
/// The maximum number of source addresses of a service with full NAT.
pub const SOURCES_MAX: usize = 64;

/// How a backend is chosen for a new connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheduler {
    /// By a Maglev table: all nodes choose alike, and few choices change with the backends.
    #[default]
    Maglev,
    /// The backend with the fewest connections for its weight.
    LeastConnections,
}

/// Which connections have the same backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Affinity {
    /// Each connection is balanced by itself.
    #[default]
    Connection,
    /// All connections of a source address.
    Source,
}

/// What is translated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The destination. Replies must pass the cluster: backends route to clients through it.
    #[default]
    Nat,
    /// The source too, to one of these addresses of the cluster: replies then return to it by themselves.
    FullNat(Vec<IpAddr>),
    /// Nothing: packets reach the backend in a tunnel, and it answers the client directly from the service's address.
    DirectReturn(Encapsulation),
}

/// What becomes of the connections of a backend that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnFailure {
    /// They stay: the backend may come back, or only its check failed.
    #[default]
    Keep,
    /// They end. Datagrams and new connections of the same client go to another backend.
    End,
}

/// A server of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendConfig {
    /// Its address, of the service's family.
    pub address: IpAddr,
    /// Its port; `None` where it is the one that the client connects to.
    pub port: Option<u16>,
    /// Its share of new connections relative to the others; 0 while it is drained: it gets no new ones.
    pub weight: u8,
}

/// A service: what clients connect to, and its servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceConfig {
    /// Its name, unique.
    pub name: String,
    /// The address that clients connect to.
    pub address: IpAddr,
    /// TCP, UDP or SCTP (IANA number).
    pub protocol: u8,
    /// The ports that clients connect to; empty for all.
    pub ports: Vec<PortRange>,
    /// How a backend is chosen.
    pub scheduler: Scheduler,
    /// Which connections have the same backend.
    pub affinity: Affinity,
    /// What is translated.
    pub mode: Mode,
    /// What becomes of the connections of a backend that fails.
    pub on_failure: OnFailure,
    /// The time in which the share of a backend that returns or is added grows to its weight.
    pub slow_start: Option<Duration>,
    /// How QUIC packets name their backends; `None`: they do not.
    pub quic: Option<QuicConfig>,
    /// The backends, at least one.
    pub backends: Vec<BackendConfig>,
}

impl ServiceConfig {
    /// Whether both serve a packet.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: &PortRange, b: &PortRange| a.first() <= b.last() && b.first() <= a.last();
        let ports = self.ports.is_empty()
            || other.ports.is_empty()
            || self.ports.iter().any(|range| other.ports.iter().any(|others| meet(range, others)));
        self.address == other.address && self.protocol == other.protocol && ports
    }
}

/// A mistake in the services. Services and backends are given by their positions, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ServiceError {
    /// Too many services.
    #[error("{0} services are more than {SERVICES_MAX}: divide them between two clusters")]
    TooManyServices(usize),
    /// A service without backends.
    #[error("service {0} has no backend: list at least one")]
    NoBackend(usize),
    /// Too many backends.
    #[error("service {0} has more than {BACKENDS_MAX} backends: divide it into two services")]
    TooManyBackends(usize),
    /// A protocol without ports.
    #[error("service {0}: the protocol is not TCP, UDP or SCTP")]
    Protocol(usize),
    /// Another family than the service's.
    #[error("service {0}: an address is not of the service's family: write a service for each family")]
    MixedFamilies(usize),
    /// A weight above [`WEIGHT_MAX`].
    #[error("service {0}: a weight exceeds {WEIGHT_MAX}: divide all weights by the same number")]
    Weight(usize),
    /// A new port for several ports.
    #[error("service {0}: a backend names a port, and the service has not exactly one: leave out the backend's port")]
    PortOfRange(usize),
    /// Two backends are the same server, or have one identifier.
    #[error("service {0}: two backends are the same server: list it once, with a weight")]
    SameBackend(usize),
    /// A backend's own port, which only a translation could give to packets.
    #[error("service {0}: packets keep their port with direct return: leave out the ports of backends")]
    PortOfTunnel(usize),
    /// SCTP and direct return: its tags are those of the other side.
    #[error("service {0}: direct return is for TCP and UDP: choose another mode")]
    ProtocolOfTunnel(usize),
    /// The end of a connection in a tunnel cannot be made known to its backend.
    #[error("service {0}: with direct return TCP connections of a failed backend stay: choose OnFailure::Keep")]
    ResetsInTunnel(usize),
    /// Full NAT without sources, or with too many.
    #[error("service {0}: full NAT needs 1 to {SOURCES_MAX} source addresses")]
    Sources(usize),
    /// Affinity by source needs the table.
    #[error("service {0}: affinity by source is by hashing: choose the scheduler maglev")]
    Affinity(usize),
    /// Connection identifiers that cannot name the backends.
    #[error(
        "service {0}: connection identifiers need UDP, a number up to 6, a server id of 1 to 15 bytes for each backend, all different, and a \
         nonce of 4 to 18 bytes, together at most 19 bytes"
    )]
    Quic(usize),
    /// Two services serve the same packets.
    #[error("services {0} and {1} serve the same packets: make addresses, protocols or ports differ")]
    Overlap(usize, usize),
    /// Two services have one name, or one identifier.
    #[error("services {0} and {1} have equal names, or names with equal hashes: rename one")]
    SameName(usize, usize),
}
