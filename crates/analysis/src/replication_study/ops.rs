//! The changes of connections, as the filters of all thresholds get them.

use std::sync::Arc;

use flow::{Instant, Tuple};
use replication::compact::CellState;

/// What becomes of a connection's entry.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kind {
    Insert(CellState),
    Modify(CellState, CellState),
    Remove(CellState),
}

/// A change, for the thresholds from `first` to before `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) at: Instant,
    pub(super) tuple: Tuple,
    pub(super) kind: Kind,
    pub(super) first: u8,
    pub(super) end: u8,
}

/// A connection that is in progress when the primary fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    pub(super) tuple: Tuple,
    pub(super) state: CellState,
    /// The first so many thresholds have been reached.
    pub(super) replicated: u8,
}

/// What backups are asked at a simulated failover.
#[derive(Debug)]
pub(super) struct Probes {
    pub(super) at: Instant,
    /// Connections in progress.
    pub(super) active: Vec<Active>,
    /// Tuples of no connection.
    pub(super) absent: Vec<Tuple>,
    /// Tuples of no connection, each between two hosts that have one.
    pub(super) same_hosts: Vec<Tuple>,
}

/// What workers are handed.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Op(Op),
    Failover(Arc<Probes>),
}
