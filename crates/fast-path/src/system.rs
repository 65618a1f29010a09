//! System calls that the standard library lacks.

use std::ffi::CString;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::{fs, io};

use flow::Instant;

use crate::Error;

/// Now, by `CLOCK_MONOTONIC` of the calling process, in nanoseconds.
#[must_use]
pub fn now() -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the duration of the call, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Instant::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// By how much the clock of the calling process is ahead of the clock that the program reads, in nanoseconds: the offset of its time
/// namespace (time_namespaces(7)), in two's complement. 0 where the kernel does not state it.
pub(crate) fn clock_offset_ns() -> u64 {
    offset_in(&fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default()).unwrap_or(0)
}

/// The offset of the monotonic clock: a line has the clock's name, seconds and nanoseconds.
fn offset_in(offsets: &str) -> Option<u64> {
    let mut words = offsets
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next() == Some("monotonic")).then_some(words))?;
    let (seconds, nanoseconds): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds).cast_unsigned())
}

/// The index of the interface `name` in the namespace of the calling thread.
///
/// # Errors
/// [`Error::NoSuchInterface`].
pub fn interface_index(name: &str) -> Result<u32, Error> {
    let missing = || Error::NoSuchInterface(name.to_owned());
    let c_name = CString::new(name).map_err(|_| missing())?;
    // SAFETY: the name is a C string that outlives the call.
    match unsafe { libc::if_nametoindex(c_name.as_ptr()) } {
        0 => Err(missing()),
        index => Ok(index),
    }
}

/// The link address of the interface `name` in the namespace of the calling thread (`SIOCGIFHWADDR`, netdevice(7)).
pub(crate) fn link_address(name: &str) -> Result<[u8; 6], Error> {
    let explain = |error| Error::from_io(error, format!("reading the link address of {name}"));
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let socket = UdpSocket::bind(("127.0.0.1", 0)).map_err(explain)?;
    // SAFETY: the request reads and writes one ifreq, which outlives the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as _, &raw mut request) } < 0 {
        return Err(explain(io::Error::last_os_error()));
    }
    // SAFETY: the request fills in this member of the union.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(std::array::from_fn(|index| address[index].cast_unsigned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_name() {
        assert!(interface_index("lo").unwrap() > 0);
        assert_eq!(link_address("lo").unwrap(), [0; 6]);
        assert!(link_address("no-such-one").is_err());
        assert!(matches!(interface_index("none\0"), Err(Error::NoSuchInterface(_))));
        assert!(interface_index("no-such-one").unwrap_err().to_string().contains("no-such-one"));
    }

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        assert_eq!(
            offset_in("monotonic        1000         5\nboottime            0         0\n"),
            Some(1_000_000_000_005)
        );
        assert_eq!(offset_in("boottime 0 0\nmonotonic -1 0\n"), Some(1_000_000_000_u64.wrapping_neg()));
        assert_eq!(offset_in(""), None);
    }

    #[test]
    fn time_goes_on() {
        assert!(now() > Instant::ZERO && now() <= now());
    }
}
