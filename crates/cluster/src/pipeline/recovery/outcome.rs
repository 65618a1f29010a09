//! Outcomes of recovery lookups.

use flow::table::Slot;
use flow::{Direction, DropReason};
use network_functions::function::Verdict;

/// The outcome of a packet of no connection in the table.
pub(in super::super) enum RecoveryOutcome {
    /// Its connection is in the table now.
    Known(Slot, Direction),
    /// What becomes of any such packet.
    Unknown,
    /// It has been made a keep-alive and translated, and this is the functions' verdict.
    KeepAlive(Verdict),
    /// Other workers look for its connection.
    HandedOver,
    /// It is dropped.
    Dropped(DropReason),
}
