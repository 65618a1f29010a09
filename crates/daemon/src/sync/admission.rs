//! `[filter]` in the terms of those who apply it: the kernel, which suppresses events; the node, which decides what is
//! replicated; and, for what neither knows, the daemon between them.

use conntrack_sync::{IgnoreRule, NonTcpStart, SyncFilter, TcpStates};
use flow::netfilter::{Entry, TcpState};
use packet_io::ctnetlink::{EventFilter, filter};
use packet_io::netlink;

use config::sync::validated::{Events, Filter, Ignore, Others, TCP_HANDSHAKE};
use config::value::Prefix;

/// Connections that are of interest at all: the lists of which one entry has to fit.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    protocols: Option<Vec<u8>>,
    addresses: Option<Vec<Prefix>>,
}

impl Admission {
    pub(super) fn new(filter: &Filter) -> Self {
        Self { protocols: filter.protocols.clone(), addresses: filter.addresses.clone() }
    }

    /// Whether the connection is of a protocol that is of interest.
    #[inline]
    pub(super) fn admits_protocol(&self, entry: &Entry) -> bool {
        self.protocols.as_ref().is_none_or(|protocols| protocols.contains(&entry.original.protocol))
    }

    /// Whether the connection is of interest.
    #[inline]
    pub(super) fn admits(&self, entry: &Entry) -> bool {
        self.admits_protocol(entry) && self.addresses.as_ref().is_none_or(|prefixes| lies_in_any(entry, prefixes))
    }
}

/// Whether an end of either direction lies in one of the networks.
fn lies_in_any(entry: &Entry, prefixes: &[Prefix]) -> bool {
    let Entry { original, reply, .. } = entry;
    let ends = [original.source, original.destination, reply.source, reply.destination];
    ends.into_iter().any(|end| prefixes.iter().any(|prefix| prefix.contains(&end)))
}

/// The states that a connection is in when its closing packet has passed: with few events, nothing else is known of its end
/// until the kernel forgets it.
const CLOSING: [TcpState; 3] = [TcpState::FinWait, TcpState::LastAck, TcpState::Close];

/// What the node is to replicate. Where the kernel makes few events, the end of an established connection is replicated
/// whatever states are listed, or the replica would stay established.
pub(super) fn node_filter(filter: &Filter, events: Events) -> SyncFilter {
    let ignored: Vec<IgnoreRule> = filter.ignore.iter().map(rule).collect();
    let others = match filter.others {
        Others::Replied => NonTcpStart::FirstReply,
        Others::Begun => NonTcpStart::FirstPacket,
    };
    let mut states = filter.tcp_states.clone();
    if events == Events::Lean && states.contains(&TcpState::Established) {
        states.extend(CLOSING);
    }
    SyncFilter::new(&ignored, TcpStates::of(&states), others)
}

fn rule(ignore: &Ignore) -> IgnoreRule {
    IgnoreRule {
        addresses: ignore.addresses.iter().map(|prefix| (prefix.addr(), prefix.prefix_len())).collect(),
        protocol: ignore.protocol,
        tcp_states: (!ignore.states.is_empty()).then(|| TcpStates::of(&ignore.states)),
        mark: ignore.mark.map(|mark| (mark.value, mark.mask)),
        zone: ignore.zone,
    }
}

/// What the kernel is to keep away. It reads less than the node does, for what it lets through the node looks at again: only
/// rules that hold for a connection from its beginning to its end go to it, lest the end of a replicated connection is missed.
pub(super) fn kernel_filter(filter: &Filter) -> EventFilter {
    let is_lasting = |ignore: &&Ignore| ignore.states.is_empty() && ignore.mark.is_none();
    let ignore = filter.ignore.iter().filter(is_lasting).map(|ignore| filter::Ignore {
        addresses: ignore
            .addresses
            .iter()
            .map(|prefix| netlink::Prefix::new(prefix.addr(), prefix.prefix_len()))
            .collect(),
        protocol: ignore.protocol,
        tcp_states: None,
        mark: None,
        zone: ignore.zone,
    });
    EventFilter {
        ignore: ignore.collect(),
        tcp_states: kept_states(filter).map(|states| states.into_iter().collect()),
        protocols: filter.protocols.clone(),
        programs: Vec::new(),
    }
}

/// States of TCP whose events the node needs: all, or those after the handshake. Every change of a replicated connection
/// is of interest, even one that is not replicated.
fn kept_states(filter: &Filter) -> Option<Vec<TcpState>> {
    let is_later = |state: &TcpState| !TCP_HANDSHAKE.contains(state);
    (!filter.replicates_handshakes()).then(|| TcpState::ALL.into_iter().filter(is_later).collect())
}

#[cfg(test)]
mod tests {
    use flow::netfilter::{Discriminator, ProtocolInfo, TcpInfo, Tuple};
    use packet_io::ctnetlink::{Cause, Event};

    use super::*;
    use config::sync::validated::Mark;

    fn entry(source: &str, destination: &str, protocol: u8, state: Option<TcpState>) -> Entry {
        let original = Tuple {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            protocol,
            discriminator: Discriminator::Ports { source: 1000, destination: 80 },
        };
        let protocol_info = state.map(|state| ProtocolInfo::Tcp(TcpInfo { state, sides: None }));
        Entry { protocol_info, ..Entry::new(original, original.inverse()) }
    }

    fn prefix(text: &str) -> Prefix {
        config::value::parse_prefix(text).expect("a prefix")
    }

    #[test]
    fn only_what_is_named_is_of_interest() {
        let filter = Filter {
            protocols: Some(vec![6]),
            addresses: Some(vec![prefix("10.0.0.0/8"), prefix("fd00::/8")]),
            ..Filter::default()
        };
        let admission = Admission::new(&filter);
        assert!(admission.admits(&entry("10.1.2.3", "198.51.100.1", 6, None)));
        assert!(admission.admits(&entry("2001:db8::1", "fd00::1", 6, None)));
        assert!(!admission.admits(&entry("10.1.2.3", "198.51.100.1", 17, None)));
        assert!(!admission.admits(&entry("192.0.2.1", "198.51.100.1", 6, None)));
        assert!(Admission::default().admits(&entry("192.0.2.1", "198.51.100.1", 17, None)));
    }

    #[test]
    fn the_kernel_suppresses_what_is_never_replicated() {
        let ignore = |addresses: &[&str], states: Vec<TcpState>, mark| Ignore {
            addresses: addresses.iter().map(|text| prefix(text)).collect(),
            protocol: None,
            states,
            mark,
            zone: None,
        };
        let filter = Filter {
            ignore: vec![
                ignore(&["127.0.0.0/8"], Vec::new(), None),
                ignore(&["10.0.0.0/8"], vec![TcpState::TimeWait], None),
                ignore(&[], Vec::new(), Some(Mark { value: 1, mask: 1 })),
            ],
            ..Filter::default()
        };
        let kernel = kernel_filter(&filter);
        let passes = |entry: &Entry| kernel.passes(Cause::Packets, &Event::Changed(entry.clone()));
        let established = Some(TcpState::Established);
        assert!(!passes(&entry("127.0.0.1", "127.0.0.1", 6, established)));
        assert!(!passes(&entry("10.0.0.1", "192.0.2.1", 6, Some(TcpState::SynSent))), "its handshake may still fail");
        assert!(passes(&entry("10.0.0.1", "192.0.2.1", 6, established)));
        // The node has replicated it, and must see that it no longer is.
        assert!(passes(&entry("10.0.0.1", "192.0.2.1", 6, Some(TcpState::TimeWait))));
        assert!(passes(&Entry { mark: Some(1), ..entry("192.0.2.9", "192.0.2.1", 17, None) }));
        assert_eq!(
            kernel_filter(&Filter { tcp_states: vec![TcpState::SynSent], ..Filter::default() }).tcp_states,
            None
        );
    }
}
