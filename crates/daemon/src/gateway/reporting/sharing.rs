//! Shared connections, as they are reported to operators.

use cluster::pipeline::SharingCounters;

use api::metrics::{Metric, Samples};

/// Adds the samples of a worker. The packets that still wait are in none of them.
pub(super) fn add(samples: &mut Samples, counters: SharingCounters) {
    let SharingCounters { peer_owned_packets, shared, renewed, ends_refused, held: _, helped, overdue, no_room } =
        counters;
    samples.add_count(Metric::PeerOwnedPackets, &[], peer_owned_packets);
    samples.add_count(Metric::ConnectionsShared, &[], shared);
    for (because, count) in [("in_time", renewed), ("end_refused", ends_refused)] {
        samples.add_count(Metric::ConnectionsRenewed, &[because], count);
    }
    for (outcome, count) in [("helped", helped), ("overdue", overdue), ("no_room", no_room)] {
        samples.add_count(Metric::PacketsWaited, &[outcome], count);
    }
}
