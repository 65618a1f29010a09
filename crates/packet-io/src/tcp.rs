//! TCP connections that are opened without waiting.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::IoError;
use crate::system::{check, own};
use crate::udp::raw_address;

/// Begins a connection to `to`, from an address of the host where `source` is one; else from the kernel's choice.
///
/// The stream is non-blocking. Until it is connected, [`TcpStream::peer_addr`] fails; a failure is in
/// [`TcpStream::take_error`].
///
/// # Errors
/// The source is not an address of the host, or the connection failed at once: there is no route, for example.
pub fn connect(to: SocketAddr, source: Option<IpAddr>) -> Result<TcpStream, IoError> {
    let domain = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let failed = |error, operation: &str| IoError::from_io(error, format!("{operation} {to}"));
    // SAFETY: socket takes no pointers.
    let socket: OwnedFd =
        own(unsafe { libc::socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) })
            .map_err(|error| failed(error, "opening a TCP socket to"))?;
    if let Some(source) = source.map(|source| SocketAddr::new(source, 0)) {
        let (raw, length) = raw_address(source);
        // SAFETY: `raw` holds an address of the stated length.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), length) }).map_err(
            |error| match error.raw_os_error() {
                Some(libc::EADDRNOTAVAIL) => IoError::NoSuchAddress(source),
                _ => failed(error, "binding a TCP socket to"),
            },
        )?;
    }
    let (raw, length) = raw_address(to);
    // SAFETY: `raw` holds an address of the stated length.
    match check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) }) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(failed(error, "connecting to")),
    }
    Ok(TcpStream::from(socket))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// The result of a connection, once it is known.
    fn result(stream: &TcpStream) -> Result<(), std::io::ErrorKind> {
        loop {
            if let Some(error) = stream.take_error().expect("a socket") {
                return Err(error.kind());
            }
            if stream.peer_addr().is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_connection_opens_from_the_wanted_source() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let source = "127.0.0.2".parse().expect("an address");
        let stream = connect(listener.local_addr().expect("bound"), Some(source)).expect("it begins");
        assert_eq!(result(&stream), Ok(()));
        assert_eq!(listener.accept().expect("it opened").1.ip(), source);
    }

    #[test]
    fn a_closed_port_and_a_foreign_source_are_reported() {
        let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
        let outcome = connect(closed, None).map(|stream| result(&stream));
        assert!(matches!(outcome, Ok(Err(std::io::ErrorKind::ConnectionRefused)) | Err(_)), "{outcome:?}");
        let foreign = Some("192.0.2.1".parse().expect("an address"));
        assert!(matches!(connect(closed, foreign), Err(IoError::NoSuchAddress(_))));
    }
}
