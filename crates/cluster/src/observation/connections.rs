//! Connections as they begin, change and end.

use alloc::boxed::Box;

use flow::{Connection, Direction, Instant};

use super::{ConnectionChange, ConnectionEvent, Observation, Sight, Subject};

impl Observation {
    /// Something happened to a connection.
    #[cold]
    pub(crate) fn note_connection(&mut self, change: ConnectionChange, connection: &Connection, entered_at: Instant) {
        let tuples = [connection.original, connection.translated(Direction::Original)];
        for index in 0..self.watches.len() {
            let Subject::Connections(filter) = &self.watches[index].subject else { continue };
            if filter.matches_any(&tuples) {
                let event = ConnectionEvent { at: self.now, change, connection: *connection, entered_at };
                self.push(index, Sight::Connection(Box::new(event)));
            }
        }
    }
}
