//! The encoding of what foca sends. Numbers are in network byte order.
//!
//! ```text
//! header    version (1) │ message │ sender │ incarnation (2) │ receiver │ of the message
//! member    identity │ incarnation (2) │ state (1)
//! newer     version (1) │ 11 │ identity: the newest that is known of the receiver's number
//! identity  kind (1) │ address (4 or 16) │ port (2) │ id (1) │ length (2) │ record │ length (2) │ settings
//! ```

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use bytes::{Buf, BufMut};
use flow::NodeId;
use foca::{Codec, Header, Member as Update, Message, State};

use super::Identity;
use crate::record::{Member, RECORD_BYTES_MAX, RecordError, Settings};

/// The version of the encoding.
const VERSION: u8 = 1;
/// Beside those of foca: the receiver is known by a newer record than the one it sent.
const MESSAGE_NEWER: u8 = 11;
const KIND_V6: u8 = 1;
const KIND_RECORD: u8 = 2;

/// Why bytes are no message of gossip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum CodecError {
    /// They end too early.
    #[error("it is truncated")]
    Truncated,
    /// There is no room for what is to be written.
    #[error("there is no room")]
    NoRoom,
    /// Another release, perhaps.
    #[error("version {0} is not known")]
    Version(u8),
    /// A number that has no meaning.
    #[error("{0} has no meaning")]
    Number(u8),
    /// A record.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Writes and reads identities as records.
pub(super) struct RecordCodec;

/// The sender of a message of foca, if it has a record.
pub(super) fn sender(datagram: &[u8]) -> Option<Identity> {
    let header = RecordCodec.decode_header(datagram).ok()?;
    header.src.record.is_some().then_some(header.src)
}

/// A message with this record, of a member that has sent an older one.
pub(super) fn supersede(newer: &Identity) -> Option<Vec<u8>> {
    let mut message = vec![VERSION, MESSAGE_NEWER];
    put_identity(&mut message, newer).ok()?;
    Some(message)
}

/// The record of such a message; `None`: it is another one.
pub(super) fn superseding(datagram: &[u8]) -> Option<Result<Identity, CodecError>> {
    let mut rest = datagram.strip_prefix(&[VERSION, MESSAGE_NEWER])?;
    Some(identity(&mut rest))
}

impl Codec<Identity> for RecordCodec {
    type Error = CodecError;

    fn encode_header(&mut self, header: &Header<Identity>, mut buf: impl BufMut) -> Result<(), CodecError> {
        let (kind, other, probe) = match &header.message {
            Message::Ping(probe) => (0, None, Some(*probe)),
            Message::Ack(probe) => (1, None, Some(*probe)),
            Message::PingReq { target, probe_number } => (2, Some(target), Some(*probe_number)),
            Message::IndirectPing { origin, probe_number } => (3, Some(origin), Some(*probe_number)),
            Message::IndirectAck { target, probe_number } => (4, Some(target), Some(*probe_number)),
            Message::ForwardedAck { origin, probe_number } => (5, Some(origin), Some(*probe_number)),
            Message::Announce => (6, None, None),
            Message::Feed => (7, None, None),
            Message::Gossip => (8, None, None),
            Message::Broadcast => (9, None, None),
            Message::TurnUndead => (10, None, None),
        };
        put(&mut buf, &[VERSION, kind])?;
        put_identity(&mut buf, &header.src)?;
        put(&mut buf, &header.src_incarnation.to_be_bytes())?;
        put_identity(&mut buf, &header.dst)?;
        other.map_or(Ok(()), |other| put_identity(&mut buf, other))?;
        probe.map_or(Ok(()), |probe| put(&mut buf, &[probe]))
    }

    fn decode_header(&mut self, mut buf: impl Buf) -> Result<Header<Identity>, CodecError> {
        let version = byte(&mut buf)?;
        if version != VERSION {
            return Err(CodecError::Version(version));
        }
        let kind = byte(&mut buf)?;
        let src = identity(&mut buf)?;
        let src_incarnation = number(&mut buf)?;
        let dst = identity(&mut buf)?;
        let buf = &mut buf;
        let message = match kind {
            0 => Message::Ping(byte(buf)?),
            1 => Message::Ack(byte(buf)?),
            2 => Message::PingReq { target: identity(buf)?, probe_number: byte(buf)? },
            3 => Message::IndirectPing { origin: identity(buf)?, probe_number: byte(buf)? },
            4 => Message::IndirectAck { target: identity(buf)?, probe_number: byte(buf)? },
            5 => Message::ForwardedAck { origin: identity(buf)?, probe_number: byte(buf)? },
            6 => Message::Announce,
            7 => Message::Feed,
            8 => Message::Gossip,
            9 => Message::Broadcast,
            10 => Message::TurnUndead,
            unknown => return Err(CodecError::Number(unknown)),
        };
        Ok(Header { src, src_incarnation, dst, message })
    }

    fn encode_member(&mut self, member: &Update<Identity>, mut buf: impl BufMut) -> Result<(), CodecError> {
        put_identity(&mut buf, member.id())?;
        put(&mut buf, &member.incarnation().to_be_bytes())?;
        let state = match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        };
        put(&mut buf, &[state])
    }

    fn decode_member(&mut self, mut buf: impl Buf) -> Result<Update<Identity>, CodecError> {
        let (id, incarnation) = (identity(&mut buf)?, number(&mut buf)?);
        let state = match byte(&mut buf)? {
            0 => State::Alive,
            1 => State::Suspect,
            2 => State::Down,
            unknown => return Err(CodecError::Number(unknown)),
        };
        Ok(Update::new(id, incarnation, state))
    }
}

fn put(buf: &mut impl BufMut, bytes: &[u8]) -> Result<(), CodecError> {
    if buf.remaining_mut() < bytes.len() {
        return Err(CodecError::NoRoom);
    }
    buf.put_slice(bytes);
    Ok(())
}

fn put_text(buf: &mut impl BufMut, text: &str) -> Result<(), CodecError> {
    let length_bytes = u16::try_from(text.len()).map_err(|_| CodecError::NoRoom)?;
    put(buf, &length_bytes.to_be_bytes())?;
    put(buf, text.as_bytes())
}

fn put_identity(buf: &mut impl BufMut, identity: &Identity) -> Result<(), CodecError> {
    let Identity { address, record } = identity;
    let kind = (u8::from(address.is_ipv6()) * KIND_V6) | (u8::from(record.is_some()) * KIND_RECORD);
    put(buf, &[kind])?;
    match address.ip() {
        IpAddr::V4(ip) => put(buf, &ip.octets())?,
        IpAddr::V6(ip) => put(buf, &ip.octets())?,
    }
    put(buf, &address.port().to_be_bytes())?;
    let Some((member, settings)) = record else { return Ok(()) };
    put(buf, &[member.id.0])?;
    put_text(buf, &member.to_string())?;
    put_text(buf, &settings.to_string())
}

fn byte(buf: &mut impl Buf) -> Result<u8, CodecError> {
    buf.try_get_u8().map_err(|_| CodecError::Truncated)
}

fn number(buf: &mut impl Buf) -> Result<u16, CodecError> {
    buf.try_get_u16().map_err(|_| CodecError::Truncated)
}

/// A text of at most the length of a record.
fn text<'b>(buf: &mut impl Buf, room: &'b mut [u8; RECORD_BYTES_MAX]) -> Result<&'b [u8], CodecError> {
    let length_bytes = usize::from(number(buf)?);
    let room = room.get_mut(..length_bytes).ok_or(RecordError::TooLong)?;
    buf.try_copy_to_slice(room).map_err(|_| CodecError::Truncated)?;
    Ok(room)
}

fn identity(buf: &mut impl Buf) -> Result<Identity, CodecError> {
    let kind = byte(buf)?;
    if kind & !(KIND_V6 | KIND_RECORD) != 0 {
        return Err(CodecError::Number(kind));
    }
    let mut octets = vec![0; if kind & KIND_V6 == 0 { 4 } else { 16 }];
    buf.try_copy_to_slice(&mut octets).map_err(|_| CodecError::Truncated)?;
    let ip = match <[u8; 4]>::try_from(&octets[..]) {
        Ok(octets) => IpAddr::from(octets),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(&octets[..]).map_err(|_| CodecError::Truncated)?),
    };
    let address = SocketAddr::new(ip, number(buf)?);
    if kind & KIND_RECORD == 0 {
        return Ok(Identity { address, record: None });
    }
    let id = NodeId(byte(buf)?);
    let mut room = [0; RECORD_BYTES_MAX];
    let member = Member::parse_bytes(id, text(buf, &mut room)?)?;
    let settings = Settings::parse_bytes(text(buf, &mut room)?)?;
    Ok(Identity { address, record: Some((member, settings)) })
}
