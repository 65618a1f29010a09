//! Protocols by the first bytes that an end point sends.
//!
//! | first bytes | protocol | source |
//! |---|---|---|
//! | record type 22, version 3 | TLS | RFC 8446 section 5.1 |
//! | method, target, `HTTP/` | HTTP/1 | RFC 9112 |
//! | `PRI * HTTP/2.0` | HTTP/2 | RFC 9113 section 3.4 |
//! | `SSH-` | SSH | RFC 4253 section 4.2 |
//! | method, `sip:` or `sips:` | SIP | RFC 3261 section 7.1 |
//! | method, `rtsp://` | RTSP | RFC 7826 |
//! | 19, `BitTorrent protocol`; `d1:` and a query of its hash table | BitTorrent | BEP 3, BEP 5 |
//! | `GNUTELLA ` | Gnutella | protocol 0.6 |
//! | `RFB 003.` | remote framebuffer (VNC) | RFC 6143 section 7.1.1 |
//! | TPKT with a connection request | remote desktop (RDP) | RFC 1006, X.224 |
//! | `<?xml` or `<stream:stream` with `jabber:` | XMPP | RFC 6120 |
//! | `NICK `, `USER ` | IRC | RFC 2812 |
//! | CONNECT with `MQTT` | MQTT | OASIS MQTT 5.0 section 3.1 |
//! | `220 … SMTP`, `EHLO`, `+OK`, `* OK` | mail | RFC 5321, RFC 1939, RFC 9051 |
//! | `220 … FTP` | FTP | RFC 959 |
//! | `@RSYNCD:` | rsync | its daemon's protocol |
//! | a question | DNS | RFC 1035 |
//! | long header, 1200 bytes | QUIC | RFC 9000 |
//! | the magic cookie | STUN | RFC 8489 section 5 |
//! | record type 22, version 254 | DTLS | RFC 9147 |

use super::inspected::starts_with;
use super::{HostName, Inspected, Progress, dns, quic};

/// A protocol, with the name that a client sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// TLS, with the server's name.
    Tls(Option<HostName>),
    /// HTTP/1, with the host.
    Http(Option<HostName>),
    /// HTTP/2 without TLS.
    Http2,
    /// QUIC, with the server's name if it is known.
    Quic(Option<HostName>),
    /// DNS, also multicast DNS.
    Dns,
    /// SMTP, POP3 or IMAP.
    Mail,
    /// FTP or rsync.
    FileTransfer,
    /// SSH.
    Ssh,
    /// RDP or VNC.
    RemoteDesktop,
    /// SIP.
    Sip,
    /// STUN, with which calls find their paths.
    Stun,
    /// DTLS, which secures calls in browsers.
    Dtls,
    /// RTSP.
    Rtsp,
    /// XMPP, IRC or MQTT.
    Messages,
    /// BitTorrent or Gnutella.
    PeerToPeer,
}

/// How one protocol is recognised.
type Recognise = fn(&[u8], &mut Progress) -> Inspected<Protocol>;

/// The first that recognises the bytes. Partial while one of them may still.
fn first_of(prefix: &[u8], progress: &mut Progress, all: &[Recognise]) -> Inspected<Protocol> {
    while let Some(recognise) = all.get(progress.excluded) {
        match recognise(prefix, progress) {
            Inspected::Other => progress.excluded += 1,
            // A later one must not answer before: with more bytes this one would.
            settled_or_partial => return settled_or_partial,
        }
    }
    Inspected::Other
}

/// The protocol of a TCP stream by what its client sent first.
#[must_use]
pub fn of_client(prefix: &[u8], progress: &mut Progress) -> Inspected<Protocol> {
    if prefix.is_empty() {
        return Inspected::Partial;
    }
    const ALL: [Recognise; 12] = [
        client_hello,
        |prefix, _| starts_with(prefix, b"PRI * HTTP/2.0\r\n").map(|()| Protocol::Http2),
        |prefix, _| sip_or_rtsp(prefix),
        |prefix, _| starts_with(prefix, b"SSH-").map(|()| Protocol::Ssh),
        |prefix, _| starts_with(prefix, b"\x13BitTorrent protocol").map(|()| Protocol::PeerToPeer),
        |prefix, _| starts_with(prefix, b"GNUTELLA ").map(|()| Protocol::PeerToPeer),
        |prefix, _| remote_desktop(prefix),
        |prefix, _| messages(prefix),
        |prefix, _| starts_with(prefix, b"EHLO ").map(|()| Protocol::Mail),
        |prefix, _| starts_with(prefix, b"@RSYNCD:").map(|()| Protocol::FileTransfer),
        http_request,
        |prefix, _| dns::question_over_tcp(prefix).map(|_| Protocol::Dns),
    ];
    first_of(prefix, progress, &ALL)
}

/// A malformed ClientHello is TLS, too.
fn client_hello(prefix: &[u8], progress: &mut Progress) -> Inspected<Protocol> {
    match progress.client_hello.read(prefix) {
        Inspected::Malformed => Inspected::Found(Protocol::Tls(None)),
        hello => hello.map(|hello| Protocol::Tls(hello.server_name)),
    }
}

/// A malformed request is HTTP, too.
fn http_request(prefix: &[u8], progress: &mut Progress) -> Inspected<Protocol> {
    match progress.request.read(prefix) {
        Inspected::Malformed => Inspected::Found(Protocol::Http(None)),
        request => request.map(|request| Protocol::Http(request.host)),
    }
}

/// The protocol of a TCP stream by what its server sent first, where servers send first.
#[must_use]
pub fn of_server(prefix: &[u8]) -> Inspected<Protocol> {
    if prefix.is_empty() {
        return Inspected::Partial;
    }
    const ALL: [Recognise; 6] = [
        |prefix, _| starts_with(prefix, b"SSH-").map(|()| Protocol::Ssh),
        |prefix, _| starts_with(prefix, b"RFB 003.").map(|()| Protocol::RemoteDesktop),
        |prefix, _| starts_with(prefix, b"+OK ").map(|()| Protocol::Mail),
        |prefix, _| starts_with(prefix, b"* OK ").map(|()| Protocol::Mail),
        |prefix, _| starts_with(prefix, b"@RSYNCD:").map(|()| Protocol::FileTransfer),
        |prefix, _| ready_220(prefix),
    ];
    first_of(prefix, &mut Progress::default(), &ALL)
}

/// The protocol of a datagram. It is whole: the answer is never partial.
#[must_use]
pub fn of_datagram(datagram: &[u8]) -> Inspected<Protocol> {
    const STUN_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
    const STUN_HEADER_BYTES: usize = 20;
    const DTLS_HANDSHAKE: [u8; 2] = [22, 254];
    let has = |range: core::ops::Range<usize>, wanted: &[u8]| datagram.get(range) == Some(wanted);
    if quic::is_first(datagram) {
        return Inspected::Found(Protocol::Quic(None));
    }
    let is_stun = has(4..8, &STUN_COOKIE) && datagram.len() >= STUN_HEADER_BYTES && datagram[0] & 0xc0 == 0;
    let is_hash_table = ["d1:ad2:id20:", "d1:rd2:id20:"].iter().any(|query| datagram.starts_with(query.as_bytes()));
    match () {
        () if is_stun => Inspected::Found(Protocol::Stun),
        () if has(0..2, &DTLS_HANDSHAKE) => Inspected::Found(Protocol::Dtls),
        () if is_hash_table => Inspected::Found(Protocol::PeerToPeer),
        () => match sip_or_rtsp(datagram) {
            Inspected::Found(protocol) => Inspected::Found(protocol),
            _ => dns::question(datagram).map(|_| Protocol::Dns),
        },
    }
}

/// A method, a space, and the scheme of the target.
fn sip_or_rtsp(prefix: &[u8]) -> Inspected<Protocol> {
    const METHOD_BYTES_MAX: usize = 16;
    let method_bytes = prefix.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'_').count();
    match prefix.get(method_bytes) {
        _ if method_bytes > METHOD_BYTES_MAX => return Inspected::Other,
        None => return Inspected::Partial,
        Some(b' ') if method_bytes > 0 => {}
        Some(_) => return Inspected::Other,
    }
    let target = &prefix[method_bytes + 1..];
    let schemes: [(&[u8], Protocol); 4] = [
        (b"sip:", Protocol::Sip),
        (b"sips:", Protocol::Sip),
        (b"rtsp://", Protocol::Rtsp),
        (b"rtsps://", Protocol::Rtsp),
    ];
    let mut is_partial = false;
    for (scheme, protocol) in schemes {
        match starts_with(target, scheme) {
            Inspected::Found(()) => return Inspected::Found(protocol),
            Inspected::Partial => is_partial = true,
            Inspected::Other | Inspected::Malformed => {}
        }
    }
    if is_partial { Inspected::Partial } else { Inspected::Other }
}

/// RDP: a TPKT with an X.224 connection request. VNC clients answer their server's first message alike.
fn remote_desktop(prefix: &[u8]) -> Inspected<Protocol> {
    const TPKT_VERSION: u8 = 3;
    const CONNECTION_REQUEST: u8 = 0xe0;
    match *prefix {
        [TPKT_VERSION, 0, _, _, _, CONNECTION_REQUEST, ..] => Inspected::Found(Protocol::RemoteDesktop),
        [TPKT_VERSION]
        | [TPKT_VERSION, 0]
        | [TPKT_VERSION, 0, _]
        | [TPKT_VERSION, 0, _, _]
        | [TPKT_VERSION, 0, _, _, _] => Inspected::Partial,
        _ => starts_with(prefix, b"RFB 003.").map(|()| Protocol::RemoteDesktop),
    }
}

/// XMPP, IRC and MQTT.
fn messages(prefix: &[u8]) -> Inspected<Protocol> {
    const XMPP_BYTES_MAX: usize = 256;
    const MQTT_CONNECT: u8 = 0x10;
    const CONTINUES: u8 = 0x80;
    let fixed: [&[u8]; 3] = [b"<stream:stream ", b"NICK ", b"USER "];
    let mut is_partial = false;
    for pattern in fixed {
        match starts_with(prefix, pattern) {
            Inspected::Found(()) => return Inspected::Found(Protocol::Messages),
            Inspected::Partial => is_partial = true,
            Inspected::Other | Inspected::Malformed => {}
        }
    }
    if starts_with(prefix, b"<?xml").found().is_some() {
        let head = &prefix[..prefix.len().min(XMPP_BYTES_MAX)];
        return match head.windows(7).any(|window| window == b"jabber:") {
            true => Inspected::Found(Protocol::Messages),
            false if prefix.len() < XMPP_BYTES_MAX => Inspected::Partial,
            false => Inspected::Other,
        };
    }
    is_partial |= starts_with(prefix, b"<?xml") == Inspected::Partial;
    if prefix[0] == MQTT_CONNECT {
        // The remaining length takes one to four bytes.
        let length_bytes = prefix[1..].iter().take(3).take_while(|byte| **byte & CONTINUES != 0).count() + 1;
        return match prefix.get(1 + length_bytes..) {
            Some(rest) => starts_with(rest, b"\0\x04MQTT").map(|()| Protocol::Messages),
            None => Inspected::Partial,
        };
    }
    if is_partial { Inspected::Partial } else { Inspected::Other }
}

/// `220` is the first reply of SMTP and of FTP: the rest of the line shows which.
fn ready_220(prefix: &[u8]) -> Inspected<Protocol> {
    const LINE_BYTES_MAX: usize = 512;
    match starts_with(prefix, b"220") {
        Inspected::Found(()) => {}
        Inspected::Other | Inspected::Malformed => return Inspected::Other,
        Inspected::Partial => return Inspected::Partial,
    }
    let end = prefix.iter().position(|byte| *byte == b'\n');
    let Some(line) = end.or((prefix.len() >= LINE_BYTES_MAX).then_some(LINE_BYTES_MAX)).map(|end| &prefix[..end])
    else {
        return Inspected::Partial;
    };
    let line = &line[..line.len().min(LINE_BYTES_MAX)];
    let has = |word: &[u8]| line.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word));
    match () {
        () if has(b"smtp") => Inspected::Found(Protocol::Mail),
        () if has(b"ftp") => Inspected::Found(Protocol::FileTransfer),
        () => Inspected::Other,
    }
}
