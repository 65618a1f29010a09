//! The peers, as operators see them.

use crate::describe;
use conntrack_sync::SyncPeerStatus;
use flow::Instant;
use replication::conntrackd::FtfwStatus;

use super::Reporting;
use api::{DetectorState, NodeRole, PeerStatus, SessionState, SplitBrain};

/// A peer, as operators see it.
pub(super) fn peer_status(peer: &SyncPeerStatus, now: Instant, reporting: &Reporting) -> PeerStatus {
    let session = peer.session;
    if let Some(conntrackd) = &peer.conntrackd {
        return conntrackd_status(peer, conntrackd, now, reporting);
    }
    let is_synchronised =
        peer.is_up && peer.is_complete && session.is_none_or(|session| session.sent_all && session.received_all);
    PeerStatus {
        id: peer.id.0,
        address: reporting.peer_addresses.get(&peer.id.0).map(ToString::to_string).unwrap_or_default(),
        detector: detector(peer),
        split_brain: if peer.is_split { SplitBrain::Confirmed } else { SplitBrain::None },
        channel: describe::channel(peer.channel.as_ref()),
        session: session.map_or(SessionState::Conntrackd, |session| describe::link(session.link)),
        role: peer.role.map_or(NodeRole::Unknown, describe::sync_role),
        synchronised: is_synchronised,
        lag_ms: session.map_or(0.0, |session| session.lag(now).as_secs_f64() * 1e3),
        last_received_ns: peer.last_received_at.map(Instant::as_nanos),
        ..session.as_ref().map(describe::session).unwrap_or_default()
    }
}

/// Whether packets of the peer arrive.
const fn detector(peer: &SyncPeerStatus) -> DetectorState {
    if peer.is_up { DetectorState::Up } else { DetectorState::Down }
}

/// A conntrackd. It sends neither its role nor how far it has come.
fn conntrackd_status(peer: &SyncPeerStatus, session: &FtfwStatus, now: Instant, reporting: &Reporting) -> PeerStatus {
    let oldest = session.oldest_unacknowledged_at;
    PeerStatus {
        id: peer.id.0,
        address: reporting.peer_addresses.get(&peer.id.0).map(ToString::to_string).unwrap_or_default(),
        detector: detector(peer),
        channel: describe::channel(None),
        session: if peer.is_up { SessionState::Conntrackd } else { SessionState::Seeking },
        synchronised: session.is_synchronised(),
        lag_ms: oldest.map_or(0.0, |since| now.saturating_since(since).as_secs_f64() * 1e3),
        queued: session.queued as u64,
        in_flight: session.in_flight as u64,
        sent: session.messages_sent,
        received: session.messages_received,
        resent: session.resent,
        lost: session.missed,
        filter: None,
        last_received_ns: session.last_received_at.map(Instant::as_nanos),
        ..PeerStatus::default()
    }
}
