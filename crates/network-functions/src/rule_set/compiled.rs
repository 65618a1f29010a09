//! Conditions as packets are held against them: fixed-size rules in one array, whose lists are spans of shared arrays.

use alloc::vec::Vec;

use flow::wire::Transport;
use flow::{IpFamily, PortId, Tuple};

use super::conditions::{Conditions, IcmpMatch, RULES_MAX, RuleSetError, has_ports};
use crate::address::Prefix;
use crate::port_range::PortRange;

/// Which rule of a set, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleIndex(pub u16);

impl RuleIndex {
    /// The index as such.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// What of a connection's first packet rules ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleKey {
    /// Addresses, ports and protocol.
    pub tuple: Tuple,
    /// Type and code, when it is ICMP or ICMPv6.
    pub icmp: Option<(u8, u8)>,
    /// The port of the node that it came in on.
    pub ingress: PortId,
}

impl RuleKey {
    /// The key of a packet with `tuple` (which may be another than came in, under NAT) and `transport`.
    #[must_use]
    pub const fn new(tuple: Tuple, transport: &Transport, ingress: PortId) -> Self {
        let icmp = match transport {
            Transport::IcmpQuery(query) => Some((query.kind, query.code)),
            Transport::IcmpError(error) => Some((error.kind, error.code)),
            Transport::IcmpOther(kind, code) => Some((*kind, *code)),
            Transport::Tcp(_) | Transport::Udp | Transport::Other => None,
        };
        Self { tuple, icmp, ingress }
    }
}

/// A set of 256 small numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ByteSet([u64; 4]);

impl ByteSet {
    /// The values, or all when there are none.
    fn any_of(values: impl ExactSizeIterator<Item = u8>) -> Self {
        if values.len() == 0 {
            return Self([u64::MAX; 4]);
        }
        let mut set = Self([0; 4]);
        for value in values {
            set.0[usize::from(value >> 6)] |= 1 << (value & 63);
        }
        set
    }

    const fn contains(&self, value: u8) -> bool {
        self.0[(value >> 6) as usize] >> (value & 63) & 1 != 0
    }
}

/// A rule's part of a shared array; empty means that anything will do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    start: u32,
    length: u32,
}

impl Span {
    fn append<T: Copy>(all: &mut Vec<T>, values: impl IntoIterator<Item = T>) -> Self {
        let start = all.len();
        all.extend(values);
        let number = |value: usize| u32::try_from(value).expect("RULES_MAX rules of CONDITION_VALUES_MAX values each");
        Self { start: number(start), length: number(all.len() - start) }
    }

    fn meets<T>(self, all: &[T], mut meets: impl FnMut(&T) -> bool) -> bool {
        let start = self.start as usize;
        self.length == 0 || all[start..start + self.length as usize].iter().any(&mut meets)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct AddressMatch {
    first: u128,
    mask: u128,
}

impl AddressMatch {
    fn new(prefix: &Prefix) -> Self {
        Self { first: prefix.first(), mask: prefix.mask() }
    }

    const fn contains(&self, address: u128) -> bool {
        address & self.mask == self.first
    }
}

/// One rule; the conditions in the order in which they are tried, cheapest first.
#[derive(Clone, Copy, Debug)]
struct CompiledRule {
    protocols: ByteSet,
    ingress: ByteSet,
    /// By family: whether it may match, then the prefixes of that family.
    families: [FamilyMatch; 2],
    source_ports: Span,
    destination_ports: Span,
    icmp: Span,
}

#[derive(Clone, Copy, Debug)]
struct FamilyMatch {
    allowed: bool,
    sources: Span,
    destinations: Span,
}

const fn family_index(family: IpFamily) -> usize {
    match family {
        IpFamily::V4 => 0,
        IpFamily::V6 => 1,
    }
}

/// Rules in order, validated and ready to be matched. The first rule that a packet meets is its rule.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<CompiledRule>,
    addresses: Vec<AddressMatch>,
    ports: Vec<PortRange>,
    icmp: Vec<IcmpMatch>,
}

impl RuleSet {
    /// Compiles rules, given by their conditions in order.
    ///
    /// # Errors
    /// There are too many, or one of them makes no sense.
    pub fn compile<'a>(rules: impl ExactSizeIterator<Item = &'a Conditions>) -> Result<Self, RuleSetError> {
        if rules.len() > RULES_MAX {
            return Err(RuleSetError::TooManyRules(rules.len()));
        }
        let mut set = Self::default();
        for (index, conditions) in rules.enumerate() {
            conditions.validate().map_err(|error| RuleSetError::Rule { index, error })?;
            set.push(conditions);
        }
        Ok(set)
    }

    fn push(&mut self, conditions: &Conditions) {
        let addresses = &mut self.addresses;
        let mut family_match = |family: IpFamily| {
            let mut span = |prefixes: &[Prefix]| {
                let own = prefixes.iter().filter(|prefix| prefix.family() == family).map(AddressMatch::new);
                Span::append(addresses, own)
            };
            FamilyMatch {
                allowed: conditions.allows_family(family),
                sources: span(&conditions.sources),
                destinations: span(&conditions.destinations),
            }
        };
        let families = [family_match(IpFamily::V4), family_match(IpFamily::V6)];
        self.rules.push(CompiledRule {
            protocols: ByteSet::any_of(conditions.protocols.iter().copied()),
            ingress: ByteSet::any_of(conditions.ingress.iter().map(|port| port.0)),
            families,
            source_ports: Span::append(&mut self.ports, conditions.source_ports.iter().copied()),
            destination_ports: Span::append(&mut self.ports, conditions.destination_ports.iter().copied()),
            icmp: Span::append(&mut self.icmp, conditions.icmp.iter().copied()),
        });
    }

    /// The first rule that `key` meets.
    #[must_use]
    pub fn classify(&self, key: &RuleKey) -> Option<RuleIndex> {
        let source = u128::from_be_bytes(key.tuple.source);
        let destination = u128::from_be_bytes(key.tuple.destination);
        let family = family_index(key.tuple.family());
        let index = self.rules.iter().position(|rule| {
            let addresses = &rule.families[family];
            rule.protocols.contains(key.tuple.protocol)
                && addresses.allowed
                && rule.ingress.contains(key.ingress.0)
                && self.meets_ports(rule.destination_ports, key.tuple.protocol, key.tuple.destination_port)
                && self.meets_ports(rule.source_ports, key.tuple.protocol, key.tuple.source_port)
                && addresses.destinations.meets(&self.addresses, |prefix| prefix.contains(destination))
                && addresses.sources.meets(&self.addresses, |prefix| prefix.contains(source))
                && self.meets_icmp(rule.icmp, key.icmp)
        })?;
        u16::try_from(index).ok().map(RuleIndex)
    }

    /// Rules in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether the set has no rules, so that nothing matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn meets_ports(&self, span: Span, protocol: u8, port: u16) -> bool {
        span.meets(&self.ports, |range| has_ports(protocol) && range.contains(port))
    }

    fn meets_icmp(&self, span: Span, icmp: Option<(u8, u8)>) -> bool {
        span.meets(&self.icmp, |wanted| {
            icmp.is_some_and(|(kind, code)| wanted.kind == kind && wanted.code.is_none_or(|wanted| wanted == code))
        })
    }
}
