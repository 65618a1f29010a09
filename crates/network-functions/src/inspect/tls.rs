//! The ClientHello of TLS (RFC 8446 section 4.1.2; earlier versions alike) and the server's name in it (RFC 6066 section 3).
//!
//! ```text
//!   record    type 22 ─ version ─ length ─┐ a message may lie in several records,
//!   message   type 1 ─ length ────────────┤ and a record in several segments
//!   hello     version ─ random ─ session id ─ cipher suites ─ compression ─ extensions
//!   extension type 0 ─ length ─ list ─ name type 0 ─ length ─ name
//! ```

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::reader::Reader;
use super::{HostName, Inspected};

const RECORD_HEADER_BYTES: usize = 5;
const HANDSHAKE_RECORD: u8 = 22;
const MAJOR_VERSION: u8 = 3;
const CLIENT_HELLO: u8 = 1;
const RANDOM_BYTES: usize = 32;
const SESSION_ID_BYTES_MAX: usize = 32;
const SERVER_NAME_EXTENSION: u16 = 0;
const HOST_NAME_TYPE: u8 = 0;
/// The longest record in bytes (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: u16 = 1 << 14;
/// The longest ClientHello in bytes that is followed; longer ones are taken for something else.
pub const CLIENT_HELLO_BYTES_MAX: u32 = 1 << 16;

/// The content of a ClientHello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientHello {
    /// The server's name. `None` if the client sent none, or bytes that are no name. With an encrypted ClientHello it is that of the
    /// server in front.
    pub server_name: Option<HostName>,
}

/// The ClientHello that a stream begins with. It is found as soon as its server name is complete.
#[must_use]
pub fn client_hello(prefix: &[u8]) -> Inspected<ClientHello> {
    match message(prefix) {
        Inspected::Found(message) => client_hello_message(&message),
        Inspected::Other => Inspected::Other,
        Inspected::Partial => Inspected::Partial,
    }
}

/// The bytes of the handshake messages in the records that `prefix` begins with, without the records' headers.
fn message(prefix: &[u8]) -> Inspected<Cow<'_, [u8]>> {
    let mut joined: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut reader = Reader::new(prefix);
    loop {
        let rest = reader.rest();
        let is_record = match *rest {
            [] => return Inspected::Found(joined),
            [kind] => kind == HANDSHAKE_RECORD,
            [kind, major, ..] => kind == HANDSHAKE_RECORD && major == MAJOR_VERSION,
        };
        if !is_record {
            // Behind the first record, what was read before decides whether the message is complete.
            return if joined.is_empty() { Inspected::Other } else { Inspected::Found(joined) };
        }
        let Some([_, _, _, high, low]) = reader.array::<RECORD_HEADER_BYTES>() else {
            return Inspected::Found(joined);
        };
        let length_bytes = u16::from_be_bytes([high, low]);
        if length_bytes == 0 || length_bytes > RECORD_BYTES_MAX {
            return if joined.is_empty() { Inspected::Other } else { Inspected::Found(joined) };
        }
        let present_bytes = usize::from(length_bytes).min(reader.rest().len());
        let Some(fragment) = reader.take(present_bytes) else { return Inspected::Other };
        joined = match joined {
            Cow::Borrowed([]) => Cow::Borrowed(fragment),
            earlier => Cow::Owned([&earlier, fragment].concat()),
        };
    }
}

/// The same for a ClientHello without records, as QUIC carries it (RFC 9001 section 4).
#[must_use]
pub fn client_hello_message(prefix: &[u8]) -> Inspected<ClientHello> {
    let mut reader = Reader::new(prefix);
    match reader.u8() {
        None => return Inspected::Partial,
        Some(CLIENT_HELLO) => {}
        Some(_) => return Inspected::Other,
    }
    let Some(length_bytes) = reader.u24() else { return Inspected::Partial };
    if length_bytes > CLIENT_HELLO_BYTES_MAX {
        return Inspected::Other;
    }
    let hello = reader.rest();
    let (hello, is_whole) = match hello.get(..length_bytes as usize) {
        Some(hello) => (hello, true),
        None => (hello, false),
    };
    match extensions(hello) {
        Ok(Some(found)) => Inspected::Found(ClientHello { server_name: found }),
        Ok(None) if is_whole => Inspected::Found(ClientHello { server_name: None }),
        Err(Malformed) if is_whole => Inspected::Other,
        // What is cut off may look malformed.
        _ => Inspected::Partial,
    }
}

/// A field that ends behind what it lies in.
struct Malformed;

/// The server name of a ClientHello: `None` without the extension, `Some(None)` if its name is none.
fn extensions(hello: &[u8]) -> Result<Option<Option<HostName>>, Malformed> {
    let mut reader = Reader::new(hello);
    let [_major, _minor] = reader.array().ok_or(Malformed)?;
    reader.take(RANDOM_BYTES).ok_or(Malformed)?;
    let session_id = reader.field_u8().ok_or(Malformed)?;
    if session_id.len() > SESSION_ID_BYTES_MAX {
        return Err(Malformed);
    }
    reader.field_u16().ok_or(Malformed)?;
    reader.field_u8().ok_or(Malformed)?;
    if reader.rest().is_empty() {
        return Ok(None);
    }
    // The list's length is not followed: it is cut off with a partial message.
    reader.u16().ok_or(Malformed)?;
    while !reader.rest().is_empty() {
        let kind = reader.u16().ok_or(Malformed)?;
        let value = reader.field_u16().ok_or(Malformed)?;
        if kind == SERVER_NAME_EXTENSION {
            return Ok(Some(server_name(value)));
        }
    }
    Ok(None)
}

/// The name in the extension's value; `None` if it has none, or one that is no host name.
fn server_name(value: &[u8]) -> Option<HostName> {
    let mut list = Reader::new(Reader::new(value).field_u16()?);
    while let Some(kind) = list.u8() {
        let name = list.field_u16()?;
        if kind == HOST_NAME_TYPE {
            return HostName::new(name);
        }
    }
    None
}

/// A ClientHello message with these extensions (types and values), for tests and benchmarks.
#[must_use]
pub fn client_hello_bytes(extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, value) in extensions {
        list.extend(kind.to_be_bytes());
        list.extend((value.len() as u16).to_be_bytes());
        list.extend(*value);
    }
    let mut hello = alloc::vec![MAJOR_VERSION, 3];
    hello.extend([0x5a; RANDOM_BYTES]);
    hello.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
    hello.extend((list.len() as u16).to_be_bytes());
    hello.extend(list);
    let [_, length_bytes @ ..] = (hello.len() as u32).to_be_bytes();
    [&[CLIENT_HELLO][..], &length_bytes, &hello].concat()
}

/// The value of a server name extension, for tests and benchmarks.
#[must_use]
pub fn server_name_bytes(name: &str) -> Vec<u8> {
    let length_bytes = name.len() as u16;
    let list_bytes = (length_bytes + 3).to_be_bytes();
    [&list_bytes[..], &[HOST_NAME_TYPE], &length_bytes.to_be_bytes(), name.as_bytes()].concat()
}

/// A message in records of at most `record_bytes` bytes, for tests and benchmarks.
#[must_use]
pub fn in_records(message: &[u8], record_bytes: usize) -> Vec<u8> {
    let record = |fragment: &[u8]| {
        let length_bytes = (fragment.len() as u16).to_be_bytes();
        [&[HANDSHAKE_RECORD, MAJOR_VERSION, 1][..], &length_bytes, fragment].concat()
    };
    message.chunks(record_bytes.max(1)).flat_map(record).collect()
}
