//! What this host offers to the ports of a configuration, without touching anything.

use std::fs::OpenOptions;

use packet_io::interface::{self, Offload};
use packet_io::netlink::{Interface, Netlink};
use packet_io::xdp_features::xdp_features;
use packet_io::{af_xdp, limits, sysctl};
use serde::Serialize;

use crate::config::validated::{Backend, Config, Port};
use crate::output::{Align, Table, yes_no};

/// The device that tunnel devices are opened through.
const TUN_DEVICE: &str = "/dev/net/tun";

/// What the host offers.
#[derive(Debug, Serialize)]
pub(super) struct Host {
    ports: Vec<PortOnHost>,
    /// Whether tunnel devices can be opened.
    tun_available: bool,
    /// What stands in the way, and what to do about it.
    findings: Vec<String>,
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
    /// XDP in the driver, `AF_XDP` without copies; nothing where the kernel cannot say.
    native_xdp: Option<bool>,
    zero_copy: Option<bool>,
}

impl Host {
    /// Looks at the interfaces of the configuration.
    pub(super) fn look(config: &Config) -> Self {
        let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces()).unwrap_or_default();
        let mut findings = Vec::new();
        let tun_available = OpenOptions::new().read(true).write(true).open(TUN_DEVICE).is_ok();
        let mut ports = Vec::new();
        for port in &config.ports {
            let found = interfaces.iter().find(|interface| interface.name == port.interface);
            let seen = PortOnHost::look(port, found);
            findings.extend(seen.findings(port, tun_available));
            ports.push(seen);
        }
        findings.extend(findings_of_host(config));
        findings.extend(finding_of_replication(config, &interfaces));
        Self { ports, tun_available, findings }
    }

    /// A table for people, and the findings.
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
        let findings: String = self.findings.iter().map(|finding| format!("- {finding}\n")).collect();
        let heading =
            if findings.is_empty() { "\nNothing stands in the way on this host.\n" } else { "\nOn this host:\n" };
        format!("\n{}{heading}{findings}", table.render())
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
        }
    }

    fn findings(&self, port: &Port, tun_available: bool) -> Vec<String> {
        let Self { name, interface, .. } = self;
        let mut findings = Vec::new();
        if port.backend == Backend::Tun {
            if !tun_available {
                findings.push(format!(
                    "port {name}: {TUN_DEVICE} cannot be opened: load the kernel module tun, and run as root"
                ));
            }
            return findings;
        }
        if !self.exists {
            findings
                .push(format!("port {name}: there is no interface {interface}: check the name, or create it first"));
            return findings;
        }
        if !self.up {
            findings.push(format!("port {name}: {interface} is off: ip link set {interface} up"));
        }
        if port.backend == Backend::AfXdp {
            findings.extend(self.findings_of_af_xdp());
        }
        findings
    }

    fn findings_of_af_xdp(&self) -> Vec<String> {
        let Self { name, interface, .. } = self;
        let mut findings = Vec::new();
        if let Some(mtu_bytes) = self.mtu_bytes.filter(|mtu_bytes| *mtu_bytes > af_xdp::MTU_BYTES_MAX) {
            findings.push(format!(
                "port {name}: {interface} has an MTU of {mtu_bytes}, and AF_XDP takes at most {}: lower it, or choose \
                 another backend",
                af_xdp::MTU_BYTES_MAX
            ));
        }
        if self.driver.as_deref() == Some("veth") {
            findings.push(format!(
                "port {name}: {interface} is one end of a virtual cable: at the other end, checksums must not be left to \
                 hardware (ethtool -K … tx off), or ping works and TCP does not"
            ));
        }
        if self.native_xdp == Some(false) {
            findings.push(format!(
                "port {name}: the driver of {interface} has no XDP: frames go the slower generic way, and those of many \
                 segments are lost; af_packet may serve better"
            ));
        }
        findings
    }
}

/// What concerns all ports.
fn findings_of_host(config: &Config) -> Vec<String> {
    let mut findings = Vec::new();
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
    let missing = limits::missing_capabilities(&wanted);
    if !missing.is_empty() {
        findings
            .push(format!("this process lacks {}: run as root, or give the program what it lacks", missing.join(", ")));
    }
    for name in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        let forwards = sysctl::read(name).is_ok_and(|value| value != "0");
        if uses(Backend::AfPacket) && forwards {
            findings.push(format!(
                "{} is on: the kernel sees what af_packet ports receive and may forward it a second time; switch it off, or \
                 keep addresses and routes away from these interfaces",
                name.replace('/', ".")
            ));
        } else if uses(Backend::Tun) && !forwards {
            findings.push(format!("{} is off: the kernel routes nothing into tunnel devices", name.replace('/', ".")));
        }
    }
    findings
}

/// The kernel sees no frame of an interface that `AF_XDP` serves, so that datagrams of peers would never arrive there.
fn finding_of_replication(config: &Config, interfaces: &[Interface]) -> Option<String> {
    let local = config.cluster.as_ref()?.replication.local.ip();
    let carrier = interfaces.iter().find(|interface| interface.addresses.iter().any(|own| own.address == local))?;
    let port = config.ports.iter().find(|port| port.backend == Backend::AfXdp && port.interface == carrier.name)?;
    Some(format!(
        "[replication] local = {local} is on {}, which port {} takes over whole by AF_XDP: use another interface between the \
         nodes, or af_packet for this port",
        carrier.name, port.name
    ))
}
