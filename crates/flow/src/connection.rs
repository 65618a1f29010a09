//! A connection: the node's whole state of it, in one record.

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

/// The direction of a packet on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// The direction of the first packet.
    Original = 0,
    /// Against it.
    Reply = 1,
}

impl Direction {
    /// The opposite direction.
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

/// The node's role for a connection (TRIPOD, section III-B).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConnectionRole {
    /// It processes the connection's packets and replicates its state.
    Owner,
    /// It holds a replica that the owner keeps up to date.
    Replica,
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
    /// The version of the replicated state; a higher one is newer (see [`Connection::take_over`]).
    pub version: u32,
    /// The node that owns the connection.
    pub owner: NodeId,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Egress ports of the last packets, by direction: the port's number plus one; 0 while none has left from this
    /// node.
    pub egress: [u8; 2],

    /// The tuple of packets in the reply direction, as they come in: under NAT not the inverse of `original`.
    pub reply: Tuple,
    /// Bytes seen (from the IP header on), by direction.
    pub bytes: [u64; 2],
    /// When the connection expires without further packets, in nanoseconds of [`Instant`].
    pub expires_at_nanos: u64,

    /// The state of the protocol's automaton.
    pub protocol: ProtocolState,
    /// The latest tick at which the connection's timer fires, or 0 where unknown. With it, a packet that shortens the
    /// expiry need not read the timer, which lies in another cache line.
    pub(crate) timer_tick: u32,

    /// The functions' states, one behind the other, laid out by the chain.
    pub functions: [u8; FUNCTION_STATE_BYTES_MAX],
}

// The lookup relies on four cache lines, with a tuple at the start of each of the first two.
const _: () = assert!(size_of::<Connection>() == 4 * 64);
const _: () = assert!(offset_of!(Connection, original) == 0 && offset_of!(Connection, reply) == 64);

/// Bits of [`Connection::flags`].
pub mod flags {
    /// Packets have been seen in both directions.
    pub const REPLIED: u8 = 1;
    /// The connection is not evicted under memory pressure (established, as in conntrack).
    pub const ASSURED: u8 = 2;
    /// The record is a replica: only another node has seen its packets.
    pub const REPLICA: u8 = 8;
    /// The resynchronisation in progress has confirmed the connection.
    pub const RESYNCED: u8 = 4;
    /// Connections are expected on its behalf.
    pub const EXPECTS: u8 = 16;
    /// It was expected on behalf of another one.
    pub const RELATED: u8 = 32;
    /// Its packets reach two live nodes, so each sees a part of the segments. TCP windows are not checked.
    pub const SHARED: u8 = 64;
    /// The sender has seen no packet of the connection and re-advertises its replica. The flag exists only while an
    /// update is applied.
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

    /// This record, to replace another one in its slot: it keeps that one's armed timer.
    #[must_use]
    pub const fn with_timer_of(self, replaced: &Self) -> Self {
        Self { timer_tick: replaced.timer_tick, ..self }
    }

    /// When the connection expires without further packets.
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

    /// A packet of `direction` leaves through `port`.
    #[inline(always)]
    pub const fn note_egress(&mut self, direction: Direction, port: PortId) {
        self.egress[direction.index()] = port.0.wrapping_add(1);
    }

    /// The port that the last packet of `direction` left by; `None` while none has left from this node.
    #[must_use]
    pub const fn egress_port(&self, direction: Direction) -> Option<PortId> {
        match self.egress[direction.index()] {
            0 => None,
            number => Some(PortId(number - 1)),
        }
    }

    /// The tuple that packets of `direction` go out with.
    #[must_use]
    pub const fn translated(&self, direction: Direction) -> Tuple {
        match direction {
            Direction::Original => self.reply.inverse(),
            Direction::Reply => self.original.inverse(),
        }
    }

    /// Increments the version, which is then newer than every earlier one of this owner.
    pub const fn bump_version(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// Makes `node` the owner. Its versions exceed all that the former owner can have reached meanwhile: the high half
    /// counts owners, the low half an owner's changes.
    pub const fn take_over(&mut self, node: NodeId) {
        self.owner = node;
        self.version = (self.version | 0xffff).wrapping_add(1);
    }

    /// The first version of a connection that reuses this one's tuple. It skips two owners where a take-over skips one.
    /// It so exceeds every version of this connection's former or next owner, and no late update of this connection
    /// overrides it.
    #[must_use]
    pub const fn version_of_successor(&self) -> u32 {
        ((self.version | 0xffff).wrapping_add(1) | 0xffff).wrapping_add(1)
    }

    /// Whether `version` is newer than this record's, in serial number arithmetic (RFC 1982).
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
    fn a_new_connection_is_untranslated() {
        let connection = connection();
        for direction in [Direction::Original, Direction::Reply] {
            assert_eq!(connection.translated(direction), *connection.tuple(direction));
            assert_eq!(connection.tuple(direction.reverse()), &connection.tuple(direction).inverse());
        }
        assert_eq!(connection.expires_at(), Instant::from_millis(5));
    }

    #[test]
    fn translated_packets_leave_with_the_inverse_of_the_reply_tuple() {
        let mut connection = connection();
        connection.reply.destination = [9; 16];
        let out = connection.translated(Direction::Original);
        assert_eq!((out.source, out.destination), ([9; 16], [2; 16]));
        let back = connection.translated(Direction::Reply);
        assert_eq!((back.source, back.destination), ([2; 16], [1; 16]));
    }

    #[test]
    fn versions_of_a_new_owner_exceed_those_of_the_former() {
        for version in [1, 0xffff, 0x1_0000, u32::MAX - 1, u32::MAX] {
            let copy = Connection { version, ..connection() };
            let mut former_owner = copy;
            for _ in 0..100 {
                former_owner.bump_version();
            }
            assert!(copy.is_older_than(former_owner.version) && !former_owner.is_older_than(copy.version));
            let mut new_owner = former_owner;
            new_owner.take_over(NodeId(2));
            assert_eq!(new_owner.owner, NodeId(2));
            assert!(former_owner.is_older_than(new_owner.version));
            let successor = copy.version_of_successor();
            let mut next_owner = copy;
            next_owner.take_over(NodeId(2));
            assert!(former_owner.is_older_than(successor) && next_owner.is_older_than(successor));
            assert!(!new_owner.is_older_than(new_owner.version), "nothing is newer than itself");
        }
    }
}
