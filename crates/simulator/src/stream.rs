//! The bytes of a connection: deterministic, so that receivers can verify their origin.

use flow::random::mix;

/// The length of the header of a client's stream, which identifies the transfer: a mark and the number.
pub(crate) const HEADER_BYTES: usize = 8;
const MARK: u32 = 0x4d53_5459;

/// The direction of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamDirection {
    /// From the client.
    Up,
    /// From the server.
    Down,
}

/// The stream's bytes from `offset` on.
pub(crate) fn fill(transfer: u32, direction: StreamDirection, offset: u64, out: &mut [u8]) {
    for (byte, at) in out.iter_mut().zip(offset..) {
        *byte = byte_at(transfer, direction, at);
    }
}

/// The offset of the first byte that differs from the stream's content from `offset` on.
pub(crate) fn first_wrong(transfer: u32, direction: StreamDirection, offset: u64, bytes: &[u8]) -> Option<u64> {
    bytes.iter().zip(offset..).find(|(byte, at)| **byte != byte_at(transfer, direction, *at)).map(|(_, at)| at)
}

/// The transfer that a client's first bytes identify.
pub(crate) fn transfer(header: [u8; HEADER_BYTES]) -> Option<u32> {
    let header = u64::from_be_bytes(header);
    ((header >> 32) as u32 == MARK).then_some(header as u32)
}

fn byte_at(transfer: u32, direction: StreamDirection, offset: u64) -> u8 {
    if direction == StreamDirection::Up && offset < HEADER_BYTES as u64 {
        return ((u64::from(MARK) << 32 | u64::from(transfer)) >> (56 - 8 * offset)) as u8;
    }
    let word = mix(u64::from(transfer) << 33 | u64::from(direction == StreamDirection::Down) << 32 ^ (offset >> 3));
    (word >> ((offset & 7) * 8)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_begins_with_its_number_and_any_part_of_it_can_be_checked() {
        let mut bytes = [0; 200];
        fill(77, StreamDirection::Up, 0, &mut bytes);
        assert_eq!(transfer(*bytes.first_chunk().unwrap()), Some(77));
        assert_eq!(first_wrong(77, StreamDirection::Up, 13, &bytes[13..50]), None);
        assert!(
            first_wrong(78, StreamDirection::Up, 13, &bytes[13..50]).is_some(),
            "another transfer's bytes are detected"
        );
        assert!(first_wrong(77, StreamDirection::Up, 14, &bytes[13..50]).is_some(), "misplaced bytes are detected");
        assert!(first_wrong(77, StreamDirection::Down, 13, &bytes[13..50]).is_some());
    }
}
