//! The question of a DNS message (RFC 1035 section 4.1), over UDP and, behind its length, over TCP (section 4.2.2).

use arrayvec::ArrayVec;

use super::reader::Reader;
use super::{HOST_NAME_BYTES_MAX, HostName, Inspected};

const RESPONSE: u16 = 1 << 15;
const OPCODE_MASK: u16 = 0xf << 11;
/// Bits that are zero in all messages (RFC 1035 section 4.1.1; two of the three are those of RFC 4035).
const RESERVED: u16 = 1 << 6;
const LABEL_BYTES_MAX: u8 = 63;
/// The bytes of a message's header (RFC 1035 section 4.1.1).
pub const HEADER_BYTES: usize = 12;
/// Type and class behind the name of a question.
pub const QUESTION_FIXED_BYTES: usize = 4;
/// Class and time to live of a record, between its type and its length.
const RECORD_FIXED_BYTES: usize = 6;
/// The type of a record of EDNS.
pub const EDNS: u16 = 41;
/// Records of a query in which one of EDNS is searched.
const RECORDS_MAX: usize = 8;
/// The class of the Internet, and any class (section 3.2.4 and 3.2.5); the top bit is multicast DNS's (RFC 6762 section 18.12).
const CLASSES: [u16; 2] = [1, 255];
const UNICAST_RESPONSE: u16 = 1 << 15;

/// The first question of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// The name. `None` for the root, and for names that are no host names.
    pub name: Option<HostName>,
    /// The type of the records that are asked for.
    pub kind: u16,
    /// Whether the message is a response, which repeats the question.
    pub is_response: bool,
}

/// The question of a message, which is one datagram: it is never partial.
#[must_use]
pub fn question(message: &[u8]) -> Inspected<Question> {
    match read(message) {
        Ok(question) => Inspected::Found(question),
        Err(Unread::Truncated | Unread::NoQuestion) => Inspected::Other,
    }
}

/// The question of the message that a stream begins with.
#[must_use]
pub fn question_over_tcp(prefix: &[u8]) -> Inspected<Question> {
    let mut reader = Reader::new(prefix);
    let Some(length_bytes) = reader.u16() else { return Inspected::Partial };
    let (message, is_whole) = match reader.take(usize::from(length_bytes)) {
        Some(message) => (message, true),
        None => (reader.rest(), false),
    };
    match read(message) {
        Ok(question) => Inspected::Found(question),
        Err(Unread::Truncated) if !is_whole => Inspected::Partial,
        Err(Unread::Truncated | Unread::NoQuestion) => Inspected::Other,
    }
}

/// The bytes of a message's length over TCP.
pub const LENGTH_BYTES: usize = 2;

/// The message that a stream begins with, if all of it is there.
#[must_use]
pub fn message_over_tcp(prefix: &[u8]) -> Option<&[u8]> {
    Reader::new(prefix).field_u16()
}

/// A query as a server reads it, which ignores bits that have no meaning for it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack: a name in a box would be an allocation for each question"
)]
pub enum Query {
    /// It asks for this name.
    Name(HostName),
    /// It asks for the root, for a name of no host, or for something else than a name.
    Other,
    /// It has several questions, which RFC 9619 forbids, or one that cannot be read.
    Malformed,
}

/// The query in a message of a client.
#[must_use]
pub fn query(message: &[u8]) -> Query {
    let mut reader = Reader::new(message);
    let Some([_id, flags, questions, _, _, _]) = reader
        .take(HEADER_BYTES)
        .map(|header| [0, 2, 4, 6, 8, 10].map(|at| u16::from_be_bytes([header[at], header[at + 1]])))
    else {
        return Query::Other;
    };
    if flags & (RESPONSE | OPCODE_MASK) != 0 || questions == 0 {
        return Query::Other;
    }
    match name(&mut reader) {
        Ok(name) if questions == 1 && reader.take(QUESTION_FIXED_BYTES).is_some() => {
            HostName::new(&name).map_or(Query::Other, Query::Name)
        }
        _ => Query::Malformed,
    }
}

/// Whether a query has a record of EDNS (RFC 6891 section 6.1.1) among its first records.
#[must_use]
pub fn has_edns(message: &[u8]) -> bool {
    find_edns(message).is_some()
}

fn find_edns(message: &[u8]) -> Option<()> {
    let mut reader = Reader::new(message);
    let header = reader.array::<HEADER_BYTES>()?;
    name(&mut reader).ok()?;
    reader.take(QUESTION_FIXED_BYTES)?;
    let records: usize =
        [6, 8, 10].map(|at| usize::from(u16::from_be_bytes([header[at], header[at + 1]]))).iter().sum();
    for _ in 0..records.min(RECORDS_MAX) {
        // The owner of the record is the root; other records of queries are rare, and their owners are skipped.
        let is_root = skip_name(&mut reader)?;
        let kind = reader.u16()?;
        reader.take(RECORD_FIXED_BYTES)?;
        reader.field_u16()?;
        if is_root && kind == EDNS {
            return Some(());
        }
    }
    None
}

/// Skips a name, which may be compressed; whether it is the root.
fn skip_name(reader: &mut Reader<'_>) -> Option<bool> {
    let mut is_root = true;
    loop {
        match reader.u8()? {
            0 => return Some(is_root),
            length_bytes @ 1..=LABEL_BYTES_MAX => reader.take(usize::from(length_bytes))?,
            _ => {
                reader.u8()?;
                return Some(false);
            }
        };
        is_root = false;
    }
}

/// Why a message has no question.
enum Unread {
    /// It ends within it.
    Truncated,
    /// It is something else, whatever follows.
    NoQuestion,
}

fn read(message: &[u8]) -> Result<Question, Unread> {
    let mut reader = Reader::new(message);
    let mut number = || reader.u16().ok_or(Unread::Truncated);
    let [_id, flags, questions] = [number()?, number()?, number()?];
    if questions != 1 || flags & (OPCODE_MASK | RESERVED) != 0 {
        return Err(Unread::NoQuestion);
    }
    let [_answers, _authorities, _additional] = [number()?, number()?, number()?];
    let name = name(&mut reader)?;
    let kind = reader.u16().ok_or(Unread::Truncated)?;
    let class = reader.u16().ok_or(Unread::Truncated)? & !UNICAST_RESPONSE;
    if !CLASSES.contains(&class) {
        return Err(Unread::NoQuestion);
    }
    Ok(Question { name: HostName::new(&name), kind, is_response: flags & RESPONSE != 0 })
}

/// The name of a question, which is never compressed.
fn name(reader: &mut Reader<'_>) -> Result<ArrayVec<u8, HOST_NAME_BYTES_MAX>, Unread> {
    let mut name = ArrayVec::new();
    loop {
        let length_bytes = reader.u8().ok_or(Unread::Truncated)?;
        if length_bytes == 0 {
            return Ok(name);
        }
        if length_bytes > LABEL_BYTES_MAX {
            return Err(Unread::NoQuestion);
        }
        let label = reader.take(usize::from(length_bytes)).ok_or(Unread::Truncated)?;
        if !name.is_empty() {
            name.try_push(b'.').map_err(|_| Unread::NoQuestion)?;
        }
        name.try_extend_from_slice(label).map_err(|_| Unread::NoQuestion)?;
    }
}
