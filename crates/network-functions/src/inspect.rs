//! Parsers of what end points send first: pure functions from bytes to names and protocols.
//!
//! Each takes the bytes of a stream from its beginning (a prefix), or a datagram, and returns [`Inspected`]. Answers are *prefix-stable*:
//! once a parser has answered anything but [`Inspected::Partial`], it gives the same answer for every longer prefix. So a caller
//! holds bytes only as long as the answer is [`Inspected::Partial`], and limits how many it holds ([`assembly`]).
//!
//! A stream comes in parts, as small as its sender likes. [`Progress`] is where the parsers of a stream have come to, so that a part costs what it is
//! long, however much came before: `mainstay bench worst-packet` counts the instructions.
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

pub mod acceptance;
pub mod assembly;
pub mod dns;
mod host_name;
pub mod http;
mod inspected;
pub mod protocol;
pub mod quic;
mod reader;
#[cfg(test)]
mod tests;
pub mod tls;

pub use host_name::{HOST_NAME_BYTES_MAX, HostName};
pub use inspected::Inspected;

/// How far the parsers have come with a stream. They are called with the whole prefix, and read what is new in it.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// TLS.
    pub client_hello: tls::ClientHelloReader,
    /// HTTP.
    pub request: http::RequestReader,
    /// Protocols that the stream is not, of those in [`protocol::of_client`]: they are not tried again.
    pub excluded: usize,
}

impl Progress {
    /// What a prefix is of which no more will be read, and which has shown neither a server's name nor a host: malformed if it has begun to.
    #[must_use]
    pub fn given_up(&self, prefix: &[u8]) -> Inspected<()> {
        if self.client_hello.has_begun() { Inspected::Malformed } else { self.request.given_up(prefix) }
    }
}
