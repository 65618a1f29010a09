//! How the nodes are configured: each prefers a group of shared addresses of its own, and connections have some backups.

use std::num::NonZeroU8;
use std::time::Duration;

use cluster::GroupId;
use cluster::node::{BackupsConfig, BackupsShape, Node, NodeConfig, PeerConfig, Reconfiguration, Reevaluation};
use cluster::pipeline::{LookupLimits, SharingConfig, StateServiceConfig, WAIT_FOR_PEER_DEFAULT};
use cluster::{failure_detector, forwarding, role};
use flow::conntrack::TrackerConfig;
use flow::random::mix;
use flow::{Affinity, HashKey, Instant, NodeId, NodeSet, PortId};
use network_functions::chain::ChainBuilder;
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::nat::{Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourceRule};
use network_functions::rule_set::Conditions;
use replication::SessionConfig;
use replication::representation::Selection;

use crate::topology::{PREFIX_V4_BITS, Side, node_mac};

/// Connections of a node, at most.
const CONNECTIONS_MAX: u32 = 512;

/// What does not change during a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) nodes: u8,
    /// Backups of each connection.
    pub(super) backups: usize,
    /// Packets whose connection is elsewhere wait for its state.
    pub(super) has_state_service: bool,
    /// Inside hosts appear under a shared address outside, so that the edges' hashes differ.
    pub(super) is_translated: bool,
    /// Lost datagrams between nodes, in thousandths.
    pub(super) loss_per_mille: u32,
    pub(super) seed: u64,
}

impl Shape {
    /// The numbers of all nodes.
    pub(super) fn all(&self) -> NodeSet {
        (0..self.nodes).map(NodeId).collect()
    }

    /// The secret of the edges' hash.
    pub(super) fn edge_key(&self) -> HashKey {
        HashKey([mix(self.seed ^ 1), mix(self.seed ^ 2)])
    }

    pub(super) fn state_service(&self) -> StateServiceConfig {
        StateServiceConfig { key: [self.seed, 5], limits: LookupLimits { broadcast: true, ..LookupLimits::default() } }
    }

    /// A node whose peers are the other `members`. `start` differs from start to start.
    pub(super) fn node_config(&self, node: NodeId, members: NodeSet, start: u64) -> NodeConfig {
        let secret = mix(self.seed ^ u64::from(node.0) << 32 ^ start << 40);
        NodeConfig {
            node,
            connections_max: CONNECTIONS_MAX,
            limits: cluster::pipeline::Limits::default(),
            hash_key: HashKey([secret, mix(secret)]),
            seed: mix(secret ^ 1),
            tracker: TrackerConfig::default(),
            chain: self.chain(node).build().expect("the functions go together"),
            forwarding: self.forwarding(node),
            role: role::Config { incarnation: mix(secret ^ 2) as u32, ..self.role(node) },
            selection: Selection::default(),
            hold_first_reply: Duration::ZERO,
            sharing: Some(SharingConfig::default()),
            compact: None,
            backups: Some(BackupsConfig {
                count: self.backups,
                edge_nodes: self.all(),
                edge_hash_key: self.edge_key(),
                edge_affinity: Affinity::Learned,
            }),
            peers: peers(node, members),
            security: None,
        }
    }

    /// What a node reloads whose peers are the other `members` from now on.
    pub(super) fn reconfiguration(&self, id: NodeId, node: &Node, members: NodeSet, now: Instant) -> Reconfiguration {
        Reconfiguration {
            tracker: TrackerConfig::default(),
            chain: self.chain(id).build_within(node.pipeline().chain().layout()).expect("they are the same functions"),
            reevaluation: Reevaluation::AsBefore,
            translates_otherwise: false,
            forwarding: self.forwarding(id),
            role: self.role(id),
            selection: Selection::default(),
            hold_first_reply: Duration::ZERO,
            wait_for_peer: WAIT_FOR_PEER_DEFAULT,
            peers: peers(id, members),
            backups: Some(BackupsShape { count: self.backups, edge_nodes: self.all() }),
            security: None,
            seed: mix(now.as_nanos() ^ self.seed),
        }
    }

    fn role(&self, node: NodeId) -> role::Config {
        let group = |group: u8| role::GroupConfig {
            identity: group.into(),
            priority: if group == node.0 { 200 } else { 100 + (node.0 + group) % self.nodes },
            preempt: true,
        };
        role::Config { groups: (0..self.nodes).map(group).collect(), ..role::Config::new(node, Vec::new()) }
    }

    fn chain(&self, node: NodeId) -> ChainBuilder {
        let from_inside = Conditions { ingress: vec![Side::Inside.port()], ..Conditions::default() };
        let out = Rule { name: "out".into(), conditions: from_inside, action: Action::Accept, log: false };
        let firewall = Firewall::new(FirewallConfig { rules: vec![out], ..FirewallConfig::default() });
        let builder = ChainBuilder::new().push(firewall.expect("the rule is sound"));
        if !self.is_translated {
            return builder;
        }
        let sources =
            vec![network_functions::address::Prefix::new(Side::Inside.v4(0).into(), PREFIX_V4_BITS).expect("IPv4")];
        let nat = Nat::new(NatConfig {
            destination_rules: Vec::new(),
            source_rules: vec![SourceRule {
                conditions: Conditions { sources, ..Conditions::default() },
                action: SourceAction::Translate(vec![Side::Outside.v4(1).into()]),
            }],
            ports: SOURCE_PORTS_DEFAULT,
            node,
            nodes: NonZeroU8::new(self.nodes).expect("there are some"),
            key: HashKey([7, node.0.into()]),
        });
        builder.push(nat.expect("the rule is sound"))
    }

    fn forwarding(&self, node: NodeId) -> forwarding::Config {
        let port = |side: Side| {
            let shared = |group: u8| forwarding::Shared {
                prefix: forwarding::Prefix::new(side.v4(1 + group).into(), PREFIX_V4_BITS),
                group: GroupId(group),
            };
            forwarding::Port {
                mac: node_mac(node.0.into(), side),
                mtu_bytes: 1500,
                own: Vec::new(),
                shared: (0..self.nodes).map(shared).collect(),
                mss_clamp: None,
                reverse_path: forwarding::ReversePath::default(),
                router_advertisements: None,
            }
        };
        let ports = vec![port(Side::Inside), port(Side::Outside)];
        forwarding::Config { ports, routes: Vec::new(), direct_return: Vec::new(), seed: self.seed }
    }
}

fn peers(node: NodeId, members: NodeSet) -> Vec<PeerConfig> {
    let detector = failure_detector::Config {
        desired_min_tx: Duration::from_millis(25),
        required_min_rx: Duration::from_millis(25),
        detect_multiplier: 8,
        ..failure_detector::Config::default()
    };
    let session = SessionConfig { connections_max: CONNECTIONS_MAX, ..SessionConfig::default() };
    let others = members.iter().filter(|member| *member != node);
    others.map(|id| PeerConfig { id, detector, session: Some(session) }).collect()
}

/// The side of a port.
pub(super) const fn side(port: PortId) -> usize {
    Side::of_port(port) as usize
}
