//! The rate limits.

use api::{RateLimitStatus, Status};
use console::{Table, count};

/// A row for each limit.
pub(super) fn limit_table(status: &Status) -> Table {
    let mut table = Table::of(
        "RATE LIMIT|LIMIT|PER|RATE|ACTION|>USED|EXCEEDED BY|>PACKETS BEYOND|>BYTES BEYOND|>CONNECTIONS REFUSED|>SOURCES|>EVICTED",
    )
    .keyed_by(2);
    for limit in &status.rate_limits {
        table.row([
            limit.rule.clone(),
            limit.limit.to_string(),
            limit.per.clone(),
            rate(limit),
            limit.action.clone(),
            used(limit),
            exceeded_by(limit),
            count(limit.beyond.packets),
            count(limit.beyond.bytes),
            count(limit.beyond.connections),
            limit.sources_max.map_or_else(|| "-".to_owned(), |_| count(limit.sources)),
            count(limit.sources_evicted),
        ]);
    }
    table
}

/// What is used of the quota in the present period, and its share.
fn used(limit: &RateLimitStatus) -> String {
    let used = limit.quota.as_ref().and_then(|quota| Some((quota.used?, quota.amount.max(1))));
    used.map_or_else(
        || "-".to_owned(),
        |(used, amount)| format!("{} ({} %)", count(used), used.saturating_mul(100) / amount),
    )
}

/// The sources that exceed the limit most.
fn exceeded_by(limit: &RateLimitStatus) -> String {
    const SHOWN_MAX: usize = 3;
    let sources = limit.exceeded_by.iter().take(SHOWN_MAX);
    let sources: Vec<String> = sources.map(|found| format!("{} ({})", found.source, count(found.beyond))).collect();
    if sources.is_empty() { "-".to_owned() } else { sources.join(", ") }
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
