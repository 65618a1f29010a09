//! Streams between nodes that never wait: replication over TCP.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::IoError;
use crate::system::{check, own, set_option};
use crate::udp::raw_address;

/// How long a stream may go without its other end acknowledging anything before it counts as broken (TCP_USER_TIMEOUT,
/// tcp(7)); longer than what a link that loses a fifth of its packets makes it wait.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);
/// Silence after which, and interval at which, an idle stream is probed.
const PROBE_INTERVAL_S: i32 = 1;
/// Probes without an answer until an idle stream counts as broken.
const PROBES_MAX: i32 = 5;

/// A socket that takes streams, and never waits.
#[derive(Debug)]
pub struct TcpListener {
    socket: std::net::TcpListener,
}

impl TcpListener {
    /// Listens on `address` in the calling thread's namespace.
    ///
    /// # Errors
    /// The address is not the host's or is taken.
    pub fn bind(address: SocketAddr) -> Result<Self, IoError> {
        let bound = std::net::TcpListener::bind(address);
        let socket = bound.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        let socket = socket.map_err(|error| match error.kind() {
            ErrorKind::AddrNotAvailable => IoError::NoSuchAddress(address),
            _ => IoError::from_io(error, format!("listening for TCP on {address}")),
        })?;
        Ok(Self { socket })
    }

    /// The next stream that waits, and whose it is.
    ///
    /// # Errors
    /// The system is out of descriptors or memory.
    pub fn accept(&self) -> Result<Option<(TcpStream, SocketAddr)>, IoError> {
        loop {
            return match self.socket.accept() {
                Ok((stream, from)) => TcpStream::prepare(stream).map(|stream| Some((stream, from))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
                // It was given up before it was taken.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(error) => Err(IoError::from_io(error, "accepting a TCP stream")),
            };
        }
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What reading found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// So many bytes, in the caller's buffer.
    Bytes(usize),
    /// Nothing at present.
    Nothing,
    /// The end of the stream, or why it broke.
    Closed(ErrorKind),
}

/// A stream that never waits.
#[derive(Debug)]
pub struct TcpStream {
    stream: std::net::TcpStream,
}

impl TcpStream {
    /// Begins a stream from an address of this host, at any port, to `to`. It can be written to when
    /// [`TcpStream::is_connected`] says so.
    ///
    /// # Errors
    /// The address is not the host's, or there is no way to `to`.
    pub fn connect(from: IpAddr, to: SocketAddr) -> Result<Self, IoError> {
        let failed = |error| IoError::from_io(error, format!("connecting to TCP {to}"));
        let domain = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: socket takes no pointers.
        let socket =
            own(unsafe { libc::socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) })
                .map_err(failed)?;
        let (raw, length) = raw_address(SocketAddr::new(from, 0));
        // SAFETY: `raw` holds an address of the stated length.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), length) }).map_err(failed)?;
        let (raw, length) = raw_address(to);
        // SAFETY: as above.
        match check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) }) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(failed(error)),
            _ => Self::prepare(socket.into()),
        }
    }

    fn prepare(stream: std::net::TcpStream) -> Result<Self, IoError> {
        let stream = Self { stream };
        stream.set_options().map_err(|error| IoError::from_io(error, "setting the options of a TCP stream"))?;
        Ok(stream)
    }

    fn set_options(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        // What changed is to be told at once, not when what was told before has been acknowledged.
        self.stream.set_nodelay(true)?;
        let unacknowledged_max_ms = i32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(i32::MAX);
        let socket = self.stream.as_fd();
        set_option(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1_i32)?;
        for (name, value) in [
            (libc::TCP_KEEPIDLE, PROBE_INTERVAL_S),
            (libc::TCP_KEEPINTVL, PROBE_INTERVAL_S),
            (libc::TCP_KEEPCNT, PROBES_MAX),
            (libc::TCP_USER_TIMEOUT, unacknowledged_max_ms),
        ] {
            set_option(socket, libc::IPPROTO_TCP, name, &value)?;
        }
        Ok(())
    }

    /// Whether a stream that was begun stands.
    ///
    /// # Errors
    /// Why it never will.
    pub fn is_connected(&self) -> Result<bool, ErrorKind> {
        if let Some(error) = self.stream.take_error().map_err(|error| error.kind())? {
            return Err(error.kind());
        }
        match self.stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error.kind()),
        }
    }

    /// Reads what is there, as far as `buffer` holds it.
    pub fn read(&self, buffer: &mut [u8]) -> Read {
        loop {
            return match (&self.stream).read(buffer) {
                Ok(0) => Read::Closed(ErrorKind::UnexpectedEof),
                Ok(length_bytes) => Read::Bytes(length_bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Read::Nothing,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Read::Closed(error.kind()),
            };
        }
    }

    /// Writes as much of `bytes` as the system takes now; returns how many.
    ///
    /// # Errors
    /// Why the stream broke.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        loop {
            return match (&self.stream).write(bytes) {
                Ok(length_bytes) => Ok(length_bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error.kind()),
            };
        }
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::poller::{Poller, Token};

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Waits until `ready` has something, and takes it.
    fn eventually<T>(mut ready: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(found) = ready() {
                return found;
            }
            assert!(Instant::now() < deadline, "it never came");
            std::thread::yield_now();
        }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(SocketAddr::new(LOCAL, 0)).unwrap();
        let address = listener.socket.local_addr().unwrap();
        assert!(listener.accept().unwrap().is_none());
        let near = TcpStream::connect(LOCAL, address).unwrap();
        let (far, from) = eventually(|| listener.accept().unwrap());
        eventually(|| near.is_connected().unwrap().then_some(()));
        assert_eq!(from.ip(), LOCAL);
        (near, far)
    }

    #[test]
    fn bytes_pass_and_the_end_is_noticed() {
        let (near, far) = pair();
        let mut buffer = [0; 16];
        assert_eq!(far.read(&mut buffer), Read::Nothing);
        assert_eq!(near.write(b"changes"), Ok(7));
        let read = eventually(|| Some(far.read(&mut buffer)).filter(|read| *read != Read::Nothing));
        assert_eq!((read, &buffer[..7]), (Read::Bytes(7), &b"changes"[..]));
        drop(near);
        let end = eventually(|| Some(far.read(&mut buffer)).filter(|read| *read != Read::Nothing));
        assert_eq!(end, Read::Closed(ErrorKind::UnexpectedEof));
    }

    #[test]
    fn a_full_stream_takes_nothing_and_says_when_it_does_again() {
        let (near, far) = pair();
        let poller = Poller::new().unwrap();
        let bytes = vec![0; 1 << 16];
        while near.write(&bytes).unwrap() > 0 {}
        poller.add_for_output(&near, Token(1)).unwrap();
        let mut ready = Vec::new();
        poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
        let mut buffer = vec![0; 1 << 20];
        eventually(|| {
            while far.read(&mut buffer) != Read::Nothing {}
            poller.wait(&mut ready, Some(Duration::from_millis(1))).unwrap();
            (ready == [Token(1)]).then_some(())
        });
        assert!(near.write(&bytes).unwrap() > 0);
    }

    #[test]
    fn nobody_listening_is_told() {
        let listener = TcpListener::bind(SocketAddr::new(LOCAL, 0)).unwrap();
        let address = listener.socket.local_addr().unwrap();
        drop(listener);
        let refused = TcpStream::connect(LOCAL, address).map(|stream| eventually(|| stream.is_connected().err()));
        assert!(refused.is_err() || matches!(refused, Ok(ErrorKind::ConnectionRefused)), "{refused:?}");
        let elsewhere = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 77));
        assert!(TcpStream::connect(elsewhere, address).is_err());
        assert!(matches!(TcpListener::bind(SocketAddr::new(elsewhere, 1)), Err(IoError::NoSuchAddress(_))));
    }
}
