//! Conditions compiled for matching packets.

use alloc::vec::Vec;

use flow::wire::{Transport, ip_protocol};
use flow::{IpFamily, PortId, Tuple};

use super::conditions::{Conditions, RULE_SET_VALUES_MAX, RULES_MAX, RuleSetError, has_ports};
use super::dimension::{Number, Wanted};
use super::group::{GROUP_BYTES_PER_RULE_MAX, Group, Key, WantedOfRule};
use crate::address::{Prefix, bounds, family as family_of};
use crate::class::Class;
use crate::port_range::PortRange;

/// The index of a rule in a set, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleIndex(pub u16);

const _: () = assert!(RULES_MAX < u16::MAX as usize, "states hold a rule's number, from 1, in 16 bits");

impl RuleIndex {
    /// The index as such.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// The fields of a connection's first packet that rules match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleKey {
    /// Addresses, ports and protocol.
    pub tuple: Tuple,
    /// Type and code, when it is ICMP or ICMPv6.
    pub icmp: Option<(u8, u8)>,
    /// The ingress port of the packet.
    pub ingress: PortId,
    /// The class of the connection.
    pub class: Class,
}

impl RuleKey {
    /// The key of a packet with `tuple` (under NAT possibly not the incoming one) and `transport`.
    #[must_use]
    pub const fn new(tuple: Tuple, transport: &Transport, ingress: PortId) -> Self {
        let icmp = match transport {
            Transport::IcmpQuery(query) => Some((query.kind, query.code)),
            Transport::IcmpError(error) => Some((error.kind, error.code)),
            Transport::IcmpOther(kind, code) => Some((*kind, *code)),
            Transport::Tcp(_) | Transport::Udp | Transport::Sctp(_) | Transport::Other => None,
        };
        Self { tuple, icmp, ingress, class: Class::Unknown }
    }

    /// The key of a connection of this class.
    #[must_use]
    pub const fn of_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// The key with its addresses as numbers of a family.
    fn with_addresses<A>(&self, source: A, destination: A) -> Key<A> {
        let Tuple { protocol, source_port, destination_port, .. } = self.tuple;
        let service = match self.icmp {
            _ if has_ports(protocol) => service(protocol, Some(destination_port)),
            Some((kind, code)) => service(protocol, Some(u16::from_be_bytes([kind, code]))),
            None => service(protocol, None),
        };
        Key {
            source,
            destination,
            service,
            source_port: source_port.into(),
            ingress: self.ingress.0.into(),
            class: self.class.number().into(),
        }
    }
}

/// A protocol and its service: the destination port of TCP, UDP and SCTP, type and code of ICMP. It is one number, so
/// that one search finds the rules for both.
const fn service(protocol: u8, detail: Option<u16>) -> u32 {
    let protocol = (protocol as u32) << 17;
    match detail {
        None => protocol,
        Some(detail) => protocol | 1 << 16 | detail as u32,
    }
}

/// Ordered rules, validated and compiled. The first rule that a packet matches applies.
///
/// Matching takes one binary search for each dimension that any rule uses (source, destination, protocol with port,
/// source port, ingress, class), and then a few words. Thousands of rules cost little more than ten, unless they are
/// adversarial.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: usize,
    has_classes: bool,
    v4: Vec<Group<u32>>,
    v6: Vec<Group<u128>>,
}

impl RuleSet {
    /// Compiles rules from their ordered conditions. For either family it uses at most 8 KiB for each rule and 80 bytes
    /// for each listed value.
    ///
    /// # Errors
    /// There are too many rules or values, or a rule is invalid.
    pub fn compile<'a>(rules: impl ExactSizeIterator<Item = &'a Conditions>) -> Result<Self, RuleSetError> {
        Self::compile_within(rules, GROUP_BYTES_PER_RULE_MAX)
    }

    /// As [`RuleSet::compile`], with another limit.
    pub(super) fn compile_within<'a>(
        rules: impl ExactSizeIterator<Item = &'a Conditions>,
        bytes_per_rule_max: usize,
    ) -> Result<Self, RuleSetError> {
        if rules.len() > RULES_MAX {
            return Err(RuleSetError::TooManyRules(rules.len()));
        }
        let mut set = Self { rules: rules.len(), ..Self::default() };
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut values = 0;
        for (index, conditions) in rules.enumerate() {
            conditions.validate().map_err(|error| RuleSetError::Rule { index, error })?;
            values += conditions.values();
            set.has_classes |= !conditions.classes.is_empty();
            if values > RULE_SET_VALUES_MAX {
                return Err(RuleSetError::TooManyValues { index });
            }
            let index = RuleIndex(u16::try_from(index).expect("RULES_MAX is less"));
            v4.extend(wanted(index, conditions, IpFamily::V4, |bits| bits as u32));
            v6.extend(wanted(index, conditions, IpFamily::V6, |bits| bits));
        }
        Group::append(&mut set.v4, &v4, bytes_per_rule_max);
        Group::append(&mut set.v6, &v6, bytes_per_rule_max);
        Ok(set)
    }

    /// The first rule that `key` matches.
    #[must_use]
    pub fn classify(&self, key: &RuleKey) -> Option<RuleIndex> {
        let (source, destination) = (&key.tuple.source, &key.tuple.destination);
        match key.tuple.family() {
            IpFamily::V4 => {
                let address = |bytes: &[u8; 16]| u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
                first_match(&self.v4, &key.with_addresses(address(source), address(destination)))
            }
            IpFamily::V6 => {
                let address = |bytes: &[u8; 16]| u128::from_be_bytes(*bytes);
                first_match(&self.v6, &key.with_addresses(address(source), address(destination)))
            }
        }
    }

    /// Rules in the set.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rules
    }

    /// Whether a rule has a condition on the class.
    #[must_use]
    pub const fn has_classes(&self) -> bool {
        self.has_classes
    }

    /// Whether the set has no rules, so that nothing matches.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// Bytes of memory that the rules hold.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let v4: usize = self.v4.iter().map(Group::memory_bytes).sum();
        v4 + self.v6.iter().map(Group::memory_bytes).sum::<usize>()
    }

    /// The maximum number of groups that a packet of either family is matched against.
    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.v4.len().max(self.v6.len())
    }
}

fn first_match<A: Number>(groups: &[Group<A>], key: &Key<A>) -> Option<RuleIndex> {
    groups.iter().find_map(|group| group.classify(key))
}

/// The ranges of a rule for packets of `family`; `None` if it does not apply to them.
fn wanted<A: Number>(
    index: RuleIndex,
    conditions: &Conditions,
    family: IpFamily,
    number: impl Fn(u128) -> A,
) -> Option<WantedOfRule<A>> {
    if !conditions.allows_family(family) {
        return None;
    }
    let addresses = |prefixes: &[Prefix]| {
        let own = prefixes.iter().filter(|prefix| family_of(prefix.addr()) == family);
        any_of(prefixes, own.map(bounds).map(|[first, last]| (number(first), number(last))))
    };
    let ports = |ranges: &[PortRange]| {
        any_of(ranges, ranges.iter().map(|range| (u32::from(range.first()), u32::from(range.last()))))
    };
    let ingress = conditions.ingress.iter().map(|port| (u32::from(port.0), u32::from(port.0)));
    let classes = conditions.classes.iter().map(|class| (u32::from(class.number()), u32::from(class.number())));
    Some(WantedOfRule {
        index,
        sources: addresses(&conditions.sources),
        destinations: addresses(&conditions.destinations),
        services: any_of(&conditions.protocols, conditions.protocols.iter().flat_map(|p| services(*p, conditions))),
        // The services ensure that the packet's protocol has ports: these rules require such protocols.
        source_ports: ports(&conditions.source_ports),
        ingress: any_of(&conditions.ingress, ingress),
        classes: any_of(&conditions.classes, classes),
    })
}

/// The ranges, or `None` when the rule lists nothing.
fn any_of<T, N>(listed: &[T], ranges: impl Iterator<Item = (N, N)>) -> Wanted<N> {
    (!listed.is_empty()).then(|| ranges.collect())
}

/// The services of `protocol` that a rule matches.
fn services(protocol: u8, conditions: &Conditions) -> Vec<(u32, u32)> {
    let range = |first: u16, last: u16| (service(protocol, Some(first)), service(protocol, Some(last)));
    let is_icmp = matches!(protocol, ip_protocol::ICMP | ip_protocol::ICMPV6);
    if !conditions.destination_ports.is_empty() {
        conditions.destination_ports.iter().map(|ports| range(ports.first(), ports.last())).collect()
    } else if is_icmp && !conditions.icmp.is_empty() {
        let codes = |code: Option<u8>| code.map_or((0, u8::MAX), |code| (code, code));
        let message = |kind, (first, last)| range(u16::from_be_bytes([kind, first]), u16::from_be_bytes([kind, last]));
        conditions.icmp.iter().map(|wanted| message(wanted.kind, codes(wanted.code))).collect()
    } else {
        alloc::vec![(service(protocol, None), service(protocol, Some(u16::MAX)))]
    }
}
