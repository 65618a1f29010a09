//! From the checked configuration to the parts that the gateway runs.

use std::net::IpAddr;
use std::time::Duration;

use cluster::edge_link::{EdgeConfig, LinkSecurity};
use cluster::forwarding::PathId;
use cluster::node::{
    BackupsConfig, BackupsShape, CompactNodeConfig, Node, NodeConfig, PeerConfig, Reconfiguration, Reevaluation,
    TunnelEndpointConfig, WhichPrecise,
};
use cluster::pipeline::{LookupLimits, RecoveryConfig, SharingConfig, StateServiceConfig, WAIT_FOR_PEER_DEFAULT};
use cluster::{failure_detector, forwarding, role};
use flow::conntrack::{self, TrackerConfig};
use flow::wire::MacAddress;
use flow::{HashKey, PortId};
use network_functions::chain::ChainLayout;
use network_functions::load_balancer::Mode;
use packet_io::netlink::Netlink;
use packet_io::{clock, random, tun};
use replication::SessionConfig;
use replication::representation::{Selection, Start};
use replication::secure::Security;

use super::functions::chain;
use super::hash::fnv;
pub use super::secrets::Secrets;
pub use super::shared::SharedFunctions;
use crate::credentials;
use crate::error::ProcessError;
use config::timeouts::Timeouts;
use config::validated::{
    self, Backend, BackupLookup, Cluster, Config, Function, Redundancy, Replication, Representation,
};
use config::value;
use control::orders::ServicePaths;

/// How long changes without a held packet may wait for others to share their datagram with.
const BATCH_DELAY: Duration = Duration::from_millis(1);

/// The configuration of one of the node's workers; the interfaces are looked up for their link addresses and MTUs.
pub(super) fn node_config(
    config: &Config,
    shared: &SharedFunctions,
    secrets: &Secrets,
) -> Result<NodeConfig, ProcessError> {
    node_config_with(config, forwarding(config, secrets)?, shared, secrets)
}

/// The node as configured, with ports that the caller knows.
pub fn node_config_with(
    config: &Config,
    forwarding: forwarding::Config,
    shared: &SharedFunctions,
    secrets: &Secrets,
) -> Result<NodeConfig, ProcessError> {
    let cluster = config.cluster.as_ref();
    Ok(NodeConfig {
        node: config.node.id,
        connections_max: config.connections_max.div_ceil(config.workers.count.into()),
        limits: config.limits.of_pipeline(config.workers),
        hash_key: secrets.hash_key,
        seed: secrets.seed,
        tracker: tracker(config),
        chain: chain(config, &config.chain, shared, secrets)?.build()?,
        forwarding,
        role: role_config(config, cluster, shared.files),
        selection: selection(cluster),
        hold_first_reply: cluster.map_or(Duration::ZERO, |cluster| cluster.replication.hold_first_reply),
        sharing: sharing(config),
        compact: compact(config),
        backups: backups(cluster)?,
        peers: cluster.map(peers).unwrap_or_default(),
        security: credentials::security(cluster)?,
    })
}

/// The node, as the end of the tunnel to another site where one is configured.
pub(super) fn with_tunnel(node: Node, config: &Config) -> Result<Node, ProcessError> {
    let Some(redundancy) = &config.redundancy else { return Ok(node) };
    let key = HashKey([random::number(), random::number()]);
    let is_lower = redundancy.local < redundancy.peer;
    let sealing = redundancy.security.as_ref().map(|security| credentials::sealing(security, is_lower)).transpose()?;
    Ok(node.with_tunnel(TunnelEndpointConfig { sealing, ..redundancy.site() }, random::number(), key))
}

/// The node, which looks connections up at its peers where each has only a share of them.
pub(super) fn with_state_service(node: Node, config: &Config) -> Result<Node, ProcessError> {
    /// A tenth of a second's pulls or queries may come at once.
    const fn limit(per_s: u32) -> flow::RateLimit {
        flow::RateLimit::new(per_s, per_s.div_ceil(10))
    }
    let cluster = config.cluster.as_ref();
    let Some(backups) = cluster.and_then(|cluster| cluster.replication.backups.as_ref()) else { return Ok(node) };
    let BackupLookup { broadcast, queries_per_s, pulls_per_s } = backups.lookup;
    let workers = u32::from(config.workers.count);
    let limits = LookupLimits {
        broadcast,
        queries: limit(queries_per_s.div_ceil(workers)),
        pulls: limit(pulls_per_s.div_ceil(workers)),
        ..LookupLimits::default()
    };
    let key = credentials::index_key(&backups.edge_hash_key)?;
    Ok(node.with_state_service(StateServiceConfig { key, limits }, random::number() as u32)?)
}

/// What the chain of a running node is replaced by.
pub(super) struct NewChain<'a> {
    pub(super) functions: &'a [Function],
    /// That of the chain before.
    pub(super) layout: ChainLayout,
    pub(super) shared: &'a SharedFunctions,
}

/// What of the configuration a running node can take.
pub(super) fn reconfiguration(
    config: &Config,
    new: NewChain<'_>,
    (reevaluation, translates_otherwise): (Reevaluation, bool),
    secrets: &Secrets,
) -> Result<Reconfiguration, ProcessError> {
    let cluster = config.cluster.as_ref();
    Ok(Reconfiguration {
        tracker: tracker(config),
        chain: chain(config, new.functions, new.shared, secrets)?.build_within(new.layout)?,
        reevaluation,
        translates_otherwise,
        forwarding: forwarding(config, secrets)?,
        role: role_config(config, cluster, new.shared.files),
        selection: selection(cluster),
        hold_first_reply: cluster.map_or(Duration::ZERO, |cluster| cluster.replication.hold_first_reply),
        wait_for_peer: cluster.map_or(WAIT_FOR_PEER_DEFAULT, |cluster| cluster.replication.wait_for_peer),
        peers: cluster.map(peers).unwrap_or_default(),
        security: credentials::security(cluster)?,
        backups: cluster.and_then(backups_shape),
        seed: random::number(),
    })
}

/// From which packet on connections are replicated.
pub(super) fn start(config: &Config) -> Start {
    config.cluster.as_ref().map_or_else(Start::default, |cluster| cluster.replication.start)
}

/// How compact replication is configured. The filter's secret is drawn anew at each start.
fn compact(config: &Config) -> Option<CompactNodeConfig> {
    let replication = &config.cluster.as_ref()?.replication;
    let compact = replication.compact.as_ref()?;
    let secret = [random::number(), random::number()];
    let workers = config.workers.count;
    let stream = compact.stream(secret, replication.datagram_bytes_max.into(), workers);
    let precise = compact.precise_after.map_or(WhichPrecise::None, |age| WhichPrecise::LongerThan {
        age,
        budget_bytes_per_second: compact.budget_of_precise_words(workers),
    });
    let validated::Recovery { lasts, cold_start, block, misses_per_source_max } = &compact.recovery;
    let recovery = RecoveryConfig {
        lasts: *lasts,
        cold_start: cold_start.clone(),
        blocks: *block,
        misses_per_source_max: *misses_per_source_max,
    };
    Some(CompactNodeConfig { config: stream, precise, recovery })
}

/// The peers that each connection is replicated to; the edges' secret is read from its file.
fn backups(cluster: Option<&Cluster>) -> Result<Option<BackupsConfig>, ProcessError> {
    let Some(backups) = cluster.and_then(|cluster| cluster.replication.backups.as_ref()) else { return Ok(None) };
    Ok(Some(BackupsConfig {
        count: backups.count.into(),
        edge_nodes: backups.edge_nodes,
        edge_hash_key: credentials::edge_hash_key(&backups.edge_hash_key)?,
        edge_affinity: backups.edge_affinity,
    }))
}

/// What of that can change while the node works.
fn backups_shape(cluster: &Cluster) -> Option<BackupsShape> {
    let backups = cluster.replication.backups.as_ref()?;
    Some(BackupsShape { count: backups.count.into(), edge_nodes: backups.edge_nodes })
}

/// Nodes that hold a group each forward at the same time.
fn sharing(config: &Config) -> Option<SharingConfig> {
    let replication = &config.cluster.as_ref()?.replication;
    let sharing = SharingConfig { wait_for_peer: replication.wait_for_peer, is_symmetric: replication.is_symmetric };
    (config.groups.len() > 1).then_some(sharing)
}

/// A number that nodes of one program version have in common if they are configured alike, as far as nodes that back each
/// other up must be. `files` is the digest of the files that they have alike.
pub(super) fn fingerprint(config: &Config, files: u64) -> u64 {
    let ports: Vec<_> = config.ports.iter().map(|port| (&port.name, &port.addresses)).collect();
    let groups: Vec<_> = config.groups.iter().map(|group| &group.name).collect();
    let replication = config.cluster.as_ref().map(|cluster| &cluster.replication);
    let representation = replication.map(|replication| replication.representation);
    // Files of secrets may lie elsewhere on each node.
    let backups = replication.and_then(|replication| replication.backups.as_ref());
    let backups = backups.map(|backups| (backups.count, backups.edge_nodes, backups.edge_affinity, backups.lookup));
    // Each node checks from an address of its own.
    let services: Vec<_> = config.services.iter().map(|service| &service.config).collect();
    // Files may lie elsewhere on each node.
    let url_lists: Vec<_> = config.url_filter.lists.iter().map(|list| &list.config).collect();
    // A server may be elsewhere, too.
    let url_server = config.url_filter.server.as_ref().map(|server| &server.config);
    // Of keys the contents count, not the paths.
    let tunnel =
        config.redundancy.clone().map(|tunnel| (tunnel.security.is_some(), Redundancy { security: None, ..tunnel }));
    fnv(&format!(
        "{:?}",
        (
            (config.workers.count, groups, &config.reachability, backups, files),
            (config.node.nodes, ports, &config.routes, config.connections_max, &config.timeouts, config.tracking),
            (&config.chain, &config.firewall, config.on_reload, config.related, &config.ftp),
            (&config.nat_ports, &config.source_nat, &config.destination_nat, representation, tunnel),
            (
                services,
                &config.syn_proxy.rules,
                &config.classifier,
                url_lists,
                url_server,
                &config.url_filter.rules,
                &config.rate_limit
            ),
        )
    ))
}

fn tracker(config: &Config) -> TrackerConfig {
    TrackerConfig {
        timeouts: timeouts(&config.timeouts),
        loose: config.tracking.loose,
        liberal: config.tracking.liberal,
        stray_resets: config.tracking.reset_stray,
    }
}

fn timeouts(from: &Timeouts) -> conntrack::Timeouts {
    conntrack::Timeouts {
        tcp_syn_sent: from.tcp_syn_sent,
        tcp_syn_recv: from.tcp_syn_recv,
        tcp_established: from.tcp_established,
        tcp_fin_wait: from.tcp_fin_wait,
        tcp_close_wait: from.tcp_close_wait,
        tcp_last_ack: from.tcp_last_ack,
        tcp_time_wait: from.tcp_time_wait,
        tcp_close: from.tcp_close,
        tcp_syn_sent2: from.tcp_syn_sent2,
        tcp_retransmission: from.tcp_retransmission,
        tcp_unacknowledged: from.tcp_unacknowledged,
        udp: from.udp,
        udp_stream: from.udp_stream,
        sctp_cookie_wait: from.sctp_cookie_wait,
        sctp_cookie_echoed: from.sctp_cookie_echoed,
        sctp_established: from.sctp_established,
        sctp_shutdown_sent: from.sctp_shutdown_sent,
        sctp_shutdown_recd: from.sctp_shutdown_recd,
        sctp_shutdown_ack_sent: from.sctp_shutdown_ack_sent,
        sctp_closed: from.sctp_closed,
        sctp_heartbeat_sent: from.sctp_heartbeat_sent,
        icmp: from.icmp,
        generic: from.generic,
    }
}

fn selection(cluster: Option<&Cluster>) -> Selection {
    match cluster.map(|cluster| cluster.replication.representation) {
        Some(Representation::PreciseEager) => Selection::Eager,
        Some(Representation::PreciseSelective | Representation::None | Representation::Compact(_)) | None => {
            Selection::default()
        }
    }
}

fn role_config(config: &Config, cluster: Option<&Cluster>, files: u64) -> role::Config {
    let defaults = role::Config::new(config.node.id, Vec::new());
    let (startup_hold, preempt, heartbeat_interval) = match cluster {
        Some(Cluster { failure_detection, .. }) => {
            // A change is sent at once. What repeats it needs to be no denser than what detects failures, and five of them are a timeout.
            let (least, most) = (defaults.heartbeat_interval, defaults.heartbeat_timeout / 5);
            let interval = (failure_detection.interval * 2).clamp(least, most);
            (failure_detection.startup_hold, failure_detection.preempt, interval)
        }
        // There is no peer to listen for.
        None => (Duration::ZERO, false, defaults.heartbeat_interval),
    };
    let configuration = Some(fingerprint(config, files));
    let groups = config.groups.iter().map(|group| role::GroupConfig {
        identity: group.identity(),
        priority: group.priority,
        preempt: group.preempt,
    });
    let groups = groups.collect();
    let reach_hold = config.reachability.move_after;
    role::Config {
        priority: config.node.priority,
        startup_hold,
        preempt,
        heartbeat_interval,
        reach_hold,
        configuration,
        groups,
        ..defaults
    }
}

fn detector(detection: &validated::FailureDetection) -> failure_detector::Config {
    failure_detector::Config {
        desired_min_tx: detection.interval,
        required_min_rx: detection.interval,
        detect_multiplier: detection.multiplier,
        interval_while_down: detection.interval_while_down,
    }
}

/// The links over which failures are detected as well, where that is configured: those of the Ethernet ports.
pub(super) fn service_paths(config: &Config) -> Option<ServicePaths> {
    let cluster = config.cluster.as_ref().filter(|cluster| cluster.failure_detection.service_paths)?;
    let ports = config.ports.iter().zip((0..=u8::MAX).map(PortId));
    let ethernet = ports.filter(|(port, _)| port.backend != Backend::Tun);
    let ports = ethernet.map(|(port, id)| (id, PathId::of_name(&port.name))).collect();
    let bytes_per_s_max = cluster.replication.service_path_bytes_per_s.div_ceil(config.workers.count.into());
    Some(ServicePaths {
        ports,
        detector: detector(&cluster.failure_detection),
        seed: random::number(),
        bytes_per_s_max,
    })
}

/// Has the node answer edges, where that is configured. `security` is that of replication.
pub(super) fn set_edges(node: &mut Node, config: &Config, security: Option<&Security>) -> Result<(), ProcessError> {
    let Some(detection) = config.cluster.as_ref().map(|cluster| &cluster.failure_detection) else { return Ok(()) };
    let edges = EdgeConfig {
        edges_max: detection.edges_max,
        detector: detector(detection),
        seed: random::number(),
        security: security.and_then(|security| LinkSecurity::new(clock::now(), security)),
        accepts_plain: detection.plain_edges,
    };
    node.set_edges(edges).map_err(|error| ProcessError::Node(error.into()))
}

fn peers(cluster: &Cluster) -> Vec<PeerConfig> {
    let (replication, detection) = (&cluster.replication, &cluster.failure_detection);
    let detector = detector(detection);
    // A held first reply sends new connections at once all the same; other changes share their datagrams.
    let batch_delay = if replication.hold_first_reply.is_zero() { Duration::ZERO } else { BATCH_DELAY };
    let session = (replication.representation != Representation::None).then_some(session(replication, batch_delay));
    replication.peers.iter().map(|peer| PeerConfig { id: peer.id, detector, session }).collect()
}

/// A session with a peer, as the configuration has it.
pub(crate) fn session(replication: &Replication, batch_delay: Duration) -> SessionConfig {
    SessionConfig {
        datagram_bytes_max: replication.datagram_bytes_max.into(),
        in_flight_messages_max: replication.in_flight_messages_max,
        resync_in_flight_messages_max: replication.in_flight_messages_max / 4,
        ack_every_messages: replication.ack_every_messages,
        ack_delay: replication.ack_delay,
        alive_interval: replication.alive_interval,
        peer_timeout: replication.peer_timeout,
        batch_delay,
        ..SessionConfig::default()
    }
}

fn forwarding(config: &Config, secrets: &Secrets) -> Result<forwarding::Config, ProcessError> {
    let mut netlink = Netlink::open()?;
    let mut ports = Vec::new();
    for port in &config.ports {
        let interface = netlink.interface(&port.interface)?;
        ports.push(forwarding::Port {
            mac: match port.backend {
                // Such a device has none: its link is made up.
                Backend::Tun => tun::NODE_MAC,
                Backend::AfPacket | Backend::AfXdp => MacAddress(interface.mac),
            },
            mtu_bytes: interface.mtu_bytes,
            own: Vec::new(),
            shared: forwarding_prefixes(port),
            mss_clamp: port.mss_clamp,
            reverse_path: port.reverse_path,
            router_advertisements: port.router_advertisements.clone(),
        });
    }
    Ok(forwarding::Config {
        ports,
        routes: forwarding_routes(config),
        direct_return: forwarding_direct_return(config),
        seed: secrets.forwarding_seed,
    })
}

/// A port's shared addresses as the forwarder takes them.
pub fn forwarding_prefixes(port: &validated::Port) -> Vec<forwarding::Shared> {
    let addresses = port.addresses.iter();
    let shared =
        addresses.map(|address| forwarding::Shared { prefix: forwarding_prefix(address.prefix), group: address.group });
    shared.collect()
}

/// The services with direct return and their backends: answers to clients that come by way of the gateway have the services' addresses.
pub fn forwarding_direct_return(config: &Config) -> Vec<(IpAddr, IpAddr)> {
    let services = config.services.iter().map(|service| &service.config);
    let direct = services.filter(|service| matches!(service.mode, Mode::DirectReturn(_)));
    let pairs = direct.flat_map(|service| service.backends.iter().map(|backend| (service.address, backend.address)));
    pairs.collect()
}

/// The routes as the forwarder takes them.
pub fn forwarding_routes(config: &Config) -> Vec<forwarding::Route> {
    let routes = config.routes.iter().map(|route| forwarding::Route {
        destination: forwarding_prefix(route.to),
        gateway: route.via,
        port: route.port,
    });
    routes.collect()
}

fn forwarding_prefix(prefix: value::Prefix) -> forwarding::Prefix {
    forwarding::Prefix::new(prefix.addr(), prefix.prefix_len())
}
