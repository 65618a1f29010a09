//! The rules of the URL filter.

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
