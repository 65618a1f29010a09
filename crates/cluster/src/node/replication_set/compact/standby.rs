//! Connections of a node that has given the addresses up and is standby.
//!
//! With records, the new owner's updates turn its connections into replicas. A filter has no owners. So the standby compares its own
//! connections with the active node's filter, a part of the table at a time, and removes those that the filter has. The others stay,
//! in the table and in its own filter, from which the active node restores them when their packets arrive.
//!
//! In the first two seconds it removes nothing: the filter that it has received may be older than a short change of roles, and each of
//! two nodes would remove a connection because of the other's outdated entry. A connection that closes meanwhile stays in the
//! active node's table and filter for ten seconds and more, so that it is still found.
//!
//! A connection that stays may be out of date at the next take-over: it is marked as a replica, whose windows are learnt from its next packets.
//!
//! **A node that forwards other groups still** compares in the same way those of its connections of which no packet has come since it gave a
//! group away. After a split two nodes may do so at once. So they begin one after the other, and what one has removed is found in the
//! filter of the other.

use core::time::Duration;

use flow::Instant;
use flow::table::{Slot, Table};

/// Slots that one step compares.
const SLOTS_PER_STEP: usize = 256;
/// From the end of one round to the beginning of the next.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// How long a standby removes nothing.
const REMOVES_AFTER: Duration = Duration::from_secs(2);
/// From the first removal of one node to that of the next one that forwards beside it: a round and the entries that follow it.
const TURN: Duration = Duration::from_secs(5);

/// Where the round stands.
#[derive(Debug, Default)]
pub(in crate::node) struct StandbyComparison {
    cursor: Option<Slot>,
    /// When the next round begins; `None`: there is no connection to compare.
    next_at: Option<Instant>,
    /// From then on connections are removed.
    removes_at: Instant,
    /// This node forwards: rounds go on until then.
    beside_until: Option<Instant>,
}

impl StandbyComparison {
    /// This node no longer forwards: rounds begin.
    pub(super) fn begin(now: Instant) -> Self {
        let removes_at = now + REMOVES_AFTER;
        Self { cursor: Some(Slot(0)), next_at: Some(now + ROUND_INTERVAL), removes_at, beside_until: None }
    }

    /// This node forwards other groups than before: rounds begin, after those of so many other nodes, and last for `lasts`.
    pub(super) fn begin_beside(now: Instant, others: usize, lasts: Duration) -> Self {
        let turns = TURN * u32::try_from(others).unwrap_or(u32::MAX);
        let removes_at = now + REMOVES_AFTER + turns;
        Self { cursor: None, next_at: Some(removes_at), removes_at, beside_until: Some(now + lasts) }
    }

    /// Whether rounds go on although this node forwards.
    pub(super) fn is_beside(&self, now: Instant) -> bool {
        self.beside_until.is_some_and(|until| now < until)
    }

    /// This node forwards: rounds end. The first slot that was not compared, if a round was running.
    pub(super) fn end(&mut self) -> Option<Slot> {
        let ended = core::mem::take(self);
        // Beside other nodes all connections were marked when rounds began.
        ended.cursor.filter(|_| ended.beside_until.is_none())
    }

    /// The next connection to compare in this step, if a round is due or running. `compared`: those of this step so far.
    pub(super) fn next(&mut self, now: Instant, table: &Table, compared: usize) -> Option<Slot> {
        let is_due = self.next_at.is_some_and(|at| at <= now);
        let cursor = self.cursor.or_else(|| is_due.then_some(Slot(0)))?;
        if compared == SLOTS_PER_STEP {
            return None;
        }
        let slot = table.next_occupied(cursor);
        self.cursor = slot.map(|slot| Slot(slot.0 + 1));
        if slot.is_none() {
            let has_any = table.iter().next().is_some();
            self.next_at = has_any.then_some(now + ROUND_INTERVAL);
        }
        slot
    }

    /// Whether connections are removed by now.
    pub(super) fn removes(&self, now: Instant) -> bool {
        self.removes_at <= now
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        if self.cursor.is_some() { Some(Instant::ZERO) } else { self.next_at }
    }
}
