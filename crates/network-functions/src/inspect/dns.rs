//! The question of a DNS message (RFC 1035 section 4.1), over UDP and, behind its length, over TCP (section 4.2.2).

use arrayvec::ArrayVec;

use super::reader::Reader;
use super::{HOST_NAME_BYTES_MAX, HostName, Inspected};

const RESPONSE: u16 = 1 << 15;
const OPCODE_MASK: u16 = 0xf << 11;
/// Bits that are zero in all messages (RFC 1035 section 4.1.1; two of the three are those of RFC 4035).
const RESERVED: u16 = 1 << 6;
const LABEL_BYTES_MAX: u8 = 63;
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
