//! Counters and gauges: the catalogue of all that there are, and their values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a value behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows, from the start of the process.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often something was how large: it only grows, too.
    Histogram,
}

macro_rules! metrics {
    ($($variant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal,)*) => {
        /// Every metric that a gateway has.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Metric { $(#[doc = $help] $variant,)* }

        impl Metric {
            /// All metrics, in the order of the page.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name on the page.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => concat!("mainstay_", $name),)* }
            }

            /// How it behaves.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind,)* }
            }

            /// What it counts.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }

            /// Names of its labels.
            #[must_use]
            pub const fn labels(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($label),*],)* }
            }
        }
    };
}

metrics! {
    BuildInfo: Gauge "build_info" ["version"] "Always 1. The label is the program's version.",
    Uptime: Gauge "uptime_seconds" [] "Seconds since the gateway started.",
    NodeActive: Gauge "node_active" [] "1 while this node holds the shared addresses of a group.",
    GroupActive: Gauge "group_active" ["group"] "1 while this node holds the group's shared addresses. It exists where there are several groups.",
    Passive: Gauge "passive" [] "1 while this node takes no shared addresses: it has just started, another host has them, or it rejects a peer's packets.",
    AddressConflicts: Counter "address_conflicts_total" [] "Frames in which another host claimed an address that this node holds.",
    AddressDefences: Counter "address_defences_total" [] "Announcements that this node sent against such claims.",
    TakeoverReady: Gauge "takeover_ready" [] "1 while a take-over by a peer would keep every replicated connection.",
    PacketsReceived: Counter "received_packets_total" ["port"] "Packets that the port received, with those that the kernel's fast path forwarded. A frame of many segments is one.",
    BytesReceived: Counter "received_bytes_total" ["port"] "Bytes that the port received, from the link header on, with those that the kernel's fast path forwarded.",
    PacketsSent: Counter "sent_packets_total" ["port"] "Packets that the port sent, with those that the kernel's fast path forwarded. A frame of many segments is one.",
    BytesSent: Counter "sent_bytes_total" ["port"] "Bytes that the port sent, from the link header on, with those that the kernel's fast path forwarded.",
    PortUp: Gauge "port_up" ["port"] "1 while the port's interface is switched on and has carrier.",
    NextHopUp: Gauge "next_hop_up" ["port", "next_hop"] "1 while the tracked next hop answers probes.",
    PacketsMissed: Counter "missed_packets_total" ["port"] "Packets that the kernel dropped before the gateway received them.",
    PacketsDropped: Counter "dropped_packets_total" ["reason"] "Packets that the gateway dropped, by reason.",
    PacketsFragmented: Counter "fragmented_packets_total" [] "Packets that the gateway fragmented because the egress port's MTU was too small.",
    PacketsInFragments: Gauge "packets_in_fragments" [] "Fragmented packets of which not all fragments have arrived.",
    RouterAdvertisementsSent: Counter "router_advertisements_sent_total" [] "Router advertisements that the gateway sent, answers to solicitations among them.",
    IcmpErrorsSent: Counter "icmp_errors_sent_total" [] "ICMP errors that the gateway sent about packets that it did not forward.",
    IcmpErrorsLimited: Counter "icmp_errors_limited_total" [] "ICMP errors that the rate limit suppressed.",
    PacketsAwaitingNeighbour: Gauge "packets_awaiting_neighbour" [] "Packets that wait for the link address of their next hop.",
    FastPathConnections: Gauge "fast_path_connections" [] "Connections whose packets the kernel forwards.",
    FastPathHook: Gauge "fast_path_hook" ["hook"] "1 for the hook at which the kernel's fast path sees packets: `tc` or `xdp`.",
    FastPathPackets: Counter "fast_path_packets_total" ["outcome"] "Packets that the kernel's fast path looked at: `forwarded`, or the reason for which they went to the gateway.",
    FastPathBytes: Counter "fast_path_bytes_total" [] "Bytes of packets that the kernel's fast path forwarded, from the IP header on.",
    FastPathInstallationsRefused: Counter "fast_path_refused_installations_total" ["reason"] "Connections that were not installed in the fast path: all places were taken (`full`), or `other`.",
    Connections: Gauge "connections" [] "Connections in the table, replicas included.",
    ConnectionsMax: Gauge "connections_max" [] "Largest number of connections that the table holds.",
    ConnectionsOpened: Counter "connections_opened_total" [] "Connections that began on this node.",
    ConnectionsClosed: Counter "connections_closed_total" [] "Connections that ended on this node.",
    ConnectionsRelated: Counter "connections_related_total" [] "Related connections that began on this node.",
    ConnectionsTakenOver: Counter "connections_taken_over_total" [] "Replicas that this node became owner of because their packets arrived here.",
    ConnectionsRelearnt: Counter "connections_relearnt_total" [] "Connections whose windows this node relearned because a peer may have forwarded their packets meanwhile.",
    FailedConnectionResets: Counter "failed_connection_resets_total" ["outcome"] "Resets of TCP connections that ended because their backend failed: sent when they ended, sent in answer to a later segment, or left out because of the limit. Outcome `stray`: sent in answer to a segment of a connection that no node has.",
    ConnectionsDisallowed: Counter "connections_disallowed_total" [] "Connections that ended because the rules in force no longer accept them.",
    RepliesHeld: Counter "replies_held_total" [] "First replies that were held until a peer acknowledged their connection.",
    RepliesOverdue: Counter "replies_overdue_total" [] "First replies that were sent without a peer's acknowledgement because `hold_first_reply` had passed or there was no room to hold them.",
    ConnectionsUnanswered: Gauge "connections_unanswered" [] "Own connections that are not replicated yet, because nobody has answered them or they are not established (`replication.start`).",
    LazyThreshold: Gauge "lazy_threshold_seconds" [] "Age from which connections are replicated.",
    LazyLevel: Gauge "lazy_level" [] "Level of deferral that the load requires; 0 defers no connection.",
    LazyUtilisation: Gauge "lazy_utilisation_ratio" [] "Share of the last interval in which the worker, or a processor that serves ports, was busy, from 0 to 1.",
    ConnectionsDeferred: Gauge "connections_deferred" [] "Connections whose replication is deferred. A failover now would lose them.",
    ConnectionsNeverReplicated: Counter "connections_never_replicated_total" [] "Connections that ended before they were replicated.",
    ConnectionsReplicatedLate: Counter "connections_replicated_late_total" [] "Connections that were replicated after deferral.",
    SegmentsHeld: Gauge "segments_held" ["of"] "Unacknowledged segments that are held, of own connections (`own`) and of peers' (`peers`).",
    SegmentsHeldTotal: Counter "segments_held_total" [] "Unacknowledged segments of own connections that were held, retransmissions included.",
    SegmentsEvicted: Counter "segments_evicted_total" [] "Held segments that were dropped because the memory was full.",
    SegmentsUnholdable: Counter "segments_unholdable_total" [] "Segments that were not held because of urgent data, a signature or unusual headers.",
    SegmentMessages: Counter "segment_messages_total" ["outcome"] "Messages about unacknowledged segments: sent to peers (`sent`), or of peers, where the segment was held (`received`) or could not be used (`refused`).",
    SegmentBytes: Counter "segment_sent_bytes_total" [] "Bytes of messages about unacknowledged segments that were sent to peers.",
    SegmentsResent: Counter "segments_resent_total" ["kind"] "Segments that this node resent after it took over: each a `syn` or a `segment`.",
    PeerOwnedPackets: Counter "peer_owned_packets_total" [] "Packets of peer-owned connections that this node forwarded.",
    ConnectionsShared: Counter "connections_shared_total" [] "Connections whose packets arrived at several nodes.",
    ConnectionsRenewed: Counter "connections_renewed_total" ["reason"] "Connections that this node became owner of because it forwards them: while their owner had them (`in_time`), or because it held them to have ended (`end_refused`).",
    PacketsWaited: Counter "waited_packets_total" ["outcome"] "Packets that waited for an update of a peer: the update arrived (`helped`), did not arrive in time (`overdue`), or the queue was full (`no_room`).",
    BatchSeconds: Histogram "batch_seconds" [] "Time from the arrival of a batch until its packets can be sent. One batch in 64 is measured.",
    BatchPackets: Counter "measured_packets_total" [] "Packets of the measured batches.",
    FunctionSeconds: Histogram "function_seconds" ["function", "call"] "Time that a network function took to decide on a connection (`begin`) or a packet (`packet`). A few packets of each measured batch are measured.",
    FunctionConnections: Counter "function_connections_total" ["function"] "New connections that the network function decided on.",
    FunctionConnectionsRefused: Counter "function_refused_connections_total" ["function"] "New connections that the network function refused.",
    FunctionPackets: Counter "function_packets_total" ["function"] "Packets that passed the network function, without those that the kernel's fast path forwarded.",
    FunctionPacketsStopped: Counter "function_stopped_packets_total" ["function"] "Packets that the network function did not forward.",
    FunctionEvents: Counter "function_events_total" ["function", "event"] "Events that the network function counts, by name.",
    ClassConnections: Gauge "class_connections" ["class"] "Connections of the traffic class in the table, replicas included.",
    ClassPackets: Counter "class_packets_total" ["class"] "Packets of connections of the traffic class, each under the class at that time, with those that the kernel's fast path forwarded.",
    ClassBytes: Counter "class_bytes_total" ["class"] "Bytes of these packets, from the IP header on.",
    BackendUp: Gauge "backend_up" ["service", "backend"] "1 while the checks of the service's backend succeed, or while it is not checked.",
    BackendShare: Gauge "backend_share" ["service", "backend"] "Share of its weight that the service's backend gets: less than 1 in a slow start.",
    BackendConnections: Gauge "backend_connections" ["service", "backend"] "Connections to the service's backend in the table, replicas included.",
    BackendConnectionsOpened: Counter "backend_connections_opened_total" ["service", "backend"] "Connections to the service's backend that began on this node.",
    ServiceConnectionsRefused: Counter "service_refused_connections_total" ["service"] "Connections to the service that no backend could take.",
    RateLimitedPackets: Counter "rate_limited_packets_total" ["rule", "limit", "action"] "Packets beyond a limit of the rule of the rate limits, which were dropped or marked (`action`).",
    RateLimitedBytes: Counter "rate_limited_bytes_total" ["rule", "limit", "action"] "Bytes of these packets, from the IP header on.",
    RateLimitedConnections: Counter "rate_limited_connections_total" ["rule", "limit"] "New connections that were refused because they were beyond a limit of the rule.",
    RateLimitSources: Gauge "rate_limit_sources" ["rule", "limit"] "Sources in the table of the limit, those with full buckets included.",
    RateLimitSourcesEvicted: Counter "rate_limit_sources_evicted_total" ["rule", "limit"] "Sources that were evicted from the table of the limit before they had full buckets: the table is too small.",
    SynProxyActive: Gauge "syn_proxy_active" ["rule"] "1 while the rule of the SYN proxy answers in place of servers.",
    SynProxyActivations: Counter "syn_proxy_activations_total" ["rule"] "How often a threshold switched the rule of the SYN proxy on.",
    SynProxyHalfOpen: Gauge "syn_proxy_half_open" ["rule"] "Half-open connections of the rule in the table, where they are a threshold, replicas included.",
    SynProxyAnswered: Counter "syn_proxy_syn_acks_total" ["rule"] "SYN/ACKs with a cookie that were sent for the rule.",
    SynProxyAccepted: Counter "syn_proxy_cookies_accepted_total" ["rule"] "Cookies of the rule that were accepted.",
    SynProxyRejected: Counter "syn_proxy_rejected_total" ["rule", "reason"] "Segments of no connection that the rule dropped: the cookie was `invalid` or `expired`, or it was a `reset`.",
    SynProxyHandshakes: Counter "syn_proxy_handshakes_total" ["rule", "outcome"] "Handshakes with servers of the rule: `opened`, `refused`, `unanswered`, or `mismatched` (opened, but the server lacks timestamps that the client was offered).",
    MembershipReachable: Gauge "membership_source_reachable" ["source"] "1 if the source of members is reachable, else 0: the last known list stays in force.",
    MembershipMembers: Gauge "membership_members" [] "Members of the cluster that are peers of this node.",
    MembershipUnrecorded: Gauge "membership_members_unrecorded" [] "Of `membership_members`, those without a record in the source.",
    MembershipChanges: Counter "membership_changes_total" [] "Changes of the members and of the settings of the cluster.",
    MembershipSettings: Gauge "membership_settings_version" [] "Version of the settings of the cluster.",
    UrlFilterEntries: Gauge "url_filter_entries" ["category"] "Entries of the category's lists.",
    UrlFilterMemory: Gauge "url_filter_memory_bytes" [] "Memory of the URL filter's lists, in bytes.",
    UrlFilterDecisions: Counter "url_filter_decisions_total" ["rule", "category", "outcome"] "Connections, questions and further requests that the rule of the URL filter decided on: `allowed`, `blocked`, or `logged` (it only logs). The category is `uncategorised` for hosts in none, `undecided` for connections that show no host, and `unanswered` for hosts about which the server has given no answer.",
    UrlFilterAnswers: Counter "url_filter_answers_total" ["rule", "kind"] "Answers of the rule in the place of servers: a `page`, a `reset` of a client, or `nxdomain` (a DNS response that the name does not exist).",
    UrlServerAvailable: Gauge "url_filter_server_available" [] "1 while the last request to the categorisation server succeeded.",
    UrlServerQuestions: Gauge "url_filter_server_questions" [] "Questions that wait for a request to the categorisation server, or for its response.",
    UrlServerEntries: Gauge "url_filter_server_cache_entries" [] "Answers of the categorisation server in the cache.",
    UrlServerMemory: Gauge "url_filter_server_cache_memory_bytes" [] "Memory of the cache, in bytes.",
    UrlServerLookups: Counter "url_filter_server_lookups_total" ["outcome"] "Look-ups of hosts in no list: a `hit` or a `miss` of the cache.",
    UrlServerAsked: Counter "url_filter_server_asked_total" [] "Questions that were sent to the categorisation server.",
    UrlServerRefreshed: Counter "url_filter_server_refreshed_total" [] "Of those, questions about answers that were used and old.",
    UrlServerContradicted: Counter "url_filter_server_contradicted_total" [] "Answers to such questions that differ from the cache: false positives of its filter, and changes at the server.",
    UrlServerUnknownCategories: Counter "url_filter_server_unknown_categories_total" [] "Answers with a category that is not configured.",
    UrlServerUnanswered: Counter "url_filter_server_unanswered_total" [] "Look-ups that `on_failure` decided.",
    UrlServerNoRoom: Counter "url_filter_server_no_room_total" [] "Of those, look-ups that found no room for a question.",
    UrlServerFailures: Counter "url_filter_server_failures_total" [] "Requests to the categorisation server that failed.",
    UrlServerReceived: Counter "url_filter_server_received_total" [] "Answers of the categorisation server that other nodes have sent.",
    UrlServerRemoved: Counter "url_filter_server_removed_total" ["reason"] "Answers that were removed from the cache: `expired`, or `evicted` to make room.",
    FirewallRulePackets: Counter "firewall_rule_packets_total" ["rule", "action"] "First packets of connections that the firewall rule decided on.",
    LogEntriesDropped: Counter "log_entries_dropped_total" [] "Log entries of firewall rules that were suppressed by their limit or by a full log queue.",
    PeerUp: Gauge "peer_up" ["peer"] "1 while the failure detector receives the peer on some path.",
    PathUp: Gauge "path_up" ["peer", "path"] "1 while failure detection on the path is up. The path is `replication` or the name of a port.",
    SplitBrain: Gauge "split_brain" ["peer", "certainty"] "1 while the peer is `suspected` to hold the same addresses as this node, or while that is `confirmed`.",
    PeerSynchronised: Gauge "peer_synchronised" ["peer"] "1 while the peer has acknowledged every replicated connection.",
    PeerConfigurationDiffers: Gauge "peer_configuration_differs" ["peer"] "1 while the peer's configuration has another fingerprint than this node's.",
    ReplicationLag: Gauge "replication_lag_seconds" ["peer"] "Age of the oldest change that the peer has not acknowledged.",
    ReplicationUncovered: Gauge "replication_uncovered" ["peer"] "Connections that are to be replicated to the peer and that it does not have in any state. A failover now would lose them.",
    ReplicationQueued: Gauge "replication_queued" ["peer"] "Changes that wait to be sent to the peer.",
    ReplicationInFlight: Gauge "replication_in_flight_messages" ["peer"] "Messages that were sent to the peer and are not acknowledged.",
    ReplicationSent: Counter "replication_sent_messages_total" ["peer"] "Messages that were sent to the peer.",
    ReplicationReceived: Counter "replication_received_messages_total" ["peer"] "Messages that were received from the peer.",
    ReplicationResent: Counter "replication_resent_messages_total" ["peer"] "Changes that were retransmitted under a new message number.",
    ReplicationLost: Counter "replication_lost_messages_total" ["peer"] "Messages of the peer that were lost.",
    StateServicePeers: Gauge "state_service_peers" ["state"] "Live peers with a state service (`alive`), and those whose index is known (`indexed`).",
    StateServiceUnindexed: Gauge "state_service_unindexed" [] "Tuples of connections that found no room in this node's index.",
    StateServiceWaiting: Gauge "state_service_waiting_packets" [] "Packets that wait for the state of their connection.",
    StateServicePulls: Counter "state_service_pulls_total" ["outcome"] "Requests for states that were `sent`, states that were `received`, and pulls that `failed`.",
    StateServiceFalsePositives: Counter "state_service_false_positives_total" [] "Responses of peers that did not have the requested connection: false positives of their indexes, and old indexes.",
    StateServiceHandedOver: Counter "state_service_handed_over_total" [] "States that were sent to peers, which own these connections since.",
    StateServiceQueries: Counter "state_service_queries_total" ["of"] "Queries for increments of the indexes for packets (`increments`), and requests for whole indexes and lost updates (`indexes`).",
    StateServiceGaps: Counter "state_service_index_gaps_total" [] "Updates of indexes that arrived after a lost one.",
    StateServiceMessages: Counter "state_service_messages_total" ["outcome"] "Messages of the state service: `sent`, `received`, or not sent because too many waited (`refused`).",
    StateServiceBytes: Counter "state_service_bytes_total" ["direction"] "Bytes of messages of the state service that were `sent` and `received`, without headers and encryption.",
    StateServiceDropped: Counter "state_service_dropped_packets_total" ["reason"] "Packets that the state service dropped: no node has the connection (`unknown`), too many packets wait (`waiting_full`), the rate of pulls (`pull_budget`) or of queries (`query_budget`) is reached.",
    FilterEntries: Gauge "filter_entries" [] "Entries of this node's peer filter: connections, or pairs of hosts.",
    FilterEntriesMax: Gauge "filter_entries_max" [] "Number of entries that this node's peer filter is made for.",
    FilterRefused: Counter "filter_refused_entries_total" [] "Insertions that the peer filter had no room for, and those into `flow-digest` beyond its `entries_max`.",
    FilterSentBytes: Counter "filter_sent_bytes_total" [] "Bytes of datagrams that replicated the peer filter, without headers and encryption.",
    FilterUpdates: Counter "filter_updates_total" ["kind"] "Updates of the peer filter that contained all of it (`whole`) or its changes (`incremental`).",
    FilterDrifts: Counter "filter_drifts_total" [] "Sections of the peer filter that differed at a peer and were sent again.",
    FilterMemory: Gauge "filter_memory_bytes" [] "Memory of the peer filter and of inherited filters that this node sends, in bytes. Copies of peers' filters are not included.",
    FilterInheritedEntries: Gauge "filter_inherited_entries" [] "Entries of inherited filters whose connections are not restored yet. This node re-advertises them.",
    PeerFilterEntries: Gauge "peer_filter_entries" ["peer"] "Entries of the peer's filter, as the peer reports them.",
    PreciseConnections: Counter "precise_connections_total" ["reason"] "Connections that were replicated precisely beside the peer filter: old ones (`long_lived`), and those that an entry cannot restore (`urgent`).",
    RecoveryActive: Gauge "recovery_active" [] "1 during the recovery after a take-over, while peer filters are asked.",
    RecoveryConnections: Counter "recovery_connections_total" ["how"] "Connections that continued in their middle after a take-over: `restored` by a peer filter, `cold_started` by a trusted host, `unblocked` by a retransmitted segment.",
    RecoveryPackets: Counter "recovery_packets_total" ["outcome"] "Packets during recovery that restored no connection: they matched no filter (`missed`), the rules denied them (`denied`), their translation was taken (`conflicts`), or several connections matched (`ambiguous`). `unasked` and `over_budget` exceeded a lookup limit of their source or of all sources. `probed` and `blocked` are those of cold start and of `block`. `asked` counts keep-alives to candidates of ambiguous replies, `denials` their resets, and `disowned` the resets of false positives.",
    ReplicaRounds: Counter "replica_comparisons_total" ["peer"] "Comparisons of this node's replicas with what the peer sent.",
    ReplicaDivergent: Gauge "replica_divergent" ["peer"] "Replicas of the peer's connections that are known to differ or to be missing now.",
    ReplicaDivergentFound: Counter "replica_divergent_found_total" ["peer"] "Replicas that were found to differ from what the peer sent.",
    ReplicaRepaired: Counter "replica_repaired_total" ["peer"] "Missing and wrong replicas that the peer sent again.",
    ReplicaExtraRemoved: Counter "replica_extra_removed_total" ["peer"] "Replicas that were removed because the peer had no such connection.",
    ReplicaUnnotedChanges: Counter "replica_unnoted_changes_total" ["peer"] "Replicas that changed in memory without an update.",
    ReplicaAgreedAge: Gauge "replica_agreed_age_seconds" ["peer"] "Time since the replicas were last found equal to what the peer sent.",
    ChannelSecured: Gauge "channel_secured" ["peer"] "1 while datagrams to the peer are encrypted.",
    ChannelHandshakes: Counter "channel_handshakes_total" ["peer"] "Handshakes that established session keys with the peer.",
    ChannelRefused: Counter "channel_refused_datagrams_total" ["peer", "reason"] "Datagrams from the peer's address that the secure channel refused, by reason.",
    Reloads: Counter "reloads_total" ["outcome"] "Reloads of the configuration that were `applied` or `refused`.",
    WorkerConnections: Gauge "worker_connections" ["worker"] "Connections of the worker.",
    WorkerLoad: Gauge "worker_load_ratio" ["worker"] "Share of its time that the worker was busy, from 0 to 1.",
    WorkerForwarded: Counter "worker_forwarded_packets_total" ["worker"] "Packets that the worker forwarded.",
    WorkerHandedOver: Counter "worker_handed_over_packets_total" ["worker"] "Packets that the worker received and handed to the worker that they belong to.",
    WorkerTaken: Counter "worker_taken_packets_total" ["worker"] "Packets that other workers handed to the worker.",
    WorkerMessagesLost: Counter "worker_messages_lost_total" ["worker"] "Messages of the worker to other workers that found no room.",
    EdgeNodeForwards: Gauge "edge_node_forwards" ["node"] "1 while flows go to the node. Only an edge has it.",
    EdgePackets: Counter "edge_packets_total" ["direction"] "Packets that entered the cluster at this edge (`entered`) or left it here (`left`).",
    EdgeMoved: Counter "edge_moved_connections_total" [] "Connections that moved because their node failed.",
    EdgeHeld: Gauge "edge_held_packets" ["kind"] "Packets that the edge holds to resend them: each a `segment` or an `acknowledgement`.",
    EdgeHeldBytes: Gauge "edge_held_bytes" [] "Memory of the packets that the edge holds.",
    EdgeNotHeld: Counter "edge_not_held_packets_total" ["reason"] "Packets that the edge released because its memory was full (`evicted`), or could not hold (`unholdable`).",
    EdgeResent: Counter "edge_resent_packets_total" ["kind"] "Packets that the edge resent after a node failed: each a `segment`, a `syn` or an `acknowledgement`.",
    Takeovers: Counter "takeovers_total" [] "Times that this node became active.",
    RedundancyOpen: Gauge "redundancy_open" [] "1 while the tunnel to the other site carries packets.",
    RedundancyMemory: Gauge "redundancy_memory_bytes" [] "Memory of the tunnel's caches and their indexes, in bytes.",
    RedundancyPeriod: Gauge "redundancy_period_bytes" [] "Bytes of payload per fingerprint that is looked up. The period grows while the processor is overloaded.",
    RedundancySessions: Counter "redundancy_sessions_total" [] "Sessions that the two ends of the tunnel opened.",
    RedundancyPackets: Counter "redundancy_packets_total" ["direction"] "Packets that the tunnel `sent` or `received`.",
    RedundancyPacketBytes: Counter "redundancy_packet_bytes_total" ["direction"] "Bytes of the packets that the tunnel `sent` or `received`.",
    RedundancyDatagramBytes: Counter "redundancy_datagram_bytes_total" ["direction"] "Bytes of the datagrams that the tunnel `sent` or `received`, with their IP and UDP headers.",
    RedundancyMatchedBytes: Counter "redundancy_matched_bytes_total" [] "Bytes of payload that were sent as references.",
    RedundancySavedBytes: Counter "redundancy_saved_bytes_total" ["by"] "Bytes saved besides those of payload: by encoded `headers`, and by the `second_stage`.",
    RedundancyDatagrams: Counter "redundancy_datagrams_total" ["outcome"] "Datagrams of the tunnel that were `sent`, retransmitted (`retransmitted`), sent as redundant copies (`copied`) or never acknowledged (`given_up`); and that were `received`, received by retransmission (`recovered`), `lost` or `refused`.",
    RedundancyBypassed: Counter "redundancy_bypassed_packets_total" ["reason"] "Packets that bypassed the tunnel, by reason.",
    RedundancyMisses: Counter "redundancy_misses_total" [] "Packets with references to bytes that this node did not have when they arrived.",
    RedundancyRepaired: Counter "redundancy_repaired_pieces_total" ["direction"] "Granules (64 bytes) that the other site lacked and this one sent (`sent`), or that this site requested and received (`received`).",
    RedundancyDropped: Counter "redundancy_dropped_packets_total" ["reason"] "Packets lost in the tunnel: too many waited (`backlog`), their references could not be resolved (`abandoned`), or they were malformed (`broken`).",
    RedundancyMirrors: Gauge "redundancy_mirrors" [] "Nodes of this site that mirror this node's caches.",
    RedundancyMirrorBytes: Counter "redundancy_mirror_bytes_total" ["direction"] "Bytes sent to mirrors (`sent`), or received from the mirrored node (`received`).",
    RedundancyMirrorHeld: Gauge "redundancy_mirror_held_bytes" ["cache"] "Bytes of the `sent` and the `received` cache that this standby node mirrors.",
    RedundancyMirrorToHold: Gauge "redundancy_mirror_to_hold_bytes" ["cache"] "Bytes of the `sent` and the `received` cache that a complete mirror has.",
    RedundancyMirrorBlocks: Counter "redundancy_mirror_blocks_total" ["outcome"] "Blocks that the caches took while they were mirrored (`passed`), and those not sent to a mirror for lack of rate (`left_out`); blocks that this mirror received (`received`), and those that it could not apply (`missed`).",
    RedundancyMirrorPieces: Counter "redundancy_mirror_pieces_total" ["direction"] "Granules (64 bytes) that were sent to mirrors that lacked them (`given`), or received by this mirror (`taken`).",
    RedundancyCachesTakenOver: Counter "redundancy_caches_taken_over_total" [] "Caches that this node continued with when it became the tunnel's end.",
    KernelConnections: Gauge "kernel_connections" [] "Connections that the kernel tracks.",
    KernelConnectionsMax: Gauge "kernel_connections_max" [] "Largest number of connections that the kernel tracks; 0 is no limit.",
    SyncConnections: Gauge "sync_connections" ["kind"] "Connections in the connection table: those whose packets this kernel receives (`own`), replicas of peers' connections (`copy`), and the replicas that are in this kernel (`injected`).",
    SyncUnreplicated: Gauge "sync_connections_unreplicated" ["reason"] "Connections of this kernel that are not replicated although no rule excludes them: without a reply yet (`unreplied`), younger than `replication.lazy.threshold` (`deferred`), or of a kind that conntrackd's protocol cannot express (`zone_of_one_direction`, `inexpressible`).",
    SyncExpectations: Counter "sync_kernel_expectation_requests_total" [] "Requests to the kernel about expectations.",
    SyncWaiting: Gauge "sync_kernel_requests_waiting" [] "Changes that wait for injection into the kernel.",
    SyncEvents: Counter "sync_kernel_events_total" [] "Events that were read from the kernel.",
    SyncEventsMalformed: Counter "sync_kernel_events_malformed_total" [] "Events of the kernel that were malformed.",
    SyncOverruns: Counter "sync_kernel_event_overruns_total" [] "Times that the kernel lost events because the buffer was full.",
    SyncRepaired: Counter "sync_kernel_repaired_total" [] "Connections that were found new, changed or gone after events were lost.",
    SyncReceiveBuffer: Gauge "sync_kernel_receive_buffer_bytes" [] "Size of the buffer for the kernel's events.",
    SyncDumps: Counter "sync_kernel_dumps_total" [] "Times that the kernel's whole table was read.",
    SyncRequests: Counter "sync_kernel_requests_total" [] "Requests to the kernel.",
    SyncRefused: Counter "sync_kernel_requests_refused_total" ["reason"] "Requests that the kernel refused, by reason.",
    SyncReinjected: Counter "sync_reinjected_total" [] "Replicas that the kernel removed before their owner did, and that were injected again.",
    SyncTableFull: Counter "sync_table_full_total" [] "Connections of this kernel that found no room in the connection table (`kernel.connections_max`).",
    SyncPrimary: Gauge "sync_primary" [] "1 while this node is primary, by order of keepalived or an operator.",
    SyncUsable: Gauge "sync_usable" [] "1 while all known connections that this node carries are in its kernel.",
    SyncSplitBrain: Gauge "sync_split_brain" [] "1 while another node is primary, too, although `cluster.mode` is `primary-backup`.",
    SyncTroubles: Gauge "sync_troubles" [] "Present troubles, which `mainstay status` names.",
}

/// A metric's value under one set of labels.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The metric's name.
    pub name: String,
    /// Label values by label names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// Values, gathered by the data path's thread.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Samples {
    samples: Vec<Sample>,
}

impl Samples {
    /// Adds a value; `labels` are in the order of [`Metric::labels`].
    pub fn add(&mut self, metric: Metric, labels: &[&str], value: f64) {
        debug_assert_eq!(labels.len(), metric.labels().len(), "{} has other labels", metric.name());
        let pairs = metric.labels().iter().zip(labels);
        let labels = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.samples.push(Sample { name: metric.name().to_owned(), labels, value });
    }

    /// Adds a count. Beyond 2⁵³ it is rounded.
    #[allow(clippy::cast_precision_loss, reason = "the page's numbers are floating point")]
    pub fn add_count(&mut self, metric: Metric, labels: &[&str], count: u64) {
        self.add(metric, labels, count as f64);
    }

    /// Adds a truth, as 1 or 0.
    pub fn add_flag(&mut self, metric: Metric, labels: &[&str], is_true: bool) {
        self.add(metric, labels, if is_true { 1.0 } else { 0.0 });
    }

    /// Adds one bucket, the sum or the count of a histogram: `suffix` is `_bucket`, `_sum` or `_count`, and `bound` the upper
    /// end of a bucket.
    pub fn add_part(&mut self, metric: Metric, labels: &[&str], suffix: &str, bound: Option<&str>, value: f64) {
        debug_assert_eq!(metric.kind(), Kind::Histogram, "{} is none", metric.name());
        let pairs = metric.labels().iter().copied().zip(labels.iter().copied());
        let labels = pairs.chain(bound.map(|bound| ("le", bound)));
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        self.samples.push(Sample { name: format!("{}{suffix}", metric.name()), labels, value });
    }

    /// Adds a value as another part of the program has named and labelled it.
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// The values, in the order in which they were added.
    #[must_use]
    pub fn as_slice(&self) -> &[Sample] {
        &self.samples
    }
}

impl IntoIterator for Samples {
    type Item = Sample;
    type IntoIter = std::vec::IntoIter<Sample>;

    fn into_iter(self) -> Self::IntoIter {
        self.samples.into_iter()
    }
}
