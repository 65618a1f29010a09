//! The fast path of a node's ports: the program in the kernel, as the node installs connections in it.

mod common;
pub(crate) mod ports;
pub(crate) mod xdp;

use std::sync::Arc;
use std::time::Duration;

use cluster::forwarding::PATH_ETHER_TYPE;
use cluster::pipeline::{FAST_PATH_NEXT_HOPS_MAX, FastPathProgram, InstallError, Left};
use fast_path::{ConnectionIndex, Error, FastPath, Outcome, Share};
use flow::Instant;
use flow::fast_path::{Activity, Hook, NextHop, Plan, Windows};
use packet_io::capabilities;

use config::validated::{Backend, Config, Port};

use self::common::Common;
use self::ports::{AttachedProgram, warned};
use self::xdp::Moment;

/// What a node receives of a port with a fast path: IPv4, IPv6, ARP, and the frames by which peers are detected.
pub(crate) const ETHER_TYPES: [u16; 4] = [0x0800, 0x86dd, 0x0806, PATH_ETHER_TYPE];

/// Without a peer that would take over, the kernel forwards so long after the node was last alive.
pub(crate) const HEARTBEAT_AGE_MAX_ALONE: Duration = Duration::from_secs(1);
/// A node is not more often alive than this, whatever the failure detection is configured to.
pub(crate) const HEARTBEAT_AGE_MAX_LEAST: Duration = Duration::from_millis(150);

/// The fast path as one worker uses it.
pub(super) struct KernelFastPath {
    part: Part,
    worker: usize,
    common: Arc<Common>,
    /// How long it forwards without the gateway while no peer is alive; `None`: it ends with the gateway.
    restart_grace: Option<Duration>,
}

/// A worker's part of the fast path.
enum Part {
    /// The lead worker has the program, and its share of the connections.
    Lead(Box<AttachedProgram>),
    /// Any other worker has a share.
    Other(Box<Share>),
}

impl KernelFastPath {
    /// Loads the program and attaches it to the ports, switched off. Returns the parts of all workers, the lead's first. None: there is no
    /// fast path, and the log has why.
    pub(super) fn open(config: &Config) -> Vec<Self> {
        let opened = match obstacle(config) {
            Some(obstacle) => Err(obstacle.to_owned()),
            None => {
                let attach = |hook, reason| Self::attach(config, hook, reason);
                xdp::at_a_hook(config.fast_path.hook, &config.ports, attach).map_err(|error| error.to_string())
            }
        };
        if opened.is_err() || restart_grace(config).is_none() {
            // Of a gateway that was configured otherwise.
            warned(FastPath::remove_pins(&config.fast_path.pin_directory));
        }
        match opened {
            Ok(opened) => {
                tracing::info!(
                    connections_max = config.fast_path.connections_max,
                    hook = opened[0].common.hook().0.name(),
                    "the kernel forwards established connections"
                );
                opened
            }
            Err(reason) => {
                tracing::info!("all packets go through the gateway, none by the fast path: {reason}");
                Vec::new()
            }
        }
    }

    /// At this hook, for a reason if it is not the configured one.
    fn attach(config: &Config, hook: Hook, hook_reason: Option<String>) -> Result<Vec<Self>, Error> {
        let heartbeat_age_max = config.cluster.as_ref().map_or(HEARTBEAT_AGE_MAX_ALONE, |cluster| {
            let detection = &cluster.failure_detection;
            (detection.interval * u32::from(detection.multiplier)).max(HEARTBEAT_AGE_MAX_LEAST)
        });
        let (workers, restart_grace) = (config.workers.count, restart_grace(config));
        let mut program = load(&fast_path::Config {
            connections_max: config.fast_path.connections_max.min(config.connections_max).max(workers.into()),
            next_hops_max: FAST_PATH_NEXT_HOPS_MAX * u32::from(workers),
            heartbeat_age_max,
            hook,
            pin_directory: restart_grace.map(|_| config.fast_path.pin_directory.clone()),
            ..fast_path::Config::default()
        })?;
        let others = if workers > 1 { program.divide(workers)? } else { Vec::new() };
        let lead = AttachedProgram::attach(program, &config.ports)?;
        let common = Arc::new(Common::new(&lead.ports, workers, (hook, hook_reason)));
        let others = others.into_iter().map(|share| Part::Other(Box::new(share)));
        let parts = [Part::Lead(Box::new(lead))].into_iter().chain(others).enumerate();
        Ok(parts.map(|(worker, part)| Self { part, worker, common: Arc::clone(&common), restart_grace }).collect())
    }

    fn share(&self) -> &Share {
        match &self.part {
            Part::Lead(lead) => &lead.program,
            Part::Other(share) => share,
        }
    }

    fn share_mut(&mut self) -> &mut Share {
        match &mut self.part {
            Part::Lead(lead) => &mut lead.program,
            Part::Other(share) => share,
        }
    }
}

/// What only loading a program takes.
const LOADING: [&str; 2] = ["CAP_BPF", "CAP_PERFMON"];

/// Takes from this thread, and from all that it starts, what only loading a program takes. It keeps that where the kernel permits changes of
/// maps only so, and with AF_XDP, which loads a program for each interface that appears again.
pub(super) fn give_up_privilege(config: &Config, opened: &[KernelFastPath]) {
    if config.ports.iter().any(|port| port.backend == Backend::AfXdp) {
        tracing::info!(
            "CAP_BPF and CAP_PERFMON are kept: the backend \"af_xdp\" loads a program whenever an interface appears"
        );
        return;
    }
    match capabilities::give_up(&LOADING, || opened.iter().all(|part| part.share().is_permitted())) {
        Ok(true) => tracing::debug!("CAP_BPF and CAP_PERFMON are given up"),
        Ok(false) => {
            tracing::info!("CAP_BPF and CAP_PERFMON are kept: this kernel takes changes of maps only with CAP_BPF")
        }
        Err(error) => tracing::warn!("CAP_BPF and CAP_PERFMON are kept: {error}"),
    }
}

/// As [`give_up_privilege`], in a thread that uses no maps.
pub(super) fn give_up_privilege_here() {
    if let Err(error) = capabilities::give_up(&LOADING, || true) {
        tracing::warn!("CAP_BPF and CAP_PERFMON are kept: {error}");
    }
}

/// How long the kernel forwards without the gateway. With several workers, a new process does not know which of them owns a connection
/// that is left.
fn restart_grace(config: &Config) -> Option<Duration> {
    Some(config.fast_path.restart_grace).filter(|grace| !grace.is_zero() && config.workers.count == 1)
}

/// Why a gateway as configured would have no fast path at this hook on this host. It loads the program to find out, and attaches it to
/// nothing. Some drivers state only with a program attached whether they can send what XDP redirects.
#[must_use]
pub fn fast_path_obstacle(config: &Config, hook: Hook) -> Option<String> {
    obstacle(config).map(str::to_owned).or_else(|| host_obstacle(&config.ports, hook))
}

/// Why this host has no fast path at this hook, for these ports.
pub(crate) fn host_obstacle(ports: &[Port], hook: Hook) -> Option<String> {
    let load = || {
        let smallest = fast_path::Config { connections_max: 1, next_hops_max: 1, hook, ..fast_path::Config::default() };
        FastPath::load(&smallest).err().map(|error| error.to_string())
    };
    (hook == Hook::Xdp).then(|| xdp::obstacle(ports, Moment::Before)).flatten().or_else(load)
}

/// Loads the program, or takes over what is pinned. What another version or configuration pinned is removed.
fn load(config: &fast_path::Config) -> Result<FastPath, Error> {
    let loaded = FastPath::load(config);
    match (loaded, &config.pin_directory) {
        (Err(error @ Error::Pins { .. }), Some(directory)) => {
            tracing::warn!("established connections do not go on: {error}");
            FastPath::remove_pins(directory)?;
            FastPath::load(config)
        }
        (loaded, _) => loaded,
    }
}

/// Why the node as configured has no fast path.
fn obstacle(config: &Config) -> Option<&'static str> {
    let served = config.ports.iter().filter(|port| port.backend == Backend::AfPacket).count();
    let obstacles = [
        (!config.fast_path.enabled, "[fast_path] enabled = false"),
        (served < 2, "fewer than two ports have the backend \"af_packet\""),
    ];
    obstacles.into_iter().find_map(|(applies, obstacle)| applies.then_some(obstacle))
}

impl FastPathProgram for KernelFastPath {
    fn take_over(&mut self) -> Option<Left> {
        self.restart_grace?;
        let records = warned(self.share().records())?;
        let connections: Vec<_> = records.into_iter().map(|(ConnectionIndex(index), record)| (index, record)).collect();
        if !connections.is_empty() {
            tracing::info!(
                connections = connections.len(),
                "the kernel has forwarded established connections meanwhile"
            );
        }
        Some(Left { generation: self.share().generation(), connections })
    }

    fn hook(&self) -> (Hook, Option<&str>) {
        self.common.hook()
    }

    fn keeps_records(&self) -> bool {
        self.restart_grace.is_some()
    }

    fn install(&mut self, plan: &Plan, record: &[u8]) -> Result<u32, InstallError> {
        match self.share_mut().install_with_record(plan, record) {
            Ok(ConnectionIndex(index)) => Ok(index),
            Err(Error::Full { .. }) => Err(InstallError::Full),
            Err(error) => {
                tracing::debug!("{error}");
                Err(InstallError::Refused)
            }
        }
    }

    fn remove(&mut self, connection: u32) -> Option<Activity> {
        warned(self.share_mut().remove(ConnectionIndex(connection))).flatten()
    }

    fn take_activity(&mut self, connection: u32) -> Option<Activity> {
        self.share().take(ConnectionIndex(connection))
    }

    fn raise(&mut self, connection: u32, windows: &Windows) {
        self.share().raise(ConnectionIndex(connection), windows);
    }

    fn set_next_hop(&mut self, index: u32, hop: Option<&NextHop>) {
        let hop = hop.map(|hop| NextHop { to_peer: self.common.leads_elsewhere(hop.ifindex), ..*hop });
        warned(self.share_mut().set_next_hop(index, hop.as_ref()));
    }

    fn begin_generation(&mut self) -> u32 {
        self.share().begin_generation()
    }

    fn generation(&self) -> u32 {
        self.share().generation()
    }

    fn set_enabled(&mut self, is_enabled: bool) {
        self.common.set_forwards(self.worker, is_enabled, |all| self.share().set_enabled(all));
    }

    fn beat(&mut self, now: Instant, is_alone: bool) {
        self.share().beat(self.common.beat(self.worker, now));
        if let Some(grace) = self.restart_grace {
            self.share().allow_without_heartbeat_until(if is_alone { now + grace } else { Instant::ZERO });
        }
    }

    fn interfaces(&mut self) -> Vec<Option<u32>> {
        if let Part::Lead(lead) = &mut self.part {
            lead.follow_interfaces();
            self.common.note_ports(&lead.ports);
        }
        self.common.interfaces()
    }

    fn outcomes(&self) -> Vec<(&'static str, u64)> {
        let Part::Lead(lead) = &self.part else { return Vec::new() };
        let counters = warned(lead.program.counters()).unwrap_or_default();
        Outcome::ALL.iter().map(|outcome| (outcome.name(), counters.of(*outcome))).collect()
    }
}
