//! Two nodes, a client on the inside, a server on the outside, and nothing but vectors between them.

use alloc::sync::Arc;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;
use std::vec::Vec;

use flow::conntrack::TrackerConfig;
use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::{MacAddress, Parsed, build, ethernet, ip_protocol, parse, tcp_flags};
use flow::{DropReason, Frame, HashKey, Instant, NodeId, PacketBatch, PortId, Tuple};
use network_functions::address::Prefix;
use network_functions::chain::{Chain, ChainBuilder};
use network_functions::classifier::{Classifier, ClassifierConfig};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::ftp::{Ftp, FtpConfig};
use network_functions::load_balancer::{LoadBalancer, Services};
use network_functions::nat::{
    DestinationRule, Mapping, Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourcePorts, SourceRule,
};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;
use network_functions::syn_cookie::{CookieKey, CookieKeys};
use network_functions::syn_proxy::{self, Mode, Offered, RuleConfig, SynProxy, SynProxyRules};
use network_functions::url_filter::lists::ListFormat;
use network_functions::url_filter::rules::{DnsAction, ListConfig, Undecided, UrlFilterRules};
use network_functions::url_filter::server::Categories;
use network_functions::url_filter::{self, UrlFilter};
use replication::compact::{CompactConfig, Representation};
use replication::representation::Selection;
use replication::secure::{Credentials, PreSharedKey, Rotation, Security, Seed};
use replication::{ApplyError, PeerError, SessionConfig, deferral};

use crate::failure_detector::BfdError;
use crate::forwarding::{MssClamp, PATH_ETHER_TYPE, PathId};
use crate::group::GroupId;
use crate::node::{CompactNodeConfig, Node, NodeConfig, NodeError, PeerConfig, Transmit, WhichPrecise};
use crate::pipeline::{Limits, RECOVERY_LASTS_DEFAULT, RecoveryConfig, SharingConfig};
use crate::{failure_detector, forwarding, role};

pub(super) const INSIDE: PortId = PortId(0);
pub(super) const OUTSIDE: PortId = PortId(1);
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 10);
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub(super) const SHARED_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
pub(super) const SHARED_OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The addresses of the second group, where there are two.
pub(super) const SECOND_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
pub(super) const SECOND_OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub(super) const CLIENT_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xc]);
pub(super) const SERVER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x5]);
/// What the buffer of a frame has behind it.
pub(super) const ROOM_BYTES: usize = 128;
pub(super) const STEP: Duration = Duration::from_millis(1);

pub(super) fn port_mac(node: u8, port: PortId) -> MacAddress {
    MacAddress([2, 0, 0, 1, node, port.0])
}

/// What the tests vary.
#[derive(Clone, Copy)]
pub(super) struct Options {
    pub(super) hold_first_reply: Duration,
    /// Nodes that share the ports of translations.
    pub(super) nodes: u8,
    pub(super) connections_max: u32,
    /// As `connections_max`, of the second node.
    pub(super) standby_connections_max: Option<u32>,
    pub(super) replicates: bool,
    pub(super) limits: Limits,
    pub(super) outside_mtu_bytes: u32,
    pub(super) mss_clamp: Option<MssClamp>,
    /// The server is reached by way of the client, for tests with the server inside: it is forwarded to.
    pub(super) is_forwarded: bool,
    /// What clients are is translated.
    pub(super) is_translated: bool,
    /// Of each node the pre-shared key that its channel is secured by; `None`: plain text.
    pub(super) keys: Option<[u8; 2]>,
    /// The last port of translations, which begin at 1024.
    pub(super) nat_port_last: u16,
    /// Failures are detected over the links of both ports as well.
    pub(super) has_service_paths: bool,
    /// There are two groups of shared addresses; node 0 is preferred for the first, node 1 for the second.
    pub(super) has_groups: bool,
    /// Both directions of a connection come to one node.
    pub(super) is_symmetric: bool,
    /// Deferral of connections.
    pub(super) lazy: Option<deferral::Config>,
    /// Compact replication.
    pub(super) compact: Option<Compactly>,
    /// When a SYN proxy answers in place of all servers.
    pub(super) syn_proxy: syn_proxy::Mode,
    /// Connections are classified, before the firewall.
    pub(super) is_classified: bool,
    /// The services of a load balancer, of each node.
    pub(super) services: Option<&'static [Arc<Services>; 2]>,
    /// Connections to hosts in `blocked.example` are refused.
    pub(super) filters_urls: bool,
    /// The URL filter asks about other hosts here, and refuses those in `ads`.
    pub(super) categories: &'static [Arc<dyn Categories>],
}

/// Options of compact replication.
#[derive(Clone, Copy)]
pub(super) struct Compactly {
    pub(super) representation: Representation,
    pub(super) items_max: u64,
    pub(super) precise: WhichPrecise,
    /// The inside is trusted after a take-over.
    pub(super) cold_start: bool,
    /// How long filters are asked after a take-over.
    pub(super) recovery_lasts: Duration,
    /// What filter and precise words may take together.
    pub(super) budget_bytes_per_second: Option<u64>,
}

impl Compactly {
    pub(super) const fn of(representation: Representation) -> Self {
        Self {
            representation,
            items_max: 8192,
            precise: WhichPrecise::None,
            cold_start: false,
            recovery_lasts: RECOVERY_LASTS_DEFAULT,
            budget_bytes_per_second: None,
        }
    }

    /// `start` differs from start to start.
    fn config(self, id: u8, start: u64) -> CompactNodeConfig {
        let config = CompactConfig {
            budget_bytes_per_second: self.budget_bytes_per_second,
            ..CompactConfig::new(self.representation, self.items_max, [id.into(), start])
        };
        let cold_start = if self.cold_start { std::vec![INSIDE] } else { Vec::new() };
        let recovery = RecoveryConfig { cold_start, lasts: self.recovery_lasts, ..RecoveryConfig::default() };
        CompactNodeConfig { config, precise: self.precise, recovery }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hold_first_reply: Duration::ZERO,
            nodes: 2,
            connections_max: 64,
            standby_connections_max: None,
            replicates: true,
            limits: Limits::default(),
            outside_mtu_bytes: 1500,
            mss_clamp: None,
            is_forwarded: false,
            is_translated: true,
            nat_port_last: 65_535,
            keys: None,
            has_service_paths: false,
            has_groups: false,
            is_symmetric: false,
            lazy: None,
            compact: None,
            syn_proxy: syn_proxy::Mode::Off,
            is_classified: false,
            services: None,
            filters_urls: false,
            categories: &[],
        }
    }
}

/// Connections from the inside may go to all ports but those `denied`.
pub(super) fn rules(denied: Option<u16>) -> Vec<Rule> {
    let rule = |name: &str, action, conditions| Rule { name: name.into(), conditions, action, log: false };
    let from_inside = Conditions { ingress: std::vec![INSIDE], ..Conditions::default() };
    let deny = denied.map(|port| Conditions {
        protocols: std::vec![ip_protocol::TCP],
        source_ports: std::vec![PortRange::single(port)],
        ..from_inside.clone()
    });
    let deny = deny.map(|conditions| rule("denied", Action::Drop, conditions));
    deny.into_iter().chain([rule("out", Action::Accept, from_inside)]).collect()
}

pub(super) fn firewall(rules: Vec<Rule>) -> Firewall {
    Firewall::new(FirewallConfig { rules, ..FirewallConfig::default() }).unwrap()
}

/// Source NAT to the shared outside address, for all that comes from the inside or, without `translates`, nothing.
pub(super) fn nat(id: u8, translates: bool) -> Nat {
    nat_to(id, Options { is_translated: translates, ..Options::default() }, Vec::new())
}

/// As [`nat`], with these services inside reached from outside; computed, if another node is to find the translation by itself.
fn nat_to(id: u8, options: Options, destination_rules: Vec<DestinationRule>) -> Nat {
    let sources = std::vec!["10.1.0.0/25".parse().unwrap()];
    // The ingress port of a connection is unknown if its answer comes first: NAT's rules name addresses.
    let from_inside = Conditions { sources, ..Conditions::default() };
    let outside = std::vec![SHARED_OUTSIDE.into()];
    let translate = if options.compact.is_some() {
        SourceAction::Compute(outside, Mapping::default())
    } else {
        SourceAction::Translate(outside)
    };
    let rule = options.is_translated.then_some(SourceRule { conditions: from_inside, action: translate });
    Nat::new(NatConfig {
        destination_rules,
        source_rules: rule.into_iter().collect(),
        ports: PortRange::new(1024, options.nat_port_last).unwrap(),
        node: NodeId(id),
        nodes: options.nodes.try_into().unwrap(),
        key: HashKey([7, id.into()]),
    })
    .unwrap()
}

/// The chain of all tests: firewall, NAT and the FTP helper.
pub(super) fn chain(id: u8, options: Options) -> Chain {
    let to_forwarded = Conditions {
        ingress: std::vec![OUTSIDE],
        protocols: std::vec![ip_protocol::TCP],
        destination_ports: std::vec![PortRange::single(21)],
        ..Conditions::default()
    };
    let forwarded = Rule { name: "ftp".into(), conditions: to_forwarded.clone(), action: Action::Accept, log: false };
    let to_shared = Conditions {
        ingress: Vec::new(),
        destinations: std::vec![Prefix::from(core::net::IpAddr::from(SHARED_OUTSIDE))],
        ..to_forwarded
    };
    let target = DestinationRule { conditions: to_shared, address: CLIENT.into(), port: Some(2121) };
    let rules = rules(None).into_iter().chain(options.is_forwarded.then_some(forwarded)).collect();
    let destinations = options.is_forwarded.then_some(target).into_iter().collect();
    let nat = nat_to(id, options, destinations);
    let classifier = Classifier::new(&ClassifierConfig::default()).unwrap();
    // One for all nodes, or one each.
    let categories_of = |id: u8| {
        let all = options.categories;
        all.get(usize::from(id)).or(all.first()).cloned()
    };
    let builder = ChainBuilder::new();
    let builder = if options.is_classified { builder.push(classifier) } else { builder };
    let builder = builder.push(firewall(rules));
    let builder = if options.filters_urls { builder.push(url_filter(categories_of(id))) } else { builder };
    let builder = match options.syn_proxy {
        Mode::Off => builder,
        mode => builder.push(syn_proxy(mode)),
    };
    let builder = match options.services {
        Some(services) => builder.push(load_balancer(id, &services[usize::from(id)])),
        None => builder,
    };
    let builder = builder.push(nat);
    // The states of all of them do not fit a record.
    let has_room = !options.filters_urls || options.syn_proxy == Mode::Off;
    if has_room { builder.push(ftp(id, options.nodes)) } else { builder }.build().unwrap()
}

/// A URL filter for all connections, with pages where they can be, and a server whose category `ads` it blocks.
fn url_filter(server: Option<Arc<dyn Categories>>) -> UrlFilter {
    let list = ListConfig { category: "blocked".into(), format: ListFormat::Plain };
    let rule = url_filter::rules::RuleConfig {
        name: "all".into(),
        sources: Vec::new(),
        destinations: Vec::new(),
        ports: Vec::new(),
        block: server.iter().map(|_| "ads".into()).chain(["blocked".into()]).collect(),
        allow: Vec::new(),
        action: url_filter::rules::Action::BlockPage,
        undecided: Undecided::Allow,
        dns: DnsAction::Off,
        quic: true,
        log: false,
    };
    let lists = [(&list, &b"blocked.example"[..])];
    let names = std::vec!["ads".into()];
    let server = server.map(|server| (&names[..], server));
    UrlFilter::new(Arc::new(UrlFilterRules::new(&[rule], lists.into_iter(), server, [1, 2], None).unwrap()))
}

fn load_balancer(id: u8, services: &Arc<Services>) -> LoadBalancer {
    let ports = SourcePorts::new(SOURCE_PORTS_DEFAULT, NodeId(id), 2.try_into().unwrap(), HashKey([8, id.into()]));
    LoadBalancer::new(Arc::clone(services), ports.unwrap())
}

/// A SYN proxy for all servers. The nodes share its key, and the time.
fn syn_proxy(mode: Mode) -> SynProxy {
    let (destinations, ports) = (Vec::new(), Vec::new());
    let rule = RuleConfig { name: "all".into(), destinations, ports, mode, offered: Offered::default() };
    let rules = SynProxyRules::new(&[rule], CookieKeys::new(CookieKey([1, 2]), []), None).unwrap();
    rules.set_unix_time(Instant::ZERO, Duration::from_secs(1_800_000_000));
    SynProxy::new(Arc::new(rules))
}

pub(super) fn ftp(id: u8, nodes: u8) -> Ftp {
    Ftp::new(FtpConfig {
        control_ports: std::vec![PortRange::single(21)],
        loose: false,
        privileged_ports: false,
        timeout: Duration::from_secs(300),
        ports: PortRange::new(1024, 65_535).unwrap(),
        node: NodeId(id),
        nodes: nodes.try_into().unwrap(),
        key: HashKey([9, id.into()]),
    })
    .unwrap()
}

fn groups(id: u8) -> Vec<role::GroupConfig> {
    let group = |number: u8| role::GroupConfig {
        identity: number.into(),
        priority: if number == id { 200 } else { 100 },
        preempt: true,
    };
    std::vec![group(0), group(1)]
}

pub(super) fn node_config(id: u8, options: Options) -> NodeConfig {
    let prefix = |address: Ipv4Addr| forwarding::Prefix::new(address.into(), 24);
    let of_second = |address| forwarding::Shared { prefix: prefix(address), group: GroupId(1) };
    let port = |port: PortId, shared: Ipv4Addr, second: Ipv4Addr| forwarding::Port {
        mac: port_mac(id, port),
        mtu_bytes: if port == OUTSIDE { options.outside_mtu_bytes } else { 1500 },
        own: Vec::new(),
        shared: [prefix(shared).into()].into_iter().chain(options.has_groups.then(|| of_second(second))).collect(),
        mss_clamp: options.mss_clamp.filter(|_| port == OUTSIDE),
        reverse_path: forwarding::ReversePath::default(),
        router_advertisements: None,
    };
    let connections_max = options.standby_connections_max.filter(|_| id == 1).unwrap_or(options.connections_max);
    let session = SessionConfig { connections_max, ..SessionConfig::default() };
    NodeConfig {
        node: NodeId(id),
        connections_max,
        limits: options.limits,
        hash_key: HashKey([1, id.into()]),
        seed: 1000 + u64::from(id),
        tracker: TrackerConfig::default(),
        chain: chain(id, options),
        forwarding: forwarding::Config {
            ports: std::vec![port(INSIDE, SHARED_INSIDE, SECOND_INSIDE), port(OUTSIDE, SHARED_OUTSIDE, SECOND_OUTSIDE)],
            routes: Vec::new(),
            direct_return: Vec::new(),
            seed: 3,
        },
        // The node that is synchronised first takes the addresses first, which is chance where keys are agreed upon first.
        role: role::Config {
            priority: 200 - id,
            preempt: options.keys.is_some(),
            groups: if options.has_groups { groups(id) } else { Vec::new() },
            ..role::Config::new(NodeId(id), Vec::new())
        },
        selection: Selection::default(),
        hold_first_reply: options.hold_first_reply,
        sharing: options
            .has_groups
            .then_some(SharingConfig { is_symmetric: options.is_symmetric, ..SharingConfig::default() }),
        compact: options.compact.map(|compact| compact.config(id, 0)),
        backups: None,
        peers: std::vec![PeerConfig {
            id: NodeId(id ^ 1),
            detector: failure_detector::Config::default(),
            session: options.replicates.then_some(session),
        }],
        security: options.keys.map(|keys| security(keys[usize::from(id)], id, Instant::ZERO)),
    }
}

/// A node that has just started.
pub(super) fn started(config: NodeConfig, options: Options, now: Instant) -> Node {
    let mut node = Node::new(config, now).unwrap();
    node.set_lazy(now, options.lazy).unwrap();
    if options.has_service_paths {
        let paths = [(INSIDE, PathId::of_name("inside")), (OUTSIDE, PathId::of_name("outside"))];
        let seed = now.as_nanos() ^ u64::from(node.id.0);
        node.set_service_paths(&paths, failure_detector::Config::default(), seed).unwrap();
    }
    node
}

/// What a node's channel is secured by that starts at `now`.
pub(super) fn security(key: u8, id: u8, now: Instant) -> Security {
    let since_start = now.saturating_since(Instant::ZERO);
    let mut seed = [id; 32];
    seed[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
    Security {
        credentials: Arc::new(Credentials::new(std::vec![PreSharedKey::new([key; 32])], None).unwrap()),
        rotation: Rotation::default(),
        seed: Seed::new(seed),
        unix_time: Duration::from_secs(1_800_000_000) + since_start,
    }
}

/// The whole of it. Frames and datagrams arrive at once, within the step in which they are sent.
pub(super) struct Cluster {
    pub(super) now: Instant,
    options: Options,
    nodes: [Option<Node>; 2],
    /// Replication datagrams are thrown away while set.
    pub(super) is_replication_down: bool,
    /// Of a hundred replication datagrams so many are lost.
    pub(super) loss_percent: u64,
    /// What chance loses is drawn from.
    chance: u64,
    /// Failure-detection packets are thrown away while set.
    pub(super) is_detection_down: bool,
    pub(super) are_heartbeats_lost: bool,
    /// Ports of nodes that nothing leaves or reaches, though their links are up.
    pub(super) isolated_ports: Vec<(u8, PortId)>,
    /// Nodes whose frames for the other node do not get through on a port's link.
    pub(super) one_way_ports: Vec<(u8, PortId)>,
    /// Frames between the nodes on the ports' links, and to which node they went.
    pub(super) path_frames: Vec<(u8, PortId, Vec<u8>)>,
    /// The node that hosts send their packets to, where several are active.
    pub(super) via: Option<u8>,
    /// Frames that reached the client and the server.
    at_client: VecDeque<Vec<u8>>,
    at_server: VecDeque<Vec<u8>>,
    /// What nodes refused of each other, where channels are secured.
    pub(super) refusals: Vec<(u8, NodeError)>,
    /// Nodes do not receive each other's frames while set.
    pub(super) is_link_partitioned: bool,
    /// Announcements that nodes sent of the shared address inside, by ARP requests, and when.
    pub(super) announced: Vec<(u8, Instant)>,
    /// All that went from node to node where channels are secured, and to which.
    pub(super) overheard: Vec<(u8, Vec<u8>)>,
}

fn is_path_frame(frame: &[u8]) -> bool {
    frame[12..14] == PATH_ETHER_TYPE.to_be_bytes()
}

impl Cluster {
    /// Both nodes run, the first is active, and both are synchronised.
    pub(super) fn start(options: Options) -> Self {
        let mut cluster = Self::begin(options);
        cluster.run_until("node 0 to be active and received by node 1", |cluster| {
            let is_received = cluster.node(1).status(cluster.now).peers[0].down_since.is_none();
            let stands_by = options.has_groups || !cluster.node(1).holds_addresses();
            let is_chosen = cluster.node(0).holds_addresses() && stands_by;
            is_chosen && is_received && cluster.is_settled()
        });
        cluster
    }

    /// Both nodes were made; nothing has happened yet.
    pub(super) fn begin(options: Options) -> Self {
        let now = Instant::from_millis(1);
        let nodes = [0, 1].map(|id| Some(started(node_config(id, options), options, now)));
        Self {
            now,
            options,
            nodes,
            is_replication_down: false,
            loss_percent: 0,
            chance: 1,
            is_detection_down: false,
            are_heartbeats_lost: false,
            isolated_ports: Vec::new(),
            one_way_ports: Vec::new(),
            path_frames: Vec::new(),
            via: None,
            at_client: VecDeque::new(),
            at_server: VecDeque::new(),
            refusals: Vec::new(),
            is_link_partitioned: false,
            announced: Vec::new(),
            overheard: Vec::new(),
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.nodes.iter().flatten().all(|node| {
            let peer = &node.status(self.now).peers[0];
            peer.session.is_none_or(|session| session.is_synchronised() && session.in_flight == 0)
        })
    }

    pub(super) fn node(&self, id: u8) -> &Node {
        self.nodes[usize::from(id)].as_ref().expect("the node lives")
    }

    pub(super) fn node_mut(&mut self, id: u8) -> &mut Node {
        self.nodes[usize::from(id)].as_mut().expect("the node lives")
    }

    pub(super) fn living(&mut self) -> impl Iterator<Item = &mut Node> {
        self.nodes.iter_mut().flatten()
    }

    pub(super) const fn options(&self) -> Options {
        self.options
    }

    pub(super) fn kill(&mut self, id: u8) {
        self.nodes[usize::from(id)] = None;
    }

    /// The node stands still until [`Cluster::go_on`] is called with what this returns; what arrives meanwhile is lost.
    pub(super) fn pause(&mut self, id: u8) -> Node {
        self.nodes[usize::from(id)].take().expect("the node lives")
    }

    /// A node that stood still goes on.
    pub(super) fn go_on(&mut self, id: u8, node: Node) {
        self.nodes[usize::from(id)] = Some(node);
    }

    /// The node starts again and knows nothing.
    pub(super) fn restart(&mut self, id: u8) {
        let security = self.options.keys.map(|keys| security(keys[usize::from(id)], id, self.now));
        let seed = self.now.as_nanos();
        let compact = self.options.compact.map(|compact| compact.config(id, seed));
        let config = NodeConfig { seed, security, compact, ..node_config(id, self.options) };
        self.nodes[usize::from(id)] = Some(started(config, self.options, self.now));
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    pub(super) fn run_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let limit = self.now + Duration::from_secs(20);
        while !condition(self) {
            assert!(self.now < limit, "waited too long for {what}");
            self.step();
        }
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        let now = self.now;
        self.nodes.iter_mut().flatten().for_each(|node| node.handle_timeout(now));
        self.deliver();
    }

    /// Carries everything that nodes have to send, until they have nothing more.
    pub(super) fn deliver(&mut self) {
        let mut buffer = Vec::new();
        loop {
            let mut is_quiet = true;
            for id in 0..2_u8 {
                let Some(node) = &mut self.nodes[usize::from(id)] else { continue };
                let Some(transmit) = node.poll_transmit(self.now, &mut buffer) else { continue };
                is_quiet = false;
                self.carry(id, transmit, &buffer);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        // The generator of Knuth's MMIX.
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % 100 < self.loss_percent
    }

    fn carry(&mut self, from: u8, transmit: Transmit, bytes: &[u8]) {
        let now = self.now;
        let is_lost = matches!(transmit, Transmit::Replication(_)) && self.is_lost();
        let peer = self.nodes[usize::from(1 - from)].as_mut();
        match transmit {
            Transmit::Port { port, .. } if self.isolated_ports.contains(&(from, port)) => {}
            Transmit::Port { port, .. } if is_path_frame(bytes) => self.carry_path_frame(from, port, bytes),
            Transmit::Port { port, .. } => {
                self.carry_to_peer(from, port, bytes);
                self.carry_frame(port, bytes);
            }
            Transmit::Detection(_) if self.is_detection_down => {}
            Transmit::Detection(_) => {
                match peer.map_or(Ok(()), |peer| peer.handle_detection(now, NodeId(from), bytes, 255)) {
                    // A node that stood still does not know yet that its peer has started anew.
                    Ok(())
                    | Err(NodeError::Detection(BfdError::UnknownDiscriminator(_) | BfdError::OtherSender(_))) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Transmit::Replication(_) if self.is_replication_down || is_lost => {}
            Transmit::Replication(_) if self.are_heartbeats_lost && crate::role::is_heartbeat(bytes) => {}
            Transmit::Replication(_) if self.options.keys.is_some() => {
                self.overheard.push((1 - from, bytes.to_vec()));
                if let Some(peer) = peer {
                    let refused = peer.handle_replication(now, NodeId(from), bytes).err();
                    self.refusals.extend(refused.map(|error| (1 - from, error)));
                    peer.handle_timeout(now);
                }
            }
            Transmit::Replication(_) => {
                if let Some(peer) = peer {
                    match peer.handle_replication(now, NodeId(from), bytes) {
                        // A table that is too small is what a test is about.
                        Ok(()) | Err(NodeError::Replication(PeerError::Apply(ApplyError::Full))) => {}
                        Err(error) => panic!("{error}"),
                    }
                    // What is due at once is done before anything is sent, as in the daemon.
                    peer.handle_timeout(now);
                }
            }
        }
    }

    /// An ARP packet of a node reaches the peer, if it is for it.
    fn carry_to_peer(&mut self, from: u8, port: PortId, bytes: &[u8]) {
        let view = ethernet::EthernetView::new_checked(bytes).unwrap();
        if view.ether_type() != ethernet::ether_type::ARP {
            return;
        }
        let arp = ArpView::new_checked(&bytes[14..]).unwrap();
        if arp.is_gratuitous() && arp.operation() == ArpOperation::Request && arp.sender_ip() == SHARED_INSIDE {
            self.announced.push((from, self.now));
        }
        let to = view.destination();
        let Some(peer) = self.nodes[usize::from(1 - from)].as_mut().filter(|_| !self.is_link_partitioned) else {
            return;
        };
        if to.is_group() || to == port_mac(1 - from, port) {
            let mut bytes = bytes.to_vec();
            let length_bytes = bytes.len();
            let mut batch = PacketBatch::new();
            batch.push(Frame::new(&mut bytes, 0, length_bytes, port).unwrap());
            peer.handle_packets(self.now, &mut batch);
        }
    }

    /// A frame by which the nodes detect each other reaches the peer, unless the link fails between them.
    fn carry_path_frame(&mut self, from: u8, port: PortId, bytes: &[u8]) {
        if !self.one_way_ports.contains(&(from, port)) {
            self.path_frames.push((1 - from, port, bytes.to_vec()));
            self.hand_to(1 - from, port, bytes);
        }
    }

    /// A frame comes in at one node's port.
    pub(super) fn hand_to(&mut self, id: u8, port: PortId, frame: &[u8]) {
        let now = self.now;
        let Some(node) = &mut self.nodes[usize::from(id)] else { return };
        let mut bytes = frame.to_vec();
        let mut batch = PacketBatch::new();
        batch.push(Frame::new(&mut bytes, 0, frame.len(), port).unwrap());
        node.handle_packets(now, &mut batch);
        node.handle_timeout(now);
    }

    /// A frame reaches the host on the port's link, which answers ARP and keeps what is for itself.
    fn carry_frame(&mut self, port: PortId, bytes: &[u8]) {
        let (host_mac, host_ip) = if port == INSIDE { (CLIENT_MAC, CLIENT) } else { (SERVER_MAC, SERVER) };
        let view = ethernet::EthernetView::new_checked(bytes).unwrap();
        if view.ether_type() == ethernet::ether_type::ARP {
            let arp = ArpView::new_checked(&bytes[14..]).unwrap();
            if arp.operation() == ArpOperation::Request && arp.target_ip() == host_ip {
                let answer = build::arp_reply(host_mac, host_ip, (arp.sender_mac(), arp.sender_ip()));
                self.hand_in(port, answer);
            }
            return;
        }
        if view.destination() == host_mac {
            let queue = if port == INSIDE { &mut self.at_client } else { &mut self.at_server };
            queue.push_back(bytes.to_vec());
        }
    }

    /// A frame comes in on the port's link: every living node sees it.
    pub(super) fn hand_in(&mut self, port: PortId, frame: Vec<u8>) {
        for id in (0..2_u8).filter(|id| !self.isolated_ports.contains(&(*id, port))).collect::<Vec<_>>() {
            let Some(node) = &mut self.nodes[usize::from(id)] else { continue };
            let mut bytes = frame.clone();
            let length_bytes = bytes.len();
            bytes.resize(length_bytes + ROOM_BYTES, 0);
            let mut batch = PacketBatch::new();
            batch.push(Frame::new(&mut bytes, 0, length_bytes, port).unwrap());
            node.handle_packets(self.now, &mut batch);
            let sent = match batch[0].disposition {
                flow::Disposition::Transmit(egress) => Some((egress, batch[0].bytes().to_vec())),
                _ => None,
            };
            if let Some((egress, bytes)) = sent {
                self.carry_frame(egress, &bytes);
            }
        }
        self.deliver();
    }

    /// A segment from the client to the server, addressed to whichever node is active.
    pub(super) fn client_sends(&mut self, port: u16, segment: build::Tcp<'_>, payload: &[u8]) {
        let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80));
        self.client_sends_frame(|envelope| envelope.tcp(&tuple, segment, payload));
    }

    pub(super) fn client_sends_frame(&mut self, build: impl Fn(build::Envelope<'_>) -> Vec<u8>) {
        let destination = port_mac(self.active(), INSIDE);
        let envelope = build::Envelope { source: CLIENT_MAC, destination, ..build::Envelope::default() };
        self.hand_in(INSIDE, build(envelope));
    }

    /// A segment from the server to the translated client.
    pub(super) fn server_sends(&mut self, to_port: u16, segment: build::Tcp<'_>, payload: &[u8]) {
        let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (SHARED_OUTSIDE, to_port));
        self.server_sends_frame(|envelope| envelope.tcp(&tuple, segment, payload));
    }

    pub(super) fn server_sends_frame(&mut self, build: impl Fn(build::Envelope<'_>) -> Vec<u8>) {
        let destination = port_mac(self.active(), OUTSIDE);
        let envelope = build::Envelope { source: SERVER_MAC, destination, ..build::Envelope::default() };
        self.hand_in(OUTSIDE, build(envelope));
    }

    fn active(&self) -> u8 {
        let is_active = |id: &u8| self.nodes[usize::from(*id)].as_ref().is_some_and(Node::holds_addresses);
        self.via.or_else(|| (0..2).find(is_active)).unwrap_or(0)
    }

    pub(super) fn client_receives(&mut self) -> Option<Received> {
        self.at_client.pop_front().map(Received::new)
    }

    pub(super) fn server_receives(&mut self) -> Option<Received> {
        self.at_server.pop_front().map(Received::new)
    }

    /// The client connects from `port`; returns the port that the server sees it under.
    pub(super) fn connect(&mut self, port: u16) -> u16 {
        self.client_sends(port, syn(), b"");
        let seen = self.server_receives().expect("the SYN passes").tuple;
        assert_eq!(seen.source_ip(), SHARED_OUTSIDE);
        self.server_sends(seen.source_port, syn_ack(), b"");
        let answer = self.client_receives().expect("the SYN/ACK passes");
        assert_eq!((answer.tuple.source_ip(), answer.tuple.destination_port), (SERVER.into(), port));
        self.client_sends(port, segment(tcp_flags::ACK, 1001, 5001), b"");
        self.server_receives().expect("the ACK passes");
        seen.source_port
    }

    pub(super) fn dropped(&self, id: u8, reason: DropReason) -> u64 {
        self.node(id).pipeline().counters().drops[reason as usize]
    }

    pub(super) fn connections(&self, id: u8) -> u32 {
        self.node(id).pipeline().table().len()
    }
}

/// A frame that reached a host.
pub(super) struct Received {
    pub(super) bytes: Vec<u8>,
    pub(super) tuple: Tuple,
    pub(super) headers: flow::wire::Headers,
}

impl Received {
    pub(super) fn new(mut bytes: Vec<u8>) -> Self {
        let length_bytes = bytes.len();
        let frame = Frame::new(&mut bytes, 0, length_bytes, INSIDE).unwrap();
        let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("a host gets sound packets only") };
        Self { tuple: headers.tuple, headers, bytes }
    }
}

pub(super) fn segment(flags: u8, sequence: u32, acknowledgement: u32) -> build::Tcp<'static> {
    build::Tcp { flags, sequence, acknowledgement, ..build::Tcp::default() }
}

pub(super) fn syn() -> build::Tcp<'static> {
    segment(tcp_flags::SYN, 1000, 0)
}

pub(super) fn syn_ack() -> build::Tcp<'static> {
    segment(tcp_flags::SYN | tcp_flags::ACK, 5000, 1001)
}
