//! What nodes send each other for the state service. The messages of table I of \[TRIPOD\] and of its algorithms 1 and 2.
//!
//! A message is a header of four bytes and fields in network order:
//!
//! ```text
//! 0        1     2..4   4..
//! version  type  zero   predict    hash 8, failures 1
//!                       confirm    hash 8, failures 1, rank 1
//!                       pull       side 1, tuple 40
//!                       state      side 1, tuple 40, state to the end
//!                       not held   side 1, tuple 40
//!                       query      number 4, twice (incarnation 4, epoch 4)
//!                       index      number 4, side 1, incarnation 4, since 4, epoch 4, part 2, parts 2, buckets 8, update
//!                       loads      a node 1 and its load 8, up to 64 times
//!
//! tuple:  source 16, destination 16, source port 2, destination port 2, protocol 1, IP version 1, discriminator 2
//! ```
//!
//! The sender of a message is known from the channel that brought it.

use alloc::vec::Vec;

use filters::shape::WORDS_MAX;
use filters::{CuckooShape, Exchange, ExchangeError, Update};
use flow::{NODES_MAX, NodeId, Tuple};

use crate::prediction::FAILURES_MAX;

/// The first byte of a message: a magic number in the high half, by which a receiver distinguishes it from other datagrams of a peer, and
/// the version of this encoding in the low half.
pub const VERSION: u8 = MAGIC | 1;
/// The magic number, and the bits that have it.
const MAGIC: u8 = 0xb0;
const MAGIC_MASK: u8 = 0xf0;
/// The most bytes of a message: with the headers of a datagram and of the channel it fits an Ethernet frame.
pub const MESSAGE_BYTES_MAX: usize = 1280;
/// The most bytes of a connection's state in a message.
pub const STATE_BYTES_MAX: usize = MESSAGE_BYTES_MAX - HEADER_BYTES - 1 - TUPLE_BYTES;
/// Bytes of the header.
const HEADER_BYTES: usize = 4;
/// Bytes of an encoded tuple.
const TUPLE_BYTES: usize = 40;
/// The IPv4-mapped prefix.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The side of the cluster that packets come from. NAT makes the tuples of both sides differ, so each has an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// Packets that enter the data centre.
    Incoming = 0,
    /// Packets that leave it.
    Outgoing = 1,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Incoming, Self::Outgoing];
}

/// A connection as its packets from one side show it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The side.
    pub side: Side,
    /// The tuple of packets from this side.
    pub tuple: Tuple,
}

/// How far a receiver knows an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// The run of the sender's process that the receiver has an index of; 0: none.
    pub incarnation: u32,
    /// The last epoch that is completely known.
    pub epoch: u32,
}

/// One part of the changes of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexPart<'a> {
    /// The number of the query that it answers; 0: it is advertised.
    pub query: u32,
    /// Which index.
    pub side: Side,
    /// The run of the sender's process, not 0.
    pub incarnation: u32,
    /// All words that changed after this epoch are in the parts; 0: all that are not zero.
    pub since: u32,
    /// The epoch that a receiver of all parts knows.
    pub epoch: u32,
    /// The number of this part, below `parts`.
    pub part: u16,
    /// The number of parts, at least 1.
    pub parts: u16,
    /// The filter's shape.
    pub shape: CuckooShape,
    /// The words, as an [`Update`].
    pub update: &'a [u8],
}

/// Whether a datagram on the replication channel is a message of the state service, of whatever version.
#[must_use]
pub fn is_state_service(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & MAGIC_MASK == MAGIC)
}

/// Expected loads by node: the S of equation 6. A received one has each node at most once.
pub type Loads = Vec<(NodeId, u64)>;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A forged packet came through the group for this number of failures: where?
    Predict {
        /// The connection.
        hash: u64,
        /// The group.
        failures: u8,
    },
    /// The answer: by this entry of the group.
    Confirm {
        /// The connection.
        hash: u64,
        /// The group.
        failures: u8,
        /// The entry.
        rank: u8,
    },
    /// Requests the state of a connection, and makes its sender the owner.
    Pull(Key),
    /// Requests a copy of the state of a connection, whose owner stays: a packet that shows too little of itself needs it.
    Copy(Key),
    /// The state of a connection, at most [`STATE_BYTES_MAX`].
    State {
        /// The connection.
        key: Key,
        /// Its state, in the form of the caller.
        state: &'a [u8],
    },
    /// The sender does not have the requested connection.
    NotHeld(Key),
    /// Requests the changes of both indexes.
    Query {
        /// A number to match the answers, not 0.
        number: u32,
        /// What is known of each, in the order of [`Side::ALL`].
        known: [Known; 2],
    },
    /// Changes of an index.
    Index(IndexPart<'a>),
    /// The sender's part of the expected load of each node, in bytes of state to be moved per failure.
    Loads(Loads),
}

/// Why a message was rejected: its sender misbehaves or has another version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// Another version.
    #[error("the peer's state service has version {}, this node's has {}: run the same release on both", .0 & !MAGIC_MASK, VERSION & !MAGIC_MASK)]
    Version(u8),
    /// A type that this version does not have.
    #[error("a message of the unknown type {0}")]
    Type(u8),
    /// The bytes are no message.
    #[error("these bytes are no message of the state service: {0}")]
    Malformed(&'static str),
    /// The words of an index are invalid.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

const TRUNCATED: MessageError = MessageError::Malformed("it ends within a field");

impl<'a> Message<'a> {
    const fn kind(&self) -> u8 {
        match self {
            Self::Predict { .. } => 1,
            Self::Confirm { .. } => 2,
            Self::Pull(_) => 3,
            Self::State { .. } => 4,
            Self::NotHeld(_) => 5,
            Self::Query { .. } => 6,
            Self::Index(_) => 7,
            Self::Loads(_) => 8,
            Self::Copy(_) => 9,
        }
    }

    /// Appends the encoded message to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&[VERSION, self.kind(), 0, 0]);
        match self {
            Self::Predict { hash, failures } => {
                bytes.extend_from_slice(&hash.to_be_bytes());
                bytes.push(*failures);
            }
            Self::Confirm { hash, failures, rank } => {
                bytes.extend_from_slice(&hash.to_be_bytes());
                bytes.extend_from_slice(&[*failures, *rank]);
            }
            Self::Pull(key) | Self::Copy(key) | Self::NotHeld(key) => encode_key(key, bytes),
            Self::State { key, state } => {
                encode_key(key, bytes);
                bytes.extend_from_slice(state);
            }
            Self::Query { number, known } => {
                bytes.extend_from_slice(&number.to_be_bytes());
                for Known { incarnation, epoch } in known {
                    bytes.extend_from_slice(&incarnation.to_be_bytes());
                    bytes.extend_from_slice(&epoch.to_be_bytes());
                }
            }
            Self::Index(part) => part.encode(bytes),
            Self::Loads(loads) => {
                for (node, load) in loads {
                    bytes.push(node.0);
                    bytes.extend_from_slice(&load.to_be_bytes());
                }
            }
        }
    }

    /// Parses a message. Whatever it returns can be used without further checks.
    ///
    /// # Errors
    /// The bytes are no message of this version.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = Reader(bytes);
        let [version, kind, zeros @ ..] = reader.array::<HEADER_BYTES>()?;
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        if zeros != [0, 0] || bytes.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::Malformed("its header is not of this version, or it is too long"));
        }
        let message = match kind {
            1 => Self::Predict { hash: reader.u64()?, failures: reader.group()? },
            2 => Self::Confirm { hash: reader.u64()?, failures: reader.group()?, rank: reader.u8()? },
            3 => Self::Pull(reader.key()?),
            4 => Self::State { key: reader.key()?, state: reader.rest() },
            5 => Self::NotHeld(reader.key()?),
            6 => Self::Query { number: reader.number()?, known: [reader.known()?, reader.known()?] },
            7 => Self::Index(IndexPart::parse(&mut reader)?),
            8 => Self::Loads(reader.loads()?),
            9 => Self::Copy(reader.key()?),
            other => return Err(MessageError::Type(other)),
        };
        if reader.0.is_empty() { Ok(message) } else { Err(MessageError::Malformed("bytes behind its end")) }
    }
}

impl<'a> IndexPart<'a> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.query.to_be_bytes());
        bytes.push(self.side as u8);
        for number in [self.incarnation, self.since, self.epoch] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&self.part.to_be_bytes());
        bytes.extend_from_slice(&self.parts.to_be_bytes());
        bytes.extend_from_slice(&self.shape.buckets.to_be_bytes());
        bytes.extend_from_slice(self.update);
    }

    fn parse(reader: &mut Reader<'a>) -> Result<Self, MessageError> {
        let (query, side) = (reader.u32()?, reader.side()?);
        let (incarnation, since, epoch) = (reader.number()?, reader.u32()?, reader.u32()?);
        let (part, parts) = (reader.u16()?, reader.u16()?);
        let shape = CuckooShape { buckets: reader.u64()? };
        if since > epoch || part >= parts {
            return Err(MessageError::Malformed("an index whose parts or epochs contradict each other"));
        }
        if shape.buckets == 0 || shape.buckets > WORDS_MAX / 2 {
            return Err(MessageError::Malformed("an index of a size that does not exist"));
        }
        let part = Self { query, side, incarnation, since, epoch, part, parts, shape, update: reader.rest() };
        part.update()?;
        Ok(part)
    }

    /// The words.
    ///
    /// # Errors
    /// They are invalid. Those of a parsed message are valid.
    pub fn update(&self) -> Result<Update<'a>, ExchangeError> {
        let words = filters::Shape::Cuckoo(self.shape).words()?;
        Update::parse(self.update, words)
    }

    /// An empty filter of the part's shape.
    ///
    /// # Errors
    /// The shape is invalid. That of a parsed message is valid.
    pub fn empty(&self) -> Result<filters::Cuckoo, ExchangeError> {
        Ok(filters::Cuckoo::empty(filters::Shape::Cuckoo(self.shape))?)
    }
}

fn encode_key(key: &Key, bytes: &mut Vec<u8>) {
    let tuple = &key.tuple;
    bytes.push(key.side as u8);
    bytes.extend_from_slice(&tuple.source);
    bytes.extend_from_slice(&tuple.destination);
    bytes.extend_from_slice(&tuple.source_port.to_be_bytes());
    bytes.extend_from_slice(&tuple.destination_port.to_be_bytes());
    bytes.extend_from_slice(&[tuple.protocol, tuple.version]);
    bytes.extend_from_slice(&tuple.discriminator.to_be_bytes());
}

/// The fields that are left of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], MessageError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u8(&mut self) -> Result<u8, MessageError> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, MessageError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number that is never zero.
    fn number(&mut self) -> Result<u32, MessageError> {
        let number = self.u32()?;
        if number == 0 { Err(MessageError::Malformed("a number that is zero")) } else { Ok(number) }
    }

    fn group(&mut self) -> Result<u8, MessageError> {
        let failures = self.u8()?;
        if usize::from(failures) > FAILURES_MAX {
            return Err(MessageError::Malformed("a group of more failures than are predicted"));
        }
        Ok(failures)
    }

    fn side(&mut self) -> Result<Side, MessageError> {
        match self.u8()? {
            0 => Ok(Side::Incoming),
            1 => Ok(Side::Outgoing),
            _ => Err(MessageError::Malformed("a side that does not exist")),
        }
    }

    fn known(&mut self) -> Result<Known, MessageError> {
        Ok(Known { incarnation: self.u32()?, epoch: self.u32()? })
    }

    fn key(&mut self) -> Result<Key, MessageError> {
        let side = self.side()?;
        let (source, destination): ([u8; 16], [u8; 16]) = (self.array()?, self.array()?);
        let (source_port, destination_port) = (self.u16()?, self.u16()?);
        let (protocol, version, discriminator) = (self.u8()?, self.u8()?, self.u16()?);
        let is_valid = match version {
            4 => source.starts_with(&MAPPED) && destination.starts_with(&MAPPED),
            6 => true,
            _ => false,
        };
        if !is_valid {
            return Err(MessageError::Malformed("a tuple of no address family"));
        }
        let tuple = Tuple { source, destination, source_port, destination_port, protocol, version, discriminator };
        Ok(Key { side, tuple })
    }

    fn loads(&mut self) -> Result<Loads, MessageError> {
        let mut loads = Loads::new();
        while !self.0.is_empty() {
            let (node, load) = (self.u8()?, self.u64()?);
            if usize::from(node) >= NODES_MAX || loads.iter().any(|(known, _)| known.0 == node) {
                return Err(MessageError::Malformed("loads of a node twice, or of none"));
            }
            loads.push((NodeId(node), load));
        }
        Ok(loads)
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests;
