//! One check of one backend, step by step without waiting.
//!
//! ```text
//!   tcp      connecting ─► done
//!   http(s)  connecting ─► answering ─► done
//!   icmp     ping ─► done
//!   command  running ─► done; after the timeout: killed ─► gone
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use config::validated::{CheckKind, HealthCheck};
use packet_io::ping::Ping;
use packet_io::{IoError, random, tcp};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::command::Command;

/// Bytes of an answer by HTTP that are read: its first line is at the beginning.
const ANSWER_BYTES_MAX: usize = 64;

/// What is checked, and how.
pub(super) struct Target<'a> {
    pub(super) service: &'a str,
    /// The port is 0 if none is known.
    pub(super) end: SocketAddr,
    pub(super) check: &'a HealthCheck,
    /// For checks over TLS.
    pub(super) tls: Option<&'a Arc<ClientConfig>>,
}

/// Why a check has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// The backend refused the connection.
    pub(super) is_refused: bool,
}

impl Failure {
    pub(super) fn of(reason: impl std::fmt::Display) -> Self {
        Self { reason: reason.to_string(), is_refused: false }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let is_refused = error.kind() == ErrorKind::ConnectionRefused;
        Self { is_refused, ..Self::of(control::remote::describe_tls(&error)) }
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Self {
        // A host refuses connections to itself at once.
        let is_refused =
            matches!(&error, IoError::System { source, .. } if source.kind() == ErrorKind::ConnectionRefused);
        Self { is_refused, ..Self::of(error) }
    }
}

/// How far a check is.
pub(super) enum Probe {
    /// The connection is not established yet.
    Connecting(TcpStream),
    /// The request has been sent, or is with TLS.
    Answering(Box<Answering>),
    Ping(Ping),
    Command(Command),
}

impl Probe {
    /// Begins a check.
    pub(super) fn begin(target: &Target<'_>) -> Result<Self, Failure> {
        Ok(match target.check.kind {
            CheckKind::Tcp | CheckKind::Http | CheckKind::Https => {
                Self::Connecting(tcp::connect(target.end, target.check.source)?)
            }
            CheckKind::Icmp => Self::Ping(Ping::send(target.end.ip(), target.check.source, random::number())?),
            CheckKind::Command => Self::Command(Command::start(target)?),
        })
    }

    /// Goes on. `None`: the check has succeeded.
    pub(super) fn advance(self, target: &Target<'_>) -> Result<Option<Self>, Failure> {
        match self {
            Self::Connecting(stream) => open(stream, target),
            Self::Answering(answering) => answering.read(),
            Self::Ping(ping) => Ok((!ping.is_answered()?).then_some(Self::Ping(ping))),
            Self::Command(command) => Ok(command.advance()?.map(Self::Command)),
        }
    }
}

/// The next step with a connection that is being opened.
fn open(stream: TcpStream, target: &Target<'_>) -> Result<Option<Probe>, Failure> {
    if let Some(error) = stream.take_error()? {
        return Err(error.into());
    }
    if stream.peer_addr().is_err() {
        return Ok(Some(Probe::Connecting(stream)));
    }
    if target.check.kind == CheckKind::Tcp {
        return Ok(None);
    }
    Ok(Some(Probe::Answering(Box::new(Answering::request(stream, target)?))))
}

/// A request of which the answer is awaited.
pub(super) struct Answering {
    stream: Stream,
    answer: Vec<u8>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Answering {
    fn request(stream: TcpStream, target: &Target<'_>) -> Result<Self, Failure> {
        let Target { end, check, tls, .. } = target;
        let host = check.server_name.clone().unwrap_or_else(|| end.to_string());
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: mainstay-check\r\nConnection: close\r\n\r\n",
            check.path
        );
        let stream = match tls.filter(|_| check.kind == CheckKind::Https) {
            None => Stream::Plain(stream),
            Some(config) => {
                let name = match &check.server_name {
                    Some(name) => ServerName::try_from(name.clone()).map_err(Failure::of)?,
                    None => ServerName::from(end.ip()),
                };
                let connection = ClientConnection::new(Arc::clone(config), name).map_err(Failure::of)?;
                Stream::Tls(Box::new(StreamOwned::new(connection, stream)))
            }
        };
        let mut answering = Self { stream, answer: Vec::new() };
        match &mut answering.stream {
            // An empty send buffer takes so short a request at once.
            Stream::Plain(stream) => stream.write_all(request.as_bytes())?,
            // It is sent once the handshake is over.
            Stream::Tls(stream) => stream.conn.writer().write_all(request.as_bytes())?,
        }
        Ok(answering)
    }

    /// Reads on to the status line; `None` when the check has succeeded.
    fn read(mut self: Box<Self>) -> Result<Option<Probe>, Failure> {
        let mut bytes = [0; ANSWER_BYTES_MAX];
        let read = match &mut self.stream {
            Stream::Plain(stream) => stream.read(&mut bytes),
            Stream::Tls(stream) => stream.read(&mut bytes),
        };
        match read {
            Ok(0) => return Err(Failure::of("the server closed the connection without an answer")),
            Ok(length) => self.answer.extend_from_slice(&bytes[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
        match status_of(&self.answer) {
            Some(200..=399) => Ok(None),
            Some(status) => Err(Failure::of(format!("the server answered with status {status}"))),
            None if self.answer.len() >= ANSWER_BYTES_MAX => Err(Failure::of("the answer is not HTTP")),
            None => Ok(Some(Probe::Answering(self))),
        }
    }
}

/// The status of an answer that begins so: `HTTP/1.1 200 OK` (RFC 9112 section 4).
fn status_of(answer: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(answer.get(..12)?).ok()?;
    let (version, status) = text.split_once(' ')?;
    version.starts_with("HTTP/1.").then(|| status.parse().ok())?
}
