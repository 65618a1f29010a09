//! The fast path of a node's ports: the program in the kernel, as the node installs connections in it.

mod xdp;

use std::time::Duration;

use cluster::forwarding::PATH_ETHER_TYPE;
use cluster::pipeline::{FAST_PATH_NEXT_HOPS_MAX, FastPathProgram, InstallError, Left};
use fast_path::{ConnectionIndex, Error, FastPath, Outcome, interface_index};
use flow::Instant;
use flow::fast_path::{Activity, Hook, NextHop, Plan, Windows};

use config::validated::{Backend, Config, Port};
use packet_io::netlink::Netlink;

use self::xdp::Moment;

/// What a node receives of a port with a fast path: IPv4, IPv6, ARP, and the frames by which peers are detected.
pub(super) const ETHER_TYPES: [u16; 4] = [0x0800, 0x86dd, 0x0806, PATH_ETHER_TYPE];

/// Without a peer that would take over, the kernel forwards so long after the node was last alive.
const HEARTBEAT_AGE_MAX_ALONE: Duration = Duration::from_secs(1);
/// A node is not more often alive than this, whatever the failure detection is configured to.
const HEARTBEAT_AGE_MAX_LEAST: Duration = Duration::from_millis(150);

/// The program, attached to the ports.
pub(super) struct KernelFastPath {
    program: FastPath,
    /// By port; `None` for a port without a fast path.
    ports: Vec<Option<AttachedPort>>,
    /// How long it forwards without the gateway while no peer is alive; `None`: it ends with the gateway.
    restart_grace: Option<Duration>,
    /// Why it is at another hook than the configured one.
    hook_reason: Option<String>,
}

/// A port that the program is attached to.
struct AttachedPort {
    interface: String,
    /// The interface's number when the program was attached.
    index: u32,
    /// As configured.
    redirects_peer: bool,
    /// Packets for it can be handed to the other end of its cable.
    leads_elsewhere: bool,
    /// At XDP, the kernel does not drop what is redirected to it.
    is_target: bool,
}

impl AttachedPort {
    fn new(port: &Port) -> Result<Self, Error> {
        let index = interface_index(&port.interface)?;
        let (interface, redirects_peer) = (port.interface.clone(), port.redirect_peer);
        let mut attached = Self { interface, index, redirects_peer, leads_elsewhere: false, is_target: true };
        attached.look();
        Ok(attached)
    }

    /// Looks where the interface leads. The kernel drops what is redirected to an end in the same namespace.
    fn look(&mut self) {
        if !self.redirects_peer {
            return;
        }
        let found = Netlink::open().and_then(|mut netlink| netlink.interface(&self.interface));
        self.leads_elsewhere = found.is_ok_and(|found| found.index == self.index && found.leads_elsewhere);
        if !self.leads_elsewhere {
            let interface = &self.interface;
            tracing::warn!(
                "{interface} is no virtual cable into another network namespace, so redirect_peer has no effect: remove it"
            );
        }
    }
}

impl KernelFastPath {
    /// Loads the program and attaches it to the ports, switched off. `None`: there is no fast path, and the log has why.
    pub(super) fn open(config: &Config) -> Option<Self> {
        let opened = match obstacle(config) {
            Some(obstacle) => Err(obstacle.to_owned()),
            None => Self::at_a_hook(config).map_err(|error| error.to_string()),
        };
        if opened.is_err() || config.fast_path.restart_grace.is_zero() {
            // Of a gateway that was configured otherwise.
            warned(FastPath::remove_pins(&config.fast_path.pin_directory));
        }
        match opened {
            Ok(opened) => {
                tracing::info!(
                    connections_max = config.fast_path.connections_max,
                    hook = opened.program.hook().name(),
                    "the kernel forwards established connections"
                );
                Some(opened)
            }
            Err(reason) => {
                tracing::info!("all packets go through the gateway, none by the fast path: {reason}");
                None
            }
        }
    }

    /// At the configured hook. Where ports cannot have XDP, at tc, and the log has why: never by the kernel's generic XDP.
    fn at_a_hook(config: &Config) -> Result<Self, Error> {
        let hook = config.fast_path.hook;
        if hook == Hook::Tc {
            return Self::attach(config, hook);
        }
        let opened = match xdp::obstacle(config, Moment::Before) {
            Some(reason) => Err(reason),
            None => Self::attach(config, hook).map_err(|error| error.to_string()),
        };
        let reason = match opened.map(|opened| (opened, xdp::obstacle(config, Moment::Attached))) {
            Ok((opened, None)) => return Ok(opened),
            Ok((_, Some(reason))) | Err(reason) => reason,
        };
        tracing::warn!("the fast path is at tc, not at XDP: {reason}");
        // The verifier's log has many lines more.
        let hook_reason = reason.lines().next().map(str::to_owned);
        Ok(Self { hook_reason, ..Self::attach(config, Hook::Tc)? })
    }

    fn attach(config: &Config, hook: Hook) -> Result<Self, Error> {
        let heartbeat_age_max = config.cluster.as_ref().map_or(HEARTBEAT_AGE_MAX_ALONE, |cluster| {
            let detection = &cluster.failure_detection;
            (detection.interval * u32::from(detection.multiplier)).max(HEARTBEAT_AGE_MAX_LEAST)
        });
        let restart_grace = Some(config.fast_path.restart_grace).filter(|grace| !grace.is_zero());
        let mut program = load(&fast_path::Config {
            connections_max: config.fast_path.connections_max.min(config.connections_max),
            next_hops_max: FAST_PATH_NEXT_HOPS_MAX,
            heartbeat_age_max,
            hook,
            pin_directory: restart_grace.map(|_| config.fast_path.pin_directory.clone()),
            ..fast_path::Config::default()
        })?;
        let mut ports = Vec::new();
        for port in &config.ports {
            let is_served = port.backend == Backend::AfPacket;
            if is_served {
                program.attach(&port.interface)?;
            }
            ports.push(is_served.then(|| AttachedPort::new(port)).transpose()?);
        }
        Ok(Self { program, ports, restart_grace, hook_reason: None })
    }

    /// Attaches the program to interfaces that were made anew, and looks at what XDP depends on.
    fn follow_interfaces(&mut self) {
        for port in self.ports.iter_mut().flatten() {
            if self.program.hook() == Hook::Xdp && interface_index(&port.interface).is_ok() {
                // Its link address may be another.
                warned(self.program.attach(&port.interface));
                let obstacle = xdp::obstacle_at(&port.interface, Moment::Attached).err();
                if let Some(obstacle) = obstacle.as_ref().filter(|_| port.is_target) {
                    tracing::warn!("packets of port {} go through the gateway: {obstacle}", port.interface);
                }
                port.is_target = obstacle.is_none();
            }
            let Some(index) = interface_index(&port.interface).ok().filter(|index| *index != port.index) else {
                continue;
            };
            let result = self.program.detach(port.index).and_then(|_| self.program.attach(&port.interface));
            match result {
                Ok(()) => {
                    port.index = index;
                    port.look();
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }
}

/// Why a gateway as configured would have no fast path at this hook on this host. It loads the program to find out, and attaches it to
/// nothing. Some drivers state only with a program attached whether they can send what XDP redirects.
#[must_use]
pub fn fast_path_obstacle(config: &Config, hook: Hook) -> Option<String> {
    let load = || {
        let smallest = fast_path::Config { connections_max: 1, next_hops_max: 1, hook, ..fast_path::Config::default() };
        FastPath::load(&smallest).err().map(|error| error.to_string())
    };
    let of_ports = || (hook == Hook::Xdp).then(|| xdp::obstacle(config, Moment::Before)).flatten();
    obstacle(config).map(str::to_owned).or_else(of_ports).or_else(load)
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
        (config.workers.count > 1, "there are several workers ([workers] count = 1 has one)"),
        (config.groups.len() > 1, "other nodes forward beside this one (several groups)"),
        (served < 2, "fewer than two ports have the backend \"af_packet\""),
    ];
    obstacles.into_iter().find_map(|(applies, obstacle)| applies.then_some(obstacle))
}

/// What the kernel refuses is logged; the node goes on without.
fn warned<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(|error| tracing::warn!("{error}")).ok()
}

impl FastPathProgram for KernelFastPath {
    fn take_over(&mut self) -> Option<Left> {
        self.restart_grace?;
        let records = warned(self.program.records())?;
        let connections: Vec<_> = records.into_iter().map(|(ConnectionIndex(index), record)| (index, record)).collect();
        if !connections.is_empty() {
            tracing::info!(
                connections = connections.len(),
                "the kernel has forwarded established connections meanwhile"
            );
        }
        Some(Left { generation: self.program.generation(), connections })
    }

    fn hook(&self) -> (Hook, Option<&str>) {
        (self.program.hook(), self.hook_reason.as_deref())
    }

    fn keeps_records(&self) -> bool {
        self.restart_grace.is_some()
    }

    fn install(&mut self, plan: &Plan, record: &[u8]) -> Result<u32, InstallError> {
        match self.program.install_with_record(plan, record) {
            Ok(ConnectionIndex(index)) => Ok(index),
            Err(Error::Full { .. }) => Err(InstallError::Full),
            Err(error) => {
                tracing::debug!("{error}");
                Err(InstallError::Refused)
            }
        }
    }

    fn remove(&mut self, connection: u32) -> Option<Activity> {
        warned(self.program.remove(ConnectionIndex(connection))).flatten()
    }

    fn take_activity(&mut self, connection: u32) -> Option<Activity> {
        self.program.take(ConnectionIndex(connection))
    }

    fn raise(&mut self, connection: u32, windows: &Windows) {
        self.program.raise(ConnectionIndex(connection), windows);
    }

    fn set_next_hop(&mut self, index: u32, hop: Option<&NextHop>) {
        let to_peer = |ifindex| self.ports.iter().flatten().any(|port| port.index == ifindex && port.leads_elsewhere);
        let hop = hop.map(|hop| NextHop { to_peer: to_peer(hop.ifindex), ..*hop });
        warned(self.program.set_next_hop(index, hop.as_ref()));
    }

    fn set_generation(&mut self, generation: u32) {
        self.program.set_generation(generation);
    }

    fn set_enabled(&mut self, is_enabled: bool) {
        self.program.set_enabled(is_enabled);
    }

    fn beat(&mut self, now: Instant, is_alone: bool) {
        self.program.beat(now);
        if let Some(grace) = self.restart_grace {
            self.program.allow_without_heartbeat_until(if is_alone { now + grace } else { Instant::ZERO });
        }
    }

    fn interfaces(&mut self) -> Vec<Option<u32>> {
        self.follow_interfaces();
        self.ports.iter().map(|port| port.as_ref().filter(|port| port.is_target).map(|port| port.index)).collect()
    }

    fn outcomes(&self) -> Vec<(&'static str, u64)> {
        let counters = warned(self.program.counters()).unwrap_or_default();
        Outcome::ALL.iter().map(|outcome| (outcome.name(), counters.of(*outcome))).collect()
    }
}
