//! NAT rules as an operator writes them, and the same checked.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU8;

use flow::{HashKey, IpFamily, NodeId};

use super::deterministic::{Computed, Mapping, MappingError};
use crate::address::{family, tuple_bytes};
use crate::port_range::PortRange;
use crate::rule_set::{Conditions, RuleSetError};

/// Addresses of a source NAT rule, at most.
pub const POOL_ADDRESSES_MAX: usize = 256;

/// Ports that source NAT takes unless told otherwise: all but the well-known ones (RFC 6335).
pub const SOURCE_PORTS_DEFAULT: PortRange = match PortRange::new(1024, u16::MAX) {
    Some(range) => range,
    None => PortRange::single(u16::MAX),
};

/// What a source NAT rule does with the connections that it matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceAction {
    /// Nothing: they keep their source, whatever later rules say.
    Exempt,
    /// Their source becomes one of these addresses, all of one family. The rule is for connections of that family
    /// only. The addresses must belong to the cluster, not to one node: a connection that leaves under a node's own
    /// address cannot survive that node, which is why there is no masquerading.
    Translate(Vec<IpAddr>),
    /// As [`SourceAction::Translate`], with address and port computed from the inside address and port, which are those of the
    /// conditions' sources.
    Compute(Vec<IpAddr>, Mapping),
}

/// A source NAT rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceRule {
    /// Which connections it is for; the destination as destination NAT has made it.
    pub conditions: Conditions,
    /// What becomes of them.
    pub action: SourceAction,
}

/// A destination NAT (port forwarding) rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DestinationRule {
    /// Which connections it is for.
    pub conditions: Conditions,
    /// Their new destination; the rule is for connections of its family only.
    pub address: IpAddr,
    /// Their new destination port, `None` to keep it. The conditions then have exactly one range of destination ports,
    /// whose first becomes this one, its second the next, and so on.
    pub port: Option<u16>,
}

/// All that NAT is told.
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
    /// How many nodes divide the ports: as many as the cluster may ever have, the same number on all.
    pub nodes: NonZeroU8,
    /// The secret under which ports are chosen, so that they cannot be guessed from outside (RFC 6056).
    pub key: HashKey,
}

/// Which kind of rule an error is about.
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

/// Why NAT cannot do what it is told: a mistake in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NatError {
    /// The rules' conditions make no sense.
    #[error("{kind} rules: {error}")]
    Conditions {
        /// Which rules.
        kind: RuleKind,
        /// What is wrong.
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
    /// A mapping that cannot be computed.
    #[error("source NAT rule {rule}: {error}")]
    Mapping {
        /// Which rule.
        rule: usize,
        /// What is wrong with it.
        error: MappingError,
    },
    /// An outside port would stand for hosts of two rules.
    #[error(
        "source NAT rules {first} and {second} translate to one address, and at least one computes its mapping: give each \
         addresses of its own, or merge their sources into one rule"
    )]
    SharedPool {
        /// The first of them.
        first: usize,
        /// The other.
        second: usize,
    },
    /// A new port, but not one range that it stands for.
    #[error("destination NAT rule {0}: a new port asks for exactly one range of destination ports")]
    PortWithoutRange(usize),
    /// The new range would run over port 65535.
    #[error("destination NAT rule {0}: the range moved to the new port ends behind port 65535")]
    PortOverflow(usize),
    /// There is no part of the ports for this node.
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

/// What a source rule does, checked; addresses as tuples hold them.
#[derive(Debug)]
pub(super) enum Pool {
    /// Nothing.
    Exempt,
    /// It takes one of these addresses and a port that is free.
    Chosen(Vec<[u8; 16]>),
    /// It computes both.
    Computed(Computed),
}

impl Pool {
    fn addresses(&self) -> &[[u8; 16]] {
        match self {
            Self::Exempt => &[],
            Self::Chosen(addresses) => addresses,
            Self::Computed(mapping) => mapping.addresses(),
        }
    }
}

/// A port of an address that is computed belongs to one host: no other rule may take it.
pub(super) fn check_shared(pools: &[Pool]) -> Result<(), NatError> {
    for (computing, pool) in pools.iter().enumerate() {
        let Pool::Computed(mapping) = pool else { continue };
        let shares = |other: &Pool| other.addresses().iter().any(|address| mapping.has_address(address));
        let others = pools.iter().enumerate().filter(|(index, _)| *index != computing);
        if let Some((other, _)) = others.into_iter().find(|(_, other)| shares(other)) {
            return Err(NatError::SharedPool { first: computing.min(other), second: computing.max(other) });
        }
    }
    Ok(())
}

/// A destination rule's target, checked.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) address: [u8; 16],
    /// The ports that are moved, and where the first of them is moved to.
    pub(super) moved: Option<(PortRange, u16)>,
}

impl Target {
    /// The port that a packet was sent to that leaves to this target with destination port `port`; `None`: none could have been.
    pub(super) fn port_before(&self, port: u16) -> Option<u16> {
        let Some((range, to)) = self.moved else { return Some(port) };
        let before = range.first().checked_add(port.checked_sub(to)?)?;
        range.contains(before).then_some(before)
    }
}

/// Checks source rule `index`: its conditions narrowed to the pool's family, and its pool; ports are those to translate to.
pub(super) fn check_source(index: usize, rule: SourceRule, ports: PortRange) -> Result<(Conditions, Pool), NatError> {
    let (addresses, mapping) = match rule.action {
        SourceAction::Exempt => return Ok((rule.conditions, Pool::Exempt)),
        SourceAction::Translate(addresses) => (addresses, None),
        SourceAction::Compute(addresses, mapping) => (addresses, Some(mapping)),
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
    let Some(mapping) = mapping else { return Ok((conditions, Pool::Chosen(pool))) };
    let computed = Computed::new(&conditions.sources, pool, family, ports, mapping)
        .map_err(|error| NatError::Mapping { rule: index, error })?;
    Ok((conditions, Pool::Computed(computed)))
}

/// Checks destination rule `index`: its conditions narrowed to the new address's family, and its target.
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
