//! What experiments vary of the nodes' configuration; the demo varies none of it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flow::fast_path::Hook;
use packet_io::netlink::Prefix;
use replication::deferral::{Config as Lazy, Dynamic};

use super::super::etcd;
use super::super::topology::{second_sync_address, sync_address};
use super::function::Function;
use config::validated::Representation;

/// Connections that a node has room for beyond the planned ones.
pub const SPARE_CONNECTIONS: usize = 4096;
/// The smallest filter.
const ENTRIES_MIN: usize = 64;

/// Connections are replicated to some nodes, not to all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupsPlan {
    /// Backups of each connection.
    pub count: usize,
    /// Nodes advertise to all others which connections they have.
    pub broadcast: bool,
}

/// UDP port of the nodes' gossip.
const GOSSIP_PORT: u16 = 3785;

/// Where the nodes' lists of peers come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Members {
    /// Their configuration files.
    #[default]
    Files,
    /// etcd at this address.
    Etcd(IpAddr),
    /// The nodes themselves.
    Gossip,
}

/// The file with the secret of the edges' hash in the folder of the nodes' files.
pub(super) fn edge_key(folder: &Path) -> PathBuf {
    folder.join("edge.key")
}

/// What experiments vary of the nodes' configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    /// How connections are replicated. With a peer filter, first replies do not wait, and translations are computed.
    pub representation: Representation,
    /// A connection's first reply waits for the standby to have the connection.
    pub holds_first_reply: bool,
    /// Datagrams between the nodes are not encrypted.
    pub is_plain: bool,
    /// A route beside the networks of the ports: where to, and by way of whom.
    pub route: Option<(Prefix, IpAddr)>,
    /// How long connections are deferred before they are replicated; `None`: not at all.
    pub lazy: Option<Lazy>,
    /// How often the addresses are announced again; `None`: as by default.
    pub announce_refresh: Option<Duration>,
    /// What a connection of UDP without an answer stays for.
    pub udp_timeout: Option<Duration>,
    /// What a connection of UDP with answers stays for.
    pub udp_stream_timeout: Option<Duration>,
    /// Established connections are forwarded in the kernel, so many at most; 0: none.
    pub fast_path_connections_max: u32,
    /// The fast path hands packets to the other ends of the ports' cables at once.
    pub redirects_peer: bool,
    /// Where the fast path sees packets.
    pub hook: Hook,
    /// The firewall accepts connections from inside; else it drops all packets.
    pub accepts: bool,
    /// Edges are beside the nodes, which answer them.
    pub has_edges: bool,
    /// What the nodes do beside firewall and source NAT.
    pub function: Function,
    /// Backups of connections; `None`: every node has each connection.
    pub backups: Option<BackupsPlan>,
    /// Nodes beyond those of the plan that may join later.
    pub may_join: usize,
    /// Where the nodes' lists of peers come from.
    pub members: Members,
    /// A node that is no peer of the others, where their files have the list.
    pub removed: Option<usize>,
    /// A node that has its second address on the replication link.
    pub moved: Option<usize>,
    /// Ports believe any source: a flood has spoofed ones.
    pub believes_all_sources: bool,
    /// How often nodes send heartbeats to each other and to edges; ten of them are a detection time.
    pub heartbeat_interval: Duration,
}

/// Connections that the kernel forwards in a node, if nothing else is asked for.
const FAST_PATH_CONNECTIONS_MAX: u32 = 65_536;

impl Default for Tuning {
    fn default() -> Self {
        Self {
            representation: Representation::default(),
            holds_first_reply: true,
            is_plain: false,
            route: None,
            lazy: None,
            announce_refresh: None,
            udp_timeout: None,
            udp_stream_timeout: None,
            fast_path_connections_max: FAST_PATH_CONNECTIONS_MAX,
            redirects_peer: false,
            hook: Hook::Tc,
            accepts: true,
            has_edges: false,
            function: Function::None,
            backups: None,
            may_join: 0,
            members: Members::Files,
            removed: None,
            moved: None,
            believes_all_sources: false,
            heartbeat_interval: Duration::from_millis(10),
        }
    }
}

impl Tuning {
    /// The address of a node on the replication link.
    pub(super) fn sync_address(&self, number: usize) -> IpAddr {
        if self.moved == Some(number) { second_sync_address(number) } else { sync_address(number) }
    }

    /// What belongs into the configuration's `[replication]`.
    pub(super) fn replication(&self, hold_first_reply: &str, is_replicated: bool) -> String {
        let is_by_filter = is_replicated && self.representation.is_compact();
        let hold = if self.holds_first_reply && !is_by_filter { hold_first_reply } else { "0ms" };
        format!("hold_first_reply = \"{hold}\"\n")
    }

    /// The section about backups. Flows of the edges are distributed to all nodes.
    pub(super) fn backups(&self, nodes: usize, folder: &Path) -> String {
        let Some(BackupsPlan { count, broadcast }) = self.backups else { return String::new() };
        // Where the members come from etcd, so does the number of backups, and the edges have all nodes that may come, which is the default.
        let edge_nodes: Vec<usize> = (0..nodes).collect();
        let (count, edge_nodes) = match self.members {
            Members::Etcd(_) => (1, String::new()),
            Members::Files | Members::Gossip => (count, format!("edge_nodes = {edge_nodes:?}\n")),
        };
        let broadcast = if broadcast { "" } else { "broadcast = false\n" };
        format!(
            "\n[replication.backups]\ncount = {count}\n{edge_nodes}edge_hash_key = {:?}\n\
             edge_affinity = \"learned\"\n{broadcast}",
            edge_key(folder)
        )
    }

    /// The section about the members of the cluster, where they are not in the nodes' files. Nodes that left are forgotten soon.
    pub(super) fn membership(&self, number: usize) -> String {
        let source = match self.members {
            Members::Files => return String::new(),
            Members::Etcd(address) => {
                format!(
                    "source = \"etcd\"\nendpoints = {:?}\nplain = true\nlease = \"2s\"\n",
                    etcd::endpoints_at(address)
                )
            }
            Members::Gossip => {
                let addresses = [self.sync_address(number), sync_address(0), sync_address(1)];
                let [own, first, second] = addresses.map(|address| format!("{address}:{GOSSIP_PORT}"));
                format!("source = \"gossip\"\nlisten = \"{own}\"\nseeds = [\"{first}\", \"{second}\"]\n")
            }
        };
        format!("\n[membership]\nforget_after = \"2s\"\n{source}")
    }

    /// What belongs into each source translation.
    pub(super) const fn mapping(&self) -> &'static str {
        if self.representation.is_compact() { "mapping = \"deterministic\"\n" } else { "" }
    }

    /// The filter, with no more room than is needed, so that it errs as often as one that an operator has sized well. What it
    /// does not know passes when it is sent twice. No source is limited: the demo asks often.
    pub(super) fn filter(&self, connections_max: usize) -> String {
        if !self.representation.is_compact() {
            return String::new();
        }
        format!(
            "[replication.filter]\nentries_max = {}\n\n\
             [replication.recovery]\nlasts = \"60s\"\nblock = true\nmisses_per_source_max = 1000000\n\n",
            connections_max.saturating_sub(SPARE_CONNECTIONS).max(ENTRIES_MIN) * 5 / 4
        )
    }

    /// What belongs into the configuration's `[node]`.
    pub(super) fn node(&self) -> String {
        let interval = self.announce_refresh.map(|interval| interval.as_millis());
        let refresh = interval.map_or_else(String::new, |interval| format!("announce_refresh = \"{interval}ms\"\n"));
        refresh + &self.function.node()
    }

    /// Sections of its own.
    pub(super) fn sections(&self) -> String {
        let route = self.route.map(|(to, via)| format!("[[route]]\nto = \"{to}\"\nvia = \"{via}\"\n\n"));
        let timeouts = [("udp", self.udp_timeout), ("udp_stream", self.udp_stream_timeout)].into_iter();
        let timeouts: String =
            timeouts.filter_map(|(key, timeout)| Some(format!("{key} = \"{}ms\"\n", timeout?.as_millis()))).collect();
        let timeouts = (!timeouts.is_empty()).then(|| format!("[timeouts]\n{timeouts}\n"));
        let lazy = self.lazy.as_ref().map(lazy_section);
        let fast_path = match self.fast_path_connections_max {
            0 => "[fast_path]\nenabled = false\n\n".to_owned(),
            most => format!("[fast_path]\nhook = \"{}\"\nconnections_max = {most}\n\n", self.hook.name()),
        };
        route.into_iter().chain(timeouts).chain(lazy).chain([fast_path]).collect()
    }
}

fn lazy_section(lazy: &Lazy) -> String {
    match lazy {
        Lazy::Fixed(threshold) => format!("[replication.lazy]\nthreshold = \"{}ms\"\n\n", threshold.as_millis()),
        Lazy::Dynamic(Dynamic { interval, .. }) => {
            format!("[replication.lazy]\nthreshold = \"dynamic\"\ninterval = \"{}ms\"\n\n", interval.as_millis())
        }
    }
}
