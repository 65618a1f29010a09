//! The values of the catalogue's metrics, from a status and from what the data path measured.

use std::time::Duration;

use api::metrics::{Metric, Samples};
use api::report::Report;
use api::{PeerStatus, Status};
use cluster::observation::{HISTOGRAM_BOUNDS_NS, Histogram, Latencies};
use flow::DropReason;
use replication::secure::Refusal;
use tunnel::Bypass;

/// Adds all of a status. Every reason also has a value that never occurred, so that a query for a rate has a zero to start from.
pub fn add_status(samples: &mut Samples, status: &Status) {
    status.report(&[], samples);
    for reason in DropReason::ALL.iter().map(|reason| reason.label()) {
        let found = status.drops.iter().find(|drop| drop.reason == reason);
        samples.add_count(Metric::PacketsDropped, &[reason], found.map_or(0, |drop| drop.packets));
    }
    status.peers.iter().for_each(|peer| add_peer(samples, peer, status));
    if let Some(tunnel) = &status.redundancy {
        for reason in Bypass::ALL {
            let found = tunnel.sent.bypassed.iter().find(|count| count.reason == reason.label());
            samples.add_count(Metric::RedundancyBypassed, &[reason.label()], found.map_or(0, |count| count.packets));
        }
    }
}

/// Adds what a peer's part of the status does not have by itself.
fn add_peer(samples: &mut Samples, peer: &PeerStatus, status: &Status) {
    let id = peer.id.to_string();
    let differs = peer.configuration.as_ref().is_some_and(|configuration| *configuration != status.configuration);
    samples.add_flag(Metric::PeerConfigurationDiffers, &[&id], differs);
    if let Some(agreed_ns) = peer.anti_entropy.agreed_ns {
        let age = Duration::from_nanos(status.monotonic_now_ns.saturating_sub(agreed_ns));
        samples.add(Metric::ReplicaAgreedAge, &[&id], age.as_secs_f64());
    }
    for reason in Refusal::ALL {
        let found = peer.channel.refused.iter().find(|refused| refused.reason == reason.label());
        samples.add_count(Metric::ChannelRefused, &[&id, reason.label()], found.map_or(0, |it| it.datagrams));
    }
}

/// Adds a histogram: its buckets, each with all that is in those before it, its sum and its count.
#[allow(clippy::cast_precision_loss, reason = "the page's numbers are floating point")]
fn add_histogram(samples: &mut Samples, metric: Metric, labels: &[&str], histogram: &Histogram) {
    let bounds = HISTOGRAM_BOUNDS_NS.iter().map(|bound| (*bound as f64 / 1e9).to_string());
    let mut count = 0;
    for (bound, in_bucket) in bounds.chain(["+Inf".to_owned()]).zip(histogram.counts) {
        count += in_bucket;
        samples.add_part(metric, labels, "_bucket", Some(&bound), count as f64);
    }
    samples.add_part(metric, labels, "_sum", None, histogram.sum_ns as f64 / 1e9);
    samples.add_part(metric, labels, "_count", None, count as f64);
}

/// Adds all that was measured of the time that packets take.
pub fn add_latencies(samples: &mut Samples, latencies: &Latencies) {
    add_histogram(samples, Metric::BatchSeconds, &[], &latencies.batch);
    samples.add_count(Metric::BatchPackets, &[], latencies.batch_packets);
    for function in &latencies.functions {
        add_histogram(samples, Metric::FunctionSeconds, &[function.name, "begin"], &function.begin);
        add_histogram(samples, Metric::FunctionSeconds, &[function.name, "packet"], &function.packet);
    }
}
