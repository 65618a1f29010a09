//! What an operator asks of a connection, and whether that makes sense.

use alloc::vec::Vec;

use flow::wire::ip_protocol;
use flow::{IpFamily, PortId};

use crate::address::{Prefix, family as family_of};
use crate::port_range::PortRange;

/// Rules in a set, at most.
pub const RULES_MAX: usize = 16_384;

/// Values that one condition of a rule lists (prefixes, port ranges), at most.
pub const CONDITION_VALUES_MAX: usize = 256;

/// Values that all rules of a set list together, at most. A rule for several protocols and ports counts each pair.
pub const RULE_SET_VALUES_MAX: usize = 1 << 20;

/// An ICMP or ICMPv6 message that a rule asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpMatch {
    /// Its type.
    pub kind: u8,
    /// Its code; `None` for any.
    pub code: Option<u8>,
}

/// What a connection's first packet must be like. A list is met by any of its values, an empty list by everything;
/// all lists must be met.
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
    /// TCP, UDP or SCTP source ports; asks for `protocols` of these three.
    pub source_ports: Vec<PortRange>,
    /// TCP, UDP or SCTP destination ports; asks for `protocols` of these three.
    pub destination_ports: Vec<PortRange>,
    /// ICMP messages; asks for `protocols` to be ICMP or ICMPv6, not both (their types differ).
    pub icmp: Vec<IcmpMatch>,
    /// Ports of the node that it comes in on.
    pub ingress: Vec<PortId>,
}

/// Whether ports of a protocol are known, to be asked for and translated.
#[must_use]
pub const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, ip_protocol::TCP | ip_protocol::UDP | ip_protocol::SCTP)
}

/// Why conditions make no sense: a mistake in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConditionError {
    /// A list is too long.
    #[error("{0} lists more than {CONDITION_VALUES_MAX} values: split the rule")]
    TooManyValues(&'static str),
    /// Ports of protocols that have none.
    #[error("ports are given, so the protocols must be given too, and be TCP, UDP or SCTP")]
    PortsWithoutProtocol,
    /// ICMP types of another protocol.
    #[error("ICMP types are given, so the protocol must be given too, and be either ICMP or ICMPv6")]
    IcmpWithoutProtocol,
    /// No packet has addresses of both families.
    #[error("no packet can match: sources, destinations, protocol and translation have no address family in common")]
    NoCommonFamily,
}

/// Why rules cannot be made into a set.
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
        /// The first rule beyond, from 0.
        index: usize,
    },
    /// A rule's conditions make no sense.
    #[error("rule {index}: {error}")]
    Rule {
        /// Which one, from 0.
        index: usize,
        /// What is wrong with it.
        error: ConditionError,
    },
}

impl Conditions {
    /// Whether the conditions can be met at all, and what they ask for is what packets have.
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

    /// Values that it lists, as [`RULE_SET_VALUES_MAX`] counts them.
    pub(super) fn values(&self) -> usize {
        let services = self.protocols.len() * (self.destination_ports.len() + self.icmp.len()).max(1);
        self.sources.len() + self.destinations.len() + services + self.source_ports.len() + self.ingress.len()
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
        ];
        match lengths.into_iter().find(|&(_, length)| length > CONDITION_VALUES_MAX) {
            Some((name, _)) => Err(ConditionError::TooManyValues(name)),
            None => Ok(()),
        }
    }

    /// Whether packets of `family` can meet the conditions on addresses.
    #[must_use]
    pub fn allows_family(&self, family: IpFamily) -> bool {
        let listed = |prefixes: &[Prefix]| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| family_of(prefix.addr()) == family)
        };
        self.family.is_none_or(|only| only == family) && listed(&self.sources) && listed(&self.destinations)
    }

    /// Whether packets of `family` that the conditions on addresses allow may be of a protocol that they allow.
    fn allows_protocol(&self, family: IpFamily) -> bool {
        let other_icmp = match family {
            IpFamily::V4 => ip_protocol::ICMPV6,
            IpFamily::V6 => ip_protocol::ICMP,
        };
        self.protocols.is_empty() || self.protocols.iter().any(|&protocol| protocol != other_icmp)
    }
}
