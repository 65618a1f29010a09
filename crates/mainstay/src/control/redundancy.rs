//! What operators are told of the tunnel to another site.

use serde::{Deserialize, Serialize};
use tunnel::{Bypass, TunnelStatus};

use super::mirror::RedundancyMirror;
use crate::metrics::{Metric, Samples};
use crate::output::{count, scaled};

/// The tunnel to another site.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancyStatus {
    /// Why packets go past the tunnel now, if they do.
    pub bypass: Option<String>,
    /// Where datagrams are encrypted: whether there are session keys.
    #[serde(default)]
    pub encrypted: Option<bool>,
    /// How long a datagram and its acknowledgement take, in milliseconds.
    pub round_trip_ms: Option<f64>,
    /// Bytes of a datagram that the path takes.
    pub datagram_bytes: Option<u16>,
    /// The sampling period, in bytes; longer than configured while the processor is short.
    pub period_bytes: u64,
    /// Bytes of the caches and their indexes.
    pub memory_bytes: u64,
    /// Sessions begun with the other site.
    pub sessions: u64,
    /// Towards the other site.
    pub sent: RedundancySent,
    /// From the other site.
    pub received: RedundancyReceived,
    /// Mirrors of the caches, so that they survive this node; none: they are not mirrored.
    pub mirror: Option<RedundancyMirror>,
}

/// What went to the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancySent {
    /// Packets that the tunnel took.
    pub packets: u64,
    /// Their bytes.
    pub packet_bytes: u64,
    /// Bytes of all datagrams, with their IP and UDP headers.
    pub datagram_bytes: u64,
    /// The difference; negative when nothing was redundant.
    pub saved_bytes: i64,
    /// Bytes of payload for which pointers stand.
    pub matched_bytes: u64,
    /// Datagrams.
    pub datagrams: u64,
    /// Of those, the ones sent again.
    pub datagrams_again: u64,
    /// Copies of datagrams, in case that the first is lost.
    #[serde(default)]
    pub datagrams_copied: u64,
    /// Datagrams lost for good.
    pub datagrams_given_up: u64,
    /// Bytes of headers that were not sent, for they follow from earlier ones.
    #[serde(default)]
    pub header_bytes_saved: u64,
    /// Bytes that the second stage took away.
    #[serde(default)]
    pub second_stage_bytes_saved: u64,
    /// Pieces of 64 bytes that the other site lacked and was given.
    pub repaired: u64,
    /// Packets dropped because too much waited for the path.
    pub backlog_drops: u64,
    /// Packets that went past the tunnel, by reason; reasons that never occurred are left out.
    pub bypassed: Vec<BypassCount>,
}

/// What came from the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancyReceived {
    /// Packets that came out of the tunnel.
    pub packets: u64,
    /// Their bytes.
    pub packet_bytes: u64,
    /// Bytes of all datagrams, with their IP and UDP headers.
    pub datagram_bytes: u64,
    /// Datagrams.
    pub datagrams: u64,
    /// Datagrams that came after later ones: sent again, or overtaken.
    pub datagrams_recovered: u64,
    /// Datagrams that were waited for in vain.
    pub datagrams_lost: u64,
    /// Datagrams that were none, or of no present session.
    pub datagrams_refused: u64,
    /// Packets that pointed to bytes that were not here when they came.
    pub misses: u64,
    /// Pieces of 64 bytes that were asked for and came.
    pub repaired: u64,
    /// Packets that could not be restored or found no room once they were, and are as good as lost.
    pub abandoned: u64,
    /// Packets that made no sense, or had a wrong checksum.
    pub broken: u64,
}

/// Packets that went past the tunnel for a reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BypassCount {
    /// The reason.
    pub reason: String,
    /// How many.
    pub packets: u64,
}

impl RedundancyStatus {
    /// The status as it is told.
    #[must_use]
    pub fn of(status: &TunnelStatus) -> Self {
        let counters = &status.counters;
        let bypassed = Bypass::ALL.iter().zip(counters.bypassed).filter(|(_, packets)| *packets > 0);
        let bypassed = bypassed.map(|(reason, packets)| BypassCount { reason: reason.label().to_owned(), packets });
        Self {
            bypass: status.bypass.map(|bypass| bypass.label().to_owned()),
            encrypted: status.is_sealed,
            round_trip_ms: status.round_trip.map(|round_trip| round_trip.as_secs_f64() * 1e3),
            datagram_bytes: status.datagram_bytes,
            period_bytes: status.period.bytes() as u64,
            memory_bytes: status.memory_bytes as u64,
            sessions: counters.sessions,
            sent: RedundancySent {
                packets: counters.packets_in,
                packet_bytes: counters.bytes_in,
                datagram_bytes: counters.bytes_out,
                saved_bytes: counters.bytes_saved(),
                matched_bytes: counters.encoder.bytes_matched,
                datagrams: counters.sender.datagrams,
                datagrams_again: counters.sender.datagrams_again,
                datagrams_copied: counters.sender.datagrams_copied,
                datagrams_given_up: counters.sender.datagrams_given_up,
                header_bytes_saved: counters.header_bytes_saved,
                second_stage_bytes_saved: counters.bundled_bytes_in.saturating_sub(counters.bundled_bytes_out),
                repaired: counters.encoder.granules_filled,
                backlog_drops: counters.backlog_drops,
                bypassed: bypassed.collect(),
            },
            received: RedundancyReceived {
                packets: counters.packets_restored,
                packet_bytes: counters.bytes_restored,
                datagram_bytes: counters.bytes_received,
                datagrams: counters.receiver.datagrams,
                datagrams_recovered: counters.receiver.datagrams_recovered,
                datagrams_lost: counters.receiver.datagrams_lost,
                datagrams_refused: counters.refused,
                misses: counters.decoder.blocks_waited,
                repaired: counters.decoder.granules_filled,
                abandoned: counters.decoder.blocks_abandoned + counters.restored_drops,
                broken: counters.broken,
            },
            mirror: status.mirror.as_ref().map(|mirror| RedundancyMirror::of(mirror)),
        }
    }

    /// Adds its samples.
    pub fn add_to(&self, samples: &mut Samples) {
        let Self { sent, received, .. } = self;
        samples.add_flag(Metric::RedundancyOpen, &[], self.bypass.is_none());
        samples.add_count(Metric::RedundancyMemory, &[], self.memory_bytes);
        samples.add_count(Metric::RedundancyPeriod, &[], self.period_bytes);
        samples.add_count(Metric::RedundancySessions, &[], self.sessions);
        samples.add_count(Metric::RedundancyPackets, &["sent"], sent.packets);
        samples.add_count(Metric::RedundancyPackets, &["received"], received.packets);
        samples.add_count(Metric::RedundancyPacketBytes, &["sent"], sent.packet_bytes);
        samples.add_count(Metric::RedundancyPacketBytes, &["received"], received.packet_bytes);
        samples.add_count(Metric::RedundancyDatagramBytes, &["sent"], sent.datagram_bytes);
        samples.add_count(Metric::RedundancyDatagramBytes, &["received"], received.datagram_bytes);
        samples.add_count(Metric::RedundancyMatchedBytes, &[], sent.matched_bytes);
        for (fate, count) in [
            ("sent", sent.datagrams),
            ("sent_again", sent.datagrams_again),
            ("copied", sent.datagrams_copied),
            ("given_up", sent.datagrams_given_up),
            ("received", received.datagrams),
            ("recovered", received.datagrams_recovered),
            ("lost", received.datagrams_lost),
            ("refused", received.datagrams_refused),
        ] {
            samples.add_count(Metric::RedundancyDatagrams, &[fate], count);
        }
        samples.add_count(Metric::RedundancySavedBytes, &["headers"], sent.header_bytes_saved);
        samples.add_count(Metric::RedundancySavedBytes, &["second_stage"], sent.second_stage_bytes_saved);
        for reason in Bypass::ALL {
            let found = sent.bypassed.iter().find(|count| count.reason == reason.label());
            samples.add_count(Metric::RedundancyBypassed, &[reason.label()], found.map_or(0, |count| count.packets));
        }
        samples.add_count(Metric::RedundancyMisses, &[], received.misses);
        samples.add_count(Metric::RedundancyRepaired, &["sent"], sent.repaired);
        samples.add_count(Metric::RedundancyRepaired, &["received"], received.repaired);
        for (reason, count) in
            [("backlog", sent.backlog_drops), ("abandoned", received.abandoned), ("broken", received.broken)]
        {
            samples.add_count(Metric::RedundancyDropped, &[reason], count);
        }
        self.mirror.iter().for_each(|mirror| mirror.add_to(samples));
    }

    /// The tunnel in two lines, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { sent, received, .. } = self;
        let state = match &self.bypass {
            None => "open".to_owned(),
            Some(reason) => format!("gone past ({})", reason.replace('_', " ")),
        };
        let mirror = self.mirror.as_ref().map(RedundancyMirror::describe).unwrap_or_default();
        let share =
            if sent.packet_bytes == 0 { 0.0 } else { 100.0 * sent.saved_bytes as f64 / sent.packet_bytes as f64 };
        let bytes = |bytes: u64| scaled(bytes as f64, "B");
        format!(
            "Tunnel       {state} · {} of packets sent in {} of datagrams ({share:.1} % saved) · {} datagrams sent again, {} given up\n             \
             from the other site {} datagrams lost for good · {} packets waited for bytes, {} abandoned\n{mirror}",
            bytes(sent.packet_bytes),
            bytes(sent.datagram_bytes),
            count(sent.datagrams_again),
            count(sent.datagrams_given_up),
            count(received.datagrams_lost),
            count(received.misses),
            count(received.abandoned),
        )
    }
}
