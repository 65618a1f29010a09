//! Safe wrappers of system calls that several modules share.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Turns the C convention (negative result, `errno`) into a `Result`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes ownership of the descriptor that a system call returned.
pub(crate) fn own(result: libc::c_int) -> io::Result<OwnedFd> {
    let descriptor = check(result)?;
    // SAFETY: the call succeeded, so `descriptor` is open, and the caller passes it to no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Sets a socket option whose value is the plain C value `T`.
pub(crate) fn set_option<T: Copy>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(mem::size_of::<T>()).expect("option values are small");
    // SAFETY: `value` points to `length` readable bytes for the duration of the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const *value).cast(), length) }).map(drop)
}

/// Sets the socket's receive and send buffers to `bytes`: beyond the system's limit where permitted (CAP_NET_ADMIN), up
/// to it otherwise.
pub(crate) fn set_buffers(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    for (forced, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set_option(socket, libc::SOL_SOCKET, forced, &bytes).is_err() {
            set_option(socket, libc::SOL_SOCKET, plain, &bytes)?;
        }
    }
    Ok(())
}

/// Attaches a classic BPF program to a socket as its filter, replacing any other (`SO_ATTACH_FILTER`, socket(7)).
pub(crate) fn attach_filter(socket: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let description = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?,
        filter: program.as_mut_ptr(),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &description)
}

/// Detaches a socket's filter, if there is one.
pub(crate) fn detach_filter(socket: BorrowedFd<'_>) -> io::Result<()> {
    match set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

/// A zeroed C structure.
///
/// # Safety
/// All-zero bytes must be a valid `T`.
pub(crate) unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller guarantees that all-zero bytes are a valid `T`.
    unsafe { mem::zeroed() }
}
