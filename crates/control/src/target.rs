//! Where a gateway is asked: at its socket on this machine, or from afar.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::remote::{Identity, Introduction, TlsError, describe_tls, tls_client};
use api::{ErrorKind, VERSION};
use config::secret_file::{self, SecretFileError};

/// How long a gateway from afar may take to answer to a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A gateway that is asked from afar.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteTarget {
    /// Host and port.
    pub address: String,
    /// The authority whose certificates are trusted; without, there is no TLS.
    pub authority: Option<PathBuf>,
    /// The name that the gateway's certificate must have, if it is not the host's.
    pub server_name: Option<String>,
    /// What this client shows.
    pub identity: Option<Identity>,
    /// File with this client's token.
    pub token: Option<PathBuf>,
}

/// A gateway's control API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// On this machine.
    Socket(PathBuf),
    /// Elsewhere.
    Remote(Box<RemoteTarget>),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Remote(remote) => remote.address.fmt(f),
        }
    }
}

/// Why a gateway's answer is not there.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No program listens.
    #[error("no gateway answers at {0}: is it running? (mainstay gateway --config …)")]
    NoGateway(Target),
    /// The socket belongs to someone else.
    #[error("this user may not use the control socket of the gateway at {}: use the user that runs it, or root", .0.display())]
    NotAllowed(PathBuf),
    /// The gateway is not who it should be, or does not trust this client's certificate.
    #[error(
        "no trust between this program and the gateway at {target}: {problem}: check --authority, --server-name and --certificate"
    )]
    Untrusted {
        /// The gateway.
        target: Target,
        /// The library's error.
        problem: String,
    },
    /// That cannot be a name in a certificate.
    #[error("{0:?} is no name that a certificate can have: give one with --server-name")]
    BadName(String),
    /// The file of the token holds something else.
    #[error("{} does not hold a token alone on one line", .0.display())]
    NoToken(PathBuf),
    /// The file of a secret.
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    /// The certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The gateway, or `mainstay sync`, refused; the message has its reason.
    #[error("refused: {message}")]
    Refused {
        /// Whose fault it is.
        kind: ErrorKind,
        /// The gateway's sentence.
        message: String,
    },
    /// The answer makes no sense to this program.
    #[error("the gateway's answer is not understood ({0}): is this program of another version?")]
    NotUnderstood(String),
    /// The connection broke.
    #[error("the connection to the gateway at {target} broke: {source}")]
    Broken {
        /// The gateway.
        target: Target,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A stream to a gateway.
pub(super) enum Channel {
    Near(UnixStream),
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Channel {
    pub(super) fn open(target: &Target) -> Result<Self, ClientError> {
        match target {
            Target::Socket(path) => UnixStream::connect(path).map(Self::Near).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoGateway(target.clone()),
                io::ErrorKind::PermissionDenied => ClientError::NotAllowed(path.clone()),
                _ => ClientError::Broken { target: target.clone(), source },
            }),
            Target::Remote(remote) => Self::open_remote(target, remote),
        }
    }

    fn open_remote(target: &Target, remote: &RemoteTarget) -> Result<Self, ClientError> {
        let broken = |source| ClientError::Broken { target: target.clone(), source };
        let socket = connect(&remote.address).map_err(|source| match source.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut => ClientError::NoGateway(target.clone()),
            _ => broken(source),
        })?;
        socket.set_nodelay(true).map_err(broken)?;
        socket.set_read_timeout(Some(CONNECT_TIMEOUT)).map_err(broken)?;
        let mut channel = match &remote.authority {
            None => Self::Plain(socket),
            Some(authority) => Self::Tls(Box::new(secured(socket, target, remote, authority)?)),
        };
        if let Some(path) = &remote.token {
            channel.introduce(path)?.map_err(broken)?;
        }
        Ok(channel)
    }

    /// Authenticates this client by the token in the file.
    fn introduce(&mut self, path: &Path) -> Result<io::Result<()>, ClientError> {
        let contents = secret_file::read(path)?;
        let token = std::str::from_utf8(contents.trim_ascii()).map_err(|_| ClientError::NoToken(path.to_owned()))?;
        if token.is_empty() || token.contains(char::is_whitespace) {
            return Err(ClientError::NoToken(path.to_owned()));
        }
        let introduction = Introduction { version: VERSION, token: token.to_owned() };
        let line = serde_json::to_vec(&introduction).map(zeroize::Zeroizing::new);
        let line = line.map_err(|error| ClientError::NotUnderstood(error.to_string()))?;
        Ok(self.write_all(&line).and_then(|()| self.write_all(b"\n")))
    }

    /// A second handle on the socket, by which another thread ends what is read from it.
    pub(super) fn stopper(&self) -> io::Result<Stopper> {
        Ok(match self {
            Self::Near(stream) => Stopper::Near(stream.try_clone()?),
            Self::Plain(stream) => Stopper::Remote(stream.try_clone()?),
            Self::Tls(stream) => Stopper::Remote(stream.sock.try_clone()?),
        })
    }

    pub(super) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Near(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Plain(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Tls(stream) => stream.sock.set_read_timeout(Some(timeout)),
        }
    }
}

/// Ends the reading of a stream from another thread.
pub(super) enum Stopper {
    Near(UnixStream),
    Remote(TcpStream),
}

impl Stopper {
    /// Has a reader find the end of the stream. What has arrived already is still read.
    pub(super) fn stop(&self) -> io::Result<()> {
        match self {
            Self::Near(stream) => stream.shutdown(Shutdown::Both),
            Self::Remote(stream) => stream.shutdown(Shutdown::Both),
        }
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn secured(
    mut socket: TcpStream,
    target: &Target,
    remote: &RemoteTarget,
    authority: &Path,
) -> Result<StreamOwned<ClientConnection, TcpStream>, ClientError> {
    let config = tls_client(authority, remote.identity.as_ref())?;
    let host = remote.address.rsplit_once(':').map_or(remote.address.as_str(), |(host, _)| host);
    let name = remote.server_name.as_deref().unwrap_or_else(|| host.trim_matches(['[', ']']));
    let server = ServerName::try_from(name.to_owned()).map_err(|_| ClientError::BadName(name.to_owned()))?;
    let untrusted = |problem: String| ClientError::Untrusted { target: target.clone(), problem };
    let mut tls = ClientConnection::new(config, server).map_err(|error| untrusted(error.to_string()))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).map_err(|error| untrusted(describe_tls(&error)))?;
    }
    Ok(StreamOwned::new(tls, socket))
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Near(stream) => stream.read(buffer),
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Near(stream) => stream.write(buffer),
            Self::Plain(stream) => stream.write(buffer),
            Self::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Near(stream) => stream.flush(),
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
