//! The four gateway nodes: a configuration file each, a process each.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packet_io::signal::die_with_parent;

use super::error::TunnelError;
use super::topology::{INTERFACES, PREFIX_BITS, SITES, SitePlan, Topology};
use crate::testbed::cluster::{ClusterError, Directory};
use crate::testbed::watch::{Waited, Watch};
use api::{NodeRole, RedundancyStatus, Status};
use control::client::Client;

/// How long the nodes may take until they are ready.
const READY_WITHIN: Duration = Duration::from_secs(30);
const REPLICATION_PORT: u16 = 3781;
const TUNNEL_PORT: u16 = 3785;
/// Each cache. It holds more than lies between two downloads of the same.
const CACHE: &str = "64MiB";

struct Gateway {
    /// Its site's number.
    site: usize,
    child: Child,
    control_socket: PathBuf,
    log: PathBuf,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    fn status(&self) -> Option<Status> {
        Client::connect(&self.control_socket).and_then(|mut client| client.status()).ok()
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

/// What goes between the sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tunnels {
    /// Packets as they are.
    None,
    /// What is new of them, and the nodes that stand by know nothing of it.
    Alone,
    /// What is new of them, and the nodes that stand by mirror the caches.
    Mirrored,
}

/// The running nodes. Dropping it ends the processes and removes the files.
pub(super) struct Gateways {
    nodes: Vec<Gateway>,
    tunnels: Tunnels,
    directory: Directory,
}

impl Gateways {
    pub(super) fn start(topology: &Topology, tunnels: Tunnels, rate_bits_per_second: u64) -> Result<Self, TunnelError> {
        let directory = Directory::create()?;
        let mut nodes = Vec::new();
        for site in 0..SITES.len() {
            for number in 0..2 {
                let tunnel = match tunnels {
                    Tunnels::None => String::new(),
                    Tunnels::Alone => tunnel(site, rate_bits_per_second, false),
                    Tunnels::Mirrored => tunnel(site, rate_bits_per_second, true),
                };
                nodes.push(start(topology, &directory, (site, number), &tunnel)?);
            }
        }
        Ok(Self { nodes, tunnels, directory })
    }

    pub(super) fn keep_files(&mut self) -> PathBuf {
        self.directory.keep()
    }

    /// Waits until either site has an active node whose other could take over, and the tunnel is open.
    pub(super) fn wait_until_ready(&mut self, watch: &Watch) -> Result<(), TunnelError> {
        let mut missing = String::new();
        let waited = watch.until(Instant::now() + READY_WITHIN, || -> Result<bool, TunnelError> {
            missing = self.missing().unwrap_or_default();
            Ok(missing.is_empty())
        })?;
        if waited == Waited::Met {
            return Ok(());
        }
        let logs: Vec<String> = self.nodes.iter().map(Gateway::log_tail).collect();
        Err(TunnelError::NotReady { reason: missing, logs: logs.join("\n") })
    }

    fn missing(&self) -> Option<String> {
        for (site, plan) in SITES.iter().enumerate() {
            let statuses: Vec<Status> = self.of_site(site).filter_map(Gateway::status).collect();
            let active = statuses.iter().find(|status| status.node.role == NodeRole::Active);
            let Some(active) = active.filter(|_| statuses.len() == 2) else {
                return Some(format!("no node of site {} is active", plan.name));
            };
            if !active.takeover.ready {
                return Some(format!("site {} has no standby: {}", plan.name, active.takeover.obstacles.join("; ")));
            }
            let is_open = active.redundancy.as_ref().is_some_and(|tunnel| tunnel.bypass.is_none());
            if self.tunnels != Tunnels::None && !is_open {
                return Some(format!("the tunnel is not open at site {}", plan.name));
            }
        }
        None
    }

    fn of_site(&self, site: usize) -> impl Iterator<Item = &Gateway> {
        self.nodes.iter().filter(move |node| node.site == site)
    }

    /// The tunnel's status at the active node of a site.
    pub(super) fn tunnel(&self, site: usize) -> Option<RedundancyStatus> {
        let mut statuses = self.of_site(site).filter_map(Gateway::status);
        statuses.find(|status| status.node.role == NodeRole::Active)?.redundancy.map(|tunnel| *tunnel)
    }

    /// Kills the active node of a site as a power cut would. That of the site with the server encodes what the client is sent,
    /// that of the other site decodes it.
    pub(super) fn kill_active(&mut self, site: usize) -> Result<(), TunnelError> {
        let is_active = |node: &Gateway| {
            node.site == site && node.status().is_some_and(|status| status.node.role == NodeRole::Active)
        };
        let index = self.nodes.iter().position(is_active).ok_or(TunnelError::NobodyToKill(SITES[site].name))?;
        // Dropping it kills it.
        drop(self.nodes.remove(index));
        Ok(())
    }

    /// Whether a site has an active node.
    pub(super) fn has_active(&self, site: usize) -> bool {
        self.of_site(site).filter_map(Gateway::status).any(|status| status.node.role == NodeRole::Active)
    }
}

fn start(
    topology: &Topology,
    directory: &Directory,
    (site, number): (usize, usize),
    tunnel: &str,
) -> Result<Gateway, TunnelError> {
    let name = format!("{}{number}", SITES[site].name);
    let file = |extension: &str| directory.path.join(format!("{name}.{extension}"));
    let (config, control_socket, log) = (file("toml"), file("sock"), file("log"));
    let written = |source| TunnelError::Cluster(directory.error(source));
    let text = configuration(&SITES[site], number, &control_socket, &directory.key()) + tunnel;
    fs::write(&config, text).map_err(written)?;
    let output = fs::File::create(&log).map_err(written)?;
    let mut command = Command::new(std::env::current_exe().map_err(written)?);
    command.arg("gateway").arg("--config").arg(&config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    die_with_parent(&mut command);
    let child = topology.sites[site].nodes[number].spawn_command(command).map_err(ClusterError::from)?;
    Ok(Gateway { site, child, control_socket, log })
}

fn configuration(plan: &SitePlan, number: usize, control_socket: &std::path::Path, key: &std::path::Path) -> String {
    let other = 1 - number;
    let mut text = format!(
        "chain = [\"firewall\"]\n\n[node]\nid = {number}\nname = \"{}{number}\"\nnodes = 2\npriority = {}\n\
         control_socket = {control_socket:?}\n\n",
        plan.name,
        200 - 100 * number,
    );
    // Writing to a string cannot fail.
    for (interface, address) in INTERFACES.into_iter().zip([plan.inside, plan.uplink]) {
        let _ = write!(
            text,
            "[[port]]\nname = \"{interface}\"\ninterface = \"{interface}\"\naddresses = [\"{address}/{PREFIX_BITS}\"]\n\n"
        );
    }
    let _ = write!(
        text,
        "[[route]]\nto = \"0.0.0.0/0\"\nvia = \"{}\"\n\n[[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\n\
         [replication]\nlocal = \"{}:{REPLICATION_PORT}\"\n\n\
         [[replication.peer]]\nid = {other}\naddress = \"{}:{REPLICATION_PORT}\"\n\n\
         [failure_detection]\ninterval = \"20ms\"\nmultiplier = 10\n\n\
         [replication.security]\npre_shared_keys = [{key:?}]\n\n",
        plan.router, plan.sync[number], plan.sync[other],
    );
    text
}

/// The tunnel's section of a site's configuration.
fn tunnel(site: usize, rate_bits_per_second: u64, is_mirrored: bool) -> String {
    let (own, other) = (&SITES[site], &SITES[1 - site]);
    format!(
        "[redundancy]\nlocal = \"{}:{TUNNEL_PORT}\"\npeer = \"{}:{TUNNEL_PORT}\"\ncache = \"{CACHE}\"\n\
         rate_bits_per_second = {rate_bits_per_second}\nmirror = {is_mirrored}\n\n\
         [redundancy.security]\nmode = \"plain\"\n\n\
         [[redundancy.rule]]\nprotocol = \"tcp\"\nport = {}\n",
        own.uplink,
        other.uplink,
        super::topology::SERVER.port(),
    )
}
