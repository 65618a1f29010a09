//! The configuration of `mainstay edge`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ::cluster::failure_detector;
use ::edge::{Affinity, CachePolicy, Capacity, EdgeConfig, NODES_MAX, RateControlConfig, RecoveryConfig};
use flow::fast_path::Hook;
use flow::{HashKey, NodeId, PortId};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::Text;
use super::super::raw::edge::{
    RawEdge, RawEdgeDetection, RawEdgeFastPath, RawEdgeFile, RawEdgeRecovery, RawRateControl,
};
use super::super::security::Security;
use super::super::validated::Backend;
use super::super::validated::edge::{EdgeFastPath, EdgeNode, EdgeSettings, RecoveryPolicy};
use super::common::{absolute_path, affinity, choice, flag, ranged, sized, within};
use super::fast_path::{CONNECTIONS_LIMIT, CONNECTIONS_MAX_DEFAULT};
use super::ports::interface;
use super::security::keys_alone;
use super::{control, lone_node};

/// Where the control API of `mainstay edge` listens by default: beside a gateway's.
pub const CONTROL_SOCKET_DEFAULT: &str = "/run/mainstay/edge.sock";

/// Those for Ethernet.
const BACKENDS: [(&str, Backend); 2] = [("af_packet", Backend::AfPacket), ("af_xdp", Backend::AfXdp)];
const CONNECTIONS_DEFAULT: u32 = 1 << 20;
const CONNECTIONS: RangeInclusive<u32> = 1..=::edge::CONNECTIONS_MAX;
const MEMORY_BYTES: RangeInclusive<usize> = 64 << 10..=64 << 30;
const RESENDS_PER_S: RangeInclusive<u32> = 1..=10_000_000;
const HEAVY_HITTERS_DEFAULT: u32 = 1000;
const CAPACITY_BITS_PER_S: RangeInclusive<u64> = 8..=8_000_000_000_000;
const INTERVAL_DEFAULT: Duration = Duration::from_millis(10);
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
/// A node that does not receive an edge for so long answers it no more, which costs the edge the node. So an edge that is paused for
/// a moment must not be taken for dead soon: three times a node's own default.
const MULTIPLIER_DEFAULT: u8 = 30;

pub(crate) fn validate(raw: &RawEdgeFile, diagnostics: &mut Diagnostics<'_>) -> EdgeSettings {
    let node = lone_node(
        raw.node.as_ref(),
        CONTROL_SOCKET_DEFAULT,
        [
            "remove it: nodes are named one by one in [[edge.node]]",
            "remove priority: the nodes have it",
            "remove announce_refresh: the nodes have it",
        ],
        diagnostics,
    );
    let stand_in = Spanned::new(0..0, no_edge());
    let section = raw.edge.as_ref().unwrap_or_else(|| {
        let mistake =
            Mistake::new("the section is missing", "add [edge] with network, and an [[edge.node]] for each node");
        diagnostics.error(0..0, "[edge]", mistake);
        &stand_in
    });
    let edge = section.get_ref();
    let network = interface("edge.network", &edge.network, diagnostics);
    let nodes = nodes(section, &network, diagnostics);
    let affinity = affinity("edge.affinity", edge.affinity.as_ref(), diagnostics);
    let settings = EdgeSettings {
        backend: choice("edge.backend", edge.backend.as_ref(), &BACKENDS, diagnostics),
        hash_key: hash_key(section, affinity, diagnostics),
        connections_max: within(
            "edge.connections_max",
            edge.connections_max.as_ref(),
            CONNECTIONS_DEFAULT,
            CONNECTIONS,
            diagnostics,
        ),
        recovery: recovery(&raw.recovery, diagnostics),
        rate_control: raw.rate_control.as_ref().map(|section| rate_control(section, diagnostics)),
        fast_path: fast_path(&raw.fast_path, diagnostics),
        failure_detection: failure_detection(&raw.failure_detection, diagnostics),
        security: security(raw, diagnostics),
        control: control::remote(raw.control.as_ref(), diagnostics),
        node,
        network,
        nodes,
        affinity,
    };
    check_fast_path(raw, &settings, diagnostics);
    check(&settings, section, diagnostics);
    settings
}

/// What stands for a section that is missing.
fn no_edge() -> RawEdge {
    RawEdge {
        network: Spanned::new(0..0, "none".to_owned()),
        backend: None,
        affinity: None,
        hash_key: None,
        connections_max: None,
        node: Vec::new(),
    }
}

fn nodes(section: &Spanned<RawEdge>, network: &str, diagnostics: &mut Diagnostics<'_>) -> Vec<EdgeNode> {
    let edge = section.get_ref();
    if edge.node.is_empty() || edge.node.len() > NODES_MAX {
        let mistake = Mistake::new(
            format!("the file names {} nodes", edge.node.len()),
            format!("add an [[edge.node]] for each node of the cluster, 1 to {NODES_MAX}"),
        );
        diagnostics.error(section.span(), "[[edge.node]]", mistake);
    }
    diagnostics.describe("edge.node.id", None, format!("0 to {}", NODES_MAX - 1));
    let mut nodes: Vec<EdgeNode> = Vec::new();
    for written in edge.node.iter().take(NODES_MAX) {
        let raw = written.get_ref();
        let id = NodeId(*raw.id.get_ref());
        let name = interface("edge.node", &raw.interface, diagnostics);
        if usize::from(id.0) >= NODES_MAX {
            let mistake = Mistake::new(
                format!("{} is out of range", id.0),
                format!("choose a number from 0 to {}", NODES_MAX - 1),
            );
            diagnostics.error(raw.id.span(), "edge.node.id", mistake);
        }
        if nodes.iter().any(|node| node.id == id) {
            let mistake = Mistake::new("another node has this id", "give each node the id that its own file has");
            diagnostics.error(raw.id.span(), "edge.node.id", mistake);
        }
        if name == network || nodes.iter().any(|node| node.interface == name) {
            let mistake = Mistake::new(
                format!("interface {name:?} is named twice"),
                "give the network and each node an interface of its own",
            );
            diagnostics.error(raw.interface.span(), "edge.node.interface", mistake);
        }
        nodes.push(EdgeNode { id, interface: name });
    }
    nodes
}

fn hash_key(section: &Spanned<RawEdge>, affinity: Affinity, diagnostics: &mut Diagnostics<'_>) -> Option<PathBuf> {
    match &section.get_ref().hash_key {
        Some(text) => absolute_path("edge.hash_key", text, diagnostics),
        None if affinity == Affinity::Learned => None,
        None => {
            let mistake = Mistake::new(
                "hashed affinities need a secret that both edges have",
                "write hash_key = \"/etc/mainstay/edge.key\"; `mainstay key` makes one",
            );
            diagnostics.error(section.span(), "edge.hash_key", mistake);
            None
        }
    }
}

fn recovery(raw: &RawEdgeRecovery, diagnostics: &mut Diagnostics<'_>) -> Option<RecoveryConfig> {
    let defaults = RecoveryConfig::default();
    let policy = choice("recovery.policy", raw.policy.as_ref(), &RecoveryPolicy::ALL, diagnostics);
    let hitters = raw.heavy_hitters.as_ref();
    let connections_max =
        within("recovery.heavy_hitters", hitters, HEAVY_HITTERS_DEFAULT, 1..=::edge::CONNECTIONS_MAX, diagnostics);
    if let Some(written) = hitters.filter(|_| policy != RecoveryPolicy::HeavyHitters) {
        let mistake = Mistake::new("only the policy \"heavy-hitters\" uses it", "remove it, or change the policy");
        diagnostics.warning(written.span(), "recovery.heavy_hitters", mistake);
    }
    let memory = raw.memory.as_ref();
    let memory_bytes_max = sized("recovery.memory", memory, defaults.memory_bytes_max, &MEMORY_BYTES, diagnostics)
        .unwrap_or(defaults.memory_bytes_max);
    let resends = raw.resends_per_s.as_ref();
    let resends_per_s_max =
        within("recovery.resends_per_s", resends, defaults.resends_per_s_max, RESENDS_PER_S, diagnostics);
    let policy = policy.cache_policy(connections_max)?;
    Some(RecoveryConfig { policy, memory_bytes_max, resends_per_s_max })
}

fn rate_control(section: &Spanned<RawRateControl>, diagnostics: &mut Diagnostics<'_>) -> RateControlConfig {
    let raw = section.get_ref();
    let subject = "rate_control.capacity_bits_per_s";
    let (least, most) = (CAPACITY_BITS_PER_S.start(), CAPACITY_BITS_PER_S.end());
    diagnostics.describe(subject, None, format!("{least} to {most}"));
    let capacity_bits = *raw.capacity_bits_per_s.get_ref();
    if !CAPACITY_BITS_PER_S.contains(&capacity_bits) {
        let mistake = Mistake::new(
            format!("{capacity_bits} is out of range"),
            format!("choose a number from {least} to {most}: 1000000000 is 1 Gbit/s"),
        );
        diagnostics.error(raw.capacity_bits_per_s.span(), subject, mistake);
    }
    let defaults = RateControlConfig::new(Capacity::Configured(capacity_bits / 8));
    let window_min = raw.window_min.as_ref();
    RateControlConfig {
        alpha: within("rate_control.alpha", raw.alpha.as_ref(), defaults.alpha, 0.01..=2.0, diagnostics),
        delta: within("rate_control.delta", raw.delta.as_ref(), defaults.delta, 0.01..=1.0, diagnostics),
        granularity: ranged(
            "rate_control.granularity",
            raw.granularity.as_ref(),
            defaults.granularity,
            Duration::from_millis(10)..=Duration::from_secs(10),
            diagnostics,
        ),
        window_bytes_min: within(
            "rate_control.window_min",
            window_min,
            defaults.window_bytes_min,
            536..=1_048_576,
            diagnostics,
        ),
        ..defaults
    }
}

fn fast_path(raw: &RawEdgeFastPath, diagnostics: &mut Diagnostics<'_>) -> EdgeFastPath {
    let written = raw.connections_max.as_ref();
    let (default, limit) = (CONNECTIONS_MAX_DEFAULT, CONNECTIONS_LIMIT);
    EdgeFastPath {
        enabled: flag("fast_path.enabled", raw.enabled, false, diagnostics),
        hook: choice("fast_path.hook", raw.hook.as_ref(), &Hook::ALL, diagnostics),
        connections_max: within("fast_path.connections_max", written, default, 1..=limit, diagnostics),
    }
}

/// What has no effect together with the fast path.
fn check_fast_path(raw: &RawEdgeFile, settings: &EdgeSettings, diagnostics: &mut Diagnostics<'_>) {
    let Some(edge) = raw.edge.as_ref().filter(|_| settings.fast_path.enabled) else { return };
    let section = edge.get_ref();
    if let Some(written) = section.affinity.as_ref().filter(|_| settings.affinity != Affinity::Learned) {
        let mistake = Mistake::new(
            "the kernel forwards flows whose node was learned, and with this affinity none is",
            "write affinity = \"learned\", or leave [fast_path] out",
        );
        diagnostics.warning(written.span(), "edge.affinity", mistake);
    }
    if let Some(written) = section.backend.as_ref().filter(|_| settings.backend != Backend::AfPacket) {
        let mistake = Mistake::new(
            "this backend has an XDP program of its own and no fast path",
            "write backend = \"af_packet\", or leave [fast_path] out",
        );
        diagnostics.warning(written.span(), "edge.backend", mistake);
    }
    let needs_segments = settings.recovery.as_ref().map(|recovery| recovery.policy);
    if let Some(CachePolicy::Always | CachePolicy::HeavyHitters { .. }) = needs_segments {
        let mistake = Mistake::new(
            "the edge needs every segment of TCP, so the kernel forwards UDP alone",
            "write policy = \"from-second-lost-heartbeat\", \"syn-only\" or \"off\" to have it forward TCP",
        );
        let span = raw.recovery.policy.as_ref().map_or_else(|| edge.span(), Text::span);
        diagnostics.warning(span, "recovery.policy", mistake);
    }
}

fn failure_detection(raw: &RawEdgeDetection, diagnostics: &mut Diagnostics<'_>) -> failure_detector::Config {
    let interval = ranged("failure_detection.interval", raw.interval.as_ref(), INTERVAL_DEFAULT, INTERVAL, diagnostics);
    let multiplier = raw.multiplier.as_ref();
    failure_detector::Config {
        desired_min_tx: interval,
        required_min_rx: interval,
        detect_multiplier: within(
            "failure_detection.multiplier",
            multiplier,
            MULTIPLIER_DEFAULT,
            1..=u8::MAX,
            diagnostics,
        ),
        ..failure_detector::Config::default()
    }
}

/// What secures the frames between the edge and the nodes. `None` is plain text.
fn security(raw: &RawEdgeFile, diagnostics: &mut Diagnostics<'_>) -> Option<Security> {
    let subject = "[security]";
    let Some(section) = &raw.security else {
        let mistake = Mistake::new(
            "the frames between this edge and the nodes are in plain text; nodes with pre-shared keys refuse them",
            "add [security] with the pre_shared_keys of the nodes' [replication.security], or with mode = \"plain\"",
        );
        let span = raw.edge.as_ref().map_or(0..0, Spanned::span);
        diagnostics.warning(span, subject, mistake);
        return None;
    };
    let written = section.get_ref();
    let security = keys_alone((section, subject), (written.mode.as_ref(), &written.pre_shared_keys), diagnostics)?;
    let id = raw.node.as_ref().map(|node| &node.get_ref().id);
    if let Some(id) = id.filter(|id| usize::from(*id.get_ref()) < NODES_MAX) {
        let mistake = Mistake::new(
            format!("{} can be the number of a node, from which keys must distinguish this edge", id.get_ref()),
            format!("choose a number from {NODES_MAX} to 255"),
        );
        diagnostics.error(id.span(), "node.id", mistake);
    }
    Some(security)
}

/// What the edge itself would refuse.
fn check(settings: &EdgeSettings, section: &Spanned<RawEdge>, diagnostics: &mut Diagnostics<'_>) {
    if diagnostics.has_errors() {
        return;
    }
    let ports = settings.nodes.iter().zip((1..=u8::MAX).map(PortId));
    let nodes = ports.map(|(node, port)| ::edge::NodePort { node: node.id, port, link_address: None }).collect();
    let config = EdgeConfig {
        affinity: settings.affinity,
        connections_max: settings.connections_max,
        recovery: settings.recovery,
        rate_control: settings.rate_control,
        ..EdgeConfig::new(PortId(0), nodes, HashKey([0, 0]))
    };
    if let Err(error) = config.check() {
        diagnostics.error(section.span(), "[edge]", Mistake::new(error.to_string(), "correct the file"));
    }
}
