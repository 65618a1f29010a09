//! What the payload of a packet shows about the class of its connection.

use crate::class::Class;
use crate::function::{Context, state_attribute};
use crate::inspect::assembly::{ASSEMBLY_BYTES_MAX, Held, StreamKey, Unheld};
use crate::inspect::protocol::{self, Protocol};
use crate::inspect::{HostName, Inspected, Progress, http, quic};

use super::state::{ClassState, flags};

/// What a packet shows.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack: a name in a box would be an allocation for each connection"
)]
pub(super) enum Decision {
    /// TLS, HTTP or QUIC, which carry everything: the name decides, if it is known.
    Carrier {
        /// The server's name.
        name: Option<HostName>,
        /// Nothing that follows shows more.
        may_settle: bool,
    },
    /// The protocol belongs to one class.
    Class(Class),
    /// Nothing, or nothing yet.
    Nothing,
}

impl Decision {
    fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tls(name) | Protocol::Quic(name) => Self::Carrier { name, may_settle: true },
            // The response has a media type.
            Protocol::Http(name) => Self::Carrier { name, may_settle: false },
            Protocol::Http2 => Self::Carrier { name: None, may_settle: true },
            Protocol::Dns => Self::Class(Class::Network),
            Protocol::Mail => Self::Class(Class::Mail),
            Protocol::FileTransfer => Self::Class(Class::Transfer),
            Protocol::Ssh | Protocol::RemoteDesktop => Self::Class(Class::Remote),
            Protocol::Sip | Protocol::Stun | Protocol::Dtls => Self::Class(Class::Voice),
            Protocol::Rtsp => Self::Class(Class::Video),
            Protocol::Messages => Self::Class(Class::Messaging),
            Protocol::PeerToPeer => Self::Class(Class::PeerToPeer),
        }
    }
}

/// A segment of the client, whose payload begins at `sequence`.
pub(super) fn client_segment(
    state: &mut ClassState,
    context: &mut Context<'_>,
    sequence: u32,
    payload: &[u8],
) -> Decision {
    if state.has(flags::CLIENT_READ) {
        return Decision::Nothing;
    }
    let Some(start) = state.start() else { return Decision::Nothing };
    let offset = sequence.wrapping_sub(start) as usize;
    if offset >= ASSEMBLY_BYTES_MAX {
        // Behind what is inspected; a sequence number before the beginning counts alike.
        return Decision::Nothing;
    }
    let stream = StreamKey::new(state_attribute::CLASSIFIER, &context.original);
    let first = if offset == 0 && !context.assemblies.holds(&stream, start) {
        // Usually the first segment is enough, and nothing is held.
        protocol::of_client(&payload[..payload.len().min(ASSEMBLY_BYTES_MAX)], &mut Progress::default())
    } else {
        Inspected::Partial
    };
    let read = match first {
        Inspected::Partial => match context.assemblies.insert(&stream, start, offset, payload) {
            Ok(Held { prefix, progress }) => match protocol::of_client(prefix, progress) {
                Inspected::Partial if prefix.len() >= ASSEMBLY_BYTES_MAX => Inspected::Other,
                read => read,
            },
            Err(Unheld::TooMany) => Inspected::Other,
            Err(Unheld::Differs | Unheld::Ahead) => Inspected::Partial,
        },
        settled => settled,
    };
    match read {
        Inspected::Partial => Decision::Nothing,
        Inspected::Other | Inspected::Malformed => {
            state.set(flags::CLIENT_READ);
            context.assemblies.remove(&stream);
            Decision::Nothing
        }
        Inspected::Found(protocol) => {
            state.set(flags::CLIENT_READ);
            Decision::of(protocol)
        }
    }
}

/// A segment of the server: it sends first, or answers a request.
pub(super) fn server_segment(state: &mut ClassState, payload: &[u8]) -> Decision {
    if state.has(flags::REPLY_READ) {
        return Decision::Nothing;
    }
    state.set(flags::REPLY_READ);
    if state.has(flags::CARRIER) {
        return Decision::Carrier { name: None, may_settle: true }.or_by_media_type(payload);
    }
    protocol::of_server(payload).found().map_or(Decision::Nothing, Decision::of)
}

impl Decision {
    /// The class of the response's media type, if it has one.
    fn or_by_media_type(self, payload: &[u8]) -> Self {
        const STREAMS: [&[u8]; 3] =
            [b"application/dash+xml", b"application/vnd.apple.mpegurl", b"application/x-mpegurl"];
        let Some(kind) = http::response(payload).found().and_then(|response| response.media_type) else { return self };
        let is_streamed = kind.starts_with(b"video/") || kind.starts_with(b"audio/") || STREAMS.contains(&&kind[..]);
        if is_streamed { Self::Class(Class::Video) } else { self }
    }
}

/// A datagram of the client. The first ones of a QUIC connection have the name.
pub(super) fn client_datagram(context: &mut Context<'_>, payload: &[u8]) -> Decision {
    if !quic::is_first(payload) {
        return datagram(payload);
    }
    let stream = StreamKey::new(state_attribute::CLASSIFIER, &context.original);
    let hello = match quic::decryption::client_initial(payload) {
        Inspected::Found(initial) => {
            let stream = stream.of_connection(initial.connection);
            let hello = quic::client_hello(context.assemblies, &stream, &initial);
            if hello.is_settled() {
                context.assemblies.remove(&stream);
            }
            hello
        }
        _ => Inspected::Other,
    };
    match hello {
        Inspected::Found(hello) => Decision::Carrier { name: hello.server_name, may_settle: true },
        // The rest is in the next datagram.
        Inspected::Partial => Decision::Carrier { name: None, may_settle: false },
        Inspected::Other | Inspected::Malformed => Decision::Carrier { name: None, may_settle: true },
    }
}

/// A datagram of either side.
pub(super) fn datagram(payload: &[u8]) -> Decision {
    protocol::of_datagram(payload).found().map_or(Decision::Nothing, Decision::of)
}
