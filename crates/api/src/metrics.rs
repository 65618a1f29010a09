//! Counters and gauges: the catalogue of all that there are, and their values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a value behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows, from the start of the gateway.
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
    BuildInfo: Gauge "build_info" ["version"] "Always 1; the label tells the program's version.",
    Uptime: Gauge "uptime_seconds" [] "Seconds since the gateway started.",
    NodeActive: Gauge "node_active" [] "1 while this node holds the shared addresses.",
    GroupActive: Gauge "group_active" ["group"] "1 while this node holds the group's shared addresses, where there are several groups.",
    Passive: Gauge "passive" [] "1 while this node takes no shared addresses: it has just started, another host has them, or a peer's packets cannot be accepted.",
    AddressConflicts: Counter "address_conflicts_total" [] "Frames in which another host claimed an address that this node holds.",
    AddressDefences: Counter "address_defences_total" [] "Announcements sent against such claims.",
    TakeoverReady: Gauge "takeover_ready" [] "1 while a peer could take over without losing connections.",
    PacketsReceived: Counter "received_packets_total" ["port"] "Packets received.",
    BytesReceived: Counter "received_bytes_total" ["port"] "Bytes received.",
    PacketsSent: Counter "sent_packets_total" ["port"] "Packets sent.",
    BytesSent: Counter "sent_bytes_total" ["port"] "Bytes sent.",
    PortUp: Gauge "port_up" ["port"] "1 while the port's interface is switched on and has carrier.",
    NextHopUp: Gauge "next_hop_up" ["port", "next_hop"] "1 while the tracked next hop answers.",
    PacketsMissed: Counter "missed_packets_total" ["port"] "Packets that the system dropped before the gateway saw them.",
    PacketsDropped: Counter "dropped_packets_total" ["reason"] "Packets that the gateway dropped.",
    PacketsFragmented: Counter "fragmented_packets_total" [] "Packets cut into fragments because the link that they left by is too small.",
    PacketsInFragments: Gauge "packets_in_fragments" [] "Packets that came in fragments of which some are still to come.",
    IcmpErrorsSent: Counter "icmp_errors_sent_total" [] "ICMP errors sent to tell senders why a packet went no further.",
    IcmpErrorsLimited: Counter "icmp_errors_limited_total" [] "ICMP errors not sent because of their rate limit.",
    PacketsAwaitingNeighbour: Gauge "packets_awaiting_neighbour" [] "Packets that wait for the link address of their next hop.",
    Connections: Gauge "connections" [] "Connections held.",
    ConnectionsMax: Gauge "connections_max" [] "Connections held at most.",
    ConnectionsOpened: Counter "connections_opened_total" [] "Connections begun on this node.",
    ConnectionsClosed: Counter "connections_closed_total" [] "Connections ended on this node.",
    ConnectionsRelated: Counter "connections_related_total" [] "Connections begun on this node that another one had announced.",
    ConnectionsTakenOver: Counter "connections_taken_over_total" [] "Connections whose copy this node took over because their packets came here.",
    ConnectionsRelearnt: Counter "connections_relearnt_total" [] "Connections whose windows were learnt afresh because a peer may have forwarded their packets meanwhile.",
    ConnectionsDisallowed: Counter "connections_disallowed_total" [] "Connections ended because the rules do not allow them any more.",
    RepliesHeld: Counter "replies_held_total" [] "First replies kept back until a peer confirmed their connection.",
    RepliesOverdue: Counter "replies_overdue_total" [] "First replies let go unconfirmed because their time was over.",
    LazyThreshold: Gauge "lazy_threshold_seconds" [] "Connections younger than this are not told to peers.",
    LazyLevel: Gauge "lazy_level" [] "By how many levels replication is degraded because of the load.",
    LazyUtilisation: Gauge "lazy_utilisation_ratio" [] "Share of the last interval that the thread was busy that decides by it.",
    ConnectionsPutOff: Gauge "connections_put_off" [] "Connections that no peer has been told of yet, being too young: a failover now would lose them.",
    ConnectionsSpared: Counter "connections_spared_total" [] "Connections that ended before any peer was told of them.",
    ConnectionsToldLate: Counter "connections_told_late_total" [] "Connections that were put off and told when they were old enough.",
    GuestPackets: Counter "guest_packets_total" [] "Packets forwarded of connections that another living node is master of.",
    ConnectionsShared: Counter "connections_shared_total" [] "Connections found to have packets on two nodes at once.",
    ConnectionsRenewed: Counter "connections_renewed_total" ["because"] "Connections that this node became master of because it forwards them: in time (`in_time`), or because their master held them to have ended (`end_refused`).",
    PacketsWaited: Counter "waited_packets_total" ["outcome"] "Packets that had to wait for what a peer was about to tell: `helped` by it, `overdue` without it, or without room to wait (`no_room`).",
    BatchSeconds: Histogram "batch_seconds" [] "Time from a batch of packets until they can be sent, of one batch in 64.",
    BatchPackets: Counter "measured_packets_total" [] "Packets in the batches whose time was measured.",
    FunctionSeconds: Histogram "function_seconds" ["function", "call"] "Time that a function took to decide on a connection or to handle a packet, of a few packets in each measured batch.",
    FunctionConnections: Counter "function_connections_total" ["function"] "Beginning connections that the network function was asked about.",
    FunctionConnectionsRefused: Counter "function_refused_connections_total" ["function"] "Connections that the network function did not let begin.",
    FunctionPackets: Counter "function_packets_total" ["function"] "Packets that the network function was handed.",
    FunctionPacketsStopped: Counter "function_stopped_packets_total" ["function"] "Packets that the network function did not forward.",
    FunctionEvents: Counter "function_events_total" ["function", "event"] "What network functions count.",
    FirewallRulePackets: Counter "firewall_rule_packets_total" ["rule", "action"] "First packets of connections that the firewall rule decided on.",
    LogEntriesDropped: Counter "log_entries_dropped_total" [] "Log entries of rules beyond their limit or what the log takes.",
    PeerUp: Gauge "peer_up" ["peer"] "1 while the failure detector hears the peer.",
    PathUp: Gauge "path_up" ["peer", "path"] "1 while failure detection over the path (`replication`, or a port) is up.",
    SplitBrain: Gauge "split_brain" ["peer", "certainty"] "1 while a peer is `suspected` to hold the same addresses as this node, or that is `confirmed`.",
    PeerSynchronised: Gauge "peer_synchronised" ["peer"] "1 while the peer holds every connection that it was told of.",
    PeerConfigurationDiffers: Gauge "peer_configuration_differs" ["peer"] "1 while the peer says that its configuration is not as this node's.",
    ReplicationLag: Gauge "replication_lag_seconds" ["peer"] "Age of the oldest change that the peer has not acknowledged.",
    ReplicationQueued: Gauge "replication_queued" ["peer"] "Changes waiting to be sent to the peer.",
    ReplicationInFlight: Gauge "replication_in_flight_messages" ["peer"] "Messages sent and not acknowledged.",
    ReplicationSent: Counter "replication_sent_messages_total" ["peer"] "Messages sent to the peer.",
    ReplicationReceived: Counter "replication_received_messages_total" ["peer"] "Messages received from the peer.",
    ReplicationResent: Counter "replication_resent_messages_total" ["peer"] "Changes sent again under a new number.",
    ReplicationLost: Counter "replication_lost_messages_total" ["peer"] "Messages of the peer that never came.",
    FilterEntries: Gauge "filter_entries" [] "Connections, or pairs of hosts, in the filter that peers are told.",
    FilterEntriesMax: Gauge "filter_entries_max" [] "Those that the filter has room for.",
    FilterRefused: Counter "filter_refused_entries_total" [] "Entries that the filter had no room for, or that were more than it was made for.",
    FilterSentBytes: Counter "filter_sent_bytes_total" [] "Bytes of datagrams that told peers of the filter, without headers and encryption.",
    FilterUpdates: Counter "filter_updates_total" ["kind"] "Updates that told peers the whole filter (`whole`) or what had changed (`incremental`).",
    FilterDrifts: Counter "filter_drifts_total" [] "Sections of the filter that a peer found to be different, and that were told again.",
    FilterMemory: Gauge "filter_memory_bytes" [] "What the filter takes in memory.",
    FilterToldOn: Gauge "filter_told_on_entries" [] "Entries of nodes that are gone, told on because their connections have not come back.",
    PeerFilterEntries: Gauge "peer_filter_entries" ["peer"] "Connections, or pairs of hosts, in the peer's filter, as it said.",
    PreciseConnections: Counter "precise_connections_total" ["because"] "Connections told precisely beside the filter: they have lived long (`long_lived`), or a failover would lose them (`urgent`).",
    RecoveryActive: Gauge "recovery_active" [] "1 while a node that has taken over asks the filters of those that had the connections.",
    RecoveryConnections: Counter "recovery_connections_total" ["how"] "Connections begun in their middle after a take-over: `restored` by a filter, `cold_started` by a trusted host, `unblocked` because a segment came again.",
    RecoveryPackets: Counter "recovery_packets_total" ["outcome"] "Packets after a take-over that no filter could help: `missed`, `denied` by the rules, `conflicts` with another translation, `ambiguous` (an answer to one of several), `unasked`, `over_budget`, `probed`, `blocked`; keep-alives to those that an ambiguous answer may be for (`asked`) and their `denials`; resets of connections that were restored for nobody (`disowned`).",
    ReplicaRounds: Counter "replica_comparisons_total" ["peer"] "Times that the copies of the peer's connections were compared with what it told.",
    ReplicaDivergent: Gauge "replica_divergent" ["peer"] "Copies of the peer's connections known not to be what it told, missing ones included.",
    ReplicaDivergentFound: Counter "replica_divergent_found_total" ["peer"] "Copies found not to be what the peer told.",
    ReplicaRepaired: Counter "replica_repaired_total" ["peer"] "Missing and wrong copies that the peer told again.",
    ReplicaGhosts: Counter "replica_ghosts_removed_total" ["peer"] "Copies removed because the peer had no such connection.",
    ReplicaChangedSilently: Counter "replica_changed_silently_total" ["peer"] "Copies that were not in the table as they had been entered.",
    ReplicaAgreementAge: Gauge "replica_agreement_age_seconds" ["peer"] "Time since the copies were last found to be what the peer told.",
    ChannelSecured: Gauge "channel_secured" ["peer"] "1 while what is said to the peer is encrypted.",
    ChannelHandshakes: Counter "channel_handshakes_total" ["peer"] "Handshakes that made session keys with the peer.",
    ChannelRefused: Counter "channel_refused_datagrams_total" ["peer", "reason"] "Datagrams from the peer's address that its secure channel refused.",
    Reloads: Counter "reloads_total" ["outcome"] "Times that the configuration was read again: applied, or refused.",
    WorkerConnections: Gauge "worker_connections" ["worker"] "Connections that the worker holds.",
    WorkerLoad: Gauge "worker_load_ratio" ["worker"] "Share of its time that the worker worked.",
    WorkerForwarded: Counter "worker_forwarded_packets_total" ["worker"] "Packets that the worker forwarded.",
    WorkerHandedOver: Counter "worker_handed_over_packets_total" ["worker"] "Packets that came to the worker and belong to another.",
    WorkerTaken: Counter "worker_taken_packets_total" ["worker"] "Packets that other workers handed to the worker.",
    Takeovers: Counter "takeovers_total" [] "Times that this node became active.",
    RedundancyOpen: Gauge "redundancy_open" [] "1 while packets go through the tunnel to the other site.",
    RedundancyMemory: Gauge "redundancy_memory_bytes" [] "Memory of the tunnel's caches and their indexes.",
    RedundancyPeriod: Gauge "redundancy_period_bytes" [] "Bytes of payload for each place that is sampled; longer while the processor is short.",
    RedundancySessions: Counter "redundancy_sessions_total" [] "Times that the two ends of the tunnel came together.",
    RedundancyPackets: Counter "redundancy_packets_total" ["direction"] "Packets through the tunnel: `sent` into it, `received` from it.",
    RedundancyPacketBytes: Counter "redundancy_packet_bytes_total" ["direction"] "Bytes of the packets through the tunnel.",
    RedundancyDatagramBytes: Counter "redundancy_datagram_bytes_total" ["direction"] "Bytes of the tunnel's datagrams, with their IP and UDP headers.",
    RedundancyMatchedBytes: Counter "redundancy_matched_bytes_total" [] "Bytes of payload for which pointers were sent.",
    RedundancySavedBytes: Counter "redundancy_saved_bytes_total" ["by"] "Bytes that were not sent beside those of payload: of `headers`, and by the `second_stage`.",
    RedundancyDatagrams: Counter "redundancy_datagrams_total" ["fate"] "Datagrams of the tunnel: `sent`, of those `sent_again` and `copied`, and `given_up`; `received`, of those `recovered` by sending again, `lost` for good, and `refused`.",
    RedundancyBypassed: Counter "redundancy_bypassed_packets_total" ["reason"] "Packets that went past the tunnel.",
    RedundancyMisses: Counter "redundancy_misses_total" [] "Packets that pointed to bytes that were not here when they came.",
    RedundancyRepaired: Counter "redundancy_repaired_pieces_total" ["direction"] "Pieces of 64 bytes that the other site lacked and was given (`sent`), or that were asked for and came (`received`).",
    RedundancyDropped: Counter "redundancy_dropped_packets_total" ["reason"] "Packets lost in the tunnel: too much waited (`backlog`), what they point to is nowhere (`abandoned`), or they made no sense (`broken`).",
    RedundancyMirrors: Gauge "redundancy_mirrors" [] "Nodes of this site that mirror this node's caches.",
    RedundancyMirrorBytes: Counter "redundancy_mirror_bytes_total" ["direction"] "Bytes `told` to nodes that mirror this node's caches, and `heard` from the node whose caches this one mirrors.",
    RedundancyMirrorHeld: Gauge "redundancy_mirror_held_bytes" ["cache"] "Bytes that this node, standing by, holds of what the tunnel's end `sent` and `received`.",
    RedundancyMirrorToHold: Gauge "redundancy_mirror_to_hold_bytes" ["cache"] "Bytes that there are to hold.",
    RedundancyMirrorBlocks: Counter "redundancy_mirror_blocks_total" ["fate"] "Blocks that `passed` while a node mirrored the caches, of those `left_out` for want of room; `heard` while standing by, of those `missed` because they could not be followed.",
    RedundancyMirrorPieces: Counter "redundancy_mirror_pieces_total" ["direction"] "Pieces of 64 bytes that mirrors lacked and were `given`, or that this one lacked and has `taken`.",
    RedundancyCachesTakenOver: Counter "redundancy_caches_taken_over_total" [] "Caches that this node went on with when it became the tunnel's end.",
    KernelConnections: Gauge "kernel_connections" [] "Connections that the kernel tracks.",
    KernelConnectionsMax: Gauge "kernel_connections_max" [] "Connections that the kernel tracks at most; 0 is without limit.",
    SyncConnections: Gauge "sync_connections" ["kind"] "Connections known: those whose packets this kernel sees (`own`), peers' (`copy`), and of those the ones that are in this kernel (`injected`).",
    SyncExpectations: Counter "sync_kernel_expectation_requests_total" [] "Requests to the kernel about connections that others have announced.",
    SyncWaiting: Gauge "sync_kernel_requests_waiting" [] "Changes that wait to be made in the kernel.",
    SyncEvents: Counter "sync_kernel_events_total" [] "Events read from the kernel.",
    SyncEventsMalformed: Counter "sync_kernel_events_malformed_total" [] "Events of the kernel that could not be understood.",
    SyncOverruns: Counter "sync_kernel_event_overruns_total" [] "Times that the kernel found no room for an event.",
    SyncRepaired: Counter "sync_kernel_repaired_total" [] "Connections found new, changed or gone after events were lost.",
    SyncReceiveBuffer: Gauge "sync_kernel_receive_buffer_bytes" [] "Buffer for the kernel's events.",
    SyncDumps: Counter "sync_kernel_dumps_total" [] "Times that the kernel's whole table was read.",
    SyncRequests: Counter "sync_kernel_requests_total" [] "Requests made to the kernel.",
    SyncRefused: Counter "sync_kernel_requests_refused_total" ["reason"] "Requests that the kernel refused.",
    SyncInjectedAgain: Counter "sync_injected_again_total" [] "Copies that the kernel ended before their master did, and that were injected again.",
    SyncTableFull: Counter "sync_table_full_total" [] "Connections of this kernel that were not remembered for want of room (kernel.connections_max).",
    SyncPrimary: Gauge "sync_primary" [] "1 while keepalived, or an operator, has this node carry connections.",
    SyncUsable: Gauge "sync_usable" [] "1 while all that is known of connections that this node is to carry is in its kernel.",
    SyncSplitBrain: Gauge "sync_split_brain" [] "1 while another node holds that it is primary, too, where one at a time is.",
    SyncTroubles: Gauge "sync_troubles" [] "Things that are wrong now; `mainstay status` names them.",
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
