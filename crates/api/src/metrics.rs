//! Counters and gauges: those that no field of the status has, and the values of all.

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

/// How the workers' values of a metric become the node's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// They are added.
    Sum,
    /// The least counts.
    Least,
    /// The greatest counts.
    Greatest,
    /// The lead knows it, or all know the same.
    Lead,
}

/// What is known of a metric before it has a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// Its name on the page.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: Vec<&'static str>,
    /// What it counts.
    pub help: &'static str,
    /// How the workers' values become one.
    pub merge: Merge,
}

/// Descriptions of metrics, each once.
#[derive(Debug, Default)]
pub struct Catalogue(Vec<Description>);

impl Catalogue {
    /// Adds a metric. One of several fields is described by the first of them.
    pub fn add(&mut self, metric: Description) {
        if !self.0.iter().any(|known| known.name == metric.name) {
            self.0.push(metric);
        }
    }

    /// The metrics, in the order in which they were added.
    #[must_use]
    pub fn as_slice(&self) -> &[Description] {
        &self.0
    }
}

macro_rules! metrics {
    ($($variant:ident: $kind:ident $(as $merge:ident)? $name:literal [$($label:literal),*] $help:literal,)*) => {
        /// Every metric that no field of the status has.
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

            /// What is known of it.
            #[must_use]
            pub fn description(self) -> Description {
                match self {
                    $(Self::$variant => Description {
                        name: self.name(),
                        kind: Kind::$kind,
                        labels: self.labels().to_vec(),
                        help: $help,
                        merge: [$(Merge::$merge,)? Merge::Sum][0],
                    },)*
                }
            }

            /// Names of its labels.
            #[must_use]
            pub const fn labels(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($label),*],)* }
            }
        }
    };
}

// Kind, name, labels and help; workers' values are added, or become one as `as` states.
metrics! {
    Passive: Gauge as Lead "passive" [] "1 while this node takes no shared addresses: it has just started, another host has them, or it rejects a peer's packets.",
    AddressConflicts: Counter "address_conflicts_total" [] "Frames in which another host claimed an address that this node holds.",
    AddressDefences: Counter "address_defences_total" [] "Announcements that this node sent against such claims.",
    PacketsDropped: Counter "dropped_packets_total" ["reason"] "Packets that the gateway dropped, by reason.",
    PacketsFragmented: Counter "fragmented_packets_total" [] "Packets that the gateway fragmented because the egress port's MTU was too small.",
    PacketsInFragments: Gauge "packets_in_fragments" [] "Fragmented packets of which not all fragments have arrived.",
    RouterAdvertisementsSent: Counter "router_advertisements_sent_total" [] "Router advertisements that the gateway sent, answers to solicitations among them.",
    IcmpErrorsSent: Counter "icmp_errors_sent_total" [] "ICMP errors that the gateway sent about packets that it did not forward.",
    IcmpErrorsLimited: Counter "icmp_errors_limited_total" [] "ICMP errors that the rate limit suppressed.",
    PacketsAwaitingNeighbour: Gauge "packets_awaiting_neighbour" [] "Packets that wait for the link address of their next hop.",
    ConnectionsOpened: Counter "connections_opened_total" [] "Connections that began on this node.",
    ConnectionsClosed: Counter "connections_closed_total" [] "Connections that ended on this node.",
    ConnectionsRelated: Counter "connections_related_total" [] "Related connections that began on this node.",
    ConnectionsTakenOver: Counter "connections_taken_over_total" [] "Replicas that this node became owner of because their packets arrived here.",
    ConnectionsRelearnt: Counter "connections_relearnt_total" [] "Connections whose windows this node relearned because a peer may have forwarded their packets meanwhile.",
    FailedConnectionResets: Counter "failed_connection_resets_total" ["outcome"] "Resets of TCP connections that ended because their backend failed: sent when they ended, sent in answer to a later segment, or left out because of the limit. Outcome `stray`: sent in answer to a segment of a connection that no node has.",
    ConnectionsDisallowed: Counter "connections_disallowed_total" [] "Connections that ended because the rules in force no longer accept them.",
    RepliesHeld: Counter "replies_held_total" [] "First replies that were held until a peer acknowledged their connection.",
    RepliesOverdue: Counter "replies_overdue_total" [] "First replies that were sent without a peer's acknowledgement because `hold_first_reply` had passed or there was no room to hold them.",
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
    UrlFilterDecisions: Counter "url_filter_decisions_total" ["rule", "category", "outcome"] "Connections, questions and further requests that the rule of the URL filter decided on: `allowed`, `blocked`, or `logged` (it only logs). The category is `uncategorised` for hosts in none, `undecided` for connections that show no host, and `unanswered` for hosts about which the server has given no answer.",
    UrlFilterAnswers: Counter "url_filter_answers_total" ["rule", "kind"] "Answers of the rule in the place of servers: a `page`, a `reset` of a client, or `nxdomain` (a DNS response that the name does not exist).",
    FirewallRulePackets: Counter "firewall_rule_packets_total" ["rule", "action"] "First packets of connections that the firewall rule decided on.",
    LogEntriesDropped: Counter "log_entries_dropped_total" [] "Log entries of firewall rules that were suppressed by their limit or by a full log queue.",
    PeerConfigurationDiffers: Gauge as Lead "peer_configuration_differs" ["peer"] "1 while the peer's configuration has another fingerprint than this node's.",
    StateServiceDropped: Counter "state_service_dropped_packets_total" ["reason"] "Packets that the state service dropped: no node has the connection (`unknown`), too many packets wait (`waiting_full`), the rate of pulls (`pull_budget`) or of queries (`query_budget`) is reached.",
    RecoveryConnections: Counter "recovery_connections_total" ["how"] "Connections that continued in their middle after a take-over: `restored` by a peer filter, `cold_started` by a trusted host, `unblocked` by a retransmitted segment.",
    RecoveryPackets: Counter "recovery_packets_total" ["outcome"] "Packets during recovery that restored no connection: they matched no filter (`missed`), the rules denied them (`denied`), their translation was taken (`conflicts`), or several connections matched (`ambiguous`). `unasked` and `over_budget` exceeded a lookup limit of their source or of all sources. `probed` and `blocked` are those of cold start and of `block`. `asked` counts keep-alives to candidates of ambiguous replies, `denials` their resets, and `disowned` the resets of false positives.",
    ReplicaAgreedAge: Gauge as Greatest "replica_agreed_age_seconds" ["peer"] "Time since the replicas were last found equal to what the peer sent.",
    ChannelRefused: Counter "channel_refused_datagrams_total" ["peer", "reason"] "Datagrams from the peer's address that the secure channel refused, by reason.",
    Reloads: Counter "reloads_total" ["outcome"] "Reloads of the configuration that were `applied` or `refused`.",
    Takeovers: Counter as Lead "takeovers_total" [] "Times that this node became active.",
    RedundancyBypassed: Counter "redundancy_bypassed_packets_total" ["reason"] "Packets that bypassed the tunnel, by reason.",
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

    /// Adds the value of a metric under labels, if it has one.
    pub fn put(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: Option<f64>) {
        let Some(value) = value else { return };
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.samples.push(Sample { name: name.to_owned(), labels, value });
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
        debug_assert_eq!(metric.description().kind, Kind::Histogram, "{} is none", metric.name());
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
