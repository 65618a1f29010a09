//! The values of the catalogue's metrics, from a status and from what the data path measured.

use api::metrics::{Metric, Samples};
use api::mirror::RedundancyMirror;
use api::{
    AntiEntropy, ChannelStatus, EdgeStatus, FilterStatus, MembershipStatus, PeerStatus, RateLimitStatus,
    RedundancyStatus, ServiceStatus, StateServiceStatus, Status, SynProxyStatus, SyncStatus, UrlFilterStatus,
    UrlServerStatus,
};
use cluster::observation::{HISTOGRAM_BOUNDS_NS, Histogram, Latencies};
use flow::DropReason;
use replication::secure::Refusal;
use tunnel::Bypass;

/// Adds all of a status: every port, peer and drop reason (also those that never occurred, so that a
/// query for a rate has a zero to start from).
pub fn add_status(samples: &mut Samples, status: &Status) {
    samples.add(Metric::BuildInfo, &[&status.program_version], 1.0);
    samples.add(Metric::Uptime, &[], status.uptime_s);
    samples.add_flag(Metric::NodeActive, &[], matches!(status.node.role.as_str(), "active" | "primary"));
    for group in &status.node.groups {
        samples.add_flag(Metric::GroupActive, &[&group.name], group.role == "active");
    }
    samples.add_flag(Metric::TakeoverReady, &[], status.takeover.ready);
    samples.add_count(Metric::Connections, &[], status.connections.count);
    samples.add_count(Metric::ConnectionsMax, &[], status.connections.max);
    samples.add_count(Metric::ConnectionsUnanswered, &[], status.connections.unanswered);
    if let Some(lazy) = &status.lazy {
        samples.add(Metric::LazyThreshold, &[], lazy.threshold_ms / 1e3);
        samples.add_count(Metric::LazyLevel, &[], lazy.level.into());
        samples.add(Metric::LazyUtilisation, &[], lazy.utilisation.unwrap_or_default());
        samples.add_count(Metric::ConnectionsDeferred, &[], lazy.deferred);
        samples.add_count(Metric::ConnectionsNeverReplicated, &[], lazy.never_replicated);
        samples.add_count(Metric::ConnectionsReplicatedLate, &[], lazy.replicated_late);
    }
    if let Some(segments) = &status.segments {
        samples.add_count(Metric::SegmentsHeld, &["own"], segments.own);
        samples.add_count(Metric::SegmentsHeld, &["peers"], segments.of_peers);
        samples.add_count(Metric::SegmentsHeldTotal, &[], segments.held);
        samples.add_count(Metric::SegmentsEvicted, &[], segments.evicted);
        samples.add_count(Metric::SegmentsUnholdable, &[], segments.unholdable);
        samples.add_count(Metric::SegmentMessages, &["sent"], segments.sent_messages);
        samples.add_count(Metric::SegmentMessages, &["received"], segments.received);
        samples.add_count(Metric::SegmentMessages, &["refused"], segments.refused);
        samples.add_count(Metric::SegmentBytes, &[], segments.sent_bytes);
        samples.add_count(Metric::SegmentsResent, &["syn"], segments.resent_syns);
        samples.add_count(Metric::SegmentsResent, &["segment"], segments.resent_segments);
    }
    if let Some(fast_path) = &status.fast_path {
        samples.add_count(Metric::FastPathConnections, &[], fast_path.connections);
        samples.add_count(Metric::FastPathHook, &[&fast_path.hook], 1);
        samples.add_count(Metric::FastPathBytes, &[], fast_path.bytes);
        samples.add_count(Metric::FastPathInstallationsRefused, &["full"], fast_path.full);
        samples.add_count(Metric::FastPathInstallationsRefused, &["other"], fast_path.refused);
        for outcome in &fast_path.outcomes {
            samples.add_count(Metric::FastPathPackets, &[&outcome.outcome], outcome.packets);
        }
    }
    for port in &status.ports {
        let labels = [port.name.as_str()];
        samples.add_count(Metric::PacketsReceived, &labels, port.received_packets);
        samples.add_count(Metric::BytesReceived, &labels, port.received_bytes);
        samples.add_count(Metric::PacketsSent, &labels, port.sent_packets);
        samples.add_count(Metric::BytesSent, &labels, port.sent_bytes);
        samples.add_count(Metric::PacketsMissed, &labels, port.missed_packets);
        if let Some(up) = port.up {
            samples.add_flag(Metric::PortUp, &labels, up);
        }
    }
    for hop in &status.next_hops {
        samples.add_flag(Metric::NextHopUp, &[&hop.port, &hop.address], hop.state == "reached");
    }
    for reason in DropReason::ALL {
        let found = status.drops.iter().find(|drop| drop.reason == reason.label());
        samples.add_count(Metric::PacketsDropped, &[reason.label()], found.map_or(0, |drop| drop.packets));
    }
    for worker in &status.workers {
        let number = worker.number.to_string();
        let labels = [number.as_str()];
        samples.add_count(Metric::WorkerConnections, &labels, worker.connections);
        samples.add(Metric::WorkerLoad, &labels, worker.load);
        samples.add_count(Metric::WorkerForwarded, &labels, worker.forwarded);
        samples.add_count(Metric::WorkerHandedOver, &labels, worker.handed_over);
        samples.add_count(Metric::WorkerTaken, &labels, worker.taken);
        samples.add_count(Metric::WorkerMessagesLost, &labels, worker.messages_lost);
    }
    for peer in &status.peers {
        let id = peer.id.to_string();
        let labels = [id.as_str()];
        samples.add_flag(Metric::PeerUp, &labels, peer.detector == "up");
        add_paths(samples, &id, peer);
        samples.add_flag(Metric::PeerSynchronised, &labels, peer.synchronised);
        let differs = peer.configuration.as_ref().is_some_and(|configuration| *configuration != status.configuration);
        samples.add_flag(Metric::PeerConfigurationDiffers, &labels, differs);
        samples.add(Metric::ReplicationLag, &labels, peer.lag_ms / 1e3);
        samples.add_count(Metric::ReplicationUncovered, &labels, peer.uncovered);
        samples.add_count(Metric::ReplicationQueued, &labels, peer.queued);
        samples.add_count(Metric::ReplicationInFlight, &labels, peer.in_flight);
        samples.add_count(Metric::ReplicationSent, &labels, peer.sent);
        samples.add_count(Metric::ReplicationReceived, &labels, peer.received);
        samples.add_count(Metric::ReplicationResent, &labels, peer.resent);
        samples.add_count(Metric::ReplicationLost, &labels, peer.lost);
        add_anti_entropy(samples, &labels, &peer.anti_entropy, status.monotonic_now_ns);
        add_channel(samples, &id, &peer.channel);
        if let Some(filter) = &peer.filter {
            samples.add_count(Metric::PeerFilterEntries, &labels, filter.entries);
        }
    }
    if let Some(membership) = &status.membership {
        add_membership(samples, membership);
    }
    for class in &status.classes {
        samples.add_count(Metric::ClassConnections, &[&class.name], class.connections);
        samples.add_count(Metric::ClassPackets, &[&class.name], class.packets);
        samples.add_count(Metric::ClassBytes, &[&class.name], class.bytes);
    }
    for service in &status.services {
        add_service(samples, service);
    }
    for limit in &status.rate_limits {
        add_rate_limit(samples, limit);
    }
    for rule in &status.syn_proxy {
        add_syn_proxy(samples, rule);
    }
    if let Some(url_filter) = &status.url_filter {
        add_url_filter(samples, url_filter);
    }
    if let Some(service) = &status.state_service {
        add_state_service(samples, service);
    }
    if let Some(filter) = &status.filter {
        add_filter(samples, filter);
    }
    if let Some(redundancy) = &status.redundancy {
        add_redundancy(samples, redundancy);
    }
    if let Some(sync) = &status.sync {
        add_sync(samples, sync);
    }
    if let Some(edge) = &status.edge {
        add_edge(samples, edge);
    }
}

/// Adds the figures of a rate limit.
fn add_rate_limit(samples: &mut Samples, limit: &RateLimitStatus) {
    let number = limit.limit.to_string();
    let labels = [limit.rule.as_str(), number.as_str()];
    let of_packets = [labels[0], labels[1], limit.action.as_str()];
    samples.add_count(Metric::RateLimitedPackets, &of_packets, limit.beyond.packets);
    samples.add_count(Metric::RateLimitedBytes, &of_packets, limit.beyond.bytes);
    samples.add_count(Metric::RateLimitedConnections, &labels, limit.beyond.connections);
    if limit.sources_max.is_some() {
        samples.add_count(Metric::RateLimitSources, &labels, limit.sources);
        samples.add_count(Metric::RateLimitSourcesEvicted, &labels, limit.sources_evicted);
    }
}

/// Adds the figures of a rule of the SYN proxy.
fn add_syn_proxy(samples: &mut Samples, rule: &SynProxyStatus) {
    let labels = [rule.name.as_str()];
    samples.add_flag(Metric::SynProxyActive, &labels, rule.active);
    samples.add_count(Metric::SynProxyActivations, &labels, rule.activations);
    samples.add_count(Metric::SynProxyHalfOpen, &labels, rule.half_open.into());
    samples.add_count(Metric::SynProxyAnswered, &labels, rule.answered);
    samples.add_count(Metric::SynProxyAccepted, &labels, rule.accepted);
    for rejected in &rule.rejected {
        samples.add_count(Metric::SynProxyRejected, &[&rule.name, &rejected.reason], rejected.segments);
    }
    for ended in &rule.handshakes {
        samples.add_count(Metric::SynProxyHandshakes, &[&rule.name, &ended.outcome], ended.handshakes);
    }
}

/// Adds the figures of the URL filter.
fn add_membership(samples: &mut Samples, membership: &MembershipStatus) {
    samples.add_flag(Metric::MembershipReachable, &[&membership.source], membership.reachable);
    samples.add_count(Metric::MembershipMembers, &[], membership.members.len() as u64);
    let unrecorded = membership.members.iter().filter(|member| !member.recorded);
    samples.add_count(Metric::MembershipUnrecorded, &[], unrecorded.count() as u64);
    samples.add_count(Metric::MembershipChanges, &[], membership.changes);
    samples.add_count(Metric::MembershipSettings, &[], membership.settings_version);
}

fn add_url_filter(samples: &mut Samples, filter: &UrlFilterStatus) {
    samples.add_count(Metric::UrlFilterMemory, &[], filter.memory_bytes);
    if let Some(server) = &filter.server {
        add_url_server(samples, server);
    }
    for category in &filter.categories {
        samples.add_count(Metric::UrlFilterEntries, &[&category.name], category.entries);
    }
    for rule in &filter.rules {
        for decisions in &rule.decisions {
            let labels = [rule.name.as_str(), &decisions.category, &decisions.outcome];
            samples.add_count(Metric::UrlFilterDecisions, &labels, decisions.count);
        }
        for answers in &rule.answers {
            samples.add_count(Metric::UrlFilterAnswers, &[&rule.name, &answers.kind], answers.count);
        }
    }
}

/// Adds the figures of a categorisation server.
fn add_url_server(samples: &mut Samples, server: &UrlServerStatus) {
    samples.add_flag(Metric::UrlServerAvailable, &[], server.available);
    samples.add_count(Metric::UrlServerQuestions, &[], server.questions);
    samples.add_count(Metric::UrlServerEntries, &[], server.entries);
    samples.add_count(Metric::UrlServerMemory, &[], server.memory_bytes);
    samples.add_count(Metric::UrlServerLookups, &["hit"], server.hits);
    samples.add_count(Metric::UrlServerLookups, &["miss"], server.misses);
    samples.add_count(Metric::UrlServerAsked, &[], server.asked);
    samples.add_count(Metric::UrlServerRefreshed, &[], server.refreshed);
    samples.add_count(Metric::UrlServerContradicted, &[], server.contradicted);
    samples.add_count(Metric::UrlServerUnknownCategories, &[], server.unknown_categories);
    samples.add_count(Metric::UrlServerUnanswered, &[], server.unanswered);
    samples.add_count(Metric::UrlServerNoRoom, &[], server.no_room);
    samples.add_count(Metric::UrlServerFailures, &[], server.failures);
    samples.add_count(Metric::UrlServerReceived, &[], server.received);
    samples.add_count(Metric::UrlServerRemoved, &["expired"], server.expired);
    samples.add_count(Metric::UrlServerRemoved, &["evicted"], server.evicted);
}

/// Adds the figures of a service of the load balancer.
fn add_service(samples: &mut Samples, service: &ServiceStatus) {
    samples.add_count(Metric::ServiceConnectionsRefused, &[&service.name], service.refused);
    for backend in &service.backends {
        let labels = [service.name.as_str(), backend.address.as_str()];
        samples.add_flag(Metric::BackendUp, &labels, backend.state != "down");
        samples.add(Metric::BackendShare, &labels, backend.share);
        samples.add_count(Metric::BackendConnections, &labels, backend.connections);
        samples.add_count(Metric::BackendConnectionsOpened, &labels, backend.begun);
    }
}

/// Adds the figures of an edge.
fn add_edge(samples: &mut Samples, edge: &EdgeStatus) {
    for node in &edge.nodes {
        samples.add_flag(Metric::EdgeNodeForwards, &[&node.id.to_string()], node.forwards);
    }
    let counts: [(Metric, &[&str], u64); 11] = [
        (Metric::EdgePackets, &["entered"], edge.entered),
        (Metric::EdgePackets, &["left"], edge.left),
        (Metric::EdgeMoved, &[], edge.moved),
        (Metric::EdgeHeld, &["segment"], edge.held_segments),
        (Metric::EdgeHeld, &["acknowledgement"], edge.held_acknowledgements),
        (Metric::EdgeHeldBytes, &[], edge.held_bytes),
        (Metric::EdgeNotHeld, &["evicted"], edge.evicted),
        (Metric::EdgeNotHeld, &["unholdable"], edge.unholdable),
        (Metric::EdgeResent, &["segment"], edge.resent_segments),
        (Metric::EdgeResent, &["syn"], edge.resent_syns),
        (Metric::EdgeResent, &["acknowledgement"], edge.resent_acknowledgements),
    ];
    for (metric, labels, count) in counts {
        samples.add_count(metric, labels, count);
    }
}

/// Adds the figures of the state service.
fn add_state_service(samples: &mut Samples, service: &StateServiceStatus) {
    let counts: [(Metric, &[&str], u64); 17] = [
        (Metric::StateServicePeers, &["alive"], service.peers),
        (Metric::StateServicePeers, &["indexed"], service.indexes),
        (Metric::StateServiceUnindexed, &[], service.unindexed),
        (Metric::StateServiceWaiting, &[], service.waiting),
        (Metric::StateServicePulls, &["sent"], service.pulls),
        (Metric::StateServicePulls, &["received"], service.pulled),
        (Metric::StateServicePulls, &["failed"], service.pulls_failed),
        (Metric::StateServiceFalsePositives, &[], service.false_positives),
        (Metric::StateServiceHandedOver, &[], service.handed_over),
        (Metric::StateServiceQueries, &["increments"], service.queries),
        (Metric::StateServiceQueries, &["indexes"], service.index_requests),
        (Metric::StateServiceGaps, &[], service.gaps),
        (Metric::StateServiceMessages, &["sent"], service.sent_messages),
        (Metric::StateServiceMessages, &["received"], service.received_messages),
        (Metric::StateServiceMessages, &["refused"], service.refused_messages),
        (Metric::StateServiceBytes, &["sent"], service.sent_bytes),
        (Metric::StateServiceBytes, &["received"], service.received_bytes),
    ];
    for (metric, labels, count) in counts {
        samples.add_count(metric, labels, count);
    }
    for (reason, packets) in &service.dropped {
        samples.add_count(Metric::StateServiceDropped, &[reason], *packets);
    }
}

/// Adds the figures of compact replication.
fn add_filter(samples: &mut Samples, filter: &FilterStatus) {
    let recovery = &filter.recovery;
    samples.add_flag(Metric::RecoveryActive, &[], recovery.ends_in_s.is_some());
    let counts: [(Metric, &[&str], u64); 11] = [
        (Metric::FilterEntries, &[], filter.entries),
        (Metric::FilterEntriesMax, &[], filter.entries_max),
        (Metric::FilterRefused, &[], filter.refused + filter.beyond),
        (Metric::FilterSentBytes, &[], filter.bytes),
        (Metric::FilterUpdates, &["whole"], filter.whole_updates),
        (Metric::FilterUpdates, &["incremental"], filter.incremental_updates),
        (Metric::FilterDrifts, &[], filter.drifts),
        (Metric::FilterMemory, &[], filter.memory_bytes),
        (Metric::PreciseConnections, &["long_lived"], filter.precise_long_lived),
        (Metric::PreciseConnections, &["urgent"], filter.precise_urgent),
        (Metric::FilterInheritedEntries, &[], filter.inherited_entries),
    ];
    for (metric, labels, count) in counts {
        samples.add_count(metric, labels, count);
    }
    for (name, count) in &recovery.counts {
        let metric = match name.as_str() {
            "restored" | "cold_started" | "unblocked" => Metric::RecoveryConnections,
            // It is an event.
            "used_up" => continue,
            _ => Metric::RecoveryPackets,
        };
        samples.add_count(metric, &[name], *count);
    }
}

/// Adds the figures of a node that replicates the kernel's connections.
fn add_sync(samples: &mut Samples, sync: &SyncStatus) {
    let kernel = &sync.kernel;
    samples.add_count(Metric::KernelConnections, &[], kernel.connections);
    samples.add_count(Metric::KernelConnectionsMax, &[], kernel.connections_max);
    for (kind, count) in [("own", kernel.own), ("copy", kernel.copies), ("injected", kernel.injected)] {
        samples.add_count(Metric::SyncConnections, &[kind], count);
    }
    for unreplicated in &kernel.unreplicated {
        samples.add_count(Metric::SyncUnreplicated, &[&unreplicated.reason], unreplicated.connections);
    }
    let counts = [
        (Metric::SyncExpectations, kernel.expectation_requests),
        (Metric::SyncWaiting, kernel.waiting),
        (Metric::SyncEvents, kernel.events),
        (Metric::SyncEventsMalformed, kernel.events_malformed),
        (Metric::SyncOverruns, kernel.overruns),
        (Metric::SyncRepaired, kernel.repaired),
        (Metric::SyncReceiveBuffer, kernel.receive_buffer_bytes),
        (Metric::SyncDumps, kernel.dumps),
        (Metric::SyncRequests, kernel.requests),
        (Metric::SyncReinjected, kernel.reinjected),
        (Metric::SyncTableFull, kernel.table_full),
        (Metric::SyncTroubles, sync.troubles.len() as u64),
    ];
    for (metric, count) in counts {
        samples.add_count(metric, &[], count);
    }
    for refused in &kernel.refused {
        samples.add_count(Metric::SyncRefused, &[&refused.reason], refused.requests);
    }
    samples.add_flag(Metric::SyncPrimary, &[], sync.readiness.role == "primary");
    samples.add_flag(Metric::SyncUsable, &[], sync.readiness.usable);
    samples.add_flag(Metric::SyncSplitBrain, &[], sync.split_brain);
}

fn add_paths(samples: &mut Samples, id: &str, peer: &PeerStatus) {
    for path in &peer.paths {
        samples.add_flag(Metric::PathUp, &[id, &path.path], path.state == "up");
    }
    for certainty in ["suspected", "confirmed"] {
        samples.add_flag(Metric::SplitBrain, &[id, certainty], peer.split_brain == certainty);
    }
}

fn add_anti_entropy(samples: &mut Samples, labels: &[&str], anti_entropy: &AntiEntropy, now_ns: u64) {
    samples.add_count(Metric::ReplicaRounds, labels, anti_entropy.rounds);
    samples.add_count(Metric::ReplicaDivergent, labels, anti_entropy.divergent);
    samples.add_count(Metric::ReplicaDivergentFound, labels, anti_entropy.found);
    samples.add_count(Metric::ReplicaRepaired, labels, anti_entropy.repaired);
    samples.add_count(Metric::ReplicaExtraRemoved, labels, anti_entropy.extra_removed);
    samples.add_count(Metric::ReplicaUnnotedChanges, labels, anti_entropy.unnoted_changes);
    if let Some(agreed_ns) = anti_entropy.agreed_ns {
        let age = std::time::Duration::from_nanos(now_ns.saturating_sub(agreed_ns));
        samples.add(Metric::ReplicaAgreedAge, labels, age.as_secs_f64());
    }
}

/// Adds the figures of the channel with a peer.
fn add_channel(samples: &mut Samples, peer: &str, channel: &ChannelStatus) {
    samples.add_flag(Metric::ChannelSecured, &[peer], channel.is_secured());
    samples.add_count(Metric::ChannelHandshakes, &[peer], channel.handshakes);
    for reason in Refusal::ALL {
        let found = channel.refused.iter().find(|refused| refused.reason == reason.label());
        samples.add_count(Metric::ChannelRefused, &[peer, reason.label()], found.map_or(0, |it| it.datagrams));
    }
}

/// Adds what the tunnel to another site counts.
fn add_redundancy(samples: &mut Samples, status: &RedundancyStatus) {
    let RedundancyStatus { sent, received, .. } = status;
    samples.add_flag(Metric::RedundancyOpen, &[], status.bypass.is_none());
    samples.add_count(Metric::RedundancyMemory, &[], status.memory_bytes);
    samples.add_count(Metric::RedundancyPeriod, &[], status.period_bytes);
    samples.add_count(Metric::RedundancySessions, &[], status.sessions);
    samples.add_count(Metric::RedundancyPackets, &["sent"], sent.packets);
    samples.add_count(Metric::RedundancyPackets, &["received"], received.packets);
    samples.add_count(Metric::RedundancyPacketBytes, &["sent"], sent.packet_bytes);
    samples.add_count(Metric::RedundancyPacketBytes, &["received"], received.packet_bytes);
    samples.add_count(Metric::RedundancyDatagramBytes, &["sent"], sent.datagram_bytes);
    samples.add_count(Metric::RedundancyDatagramBytes, &["received"], received.datagram_bytes);
    samples.add_count(Metric::RedundancyMatchedBytes, &[], sent.matched_bytes);
    for (outcome, count) in [
        ("sent", sent.datagrams),
        ("retransmitted", sent.datagrams_retransmitted),
        ("copied", sent.datagrams_copied),
        ("given_up", sent.datagrams_given_up),
        ("received", received.datagrams),
        ("recovered", received.datagrams_recovered),
        ("lost", received.datagrams_lost),
        ("refused", received.datagrams_refused),
    ] {
        samples.add_count(Metric::RedundancyDatagrams, &[outcome], count);
    }
    samples.add_count(Metric::RedundancySavedBytes, &["headers"], sent.header_bytes_saved);
    samples.add_count(Metric::RedundancySavedBytes, &["second_stage"], sent.second_stage_bytes_saved);
    for reason in Bypass::ALL {
        let found = sent.bypassed.iter().find(|count| count.reason == reason.label());
        samples.add_count(Metric::RedundancyBypassed, &[reason.label()], found.map_or(0, |count| count.packets));
    }
    samples.add_count(Metric::RedundancyMisses, &[], received.misses);
    samples.add_count(Metric::RedundancyRepaired, &["sent"], sent.repaired);
    samples.add_count(Metric::RedundancyRepaired, &["received"], received.repaired);
    for (reason, count) in
        [("backlog", sent.backlog_drops), ("abandoned", received.abandoned), ("broken", received.broken)]
    {
        samples.add_count(Metric::RedundancyDropped, &[reason], count);
    }
    status.mirror.iter().for_each(|mirror| add_mirror(samples, mirror));
}

/// Adds what the mirrors of the caches count.
fn add_mirror(samples: &mut Samples, mirror: &RedundancyMirror) {
    samples.add_count(Metric::RedundancyMirrors, &[], mirror.followers);
    samples.add_count(Metric::RedundancyMirrorBytes, &["sent"], mirror.sent_bytes);
    samples.add_count(Metric::RedundancyMirrorBytes, &["received"], mirror.received_bytes);
    for (cache, of) in [("sent", &mirror.sent), ("received", &mirror.received)] {
        samples.add_count(Metric::RedundancyMirrorHeld, &[cache], of.held_bytes);
        samples.add_count(Metric::RedundancyMirrorToHold, &[cache], of.bytes);
    }
    for (outcome, count) in [
        ("passed", mirror.blocks),
        ("left_out", mirror.blocks_left_out),
        ("received", mirror.blocks_received),
        ("missed", mirror.blocks_missed),
    ] {
        samples.add_count(Metric::RedundancyMirrorBlocks, &[outcome], count);
    }
    samples.add_count(Metric::RedundancyMirrorPieces, &["given"], mirror.pieces_given);
    samples.add_count(Metric::RedundancyMirrorPieces, &["taken"], mirror.pieces_taken);
    samples.add_count(Metric::RedundancyCachesTakenOver, &[], mirror.caches_taken_over);
}

/// Adds a histogram: its buckets, each with all that is in those before it, its sum and its count.
#[allow(clippy::cast_precision_loss, reason = "the page's numbers are floating point")]
fn add_histogram(samples: &mut Samples, metric: Metric, labels: &[&str], histogram: &Histogram) {
    let bounds = HISTOGRAM_BOUNDS_NS.iter().map(|bound| (*bound as f64 / 1e9).to_string());
    let mut count = 0;
    for (bound, in_bucket) in bounds.chain(["+Inf".to_owned()]).zip(histogram.counts) {
        count += in_bucket;
        samples.add_part(metric, labels, "_bucket", Some(&bound), count as f64);
    }
    samples.add_part(metric, labels, "_sum", None, histogram.sum_ns as f64 / 1e9);
    samples.add_part(metric, labels, "_count", None, count as f64);
}

/// Adds all that was measured of the time that packets take.
pub fn add_latencies(samples: &mut Samples, latencies: &Latencies) {
    add_histogram(samples, Metric::BatchSeconds, &[], &latencies.batch);
    samples.add_count(Metric::BatchPackets, &[], latencies.batch_packets);
    for function in &latencies.functions {
        add_histogram(samples, Metric::FunctionSeconds, &[function.name, "begin"], &function.begin);
        add_histogram(samples, Metric::FunctionSeconds, &[function.name, "packet"], &function.packet);
    }
}
