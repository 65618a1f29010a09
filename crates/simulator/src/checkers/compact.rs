//! Compares a filter of a dying node's connections with the dying node's table. The survival guarantee covers the
//! connections in the filter (see [`super::survival`]); errors of the filter are counted.

use flow::{Connection, NodeId, Tuple};
use replication::compact::{CellState, Representation};

use super::View;
use crate::report::Outcome;

/// The number of tuples of no connection that are looked up for each connection.
const ABSENT_PER_CONNECTION: u16 = 8;
/// The ports of these tuples.
const STRANGERS_PORT_FIRST: u16 = 100;

/// Before a node dies: compares the other node's filter with its connections.
pub(super) fn compare(node: usize, view: &View<'_>, outcome: &mut Outcome) {
    let (Some(dying), Some(heir)) = (view.nodes[node], view.nodes[1 - node]) else { return };
    let Some(representation) = view.scenario.representation else { return };
    // Translated connections are replicated as records where the filter holds pairs of hosts.
    let is_in_filter = |connection: &Connection| {
        representation != Representation::HostAggregate || connection.reply == connection.original.inverse()
    };
    let is_held = |connection: &Connection| {
        representation.has_states() || CellState::of(connection).is_established(connection.original.protocol)
    };
    let own = dying.pipeline().table().iter().filter(|(_, connection)| connection.owner == NodeId(node as u8));
    for (_, connection) in own.filter(|(_, connection)| is_held(connection)) {
        outcome.filtered.asked += 1;
        if !is_in_filter(connection) {
            outcome.filtered.unknown += u64::from(heir.pipeline().lookup(&connection.original).is_none());
            continue;
        }
        match heir.recovery_lookup(&connection.original) {
            None => outcome.filtered.unknown += 1,
            Some(recalled) => {
                let is_right = recalled.state.is_none_or(|(state, flags)| {
                    let mut replicated: Connection = *connection;
                    (replicated.protocol, replicated.flags) = (state, flags);
                    CellState::of(&replicated) == CellState::of(connection)
                });
                outcome.filtered.inaccurate_states += u64::from(!is_right);
            }
        }
        for nth in 0..ABSENT_PER_CONNECTION {
            let stranger = Tuple { source: STRANGER, source_port: STRANGERS_PORT_FIRST + nth, ..connection.original };
            outcome.filtered.strangers_asked += 1;
            outcome.filtered.false_hits += u64::from(heir.recovery_lookup(&stranger).is_some());
        }
    }
}

/// An address that no host of a run has.
const STRANGER: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 77];
