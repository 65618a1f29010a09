//! A connection by value: everything that another node needs to go on with it.
//!
//! | type | attribute | value |
//! |---|---|---|
//! | 1 | original tuple, IPv4 | source 4, destination 4, source port 2, destination port 2, discriminator 2, protocol 1, 0 |
//! | 2 | original tuple, IPv6 | the same with 16-byte addresses |
//! | 3 | reply tuple, IPv4, unless it is the original's inverse | source 4, destination 4, source port 2, destination port 2 |
//! | 4 | reply tuple, IPv6, unless it is the original's inverse | the same with 16-byte addresses |
//! | 5 | record | version 4, milliseconds until it expires 4, owner 1, flags 1 |
//! | 6 | protocol state | attributes |
//! | 7 | functions' states, unless there are none | attributes, of the chain |
//! | 8 | ended | version 4, owner 1 |
//! | 9 | connections expected on its behalf, unless there are none | attributes, of the node |
//! | 10, 11 | the connection that it was expected by, if it was, IPv4 or IPv6 | as 1 and 2 |
//! | 12 | it ended because nothing came of it for its time; left out when it ended otherwise | none |
//! | 13 | it was ended because its server has failed: its later segments are answered by resets | none |
//!
//! A state has 1 or 2, 5 and 6, and 9 to 11 where they apply; an ended connection 1 or 2, 8, and 12 or 13 where it applies. Unknown attributes are skipped. Counters and the ports that
//! packets leave on are a node's own and do not travel. A NATed TCP connection over IPv4 takes about 110 bytes.

use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::conntrack::{decode_protocol_state, encode_protocol_state};
use flow::wire::tlv::{self, TlvError};
use flow::{Connection, Instant, IpFamily, NodeId, Tuple};

use crate::message;
use crate::session::ApplyError;

const ORIGINAL_V4: u16 = 1;
const ORIGINAL_V6: u16 = 2;
const REPLY_V4: u16 = 3;
const REPLY_V6: u16 = 4;
const RECORD: u16 = 5;
const PROTOCOL_STATE: u16 = 6;
const FUNCTIONS: u16 = 7;
const ENDED: u16 = 8;
const EXPECTED: u16 = 9;
const MASTER_V4: u16 = 10;
const MASTER_V6: u16 = 11;
const TIMED_OUT: u16 = 12;
const FAILED: u16 = 13;

/// The flags of a record that mean something to another node.
const FLAGS_REPLICATED: u8 = flags::REPLIED | flags::ASSURED | flags::SHARED;
/// In the flags of a record on the wire: its owner has seen no packet of the connection, but replicates it.
const WIRE_UNSEEN: u8 = 4;
/// `::ffff:0:0/96`, in which IPv4 addresses lie (RFC 4291, section 2.5.5.2).
const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// How the states of a chain's functions become attributes: implemented by the chain.
pub trait FunctionStates {
    /// Appends the attributes of the states in `connection`; nothing when there are none.
    fn encode(&self, connection: &Connection, out: &mut Vec<u8>);

    /// Sets the states in `connection` from attributes, perhaps of a chain of another version.
    ///
    /// # Errors
    /// The attributes are malformed.
    fn decode(&self, connection: &mut Connection, attributes: &[u8]) -> Result<(), TlvError>;
}

/// A chain without functions.
#[derive(Clone, Copy, Debug)]
pub struct NoFunctions;

impl FunctionStates for NoFunctions {
    fn encode(&self, _: &Connection, _: &mut Vec<u8>) {}

    fn decode(&self, _: &mut Connection, _: &[u8]) -> Result<(), TlvError> {
        Ok(())
    }
}

/// Room asked for at once, so that the attributes of most connections are appended without growing the buffer.
const STATE_BYTES_USUAL: usize = 192;

/// Appends a connection's state.
pub fn encode(now: Instant, connection: &Connection, functions: &impl FunctionStates, out: &mut Vec<u8>) {
    out.reserve(STATE_BYTES_USUAL);
    put_original(&connection.original, out);
    if connection.reply != connection.original.inverse() {
        put_reply(&connection.reply, out);
    }
    put_record(now, connection, out);
    let at = message::begin(out, PROTOCOL_STATE);
    encode_protocol_state(connection.original.protocol, &connection.protocol, out);
    message::finish(out, at);
    let at = message::begin(out, FUNCTIONS);
    functions.encode(connection, out);
    if out.len() == at + tlv::TLV_HEADER_BYTES {
        out.truncate(at);
    } else {
        message::finish(out, at);
    }
}

/// Reads a connection's state.
///
/// # Errors
/// The attributes are malformed, or one that is needed is not there.
pub fn decode(now: Instant, attributes: &[u8], functions: &impl FunctionStates) -> Result<Connection, ApplyError> {
    let mut original = None;
    let mut reply = None;
    let mut record = None;
    let mut protocol_attributes = None;
    let mut function_attributes: &[u8] = &[];
    for attribute in tlv::read(attributes) {
        let (kind, value) = attribute?;
        match kind {
            ORIGINAL_V4 | ORIGINAL_V6 => original = Some(read_original(kind, value)?),
            REPLY_V4 | REPLY_V6 => reply = Some((kind, value)),
            RECORD => record = Some(sized::<10>(kind, value)?),
            PROTOCOL_STATE => protocol_attributes = Some(value),
            FUNCTIONS => function_attributes = value,
            _ => {}
        }
    }
    let original = original.ok_or(ApplyError::Missing(ORIGINAL_V4))?;
    let record = record.ok_or(ApplyError::Missing(RECORD))?;
    let protocol_attributes = protocol_attributes.ok_or(ApplyError::Missing(PROTOCOL_STATE))?;
    let protocol = decode_protocol_state(original.protocol, protocol_attributes)?;
    let expires_in = Duration::from_millis(u32_at(&record, 4).into());
    let mut connection = Connection::new(original, NodeId(record[8]), protocol, now + expires_in);
    connection.version = u32_at(&record, 0);
    connection.flags = record[9] & FLAGS_REPLICATED;
    if record[9] & WIRE_UNSEEN != 0 {
        connection.flags |= flags::UNSEEN;
    }
    if let Some((kind, value)) = reply {
        connection.reply = read_reply(&original, kind, value)?;
    }
    functions.decode(&mut connection, function_attributes)?;
    Ok(connection)
}

/// What a state states about other connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relations<'a> {
    /// Attributes of the connections that are expected on its behalf.
    pub expected: &'a [u8],
    /// The original tuple of the connection on whose behalf it was expected.
    pub master: Option<Tuple>,
}

/// Appends to a state the connections that are expected on its behalf: the attributes that `fill` appends.
pub fn encode_expected(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = message::begin(out, EXPECTED);
    fill(out);
    if out.len() == at + tlv::TLV_HEADER_BYTES {
        out.truncate(at);
    } else {
        message::finish(out, at);
    }
}

/// Appends to a state the original tuple of the connection on whose behalf it was expected.
pub fn encode_master(master: &Tuple, out: &mut Vec<u8>) {
    put_tuple([MASTER_V4, MASTER_V6], master, out);
}

/// Reads what a state states about other connections.
///
/// # Errors
/// The attributes are malformed.
pub fn relations(attributes: &[u8]) -> Result<Relations<'_>, ApplyError> {
    let mut relations = Relations::default();
    for attribute in tlv::read(attributes) {
        match attribute? {
            (EXPECTED, value) => relations.expected = value,
            (kind @ MASTER_V4, value) => relations.master = Some(read_tuple(kind, IpFamily::V4, value)?),
            (kind @ MASTER_V6, value) => relations.master = Some(read_tuple(kind, IpFamily::V6, value)?),
            _ => {}
        }
    }
    Ok(relations)
}

/// Why a connection ended, as far as other nodes need to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EndCause {
    /// Its end points or an operator ended it.
    #[default]
    Other,
    /// Nothing came of it for its time, as far as its owner saw.
    TimedOut,
    /// Its server has failed: its later segments are answered by resets.
    Failed,
}

/// A connection that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The tuple in its original direction.
    pub original: Tuple,
    /// Its last version.
    pub version: u32,
    /// Its owner.
    pub owner: NodeId,
    /// Why it ended, as far as other nodes need to know.
    pub cause: EndCause,
}

impl From<&Connection> for Ended {
    fn from(connection: &Connection) -> Self {
        Self {
            original: connection.original,
            version: connection.version,
            owner: connection.owner,
            cause: EndCause::Other,
        }
    }
}

/// Appends the name of a connection that has ended: at most 60 bytes.
pub fn encode_ended(ended: &Ended, out: &mut Vec<u8>) {
    put_original(&ended.original, out);
    let [a, b, c, d] = ended.version.to_be_bytes();
    tlv::put(out, ENDED, &[a, b, c, d, ended.owner.0]);
    match ended.cause {
        EndCause::Other => {}
        EndCause::TimedOut => tlv::put(out, TIMED_OUT, &[]),
        EndCause::Failed => tlv::put(out, FAILED, &[]),
    }
}

/// Reads the name of a connection that has ended.
///
/// # Errors
/// The attributes are malformed, or one that is needed is not there.
pub fn decode_ended(attributes: &[u8]) -> Result<Ended, ApplyError> {
    let mut original = None;
    let mut ended = None;
    let mut cause = EndCause::Other;
    for attribute in tlv::read(attributes) {
        let (kind, value) = attribute?;
        match kind {
            ORIGINAL_V4 | ORIGINAL_V6 => original = Some(read_original(kind, value)?),
            ENDED => ended = Some(sized::<5>(kind, value)?),
            TIMED_OUT => cause = EndCause::TimedOut,
            FAILED => cause = EndCause::Failed,
            _ => {}
        }
    }
    let original = original.ok_or(ApplyError::Missing(ORIGINAL_V4))?;
    let ended = ended.ok_or(ApplyError::Missing(ENDED))?;
    Ok(Ended { original, version: u32_at(&ended, 0), owner: NodeId(ended[4]), cause })
}

#[inline]
fn put_record(now: Instant, connection: &Connection, out: &mut Vec<u8>) {
    let expires_in = Instant::from_nanos(connection.expires_at_nanos).saturating_since(now);
    let expires_in_ms = u32::try_from(expires_in.as_millis()).unwrap_or(u32::MAX);
    tlv::put_fixed::<16>(out, RECORD, 10, |bytes| {
        bytes[4..8].copy_from_slice(&connection.version.to_be_bytes());
        bytes[8..12].copy_from_slice(&expires_in_ms.to_be_bytes());
        bytes[12] = connection.owner.0;
        let unseen = if connection.flags & flags::REPLICA != 0 { WIRE_UNSEEN } else { 0 };
        bytes[13] = connection.flags & FLAGS_REPLICATED | unseen;
    });
}

#[inline]
fn put_original(tuple: &Tuple, out: &mut Vec<u8>) {
    put_tuple([ORIGINAL_V4, ORIGINAL_V6], tuple, out);
}

/// A whole tuple, as the first of these kinds for IPv4 and the second for IPv6.
#[inline(always)]
fn put_tuple([v4, v6]: [u16; 2], tuple: &Tuple, out: &mut Vec<u8>) {
    let [discriminator_high, discriminator_low] = tuple.discriminator.to_be_bytes();
    let tail = [discriminator_high, discriminator_low, tuple.protocol, 0];
    match tuple.family() {
        IpFamily::V4 => tlv::put_fixed::<20>(out, v4, 16, |bytes| {
            bytes[4..16].copy_from_slice(&end_points_v4(tuple));
            bytes[16..].copy_from_slice(&tail);
        }),
        IpFamily::V6 => tlv::put_fixed::<44>(out, v6, 40, |bytes| {
            bytes[4..40].copy_from_slice(&end_points_v6(tuple));
            bytes[40..].copy_from_slice(&tail);
        }),
    }
}

#[inline]
fn put_reply(tuple: &Tuple, out: &mut Vec<u8>) {
    match tuple.family() {
        IpFamily::V4 => {
            tlv::put_fixed::<16>(out, REPLY_V4, 12, |bytes| bytes[4..].copy_from_slice(&end_points_v4(tuple)))
        }
        IpFamily::V6 => {
            tlv::put_fixed::<40>(out, REPLY_V6, 36, |bytes| bytes[4..].copy_from_slice(&end_points_v6(tuple)))
        }
    }
}

#[inline]
fn end_points_v4(tuple: &Tuple) -> [u8; 12] {
    let mut value = [0; 12];
    value[..4].copy_from_slice(&tuple.source[12..]);
    value[4..8].copy_from_slice(&tuple.destination[12..]);
    value[8..10].copy_from_slice(&tuple.source_port.to_be_bytes());
    value[10..].copy_from_slice(&tuple.destination_port.to_be_bytes());
    value
}

#[inline]
fn end_points_v6(tuple: &Tuple) -> [u8; 36] {
    let mut value = [0; 36];
    value[..16].copy_from_slice(&tuple.source);
    value[16..32].copy_from_slice(&tuple.destination);
    value[32..34].copy_from_slice(&tuple.source_port.to_be_bytes());
    value[34..].copy_from_slice(&tuple.destination_port.to_be_bytes());
    value
}

fn read_original(kind: u16, value: &[u8]) -> Result<Tuple, ApplyError> {
    read_tuple(kind, if kind == ORIGINAL_V4 { IpFamily::V4 } else { IpFamily::V6 }, value)
}

fn read_tuple(kind: u16, family: IpFamily, value: &[u8]) -> Result<Tuple, ApplyError> {
    let (end_points_bytes, version) = match family {
        IpFamily::V4 => (12, 4),
        IpFamily::V6 => (36, 6),
    };
    if value.len() != end_points_bytes + 4 {
        return Err(TlvError::ValueSize(kind).into());
    }
    let (end_points, tail) = value.split_at(end_points_bytes);
    let mut tuple = Tuple {
        source: [0; 16],
        destination: [0; 16],
        source_port: 0,
        destination_port: 0,
        protocol: tail[2],
        version,
        discriminator: u16::from_be_bytes([tail[0], tail[1]]),
    };
    set_end_points(&mut tuple, end_points);
    Ok(tuple)
}

fn read_reply(original: &Tuple, kind: u16, value: &[u8]) -> Result<Tuple, ApplyError> {
    let (expected_kind, bytes) = match original.family() {
        IpFamily::V4 => (REPLY_V4, 12),
        IpFamily::V6 => (REPLY_V6, 36),
    };
    if kind != expected_kind {
        return Err(ApplyError::Value(kind));
    }
    if value.len() != bytes {
        return Err(TlvError::ValueSize(kind).into());
    }
    let mut tuple = original.inverse();
    set_end_points(&mut tuple, value);
    Ok(tuple)
}

/// `end_points` has 12 bytes for IPv4 and 36 for IPv6.
fn set_end_points(tuple: &mut Tuple, end_points: &[u8]) {
    let (addresses, ports) = end_points.split_at(end_points.len() - 4);
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    for (address, bytes) in [(&mut tuple.source, source), (&mut tuple.destination, destination)] {
        address[..12].copy_from_slice(&V4_MAPPED);
        address[16 - bytes.len()..].copy_from_slice(bytes);
    }
    tuple.source_port = u16::from_be_bytes([ports[0], ports[1]]);
    tuple.destination_port = u16::from_be_bytes([ports[2], ports[3]]);
}

fn sized<const BYTES: usize>(kind: u16, value: &[u8]) -> Result<[u8; BYTES], ApplyError> {
    value.try_into().map_err(|_| TlvError::ValueSize(kind).into())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
