//! Compact replication in a status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A node's filter, and its recovery of connections in peers' filters.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FilterStatus {
    /// How connections become entries: `replication.representation`.
    pub representation: String,
    /// Connections, or pairs of hosts, that are in the filter.
    pub entries: u64,
    /// Those that there is room for.
    pub entries_max: u64,
    /// Insertions that found no room.
    pub refused: u64,
    /// Insertions into a Bloom filter that had as many entries as it was made for.
    pub beyond: u64,
    /// Bytes of its updates to peers, without headers and encryption.
    pub bytes: u64,
    /// How many of these a second, lately.
    #[serde(default)]
    pub bytes_per_s: f64,
    /// Datagrams of its updates.
    pub datagrams: u64,
    /// Updates with the whole filter.
    pub whole_updates: u64,
    /// Updates with what had changed.
    pub incremental_updates: u64,
    /// Sections that a peer found to be different, and that were sent again.
    pub drifts: u64,
    /// What it takes in memory, in bytes, with inherited filters.
    pub memory_bytes: u64,
    /// Inherited filters, which this node re-advertises.
    #[serde(default)]
    pub inherited: u64,
    /// Their entries that have not been recovered.
    #[serde(default)]
    pub inherited_entries: u64,
    /// Connections replicated as records because they have lived long.
    pub precise_long_lived: u64,
    /// Connections replicated as records because a failover would lose them: the filter has no room for them, or the
    /// functions cannot restore them.
    pub precise_urgent: u64,
    /// The recovery of peers' connections.
    pub recovery: RecoveryStatus,
}

/// The recovery of connections in the filters of a failed peer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RecoveryStatus {
    /// Recoveries begun.
    pub begun: u64,
    /// For how long filters are still asked, in seconds, while they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_s: Option<f64>,
    /// What came of it: the counts of the pipeline's `RecoveryCounters`, by their names.
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

/// A peer's filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerFilterStatus {
    /// Connections, or pairs of hosts, in the filter, as the peer counts them.
    pub entries: u64,
    /// Filters of the peer that became whole; more than one if it was started again.
    pub filters: u64,
    /// Sections found to be different from the peer's, and asked for.
    pub drifts: u64,
    /// Datagrams that could not be used.
    pub bad_datagrams: u64,
    /// The filter is here whole, and so are those that the peer re-advertises.
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
