//! Connections told as entries of a filter: what peers told this node.

use super::yes_no;
use crate::control::types::Status;
use crate::output::{Align, Table, count};

/// What peers have told by their filters.
pub(super) fn told_table(status: &Status) -> Table {
    use Align::{Left, Right};
    let columns =
        [("FILTER OF", Right), ("ENTRIES", Right), ("WHOLE", Left), ("DRIFTS MENDED", Right), ("UNUSABLE", Right)];
    let mut table = Table::new(&columns);
    for (peer, filter) in status.peers.iter().filter_map(|peer| Some((peer, peer.filter.as_ref()?))) {
        table.row([
            peer.id.to_string(),
            count(filter.entries),
            yes_no(filter.is_complete).to_owned(),
            count(filter.drifts),
            count(filter.bad_datagrams),
        ]);
    }
    table
}
