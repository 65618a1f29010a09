//! What was found, as tables: for Parquet, and the parts of them that the page shows.

use super::config::Method;
use super::outcome::{Cost, Outcome};
use crate::report::{ColumnKind, Dataset, Value};

/// The tables of an outcome, for Parquet: `methods`, `thresholds`, `lifetimes`, `beside_the_paper`.
#[must_use]
pub fn datasets(outcome: &Outcome) -> Vec<Dataset> {
    vec![methods(outcome), thresholds(outcome), lifetimes(outcome), beside_the_paper(outcome)]
}

fn cost_columns(name: &'static str, has_threshold: bool) -> Dataset {
    let mut columns = vec![("method", "method", ColumnKind::Text)];
    if has_threshold {
        columns.push(("threshold_ms", "from age, ms", ColumnKind::Integer));
    }
    columns.extend([
        ("bytes", "bytes", ColumnKind::Integer),
        ("checking_bytes", "comparing the copies", ColumnKind::Integer),
        ("messages", "messages", ColumnKind::Integer),
        ("datagrams", "datagrams", ColumnKind::Integer),
        ("reduction", "saved of precise-selective", ColumnKind::Share(1)),
        ("reduction_from_13_bytes", "saved of 13-byte messages", ColumnKind::Share(1)),
        ("reduction_without_headers", "the same, no headers", ColumnKind::Share(1)),
        ("reduction_by_threshold", "saved by the threshold", ColumnKind::Share(1)),
        ("overhead", "bytes per protected byte", ColumnKind::Number(5)),
        ("protected_share", "bytes protected", ColumnKind::Share(1)),
        ("entries_at_backup", "entries at the backup", ColumnKind::Integer),
        ("backup_bytes", "bytes of its memory", ColumnKind::Integer),
        ("false_positive", "false positives", ColumnKind::Share(4)),
        ("false_positive_same_hosts", "between known hosts", ColumnKind::Share(4)),
        ("false_negative", "false negatives", ColumnKind::Share(3)),
        ("inaccurate_state", "inaccurate states", ColumnKind::Share(3)),
        ("deferred", "not replicated yet", ColumnKind::Share(1)),
        ("refused", "without room", ColumnKind::Integer),
    ]);
    Dataset::new(name, &columns)
}

fn cost_row(name: &str, cost: &Cost, has_threshold: bool) -> Vec<Value> {
    let mut row: Vec<Value> = vec![name.into()];
    if has_threshold {
        row.push(u64::from(cost.threshold_ms).into());
    }
    row.extend([
        cost.bytes.into(),
        cost.checking_bytes.into(),
        cost.messages.into(),
        cost.datagrams.into(),
        cost.reduction.into(),
        cost.reduction_from_13_bytes.into(),
        cost.reduction_without_headers.into(),
        cost.reduction_by_threshold.into(),
        cost.overhead.into(),
        cost.protected_share.into(),
        cost.entries_at_backup.into(),
        cost.backup_bytes.into(),
        cost.false_positive.into(),
        cost.false_positive_same_hosts.into(),
        cost.false_negative.into(),
        cost.inaccurate_state.into(),
        cost.deferred.into(),
        cost.refused.into(),
    ]);
    row
}

pub(super) fn methods(outcome: &Outcome) -> Dataset {
    let mut table = cost_columns("methods", false);
    for method in Method::ALL {
        if let Some(found) = outcome.methods.get(method.name()) {
            table.push(cost_row(method.name(), &found.cost, false));
        }
    }
    table
}

pub(super) fn thresholds(outcome: &Outcome) -> Dataset {
    let mut table = cost_columns("thresholds", true);
    for method in Method::ALL {
        for cost in outcome.methods.get(method.name()).iter().flat_map(|found| &found.by_threshold) {
            table.push(cost_row(method.name(), cost, true));
        }
    }
    table
}

fn lifetimes(outcome: &Outcome) -> Dataset {
    let mut table = Dataset::new(
        "lifetimes",
        &[("lifetime_s", "lifetime, s", ColumnKind::Number(3)), ("share", "at most so long", ColumnKind::Share(1))],
    );
    for (seconds, share) in outcome.traffic.lifetime_points_s.iter().zip(&outcome.traffic.lifetime_shares) {
        table.push(vec![(*seconds).into(), (*share).into()]);
    }
    table
}

pub(super) fn beside_the_paper(outcome: &Outcome) -> Dataset {
    let mut table = Dataset::new(
        "beside_the_paper",
        &[
            ("what", "what", ColumnKind::Text),
            ("seed", "there", ColumnKind::Share(4)),
            ("here", "here", ColumnKind::Share(4)),
            ("reason", "why they differ", ColumnKind::Text),
        ],
    );
    for row in &outcome.beside_the_paper {
        table.push(vec![row.what.clone().into(), row.seed.into(), row.here.into(), row.reason.into()]);
    }
    table
}

/// The columns of a table with these names.
pub(super) fn only(table: &Dataset, names: &[&str]) -> Dataset {
    let kept: Vec<usize> = (0..table.columns.len()).filter(|at| names.contains(&table.columns[*at].name)).collect();
    let columns: Vec<_> =
        kept.iter().map(|at| (table.columns[*at].name, table.columns[*at].heading, table.columns[*at].kind)).collect();
    let mut picked = Dataset::new(table.name, &columns);
    for row in table.rows() {
        picked.push(kept.iter().map(|at| row[*at].clone()).collect());
    }
    picked
}
