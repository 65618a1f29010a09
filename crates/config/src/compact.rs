//! `[replication.filter]` and `[replication.recovery]`: compact replication.

use std::time::Duration;

use flow::PortId;
use replication::compact::{CompactConfig, Representation, UpdateRule};
use serde::Deserialize;
use toml::Spanned;

use super::diagnostic::Text;
use super::value::DurationText;

/// The section configures the peer filter of compact replication.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFilter {
    /// Number of entries that the filter is made for: connections, or pairs of hosts. Each worker has an equal part. `flow-digest` inserts
    /// connections beyond it, with more false positives. The other filters leave out what they have no room for. Where `precise_after` is
    /// set, this is replicated precisely; else a failover loses it. `mainstay status` counts both. Default: `limits.connections_max`.
    pub entries_max: Option<Spanned<u64>>,
    /// Bits of a fingerprint, where the filter has fingerprints. Fewer make more false positives and, with `symbols`, shorter
    /// messages. A cell takes 32 bits of memory in any case.
    pub fingerprint_bits: Option<Spanned<u8>>,
    /// Counters per entry of a Bloom filter.
    pub counters_per_entry: Option<Spanned<u8>>,
    /// Hash functions of a Bloom filter.
    pub hashes: Option<Spanned<u8>>,
    /// Time at which changes are sent: at once (`"immediate"`), at every `interval` (`"periodic"`), or once enough have accumulated
    /// (`"threshold"`). An update is the whole filter or its changes, whichever is smaller.
    pub update: Option<Text>,
    /// Time between updates. With `"immediate"`, a change waits so long for others, unless it is an establishment. With `"periodic"`, it is
    /// the period. With `"threshold"`, it is the shortest time between two updates. Default: `"10ms"`, or `"5s"` with `"periodic"`.
    pub interval: Option<DurationText>,
    /// Accumulated changes after which `"threshold"` sends an update, in thousandths of the entries that the filter has now, not of
    /// `entries_max`.
    pub threshold_per_mille: Option<Spanned<u16>>,
    /// Whether messages leave out what the peer can derive by itself.
    pub symbols: Option<bool>,
    /// Age from which connections are also replicated precisely, the oldest first. Half of `budget_bytes_per_second` is then reserved for
    /// them; either half may use what the other leaves. Default: only connections that an entry cannot restore are.
    pub precise_after: Option<DurationText>,
}

/// The section configures the recovery after a take-over, while the node has the filter of the node that failed. A connection is restored
/// by its first packet.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRecovery {
    /// Time after a take-over in which peer filters are asked. Connections that are silent for longer are lost.
    pub lasts: Option<DurationText>,
    /// Names of ports behind which hosts are trusted. A trusted host's segment that matches no filter is accepted as established. A segment
    /// from elsewhere passes as a keep-alive without payload, which shows whether the trusted host knows the connection.
    #[serde(default)]
    pub cold_start: Vec<Text>,
    /// Whether a segment that matches no filter is dropped the first time and passes when it is retransmitted.
    pub block: Option<bool>,
    /// Segments per second of one source that may match no filter. Beyond it, the source's segments are dropped without a lookup. Each
    /// also allows 160 lookups per second for replies of the source. All sources together have 65 536 lookups per second and worker. A
    /// reply that restores its connection uses none.
    pub misses_per_source_max: Option<Spanned<u32>>,
}

/// Compact replication: connections as entries of a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compact {
    /// How connections become entries.
    pub representation: Representation,
    /// Entries that there is room for.
    pub entries_max: u64,
    /// Bits of a fingerprint.
    pub fingerprint_bits: u8,
    /// Counters of a Bloom filter for each entry.
    pub counters_per_entry: u8,
    /// Hash functions of a Bloom filter.
    pub hashes: u8,
    /// When updates are sent.
    pub update: UpdateRule,
    /// What the peer has already is left out of messages.
    pub symbols: bool,
    /// Bytes of updates to all peers together, at most, by each worker.
    pub budget_bytes_per_second: Option<u64>,
    /// How long connections live before they are replicated as records, the oldest first. `None`: only those that cannot be
    /// restored from a filter's entry are.
    pub precise_after: Option<Duration>,
    /// What a node does that has taken over.
    pub recovery: Recovery,
}

/// What a node does that has taken over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// How long filters are asked.
    pub lasts: Duration,
    /// Ports behind which hosts are trusted; empty: no cold start.
    pub cold_start: Vec<PortId>,
    /// A segment that no filter names is dropped, and passes when it comes again.
    pub block: bool,
    /// Tuples that no filter names, a second and source, at most.
    pub misses_per_source_max: u32,
}

impl Compact {
    /// The stream's make, under a secret of its own for every start, on a link with datagrams of this size. Of several workers
    /// each has an equal part of the entries and of the budget.
    #[must_use]
    pub fn stream(&self, secret: [u64; 2], datagram_bytes_max: usize, workers: u8) -> CompactConfig {
        CompactConfig {
            fingerprint_bits: self.fingerprint_bits,
            counters_per_item: self.counters_per_entry,
            hashes: self.hashes,
            update: self.update,
            symbols: self.symbols,
            datagram_bytes_max,
            budget_bytes_per_second: self.budget_of_worker(workers),
            ..CompactConfig::new(self.representation, self.entries_max.div_ceil(workers.max(1).into()), secret)
        }
    }
}

impl Compact {
    /// What of the budget each worker may take.
    fn budget_of_worker(&self, workers: u8) -> Option<u64> {
        self.budget_bytes_per_second.map(|budget| budget / u64::from(workers.max(1)))
    }

    /// What of that is kept for precise words: half of it. What they or the filter do not use is the other's.
    #[must_use]
    pub fn budget_of_precise_words(&self, workers: u8) -> Option<u64> {
        self.budget_of_worker(workers).map(|budget| budget / 2)
    }

    /// The settings with their names, as a comparison lists them.
    #[must_use]
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        // Every field is named, so that a new one cannot be forgotten.
        let Self {
            representation: _,
            entries_max,
            fingerprint_bits,
            counters_per_entry,
            hashes,
            update,
            symbols,
            budget_bytes_per_second,
            precise_after,
            recovery: Recovery { lasts, cold_start, block, misses_per_source_max },
        } = self;
        vec![
            ("filter.entries_max", entries_max.to_string()),
            ("filter.fingerprint_bits", fingerprint_bits.to_string()),
            ("filter.counters_per_entry", counters_per_entry.to_string()),
            ("filter.hashes", hashes.to_string()),
            ("filter.update", format!("{update:?}")),
            ("filter.symbols", symbols.to_string()),
            ("budget_bytes_per_second", format!("{budget_bytes_per_second:?}")),
            ("filter.precise_after", format!("{precise_after:?}")),
            ("recovery.lasts", format!("{lasts:?}")),
            ("recovery.cold_start", format!("{cold_start:?}")),
            ("recovery.block", block.to_string()),
            ("recovery.misses_per_source_max", misses_per_source_max.to_string()),
        ]
    }
}

/// What a representation promises of connections that were established and replicated when their node failed, for people
/// who choose one.
#[must_use]
pub const fn promise(representation: Representation) -> &'static str {
    match representation {
        Representation::HostAggregate => {
            "every connection goes on, and so would all others between two hosts that had an untranslated one; translated \
             connections are replicated as records"
        }
        Representation::FlowDigest => {
            "experimental, nothing is promised: membership survives, an established connection goes on without its state; about \
             one in a hundred others would be taken for one, and about one established connection in a thousand breaks"
        }
        Representation::MultiLevel(_) => {
            "every connection goes on in its state, with liberal windows; one in many thousands of others would be taken for one"
        }
    }
}
