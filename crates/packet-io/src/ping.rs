//! Echo requests of the host (ICMP, ICMPv6), one a socket, without waiting.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::IoError;
use crate::system::{check, own};
use crate::udp::raw_address;

/// Bytes of a request: the ICMP header of 8 bytes and the token.
const REQUEST_BYTES: usize = 16;
/// Bytes of an answer that are read: IPv4 sockets that are raw give the IP header as well.
const ANSWER_BYTES_MAX: usize = 128;
/// Echo request and reply: ICMP (RFC 792) and ICMPv6 (RFC 4443 section 4).
const ECHO_V4: (u8, u8) = (8, 0);
const ECHO_V6: (u8, u8) = (128, 129);

/// An echo request that was sent, and whose answer is awaited.
#[derive(Debug)]
pub struct Ping {
    socket: OwnedFd,
    to: IpAddr,
    token: u64,
    /// The kernel gives IPv4 packets with their header, and those of others.
    is_raw: bool,
}

impl Ping {
    /// Sends an echo request with `token` to `to`, from an address of the host where `source` is one. An unprivileged socket is used
    /// where the system permits it (`net.ipv4.ping_group_range`), else a raw one, which needs CAP_NET_RAW.
    ///
    /// # Errors
    /// Neither socket is permitted, `source` is not an address of the host, or there is no route.
    pub fn send(to: IpAddr, source: Option<IpAddr>, token: u64) -> Result<Self, IoError> {
        let failed = |error, operation: &str| IoError::from_io(error, format!("{operation} {to}"));
        let (domain, protocol) = match to {
            IpAddr::V4(_) => (libc::AF_INET, libc::IPPROTO_ICMP),
            IpAddr::V6(_) => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
        };
        let open = |kind| {
            // SAFETY: socket takes no pointers.
            own(unsafe { libc::socket(domain, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, protocol) })
        };
        let (socket, is_raw) = match open(libc::SOCK_DGRAM) {
            Ok(socket) => (socket, false),
            Err(_) => match open(libc::SOCK_RAW) {
                Ok(socket) => (socket, true),
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
                    let operation = format!("opening a socket to ping {to}");
                    return Err(IoError::NotPermitted { operation, capability: "CAP_NET_RAW" });
                }
                Err(error) => return Err(failed(error, "opening a socket to ping")),
            },
        };
        if let Some(source) = source.map(|source| SocketAddr::new(source, 0)) {
            let (raw, length) = raw_address(source);
            // SAFETY: `raw` holds an address of the stated length.
            check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), length) }).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EADDRNOTAVAIL) => IoError::NoSuchAddress(source),
                    _ => failed(error, "binding a socket to ping"),
                }
            })?;
        }
        let (raw, length) = raw_address(SocketAddr::new(to, 0));
        // SAFETY: `raw` holds an address of the stated length.
        check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) })
            .map_err(|error| failed(error, "pinging"))?;
        let request = request(to, token);
        // SAFETY: `request` is readable for its length.
        let sent =
            unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), libc::MSG_NOSIGNAL) };
        if sent < 0 {
            return Err(failed(std::io::Error::last_os_error(), "pinging"));
        }
        Ok(Self { socket, to, token, is_raw })
    }

    /// Whether the answer has come.
    ///
    /// # Errors
    /// The system reported an error, for example of the route.
    pub fn is_answered(&self) -> Result<bool, IoError> {
        let mut buffer = [0_u8; ANSWER_BYTES_MAX];
        loop {
            // SAFETY: `buffer` is writable for its length.
            let got = unsafe {
                libc::recv(
                    self.socket.as_fd().as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            let Ok(length) = usize::try_from(got) else {
                let error = std::io::Error::last_os_error();
                return match error.kind() {
                    std::io::ErrorKind::WouldBlock => Ok(false),
                    std::io::ErrorKind::Interrupted => continue,
                    _ => Err(IoError::from_io(error, format!("pinging {}", self.to))),
                };
            };
            if self.is_answer(&buffer[..length.min(ANSWER_BYTES_MAX)]) {
                return Ok(true);
            }
        }
    }

    fn is_answer(&self, packet: &[u8]) -> bool {
        let header_bytes = match packet.first() {
            Some(first) if self.is_raw && self.to.is_ipv4() => usize::from(first & 15) * 4,
            _ => 0,
        };
        let reply = if self.to.is_ipv4() { ECHO_V4.1 } else { ECHO_V6.1 };
        packet.get(header_bytes..).is_some_and(|message| {
            message.first() == Some(&reply) && message.get(8..16) == Some(&self.token.to_be_bytes()[..])
        })
    }
}

/// An echo request. The kernel fills in the checksum of ICMPv6, and of both kinds where the socket is not raw.
fn request(to: IpAddr, token: u64) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[0] = if to.is_ipv4() { ECHO_V4.0 } else { ECHO_V6.0 };
    bytes[8..].copy_from_slice(&token.to_be_bytes());
    bytes[4..6].copy_from_slice(&(token as u16).to_be_bytes());
    let sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    if to.is_ipv4() {
        bytes[2..4].copy_from_slice(&(!folded as u16).to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_loopback_address_answers() {
        for address in ["127.0.0.1", "::1"] {
            let to: IpAddr = address.parse().expect("an address");
            let ping = match Ping::send(to, Some(to), 0x0123_4567_89ab_cdef) {
                Ok(ping) => ping,
                Err(error) => return crate::namespace::skip(error),
            };
            let until = Instant::now() + Duration::from_secs(10);
            while !ping.is_answered().expect("no error") {
                assert!(Instant::now() < until, "{address} does not answer");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn only_the_reply_with_the_token_is_the_answer() {
        let socket: OwnedFd = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port").into();
        let ping = Ping { socket, to: [127, 0, 0, 1].into(), token: 7, is_raw: true };
        let mut packet = vec![0_u8; 36];
        packet[0] = 0x45;
        packet[35] = 7;
        assert!(ping.is_answer(&packet));
        packet[20] = ECHO_V4.0;
        assert!(!ping.is_answer(&packet), "its own request");
        packet[20] = ECHO_V4.1;
        packet[35] = 8;
        assert!(!ping.is_answer(&packet), "the answer to another one");
        assert!(!ping.is_answer(&packet[..20]) && !ping.is_answer(&[]));
    }

    #[test]
    fn the_checksum_of_a_request_makes_its_sum_complete() {
        let bytes = request([192, 0, 2, 1].into(), 0xfedc_ba98_7654_3210);
        let sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
