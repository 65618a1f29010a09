//! `replication.transport`, and what does not go with each.

use std::collections::HashSet;
use std::net::IpAddr;

use replication::Transport;

use super::super::diagnostic::{Findings, Mistake};
use super::super::raw::RawReplication;
use super::super::validated::Replication;
use super::one_of;

/// The transport, and a warning if it is one that nobody should rely on.
pub(super) fn transport(raw: &RawReplication, findings: &mut Findings<'_>) -> Transport {
    let Some(text) = &raw.transport else { return Transport::default() };
    let transport = one_of("replication.transport", text, &Transport::ALL, findings).unwrap_or_default();
    if transport != Transport::Native {
        let mistake = Mistake::new(
            format!("replication over plain {} loses connections that the native protocol saves", transport.name()),
            "this is for comparison: remove it in production",
        );
        findings.warning(text.span(), "replication.transport", mistake);
    }
    transport
}

/// Finds settings that the transport cannot honour.
pub(super) fn check(raw: &RawReplication, replication: &Replication, findings: &mut Findings<'_>) {
    let transport = replication.transport;
    if transport == Transport::Native {
        return;
    }
    if let Some(text) = raw.hold_first_reply.as_ref().filter(|_| !replication.hold_first_reply.is_zero()) {
        let mistake = Mistake::new(
            format!("a first reply cannot wait for a confirmation that transport \"{}\" never gives", transport.name()),
            "remove hold_first_reply, or use the native transport",
        );
        findings.error(text.span(), "replication.hold_first_reply", mistake);
    }
    if transport != Transport::Tcp {
        return;
    }
    if let Some(loss) = raw.test_loss.as_ref().filter(|_| replication.test_loss > 0.0) {
        let mistake = Mistake::new(
            "what is thrown away are datagrams, and connections are told over TCP",
            "remove test_loss, and have the link lose packets (mainstay link)",
        );
        findings.error(loss.span(), "replication.test_loss", mistake);
    }
    if let Some(text) = raw.transport.as_ref().filter(|_| replication.security.is_some()) {
        let mistake = Mistake::new(
            "what is secured are datagrams, and connections would be told over TCP in the clear",
            "use the native transport, or remove [replication.security]",
        );
        findings.error(text.span(), "replication.transport", mistake);
    }
    let addresses: HashSet<IpAddr> = replication.peers.iter().map(|peer| peer.address.ip()).collect();
    if let Some(text) = raw.transport.as_ref().filter(|_| addresses.len() < replication.peers.len()) {
        let mistake = Mistake::new(
            "two peers have one IP address, and streams are told apart by it",
            "give each peer an address of its own, or use the native transport",
        );
        findings.error(text.span(), "replication.transport", mistake);
    }
}
