//! The conditions of a rule, and their validation.

use alloc::vec::Vec;

use flow::wire::ip_protocol;
use flow::{IpFamily, PortId};

use crate::address::{Prefix, family as family_of};
use crate::class::Class;
use crate::port_range::PortRange;

/// The maximum number of rules in a set.
pub const RULES_MAX: usize = 16_384;

/// The maximum number of values in one condition of a rule (prefixes, port ranges).
pub const CONDITION_VALUES_MAX: usize = 256;

/// The maximum number of values in all rules of a set together. A rule for several protocols and ports counts each
/// pair.
pub const RULE_SET_VALUES_MAX: usize = 1 << 20;

/// An ICMP or ICMPv6 message that a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpMatch {
    /// Its type.
    pub kind: u8,
    /// Its code; `None` for any.
    pub code: Option<u8>,
}

/// Conditions on a connection's first packet. Any of its values satisfies a list, and an empty list matches everything;
/// all lists must be satisfied.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Conditions {
    /// Only this family; `None` for both.
    pub family: Option<IpFamily>,
    /// Where it comes from.
    pub sources: Vec<Prefix>,
    /// Where it goes to.
    pub destinations: Vec<Prefix>,
    /// IP protocol numbers (IANA).
    pub protocols: Vec<u8>,
    /// TCP, UDP or SCTP source ports; they require `protocols` of these three.
    pub source_ports: Vec<PortRange>,
    /// TCP, UDP or SCTP destination ports; they require `protocols` of these three.
    pub destination_ports: Vec<PortRange>,
    /// ICMP messages; they require `protocols` to be ICMP or ICMPv6, not both (their types differ).
    pub icmp: Vec<IcmpMatch>,
    /// Ingress ports of the node.
    pub ingress: Vec<PortId>,
    /// Traffic classes, as the classifier knows them at present.
    pub classes: Vec<Class>,
}

/// Whether a protocol has ports for conditions and translation.
#[must_use]
pub const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, ip_protocol::TCP | ip_protocol::UDP | ip_protocol::SCTP)
}

/// Why conditions are invalid: a mistake in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConditionError {
    /// A list is too long.
    #[error("{0} lists more than {CONDITION_VALUES_MAX} values: split the rule")]
    TooManyValues(&'static str),
    /// Ports of protocols without ports.
    #[error("ports are given, so the protocols must be given too, and be TCP, UDP or SCTP")]
    PortsWithoutProtocol,
    /// ICMP types of another protocol.
    #[error("ICMP types are given, so the protocol must be given too, and be either ICMP or ICMPv6")]
    IcmpWithoutProtocol,
    /// No packet has addresses of both families.
    #[error("no packet can match: sources, destinations, protocol and translation have no address family in common")]
    NoCommonFamily,
}

/// Why rules cannot form a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleSetError {
    /// More than [`RULES_MAX`].
    #[error("there are {0} rules, {RULES_MAX} are allowed: merge rules by listing prefixes and port ranges")]
    TooManyRules(usize),
    /// More than [`RULE_SET_VALUES_MAX`].
    #[error(
        "the rules up to rule {index} list more than {RULE_SET_VALUES_MAX} addresses, ports and protocols: \
         write prefixes and ranges in place of single ones"
    )]
    TooManyValues {
        /// The first rule beyond the limit, from 0.
        index: usize,
    },
    /// A rule's conditions are invalid.
    #[error("rule {index}: {error}")]
    Rule {
        /// The index of the rule, from 0.
        index: usize,
        /// The mistake.
        error: ConditionError,
    },
}

impl Conditions {
    /// Validates that the conditions can be satisfied and refer to fields that packets have.
    ///
    /// # Errors
    /// See [`ConditionError`].
    pub fn validate(&self) -> Result<(), ConditionError> {
        self.validate_lengths()?;
        let asks_ports = !self.source_ports.is_empty() || !self.destination_ports.is_empty();
        let all_have_ports = !self.protocols.is_empty() && self.protocols.iter().all(|&protocol| has_ports(protocol));
        if asks_ports && !all_have_ports {
            return Err(ConditionError::PortsWithoutProtocol);
        }
        let one_icmp = matches!(self.protocols[..], [ip_protocol::ICMP] | [ip_protocol::ICMPV6]);
        if !self.icmp.is_empty() && !one_icmp {
            return Err(ConditionError::IcmpWithoutProtocol);
        }
        let possible = |family| self.allows_family(family) && self.allows_protocol(family);
        if possible(IpFamily::V4) || possible(IpFamily::V6) { Ok(()) } else { Err(ConditionError::NoCommonFamily) }
    }

    /// The number of its values, as [`RULE_SET_VALUES_MAX`] counts them.
    pub(super) fn values(&self) -> usize {
        let services = self.protocols.len() * (self.destination_ports.len() + self.icmp.len()).max(1);
        self.sources.len()
            + self.destinations.len()
            + services
            + self.source_ports.len()
            + self.ingress.len()
            + self.classes.len()
    }

    fn validate_lengths(&self) -> Result<(), ConditionError> {
        let lengths = [
            ("sources", self.sources.len()),
            ("destinations", self.destinations.len()),
            ("protocols", self.protocols.len()),
            ("source ports", self.source_ports.len()),
            ("destination ports", self.destination_ports.len()),
            ("ICMP types", self.icmp.len()),
            ("ingress", self.ingress.len()),
            ("classes", self.classes.len()),
        ];
        match lengths.into_iter().find(|&(_, length)| length > CONDITION_VALUES_MAX) {
            Some((name, _)) => Err(ConditionError::TooManyValues(name)),
            None => Ok(()),
        }
    }

    /// Whether packets of `family` can satisfy the conditions on addresses.
    #[must_use]
    pub fn allows_family(&self, family: IpFamily) -> bool {
        let listed = |prefixes: &[Prefix]| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| family_of(prefix.addr()) == family)
        };
        self.family.is_none_or(|only| only == family) && listed(&self.sources) && listed(&self.destinations)
    }

    /// Whether packets of `family` that satisfy the conditions on addresses can satisfy those on protocols.
    fn allows_protocol(&self, family: IpFamily) -> bool {
        let other_icmp = match family {
            IpFamily::V4 => ip_protocol::ICMPV6,
            IpFamily::V6 => ip_protocol::ICMP,
        };
        self.protocols.is_empty() || self.protocols.iter().any(|&protocol| protocol != other_icmp)
    }
}
