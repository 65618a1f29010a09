//! Two gateways that run, with connections that pass all the time.
//!
//! ```text
//!   client, strangers ── node a, node b ── server, strangers
//!                             │
//!                     hosts of the management network: operator, strangers
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tracked::Tracked;
use crate::demo::run::{RunError, open};
use crate::testbed::cluster::{Cluster, ClusterPlan, Function, Members, Tuning, guarded};
use crate::testbed::echo::Echo;
use crate::testbed::session::Session;
use crate::testbed::stranger::Stranger;
use crate::testbed::topology::{BRIDGE, INTERFACES, SERVER, Topology, link_address};
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::client::Plan;
use crate::testbed::watch::{Waited, Watch};
use api::{NodeRole, Status};
use config::validated::Backend;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};

/// Connections that pass all the time.
const MIX: [(Kind, usize); 5] =
    [(Kind::Download, 1), (Kind::Upload, 1), (Kind::Ticks, 8), (Kind::Idle, 16), (Kind::Udp, 2)];
/// Rate of each transfer, in bytes a second.
const BULK_BYTES_PER_S: u64 = 500_000;
/// Room of the connection table, so that it can be exhausted soon.
const CONNECTIONS_MAX: usize = 4096;
/// The longest wait for a condition. The machine may be busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// How often nodes are asked for their status.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// The port of a server that no guard concerns.
pub(super) const PLAIN: u16 = 7500;
/// The port of DNS.
pub(super) const DNS: u16 = 53;

/// Where an attack is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Two gateways with all guards.
    Gateways,
    /// Two gateways that find each other by gossip.
    Gossip,
    /// Gateways between two edges.
    Edges,
}

impl Place {
    pub(super) const ALL: [Self; 3] = [Self::Gateways, Self::Edges, Self::Gossip];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gateways => "two gateways with all guards",
            Self::Gossip => "two gateways with gossip",
            Self::Edges => "three gateways between two edges",
        }
    }
}

/// Servers that remember what they have received.
pub(super) struct Servers {
    pub(super) plain: Echo,
    pub(super) http: Echo,
    _tls: Echo,
    pub(super) lenient: Echo,
    _proxied: Echo,
    pub(super) quic: Echo,
    pub(super) dns: Echo,
    pub(super) quota: Echo,
}

impl Servers {
    fn start(host: &Namespace) -> Result<Self, RunError> {
        let [http, tls] = guarded::STRICT;
        let at = |port| SocketAddr::new(SERVER[0], port);
        let listen = |port| Echo::start(host, at(port));
        let receive = |port| Echo::start_datagrams(host, at(port));
        Ok(Self {
            plain: listen(PLAIN)?,
            http: listen(http)?,
            _tls: listen(tls)?,
            lenient: listen(guarded::LENIENT)?,
            _proxied: listen(guarded::PROXIED)?,
            quic: receive(tls)?,
            dns: receive(DNS)?,
            quota: receive(guarded::QUOTA)?,
        })
    }
}

/// Two gateways that run.
pub(super) struct Site<'a> {
    pub(super) watch: &'a Watch,
    pub(super) topology: Arc<Topology>,
    pub(super) cluster: Cluster,
    pub(super) servers: Servers,
    session: Session,
    /// Hosts of the management network.
    hosts: u8,
    roles: Vec<(NodeRole, u64)>,
}

/// Drops of a node by reason.
pub(super) type Drops = BTreeMap<String, u64>;

impl<'a> Site<'a> {
    /// Builds the network, and starts gateways and connections.
    pub(super) fn build(place: Place, watch: &'a Watch, keep_logs: bool) -> Result<Self, RunError> {
        let topology = Arc::new(Topology::build()?);
        let tuning = match place {
            // A node dies behind ports that keep their carrier.
            Place::Gossip => Tuning { members: Members::Gossip, fast_path_connections_max: 0, ..Tuning::default() },
            Place::Gateways | Place::Edges => Tuning { function: Function::Guards, ..Tuning::default() },
        };
        let plan = ClusterPlan {
            nodes: 2,
            is_replicated: true,
            connections_max: CONNECTIONS_MAX,
            workers: 1,
            backend: Backend::default(),
            tuning,
        };
        let mut cluster = Cluster::start(&topology, plan)?;
        if keep_logs {
            eprintln!("{}: configurations and logs are in {}", place.name(), cluster.keep_files().display());
        }
        cluster.wait_until_ready(watch)?;
        let servers = Servers::start(&topology.server)?;
        let traffic = Plan {
            servers: Topology::server_addresses(),
            connections: MIX.to_vec(),
            bulk_bytes_per_s: BULK_BYTES_PER_S,
            ramp_per_s: 1,
        };
        let session = open(&topology, traffic, watch)?;
        cluster.wait_until_safe(watch)?;
        Ok(Self { watch, topology, cluster, servers, session, hosts: 0, roles: Vec::new() })
    }

    /// A stranger on the clients' network (0) or the servers' (1), whose frames go to node a.
    pub(super) fn stranger(&self, side: usize) -> Result<Stranger, RunError> {
        let host = [&self.topology.client, &self.topology.server][side];
        let next_hop = link_address(&self.topology.nodes[0], INTERFACES[side])?;
        Ok(Stranger::open(host, BRIDGE, next_hop)?)
    }

    /// A connection of the client to a server, with its numbers.
    pub(super) fn tracked(&self, stranger: &mut Stranger, port: u16) -> Result<Tracked, RunError> {
        Tracked::open(&self.topology.client, stranger, SocketAddr::new(SERVER[0], port))
    }

    /// A further host of the management network, and the address of node a there.
    pub(super) fn management_host(&mut self) -> Result<(Namespace, IpAddr), RunError> {
        let (host, number) = (Namespace::new()?, self.hosts);
        self.hosts += 1;
        let name = format!("management-{number}");
        let [near, far] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 98, number, last)));
        let lay = |name: &str, address| -> Result<(), packet_io::IoError> {
            let mut netlink = Netlink::open()?;
            netlink.set_up(name, true)?;
            netlink.add_address(name, Prefix::new(address, 24))
        };
        self.topology.nodes[0].run(|| Netlink::open()?.create_veth(&name, "management", &host))??;
        self.topology.nodes[0].run(|| lay(&name, near))??;
        host.run(|| lay("management", far))??;
        Ok((host, near))
    }

    /// A node's status.
    pub(super) fn status(&self, node: usize) -> Result<Status, RunError> {
        let mut client = self.cluster.client(node)?;
        client.status().map_err(|error| RunError::Attack(error.to_string()))
    }

    /// What node a has dropped so far.
    pub(super) fn drops(&self) -> Result<Drops, RunError> {
        Ok(self.status(0)?.drops.into_iter().map(|drop| (drop.reason, drop.packets)).collect())
    }

    /// Waits until node a has dropped so many more packets than `before` for these reasons together, and returns the drops since. They may be fewer.
    pub(super) fn dropped_since(&self, before: &Drops, reasons: &[&str], packets: u64) -> Result<Drops, RunError> {
        let mut since = Drops::new();
        self.until(|| {
            since = of_reasons(before, &self.drops()?, reasons);
            Ok(since.values().sum::<u64>() >= packets)
        })?;
        Ok(since)
    }

    /// Waits until a condition holds. False when it does not in time.
    pub(super) fn until(&self, mut condition: impl FnMut() -> Result<bool, RunError>) -> Result<bool, RunError> {
        let mut next_look = Instant::now();
        let waited = self.watch.until(Instant::now() + PATIENCE, || -> Result<bool, RunError> {
            if Instant::now() < next_look {
                return Ok(false);
            }
            next_look = Instant::now() + LOOK_EVERY;
            condition()
        })?;
        Ok(waited == Waited::Met)
    }

    /// Notes the roles, and since when they are so: an attack is to change nothing of them.
    pub(super) fn note_roles(&mut self) -> Result<(), RunError> {
        self.roles = self.roles_now()?;
        Ok(())
    }

    fn roles_now(&self) -> Result<Vec<(NodeRole, u64)>, RunError> {
        (0..2).map(|node| self.status(node).map(|status| (status.node.role, status.node.role_since_ns))).collect()
    }

    /// What is wrong after an attack: roles that have changed, connections that do not go on.
    pub(super) fn faults(&self) -> Result<Vec<String>, RunError> {
        let mut faults = Vec::new();
        let roles = self.roles_now()?;
        if roles != self.roles {
            let name = |roles: &[(NodeRole, u64)]| roles.iter().map(|(role, _)| role.name()).collect::<Vec<_>>();
            faults.push(format!("roles changed from {:?} to {:?}", name(&self.roles), name(&roles)));
        }
        if let Some(fault) = self.traffic_fault()? {
            faults.push(fault);
        }
        Ok(faults)
    }

    /// Connections that do not go on, silent ones made to ask.
    pub(super) fn traffic_fault(&self) -> Result<Option<String>, RunError> {
        let (now, wakes) = (Instant::now(), self.session.progress().wakes);
        self.session.wake_silent()?;
        let go_on = self.until(|| {
            let progress = self.session.progress();
            let answered = progress.wakes > wakes && progress.unanswered == 0;
            Ok(answered && progress.all_progressed_since.is_some_and(|at| at > now))
        })?;
        let progress = self.session.progress();
        let is_whole = go_on && progress.broken == 0;
        Ok((!is_whole).then(|| format!("{} connections broke, {} unanswered", progress.broken, progress.unanswered)))
    }
}

/// How many more were dropped for these reasons; none given: for all.
pub(super) fn of_reasons(before: &Drops, after: &Drops, reasons: &[&str]) -> Drops {
    let of_reason = |(reason, packets): (&String, &u64)| {
        let more = packets.saturating_sub(before.get(reason).copied().unwrap_or_default());
        let is_asked = reasons.is_empty() || reasons.contains(&reason.as_str());
        (is_asked && more > 0).then(|| (reason.clone(), more))
    };
    after.iter().filter_map(of_reason).collect()
}

/// Drops as people read them; nothing for none.
pub(super) fn words(drops: &Drops) -> String {
    let words: Vec<String> = drops.iter().map(|(reason, packets)| format!("{reason} {packets}")).collect();
    if words.is_empty() { String::new() } else { format!("drops: {}", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_since_then_of_the_reasons_that_are_asked_for() {
        let [before, after] = [[("land", 1), ("other", 2)], [("land", 5), ("other", 9)]]
            .map(|drops| drops.map(|(reason, packets)| (reason.to_owned(), packets)).into_iter().collect::<Drops>());
        assert_eq!(words(&of_reasons(&before, &after, &["land"])), "drops: land 4");
        assert_eq!(words(&of_reasons(&before, &after, &[])), "drops: land 4, other 7");
        assert_eq!(words(&of_reasons(&after, &after, &[])), "");
    }
}
