//! One connection: everything that a node knows of it, in one record.

use core::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::protocol_state::ProtocolState;
use crate::{Instant, PortId, Tuple};

/// Bytes for the states of all functions of the chain in a record.
pub const FUNCTION_STATE_BYTES_MAX: usize = 64;

/// A node of the cluster, from 0.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct NodeId(pub u8);

/// Which way a packet goes on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// As the first packet went.
    Original = 0,
    /// Against it.
    Reply = 1,
}

impl Direction {
    /// The other way.
    #[must_use]
    pub const fn reverse(self) -> Self {
        match self {
            Self::Original => Self::Reply,
            Self::Reply => Self::Original,
        }
    }

    /// 0 or 1, for arrays with an element a direction.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What this node is to a connection (TRIPOD, section III-B).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// It handles the connection's packets and tells the backups.
    Master,
    /// It holds a copy, told by the master.
    Backup,
}

/// A connection's record. Four cache lines, of which a packet touches all four; the lookup needs the first two.
///
/// `repr(C)` and the order of the fields are for the cache, not for the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Connection {
    /// The tuple of packets in the original direction, as they come in.
    pub original: Tuple,
    /// Packets seen, by direction.
    pub packets: [u64; 2],
    /// Counts the changes worth telling; a higher one is newer (see [`Connection::take_over`]).
    pub version: u32,
    /// The node that is master of the connection.
    pub owner: NodeId,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Ports that packets left on last, by direction: the port's number plus one; 0 while none has left from this node.
    pub egress: [u8; 2],

    /// The tuple of packets in the reply direction, as they come in: under NAT not the inverse of `original`.
    pub reply: Tuple,
    /// Bytes seen (from the IP header on), by direction.
    pub bytes: [u64; 2],
    /// When the connection ends unless another packet comes, in nanoseconds of [`Instant`].
    pub expires_at_nanos: u64,

    /// Where the protocol's automaton stands.
    pub protocol: ProtocolState,
    /// The table's own: the tick at which the connection's timer fires at the latest; 0 when that is not known here. So
    /// that a packet that brings the expiry forward need not look at the timer, which lies elsewhere.
    pub(crate) timer_tick: u32,

    /// The functions' states, one behind the other, laid out by the chain.
    pub functions: [u8; FUNCTION_STATE_BYTES_MAX],
}

// What the table's lookup counts on: four lines, a tuple at the start of each of the first two.
const _: () = assert!(size_of::<Connection>() == 4 * 64);
const _: () = assert!(offset_of!(Connection, original) == 0 && offset_of!(Connection, reply) == 64);

/// Bits of [`Connection::flags`].
pub mod flags {
    /// Packets have been seen in both directions.
    pub const REPLIED: u8 = 1;
    /// The connection will not be lost to a shortage of memory (established, as conntrack sees it).
    pub const ASSURED: u8 = 2;
    /// The record is a copy: its packets have been seen by another node only.
    pub const COPY: u8 = 8;
    /// Found again by the resynchronisation that is under way.
    pub const RESYNCED: u8 = 4;
    /// Connections may be expected on its behalf.
    pub const EXPECTS: u8 = 16;
    /// It was expected on behalf of another one.
    pub const RELATED: u8 = 32;
    /// Its packets reach two living nodes, so that each sees a part of the conversation. The windows of TCP are not held
    /// against its segments.
    pub const SHARED: u8 = 64;
    /// Its master has seen no packet of it: it speaks for a connection of which it has a copy. Only while a copy is on its way
    /// into the table.
    pub const UNSEEN: u8 = 128;
}

impl Connection {
    /// A new connection of this node, with the tuple that its first packet carried.
    #[must_use]
    pub fn new(original: Tuple, owner: NodeId, protocol: ProtocolState, expires_at: Instant) -> Self {
        Self {
            original,
            packets: [0; 2],
            version: 1,
            owner,
            flags: 0,
            egress: [0; 2],
            reply: original.inverse(),
            bytes: [0; 2],
            expires_at_nanos: expires_at.as_nanos(),
            protocol,
            timer_tick: 0,
            functions: [0; FUNCTION_STATE_BYTES_MAX],
        }
    }

    /// This record, to be put in the place of another in its slot: the timer that is armed for that one serves this one.
    #[must_use]
    pub const fn with_timer_of(self, replaced: &Self) -> Self {
        Self { timer_tick: replaced.timer_tick, ..self }
    }

    /// When the connection ends unless another packet comes.
    #[must_use]
    pub const fn expires_at(&self) -> Instant {
        Instant::from_nanos(self.expires_at_nanos)
    }

    /// The tuple that packets of `direction` come in with.
    #[must_use]
    pub const fn tuple(&self, direction: Direction) -> &Tuple {
        match direction {
            Direction::Original => &self.original,
            Direction::Reply => &self.reply,
        }
    }

    /// A packet of `direction` leaves by `port`.
    #[inline(always)]
    pub const fn note_egress(&mut self, direction: Direction, port: PortId) {
        self.egress[direction.index()] = port.0.wrapping_add(1);
    }

    /// The tuple that packets of `direction` go out with.
    #[must_use]
    pub const fn translated(&self, direction: Direction) -> Tuple {
        match direction {
            Direction::Original => self.reply.inverse(),
            Direction::Reply => self.original.inverse(),
        }
    }

    /// Counts a change: the new version is newer than every earlier one of this master.
    pub const fn bump_version(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// `node` becomes master. Its versions are newer than any that the former master can have reached in the
    /// meantime: the high half counts masters, the low half a master's changes.
    pub const fn take_over(&mut self, node: NodeId) {
        self.owner = node;
        self.version = (self.version | 0xffff).wrapping_add(1);
    }

    /// The version of a connection that begins in this one's place, with the same tuple. It is newer than whatever a former
    /// or a next master of this one can have reached, so that no word of this one counts against it: two masters on, where
    /// a take-over is one on.
    #[must_use]
    pub const fn version_of_successor(&self) -> u32 {
        ((self.version | 0xffff).wrapping_add(1) | 0xffff).wrapping_add(1)
    }

    /// Whether `version` is newer than this record's, counting round the end (RFC 1982).
    #[must_use]
    pub const fn is_older_than(&self, version: u32) -> bool {
        (version.wrapping_sub(self.version) as i32) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        let original = Tuple {
            source: [1; 16],
            destination: [2; 16],
            source_port: 1000,
            destination_port: 80,
            protocol: 6,
            version: 6,
            discriminator: 0,
        };
        Connection::new(original, NodeId(1), ProtocolState::default(), Instant::from_millis(5))
    }

    #[test]
    fn a_new_connection_translates_nothing() {
        let connection = connection();
        for direction in [Direction::Original, Direction::Reply] {
            assert_eq!(connection.translated(direction), *connection.tuple(direction));
            assert_eq!(connection.tuple(direction.reverse()), &connection.tuple(direction).inverse());
        }
        assert_eq!(connection.expires_at(), Instant::from_millis(5));
    }

    #[test]
    fn packets_of_a_translated_connection_leave_as_the_other_side_knows_them() {
        let mut connection = connection();
        connection.reply.destination = [9; 16];
        let out = connection.translated(Direction::Original);
        assert_eq!((out.source, out.destination), ([9; 16], [2; 16]));
        let back = connection.translated(Direction::Reply);
        assert_eq!((back.source, back.destination), ([2; 16], [1; 16]));
    }

    #[test]
    fn a_new_master_is_newer_than_whatever_the_old_one_reached() {
        for version in [1, 0xffff, 0x1_0000, u32::MAX - 1, u32::MAX] {
            let copy = Connection { version, ..connection() };
            let mut old_master = copy;
            for _ in 0..100 {
                old_master.bump_version();
            }
            assert!(copy.is_older_than(old_master.version) && !old_master.is_older_than(copy.version));
            let mut new_master = old_master;
            new_master.take_over(NodeId(2));
            assert_eq!(new_master.owner, NodeId(2));
            assert!(old_master.is_older_than(new_master.version));
            let successor = copy.version_of_successor();
            let mut next_master = copy;
            next_master.take_over(NodeId(2));
            assert!(old_master.is_older_than(successor) && next_master.is_older_than(successor));
            assert!(!new_master.is_older_than(new_master.version), "nothing is newer than itself");
        }
    }
}
