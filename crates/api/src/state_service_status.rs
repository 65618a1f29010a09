//! The status of the state service.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The state service: connections of packets that this node does not have are looked up at its peers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StateServiceStatus {
    /// Live peers with a state service. With several workers, the smallest number that a worker knows.
    pub peers: u64,
    /// Of those, the ones whose index is known.
    pub indexes: u64,
    /// Tuples of connections that found no room in this node's index. Peers cannot find these connections here.
    pub unindexed: u64,
    /// Packets that wait for a state.
    pub waiting: u64,
    /// Requests for states that were sent. A connection may need several.
    pub pulls: u64,
    /// States that were received: connections that continued here.
    pub pulled: u64,
    /// Pulls that failed: the requested peer did not have the connection, or did not respond in time.
    pub pulls_failed: u64,
    /// Responses of peers that did not have the requested connection: false positives of their indexes, and old indexes.
    pub false_positives: u64,
    /// States that were sent to peers, which own these connections since.
    pub handed_over: u64,
    /// Queries for increments of the indexes, each for up to 64 connections.
    pub queries: u64,
    /// Requests for whole indexes, and for updates that were lost.
    pub index_requests: u64,
    /// Updates of indexes that arrived after a lost one.
    pub gaps: u64,
    /// Messages sent. One to several peers counts for each.
    pub sent_messages: u64,
    /// Bytes of these messages, without headers and encryption.
    pub sent_bytes: u64,
    /// Messages received.
    pub received_messages: u64,
    /// Bytes of these messages.
    pub received_bytes: u64,
    /// Messages that were not sent because too many waited.
    pub refused_messages: u64,
    /// Packets that were dropped, by reason: no node has the connection (`unknown`), too many packets wait (`waiting_full`), the rate of pulls
    /// (`pull_budget`) or of queries (`query_budget`) is reached.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
}

impl StateServiceStatus {
    /// Adds what another worker of the node has.
    pub fn add(&mut self, other: &Self) {
        self.peers = self.peers.min(other.peers);
        self.indexes = self.indexes.min(other.indexes);
        for (sum, part) in [
            (&mut self.unindexed, other.unindexed),
            (&mut self.waiting, other.waiting),
            (&mut self.pulls, other.pulls),
            (&mut self.pulled, other.pulled),
            (&mut self.pulls_failed, other.pulls_failed),
            (&mut self.false_positives, other.false_positives),
            (&mut self.handed_over, other.handed_over),
            (&mut self.queries, other.queries),
            (&mut self.index_requests, other.index_requests),
            (&mut self.gaps, other.gaps),
            (&mut self.sent_messages, other.sent_messages),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.received_messages, other.received_messages),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.refused_messages, other.refused_messages),
        ] {
            *sum += part;
        }
        for (reason, packets) in &other.dropped {
            *self.dropped.entry(reason.clone()).or_default() += packets;
        }
    }

    /// Packets that were dropped, whatever the reason.
    #[must_use]
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_have_is_added_and_each_peer_counts_once() {
        let dropped = BTreeMap::from([("unknown".to_owned(), 3)]);
        let one = StateServiceStatus { peers: 3, indexes: 3, pulls: 5, dropped, ..StateServiceStatus::default() };
        let mut whole = one.clone();
        whole.add(&StateServiceStatus { indexes: 2, ..one.clone() });
        assert_eq!((whole.peers, whole.indexes, whole.pulls, whole.dropped_packets()), (3, 2, 10, 6));
        let json = serde_json::to_value(&one).expect("it is plain data");
        assert_eq!(serde_json::from_value::<StateServiceStatus>(json).expect("it was written so"), one);
    }
}
