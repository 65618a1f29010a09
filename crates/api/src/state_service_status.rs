//! The status of the state service.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::{Metric, Samples};
use crate::report::Report;

/// The state service: connections of packets that this node does not have are looked up at its peers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(also(Self::report_dropped))]
pub struct StateServiceStatus {
    /// Live peers with a state service. With several workers, the smallest number that a worker knows.
    #[report(
        least,
        gauge(
            "state_service_peers",
            state = "alive",
            help = "Live peers with a state service (`alive`), and those whose index is known (`indexed`)."
        )
    )]
    pub peers: u64,
    /// Of those, the ones whose index is known.
    #[report(least, gauge("state_service_peers", state = "indexed"))]
    pub indexes: u64,
    /// Tuples of connections that found no room in this node's index. Peers cannot find these connections here.
    #[report(sum, gauge("state_service_unindexed"))]
    pub unindexed: u64,
    /// Packets that wait for a state.
    #[report(sum, gauge("state_service_waiting_packets"))]
    pub waiting: u64,
    /// Requests for states that were sent. A connection may need several.
    #[report(
        sum,
        counter(
            "state_service_pulls_total",
            outcome = "sent",
            help = "Requests for states that were `sent`, states that were `received`, and pulls that `failed`."
        )
    )]
    pub pulls: u64,
    /// States that were received: connections that continued here.
    #[report(sum, counter("state_service_pulls_total", outcome = "received"))]
    pub pulled: u64,
    /// Pulls that failed: the requested peer did not have the connection, or did not respond in time.
    #[report(sum, counter("state_service_pulls_total", outcome = "failed"))]
    pub pulls_failed: u64,
    /// Responses of peers that did not have the requested connection: false positives of their indexes, and old indexes.
    #[report(sum, counter("state_service_false_positives_total"))]
    pub false_positives: u64,
    /// States that were sent to peers, which own these connections since.
    #[report(sum, counter("state_service_handed_over_total"))]
    pub handed_over: u64,
    /// Queries for increments of the indexes, each for up to 64 connections.
    #[report(
        sum,
        counter(
            "state_service_queries_total",
            of = "increments",
            help = "Queries for increments of the indexes for packets (`increments`), and requests for whole indexes and lost updates (`indexes`)."
        )
    )]
    pub queries: u64,
    /// Requests for whole indexes, and for updates that were lost.
    #[report(sum, counter("state_service_queries_total", of = "indexes"))]
    pub index_requests: u64,
    /// Updates of indexes that arrived after a lost one.
    #[report(sum, counter("state_service_index_gaps_total"))]
    pub gaps: u64,
    /// Messages sent. One to several peers counts for each.
    #[report(
        sum,
        counter(
            "state_service_messages_total",
            outcome = "sent",
            help = "Messages of the state service: `sent`, `received`, or not sent because too many waited (`refused`)."
        )
    )]
    pub sent_messages: u64,
    /// Bytes of these messages, without headers and encryption.
    #[report(
        sum,
        counter(
            "state_service_bytes_total",
            direction = "sent",
            help = "Bytes of messages of the state service that were `sent` and `received`, without headers and encryption."
        )
    )]
    pub sent_bytes: u64,
    /// Messages received.
    #[report(sum, counter("state_service_messages_total", outcome = "received"))]
    pub received_messages: u64,
    /// Bytes of these messages.
    #[report(sum, counter("state_service_bytes_total", direction = "received"))]
    pub received_bytes: u64,
    /// Messages that were not sent because too many waited.
    #[report(sum, counter("state_service_messages_total", outcome = "refused"))]
    pub refused_messages: u64,
    /// Packets that were dropped, by reason: no node has the connection (`unknown`), too many packets wait (`waiting_full`), the rate of pulls
    /// (`pull_budget`) or of queries (`query_budget`) is reached.
    #[serde(default)]
    #[report(sum)]
    pub dropped: BTreeMap<String, u64>,
}

impl StateServiceStatus {
    fn report_dropped(&self, samples: &mut Samples) {
        self.dropped
            .iter()
            .for_each(|(reason, packets)| samples.add_count(Metric::StateServiceDropped, &[reason], *packets));
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
        whole.merge(&StateServiceStatus { indexes: 2, ..one.clone() });
        assert_eq!((whole.peers, whole.indexes, whole.pulls, whole.dropped_packets()), (3, 2, 10, 6));
        let json = serde_json::to_value(&one).expect("it is plain data");
        assert_eq!(serde_json::from_value::<StateServiceStatus>(json).expect("it was written so"), one);
    }
}
