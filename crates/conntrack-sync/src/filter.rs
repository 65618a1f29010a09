//! Selects the connections to replicate, and the state from which on.

use alloc::vec::Vec;
use core::net::IpAddr;

use flow::netfilter::{Entry, Status, TcpState, Tuple};

use super::mirror::Record;

const TCP: u8 = 6;

/// A set of states of TCP's automaton.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpStates(u16);

impl TcpStates {
    /// From the end of the handshake to the end: the default. End points restart a connection whose handshake was
    /// interrupted.
    pub const ESTABLISHED_ON: Self = Self::of(&[
        TcpState::Established,
        TcpState::FinWait,
        TcpState::CloseWait,
        TcpState::LastAck,
        TcpState::TimeWait,
        TcpState::Close,
    ]);
    /// All of them.
    pub const ALL: Self = Self(0x3ff);

    /// These states.
    #[must_use]
    pub const fn of(states: &[TcpState]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < states.len() {
            bits |= 1 << states[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Whether the state is in the set.
    #[must_use]
    pub const fn contains(self, state: TcpState) -> bool {
        self.0 & 1 << state as u8 != 0
    }
}

/// When a connection that is not TCP is replicated first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NonTcpStart {
    /// With its first packet.
    FirstPacket,
    /// With its first reply: unanswered ones cost nothing.
    #[default]
    FirstReply,
}

/// Connections that are not replicated: those that match all stated conditions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IgnoreRule {
    /// An end point is in one of these networks: the source of the original or of the reply tuple, as conntrackd's
    /// `Address Ignore`. Translated addresses do not count, so shared addresses may be listed. Empty: no condition.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The protocol.
    pub protocol: Option<u8>,
    /// It is TCP, and its state is one of these.
    pub tcp_states: Option<TcpStates>,
    /// Its mark, in the bits of the mask.
    pub mark: Option<(u32, u32)>,
    /// The zone.
    pub zone: Option<u16>,
}

/// The compiled filter: a connection that matches no rule costs a few comparisons.
#[derive(Clone, Debug)]
pub struct SyncFilter {
    /// Rules that match a connection permanently.
    lasting: Vec<Compiled>,
    /// Rules that depend on changing fields.
    passing: Vec<Compiled>,
    tcp_states: TcpStates,
    others: NonTcpStart,
}

impl Default for SyncFilter {
    fn default() -> Self {
        Self::new(&[], TcpStates::ESTABLISHED_ON, NonTcpStart::default())
    }
}

/// A rule with its networks as sorted ranges, for binary search.
#[derive(Clone, Debug)]
struct Compiled {
    any_address: bool,
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
    protocol: Option<u8>,
    tcp_states: Option<TcpStates>,
    mark: Option<(u32, u32)>,
    zone: Option<u16>,
}

/// The fields of a connection that rules match.
struct Subject<'a> {
    original: &'a Tuple,
    reply: &'a Tuple,
    zone: u16,
    mark: u32,
    tcp_state: Option<TcpState>,
}

impl SyncFilter {
    /// Replicates connections that match none of these rules: TCP while in one of these states, others as `others`
    /// selects.
    #[must_use]
    pub fn new(ignored: &[IgnoreRule], tcp_states: TcpStates, others: NonTcpStart) -> Self {
        let is_lasting = |rule: &&IgnoreRule| rule.mark.is_none() && rule.tcp_states.is_none();
        let (lasting, passing): (Vec<_>, Vec<_>) = ignored.iter().partition(is_lasting);
        let compile = |rules: Vec<&IgnoreRule>| rules.into_iter().map(Compiled::new).collect();
        Self { lasting: compile(lasting), passing: compile(passing), tcp_states, others }
    }

    /// Whether the connection is permanently excluded.
    #[inline]
    pub(super) fn ignores(&self, entry: &Entry) -> bool {
        if self.lasting.is_empty() {
            return false;
        }
        let Entry { original, reply, zone, .. } = entry;
        let subject = Subject { original, reply, zone: *zone, mark: 0, tcp_state: None };
        self.lasting.iter().any(|rule| rule.matches(&subject))
    }

    /// Whether the connection in its present state is to be replicated.
    #[inline]
    pub(super) fn is_worth_replicating(&self, record: &Record) -> bool {
        let tcp_state = record.tcp_state();
        let is_far_enough = match (tcp_state, self.others) {
            (Some(state), _) => self.tcp_states.contains(state),
            (None, NonTcpStart::FirstPacket) => true,
            (None, NonTcpStart::FirstReply) => record.status().contains(Status::SEEN_REPLY),
        };
        is_far_enough && (self.passing.is_empty() || !self.ignores_now(record, tcp_state))
    }

    /// Whether the connection has no reply yet, and no rule excludes it.
    pub(super) fn awaits_reply(&self, record: &Record) -> bool {
        record.protocol() != TCP && !record.status().contains(Status::SEEN_REPLY) && !self.ignores_now(record, None)
    }

    /// Whether a rule excludes the connection in its present state.
    pub(super) fn excludes(&self, entry: &Entry) -> bool {
        let Entry { original, reply, zone, mark, .. } = entry;
        let tcp_state = entry.tcp().map(|info| info.state);
        let subject = Subject { original, reply, zone: *zone, mark: mark.unwrap_or(0), tcp_state };
        self.lasting.iter().chain(&self.passing).any(|rule| rule.matches(&subject))
    }

    fn ignores_now(&self, record: &Record, tcp_state: Option<TcpState>) -> bool {
        let (original, reply) = (record.original(), record.reply());
        let subject =
            Subject { original: &original, reply: &reply, zone: record.zone(), mark: record.mark(), tcp_state };
        self.passing.iter().any(|rule| rule.matches(&subject))
    }
}

impl Compiled {
    fn new(rule: &IgnoreRule) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (address, prefix_bits) in &rule.addresses {
            match address {
                IpAddr::V4(address) => {
                    let host_bits = u32::MAX.checked_shr(u32::from(*prefix_bits)).unwrap_or(0);
                    v4.push((u32::from(*address) & !host_bits, u32::from(*address) | host_bits));
                }
                IpAddr::V6(address) => {
                    let host_bits = u128::MAX.checked_shr(u32::from(*prefix_bits)).unwrap_or(0);
                    v6.push((u128::from(*address) & !host_bits, u128::from(*address) | host_bits));
                }
            }
        }
        Self {
            any_address: rule.addresses.is_empty(),
            v4: joined(v4),
            v6: joined(v6),
            protocol: rule.protocol,
            tcp_states: rule.tcp_states,
            mark: rule.mark,
            zone: rule.zone,
        }
    }

    fn matches(&self, subject: &Subject<'_>) -> bool {
        self.protocol.is_none_or(|protocol| protocol == subject.original.protocol)
            && self.zone.is_none_or(|zone| zone == subject.zone)
            && self.mark.is_none_or(|(mark, mask)| subject.mark & mask == mark & mask)
            && self.tcp_states.is_none_or(|states| subject.tcp_state.is_some_and(|state| states.contains(state)))
            && (self.any_address || self.has_address_of(subject))
    }

    fn has_address_of(&self, subject: &Subject<'_>) -> bool {
        let Subject { original, reply, .. } = subject;
        [original.source, reply.source].into_iter().any(|address| match address {
            IpAddr::V4(address) => is_within(&self.v4, u32::from(address)),
            IpAddr::V6(address) => is_within(&self.v6, u128::from(address)),
        })
    }
}

/// Sorts ranges and merges overlapping ones.
fn joined<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut joined: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

fn is_within<T: Ord>(ranges: &[(T, T)], value: T) -> bool {
    let above = ranges.partition_point(|(first, _)| *first <= value);
    above > 0 && value <= ranges[above - 1].1
}

#[cfg(test)]
mod tests;
