//! What a study wants to know of a connection, kept in the room that its record has for the states of functions: there are
//! none here, and so nothing is looked up twice.

use std::time::Duration;

use flow::connection::FUNCTION_STATE_BYTES_MAX;
use flow::{Connection, Direction, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Packet;

/// What was noted of a connection. Times are nanoseconds from the Unix epoch on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Notes {
    /// Its number, from 0 in the order of their first packets; never used again.
    pub id: u64,
    /// When its first packet came.
    pub began_at_nanos: u64,
    /// When its last packet came.
    pub last_at_nanos: u64,
    /// When its handshake was over, or it was answered; 0 before that.
    pub established_at_nanos: u64,
    /// Bytes that its transport carried, by direction.
    pub payload_bytes: [u64; 2],
    /// Which captures saw it: a bit for each of the first 64, by [`Packet::capture_index`].
    pub captures: u64,
    /// A study's own word, 0 at first; see [`super::Connections::set_mark`].
    pub mark: u64,
}

const _: () = assert!(size_of::<Notes>() == FUNCTION_STATE_BYTES_MAX);

impl Notes {
    /// Those of a connection.
    #[must_use]
    pub fn of(connection: &Connection) -> Self {
        zerocopy::transmute!(connection.functions)
    }

    pub(super) fn put(self, connection: &mut Connection) {
        connection.functions = zerocopy::transmute!(self);
    }

    /// From the first packet to the last.
    #[must_use]
    pub const fn lifetime(&self) -> Duration {
        Duration::from_nanos(self.last_at_nanos - self.began_at_nanos)
    }

    /// When the first packet came.
    #[must_use]
    pub const fn began_at(&self) -> Instant {
        Instant::from_nanos(self.began_at_nanos)
    }

    /// Counts a packet.
    pub(super) fn note(&mut self, connection: &mut Connection, packet: &Packet<'_>, direction: Direction) {
        connection.packets[direction.index()] += 1;
        connection.bytes[direction.index()] += u64::from(packet.headers.l3_bytes);
        self.payload_bytes[direction.index()] += u64::from(packet.payload_bytes);
        self.last_at_nanos = self.last_at_nanos.max(packet.at.as_nanos());
        if packet.capture_index < 64 {
            self.captures |= 1 << packet.capture_index;
        }
    }
}
