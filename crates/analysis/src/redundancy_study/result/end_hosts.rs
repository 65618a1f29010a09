//! The memory of end hosts.

use serde::Serialize;

use super::matches::Step;
use crate::redundancy_study::end_hosts::EndHostsOutcome;
use crate::redundancy_study::tally::share;

/// What end hosts would need (figure 4.9).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct EndHosts {
    /// Pairs of a client and a server.
    pub pairs: u64,
    /// Packets of further pairs, which were not followed.
    pub packets_left_out: u64,
    /// The caches of clients.
    pub clients: HostMemory,
    /// The caches of servers. The index that Max-Match needs beside them is an eighth more; Chunk-Match needs three eighths instead.
    pub servers: HostMemory,
}

/// The most memory that each of some hosts ever needed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HostMemory {
    /// Hosts.
    pub hosts: u64,
    /// Half of them needed no more.
    pub median_bytes: u64,
    /// 99 in 100 of them needed no more.
    pub percentile_99_bytes: u64,
    /// None needed more.
    pub most_bytes: u64,
    /// Share of hosts up to so many megabytes.
    pub megabytes: Vec<Step>,
}

impl EndHosts {
    pub(super) fn of(outcome: &EndHostsOutcome) -> Self {
        let EndHostsOutcome { clients, servers, pairs, packets_left_out } = outcome;
        let [clients, servers] = [clients, servers].map(|needs| {
            let hosts = needs.values().sum::<u64>();
            // The least that so many in a hundred need no more than.
            let rank = |per_cent: u64| {
                let (mut sum, wanted) = (0, (hosts * per_cent).div_ceil(100));
                let mut enough = needs.iter().filter(|(_, count)| {
                    sum += **count;
                    sum >= wanted
                });
                enough.next().map_or(0, |(kilobytes, _)| kilobytes << 10)
            };
            let mut sum = 0;
            let step = |(kilobytes, count): (&u64, &u64)| {
                sum += count;
                Step { to: *kilobytes as f64 / 1024.0, share: share(sum as f64, hosts) }
            };
            let [median_bytes, percentile_99_bytes, most_bytes] = [50, 99, 100].map(rank);
            let megabytes = needs.iter().map(step).collect();
            HostMemory { hosts, median_bytes, percentile_99_bytes, most_bytes, megabytes }
        });
        Self { pairs: *pairs, packets_left_out: *packets_left_out, clients, servers }
    }
}
