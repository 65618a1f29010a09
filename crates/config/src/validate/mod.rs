//! From the written configuration to the one that runs.
//!
//! A value that cannot be used is reported and replaced by a stand-in, so that the rest of the file is checked too;
//! a configuration with stand-ins in it never leaves [`super::parse`].

mod backups;
mod classifier;
mod cluster;
mod common;
mod compact;
mod control;
mod direct_return;
pub(super) mod edge;
mod fast_path;
mod firewall;
mod ftp;
mod groups;
mod lazy;
mod limits;
mod log;
pub mod mapping;
mod membership;
mod nat;
mod ports;
mod quic;
mod rate_limit;
mod reachability;
mod record;
mod redundancy;
mod router_advertisements;
mod routes;
mod security;
mod service;
mod syn_proxy;
pub(super) mod sync;
mod url_filter;
mod workers;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use ::cluster::forwarding::ANNOUNCE_REFRESH_DEFAULT;
use flow::NodeId;
use flow::conntrack::StrayResets;
use toml::Spanned;

use self::common::{family_name, named, one_of, parsed, parsed_list, port_named, quoted};
use super::diagnostic::{Diagnostics, Mistake};
use super::raw::{RawConfig, RawNode, RawTracking};
use super::timeouts::Timeouts;
use super::validated::{Config, Function, LogLevel, Node, OnReload, Tracking};
use super::value;

/// Connections held at most: a slot of the table is a number below this.
const CONNECTIONS_LIMIT: u64 = 1 << 31;
/// The default of connections held at most.
const CONNECTIONS_MAX_DEFAULT: u32 = 262_144;
/// The TCP segments of no connection that are answered by a reset, by default.
const RESET_STRAY_DEFAULT: &str = "served";
/// The default priority of a node.
const PRIORITY_DEFAULT: u8 = 100;
/// Longest path of a Unix socket (unix(7): 108 with the terminator), less what binding needs for its own use.
const SOCKET_PATH_BYTES_MAX: usize = 90;
/// Where the control API listens by default.
pub const CONTROL_SOCKET_DEFAULT: &str = "/run/mainstay/control.sock";

pub(super) fn validate(raw: &RawConfig, diagnostics: &mut Diagnostics<'_>) -> Config {
    let connections_max = connections_max(raw, diagnostics);
    let peers = raw.replication.as_ref().map_or(0, |replication| replication.get_ref().peer.len());
    let node = node(raw.node.as_ref(), (peers, membership::is_dynamic(raw)), diagnostics);
    let groups = groups::groups(raw, &node, diagnostics);
    let ports = ports::ports(&raw.port, &groups, diagnostics);
    groups::check_use(raw, &ports, diagnostics);
    let cluster = cluster::cluster(raw, &node, &ports, connections_max, diagnostics);
    let membership = membership::membership(raw, (cluster.as_ref(), &ports), diagnostics);
    let workers = workers::workers(&raw.workers, cluster.is_some(), diagnostics);
    workers::check_backends(&raw.workers, workers, &ports, diagnostics);
    if let Some(cluster) = &cluster {
        workers::check_ports(&raw.workers, workers, cluster, diagnostics);
    }
    let nat = raw.nat.as_ref().map(Spanned::get_ref);
    let nat_ports = nat::port_pool(nat.and_then(|section| section.ports.as_ref()), &node, diagnostics);
    let source_nat = nat.map_or_else(Vec::new, |section| nat::source(&section.source, &ports, diagnostics));
    let destination_nat =
        nat.map_or_else(Vec::new, |section| nat::destination(&section.destination, &ports, diagnostics));
    let routes = routes::routes(&raw.route, &ports, diagnostics);
    let chain = chain(raw, diagnostics);
    let config = Config {
        url_filter: url_filter::url_filter(raw.url_filter.as_ref(), &chain, diagnostics),
        syn_proxy: syn_proxy::syn_proxy(raw.syn_proxy.as_ref(), (cluster.as_ref(), &chain), diagnostics),
        rate_limit: rate_limit::rules(raw.rate_limit.as_ref(), &chain, diagnostics),
        reachability: reachability::reachability(raw, (&ports, &routes), diagnostics),
        routes,
        connections_max,
        limits: limits::limits(&raw.limits, diagnostics),
        timeouts: Timeouts::validate(&raw.timeouts, diagnostics),
        tracking: tracking(&raw.tracking, diagnostics),
        chain,
        classifier: classifier::classifier(raw.classifier.as_ref(), diagnostics),
        firewall: raw
            .firewall
            .as_ref()
            .map_or_else(Vec::new, |section| firewall::rules(&section.get_ref().rule, &ports, diagnostics)),
        on_reload: on_reload(raw, diagnostics),
        firewall_log_per_s: log::firewall_entries_per_s(raw, diagnostics),
        services: service::services(&raw.service, (&ports, &destination_nat), diagnostics),
        nat_mapping_key: mapping::check(nat, &source_nat, nat_ports, diagnostics),
        nat_key: nat.and_then(|section| section.key.as_ref()).map(|text| PathBuf::from(text.get_ref())),
        nat_ports,
        source_nat,
        destination_nat,
        related: firewall::related(raw.firewall.as_ref().map(Spanned::get_ref), diagnostics),
        ftp: ftp::ftp(raw.ftp.as_ref().map(Spanned::get_ref), diagnostics),
        redundancy: redundancy::redundancy(raw.redundancy.as_ref(), (&ports, workers.count), diagnostics),
        fast_path: fast_path::fast_path(&raw.fast_path, (&ports, workers.count), diagnostics),
        workers,
        membership,
        cluster,
        control: control::remote(raw.control.as_ref(), diagnostics),
        groups,
        node,
        ports,
    };
    classifier::check_order(raw, &config, diagnostics);
    direct_return::check_functions(&raw.service, &config, diagnostics);
    compact::check(raw, &config, diagnostics);
    backups::check_functions(raw, &config, diagnostics);
    nat::check_key(raw, &config, diagnostics);
    mapping::check_endpoints(raw, &config, diagnostics);
    config
}

/// What stands in for a section that is not there.
/// The section `[node]` of a daemon that is no node of a gateway's cluster. `remedies` are for keys that only a gateway has: `nodes`,
/// `priority` and `announce_refresh`.
fn lone_node(
    raw: Option<&Spanned<RawNode>>,
    socket_default: &str,
    remedies: [&str; 3],
    diagnostics: &mut Diagnostics<'_>,
) -> Node {
    let stand_in = no_node();
    let raw = raw.map_or_else(
        || {
            let mistake = Mistake::new("the section is missing", "add [node] with at least id = 0");
            diagnostics.error(0..0, "[node]", mistake);
            &stand_in
        },
        Spanned::get_ref,
    );
    let refused = [
        ("node.nodes", raw.nodes.as_ref().map(Spanned::span), "the number of nodes has no meaning here"),
        ("node.priority", raw.priority.map(|_| raw.id.span()), "it does not choose its role itself"),
        ("node.announce_refresh", raw.announce_refresh.as_ref().map(Spanned::span), "it announces no addresses"),
    ];
    for ((key, span, problem), remedy) in refused.into_iter().zip(remedies) {
        diagnostics.describe_refused(key);
        if let Some(span) = span {
            diagnostics.error(span, key, Mistake::new(problem, remedy));
        }
    }
    let id = *raw.id.get_ref();
    describe_socket(socket_default, diagnostics);
    Node {
        id: NodeId(id),
        name: raw.name.as_ref().map_or_else(|| format!("node-{id}"), |name| named("node.name", name, diagnostics)),
        // Others are named one by one, with whatever numbers the operator likes.
        nodes: u8::MAX,
        priority: 0,
        announce_refresh: Duration::ZERO,
        control_socket: match &raw.control_socket {
            Some(_) => control_socket(raw, diagnostics),
            None => PathBuf::from(socket_default),
        },
        metrics: metrics(raw, diagnostics),
        log: common::choice("node.log", raw.log.as_ref(), &LogLevel::ALL, diagnostics),
        log_format: log::format(raw, diagnostics),
        log_per_s: log::entries_per_s(raw, diagnostics),
    }
}

fn no_node() -> RawNode {
    RawNode {
        id: Spanned::new(0..0, 0),
        name: None,
        nodes: None,
        priority: None,
        announce_refresh: None,
        control_socket: None,
        metrics: None,
        log: None,
        log_format: None,
        log_per_s: None,
    }
}

fn node(raw: Option<&Spanned<RawNode>>, (peers, is_dynamic): (usize, bool), diagnostics: &mut Diagnostics<'_>) -> Node {
    let stand_in = no_node();
    let raw = raw.map_or_else(
        || {
            let mistake = Mistake::new("the section is missing", "add [node] with at least id = 0");
            diagnostics.error(0..0, "[node]", mistake);
            &stand_in
        },
        Spanned::get_ref,
    );
    let id = *raw.id.get_ref();
    let nodes = node_count(raw, (peers, is_dynamic), diagnostics);
    if id >= nodes {
        let mistake = Mistake::new(
            format!("node {id} is not one of {nodes} nodes, which are numbered from 0"),
            format!("choose an id below {nodes} or raise nodes"),
        );
        diagnostics.error(raw.id.span(), "node.id", mistake);
    }
    Node {
        id: NodeId(id),
        name: raw.name.as_ref().map_or_else(|| format!("node-{id}"), |name| named("node.name", name, diagnostics)),
        nodes,
        priority: priority(raw, diagnostics),
        announce_refresh: announce_refresh(raw, diagnostics),
        control_socket: control_socket(raw, diagnostics),
        metrics: metrics(raw, diagnostics),
        log: common::choice("node.log", raw.log.as_ref(), &LogLevel::ALL, diagnostics),
        log_format: log::format(raw, diagnostics),
        log_per_s: log::entries_per_s(raw, diagnostics),
    }
}

fn priority(raw: &RawNode, diagnostics: &mut Diagnostics<'_>) -> u8 {
    diagnostics.describe("node.priority", Some(PRIORITY_DEFAULT.to_string()), format!("0 to {}", u8::MAX));
    raw.priority.unwrap_or(PRIORITY_DEFAULT)
}

/// Each address is announced so often: more often than once a second would be a burden to the link.
fn announce_refresh(raw: &RawNode, diagnostics: &mut Diagnostics<'_>) -> Duration {
    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(3600);
    let text = raw.announce_refresh.as_ref();
    let interval =
        common::ranged("node.announce_refresh", text, ANNOUNCE_REFRESH_DEFAULT, Duration::ZERO..=MAX, diagnostics);
    if !interval.is_zero() && interval < MIN {
        let mistake =
            Mistake::new("addresses would be announced more than once a second", "choose 1s or more, or 0s for never");
        diagnostics.error(text.map_or(0..0, Spanned::span), "node.announce_refresh", mistake);
    }
    interval
}

fn node_count(raw: &RawNode, (peers, is_dynamic): (usize, bool), diagnostics: &mut Diagnostics<'_>) -> u8 {
    let needed = u8::try_from(peers + 1).unwrap_or(u8::MAX);
    let Some(nodes) = &raw.nodes else { return needed };
    match *nodes.get_ref() {
        0 => {
            let mistake = Mistake::new("a cluster of 0 nodes has no place for this one", "write the number of nodes");
            diagnostics.error(nodes.span(), "node.nodes", mistake);
            needed
        }
        count if count > 1 && peers == 0 && !is_dynamic => {
            let mistake = Mistake::new(
                format!("{count} nodes share the NAT ports, but [replication] names no peer"),
                "connections will not outlive this node: add [[replication.peer]]",
            );
            diagnostics.warning(nodes.span(), "node.nodes", mistake);
            count
        }
        count => count,
    }
}

fn control_socket(raw: &RawNode, diagnostics: &mut Diagnostics<'_>) -> PathBuf {
    describe_socket(CONTROL_SOCKET_DEFAULT, diagnostics);
    let Some(text) = &raw.control_socket else { return PathBuf::from(CONTROL_SOCKET_DEFAULT) };
    let path = common::absolute_path("node.control_socket", text, diagnostics);
    if path.is_some() && text.get_ref().len() > SOCKET_PATH_BYTES_MAX {
        let mistake = Mistake::new(format!("the path is longer than {SOCKET_PATH_BYTES_MAX} bytes"), "shorten it");
        diagnostics.error(text.span(), "node.control_socket", mistake);
    }
    path.unwrap_or_default()
}

fn describe_socket(default: &str, diagnostics: &mut Diagnostics<'_>) {
    let range = format!("an absolute path of up to {SOCKET_PATH_BYTES_MAX} bytes");
    diagnostics.describe("node.control_socket", Some(format!("{default:?}")), range);
}

fn metrics(raw: &RawNode, diagnostics: &mut Diagnostics<'_>) -> Option<std::net::SocketAddr> {
    let text = raw.metrics.as_ref()?;
    let address = parsed("node.metrics", text, value::socket_address, diagnostics)?;
    if !address.ip().is_loopback() {
        let mistake = Mistake::new(
            format!("{address} is not a loopback address and the page asks for no password"),
            "anyone who can reach it reads the metrics: use 127.0.0.1, or filter the port",
        );
        diagnostics.warning(text.span(), "node.metrics", mistake);
    }
    Some(address)
}

fn connections_max(raw: &RawConfig, diagnostics: &mut Diagnostics<'_>) -> u32 {
    let default = CONNECTIONS_MAX_DEFAULT.to_string();
    diagnostics.describe("limits.connections_max", Some(default), format!("1 to {CONNECTIONS_LIMIT}"));
    let Some(limit) = &raw.limits.connections_max else { return CONNECTIONS_MAX_DEFAULT };
    let count = *limit.get_ref();
    if count == 0 || count > CONNECTIONS_LIMIT {
        let mistake = Mistake::new(
            format!("{count} connections are out of range"),
            format!("choose a number from 1 to {CONNECTIONS_LIMIT}"),
        );
        diagnostics.error(limit.span(), "limits.connections_max", mistake);
    }
    u32::try_from(count).unwrap_or(CONNECTIONS_MAX_DEFAULT)
}

fn on_reload(raw: &RawConfig, diagnostics: &mut Diagnostics<'_>) -> OnReload {
    let text = raw.firewall.as_ref().and_then(|section| section.get_ref().on_reload.as_ref());
    common::choice("firewall.on_reload", text, &OnReload::ALL, diagnostics)
}

fn tracking(raw: &RawTracking, diagnostics: &mut Diagnostics<'_>) -> Tracking {
    let loose = common::flag("tracking.loose", raw.loose.as_ref().map(|loose| *loose.get_ref()), false, diagnostics);
    if let (true, Some(key)) = (loose, &raw.loose) {
        let mistake = Mistake::new(
            "TCP connections are picked up in the middle without a check of sequence numbers, and without what only their record held (ports \
             of source NAT beyond the first choice, announced connections, shifted sequence numbers, classes)",
            "set it to false unless other gateways hand connections over without their state, or connections are to outlast the failure of all nodes",
        );
        diagnostics.warning(key.span(), "tracking.loose", mistake);
    }
    diagnostics.describe("tracking.reset_stray", Some(format!("{RESET_STRAY_DEFAULT:?}")), quoted(&StrayResets::ALL));
    let reset_stray = raw
        .reset_stray
        .as_ref()
        .and_then(|text| one_of("tracking.reset_stray", text, &StrayResets::ALL, diagnostics))
        .unwrap_or(StrayResets::Served);
    Tracking { loose, liberal: common::flag("tracking.liberal", raw.liberal, false, diagnostics), reset_stray }
}

/// Where the section of a function is, if it is there.
fn section_of(raw: &RawConfig, function: Function) -> Option<Range<usize>> {
    match function {
        Function::Classifier => raw.classifier.as_ref().map(Spanned::span),
        Function::Firewall => raw.firewall.as_ref().map(Spanned::span),
        Function::UrlFilter => raw.url_filter.as_ref().map(Spanned::span),
        Function::RateLimit => raw.rate_limit.as_ref().map(Spanned::span),
        Function::SynProxy => raw.syn_proxy.as_ref().map(Spanned::span),
        Function::LoadBalancer => raw.service.first().map(Spanned::span),
        Function::Nat => raw.nat.as_ref().map(Spanned::span),
        Function::Ftp => raw.ftp.as_ref().map(Spanned::span),
    }
}

/// The chain as written, or all functions as far as their sections are there.
fn chain(raw: &RawConfig, diagnostics: &mut Diagnostics<'_>) -> Vec<Function> {
    let present = |function| section_of(raw, function);
    let Some(names) = &raw.chain else {
        let chain: Vec<_> =
            Function::ALL.iter().map(|(_, function)| *function).filter(|f| present(*f).is_some()).collect();
        record::check_room(&chain, chain.last().and_then(|last| present(*last)).unwrap_or_default(), diagnostics);
        return chain;
    };
    let mut chain = Vec::new();
    for name in names {
        let Some(function) = one_of("chain", name, &Function::ALL, diagnostics) else { continue };
        let text = name.get_ref();
        if chain.contains(&function) {
            let mistake = Mistake::new(format!("{text:?} is listed twice"), "list it once");
            diagnostics.error(name.span(), "chain", mistake);
        } else if present(function).is_none() {
            let mistake = Mistake::new(
                format!("{text:?} is listed but its section is missing"),
                format!("add {} or remove it from the chain", function.section()),
            );
            diagnostics.error(name.span(), "chain", mistake);
        }
        chain.push(function);
    }
    for (name, function) in Function::ALL {
        if let (false, Some(span)) = (chain.contains(&function), present(function)) {
            let mistake = Mistake::new(
                "the section has no effect because the chain does not list it",
                format!("add \"{name}\" to chain or remove the section"),
            );
            diagnostics.error(span, function.section(), mistake);
        }
    }
    let last = names.last().map_or(0..0, Spanned::span);
    record::check_room(&chain, last, diagnostics);
    chain
}
