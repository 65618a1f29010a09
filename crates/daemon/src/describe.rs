//! The node's state in the terms of the control API.

use api::channel_status::{ChannelStatus, RefusedCount};
use api::mirror::{MirroredCache, RedundancyMirror};
use api::redundancy::{BypassCount, RedundancyReceived, RedundancySent};
use api::{
    AntiEntropy, ClassStatus, DetectorState, FastPathStatus, LazyStatus, MemberState, NodeRole, OutcomeCount,
    PeerStatus, RedundancyStatus, SessionState, StateServiceStatus,
};
use cluster::failure_detector;
use cluster::pipeline::{self, ClassTraffic, LookupDrop};
use cluster::role::State;
use conntrack_sync::SyncRole;
use flow::Instant;
use network_functions::class::Class;
use replication::secure::Refusal;
use replication::{Link, SessionStatus};
use tunnel::mirror::MirrorStatus;
use tunnel::{Bypass, TunnelStatus};

/// The role in the control API.
pub(crate) const fn role(state: State) -> NodeRole {
    match state {
        State::Init => NodeRole::Init,
        State::Standby => NodeRole::Standby,
        State::TakingOver => NodeRole::TakingOver,
        State::Active => NodeRole::Active,
        State::Leaving => NodeRole::Leaving,
        State::Left => NodeRole::Drained,
    }
}

/// The state of failure detection in the control API.
pub(crate) const fn detector(state: failure_detector::State) -> DetectorState {
    match state {
        failure_detector::State::AdminDown => DetectorState::AdminDown,
        failure_detector::State::Down => DetectorState::Down,
        failure_detector::State::Init => DetectorState::Init,
        failure_detector::State::Up => DetectorState::Up,
    }
}

/// A member's state in the control API.
pub(crate) const fn member_state(state: membership::MemberState) -> MemberState {
    match state {
        membership::MemberState::Active => MemberState::Active,
        membership::MemberState::Draining => MemberState::Draining,
        membership::MemberState::Left => MemberState::Left,
    }
}

/// The role of a node of `mainstay sync`.
pub(crate) const fn sync_role(role: SyncRole) -> NodeRole {
    match role {
        SyncRole::Primary => NodeRole::Primary,
        SyncRole::Backup => NodeRole::Backup,
        SyncRole::Fault => NodeRole::Fault,
    }
}

/// A fingerprint as people compare it.
pub(crate) fn fingerprint(fingerprint: u64) -> String {
    format!("{fingerprint:016x}")
}

/// How a channel is secured; `None`: there is none, and all is plain text.
pub(crate) fn channel(channel: Option<&replication::secure::ChannelStatus>) -> ChannelStatus {
    let Some(channel) = channel else {
        return ChannelStatus { secured_by: "plain".into(), ..ChannelStatus::default() };
    };
    let keys = channel.keys.as_ref();
    let parts = keys.map(|keys| {
        let certificate = keys.peer_name.as_ref().map(|name| format!("certificate {name}"));
        let key = keys.key.map(|key| format!("pre-shared key {key}"));
        certificate.into_iter().chain(key).collect::<Vec<_>>().join(" and ")
    });
    let refused = Refusal::ALL.iter().zip(channel.refused).filter(|(_, datagrams)| *datagrams > 0);
    ChannelStatus {
        secured_by: parts.unwrap_or_else(|| "establishing".into()),
        keys_since_ns: keys.map(|keys| Instant::as_nanos(keys.since)),
        handshakes: channel.handshakes,
        refused: refused.map(|(reason, datagrams)| RefusedCount { reason: reason.label().into(), datagrams }).collect(),
    }
}

/// The state of a node's lazy insertion.
pub(crate) fn lazy(status: &replication::deferral::DeferralStatus) -> LazyStatus {
    LazyStatus {
        threshold_ms: status.threshold.as_secs_f64() * 1e3,
        level: status.level,
        levels: status.levels,
        utilisation: status.utilisation_per_mille.map(|per_mille| f64::from(per_mille) / 1e3),
        deferred: status.deferred.into(),
        never_replicated: status.never_replicated,
        replicated_late: status.replicated_late,
        replicated_at_once: status.replicated_at_once,
    }
}

/// The state service. Reasons without dropped packets are left out.
pub(crate) fn state_service(status: &pipeline::StateServiceStatus) -> StateServiceStatus {
    let lookup = &status.lookup;
    let dropped = LookupDrop::ALL.map(LookupDrop::label).into_iter().zip(lookup.dropped);
    StateServiceStatus {
        peers: status.peers.into(),
        indexes: status.indexes.into(),
        unindexed: status.unindexed as u64,
        waiting: status.waiting as u64,
        pulls: lookup.pulls,
        pulled: lookup.pulled,
        pulls_failed: lookup.pulls_failed,
        false_positives: lookup.not_held,
        handed_over: lookup.handed_over,
        queries: lookup.queries,
        index_requests: lookup.index_requests,
        gaps: lookup.gaps,
        sent_messages: status.sent,
        sent_bytes: status.sent_bytes,
        received_messages: status.received,
        received_bytes: status.received_bytes,
        refused_messages: lookup.transmits_refused,
        dropped: dropped
            .filter(|(_, packets)| *packets > 0)
            .map(|(name, packets)| (name.to_owned(), packets))
            .collect(),
    }
}

/// The fast path. Outcomes without packets are left out.
pub(crate) fn fast_path(status: &pipeline::FastPathStatus) -> FastPathStatus {
    let occurred = status.outcomes.iter().filter(|(_, packets)| *packets > 0);
    let outcomes =
        occurred.map(|(outcome, packets)| OutcomeCount { outcome: (*outcome).to_owned(), packets: *packets });
    FastPathStatus {
        forwarding: status.is_enabled,
        hook: status.hook.name().to_owned(),
        hook_reason: status.hook_reason.clone(),
        connections: status.connections.into(),
        packets: status.packets,
        bytes: status.bytes,
        full: status.full,
        refused: status.refused,
        outcomes: outcomes.collect(),
    }
}

/// What a session counts, in the words of the control API; all else of the peer is left out.
pub(crate) fn session(session: &SessionStatus) -> PeerStatus {
    PeerStatus {
        rtt_ms: session.round_trip.map(|time| time.as_secs_f64() * 1e3),
        queued: session.queued as u64,
        uncovered: session.uncovered.into(),
        in_flight: session.in_flight.into(),
        sent: session.messages_sent,
        received: session.messages_received,
        resent: session.resent,
        lost: session.missed,
        anti_entropy: anti_entropy(&session.anti_entropy),
        ..PeerStatus::default()
    }
}

/// How far a session's link is.
pub(crate) const fn link(link: Link) -> SessionState {
    match link {
        Link::Seeking => SessionState::Seeking,
        Link::Open => SessionState::Open,
        Link::Closed => SessionState::Closed,
    }
}

/// The state of the comparison of replicas.
fn anti_entropy(status: &replication::AntiEntropyStatus) -> AntiEntropy {
    AntiEntropy {
        agreed_ns: status.agreed_at.map(Instant::as_nanos),
        divergent: status.divergent.into(),
        rounds: status.rounds_compared,
        found: status.divergent_found,
        repaired: status.repaired,
        extra_removed: status.extra_removed,
        unnoted_changes: status.unnoted_changes,
    }
}

/// The tunnel to another site.
pub(crate) fn tunnel(status: &TunnelStatus) -> RedundancyStatus {
    let counters = &status.counters;
    let bypassed = Bypass::ALL.iter().zip(counters.bypassed).filter(|(_, packets)| *packets > 0);
    let bypassed = bypassed.map(|(reason, packets)| BypassCount { reason: reason.label().to_owned(), packets });
    RedundancyStatus {
        bypass: status.bypass.map(|bypass| bypass.label().to_owned()),
        encrypted: status.is_sealed,
        round_trip_ms: status.round_trip.map(|round_trip| round_trip.as_secs_f64() * 1e3),
        datagram_bytes: status.datagram_bytes,
        period_bytes: status.period.bytes() as u64,
        memory_bytes: status.memory_bytes as u64,
        sessions: counters.sessions,
        sent: RedundancySent {
            packets: counters.packets_in,
            packet_bytes: counters.bytes_in,
            datagram_bytes: counters.bytes_out,
            saved_bytes: counters.bytes_saved(),
            matched_bytes: counters.encoder.bytes_matched,
            datagrams: counters.sender.datagrams,
            datagrams_retransmitted: counters.sender.datagrams_retransmitted,
            datagrams_copied: counters.sender.datagrams_copied,
            datagrams_given_up: counters.sender.datagrams_given_up,
            header_bytes_saved: counters.header_bytes_saved,
            second_stage_bytes_saved: counters.bundled_bytes_in.saturating_sub(counters.bundled_bytes_out),
            repaired: counters.encoder.granules_filled,
            backlog_drops: counters.backlog_drops,
            bypassed: bypassed.collect(),
        },
        received: RedundancyReceived {
            packets: counters.packets_restored,
            packet_bytes: counters.bytes_restored,
            datagram_bytes: counters.bytes_received,
            datagrams: counters.receiver.datagrams,
            datagrams_recovered: counters.receiver.datagrams_recovered,
            datagrams_lost: counters.receiver.datagrams_lost,
            datagrams_refused: counters.refused,
            misses: counters.decoder.blocks_waited,
            repaired: counters.decoder.granules_filled,
            abandoned: counters.decoder.blocks_abandoned + counters.restored_drops,
            broken: counters.broken,
        },
        mirror: status.mirror.as_ref().map(|mirror| mirrors(mirror)),
    }
}

/// The mirrors of its caches.
fn mirrors(status: &MirrorStatus) -> RedundancyMirror {
    let counters = &status.counters;
    let cache = |[held_bytes, bytes]: [u64; 2]| MirroredCache { held_bytes, bytes };
    RedundancyMirror {
        followers: status.followers as u64,
        follows: status.leader.map(|leader| leader.0),
        sent: cache(status.sent_bytes),
        received: cache(status.received_bytes),
        sent_bytes: counters.bytes_sent,
        blocks: counters.blocks_passed,
        blocks_left_out: counters.blocks_left_out,
        pieces_given: counters.granules_given,
        received_bytes: counters.bytes_received,
        blocks_received: counters.blocks_received,
        blocks_missed: status.blocks_missed,
        pieces_taken: counters.granules_given_here,
        caches_taken_over: counters.caches_taken_over,
    }
}

/// The traffic classes of a table with `connections` connections.
pub(crate) fn classes(traffic: &[ClassTraffic; Class::COUNT], connections: u32) -> Vec<ClassStatus> {
    let known: u64 = traffic.iter().map(|of_class| of_class.connections).sum();
    let status = |(class, of_class): (Class, &ClassTraffic)| ClassStatus {
        name: class.label().to_owned(),
        connections: match class {
            Class::Unknown => u64::from(connections).saturating_sub(known),
            _ => of_class.connections,
        },
        packets: of_class.packets,
        bytes: of_class.bytes,
    };
    Class::ALL.into_iter().zip(traffic).map(status).collect()
}
