//! Datagrams between nodes: the replication link and BFD.

mod batch;
mod multicast;

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub use batch::{BATCH_DATAGRAMS_MAX, BatchSent, DatagramBatch};

use crate::IoError;
use crate::system::{check, own, set_buffers, set_option, zeroed};

/// The time to live that single-hop BFD sends and requires (RFC 5881 section 5, RFC 5082).
pub const TTL_MAX: u8 = 255;
/// The default size of a socket's buffers, in bytes.
pub const SOCKET_BUFFER_BYTES: i32 = 4 << 20;
/// The maximum number of errors of earlier datagrams (such as ICMP "port unreachable" of a restarting peer) that one call
/// skips.
const STALE_ERRORS_MAX: usize = 16;

/// How to open a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdpOptions {
    /// Send and receive on this interface only (`SO_BINDTODEVICE`).
    pub interface: Option<String>,
    /// Time to live or hop limit of sent datagrams; the system's default where `None`.
    pub ttl: Option<u8>,
    /// Let other sockets bind the same address, too (`SO_REUSEADDR`).
    pub reuse_address: bool,
    /// Size of the receive and send buffers, in bytes. The kernel drops datagrams beyond it.
    pub socket_buffer_bytes: i32,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self { interface: None, ttl: None, reuse_address: false, socket_buffer_bytes: SOCKET_BUFFER_BYTES }
    }
}

/// A received datagram, with its bytes in the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its payload, in bytes.
    pub length_bytes: usize,
    /// Whether it exceeded the buffer and was truncated.
    pub truncated: bool,
    /// The sender's address.
    pub from: SocketAddr,
    /// The time to live or hop limit on arrival.
    pub ttl: Option<u8>,
}

/// The result of sending a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The kernel has it.
    Queued,
    /// Lost for lack of room, of a route or of a peer, as datagrams may be: the protocol above must handle it.
    Lost,
}

/// What an error of a sending call means for the datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    /// The error is that of an earlier datagram, or none at all: this one was not processed yet.
    Stale,
    /// It is [`Sent::Lost`].
    Lost,
    /// A repetition cannot help.
    Fault,
}

impl Failure {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED | libc::EINTR) => Self::Stale,
            Some(
                libc::EAGAIN
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EHOSTDOWN
                | libc::ENODEV
                | libc::ENXIO
                | libc::EADDRNOTAVAIL,
            ) => Self::Lost,
            _ => Self::Fault,
        }
    }
}

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: OwnedFd,
}

impl UdpSocket {
    /// Opens a socket bound to `address` in the calling thread's namespace.
    ///
    /// # Errors
    /// The address is not the host's or is in use, the interface does not exist, or permission is missing.
    pub fn bind(address: SocketAddr, options: &UdpOptions) -> Result<Self, IoError> {
        let domain = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: socket takes no pointers.
        let socket =
            own(unsafe { libc::socket(domain, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) })
                .map_err(|error| IoError::from_io(error, "opening a UDP socket"))?;
        let socket = Self { socket };
        if let Some(interface) = &options.interface {
            socket.bind_to_interface(interface)?;
        }
        socket
            .set_options(address, options)
            .map_err(|error| IoError::from_io(error, format!("setting the options of the UDP socket on {address}")))?;
        let (raw, length) = raw_address(address);
        // SAFETY: `raw` holds an address of the stated length.
        check(unsafe { libc::bind(socket.socket.as_raw_fd(), (&raw const raw).cast(), length) }).map_err(|error| {
            let operation = format!("binding a UDP socket to {address}");
            match error.raw_os_error() {
                Some(libc::EACCES) => IoError::NotPermitted { operation, capability: "CAP_NET_BIND_SERVICE" },
                Some(libc::EADDRNOTAVAIL) => IoError::NoSuchAddress(address),
                Some(libc::EADDRINUSE) => IoError::AddressTaken(address),
                _ => IoError::from_io(error, operation),
            }
        })?;
        Ok(socket)
    }

    fn bind_to_interface(&self, interface: &str) -> Result<(), IoError> {
        let length = libc::socklen_t::try_from(interface.len()).unwrap_or(libc::socklen_t::MAX);
        // SAFETY: the name is readable for the stated length.
        let result = unsafe {
            let name = interface.as_ptr().cast();
            libc::setsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name, length)
        };
        check(result).map(drop).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => IoError::NoSuchInterface { interface: interface.into() },
            Some(libc::EPERM) => IoError::NotPermitted {
                operation: format!("binding a UDP socket to {interface}"),
                capability: "CAP_NET_RAW",
            },
            _ => IoError::from_io(error, format!("binding a UDP socket to {interface}")),
        })
    }

    fn set_options(&self, address: SocketAddr, options: &UdpOptions) -> io::Result<()> {
        let socket = self.socket.as_fd();
        let ttl = options.ttl.map(i32::from);
        if address.is_ipv4() {
            set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTTL, &1_i32)?;
            ttl.map_or(Ok(()), |ttl| {
                set_option(socket, libc::IPPROTO_IP, libc::IP_TTL, &ttl)?;
                set_option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, &ttl)
            })?;
        } else {
            set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1_i32)?;
            set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &1_i32)?;
            ttl.map_or(Ok(()), |ttl| {
                set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &ttl)?;
                set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, &ttl)
            })?;
        }
        if options.reuse_address {
            set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1_i32)?;
        }
        set_buffers(socket, options.socket_buffer_bytes)
    }

    /// The address that the socket is bound to, with the port chosen by the system where 0 was requested.
    ///
    /// # Errors
    /// Only for defects of the program.
    pub fn local_address(&self) -> Result<SocketAddr, IoError> {
        // SAFETY: all-zero bytes are a valid sockaddr_storage.
        let mut raw: libc::sockaddr_storage = unsafe { zeroed() };
        let mut length = mem::size_of_val(&raw) as libc::socklen_t;
        // SAFETY: `raw` is writable for the stated length.
        check(unsafe { libc::getsockname(self.socket.as_raw_fd(), (&raw mut raw).cast(), &raw mut length) })
            .map_err(|error| IoError::from_io(error, "asking for a socket's address"))?;
        parse_address(&raw).ok_or_else(|| IoError::Misuse("the socket has no IP address".into()))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// Only where a repetition cannot help: the datagram is too large, the address has the other family, or permission
    /// is missing. An unreachable peer is not an error but [`Sent::Lost`].
    pub fn send_to(&self, datagram: &[u8], to: SocketAddr) -> Result<Sent, IoError> {
        let (raw, length) = raw_address(to);
        for _ in 0..STALE_ERRORS_MAX {
            // SAFETY: the datagram is readable for its length, and `raw` holds an address of the stated length.
            let sent = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    datagram.as_ptr().cast(),
                    datagram.len(),
                    libc::MSG_DONTWAIT,
                    (&raw const raw).cast(),
                    length,
                )
            };
            if sent >= 0 {
                return Ok(Sent::Queued);
            }
            let error = io::Error::last_os_error();
            match Failure::of(&error) {
                Failure::Stale => {}
                Failure::Lost => return Ok(Sent::Lost),
                Failure::Fault => {
                    return Err(IoError::from_io(error, format!("sending {} bytes to {to}", datagram.len())));
                }
            }
        }
        Ok(Sent::Lost)
    }

    /// Receives a datagram into `buffer`; `None` when none is pending.
    ///
    /// # Errors
    /// Only for defects of the program: ICMP errors of earlier datagrams are skipped.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<Received>, IoError> {
        for _ in 0..STALE_ERRORS_MAX {
            match self.try_receive(buffer) {
                Ok(received) => return Ok(Some(received)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(
                        libc::ECONNREFUSED
                        | libc::EHOSTUNREACH
                        | libc::ENETUNREACH
                        | libc::ENETDOWN
                        | libc::EINTR
                        | libc::EPROTO,
                    ) => {}
                    _ => return Err(IoError::from_io(error, "receiving a datagram")),
                },
            }
        }
        Ok(None)
    }

    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        // SAFETY: all-zero bytes are a valid sockaddr_storage and a valid msghdr.
        let (mut from, mut message): (libc::sockaddr_storage, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
        let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = [0_u64; 8];
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = mem::size_of_val(&from) as libc::socklen_t;
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&control) as _;
        // SAFETY: name, vector and control space are writable for the stated lengths.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let length_bytes = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        let from = parse_address(&from).ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))?;
        let truncated = message.msg_flags & libc::MSG_TRUNC != 0;
        Ok(Received { length_bytes, truncated, from, ttl: time_to_live(&message) })
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The time to live or hop limit among the control messages.
fn time_to_live(message: &libc::msghdr) -> Option<u8> {
    // SAFETY: `message` was filled in by recvmsg, and its control space stays valid; the macros stay within it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: `next` is not null and leads to a control message header.
        let header = unsafe { next.read_unaligned() };
        let wanted = [(libc::IPPROTO_IP, libc::IP_TTL), (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT)];
        if wanted.contains(&(header.cmsg_level, header.cmsg_type)) {
            // SAFETY: both messages carry one int.
            let value = unsafe { libc::CMSG_DATA(next).cast::<libc::c_int>().read_unaligned() };
            return u8::try_from(value).ok();
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}

/// An address in the form for system calls, and its length.
pub(crate) fn raw_address(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero bytes are a valid sockaddr_storage.
    let mut raw: libc::sockaddr_storage = unsafe { zeroed() };
    let length = match address {
        SocketAddr::V4(address) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage is large and aligned enough for every address.
            unsafe { (&raw mut raw).cast::<libc::sockaddr_in>().write(value) };
            mem::size_of_val(&value)
        }
        SocketAddr::V6(address) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo().to_be(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut raw).cast::<libc::sockaddr_in6>().write(value) };
            mem::size_of_val(&value)
        }
    };
    (raw, length as libc::socklen_t)
}

fn parse_address(raw: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(raw.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family determines the type.
            let value = unsafe { (&raw const *raw).cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(value.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(value.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family determines the type.
            let value = unsafe { (&raw const *raw).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(value.sin6_addr.s6_addr);
            let flow = u32::from_be(value.sin6_flowinfo);
            Some(SocketAddrV6::new(ip, u16::from_be(value.sin6_port), flow, value.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
