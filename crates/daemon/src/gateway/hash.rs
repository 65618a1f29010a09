//! A hash of texts that is the same on every node.

/// FNV-1a: nothing here is secret, but it must be the same on every node.
pub(super) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
