//! What the demo of two sites shows.

use std::fmt::Write as _;

use serde::Serialize;

use super::transfers::Outcome;
use api::RedundancyStatus;

/// A figure with the tunnel and without.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Compared<T> {
    /// With the tunnel.
    pub with: T,
    /// Without.
    pub without: T,
}

/// What came of it when the node of one of the tunnel's ends was killed.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Failover {
    /// Downloads that were made meanwhile.
    pub transfers: usize,
    /// Those that did not end.
    pub failed: usize,
    /// Those whose bytes were not those of the file.
    pub corrupted: usize,
    /// Another node of the site took over.
    pub took_over: bool,
    /// The longest time that a download went without a byte, take-over included.
    pub longest_pause_ms: f64,
    /// Effective throughput of these downloads.
    pub effective_mbit_per_s: f64,
    /// The tunnel is open again at the end.
    pub tunnel_reopened: bool,
    /// Share of the bytes that came after the kill that the link did not carry, what went past the tunnel included.
    pub saved_after: f64,
}

impl Failover {
    /// Another node went on with all of it.
    const fn is_survived(&self) -> bool {
        self.took_over && self.failed == 0 && self.corrupted == 0
    }
}

/// A share with mirrors of the caches at the nodes that stand by, and without.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Mirrored {
    /// With mirrors.
    pub mirrored: f64,
    /// Without.
    pub unmirrored: f64,
}

/// All failovers.
pub(super) struct Failovers {
    pub(super) encoder: Failover,
    pub(super) decoder: Failover,
    pub(super) unmirrored: Failover,
}

/// The result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TunnelReport {
    /// The program's version.
    pub program_version: String,
    /// The link's settings, the same in both directions, as `mainstay link` has them.
    pub link: String,
    /// Clients that download at the same time.
    pub clients: usize,
    /// How long the objects are.
    pub object_mib: u8,
    /// The hosts' congestion control, the same with the tunnel and without: what loss costs without depends on it.
    pub congestion_control: String,
    /// Throughput of content that was transferred before, as the clients see it.
    pub effective_mbit_per_s: Compared<f64>,
    /// The one divided by the other.
    pub speedup: f64,
    /// Throughput of content that is transferred for the first time.
    pub first_mbit_per_s: Compared<f64>,
    /// Bytes given to the link in both directions for the repeated content.
    pub link_bytes: Compared<u64>,
    /// Packets given to the link in both directions for the repeated content.
    pub link_packets: Compared<u64>,
    /// Share of the link's bytes that the tunnel saved, 0 to 1.
    pub saved: f64,
    /// Downloads of repeated content, each way.
    pub transfers: usize,
    /// Downloads whose bytes were not those of the file, of all.
    pub corrupted: usize,
    /// Downloads that did not end, of all.
    pub failed: usize,
    /// The longest time that a download of repeated content went without a byte.
    pub longest_pause_ms: Compared<f64>,
    /// Every download went on to its end although the encoder's node was killed.
    pub survived_encoder_failover: bool,
    /// Every download went on to its end although the decoder's node was killed.
    pub survived_decoder_failover: bool,
    /// The failover of the encoder.
    pub failover: Failover,
    /// The failover of the decoder.
    pub decoder_failover: Failover,
    /// The failover of the encoder where the node that stood by had no mirror of its cache.
    pub unmirrored_failover: Failover,
    /// Share of the bytes that came that the link did not carry, of repeated content before any failover.
    pub saved_before_failover: f64,
    /// The same of what came after the encoder's node was killed.
    pub saved_after_failover: Mirrored,
    /// The encoder's tunnel before the kill.
    pub encoder: Option<RedundancyStatus>,
    /// The decoder's tunnel at that time.
    pub decoder: Option<RedundancyStatus>,
    /// How late all but one in a hundred packets left the link, at most, in microseconds.
    pub link_lateness_p99_us: u64,
}

/// What was measured of a network, with the tunnel or without.
pub(super) struct Measured {
    pub(super) first: Outcome,
    pub(super) repeated: Outcome,
    pub(super) link_bytes: u64,
    pub(super) link_packets: u64,
    pub(super) lateness_p99_us: u64,
}

impl TunnelReport {
    pub(super) fn new(
        (link, clients, congestion_control, object_mib): (String, usize, String, u8),
        [with, without, alone]: [&Measured; 3],
        Failovers { encoder: failover, decoder: decoder_failover, unmirrored }: Failovers,
        tunnels: [Option<RedundancyStatus>; 2],
    ) -> Self {
        let outcomes = [with, without, alone].into_iter().flat_map(|of| [&of.first, &of.repeated]);
        let downloads = outcomes.map(|outcome| (outcome.corrupted, outcome.failed));
        let failovers = [&failover, &decoder_failover, &unmirrored];
        let all: Vec<(usize, usize)> = downloads.chain(failovers.map(|of| (of.corrupted, of.failed))).collect();
        let rate = Compared { with: with.repeated.mbit_per_s(), without: without.repeated.mbit_per_s() };
        let milliseconds = |outcome: &Outcome| outcome.longest_pause.as_secs_f64() * 1e3;
        let [encoder, decoder] = tunnels;
        Self {
            program_version: env!("CARGO_PKG_VERSION").into(),
            link,
            clients,
            congestion_control,
            object_mib,
            effective_mbit_per_s: rate,
            speedup: rate.with / rate.without.max(1e-9),
            first_mbit_per_s: Compared { with: with.first.mbit_per_s(), without: without.first.mbit_per_s() },
            link_bytes: Compared { with: with.link_bytes, without: without.link_bytes },
            link_packets: Compared { with: with.link_packets, without: without.link_packets },
            saved: 1.0 - with.link_bytes as f64 / without.link_bytes.max(1) as f64,
            transfers: with.repeated.transfers,
            corrupted: all.iter().map(|(corrupted, _)| corrupted).sum(),
            failed: all.iter().map(|(_, failed)| failed).sum(),
            longest_pause_ms: Compared { with: milliseconds(&with.repeated), without: milliseconds(&without.repeated) },
            survived_encoder_failover: failover.is_survived() && unmirrored.is_survived(),
            survived_decoder_failover: decoder_failover.is_survived(),
            saved_before_failover: saved(with.link_bytes, with.repeated.bytes),
            saved_after_failover: Mirrored { mirrored: failover.saved_after, unmirrored: unmirrored.saved_after },
            failover,
            decoder_failover,
            unmirrored_failover: unmirrored,
            encoder,
            decoder,
            link_lateness_p99_us: with.lateness_p99_us.max(without.lateness_p99_us),
        }
    }

    /// Nothing was corrupted, nothing failed, and the failovers were survived.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.corrupted == 0 && self.failed == 0 && self.survived_encoder_failover && self.survived_decoder_failover
    }
}

/// The report for people.
#[must_use]
pub fn describe(report: &TunnelReport) -> String {
    let mut text = String::new();
    let TunnelReport {
        effective_mbit_per_s: rate, first_mbit_per_s: first, link_bytes, longest_pause_ms: pause, ..
    } = report;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "Two sites, a link of {}, {} clients at a time, {} MiB each, TCP with {}\n\n\
         {:<34}{:>14}{:>14}\n\
         {:<34}{:>7.1} Mbit/s{:>7.1} Mbit/s\n\
         {:<34}{:>7.1} Mbit/s{:>7.1} Mbit/s\n\
         {:<34}{:>11.2} MB{:>11.2} MB\n\
         {:<34}{:>11.0} ms{:>11.0} ms\n\n",
        report.link,
        report.clients,
        report.object_mib,
        report.congestion_control,
        "",
        "with tunnel",
        "without",
        "transferred before",
        rate.with,
        rate.without,
        "transferred for the first time",
        first.with,
        first.without,
        "on the link, for the former",
        megabytes(link_bytes.with),
        megabytes(link_bytes.without),
        "longest pause of a download",
        pause.with,
        pause.without,
    );
    let _ = writeln!(
        text,
        "{:.1} times the throughput, {:.1} % of the link's bytes saved; {} downloads corrupted, {} failed",
        report.speedup,
        100.0 * report.saved,
        report.corrupted,
        report.failed,
    );
    for (killed, failover) in [
        ("the encoder's node was killed", &report.failover),
        ("the decoder's node was killed", &report.decoder_failover),
        ("the encoder's, without mirrors", &report.unmirrored_failover),
    ] {
        let _ = writeln!(
            text,
            "{killed}: {} downloads, {} failed, {} corrupted, longest pause {:.0} ms, tunnel {} again, \
             {:.1} % saved from then on ({:.1} % before)",
            failover.transfers,
            failover.failed,
            failover.corrupted,
            failover.longest_pause_ms,
            if failover.tunnel_reopened { "open" } else { "not open" },
            100.0 * failover.saved_after,
            100.0 * report.saved_before_failover,
        );
    }
    text
}

/// The share of what the clients got that the link did not carry.
pub(super) fn saved(link_bytes: u64, bytes: u64) -> f64 {
    1.0 - link_bytes as f64 / bytes.max(1) as f64
}
