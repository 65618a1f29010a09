//! A connection of the kernel by value: everything that another node's kernel can take over of it.
//!
//! | type | attribute | value |
//! |---|---|---|
//! | 32 | original tuple and zone, IPv4 | source 4, destination 4, discriminator 4, protocol 1, its kind 1, zone 2 |
//! | 33 | original tuple and zone, IPv6 | the same with 16-byte addresses |
//! | 34 | reply tuple, IPv4, unless it is the original's inverse | source 4, destination 4, discriminator 4, kind 1, 0 3 |
//! | 35 | reply tuple, IPv6, unless it is the original's inverse | the same with 16-byte addresses |
//! | 36 | record | version 4, owner 1, flags 1, 0 2, timeout in seconds 4, status 4, mark 4 |
//! | 37 | TCP's state | state 1; where more is known: each side's flags 2, each side's window scale 2 |
//! | 38 | SCTP's state | state 1, 0 3, each side's verification tag 8 |
//! | 39 | DCCP's state | state 1, role 1 |
//! | 40 | labels | 16 |
//! | 41 | helper | its name |
//! | 42, 43 | original tuple of the connection that announced it, IPv4 or IPv6 | as 32 and 33 |
//! | 44 | how TCP's numbers are shifted, original then reply | position 4, before 4, after 4, twice |
//! | 45 | a SYN proxy's numbers | initial 4, server's initial 4, time stamps' offset 4 |
//! | 46 | a connection expected on its behalf; any number of them | attributes, see [`expectation`](self) |
//! | 47 | ended | version 4, owner 1, flags 1, 0 2 |
//! | 48 | the one direction that the zone is of, unless it is of both | 1: original, 2: reply |
//!
//! A discriminator is two ports (kind 0), or an ICMP identifier, type and code (kind 1), or nothing (kind 2). The record's
//! flags state what is known at all: 1 the timeout, 2 the status, 4 the mark; and 8 that its owner has seen no packet of the
//! connection but replicates it. A state has 32 or 33, and 36; the end of a connection 32 or 33, and 47 (at most 56 bytes).
//! Unknown attributes are skipped. The numbers are none of those of [`super::precise`], so that a gateway and a node that
//! replicates the kernel's connections refuse each other's messages by name. A TCP connection over IPv4 takes 56 bytes, 76
//! if it is translated.
//!
//! Attributes of an expectation: 1, 2 its master; 3, 4 what is expected, 5, 6 its mask (each as 32, 33); 7 timeout in
//! seconds 4, flags 4, class 4, has a timeout 1, 0 3; 8 helper; 9 function; 10, 11 translation: direction 4, address 4 or 16,
//! protocol 1, 0 1, port 2.

mod attribute;
mod expectation;
mod item;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use flow::NodeId;
use flow::netfilter::{
    Entry, Expectation, HelperName, LABELS_BYTES, ProtocolInfo, SequenceAdjustment, Status, SynProxy, TcpFlags,
    TcpInfo, TcpSide, TcpState, Tuple, ZoneDirection,
};
use flow::wire::tlv::{self, TlvError};

use crate::message;
use crate::session::ApplyError;

pub use item::item;

use attribute::{put_original, put_reply, read_original, read_reply, sized, u32_at};

const ORIGINAL: [u16; 2] = [32, 33];
const REPLY: [u16; 2] = [34, 35];
const RECORD: u16 = 36;
const TCP: u16 = 37;
const SCTP: u16 = 38;
const DCCP: u16 = 39;
const LABELS: u16 = 40;
const HELPER: u16 = 41;
const MASTER: [u16; 2] = [42, 43];
const SEQUENCE_ADJUSTMENT: u16 = 44;
const SYN_PROXY: u16 = 45;
const EXPECTED: u16 = 46;
const ENDED: u16 = 47;
const ZONE_DIRECTION: u16 = 48;

const HAS_TIMEOUT: u8 = 1;
const HAS_STATUS: u8 = 2;
const HAS_MARK: u8 = 4;
const IS_UNSEEN: u8 = 8;

/// Expectations of one connection that are taken from a message; more are left out.
pub const EXPECTATIONS_MAX: usize = 16;

/// Room asked for at once, so that the attributes of most connections are appended without growing the buffer.
const STATE_BYTES_USUAL: usize = 128;

/// Which node replicates a connection, and the version of its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The word's version; see decision 4.
    pub version: u32,
    /// The connection's master.
    pub owner: NodeId,
    /// It has seen no packet of the connection, but replicates it.
    pub is_unseen: bool,
}

/// A connection's state as a message brings it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// The connection's state.
    pub entry: Entry,
    /// Its sender and version.
    pub origin: Origin,
    /// The connections expected on its behalf.
    pub expectations: Vec<Expectation>,
}

/// Appends a connection's state.
pub fn encode(entry: &Entry, origin: Origin, expectations: &[Expectation], out: &mut Vec<u8>) {
    out.reserve(STATE_BYTES_USUAL);
    put_original(ORIGINAL, &entry.original, entry.zone, out);
    if entry.reply != entry.original.inverse() {
        put_reply(REPLY, &entry.reply, out);
    }
    put_record(entry, origin, out);
    put_protocol(entry, out);
    if let Some(extra) = entry.extra.as_deref() {
        extra.labels.into_iter().for_each(|labels| tlv::put(out, LABELS, &labels));
        extra.helper.into_iter().for_each(|helper| tlv::put(out, HELPER, helper.as_str().as_bytes()));
        extra.master.into_iter().for_each(|master| put_original(MASTER, &master, entry.zone, out));
        if let Some(adjustment) = extra.sequence_adjustment {
            put_numbers(
                SEQUENCE_ADJUSTMENT,
                adjustment.iter().flat_map(|side| [side.correction_position, side.offset_before, side.offset_after]),
                out,
            );
        }
        if let Some(proxy) = extra.syn_proxy {
            let numbers = [proxy.initial_sequence, proxy.server_initial_sequence, proxy.timestamp_offset];
            put_numbers(SYN_PROXY, numbers.into_iter(), out);
        }
        extra.zone_direction.into_iter().for_each(|direction| {
            let number = if direction == ZoneDirection::Original { 1 } else { 2 };
            tlv::put(out, ZONE_DIRECTION, &[number]);
        });
    }
    for expectation in expectations.iter().take(EXPECTATIONS_MAX) {
        let at = message::begin(out, EXPECTED);
        expectation::encode(expectation, out);
        message::finish(out, at);
    }
}

/// Reads a connection's state.
///
/// # Errors
/// The attributes are malformed, or one that is needed is not there.
pub fn decode(attributes: &[u8]) -> Result<Update, ApplyError> {
    let (mut original, mut reply, mut record, mut protocol_info) = (None, None, None, None);
    let mut extra = flow::netfilter::Extra::default();
    let mut has_extra = false;
    let mut expectations = Vec::new();
    for attribute in tlv::read(attributes) {
        let (kind, value) = attribute?;
        match kind {
            32 | 33 => original = Some(read_original(kind, kind == ORIGINAL[1], value)?),
            34 | 35 => reply = Some((kind, value)),
            RECORD => record = Some(sized::<20>(kind, value)?),
            TCP | SCTP | DCCP => protocol_info = Some(read_protocol(kind, value)?),
            LABELS..=43 | SEQUENCE_ADJUSTMENT | SYN_PROXY | ZONE_DIRECTION => {
                has_extra = true;
                read_extra(kind, value, &mut extra)?;
            }
            EXPECTED if expectations.len() < EXPECTATIONS_MAX => expectations.push(expectation::decode(value)?),
            _ => {}
        }
    }
    let (original, zone) = original.ok_or(ApplyError::Missing(ORIGINAL[0]))?;
    let record = record.ok_or(ApplyError::Missing(RECORD))?;
    let reply = match reply {
        Some((kind, value)) => read_reply(kind, kind == REPLY[1], value, &original)?,
        None => original.inverse(),
    };
    let mut entry = Entry::new(original, reply);
    let flags = record[5];
    entry.zone = zone;
    entry.timeout_s = (flags & HAS_TIMEOUT != 0).then(|| u32_at(&record, 8));
    entry.status = (flags & HAS_STATUS != 0).then(|| Status(u32_at(&record, 12)));
    entry.mark = (flags & HAS_MARK != 0).then(|| u32_at(&record, 16));
    entry.protocol_info = protocol_info;
    if has_extra {
        *entry.extra_mut() = extra;
    }
    let origin = Origin { version: u32_at(&record, 0), owner: NodeId(record[4]), is_unseen: flags & IS_UNSEEN != 0 };
    Ok(Update { entry, origin, expectations })
}

/// A connection that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The tuple in its original direction.
    pub original: Tuple,
    /// The zone.
    pub zone: u16,
    /// Its sender and version.
    pub origin: Origin,
}

/// Appends the name of a connection that has ended: at most 56 bytes.
pub fn encode_ended(ended: &Ended, out: &mut Vec<u8>) {
    put_original(ORIGINAL, &ended.original, ended.zone, out);
    let [a, b, c, d] = ended.origin.version.to_be_bytes();
    let flags = if ended.origin.is_unseen { IS_UNSEEN } else { 0 };
    tlv::put(out, ENDED, &[a, b, c, d, ended.origin.owner.0, flags, 0, 0]);
}

/// Reads the name of a connection that has ended.
///
/// # Errors
/// The attributes are malformed, or one that is needed is not there.
pub fn decode_ended(attributes: &[u8]) -> Result<Ended, ApplyError> {
    let (mut original, mut ended) = (None, None);
    for attribute in tlv::read(attributes) {
        let (kind, value) = attribute?;
        match kind {
            32 | 33 => original = Some(read_original(kind, kind == ORIGINAL[1], value)?),
            ENDED => ended = Some(sized::<8>(kind, value)?),
            _ => {}
        }
    }
    let (original, zone) = original.ok_or(ApplyError::Missing(ORIGINAL[0]))?;
    let ended = ended.ok_or(ApplyError::Missing(ENDED))?;
    let origin = Origin { version: u32_at(&ended, 0), owner: NodeId(ended[4]), is_unseen: ended[5] & IS_UNSEEN != 0 };
    Ok(Ended { original, zone, origin })
}

#[inline]
fn put_record(entry: &Entry, origin: Origin, out: &mut Vec<u8>) {
    let flag = |is_said: bool, flag: u8| if is_said { flag } else { 0 };
    tlv::put_fixed::<24>(out, RECORD, 20, |bytes| {
        bytes[4..8].copy_from_slice(&origin.version.to_be_bytes());
        bytes[8] = origin.owner.0;
        bytes[9] = flag(entry.timeout_s.is_some(), HAS_TIMEOUT)
            | flag(entry.status.is_some(), HAS_STATUS)
            | flag(entry.mark.is_some(), HAS_MARK)
            | flag(origin.is_unseen, IS_UNSEEN);
        bytes[12..16].copy_from_slice(&entry.timeout_s.unwrap_or(0).to_be_bytes());
        bytes[16..20].copy_from_slice(&entry.status.unwrap_or_default().0.to_be_bytes());
        bytes[20..24].copy_from_slice(&entry.mark.unwrap_or(0).to_be_bytes());
    });
}

#[inline]
fn put_protocol(entry: &Entry, out: &mut Vec<u8>) {
    match entry.protocol_info {
        None => {}
        Some(ProtocolInfo::Tcp(TcpInfo { state, sides: None })) => tlv::put(out, TCP, &[state as u8]),
        Some(ProtocolInfo::Tcp(TcpInfo { state, sides: Some([one, other]) })) => {
            tlv::put_fixed::<12>(out, TCP, 5, |bytes| {
                let value = [state as u8, one.flags.0, other.flags.0, one.window_scale, other.window_scale];
                bytes[4..9].copy_from_slice(&value);
            });
        }
        Some(ProtocolInfo::Sctp { state, verification_tags: [one, other] }) => {
            tlv::put_fixed::<16>(out, SCTP, 12, |bytes| {
                bytes[4] = state;
                bytes[8..12].copy_from_slice(&one.to_be_bytes());
                bytes[12..].copy_from_slice(&other.to_be_bytes());
            });
        }
        Some(ProtocolInfo::Dccp { state, role }) => tlv::put(out, DCCP, &[state, role]),
    }
}

fn put_numbers(kind: u16, numbers: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
    let at = message::begin(out, kind);
    numbers.for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
    message::finish(out, at);
}

fn read_protocol(kind: u16, value: &[u8]) -> Result<ProtocolInfo, ApplyError> {
    match (kind, value) {
        (TCP, [state, rest @ ..]) => {
            let state = TcpState::from_u8(*state).ok_or(ApplyError::Value(kind))?;
            let sides = match rest {
                [] => None,
                [one_flags, other_flags, one_scale, other_scale] => Some([
                    TcpSide { window_scale: *one_scale, flags: TcpFlags(*one_flags) },
                    TcpSide { window_scale: *other_scale, flags: TcpFlags(*other_flags) },
                ]),
                _ => return Err(TlvError::ValueSize(kind).into()),
            };
            Ok(ProtocolInfo::Tcp(TcpInfo { state, sides }))
        }
        (SCTP, _) => {
            let value = sized::<12>(kind, value)?;
            Ok(ProtocolInfo::Sctp { state: value[0], verification_tags: [u32_at(&value, 4), u32_at(&value, 8)] })
        }
        (DCCP, [state, role]) => Ok(ProtocolInfo::Dccp { state: *state, role: *role }),
        _ => Err(TlvError::ValueSize(kind).into()),
    }
}

fn read_extra(kind: u16, value: &[u8], extra: &mut flow::netfilter::Extra) -> Result<(), ApplyError> {
    match kind {
        LABELS => extra.labels = Some(sized::<LABELS_BYTES>(kind, value)?),
        HELPER => extra.helper = Some(HelperName::new(value).ok_or(ApplyError::Value(kind))?),
        SEQUENCE_ADJUSTMENT => {
            let value = sized::<24>(kind, value)?;
            extra.sequence_adjustment = Some([0, 12].map(|at| SequenceAdjustment {
                correction_position: u32_at(&value, at),
                offset_before: u32_at(&value, at + 4),
                offset_after: u32_at(&value, at + 8),
            }));
        }
        SYN_PROXY => {
            let value = sized::<12>(kind, value)?;
            extra.syn_proxy = Some(SynProxy {
                initial_sequence: u32_at(&value, 0),
                server_initial_sequence: u32_at(&value, 4),
                timestamp_offset: u32_at(&value, 8),
            });
        }
        ZONE_DIRECTION => {
            extra.zone_direction = Some(match sized::<1>(kind, value)? {
                [1] => ZoneDirection::Original,
                [2] => ZoneDirection::Reply,
                _ => return Err(ApplyError::Value(kind)),
            });
        }
        _ => extra.master = Some(read_original(kind, kind == MASTER[1], value)?.0),
    }
    Ok(())
}
