//! The services with what changes while packets flow: health and numbers of connections of the backends.
//!
//! One value serves all workers of a node. It has no lock: each entry of a table is a number by itself, so a packet sees
//! either the former or the present choice.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use flow::wire::{Encapsulation, Packet, TunnelEnd, ip_protocol};
use flow::{HashKey, Instant, Tuple};

use super::config::{
    Affinity, BACKENDS_MAX, Mode, OnFailure, SERVICES_MAX, SOURCES_MAX, Scheduler, ServiceConfig, ServiceError,
    WEIGHT_MAX,
};
use super::maglev::{self, Candidate};
use super::quic::{Named, QuicRoutes};
use super::slow_start::SlowStart;
use crate::address::{family, tuple_bytes};
use crate::function::Taking;
use crate::port_range::PortRange;
use crate::rule_set::has_ports;

/// The key by which connections are spread where the cluster has no secret. It is public: clients can choose tuples that are all spread to
/// one backend.
const PUBLIC_CHOICE_KEY: HashKey = HashKey([0x6c6f_6164_2062_616c, 0x616e_6365_7200_0003]);

/// The identifier of a service in connections' states, from its name; never 0.
#[must_use]
pub fn service_id(name: &str) -> u32 {
    identifier(name.as_bytes())
}

/// The identifier of a backend in connections' states, from its address and port; never 0.
#[must_use]
pub fn backend_id(address: &[u8; 16], port: u16) -> u32 {
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(address);
    bytes[16..].copy_from_slice(&port.to_be_bytes());
    identifier(&bytes)
}

/// FNV-1a in 32 bits: nothing here is secret, but it must be the same on every node.
fn identifier(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)).max(1)
}

/// What changes of a backend while packets flow. It stays the same value across reloads.
#[derive(Debug, Default)]
struct Live {
    is_down: AtomicBool,
    slow_start: SlowStart,
    /// Connections in the table, with replicas.
    connections: AtomicU32,
    /// Connections that began here.
    begun: AtomicU64,
}

/// A backend of a service.
#[derive(Debug)]
pub struct Backend {
    pub(super) id: u32,
    pub(super) address: [u8; 16],
    pub(super) port: Option<u16>,
    weight: u8,
    /// Its address and port as configured, the port being 0 where clients choose it.
    end: SocketAddr,
    live: Arc<Live>,
}

/// What is known of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendView {
    /// Its address and port; the port is 0 where it is the one that clients connect to.
    pub end: SocketAddr,
    /// Its configured weight; 0 while it is drained.
    pub weight: u8,
    /// Whether its checks failed.
    pub is_down: bool,
    /// What it gets of its weight, in parts of [`SHARES`](super::SHARES): less during a slow start.
    pub share: u8,
    /// Its connections in the node's table, with replicas.
    pub connections: u32,
    /// The connections that began on this node.
    pub begun: u64,
}

impl BackendView {
    /// The backend as the configuration names it: its address, with the port if it has one of its own.
    #[must_use]
    pub fn name(&self) -> String {
        if self.end.port() == 0 { self.end.ip().to_string() } else { self.end.to_string() }
    }
}

impl Backend {
    /// What is known of it now.
    #[must_use]
    pub fn view(&self) -> BackendView {
        BackendView {
            end: self.end,
            weight: self.weight,
            is_down: self.is_down(),
            share: self.live.slow_start.share(),
            connections: self.live.connections.load(Ordering::Relaxed),
            begun: self.live.begun.load(Ordering::Relaxed),
        }
    }

    fn is_down(&self) -> bool {
        self.live.is_down.load(Ordering::Acquire)
    }

    /// Its weight with its share of it.
    fn weight_now(&self) -> u16 {
        u16::from(self.weight) * u16::from(self.live.slow_start.share())
    }

    fn takes_connections(&self) -> bool {
        self.weight > 0 && !self.is_down()
    }
}

/// A service.
#[derive(Debug)]
pub struct Service {
    pub(super) id: u32,
    name: String,
    ports: Vec<PortRange>,
    scheduler: Scheduler,
    affinity: Affinity,
    /// Source addresses of full NAT; none otherwise.
    pub(super) sources: Vec<[u8; 16]>,
    /// How packets reach a backend with direct return; `None` otherwise.
    pub(super) encapsulation: Option<Encapsulation>,
    on_failure: OnFailure,
    slow_start: Option<Duration>,
    quic: Option<QuicRoutes>,
    /// The Maglev table; empty with another scheduler.
    table: Vec<AtomicU16>,
    backends: Vec<Backend>,
    choice_key: HashKey,
    refused: AtomicU64,
}

impl Service {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its backends, as configured.
    #[must_use]
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// Connections that no backend could take.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The backend for a new connection with this tuple; `None`, counted unless this is a rehearsal, if none takes connections.
    pub(super) fn choose(&self, tuple: &Tuple, taking: Option<Taking>) -> Option<&Backend> {
        let chosen = match self.scheduler {
            Scheduler::Maglev => self.hashed(tuple),
            Scheduler::LeastConnections => self.least_loaded(tuple),
        };
        if chosen.is_none() && taking.is_some() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        chosen
    }

    /// The backend that a QUIC packet of a new tuple names. A drained one is named only by clients that it has already, and a failed one where
    /// the service keeps its connections.
    pub(super) fn named(&self, packet: &Packet<'_, '_>) -> Option<&Backend> {
        let quic = self.quic.as_ref().filter(|_| !packet.headers.is_fragment)?;
        let Named { backend, is_handshake } = quic.named(packet.payload())?;
        let backend = self.backends.get(usize::from(backend))?;
        let has_ended = backend.is_down() && self.on_failure == OnFailure::End;
        (backend.takes_connections() || !(is_handshake || has_ended)).then_some(backend)
    }

    fn hashed(&self, tuple: &Tuple) -> Option<&Backend> {
        let key = match self.affinity {
            Affinity::Connection => *tuple,
            Affinity::Source => Tuple { source: tuple.source, version: tuple.version, ..Tuple::NONE },
        };
        let entry = usize::try_from(self.choice_key.hash(&key) % maglev::ENTRIES as u64).ok()?;
        self.backends.get(usize::from(self.table.get(entry)?.load(Ordering::Relaxed)))
    }

    /// The backend with the fewest connections for its weight. Of equal ones, the tuple decides, so that nodes without
    /// connections do not all begin with the first.
    fn least_loaded(&self, tuple: &Tuple) -> Option<&Backend> {
        let turn = usize::try_from(self.choice_key.hash(tuple) % self.backends.len().max(1) as u64).unwrap_or(0);
        let (before, after) = self.backends.split_at_checked(turn)?;
        let available = after.iter().chain(before).filter(|backend| backend.takes_connections());
        available.min_by_key(|backend| {
            let connections = u64::from(backend.live.connections.load(Ordering::Relaxed)) + 1;
            // A common multiple of weights in place of fractions.
            (connections << 32) / u64::from(backend.weight_now())
        })
    }

    /// Enters the backends that take connections into the table.
    fn refresh(&self) {
        self.refresh_with(|_, backend| !backend.is_down());
    }

    /// As [`Self::refresh`], with a health of each backend, by its position, that is not published yet.
    fn refresh_with(&self, is_up: impl Fn(usize, &Backend) -> bool) {
        if self.table.is_empty() {
            return;
        }
        let takes = |index: u16, backend: &Backend| backend.weight > 0 && is_up(index.into(), backend);
        let available = (0u16..).zip(&self.backends).filter(|(index, backend)| takes(*index, backend));
        let candidates: Vec<Candidate> = available
            .map(|(index, backend)| Candidate {
                address: backend.address,
                port: backend.port.unwrap_or(0),
                weight: backend.weight_now(),
                index,
            })
            .collect();
        for (entry, index) in self.table.iter().zip(maglev::table(&candidates)) {
            entry.store(index, Ordering::Relaxed);
        }
    }
}

/// The services of a node; see the head of this file.
#[derive(Debug, Default)]
pub struct Services {
    services: Vec<Service>,
    /// The services of a destination address and protocol.
    by_destination: BTreeMap<([u8; 16], u8), Vec<u16>>,
    /// The backends by the identifiers of service and backend: those configured, and those that only have connections left.
    live: BTreeMap<(u32, u32), Arc<Live>>,
    /// The tunnels to backends, by the same identifiers: also to those that only have connections left.
    tunnels: BTreeMap<(u32, u32), TunnelEnd>,
}

impl Services {
    /// Services as configured, with the backends' health and connections from `previous`.
    ///
    /// # Errors
    /// The configuration is invalid; see [`ServiceError`].
    pub fn new(configs: &[ServiceConfig], previous: &Self) -> Result<Self, ServiceError> {
        if configs.len() > SERVICES_MAX {
            return Err(ServiceError::TooManyServices(configs.len()));
        }
        let mut built = Self { live: previous.occupied(), ..Self::default() };
        let still_used = previous.tunnels.iter().filter(|(ids, _)| built.live.contains_key(*ids));
        built.tunnels = still_used.map(|(ids, end)| (*ids, *end)).collect();
        for (index, config) in configs.iter().enumerate() {
            check(index, config)?;
            check_others(index, config, configs)?;
            let service = built.service(config, index, previous)?;
            let number = u16::try_from(index).map_err(|_| ServiceError::TooManyServices(configs.len()))?;
            built.by_destination.entry((tuple_bytes(config.address), config.protocol)).or_default().push(number);
            built.services.push(service);
        }
        built.refresh();
        Ok(built)
    }

    /// Connections are spread under this secret, which all nodes of a cluster have. Without it they are spread under a key that everybody
    /// may know, and a client can choose tuples that are all spread to one backend.
    #[must_use]
    pub fn with_choice_key(mut self, key: HashKey) -> Self {
        self.services.iter_mut().for_each(|service| service.choice_key = key);
        self
    }

    /// The backends that have connections, whether or not they are configured any more.
    fn occupied(&self) -> BTreeMap<(u32, u32), Arc<Live>> {
        let occupied = self.live.iter().filter(|(_, live)| live.connections.load(Ordering::Relaxed) > 0);
        occupied.map(|(ids, live)| (*ids, Arc::clone(live))).collect()
    }

    fn service(&mut self, config: &ServiceConfig, index: usize, previous: &Self) -> Result<Service, ServiceError> {
        let id = service_id(&config.name);
        let before = previous.services.iter().find(|service| service.id == id);
        let encapsulation = match config.mode {
            Mode::DirectReturn(encapsulation) => Some(encapsulation),
            Mode::Nat | Mode::FullNat(_) => None,
        };
        let mut backends: Vec<Backend> = Vec::with_capacity(config.backends.len());
        for backend in &config.backends {
            let address = tuple_bytes(backend.address);
            let port = backend.port.unwrap_or(0);
            let backend_id = backend_id(&address, port);
            if backends.iter().any(|other| other.id == backend_id) {
                return Err(ServiceError::SameBackend(index));
            }
            let known = previous.live.get(&(id, backend_id)).cloned().unwrap_or_default();
            // All backends of a service that is new have their whole share: there are no others to take their connections.
            let took = |before: &Service| before.backends.iter().any(|it| it.id == backend_id && it.weight > 0);
            if config.slow_start.is_some() && before.is_some_and(|before| !took(before)) {
                known.slow_start.begin();
            }
            self.live.insert((id, backend_id), Arc::clone(&known));
            if let Some(encapsulation) = encapsulation {
                self.tunnels.insert((id, backend_id), TunnelEnd { address: backend.address, encapsulation });
            }
            let end = SocketAddr::new(backend.address, port);
            let weight = backend.weight;
            backends.push(Backend { id: backend_id, address, port: backend.port, weight, end, live: known });
        }
        let sources = match &config.mode {
            Mode::Nat | Mode::DirectReturn(_) => Vec::new(),
            Mode::FullNat(sources) => sources.iter().copied().map(tuple_bytes).collect(),
        };
        let entries = if config.scheduler == Scheduler::Maglev { maglev::ENTRIES } else { 0 };
        Ok(Service {
            id,
            name: config.name.clone(),
            ports: config.ports.clone(),
            scheduler: config.scheduler,
            affinity: config.affinity,
            sources,
            encapsulation,
            on_failure: config.on_failure,
            slow_start: config.slow_start,
            quic: config.quic.as_ref().map(QuicRoutes::new),
            table: (0..entries).map(|_| AtomicU16::new(maglev::NONE)).collect(),
            backends,
            choice_key: PUBLIC_CHOICE_KEY,
            refused: AtomicU64::new(before.map_or(0, Service::refused)),
        })
    }

    /// The services, as configured.
    #[must_use]
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// The service that packets with this tuple are to.
    #[must_use]
    pub fn find(&self, tuple: &Tuple) -> Option<&Service> {
        let services = self.by_destination.get(&(tuple.destination, tuple.protocol))?;
        let mut services = services.iter().filter_map(|index| self.services.get(usize::from(*index)));
        services.find(|service| {
            service.ports.is_empty() || service.ports.iter().any(|range| range.contains(tuple.destination_port))
        })
    }

    /// The result of a backend's checks. Where it changes, new connections go to the backends that are up from now on.
    /// True if it changed.
    pub fn handle_health(&self, service: usize, number: usize, is_up: bool) -> bool {
        let Some(service) = self.services.get(service) else { return false };
        let Some(backend) = service.backends.get(number) else { return false };
        if backend.is_down() != is_up {
            return false;
        }
        if is_up && service.slow_start.is_some() {
            backend.live.slow_start.begin();
        }
        // The health is published after the table: a backend that is seen as down gets no connection any more.
        service.refresh_with(|index, other| if index == number { is_up } else { !other.is_down() });
        backend.live.is_down.store(!is_up, Ordering::Release);
        true
    }

    /// Time has passed: the shares of backends in a slow start grow.
    pub fn handle_timeout(&self, now: Instant) {
        for service in &self.services {
            let mut has_changed = false;
            for backend in &service.backends {
                has_changed |= backend.live.slow_start.advance(now, service.slow_start);
            }
            if has_changed {
                service.refresh();
            }
        }
    }

    /// When [`Services::handle_timeout`] has something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = |service: &Service| {
            service.backends.iter().filter_map(|backend| backend.live.slow_start.due(service.slow_start)).min()
        };
        self.services.iter().filter_map(due).min()
    }

    /// Computes all tables again, from the backends' present health.
    pub fn refresh(&self) {
        self.services.iter().for_each(Service::refresh);
    }

    /// The tunnel to a backend of a service with direct return. `None`: it is not known here.
    pub(super) fn tunnel(&self, service: u32, backend: u32) -> Option<TunnelEnd> {
        self.tunnels.get(&(service, backend)).copied()
    }

    /// Whether the backend has failed, and its service ends connections then.
    pub(super) fn has_ended(&self, service: u32, backend: u32) -> bool {
        let Some(service) = self.services.iter().find(|known| known.id == service) else { return false };
        let failed = |known: &&Backend| known.id == backend && known.is_down();
        service.on_failure == OnFailure::End && service.backends.iter().any(|backend| failed(&backend))
    }

    /// Whether the backend is one of the service's.
    pub(super) fn has_backend(&self, service: u32, backend: u32) -> bool {
        let service = self.services.iter().find(|known| known.id == service);
        service.is_some_and(|service| service.backends.iter().any(|known| known.id == backend))
    }

    pub(super) fn count(&self, service: u32, backend: u32, is_entering: bool) {
        let Some(live) = self.live.get(&(service, backend)) else { return };
        if is_entering {
            live.connections.fetch_add(1, Ordering::Relaxed);
        } else {
            // A connection that began before the load balancer knew its backend was not counted.
            let subtracted = |count: u32| count.checked_sub(1);
            let _ = live.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtracted);
        }
    }

    /// A label of a service's counter of connections.
    pub(super) fn counter_names(&self) -> impl Iterator<Item = String> + '_ {
        self.services.iter().map(|service| format!("service/{}/connections", service.name))
    }

    pub(super) fn position(&self, service: &Service) -> usize {
        self.services.iter().position(|known| known.id == service.id).unwrap_or(usize::MAX)
    }
}

impl Backend {
    pub(super) fn note_begun(&self, _: Taking) {
        self.live.begun.fetch_add(1, Ordering::Relaxed);
    }
}

fn check(index: usize, config: &ServiceConfig) -> Result<(), ServiceError> {
    if config.backends.is_empty() {
        return Err(ServiceError::NoBackend(index));
    }
    if config.backends.len() > BACKENDS_MAX {
        return Err(ServiceError::TooManyBackends(index));
    }
    if !has_ports(config.protocol) {
        return Err(ServiceError::Protocol(index));
    }
    if let Mode::DirectReturn(_) = config.mode {
        check_tunnels(index, config)?;
    }
    if let Some(quic) = &config.quic
        && !(config.protocol == ip_protocol::UDP && quic.is_sound(config.backends.len()))
    {
        return Err(ServiceError::Quic(index));
    }
    let sources = match &config.mode {
        Mode::Nat | Mode::DirectReturn(_) => &[][..],
        Mode::FullNat(sources) if sources.is_empty() || sources.len() > SOURCES_MAX => {
            return Err(ServiceError::Sources(index));
        }
        Mode::FullNat(sources) => sources,
    };
    // A tunnel may be of another family than the packets in it.
    let is_direct = matches!(config.mode, Mode::DirectReturn(_));
    let of_family = |address: &core::net::IpAddr| is_direct || family(*address) == family(config.address);
    if !config.backends.iter().map(|backend| &backend.address).chain(sources).all(of_family) {
        return Err(ServiceError::MixedFamilies(index));
    }
    if config.backends.iter().any(|backend| backend.weight > WEIGHT_MAX) {
        return Err(ServiceError::Weight(index));
    }
    let has_one_port = matches!(&config.ports[..], [range] if range.count() == 1);
    if !has_one_port && config.backends.iter().any(|backend| backend.port.is_some()) {
        return Err(ServiceError::PortOfRange(index));
    }
    if config.affinity == Affinity::Source && config.scheduler != Scheduler::Maglev {
        return Err(ServiceError::Affinity(index));
    }
    Ok(())
}

/// What a tunnel cannot do.
fn check_tunnels(index: usize, config: &ServiceConfig) -> Result<(), ServiceError> {
    if config.backends.iter().any(|backend| backend.port.is_some()) {
        return Err(ServiceError::PortOfTunnel(index));
    }
    if config.protocol == ip_protocol::SCTP {
        return Err(ServiceError::ProtocolOfTunnel(index));
    }
    if config.protocol == ip_protocol::TCP && config.on_failure == OnFailure::End {
        return Err(ServiceError::ResetsInTunnel(index));
    }
    Ok(())
}

fn check_others(index: usize, config: &ServiceConfig, all: &[ServiceConfig]) -> Result<(), ServiceError> {
    for (earlier, other) in all[..index].iter().enumerate() {
        if service_id(&other.name) == service_id(&config.name) {
            return Err(ServiceError::SameName(earlier, index));
        }
        if other.overlaps(config) {
            return Err(ServiceError::Overlap(earlier, index));
        }
    }
    Ok(())
}
