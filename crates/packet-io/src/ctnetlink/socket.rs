//! A netlink socket to netfilter.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::IoError;
use crate::system::{check, own, set_option, zeroed};

/// The capability that connection tracking requires.
pub(super) const CAPABILITY: &str = "CAP_NET_ADMIN";

/// A non-blocking socket to netfilter, in the namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
    port: u32,
}

impl Socket {
    pub(super) fn open() -> Result<Self, IoError> {
        let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes no pointers.
        let descriptor = own(unsafe { libc::socket(libc::AF_NETLINK, flags, libc::NETLINK_NETFILTER) })
            .map_err(|error| IoError::from_io(error, "opening a netlink socket to netfilter"))?;
        let mut socket = Self { descriptor, port: 0 };
        socket.bind().map_err(|error| IoError::from_io(error, "binding a netlink socket to netfilter"))?;
        // An error's reply then quotes the header of the request only. Kernels before 4.3 quote all of it.
        let _ = set_option(socket.as_fd(), libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, &1_i32);
        Ok(socket)
    }

    /// Binds to a port that the kernel chooses.
    fn bind(&mut self) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid sockaddr_nl.
        let mut address: libc::sockaddr_nl = unsafe { zeroed() };
        address.nl_family = libc::AF_NETLINK as _;
        let mut length = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is a sockaddr_nl of the stated length.
        check(unsafe { libc::bind(self.descriptor.as_raw_fd(), (&raw const address).cast(), length) })?;
        // SAFETY: `address` is writable for the stated length.
        check(unsafe { libc::getsockname(self.descriptor.as_raw_fd(), (&raw mut address).cast(), &raw mut length) })?;
        self.port = address.nl_pid;
        Ok(())
    }

    /// The netlink port.
    pub(super) const fn port(&self) -> u32 {
        self.port
    }

    /// Joins a multicast group.
    pub(super) fn join(&self, group: u32) -> Result<(), IoError> {
        let result = set_option(self.as_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, &group);
        result.map_err(|error| explain(error, "listening to the events of connection tracking"))
    }

    /// Sets the receive buffer to `bytes`, beyond the system's limit where permitted. Returns the actual size: the
    /// kernel doubles the request to include its overhead (socket(7)).
    pub(super) fn set_receive_buffer(&self, bytes: usize) -> Result<usize, IoError> {
        let explain = |error| IoError::from_io(error, "setting the receive buffer of a netlink socket");
        let asked = i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2);
        if set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &asked).is_err() {
            set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &asked).map_err(explain)?;
        }
        let mut now = 0_i32;
        let mut length = mem::size_of_val(&now) as libc::socklen_t;
        // SAFETY: `now` is writable for the stated length.
        check(unsafe {
            libc::getsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                (&raw mut now).cast(),
                &raw mut length,
            )
        })
        .map_err(explain)?;
        Ok(usize::try_from(now).unwrap_or_default())
    }

    /// Sends messages. The kernel has processed all of them when the call returns.
    pub(super) fn send(&self, messages: &[u8]) -> io::Result<()> {
        loop {
            // SAFETY: the messages are readable for their length. The socket is bound and has no other peer than the kernel.
            let sent = unsafe {
                libc::send(self.descriptor.as_raw_fd(), messages.as_ptr().cast(), messages.len(), libc::MSG_DONTWAIT)
            };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Receives a datagram into `buffer`; `None` when none waits.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            // SAFETY: the buffer is writable for its length.
            let received = unsafe {
                libc::recv(
                    self.descriptor.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                )
            };
            if let Ok(length_bytes) = usize::try_from(received) {
                if length_bytes > buffer.len() {
                    return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
                }
                return Ok(Some(length_bytes));
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Converts the system's error to one for the operator.
pub(super) fn explain(error: io::Error, operation: &str) -> IoError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            IoError::NotPermitted { operation: operation.into(), capability: CAPABILITY }
        }
        _ => IoError::from_io(error, operation),
    }
}
