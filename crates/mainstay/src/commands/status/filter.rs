//! Connections told as entries of a filter: what the node tells, what peers told it, and what came back of that.

use super::{bytes, seconds};
use crate::control::types::{FilterStatus, PeerFilterStatus, RecoveryStatus, Status};
use crate::output::{Align, Table, count};

/// What the node tells by its filter, and what came of those of others; nothing where connections are told precisely.
pub(super) fn filter(status: &Status) -> String {
    let Some(filter) = &status.filter else { return String::new() };
    let FilterStatus { representation, entries, entries_max, refused, beyond, datagrams, .. } = filter.as_ref();
    let short = match (refused, beyond) {
        (0, 0) => String::new(),
        (0, beyond) => format!(" · {} more than it was made for: raise replication.filter.entries_max", count(*beyond)),
        (refused, _) => format!(" · {} found no room: raise replication.filter.entries_max", count(*refused)),
    };
    format!(
        "Filter       {representation}, {} of {} entries · {} told in {} datagrams · {} connections told precisely as well{short}\n{}",
        count(*entries),
        count(*entries_max),
        bytes(filter.bytes),
        count(*datagrams),
        count(filter.precise_long_lived + filter.precise_urgent),
        recovery(&filter.recovery),
    )
}

fn recovery(recovery: &RecoveryStatus) -> String {
    if recovery.begun == 0 {
        return String::new();
    }
    let state = recovery
        .ends_in_s
        .map_or_else(|| "over".to_owned(), |ends_in_s| format!("filters are asked for another {}", seconds(ends_in_s)));
    format!(
        "Recovery     {state} · {} connections came back, {} began in their middle · {} packets that no filter names\n",
        count(recovery.restored),
        count(recovery.cold_started + recovery.unblocked),
        count(recovery.missed),
    )
}

/// What peers told.
pub(super) fn told_table(status: &Status) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("FILTER OF", Left),
        ("ENTRIES", Right),
        ("FILTERS", Right),
        ("SECTIONS MENDED", Right),
        ("BAD DATAGRAMS", Right),
    ]);
    for (id, told) in status.peers.iter().filter_map(|peer| Some((peer.id, peer.filter.as_ref()?))) {
        let PeerFilterStatus { entries, filters, drifts, bad_datagrams } = told;
        table.row([format!("node {id}"), count(*entries), count(*filters), count(*drifts), count(*bad_datagrams)]);
    }
    table
}
