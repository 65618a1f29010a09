//! The ClientHello of TLS (RFC 8446 section 4.1.2; earlier versions alike) and the server's name in it (RFC 6066 section 3).
//!
//! ```text
//!   record    type 22 ─ version ─ length ─┐ a message may lie in several records,
//!   message   type 1 ─ length ────────────┤ and a record in several segments
//!   hello     version ─ random ─ session id ─ cipher suites ─ compression ─ extensions
//!   extension type 0 ─ length ─ list ─ name type 0 ─ length ─ name
//! ```

use alloc::vec::Vec;
use core::mem;

use arrayvec::ArrayVec;

use super::reader::Reader;
use super::{HOST_NAME_BYTES_MAX, HostName, Inspected};

const RECORD_HEADER_BYTES: usize = 5;
const ALERT_RECORD: u8 = 21;
const HANDSHAKE_RECORD: u8 = 22;
const MAJOR_VERSION: u8 = 3;
const CLIENT_HELLO: u32 = 1;
const VERSION_AND_RANDOM_BYTES: usize = 2 + RANDOM_BYTES;
const RANDOM_BYTES: usize = 32;
const SESSION_ID_BYTES_MAX: u32 = 32;
const SERVER_NAME_EXTENSION: u32 = 0;
const HOST_NAME_TYPE: u8 = 0;
/// The longest record in bytes (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: u16 = 1 << 14;
/// The longest ClientHello in bytes that is followed; longer ones are taken for something else.
pub const CLIENT_HELLO_BYTES_MAX: u32 = 1 << 16;
/// The bytes of the server name extension that are kept. A longer one has no host name in front.
const SERVER_NAME_BYTES_MAX: usize = 2 * (HOST_NAME_BYTES_MAX + 5);

/// The content of a ClientHello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientHello {
    /// The server's name. `None` if the client sent none, or an address. With an encrypted ClientHello it is that of the server in front.
    pub server_name: Option<HostName>,
}

/// The ClientHello that a stream begins with. It is found as soon as its server name is complete.
#[must_use]
pub fn client_hello(prefix: &[u8]) -> Inspected<ClientHello> {
    ClientHelloReader::default().read(prefix)
}

/// The same for a ClientHello without records, as QUIC carries it (RFC 9001 section 4).
#[must_use]
pub fn client_hello_message(prefix: &[u8]) -> Inspected<ClientHello> {
    ClientHelloReader::default().read_message(prefix)
}

/// Reads a ClientHello that comes in parts. Each byte is read once: the cost of a part does not depend on what came before.
#[derive(Clone, Debug)]
pub struct ClientHelloReader {
    /// The bytes of the prefix that have been read.
    position: usize,
    /// The part of a record's header that is there.
    header: ArrayVec<u8, RECORD_HEADER_BYTES>,
    /// Bytes of the record's content that are to come.
    content_bytes: usize,
    /// The record is an alert between the parts of a message, which recipients skip.
    is_alert: bool,
    /// A record with a part of the message has begun.
    has_begun: bool,
    message: Message,
    outcome: Inspected<ClientHello>,
}

impl Default for ClientHelloReader {
    fn default() -> Self {
        Self {
            position: 0,
            header: ArrayVec::new(),
            content_bytes: 0,
            is_alert: false,
            has_begun: false,
            message: Message::default(),
            outcome: Inspected::Partial,
        }
    }
}

impl ClientHelloReader {
    /// The ClientHello in records, of which `prefix` has more than at the last call.
    pub fn read(&mut self, prefix: &[u8]) -> Inspected<ClientHello> {
        while !self.outcome.is_settled()
            && let Some(rest @ [first, ..]) = prefix.get(self.position..)
        {
            if self.content_bytes == 0 {
                self.position += 1;
                self.read_header(*first);
                continue;
            }
            let content = &rest[..rest.len().min(self.content_bytes)];
            self.position += content.len();
            self.content_bytes -= content.len();
            if !self.is_alert {
                self.outcome = self.message.read(content);
            }
        }
        self.outcome.clone()
    }

    /// Whether a ClientHello has begun, and is not complete.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        !self.outcome.is_settled() && self.message.field != Field::Kind
    }

    /// The same without records.
    pub fn read_message(&mut self, prefix: &[u8]) -> Inspected<ClientHello> {
        if !self.outcome.is_settled()
            && let Some(rest) = prefix.get(self.position..)
        {
            self.position = prefix.len();
            self.outcome = self.message.read(rest);
        }
        self.outcome.clone()
    }

    /// One more byte of a record's header.
    fn read_header(&mut self, byte: u8) {
        self.header.push(byte);
        let is_record = match *self.header {
            [kind] => kind == HANDSHAKE_RECORD || (kind == ALERT_RECORD && self.has_begun),
            [_, major] => major == MAJOR_VERSION,
            [_, _, _, high, low] => u16::from_be_bytes([high, low]) <= RECORD_BYTES_MAX,
            _ => true,
        };
        if !is_record {
            self.outcome = Inspected::Other;
        } else if let [kind, _, _, high, low] = *self.header {
            self.content_bytes = usize::from(u16::from_be_bytes([high, low]));
            self.is_alert = kind == ALERT_RECORD;
            self.has_begun = true;
            self.header.clear();
        }
    }
}

/// The number that is read next.
///
/// ```text
///   Kind ─► Length ─► (version, random) SessionId ─► CipherSuites ─► Compression ─► Extensions ─► ExtensionKind ◄─┐
///                                                                                                 ExtensionLength ─┘
/// ```
///
/// A field's number is the length of what follows it, but for kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Field {
    #[default]
    Kind,
    Length,
    SessionId,
    CipherSuites,
    Compression,
    Extensions,
    ExtensionKind,
    ExtensionLength,
    /// That of the server name extension.
    NameLength,
}

impl Field {
    /// The bytes of the number.
    const fn bytes(self) -> u8 {
        match self {
            Self::Kind | Self::SessionId | Self::Compression => 1,
            Self::CipherSuites | Self::Extensions | Self::ExtensionKind | Self::ExtensionLength | Self::NameLength => 2,
            Self::Length => 3,
        }
    }
}

/// How far a handshake message has been read.
#[derive(Clone, Debug, Default)]
struct Message {
    field: Field,
    /// The part of the field's number that is there.
    number: u32,
    number_bytes: u8,
    /// Bytes of a value that are to come before the next field.
    value_bytes: usize,
    /// The value is that of the server name extension, which is kept.
    is_name: bool,
    name: ArrayVec<u8, SERVER_NAME_BYTES_MAX>,
    /// Bytes of the message behind the field or value that is being read; `None` before its length.
    rest_bytes: Option<usize>,
}

impl Message {
    /// The message's next bytes.
    fn read(&mut self, mut bytes: &[u8]) -> Inspected<ClientHello> {
        loop {
            let (value, behind) = bytes.split_at(bytes.len().min(self.value_bytes));
            if self.is_name {
                let kept_bytes = value.len().min(self.name.remaining_capacity());
                self.name.extend(value[..kept_bytes].iter().copied());
            }
            self.value_bytes -= value.len();
            if self.value_bytes > 0 {
                return Inspected::Partial;
            }
            if self.is_name {
                return server_name(&self.name).map(|server_name| ClientHello { server_name });
            }
            if self.rest_bytes == Some(0) {
                return self.end();
            }
            let Some((byte, behind)) = behind.split_first() else { return Inspected::Partial };
            bytes = behind;
            self.number = self.number << 8 | u32::from(*byte);
            self.number_bytes += 1;
            self.rest_bytes = self.rest_bytes.map(|rest_bytes| rest_bytes - 1);
            if self.number_bytes == self.field.bytes() {
                self.number_bytes = 0;
                let number = mem::take(&mut self.number);
                if self.handle_number(number).is_err() {
                    return Inspected::Other;
                }
            }
        }
    }

    /// The message ends here without a server name.
    const fn end(&self) -> Inspected<ClientHello> {
        match self.field {
            Field::Extensions | Field::ExtensionKind if self.number_bytes == 0 => {
                Inspected::Found(ClientHello { server_name: None })
            }
            _ => Inspected::Other,
        }
    }

    fn handle_number(&mut self, number: u32) -> Result<(), Malformed> {
        let (value_bytes, next) = match self.field {
            Field::Kind if number == CLIENT_HELLO => (0, Field::Length),
            Field::Length if number <= CLIENT_HELLO_BYTES_MAX => {
                self.rest_bytes = Some(number as usize);
                (VERSION_AND_RANDOM_BYTES, Field::SessionId)
            }
            Field::SessionId if number <= SESSION_ID_BYTES_MAX => (number as usize, Field::CipherSuites),
            Field::Kind | Field::Length | Field::SessionId => return Err(Malformed),
            Field::CipherSuites => (number as usize, Field::Compression),
            Field::Compression => (number as usize, Field::Extensions),
            // The list's length is not followed: that of the message counts.
            Field::Extensions => (0, Field::ExtensionKind),
            Field::ExtensionKind if number == SERVER_NAME_EXTENSION => (0, Field::NameLength),
            Field::ExtensionKind => (0, Field::ExtensionLength),
            Field::NameLength => {
                self.is_name = true;
                (number as usize, Field::ExtensionKind)
            }
            Field::ExtensionLength => (number as usize, Field::ExtensionKind),
        };
        self.field = next;
        self.value_bytes = value_bytes;
        if let Some(rest_bytes) = &mut self.rest_bytes {
            *rest_bytes = rest_bytes.checked_sub(value_bytes).ok_or(Malformed)?;
        }
        Ok(())
    }
}

/// A field that ends behind what it lies in, or has a number that none has.
struct Malformed;

/// The name in the extension's value; found as `None` if it has none, or an IPv6 address. It is malformed if it is neither: some servers take a part of it.
fn server_name(value: &[u8]) -> Inspected<Option<HostName>> {
    let Some(list) = Reader::new(value).field_u16() else { return Inspected::Malformed };
    let mut list = Reader::new(list);
    while let Some(kind) = list.u8() {
        let Some(name) = list.field_u16() else { return Inspected::Malformed };
        if kind == HOST_NAME_TYPE {
            return HostName::of_name_or_address(name);
        }
    }
    Inspected::Found(None)
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
    [&[CLIENT_HELLO as u8][..], &length_bytes, &hello].concat()
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
