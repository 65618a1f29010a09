//! What this host offers to the ports of a configuration, without touching anything.

use std::fs::OpenOptions;

use packet_io::interface::{self, Offload};
use packet_io::netlink::{Interface, Netlink};
use packet_io::xdp_features::xdp_features;
use packet_io::{IoError, af_xdp, capabilities, sysctl};
use serde::Serialize;

use super::probe;
use super::problem::Problem;
use config::validated::{Backend, Config, Port};
use console::{Align, Table, yes_no};
use daemon::gateway::fast_path_obstacle;
use flow::fast_path::Hook;

/// The device that tunnel devices are opened through.
const TUN_DEVICE: &str = "/dev/net/tun";

/// What the host offers.
#[derive(Debug, Serialize)]
pub(super) struct Host {
    ports: Vec<PortOnHost>,
    /// Whether tunnel devices can be opened.
    tun_available: bool,
    /// Why the kernel would forward no established connections; nothing where it would.
    fast_path_obstacle: Option<String>,
    /// Why it would not do so at XDP.
    fast_path_xdp_obstacle: Option<String>,
}

/// What the host offers to a port.
#[derive(Debug, Serialize)]
struct PortOnHost {
    name: String,
    interface: String,
    backend: &'static str,
    exists: bool,
    up: bool,
    driver: Option<String>,
    receive_queues: Option<u32>,
    mtu_bytes: Option<u32>,
    /// Offloads of the interface itself; nothing where it does not exist.
    transmit_checksum: Option<bool>,
    tcp_segmentation: Option<bool>,
    generic_receive: Option<bool>,
    /// XDP in the driver, `AF_XDP` without copies; nothing where the kernel does not report it.
    native_xdp: Option<bool>,
    zero_copy: Option<bool>,
    /// It is an end of a virtual cable whose other end is in another namespace.
    leads_elsewhere: bool,
    /// It belongs to a bridge or bond.
    is_enslaved: bool,
}

impl Host {
    /// Looks at the interfaces of the configuration, and at what else a start takes of the host.
    pub(super) fn look(config: &Config) -> (Self, Vec<Problem>) {
        let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces()).unwrap_or_default();
        let mut problems = Vec::new();
        let tun_available = OpenOptions::new().read(true).write(true).open(TUN_DEVICE).is_ok();
        let mut ports = Vec::new();
        for port in &config.ports {
            let found = interfaces.iter().find(|interface| interface.name == port.interface);
            let seen = PortOnHost::look(port, found);
            problems.extend(seen.problems(port, tun_available, config.workers.count));
            ports.push(seen);
        }
        problems.extend(problems_of_host(config));
        problems.extend(problem_of_replication(config, &interfaces));
        problems.extend(addresses_of_kernel(config, &interfaces));
        problems.extend(sockets(config));
        let [fast_path_obstacle, fast_path_xdp_obstacle] =
            [Hook::Tc, Hook::Xdp].map(|hook| fast_path_obstacle(config, hook));
        if let (Hook::Xdp, None, Some(obstacle)) = (config.fast_path.hook, &fast_path_obstacle, &fast_path_xdp_obstacle)
        {
            problems.push(Problem::warning("fast_path.hook", &format!("tc is used instead of xdp: {obstacle}")));
        }
        (Self { ports, tun_available, fast_path_obstacle, fast_path_xdp_obstacle }, problems)
    }

    /// A table for people.
    pub(super) fn describe(&self) -> String {
        let headings = [
            "PORT",
            "INTERFACE",
            "BACKEND",
            "DRIVER",
            "QUEUES",
            "MTU",
            "TX CHECKSUM",
            "TSO",
            "GRO",
            "XDP",
            "ZERO-COPY",
        ];
        let mut table =
            Table::new(&headings.map(|heading| {
                (heading, if matches!(heading, "QUEUES" | "MTU") { Align::Right } else { Align::Left })
            }));
        let known = |is_true: Option<bool>| is_true.map_or("?", yes_no).to_owned();
        for port in &self.ports {
            let driver = port.driver.clone().unwrap_or_else(|| if port.exists { "?" } else { "missing" }.into());
            let mut cells = vec![port.name.clone(), port.interface.clone(), port.backend.to_owned(), driver];
            if port.exists {
                cells.extend([port.receive_queues, port.mtu_bytes].map(|number| number.unwrap_or(0).to_string()));
                cells.extend([port.transmit_checksum, port.tcp_segmentation, port.generic_receive].map(known));
                let xdp = port.native_xdp.map_or("?", |is_native| if is_native { "native" } else { "generic" });
                cells.extend([xdp.to_owned(), known(port.zero_copy)]);
            }
            table.row(cells);
        }
        let fast_path = match (&self.fast_path_obstacle, &self.fast_path_xdp_obstacle) {
            (None, None) => "The kernel can forward established connections (fast path) at tc and at XDP.\n".to_owned(),
            (None, Some(obstacle)) => {
                format!("The kernel can forward established connections (fast path) at tc, not at XDP: {obstacle}.\n")
            }
            (Some(obstacle), _) => {
                format!("All packets would go through the gateway, none by the fast path: {obstacle}.\n")
            }
        };
        format!("\n{}\n{fast_path}", table.render())
    }
}

impl PortOnHost {
    fn look(port: &Port, found: Option<&Interface>) -> Self {
        let name = port.interface.as_str();
        let features = xdp_features(name);
        let offload = |offload| interface::offload(name, offload);
        Self {
            name: port.name.clone(),
            interface: port.interface.clone(),
            backend: port.backend.name(),
            exists: found.is_some(),
            up: found.is_some_and(|interface| interface.up),
            driver: interface::driver(name),
            receive_queues: found.map(|_| interface::receive_queues(name)),
            mtu_bytes: found.map(|interface| interface.mtu_bytes),
            transmit_checksum: offload(Offload::TransmitChecksum),
            tcp_segmentation: offload(Offload::TcpSegmentation),
            generic_receive: offload(Offload::GenericReceive),
            native_xdp: features.map(|features| features.native),
            zero_copy: features.map(|features| features.zero_copy),
            leads_elsewhere: found.is_some_and(|interface| interface.leads_elsewhere),
            is_enslaved: found.is_some_and(|interface| interface.bridge_index.is_some()),
        }
    }

    fn problems(&self, port: &Port, tun_available: bool, workers: u8) -> Vec<Problem> {
        let Self { name, interface, .. } = self;
        let key = format!("port {name}");
        let mut problems = Vec::new();
        if port.backend == Backend::Tun {
            if !tun_available {
                let sentence = format!("{TUN_DEVICE} cannot be opened: load the kernel module tun, and run as root");
                problems.push(Problem::error(key, &sentence));
            }
            return problems;
        }
        if !self.exists {
            let missing = IoError::NoSuchInterface { interface: interface.clone() };
            problems.push(Problem::error(key, &missing.to_string()));
            return problems;
        }
        if !self.up {
            problems.push(Problem::warning(key.clone(), &format!("{interface} is off: ip link set {interface} up")));
        }
        if self.is_enslaved {
            let sentence = format!(
                "{interface} belongs to a bridge or bond of the kernel, which takes its frames, too: name the bridge or bond as the \
                 interface, or take it out (ip link set {interface} nomaster)"
            );
            problems.push(Problem::warning(key.clone(), &sentence));
        }
        if port.redirect_peer && !self.leads_elsewhere {
            let sentence = format!(
                "{interface} is no virtual cable into another network namespace, so redirect_peer has no effect: remove it"
            );
            problems.push(Problem::warning(key, &sentence));
        }
        if port.backend == Backend::AfXdp {
            problems.extend(self.problems_of_af_xdp(workers));
        }
        problems
    }

    fn problems_of_af_xdp(&self, workers: u8) -> Vec<Problem> {
        let Self { name, interface, .. } = self;
        let key = || format!("port {name}");
        let mut problems = Vec::new();
        if let Some(mtu_bytes) = self.mtu_bytes.filter(|mtu_bytes| *mtu_bytes > af_xdp::MTU_BYTES_MAX) {
            let sentence = format!(
                "{interface} has an MTU of {mtu_bytes}, and AF_XDP takes at most {}: lower it, or choose another backend",
                af_xdp::MTU_BYTES_MAX
            );
            problems.push(Problem::error(key(), &sentence));
        }
        if let Some(queues) = self.receive_queues.filter(|queues| *queues < workers.into()) {
            let sentence = format!(
                "{interface} has {queues} receive queues and workers.count is {workers}: give it as many (ethtool -L), or \
                 lower workers.count"
            );
            problems.push(Problem::error(key(), &sentence));
        }
        if self.driver.as_deref() == Some("veth") {
            let sentence = format!(
                "{interface} is one end of a virtual cable, and with checksums left to hardware at the other end ping works \
                 and TCP does not: switch that off there (ethtool -K … tx off)"
            );
            problems.push(Problem::warning(key(), &sentence));
        }
        if self.native_xdp == Some(false) {
            let sentence = format!(
                "the driver of {interface} has no XDP, so that frames go the slower generic way and those of many segments \
                 are lost: af_packet may serve better"
            );
            problems.push(Problem::warning(key(), &sentence));
        }
        problems
    }
}

/// What concerns all ports.
fn problems_of_host(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    let uses = |backend| config.ports.iter().any(|port| port.backend == backend);
    let mut wanted = Vec::new();
    if uses(Backend::AfPacket) {
        wanted.push("CAP_NET_RAW");
    }
    if uses(Backend::AfXdp) {
        wanted.extend(["CAP_NET_RAW", "CAP_BPF", "CAP_NET_ADMIN"]);
    }
    if uses(Backend::Tun) {
        wanted.push("CAP_NET_ADMIN");
    }
    wanted.sort_unstable();
    wanted.dedup();
    let missing = capabilities::missing(&wanted);
    if !missing.is_empty() {
        let sentence =
            format!("this process lacks {}: run as root, or grant the program what it lacks", missing.join(", "));
        problems.push(Problem::error("capabilities", &sentence));
    }
    for name in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        let forwards = sysctl::read(name).is_ok_and(|value| value != "0");
        let key = name.replace('/', ".");
        if uses(Backend::AfPacket) && forwards {
            let sentence = "it is on, and the kernel may forward a second time what af_packet ports receive: switch it \
                            off, or keep addresses and routes away from these interfaces";
            problems.push(Problem::warning(key, sentence));
        } else if uses(Backend::Tun) && !forwards {
            let sentence = "it is off, and the kernel routes nothing into tunnel devices: switch it on";
            problems.push(Problem::warning(key, sentence));
        }
    }
    problems
}

/// The kernel sees no frame of an interface that `AF_XDP` serves, so that datagrams of peers would never arrive there.
fn problem_of_replication(config: &Config, interfaces: &[Interface]) -> Option<Problem> {
    let local = config.cluster.as_ref()?.replication.local.ip();
    let carrier = interfaces.iter().find(|interface| interface.addresses.iter().any(|own| own.address == local))?;
    let port = config.ports.iter().find(|port| port.backend == Backend::AfXdp && port.interface == carrier.name)?;
    let sentence = format!(
        "{local} is on {}, which port {} takes over whole by AF_XDP: use another interface between the nodes, or af_packet for \
         this port",
        carrier.name, port.name
    );
    Some(Problem::error("replication.local", &sentence))
}

/// Addresses of the gateway that the kernel has as well: it would answer ARP beside the gateway, and on a standby node.
fn addresses_of_kernel(config: &Config, interfaces: &[Interface]) -> Vec<Problem> {
    let shared = config
        .ports
        .iter()
        .flat_map(|port| port.addresses.iter().map(|address| (format!("port {}", port.name), address.prefix.addr())));
    let sources = config.source_nat.iter().flat_map(|rule| &rule.to).map(|address| ("nat.source".to_owned(), *address));
    let destinations = config.destination_nat.iter().map(|rule| ("nat.destination".to_owned(), rule.destination));
    let mut problems: Vec<Problem> = Vec::new();
    for (key, address) in shared.chain(sources).chain(destinations) {
        let owner = |interface: &&Interface| interface.addresses.iter().any(|own| own.address == address);
        let Some(interface) = interfaces.iter().find(owner) else { continue };
        let Some(own) = interface.addresses.iter().find(|own| own.address == address) else { continue };
        let sentence = format!(
            "the kernel has {address} on {name}, too, and would answer beside the gateway: ip address del {address}/{} dev {name}",
            own.length_bits,
            name = interface.name,
        );
        // An address is often a port's and a translation's.
        if !problems.iter().any(|known| sentence.starts_with(&known.text)) {
            problems.push(Problem::error(key, &sentence));
        }
    }
    problems
}

/// What a start binds.
fn sockets(config: &Config) -> Vec<Problem> {
    if let Some(taken) = probe::control_socket(&config.node.control_socket) {
        return vec![taken];
    }
    let peers = config.cluster.as_ref().map(|cluster| probe::peers_ports(cluster, config.workers.count));
    let operators = probe::operators_ports(config.node.metrics, config.control.as_ref().map(|access| access.listen));
    peers.into_iter().flatten().chain(operators).collect()
}
