//! Short TCP connections a second through a load balancer in a network of namespaces: a node alone, and the kernel in its place.
//!
//! A connection is that of [`setup_rate`](super::setup_rate): a handshake, one request, one answer and an orderly end. Clients connect to the
//! shared address outside, and two servers answer. Both translate the destination by a hash of the connection, and the source. All share
//! this machine's processors, and are measured in turns.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::validated::Backend;
use console::Progress;
use packet_io::limits;
use packet_io::netlink::{Netlink, Prefix};
use serde::Serialize;

use super::BenchError;
use super::bulk::{forward_only, load_rules};
use super::rounds::{self, Rounds, rounded};
use super::setup_rate::allow_reuse_of_ports;
use super::setup_rate::client::Client;
use super::setup_rate::server::Server;
use crate::args::BenchLoadBalancerArgs;
use crate::testbed::cluster::{Cluster, ClusterPlan, Function, Tuning};
use crate::testbed::topology::{
    BRIDGE, INTERFACES, OUTSIDE, PREFIX_BITS, SECOND_SERVER, SERVER, SERVER_PORTS, Topology,
};
use crate::testbed::watch::Watch;

/// Connections that a node has room for, most of them over and waiting to be forgotten.
const CONNECTIONS_MAX: usize = 1 << 20;
/// Time that new connections are given to find their pace before they are counted.
const WARM_UP: Duration = Duration::from_millis(200);
/// Descriptors that are needed beside those of the connections.
const SPARE_DESCRIPTORS: u64 = 512;
/// The reason for which IPVS is not measured. The kernel has it if its table is there, or the module of its scheduler can be loaded.
fn reason_without_ipvs(proc: &Path, modules: &Path) -> &'static str {
    let release = std::fs::read_to_string(proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let module = modules.join(release.trim()).join("kernel/net/netfilter/ipvs");
    if proc.join("net/ip_vs").exists() || module.exists() {
        "this kernel has IPVS, but the benchmark does not set it up: compare with kernel_nft"
    } else {
        "this kernel has no IPVS (CONFIG_IP_VS): kernel_nft, nftables' translation of destinations by a hash, is the comparison"
    }
}

/// Connections a second; `None`: not measured, for the reason that is given beside it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(super) struct ConnectionRates {
    /// A node alone.
    pub(super) mainstay: Option<f64>,
    /// The kernel with nftables: a map of destinations by a hash.
    pub(super) kernel_nft: Option<f64>,
    /// The kernel with IPVS: not measured. `reasons` states whether the kernel has it.
    pub(super) ipvs: Option<f64>,
    /// Of those that were not measured, why.
    pub(super) reasons: Reasons,
}

/// Why something was not measured.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Reasons {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mainstay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernel_nft: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipvs: Option<String>,
}

impl ConnectionRates {
    /// Nothing was measured, for this reason.
    pub(super) fn unmeasured(reason: &str) -> Self {
        let reason = Some(reason.to_owned());
        let reasons = Reasons { mainstay: reason.clone(), kernel_nft: reason.clone(), ipvs: reason };
        Self { reasons, ..Self::default() }
    }

    /// Rows of a table: what, its figure, and why there is none.
    pub(super) fn rows(&self) -> [(&'static str, Option<f64>, Option<&str>); 3] {
        [
            ("mainstay", self.mainstay, self.reasons.mainstay.as_deref()),
            ("kernel, nftables", self.kernel_nft, self.reasons.kernel_nft.as_deref()),
            ("kernel, IPVS", self.ipvs, self.reasons.ipvs.as_deref()),
        ]
    }
}

/// Measures them in turns. The process must be allowed to make networks.
///
/// # Errors
/// The networks cannot be built, or connections fail.
pub(super) fn compare(
    args: &BenchLoadBalancerArgs,
    watch: &Watch,
    progress: &Progress,
) -> Result<ConnectionRates, BenchError> {
    limits::raise_open_files(SPARE_DESCRIPTORS + 2 * u64::from(args.in_flight))?;
    progress.show("building the networks");
    let node = Side::of_node(watch)?;
    let (kernel, kernel_nft) = match Side::of_kernel()? {
        Ok(side) => (Some(side), None),
        Err(reason) => (None, Some(reason)),
    };
    let (mut of_node, mut of_kernel) = (Rounds::default(), Rounds::default());
    let sides = [(Some(&node), 0), (kernel.as_ref(), 1)];
    rounds::repeat(progress, "balanced connections", args.network_rounds, |round| {
        for (side, which) in rounds::turns(round, sides) {
            let Some(side) = side else { continue };
            let figure = side.measure(watch, args)?;
            if which == 0 { of_node.push(figure) } else { of_kernel.push(figure) }
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(ConnectionRates {
        mainstay: Some(rounded(of_node.median(), 0)),
        kernel_nft: kernel.map(|_| rounded(of_kernel.median(), 0)),
        ipvs: None,
        reasons: Reasons {
            mainstay: None,
            kernel_nft,
            ipvs: Some(reason_without_ipvs(Path::new("/proc"), Path::new("/lib/modules")).to_owned()),
        },
    })
}

/// A network with a load balancer in it.
struct Side {
    topology: Arc<Topology>,
    cluster: Option<Cluster>,
    /// Kept for as long as the side is.
    _server: Server,
}

impl Side {
    fn of_node(watch: &Watch) -> Result<Self, BenchError> {
        let topology = network()?;
        let plan = ClusterPlan {
            nodes: 1,
            is_replicated: false,
            connections_max: CONNECTIONS_MAX,
            workers: 1,
            backend: Backend::default(),
            tuning: Tuning { function: Function::BalancerNat, ..Tuning::default() },
        };
        let mut cluster = Cluster::start(&topology, plan)?;
        cluster.wait_until_ready(watch)?;
        let server = Server::start(&topology.server, &servers())?;
        Ok(Self { topology, cluster: Some(cluster), _server: server })
    }

    /// The inner error is why the kernel cannot.
    fn of_kernel() -> Result<Result<Self, String>, BenchError> {
        let topology = network()?;
        forward_only(&topology.nodes[0])?;
        if let Err(reason) = load_rules(&topology.nodes[0], &rules()) {
            return Ok(Err(reason));
        }
        let server = Server::start(&topology.server, &servers())?;
        Ok(Ok(Self { topology, cluster: None, _server: server }))
    }

    /// Connections a second.
    fn measure(&self, watch: &Watch, args: &BenchLoadBalancerArgs) -> Result<f64, BenchError> {
        let services = SERVER_PORTS.map(|port| SocketAddr::new(OUTSIDE[0], port)).to_vec();
        let client = Client::start(&self.topology, services, args.in_flight)?;
        watch.pass_until(Instant::now() + WARM_UP)?;
        let (began, before) = (Instant::now(), client.tally().completed);
        watch.pass_until(began + Duration::from_secs_f64(args.seconds))?;
        let (took, completed) = (began.elapsed(), client.tally().completed - before);
        client.finish()?;
        if completed == 0 {
            return Err(BenchError::NothingPassed);
        }
        if let Some(cluster) = &self.cluster {
            let statuses = cluster.statuses();
            let begun: u64 = statuses.iter().map(|status| Function::BalancerNat.handled(status)).sum();
            if begun < completed {
                return Err(BenchError::NothingPassed);
            }
        }
        Ok(completed as f64 / took.as_secs_f64())
    }
}

fn network() -> Result<Arc<Topology>, BenchError> {
    let topology = Topology::build()?;
    topology.client.run(allow_reuse_of_ports)??;
    let second = Prefix::new(SECOND_SERVER[0], PREFIX_BITS[0]);
    topology.server.run(|| Netlink::open()?.add_address(BRIDGE, second))??;
    Ok(Arc::new(topology))
}

fn servers() -> Vec<SocketAddr> {
    let of_server = |server| SERVER_PORTS.map(|port| SocketAddr::new(server, port));
    [SERVER[0], SECOND_SERVER[0]].into_iter().flat_map(of_server).collect()
}

/// The kernel's load balancer: the destination by a hash of the connection, and the outside address as the source.
fn rules() -> String {
    let [inside, outside, _] = INTERFACES;
    let (service, first, second) = (OUTSIDE[0], SERVER[0], SECOND_SERVER[0]);
    let (from, to) = (SERVER_PORTS[0], SERVER_PORTS[SERVER_PORTS.len() - 1]);
    format!(
        "table ip gateway {{
            chain before {{
                type nat hook prerouting priority dstnat;
                iifname \"{inside}\" ip daddr {service} tcp dport {from}-{to} \
                dnat to jhash ip saddr . tcp sport . tcp dport mod 2 map {{ 0 : {first}, 1 : {second} }}
            }}
            chain forward {{
                type filter hook forward priority filter; policy drop;
                ct state established,related accept
                ct state invalid drop
                iifname \"{inside}\" accept
            }}
            chain after {{
                type nat hook postrouting priority srcnat;
                oifname \"{outside}\" masquerade
            }}
        }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_that_ipvs_is_not_measured_depends_on_the_kernel() {
        let folder = std::env::temp_dir().join(format!("mainstay-ipvs-{}", std::process::id()));
        let (proc, modules) = (folder.join("proc"), folder.join("modules"));
        std::fs::create_dir_all(proc.join("sys/kernel")).unwrap();
        std::fs::write(proc.join("sys/kernel/osrelease"), "6.1\n").unwrap();
        assert!(reason_without_ipvs(&proc, &modules).starts_with("this kernel has no IPVS"));
        std::fs::create_dir_all(modules.join("6.1/kernel/net/netfilter/ipvs")).unwrap();
        assert!(reason_without_ipvs(&proc, &modules).starts_with("this kernel has IPVS"));
        std::fs::remove_dir_all(&modules).unwrap();
        std::fs::create_dir_all(proc.join("net")).unwrap();
        std::fs::write(proc.join("net/ip_vs"), "").unwrap();
        assert!(reason_without_ipvs(&proc, &modules).starts_with("this kernel has IPVS"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn connections_pass_both_load_balancers_and_what_was_not_measured_has_a_reason() {
        let Some(()) = packet_io::namespace::for_tests() else { return };
        let kernel = Side::of_kernel().expect("the network can be built");
        let args = BenchLoadBalancerArgs {
            connections: 1000,
            packets: 1,
            rounds: 1,
            network_rounds: 1,
            seconds: 0.2,
            in_flight: 8,
            json: true,
        };
        let Ok(kernel) = kernel.map_err(|reason| packet_io::namespace::skip(&reason)) else { return };
        assert!(kernel.measure(&Watch::new().unwrap(), &args).expect("connections pass") > 1.0);
        let none = ConnectionRates::unmeasured("no namespaces");
        assert!(none.rows().iter().all(|(_, rate, reason)| rate.is_none() && *reason == Some("no namespaces")));
    }
}
