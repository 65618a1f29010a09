//! The kernel's connections as operators see them.

use std::net::SocketAddr;

use flow::key;
use flow::netfilter::{Entry, Status, Tuple};
use flow::{ConnectionRole, NodeId};

use api::{BothWays, Ends, Flow};
use config::value::protocol_name;
use control::FlowFilter;
use control::flows::{ends, role_name};

/// A connection as it lies in the mirror table.
pub(super) struct Known<'a> {
    /// What the kernel, or a peer, said of it.
    pub(super) entry: &'a Entry,
    /// The node whose kernel sees its packets.
    pub(super) owner: NodeId,
    /// Counts its changes.
    pub(super) version: u32,
}

impl Known<'_> {
    fn role(&self, node: NodeId) -> ConnectionRole {
        if self.owner == node { ConnectionRole::Owner } else { ConnectionRole::Replica }
    }

    /// Describes it for an operator of the node, if it meets the conditions.
    pub(super) fn describe(&self, node: NodeId, filter: &FlowFilter) -> Option<Flow> {
        let Entry { original, reply, .. } = self.entry;
        let outgoing = reply.inverse();
        let state = state(self.entry);
        let role = self.role(node);
        filter.matches_described(&[as_key(original), as_key(&outgoing)], state, role).then(|| Flow {
            protocol: protocol_name(original.protocol),
            state: state.to_owned(),
            role: role_name(role).to_owned(),
            owner: self.owner.0,
            original: ends_of(original),
            translated: (outgoing != *original).then(|| ends_of(&outgoing)),
            uncounted: true,
            packets: BothWays { original: 0, reply: 0 },
            bytes: BothWays { original: 0, reply: 0 },
            replied: self.has(Status::SEEN_REPLY),
            assured: self.has(Status::ASSURED),
            expires_s: self.entry.timeout_s.unwrap_or_default().into(),
            age_s: 0.0,
            egress: None,
            version: self.version,
            related_to: self
                .entry
                .extra
                .as_ref()
                .and_then(|extra| extra.master.as_ref())
                .map(|master| Box::new(ends_of(master))),
            path: None,
            hook: None,
            gateway_reason: None,
            class: None,
        })
    }

    fn has(&self, bits: Status) -> bool {
        self.entry.status.is_some_and(|status| status.contains(bits))
    }
}

/// The name of its state: TCP's, as conntrack(8) calls it, and whether others were answered.
fn state(entry: &Entry) -> &'static str {
    match entry.tcp() {
        Some(info) => info.state.name(),
        None if entry.status.is_some_and(|status| status.contains(Status::SEEN_REPLY)) => "REPLIED",
        None => "UNREPLIED",
    }
}

/// The tuple as the gateway's filters know it.
fn as_key(tuple: &Tuple) -> key::Tuple {
    let (source, destination) = tuple.ports();
    key::Tuple::new(
        tuple.protocol,
        SocketAddr::new(tuple.source, source),
        SocketAddr::new(tuple.destination, destination),
    )
}

fn ends_of(tuple: &Tuple) -> Ends {
    ends(&as_key(tuple))
}

#[cfg(test)]
mod tests {
    use flow::netfilter::{Discriminator, ProtocolInfo, TcpInfo, TcpState};

    use super::*;
    use api::FlowFilterText;

    fn translated_connection() -> Entry {
        let ports = |source, destination| Discriminator::Ports { source, destination };
        let address = |text: &str| text.parse().expect("an address");
        let original = Tuple {
            source: address("10.0.0.5"),
            destination: address("198.51.100.80"),
            protocol: 6,
            discriminator: ports(40_000, 443),
        };
        let reply = Tuple {
            source: address("198.51.100.80"),
            destination: address("192.0.2.10"),
            protocol: 6,
            discriminator: ports(443, 1234),
        };
        Entry {
            status: Some(Status::SEEN_REPLY.union(Status::ASSURED)),
            timeout_s: Some(432_000),
            protocol_info: Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::Established, sides: None })),
            ..Entry::new(original, reply)
        }
    }

    #[test]
    fn a_translated_connection_is_described_as_a_gateways() {
        let entry = translated_connection();
        let known = Known { entry: &entry, owner: NodeId(1), version: 3 };
        let flow = known.describe(NodeId(0), &FlowFilter::default()).expect("nothing is left out");
        assert_eq!((flow.protocol.as_str(), flow.state.as_str(), flow.role.as_str()), ("tcp", "ESTABLISHED", "backup"));
        assert_eq!(flow.original.source, "10.0.0.5:40000");
        let translated = flow.translated.clone().expect("its source is");
        assert_eq!(
            (translated.source.as_str(), translated.destination.as_str()),
            ("192.0.2.10:1234", "198.51.100.80:443")
        );
        assert!(flow.replied && flow.assured && flow.owner == 1 && flow.uncounted);
    }

    #[test]
    fn conditions_hold_before_or_after_translation() {
        let entry = translated_connection();
        let known = Known { entry: &entry, owner: NodeId(0), version: 1 };
        let is_found = |text: FlowFilterText| {
            known.describe(NodeId(0), &FlowFilter::parse(&text).expect("it can be read")).is_some()
        };
        let none = FlowFilterText::default;
        assert!(is_found(FlowFilterText { source: Some("192.0.2.10".into()), ..none() }));
        assert!(is_found(FlowFilterText { source: Some("10.0.0.0/8".into()), ..none() }));
        assert!(is_found(FlowFilterText { state: Some("established".into()), role: Some("master".into()), ..none() }));
        assert!(!is_found(FlowFilterText { protocol: Some("udp".into()), ..none() }));
        assert!(!is_found(FlowFilterText { role: Some("backup".into()), ..none() }));
        assert!(!is_found(FlowFilterText { port: Some(80), ..none() }));
    }
}
