//! The status of compact replication.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::{Metric, Samples};
use crate::report::Report;

/// This node's peer filter, and the recovery of connections from the filters of other nodes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
pub struct FilterStatus {
    /// The filter: `replication.representation`.
    pub representation: String,
    /// Entries of this node's peer filter: connections, or pairs of hosts.
    #[report(sum, gauge("filter_entries"))]
    pub entries: u64,
    /// Number of entries that the peer filter is made for.
    #[report(sum, gauge("filter_entries_max"))]
    pub entries_max: u64,
    /// Insertions that the filter had no room for.
    #[report(sum, counter("filter_refused_entries_total", value = self.refused + self.beyond,
        help = "Insertions that the peer filter had no room for, and those into `flow-digest` beyond its `entries_max`."))]
    pub refused: u64,
    /// Insertions into `flow-digest` beyond `entries_max`. The filter has these entries, and so more false positives.
    #[report(sum)]
    pub beyond: u64,
    /// Bytes of datagrams that replicated the peer filter, without headers and encryption.
    #[report(sum, counter("filter_sent_bytes_total"))]
    pub bytes: u64,
    /// Rate of these bytes per second.
    #[serde(default)]
    #[report(sum)]
    pub bytes_per_s: f64,
    /// Datagrams that replicated the filter.
    #[report(sum)]
    pub datagrams: u64,
    /// Updates that contained the whole filter.
    #[report(
        sum,
        counter(
            "filter_updates_total",
            kind = "whole",
            help = "Updates of the peer filter that contained all of it (`whole`) or its changes (`incremental`)."
        )
    )]
    pub whole_updates: u64,
    /// Updates that contained its changes.
    #[report(sum, counter("filter_updates_total", kind = "incremental"))]
    pub incremental_updates: u64,
    /// Sections of the peer filter that differed at a peer and were sent again.
    #[report(sum, counter("filter_drifts_total"))]
    pub drifts: u64,
    /// Memory of the peer filter and of inherited filters that this node sends, in bytes. Copies of peers' filters are not included.
    #[report(sum, gauge("filter_memory_bytes"))]
    pub memory_bytes: u64,
    /// Inherited filters: those of dead nodes, which this node re-advertises.
    #[serde(default)]
    #[report(greatest)]
    pub inherited: u64,
    /// Entries of inherited filters whose connections are not restored yet.
    #[serde(default)]
    #[report(sum, gauge("filter_inherited_entries"))]
    pub inherited_entries: u64,
    /// Connections that were replicated precisely because of their age.
    #[report(
        sum,
        counter(
            "precise_connections_total",
            reason = "long_lived",
            help = "Connections that were replicated precisely beside the peer filter: old ones (`long_lived`), and those that an entry cannot restore (`urgent`)."
        )
    )]
    pub precise_long_lived: u64,
    /// Connections that were replicated precisely because a failover would lose them otherwise: the filter has no room for them, or an
    /// entry cannot restore them.
    #[report(sum, counter("precise_connections_total", reason = "urgent"))]
    pub precise_urgent: u64,
    /// Recovery of connections of nodes that this one took over from.
    #[report(nested)]
    pub recovery: RecoveryStatus,
}

/// Recovery of connections from peer filters after a take-over.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
#[report(also(Self::report_counts))]
pub struct RecoveryStatus {
    /// Recoveries that began.
    #[report(greatest)]
    pub begun: u64,
    /// Seconds for which peer filters are still asked, during a recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(greatest, gauge("recovery_active", value = self.ends_in_s.is_some(),
        help = "1 during the recovery after a take-over, while peer filters are asked."))]
    pub ends_in_s: Option<f64>,
    /// Counters by name. Recoveries that ended because all entries were restored: `used_up`. Connections: `restored` by a filter,
    /// `cold_started`, `unblocked`. Restored connections that their other end reset at once, which are false positives: `disowned`.
    /// Packets: `missed` (no filter matched), `denied` by the rules, `conflicts` with another translation, `ambiguous` replies. Probes to
    /// the candidates of ambiguous replies and the resets of these: `asked`, `denials`. Packets over the limit of their source or of all
    /// sources: `unasked`, `over_budget`. Packets under cold start and `block`: `probed`, `blocked`.
    #[serde(flatten)]
    #[report(sum)]
    pub counts: BTreeMap<String, u64>,
}

impl RecoveryStatus {
    fn report_counts(&self, samples: &mut Samples) {
        for (name, count) in &self.counts {
            let metric = match name.as_str() {
                "restored" | "cold_started" | "unblocked" => Metric::RecoveryConnections,
                // It is an event.
                "used_up" => continue,
                _ => Metric::RecoveryPackets,
            };
            samples.add_count(metric, &[name], *count);
        }
    }

    /// One of [`RecoveryStatus::counts`].
    #[must_use]
    pub fn count_of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }
}

/// A peer's filter, as this node received it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct PeerFilterStatus {
    /// Entries of the filter, as the peer reports them.
    #[report(sum, gauge("peer_filter_entries"))]
    pub entries: u64,
    /// Filters of the peer that arrived completely. The peer sends a new one after each restart.
    #[report(least)]
    pub filters: u64,
    /// Sections that differed from the peer's and were requested.
    #[report(sum)]
    pub drifts: u64,
    /// Datagrams that were malformed or belonged to no known filter.
    #[report(sum)]
    pub bad_datagrams: u64,
    /// Whether the filter is complete, with the filters that the peer re-advertises.
    #[serde(default)]
    #[report(least)]
    pub is_complete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_have_is_added_and_what_they_do_together_is_not() {
        let counts = BTreeMap::from([("restored".to_owned(), 3)]);
        let recovery = RecoveryStatus { begun: 1, ends_in_s: Some(2.0), counts };
        let one = FilterStatus { entries: 10, bytes: 100, bytes_per_s: 1.5, recovery, ..FilterStatus::default() };
        let mut whole = one.clone();
        whole.merge(&one);
        whole.merge(&FilterStatus { recovery: RecoveryStatus { begun: 1, ..RecoveryStatus::default() }, ..one });
        assert_eq!((whole.entries, whole.bytes, whole.bytes_per_s), (30, 300, 4.5));
        let recovery = &whole.recovery;
        assert_eq!((recovery.begun, recovery.count_of("restored"), recovery.ends_in_s), (1, 6, Some(2.0)));
        let json = serde_json::to_value(&whole).expect("it is plain data");
        assert_eq!((&json["recovery"]["restored"], &json["recovery"]["begun"]), (&6.into(), &1.into()));
        assert_eq!(serde_json::from_value::<FilterStatus>(json).expect("it was written so"), whole);
    }
}
