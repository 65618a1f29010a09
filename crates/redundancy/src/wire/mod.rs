//! The wire format: blocks with shims ([`shim`]), and control messages ([`control`]). All numbers are big-endian.

pub mod control;
pub mod shim;

/// Reads `N` bytes off the front.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}
