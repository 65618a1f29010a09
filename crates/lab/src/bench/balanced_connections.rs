//! Short TCP connections a second through a load balancer in a network of namespaces: a node alone, and the kernel in its place, with a
//! map of nftables and with IPVS.
//!
//! A connection is that of [`setup_rate`](super::setup_rate): a handshake, one request, one answer and an orderly end. Clients connect to the
//! shared address outside, and two servers answer. All translate the destination by a hash of the connection, and the source. They are
//! measured in turns. Hosts and load balancer keep all processors of this machine busy, so that the rates compare processor time, too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::validated::Backend;
use console::Progress;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::{limits, sysctl};
use serde::Serialize;

use super::BenchError;
use super::bulk::{feed, forward_only, load_rules};
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
/// Connections a second; `None`: not measured, for the reason that is given beside it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(super) struct ConnectionRates {
    /// A node alone.
    pub(super) mainstay: Option<f64>,
    /// The kernel with nftables: a map of destinations by a hash.
    pub(super) kernel_nft: Option<f64>,
    /// The kernel with IPVS: its own Maglev scheduler.
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
    let (nft, ipvs) = (Side::of_kernel(Balancer::Nft)?, Side::of_kernel(Balancer::Ipvs)?);
    let mut measured = [
        (Some(&node), Rounds::default()),
        (nft.as_ref().ok(), Rounds::default()),
        (ipvs.as_ref().ok(), Rounds::default()),
    ];
    rounds::repeat(progress, "balanced connections", args.network_rounds, |_| {
        for (side, rates) in &mut measured {
            let Some(side) = side else { continue };
            rates.push(side.measure(watch, args)?);
        }
        // No side is always the first.
        measured.rotate_left(1);
        Ok::<_, BenchError>(())
    })?;
    let rotated = args.network_rounds as usize % measured.len();
    measured.rotate_right(rotated);
    let [mainstay, kernel_nft, ipvs_rate] = measured.map(|(side, rates)| side.map(|_| rounded(rates.median(), 0)));
    let reasons = Reasons { mainstay: None, kernel_nft: nft.err(), ipvs: ipvs.err() };
    Ok(ConnectionRates { mainstay, kernel_nft, ipvs: ipvs_rate, reasons })
}

/// What balances in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Balancer {
    /// A map of nftables.
    Nft,
    /// IPVS.
    Ipvs,
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
    fn of_kernel(balancer: Balancer) -> Result<Result<Self, String>, BenchError> {
        let topology = network()?;
        forward_only(&topology.nodes[0])?;
        let loaded = match balancer {
            Balancer::Nft => load_rules(&topology.nodes[0], &rules(&balance_rules())),
            Balancer::Ipvs => load_services(&topology.nodes[0]),
        };
        if let Err(reason) = loaded {
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

/// Sets IPVS up. Answers must come back through its translation, so it works with the kernel's tracking.
fn load_services(node: &Namespace) -> Result<(), String> {
    feed(node, "ipvsadm", &["-R"], &ipvs_services())?;
    let with_tracking = node.run(|| sysctl::write("net/ipv4/vs/conntrack", "1"));
    with_tracking.and_then(|written| written).map_err(|error| error.to_string())?;
    load_rules(node, &rules(""))
}

/// Services for `ipvsadm -R`: each port with both servers, by Maglev hashing, with translated destination.
fn ipvs_services() -> String {
    let of_port = |port: u16| {
        let service = SocketAddr::new(OUTSIDE[0], port);
        let server = |address| format!("-a -t {service} -r {} -m\n", SocketAddr::new(address, port));
        format!("-A -t {service} -s mh\n{}{}", server(SERVER[0]), server(SECOND_SERVER[0]))
    };
    SERVER_PORTS.into_iter().map(of_port).collect()
}

/// A chain of nftables that translates the destination by a hash of the connection.
fn balance_rules() -> String {
    let (inside, service, first, second) = (INTERFACES[0], OUTSIDE[0], SERVER[0], SECOND_SERVER[0]);
    let (from, to) = (SERVER_PORTS[0], SERVER_PORTS[SERVER_PORTS.len() - 1]);
    format!(
        "chain before {{
            type nat hook prerouting priority dstnat;
            iifname \"{inside}\" ip daddr {service} tcp dport {from}-{to} \
            dnat to jhash ip saddr . tcp sport . tcp dport mod 2 map {{ 0 : {first}, 1 : {second} }}
        }}"
    )
}

/// Rules of the kernel in a node's place, with a further chain: a firewall, and the outside address as the source.
fn rules(further_chain: &str) -> String {
    let [inside, outside, _] = INTERFACES;
    format!(
        "table ip gateway {{
            {further_chain}
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
    fn ipvs_has_each_port_with_both_servers() {
        let services = ipvs_services();
        assert_eq!(services.lines().filter(|line| line.starts_with("-A -t ")).count(), SERVER_PORTS.len());
        assert_eq!(services.lines().filter(|line| line.ends_with(" -m")).count(), 2 * SERVER_PORTS.len());
    }

    #[test]
    fn connections_pass_the_kernels_load_balancers_and_what_was_not_measured_has_a_reason() {
        let Some(()) = packet_io::namespace::for_tests() else { return };
        let args = BenchLoadBalancerArgs {
            connections: 1000,
            packets: 1,
            rounds: 1,
            network_rounds: 1,
            seconds: 0.2,
            in_flight: 8,
            json: true,
        };
        let watch = Watch::new().unwrap();
        let kernel = Side::of_kernel(Balancer::Nft).expect("the network can be built");
        let Ok(kernel) = kernel.map_err(|reason| packet_io::namespace::skip(&reason)) else { return };
        assert!(kernel.measure(&watch, &args).expect("connections pass") > 1.0);
        // Few kernels have IPVS loaded. One that has it balances, and another one has a reason.
        match Side::of_kernel(Balancer::Ipvs).expect("the network can be built") {
            Ok(ipvs) => assert!(ipvs.measure(&watch, &args).expect("connections pass") > 1.0),
            Err(reason) => assert!(reason.starts_with("ipvsadm"), "{reason}"),
        }
        let none = ConnectionRates::unmeasured("no namespaces");
        assert!(none.rows().iter().all(|(_, rate, reason)| rate.is_none() && *reason == Some("no namespaces")));
    }
}
