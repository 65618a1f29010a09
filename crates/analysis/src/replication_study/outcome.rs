//! What a study found, as plain values.

use std::collections::BTreeMap;

use serde::Serialize;

use super::hosts::Parallel;

/// What a method costs at a lazy threshold.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Cost {
    /// The age from which connections are replicated.
    pub threshold_ms: u32,
    /// Bytes from the primary to one backup, with IP and UDP headers.
    pub bytes: u64,
    /// Of these, what stands behind all headers: bodies of messages, changes of a filter.
    pub content_bytes: u64,
    /// Messages: of precise methods one for each change, of filters the words of the filter that were sent.
    pub messages: u64,
    /// Datagrams that these were in.
    pub datagrams: u64,
    /// Changes that the method had to replicate.
    pub changes: u64,
    /// Bytes, as a share of what precise-selective messages take at the same threshold, taken from one: what is saved.
    pub reduction: Option<f64>,
    /// The same against messages of 13 bytes for each change, without any header, as the paper counts.
    pub reduction_from_13_bytes: Option<f64>,
    /// The same where neither has a header: the paper's own comparison.
    pub reduction_without_headers: Option<f64>,
    /// What the threshold saves: against the same method at threshold 0.
    pub reduction_by_threshold: Option<f64>,
    /// Bytes of replication for each byte that protected connections carried.
    pub overhead: Option<f64>,
    /// Of the bytes that connections carried, those that they carried when a backup had them.
    pub protected_share: Option<f64>,
    /// Connections (or pairs of hosts) that the backup held at most.
    pub entries_at_backup: u64,
    /// Bytes of the backup's memory for them.
    pub backup_bytes: u64,
    /// Of tuples of no connection, those taken for one. No value: no failover was simulated.
    pub false_positive: Option<f64>,
    /// The same of tuples between two hosts that have a connection with each other.
    pub false_positive_same_hosts: Option<f64>,
    /// Of connections that the backup should know, those that it did not.
    pub false_negative: Option<f64>,
    /// Of connections that the backup should know, those whose state it had wrong. No value: the method has no states.
    pub inaccurate_state: Option<f64>,
    /// Of connections in progress, those that were not to be replicated (yet).
    pub deferred: Option<f64>,
    /// Connections that had no room in the filter.
    pub refused: u64,
    /// Bytes of the filter when it is sent whole; 0 for precise methods.
    pub filter_bytes: u64,
    /// Times that a filter was sent whole, and in increments.
    pub whole_updates: u64,
    /// See `whole_updates`.
    pub incremental_updates: u64,
    /// Bytes of the first full synchronisation, before the capture.
    pub initial_bytes: u64,
    /// Bytes by which the backup's filter is compared with the primary's, which are not among `bytes`; precise sessions compare theirs
    /// as well, which is not counted.
    pub checking_bytes: u64,
    /// Bytes of acknowledgements, from the backup to the primary.
    pub bytes_back: u64,
}

/// What a method costs.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct MethodOutcome {
    /// At threshold 0.
    #[serde(flatten)]
    pub cost: Cost,
    /// At each threshold that it was studied at.
    pub by_threshold: Vec<Cost>,
    /// How full the levels of its filter were at each simulated failover, at threshold 0; nothing for filters without levels.
    pub level_loads: Vec<LevelLoads>,
}

/// How full the levels of a filter were.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct LevelLoads {
    /// Seconds from the first packet on.
    pub at_s: f64,
    /// The share of its cells that is taken in each level, the largest level first.
    pub loads: Vec<f64>,
}

/// What the traffic is like.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Traffic {
    /// Seconds from the first packet to the last.
    pub duration_s: f64,
    /// The same without silences, of which no more than a minute each is counted: captures may lie years apart. Rates are by this.
    pub busy_s: f64,
    /// Packets that were studied.
    pub packets: u64,
    /// Bytes that their transports carried.
    pub payload_bytes: u64,
    /// Connections begun.
    pub connections: u64,
    /// Of these, those over TCP that ended within the capture.
    pub tcp: u64,
    /// The same over UDP.
    pub udp: u64,
    /// Connections begun a second.
    pub connections_per_second: f64,
    /// The most in progress at a time.
    pub connections_max: u64,
    /// Connections of which packets were seen in one direction only.
    pub one_way: u64,
    /// Their share.
    pub one_way_share: f64,
    /// Why connections ended.
    pub ended: BTreeMap<&'static str, u64>,
    /// Lifetimes in seconds that 10, 25, 50, 75, 90 and 99 % of the connections do not exceed.
    pub lifetime_quantiles_s: [f64; 6],
    /// Share of the connections whose lifetime is at most that of each of `lifetime_points_s`.
    pub lifetime_shares: Vec<f64>,
    /// See `lifetime_shares`.
    pub lifetime_points_s: Vec<f64>,
    /// Pairs of hosts with a connection, at most at a time.
    pub host_pairs_max: u64,
    /// Parallel connections between two hosts, by how long the pair was connected ([`super::hosts::LIFETIMES_MS`]).
    pub parallel: Vec<Parallel>,
}

/// Addresses of web resources, as an example of states under long keys (MLCBF, section 4.1 A).
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Urls {
    /// Requests that were seen.
    pub requests: u64,
    /// Different URLs among them.
    pub distinct: u64,
    /// Mean length of a URL in bytes.
    pub mean_bytes: f64,
    /// Bytes that the distinct URLs take, each with a byte for its category.
    pub precise_bytes: u64,
    /// Bytes that the URLs of all requests take, each with a byte: what the paper compares with.
    pub requested_bytes: u64,
    /// By structure.
    pub structures: BTreeMap<&'static str, UrlStructure>,
    /// By structure, where other nodes are only to know which URLs are there: beside Summary Cache (section 4.2 A).
    pub membership: BTreeMap<&'static str, UrlMembership>,
}

/// What a structure costs by which other nodes know which URLs a cache has.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct UrlMembership {
    /// Bytes of the structure at the node that has the URLs.
    pub memory_bytes: u64,
    /// What of the precise bytes that saves.
    pub memory_reduction: f64,
    /// Bytes at each other node.
    pub neighbour_bytes: u64,
    /// Bytes of the increments, as this program encodes changed words.
    pub network_bytes: u64,
    /// What of the precise bytes that saves.
    pub network_reduction: f64,
    /// Bytes of the increments of Summary Cache in its own encoding: four bytes for each changed bit. As `network_bytes` for other structures.
    pub flips_bytes: u64,
    /// Of URLs that are not in it, those that seem to be.
    pub false_positive: f64,
}

/// What a structure costs that holds the categories of URLs.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct UrlStructure {
    /// Bytes of the structure.
    pub memory_bytes: u64,
    /// What of the precise bytes that saves.
    pub memory_reduction: f64,
    /// Bytes of the increments that replicate it.
    pub network_bytes: u64,
    /// What of the precise bytes that saves.
    pub network_reduction: f64,
    /// Of URLs that are not in it, those for which it has a category.
    pub false_positive: f64,
    /// Of URLs that are in it, those with another category, or of which it does not know which.
    pub inaccurate_state: f64,
}

/// What was not studied.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct NotStudied {
    /// Frames by reason.
    pub frames: BTreeMap<&'static str, u64>,
    /// Packets in the middle of connections that did not begin in the capture.
    pub without_connection: u64,
    /// Packets that the tracker refuses.
    pub refused: u64,
    /// Fragments behind the first.
    pub fragments: u64,
    /// Packets that would have begun a connection when there was no room: give `--connections` more.
    pub table_full: u64,
    /// Connections that gave way to others.
    pub displaced: u64,
    /// Captures that could not be read to their end, and where.
    pub damaged: Vec<String>,
}

/// A figure of the paper beside ours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SeedRow {
    /// What is compared.
    pub what: String,
    /// In the paper.
    pub seed: f64,
    /// Here.
    pub here: Option<f64>,
    /// Why they differ.
    pub reason: &'static str,
}

/// What to choose for such traffic.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The method.
    pub method: &'static str,
    /// What it takes, in bytes a second to one backup.
    pub bytes_per_second: f64,
    /// What precise-selective messages take.
    pub precise_bytes_per_second: f64,
    /// The lowest deferral threshold that saves much and protects nearly all bytes.
    pub threshold_ms: Option<u32>,
    /// Why, and what else there is, for people.
    pub sentences: Vec<String>,
}

/// What a study found.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Outcome {
    /// The traffic.
    pub traffic: Traffic,
    /// What to choose; nothing where no connection was replicated, or precise-selective was not studied.
    pub advice: Option<Advice>,
    /// What each method costs, by its name.
    pub methods: BTreeMap<&'static str, MethodOutcome>,
    /// Web addresses, if there were any.
    pub urls: Option<Urls>,
    /// The paper's figures for such traffic.
    pub beside_the_paper: Vec<SeedRow>,
    /// What was left out.
    pub not_studied: NotStudied,
    /// Failovers that were simulated.
    pub failovers: u64,
}
