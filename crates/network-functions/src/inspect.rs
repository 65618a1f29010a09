//! Parsers of what end points send first: pure functions from bytes to names and protocols.
//!
//! Each takes the bytes of a stream from its beginning (a prefix), or a datagram, and returns [`Inspected`]. Answers are *prefix-stable*:
//! once a parser has answered [`Inspected::Found`] or [`Inspected::Other`], it gives the same answer for every longer prefix. So a caller
//! holds bytes back only as long as the answer is [`Inspected::Partial`], and limits how many it holds ([`assembly`]).
//!
//! The bytes come from foreign hosts. No parser panics, allocates more than the prefix, or follows a length beyond it.
//!
//! | parser | recognises | source |
//! |---|---|---|
//! | [`tls::client_hello`] | the server's name (SNI) | RFC 8446 section 4.1.2, RFC 6066 section 3 |
//! | [`http::request`] | method, target and host | RFC 9112 sections 2 and 3 |
//! | [`http::response`] | status and media type | RFC 9112 section 4, RFC 9110 section 8.3 |
//! | [`dns::question`] | the name that is asked for | RFC 1035 section 4.1 |
//! | [`quic::client_hello`] | the ClientHello in a client's first datagrams | RFC 9001 section 5, RFC 9369 |
//! | [`quic::long_header`] | version and connection ids | RFC 8999, RFC 9000 section 17.2, RFC 9369 |
//! | [`protocol`] | the protocol by its first bytes | the table there |

pub mod assembly;
pub mod dns;
mod host_name;
pub mod http;
pub mod protocol;
pub mod quic;
mod reader;
#[cfg(test)]
mod tests;
pub mod tls;

pub use host_name::{HOST_NAME_BYTES_MAX, HostName};

/// What a parser knows from a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inspected<T> {
    /// The bytes are what the parser is for, and this is in them.
    Found(T),
    /// The bytes are something else, whatever follows.
    Other,
    /// More bytes are needed.
    Partial,
}

impl<T> Inspected<T> {
    /// The same with the found value converted.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Inspected<U> {
        match self {
            Self::Found(value) => Inspected::Found(convert(value)),
            Self::Other => Inspected::Other,
            Self::Partial => Inspected::Partial,
        }
    }

    /// The found value.
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(value) => Some(value),
            Self::Other | Self::Partial => None,
        }
    }

    /// Whether more bytes do not change the answer.
    pub const fn is_settled(&self) -> bool {
        !matches!(self, Self::Partial)
    }
}

/// Whether `prefix` begins with `pattern`; partial while it is a part of the pattern.
fn starts_with(prefix: &[u8], pattern: &[u8]) -> Inspected<()> {
    let common_bytes = prefix.len().min(pattern.len());
    match prefix[..common_bytes] == pattern[..common_bytes] {
        true if common_bytes == pattern.len() => Inspected::Found(()),
        true => Inspected::Partial,
        false => Inspected::Other,
    }
}
