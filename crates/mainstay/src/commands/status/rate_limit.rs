//! The rate limits.

use api::{RateLimitStatus, Status};
use console::{Table, count};

/// A row for each limit.
pub(super) fn limit_table(status: &Status) -> Table {
    let mut table = Table::of(
        "RATE LIMIT|LIMIT|PER|RATE|ACTION|>PACKETS BEYOND|>BYTES BEYOND|>CONNECTIONS REFUSED|>SOURCES|>EVICTED",
    );
    for limit in &status.rate_limits {
        table.row([
            limit.rule.clone(),
            limit.limit.to_string(),
            limit.per.clone(),
            rate(limit),
            limit.action.clone(),
            count(limit.beyond.packets),
            count(limit.beyond.bytes),
            count(limit.beyond.connections),
            limit.sources_max.map_or_else(|| "-".to_owned(), |_| count(limit.sources)),
            count(limit.sources_evicted),
        ]);
    }
    table
}

fn rate(limit: &RateLimitStatus) -> String {
    let rates =
        [(limit.packets_per_s, "packets/s"), (limit.bytes_per_s, "B/s"), (limit.connections_per_s, "connections/s")];
    let written = rates.into_iter().filter_map(|(per_s, unit)| per_s.map(|per_s| format!("{} {unit}", count(per_s))));
    let quota = limit
        .quota
        .iter()
        .map(|quota| format!("{} {} in {} s", count(quota.amount), quota.unit, count(quota.period_s)));
    written.chain(quota).collect::<Vec<_>>().join(", ")
}
