//! System calls that the standard library lacks.

use std::ffi::CString;

use flow::Instant;

use crate::Error;

/// Now, by the clock that the program reads (`CLOCK_MONOTONIC`), in nanoseconds.
#[must_use]
pub fn now() -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the duration of the call, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Instant::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_name() {
        assert!(interface_index("lo").unwrap() > 0);
        assert!(matches!(interface_index("none\0"), Err(Error::NoSuchInterface(_))));
        assert!(interface_index("no-such-one").unwrap_err().to_string().contains("no-such-one"));
    }

    #[test]
    fn time_goes_on() {
        assert!(now() > Instant::ZERO && now() <= now());
    }
}
