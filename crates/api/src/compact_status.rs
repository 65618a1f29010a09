//! The status of compact replication.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// This node's peer filter, and the recovery of connections from the filters of other nodes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FilterStatus {
    /// The filter: `replication.representation`.
    pub representation: String,
    /// Entries of the filter: connections, or pairs of hosts.
    pub entries: u64,
    /// Number of entries that the filter is made for.
    pub entries_max: u64,
    /// Insertions that the filter had no room for.
    pub refused: u64,
    /// Insertions into `flow-digest` beyond `entries_max`. The filter has these entries, and so more false positives.
    pub beyond: u64,
    /// Bytes of datagrams that replicated the filter, without headers and encryption.
    pub bytes: u64,
    /// Rate of these bytes per second.
    #[serde(default)]
    pub bytes_per_s: f64,
    /// Datagrams that replicated the filter.
    pub datagrams: u64,
    /// Updates that contained the whole filter.
    pub whole_updates: u64,
    /// Updates that contained its changes.
    pub incremental_updates: u64,
    /// Sections that differed at a peer and were sent again.
    pub drifts: u64,
    /// Memory of the filter and of inherited filters that this node sends, in bytes. Copies of peers' filters are not included.
    pub memory_bytes: u64,
    /// Inherited filters: those of dead nodes, which this node re-advertises.
    #[serde(default)]
    pub inherited: u64,
    /// Entries of inherited filters whose connections are not restored yet.
    #[serde(default)]
    pub inherited_entries: u64,
    /// Connections that were replicated precisely because of their age.
    pub precise_long_lived: u64,
    /// Connections that were replicated precisely because a failover would lose them otherwise: the filter has no room for them, or an
    /// entry cannot restore them.
    pub precise_urgent: u64,
    /// Recovery of connections of nodes that this one took over from.
    pub recovery: RecoveryStatus,
}

/// Recovery of connections from peer filters after a take-over.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RecoveryStatus {
    /// Recoveries that began.
    pub begun: u64,
    /// Seconds for which peer filters are still asked, during a recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_s: Option<f64>,
    /// Counters by name. Recoveries that ended because all entries were restored: `used_up`. Connections: `restored` by a filter,
    /// `cold_started`, `unblocked`. Restored connections that their other end reset at once, which are false positives: `disowned`.
    /// Packets: `missed` (no filter matched), `denied` by the rules, `conflicts` with another translation, `ambiguous` replies. Probes to
    /// the candidates of ambiguous replies and the resets of these: `asked`, `denials`. Packets over the limit of their source or of all
    /// sources: `unasked`, `over_budget`. Packets under cold start and `block`: `probed`, `blocked`.
    #[serde(flatten)]
    pub counts: BTreeMap<String, u64>,
}

impl FilterStatus {
    /// Adds what another worker of the node has.
    pub fn add(&mut self, other: &Self) {
        let Self { representation: _, recovery, .. } = other;
        for (sum, part) in [
            (&mut self.entries, other.entries),
            (&mut self.entries_max, other.entries_max),
            (&mut self.refused, other.refused),
            (&mut self.beyond, other.beyond),
            (&mut self.bytes, other.bytes),
            (&mut self.datagrams, other.datagrams),
            (&mut self.whole_updates, other.whole_updates),
            (&mut self.incremental_updates, other.incremental_updates),
            (&mut self.drifts, other.drifts),
            (&mut self.memory_bytes, other.memory_bytes),
            (&mut self.inherited_entries, other.inherited_entries),
            (&mut self.precise_long_lived, other.precise_long_lived),
            (&mut self.precise_urgent, other.precise_urgent),
        ] {
            *sum += part;
        }
        self.bytes_per_s += other.bytes_per_s;
        // Each worker re-advertises its share of the same filters.
        self.inherited = self.inherited.max(other.inherited);
        self.recovery.add(recovery);
    }
}

impl RecoveryStatus {
    /// All workers take over together; the recovery lasts as long as one of them asks.
    fn add(&mut self, other: &Self) {
        self.begun = self.begun.max(other.begun);
        self.ends_in_s = [self.ends_in_s, other.ends_in_s].into_iter().flatten().reduce(f64::max);
        for (name, count) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
    }

    /// One of [`RecoveryStatus::counts`].
    #[must_use]
    pub fn count_of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }
}

/// A peer's filter, as this node received it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerFilterStatus {
    /// Entries of the filter, as the peer reports them.
    pub entries: u64,
    /// Filters of the peer that arrived completely. The peer sends a new one after each restart.
    pub filters: u64,
    /// Sections that differed from the peer's and were requested.
    pub drifts: u64,
    /// Datagrams that were malformed or belonged to no known filter.
    pub bad_datagrams: u64,
    /// Whether the filter is complete, with the filters that the peer re-advertises.
    #[serde(default)]
    pub is_complete: bool,
}

impl PeerFilterStatus {
    /// Adds what another worker of this node received.
    pub fn add(&mut self, other: &Self) {
        self.entries += other.entries;
        self.filters = self.filters.min(other.filters);
        self.drifts += other.drifts;
        self.bad_datagrams += other.bad_datagrams;
        self.is_complete &= other.is_complete;
    }
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
        whole.add(&one);
        whole.add(&FilterStatus { recovery: RecoveryStatus { begun: 1, ..RecoveryStatus::default() }, ..one });
        assert_eq!((whole.entries, whole.bytes, whole.bytes_per_s), (30, 300, 4.5));
        let recovery = &whole.recovery;
        assert_eq!((recovery.begun, recovery.count_of("restored"), recovery.ends_in_s), (1, 6, Some(2.0)));
        let json = serde_json::to_value(&whole).expect("it is plain data");
        assert_eq!((&json["recovery"]["restored"], &json["recovery"]["begun"]), (&6.into(), &1.into()));
        assert_eq!(serde_json::from_value::<FilterStatus>(json).expect("it was written so"), whole);
    }
}
