//! Randomness from the kernel: RNG seeds, keys, initial sequence numbers.

/// Fills `bytes` with bytes fit for keys (getrandom(2)).
///
/// # Panics
/// The kernel supplies no random numbers, which never happens on Linux since 3.17.
pub fn fill(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: `rest` is writable for its whole length during the call.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => filled += got,
            Err(_) => {
                let error = std::io::Error::last_os_error();
                assert!(error.kind() == std::io::ErrorKind::Interrupted, "the kernel gives no random numbers: {error}");
            }
        }
    }
}

/// A random number, all values equally likely.
#[must_use]
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_of_a_long_buffer_is_filled() {
        let mut bytes = [0; 4096];
        super::fill(&mut bytes);
        // A run of sixteen zero bytes has a chance of 2^-116.
        assert!(bytes.chunks(16).all(|run| run.iter().any(|byte| *byte != 0)));
        assert_ne!(super::number(), super::number());
    }
}
