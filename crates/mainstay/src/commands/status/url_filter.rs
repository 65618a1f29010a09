//! The rules of the URL filter, and its server.

use api::Status;
use console::{Table, count};

/// A row for each rule and category that decided.
pub(super) fn rule_table(status: &Status) -> Table {
    let mut table = Table::of("URL RULE|CATEGORY|>ALLOWED|>BLOCKED|>LOGGED");
    for rule in status.url_filter.iter().flat_map(|filter| &filter.rules) {
        let mut categories: Vec<&str> = rule.decisions.iter().map(|decisions| decisions.category.as_str()).collect();
        categories.dedup();
        for category in categories {
            let of = |outcome: &str| {
                let found = rule.decisions.iter().find(|known| known.category == category && known.outcome == outcome);
                count(found.map_or(0, |decisions| decisions.count))
            };
            table.row([rule.name.clone(), category.to_owned(), of("allowed"), of("blocked"), of("logged")]);
        }
    }
    table
}

/// A row for the server that is asked for categories.
pub(super) fn server_table(status: &Status) -> Table {
    let mut table = Table::of("CATEGORY SERVER|STATE|>HITS|>MISSES|>ASKED|>WAITING|>FAILURES|>UNANSWERED|>CACHED");
    for server in status.url_filter.iter().filter_map(|filter| filter.server.as_ref()) {
        let state = if server.available { "available" } else { "unavailable" };
        table.row([
            server.address.clone(),
            state.to_owned(),
            count(server.hits),
            count(server.misses),
            count(server.asked),
            count(server.questions),
            count(server.failures),
            count(server.unanswered),
            format!("{} of {}", count(server.entries), count(server.entries_max)),
        ]);
    }
    table
}
