//! The rules of the SYN proxy.

use api::Status;
use console::{Table, count};

/// A row for each rule.
pub(super) fn rule_table(status: &Status) -> Table {
    let mut table = Table::of("SYN PROXY|MODE|STATE|>SYNS/S|>HALF-OPEN|>SYN-ACKS|>ACCEPTED|>REJECTED|>OPENED|>FAILED");
    for rule in &status.syn_proxy {
        let ended = |failed: bool| {
            let outcomes: &[&str] = if failed { &["refused", "unanswered"] } else { &["opened"] };
            let of_outcomes = rule.handshakes.iter().filter(|ended| outcomes.contains(&ended.outcome.as_str()));
            count(of_outcomes.map(|ended| ended.handshakes).sum::<u64>())
        };
        table.row([
            rule.name.clone(),
            rule.mode.clone(),
            if rule.active { "active" } else { "inactive" }.to_owned(),
            count(u64::from(rule.syns_per_s)),
            count(u64::from(rule.half_open)),
            count(rule.answered),
            count(rule.accepted),
            count(rule.rejected.iter().map(|rejected| rejected.segments).sum::<u64>()),
            ended(false),
            ended(true),
        ]);
    }
    table
}
