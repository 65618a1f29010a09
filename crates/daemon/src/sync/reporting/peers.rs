//! The peers, as operators see them.

use crate::describe;
use conntrack_sync::{SyncPeerStatus, SyncRole};
use flow::Instant;
use replication::Link;
use replication::conntrackd::FtfwStatus;

use super::Reporting;
use api::{Agreement, PeerStatus};

/// A peer, as operators see it.
pub(super) fn peer_status(peer: &SyncPeerStatus, now: Instant, reporting: &Reporting) -> PeerStatus {
    let session = peer.session;
    if let Some(conntrackd) = &peer.conntrackd {
        return conntrackd_status(peer, conntrackd, now, reporting);
    }
    let is_synchronised =
        peer.is_up && peer.has_told_all && session.is_none_or(|session| session.told && session.heard);
    PeerStatus {
        id: peer.id.0,
        address: reporting.peer_addresses.get(&peer.id.0).map(ToString::to_string).unwrap_or_default(),
        detector: if peer.is_up { "up" } else { "down" }.to_owned(),
        paths: Vec::new(),
        split_brain: if peer.is_split { "confirmed" } else { "none" }.to_owned(),
        channel: describe::channel(peer.channel.as_ref()),
        session: match session.map(|session| session.link) {
            None => "conntrackd",
            Some(Link::Seeking) => "seeking",
            Some(Link::Open) => "open",
            Some(Link::Closed) => "closed",
        }
        .to_owned(),
        role: peer.role.map_or("unknown", SyncRole::name).to_owned(),
        holds: Vec::new(),
        configuration: None,
        synchronised: is_synchronised,
        lag_ms: session.map_or(0.0, |session| session.lag(now).as_secs_f64() * 1e3),
        rtt_ms: session.and_then(|session| session.round_trip).map(|time| time.as_secs_f64() * 1e3),
        queued: session.map_or(0, |session| session.queued as u64),
        in_flight: session.map_or(0, |session| session.in_flight.into()),
        sent: session.map_or(0, |session| session.messages_sent),
        received: session.map_or(0, |session| session.messages_received),
        resent: session.map_or(0, |session| session.resent),
        lost: session.map_or(0, |session| session.missed),
        agreement: session.map_or_else(Agreement::default, |session| describe::agreement(&session.agreement)),
        filter: None,
        last_heard_ns: peer.last_heard.map(Instant::as_nanos),
    }
}

/// A conntrackd, which says neither what it is nor how far it has come.
fn conntrackd_status(peer: &SyncPeerStatus, session: &FtfwStatus, now: Instant, reporting: &Reporting) -> PeerStatus {
    let oldest = session.oldest_unacknowledged_at;
    PeerStatus {
        id: peer.id.0,
        address: reporting.peer_addresses.get(&peer.id.0).map(ToString::to_string).unwrap_or_default(),
        detector: if peer.is_up { "up" } else { "down" }.to_owned(),
        channel: describe::channel(None),
        session: if peer.is_up { "conntrackd" } else { "seeking" }.to_owned(),
        role: "unknown".to_owned(),
        synchronised: session.is_synchronised(),
        lag_ms: oldest.map_or(0.0, |since| now.saturating_since(since).as_secs_f64() * 1e3),
        queued: session.queued as u64,
        in_flight: session.in_flight as u64,
        sent: session.messages_sent,
        received: session.messages_received,
        resent: session.resent,
        lost: session.missed,
        filter: None,
        last_heard_ns: session.last_heard.map(Instant::as_nanos),
        ..PeerStatus::default()
    }
}
