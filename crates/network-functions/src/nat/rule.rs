//! NAT rules in the operator's form, and validated.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU8;

use flow::{HashKey, IpFamily, NodeId};

use super::deterministic::{Computed, Mapping, MappingError};
use super::endpoints::EndpointMappings;
use crate::address::{family, tuple_bytes};
use crate::port_range::PortRange;
use crate::rule_set::{Conditions, RuleSetError};

/// The maximum number of addresses of a source NAT rule.
pub const POOL_ADDRESSES_MAX: usize = 256;

/// The default ports of source NAT: all but the well-known ones (RFC 6335).
pub const SOURCE_PORTS_DEFAULT: PortRange = match PortRange::new(1024, u16::MAX) {
    Some(range) => range,
    None => PortRange::single(u16::MAX),
};

/// The action of a source NAT rule on matching connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceAction {
    /// None: they keep their source, and later rules do not apply.
    Exempt,
    /// Their source becomes one of these addresses, all of one family. The rule is for connections of that family only.
    /// The addresses must belong to the cluster, not to one node: a connection with a node's address cannot survive
    /// that node, so there is no masquerading.
    Translate(Vec<IpAddr>),
    /// As [`SourceAction::Translate`], with one address and port towards all destinations of an inside end point. No other rule has the
    /// addresses.
    TranslateEndpoints(Vec<IpAddr>, Arc<EndpointMappings>),
    /// As [`SourceAction::Translate`], with address and port computed from the inside address and port; the inside
    /// addresses are the conditions' sources.
    Compute(Vec<IpAddr>, Mapping),
}

/// A source NAT rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceRule {
    /// The conditions; the destination is the one after destination NAT.
    pub conditions: Conditions,
    /// The action.
    pub action: SourceAction,
}

/// A destination NAT (port forwarding) rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DestinationRule {
    /// The conditions.
    pub conditions: Conditions,
    /// Their new destination; the rule is for connections of its family only.
    pub address: IpAddr,
    /// Their new destination port, `None` to keep it. The conditions then have exactly one range of destination ports:
    /// its first becomes this port, its second the next, and so on.
    pub port: Option<u16>,
}

/// The configuration of NAT.
#[derive(Clone)]
pub struct NatConfig {
    /// Destination NAT; the first rule that matches decides.
    pub destination_rules: Vec<DestinationRule>,
    /// Source NAT; the first rule that matches decides. Connections that none matches keep their source.
    pub source_rules: Vec<SourceRule>,
    /// Ports (and ICMP identifiers) that source NAT chooses from, divided between the nodes.
    pub ports: PortRange,
    /// This node.
    pub node: NodeId,
    /// The number of nodes that divide the ports: the maximum of the cluster, equal on all nodes.
    pub nodes: NonZeroU8,
    /// The secret that randomises ports, so that outsiders cannot guess them (RFC 6056).
    pub key: HashKey,
}

/// The kind of rule of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleKind {
    /// Source NAT.
    Source,
    /// Destination NAT.
    Destination,
}

impl core::fmt::Display for RuleKind {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::Source => "source NAT",
            Self::Destination => "destination NAT",
        })
    }
}

/// A mistake in the configuration of NAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NatError {
    /// The rules' conditions are invalid.
    #[error("{kind} rules: {error}")]
    Conditions {
        /// The kind of rules.
        kind: RuleKind,
        /// The mistake.
        error: RuleSetError,
    },
    /// No address to translate to.
    #[error("source NAT rule {0}: no address to translate to: list at least one")]
    EmptyPool(usize),
    /// Too many addresses to translate to.
    #[error("source NAT rule {0}: more than {POOL_ADDRESSES_MAX} addresses: split the rule by source")]
    PoolTooLarge(usize),
    /// Addresses of both families.
    #[error("source NAT rule {0}: addresses of both families: write a rule for each")]
    MixedPool(usize),
    /// The mapping cannot be computed.
    #[error("source NAT rule {rule}: {error}")]
    Mapping {
        /// The index of the rule.
        rule: usize,
        /// The mistake.
        error: MappingError,
    },
    /// An outside port would map to hosts of two rules.
    #[error(
        "source NAT rules {first} and {second} translate to one address, and at least one computes its mapping, or has one for each \
         end point: give each addresses of its own, or merge their sources into one rule"
    )]
    SharedPool {
        /// The first of them.
        first: usize,
        /// The other.
        second: usize,
    },
    /// A new port without exactly one range.
    #[error("destination NAT rule {0}: a new port requires exactly one range of destination ports")]
    PortWithoutRange(usize),
    /// The new range would exceed port 65535.
    #[error("destination NAT rule {0}: the range moved to the new port exceeds port 65535")]
    PortOverflow(usize),
    /// The range has no part for this node.
    #[error("the ports {ports} cannot be divided between {nodes} nodes so that node {} has a part", node.0)]
    NoPorts {
        /// The ports.
        ports: PortRange,
        /// The node.
        node: NodeId,
        /// The nodes.
        nodes: NonZeroU8,
    },
}

/// The validated action of a source rule; addresses in the tuples' form.
#[derive(Debug)]
pub(super) enum Pool {
    /// Nothing.
    Exempt,
    /// It chooses one of these addresses and a free port.
    Chosen(Vec<[u8; 16]>),
    /// It chooses one of these addresses and a port for each inside end point.
    Endpoints(Vec<[u8; 16]>, Arc<EndpointMappings>),
    /// It computes both.
    Computed(Computed),
}

impl Pool {
    fn addresses(&self) -> &[[u8; 16]] {
        match self {
            Self::Exempt => &[],
            Self::Chosen(addresses) | Self::Endpoints(addresses, _) => addresses,
            Self::Computed(mapping) => mapping.addresses(),
        }
    }
}

/// A port of a computed address belongs to one host: no other rule may choose it.
pub(super) fn check_shared(pools: &[Pool]) -> Result<(), NatError> {
    for (computing, pool) in pools.iter().enumerate() {
        if !matches!(pool, Pool::Computed(_) | Pool::Endpoints(..)) {
            continue;
        }
        let shares = |other: &Pool| other.addresses().iter().any(|address| pool.addresses().contains(address));
        let others = pools.iter().enumerate().filter(|(index, _)| *index != computing);
        if let Some((other, _)) = others.into_iter().find(|(_, other)| shares(other)) {
            return Err(NatError::SharedPool { first: computing.min(other), second: computing.max(other) });
        }
    }
    Ok(())
}

/// A destination rule's validated target.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) address: [u8; 16],
    /// The moved ports, and the new first port.
    pub(super) moved: Option<(PortRange, u16)>,
}

impl Target {
    /// The destination port before translation of a packet that leaves to this target with port `port`; `None` if there
    /// is none.
    pub(super) fn port_before(&self, port: u16) -> Option<u16> {
        let Some((range, to)) = self.moved else { return Some(port) };
        let before = range.first().checked_add(port.checked_sub(to)?)?;
        range.contains(before).then_some(before)
    }
}

/// Validates source rule `index`: its conditions restricted to the pool's family, and its pool; `ports` are those to
/// translate to.
pub(super) fn check_source(index: usize, rule: SourceRule, ports: PortRange) -> Result<(Conditions, Pool), NatError> {
    let (addresses, mapping, endpoints) = match rule.action {
        SourceAction::Exempt => return Ok((rule.conditions, Pool::Exempt)),
        SourceAction::Translate(addresses) => (addresses, None, None),
        SourceAction::TranslateEndpoints(addresses, endpoints) => (addresses, None, Some(endpoints)),
        SourceAction::Compute(addresses, mapping) => (addresses, Some(mapping), None),
    };
    let Some(&first) = addresses.first() else { return Err(NatError::EmptyPool(index)) };
    if addresses.len() > POOL_ADDRESSES_MAX {
        return Err(NatError::PoolTooLarge(index));
    }
    let family = family(first);
    if addresses.iter().any(|&address| crate::address::family(address) != family) {
        return Err(NatError::MixedPool(index));
    }
    let conditions = narrowed(rule.conditions, family, index, RuleKind::Source)?;
    let pool: Vec<_> = addresses.into_iter().map(tuple_bytes).collect();
    if let Some(endpoints) = endpoints {
        return Ok((conditions, Pool::Endpoints(pool, endpoints)));
    }
    let Some(mapping) = mapping else { return Ok((conditions, Pool::Chosen(pool))) };
    let computed = Computed::new(&conditions.sources, pool, family, ports, mapping)
        .map_err(|error| NatError::Mapping { rule: index, error })?;
    Ok((conditions, Pool::Computed(computed)))
}

/// Validates destination rule `index`: its conditions restricted to the new address's family, and its target.
pub(super) fn check_destination(index: usize, rule: DestinationRule) -> Result<(Conditions, Target), NatError> {
    let moved = match (rule.port, &rule.conditions.destination_ports[..]) {
        (None, _) => None,
        (Some(port), [range]) => {
            if u32::from(port) + range.count() - 1 > u32::from(u16::MAX) {
                return Err(NatError::PortOverflow(index));
            }
            Some((*range, port))
        }
        (Some(_), _) => return Err(NatError::PortWithoutRange(index)),
    };
    let conditions = narrowed(rule.conditions, family(rule.address), index, RuleKind::Destination)?;
    Ok((conditions, Target { address: tuple_bytes(rule.address), moved }))
}

fn narrowed(conditions: Conditions, family: IpFamily, index: usize, kind: RuleKind) -> Result<Conditions, NatError> {
    use crate::rule_set::ConditionError::NoCommonFamily;
    if conditions.family.is_some_and(|only| only != family) {
        let error = RuleSetError::Rule { index, error: NoCommonFamily };
        return Err(NatError::Conditions { kind, error });
    }
    Ok(Conditions { family: Some(family), ..conditions })
}
