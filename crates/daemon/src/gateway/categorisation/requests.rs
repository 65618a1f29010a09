//! Requests to the categorisation server, over one connection of TCP or TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant as SystemInstant};

use network_functions::url_filter::server::protocol::{self, RESPONSE_BYTES_MAX, ResponseError};
use rustls::{ClientConnection, StreamOwned};

use crate::category_server::CategoryServer;

/// The requests of the thread that asks.
#[derive(Default)]
pub(super) struct Requests {
    /// The connection to this server, while it takes further requests.
    connection: Option<(Arc<CategoryServer>, Stream)>,
}

/// A connection.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects; the handshake of TLS comes with the first request.
    fn connect(server: &CategoryServer, deadline: SystemInstant) -> Result<Self, Failure> {
        let stream = TcpStream::connect_timeout(&server.address, remaining(deadline)?)?;
        stream.set_nodelay(true)?;
        let Some(tls) = &server.tls else { return Ok(Self::Plain(stream)) };
        let connection = ClientConnection::new(Arc::clone(&tls.client), tls.name.clone()).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    /// What one call waits for is limited by the time that is left. A server that sends or takes a byte at a time may make a handshake
    /// longer.
    fn set_deadline(&self, deadline: SystemInstant) -> Result<(), Failure> {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        };
        let left = remaining(deadline)?;
        socket.set_write_timeout(Some(left))?;
        Ok(socket.set_read_timeout(Some(left))?)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Requests {
    /// The body of the response. A server may have closed a connection that was idle: then a new one is tried at once.
    pub(super) fn exchange(&mut self, server: &Arc<CategoryServer>, request: &str) -> Result<Vec<u8>, Failure> {
        let deadline = SystemInstant::now() + server.config.config.timeout;
        let idle = self.connection.take().filter(|(of, _)| Arc::ptr_eq(of, server));
        if let Some((_, stream)) = idle
            && let Ok(body) = self.request_over(stream, server, request, deadline)
        {
            return Ok(body);
        }
        let stream = Stream::connect(server, deadline)?;
        self.request_over(stream, server, request, deadline)
    }

    fn request_over(
        &mut self,
        mut stream: Stream,
        server: &Arc<CategoryServer>,
        request: &str,
        deadline: SystemInstant,
    ) -> Result<Vec<u8>, Failure> {
        stream.set_deadline(deadline)?;
        stream.write_all(request.as_bytes())?;
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            stream.set_deadline(deadline)?;
            match stream.read(&mut buffer) {
                Ok(0) => return Err(Failure::Closed),
                Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            if let Some(response) = protocol::response(&received)? {
                let body = response.body.to_vec();
                if response.keeps_open {
                    self.connection = Some((Arc::clone(server), stream));
                }
                return Ok(body);
            }
            if received.len() > RESPONSE_BYTES_MAX {
                return Err(ResponseError::TooLong.into());
            }
        }
    }
}

/// The time that is left, which is more than none.
fn remaining(deadline: SystemInstant) -> Result<Duration, Failure> {
    let left = deadline.saturating_duration_since(SystemInstant::now());
    if left.is_zero() { Err(Failure::TimedOut) } else { Ok(left) }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("no response within url_filter.server.timeout")]
    TimedOut,
    #[error("the server closed the connection without a response")]
    Closed,
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error("{0}")]
    System(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::System(error),
        }
    }
}

#[cfg(test)]
mod tests;
