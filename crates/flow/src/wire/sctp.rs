//! SCTP packets (RFC 9260): the common header, the chunks that connection tracking needs, and the CRC32c.

use crate::DropReason;

/// Bytes of the common header.
pub const SCTP_HEADER_BYTES: usize = 12;
/// Offset of the checksum from the start of the header, in bytes.
pub const SCTP_CHECKSUM_OFFSET: usize = 8;
const VERIFICATION_TAG_OFFSET: usize = 4;
/// Bytes of a chunk's type, flags and length.
const CHUNK_HEADER_BYTES: usize = 4;
/// Bytes of INIT and INIT ACK without parameters (RFC 9260 section 3.3.2).
const INIT_BYTES_MIN: usize = 20;
/// The flag of ABORT and SHUTDOWN COMPLETE that selects which side's tag the packet carries (RFC 9260 sections 3.3.7
/// and 3.3.13).
const T_BIT: u8 = 1;

pub mod chunk {
    //! Bits of [`super::SctpPacket::chunks`].
    /// Requests an association.
    pub const INIT: u16 = 1 << 0;
    /// Accepts an INIT.
    pub const INIT_ACK: u16 = 1 << 1;
    /// Returns the cookie of an INIT ACK.
    pub const COOKIE_ECHO: u16 = 1 << 2;
    /// Establishes the association.
    pub const COOKIE_ACK: u16 = 1 << 3;
    /// Probes a path.
    pub const HEARTBEAT: u16 = 1 << 4;
    /// Confirms a HEARTBEAT.
    pub const HEARTBEAT_ACK: u16 = 1 << 5;
    /// Requests the end of the association.
    pub const SHUTDOWN: u16 = 1 << 6;
    /// Acknowledges a SHUTDOWN.
    pub const SHUTDOWN_ACK: u16 = 1 << 7;
    /// Ends the association.
    pub const SHUTDOWN_COMPLETE: u16 = 1 << 8;
    /// Aborts the association.
    pub const ABORT: u16 = 1 << 9;
    /// Any other: DATA, SACK, ERROR, …
    pub const OTHER: u16 = 1 << 10;

    /// Those that must be alone in their packet (RFC 9260 section 6.10).
    pub(super) const ALONE: u16 = INIT | INIT_ACK | SHUTDOWN_COMPLETE;
    /// Those that must be the first in their packet (RFC 9260 sections 5.1 and 6.10).
    pub(super) const FIRST: u16 = COOKIE_ECHO | COOKIE_ACK;

    /// The bit of a chunk's type (RFC 9260 section 3.2).
    pub(super) const fn of_type(number: u8) -> u16 {
        match number {
            1 => INIT,
            2 => INIT_ACK,
            4 => HEARTBEAT,
            5 => HEARTBEAT_ACK,
            6 => ABORT,
            7 => SHUTDOWN,
            8 => SHUTDOWN_ACK,
            10 => COOKIE_ECHO,
            11 => COOKIE_ACK,
            14 => SHUTDOWN_COMPLETE,
            _ => OTHER,
        }
    }
}

/// The fields of an SCTP packet for connection tracking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SctpPacket {
    /// The tag that the receiver chose for the association; 0 in INIT alone.
    pub verification_tag: u32,
    /// INIT and INIT ACK: the tag for packets in the other direction. 0 in all others.
    pub initiate_tag: u32,
    /// Its chunks, in bits of [`chunk`].
    pub chunks: u16,
    /// ABORT and SHUTDOWN COMPLETE: the tag is the receiver's peer's (T bit).
    pub reflects_tag: bool,
}

impl SctpPacket {
    /// Whether it contains any of these chunks, in bits of [`chunk`].
    #[must_use]
    pub const fn has(&self, chunks: u16) -> bool {
        self.chunks & chunks != 0
    }
}

/// A checked view of an SCTP packet.
#[derive(Clone, Copy, Debug)]
pub struct SctpView<'a> {
    header: &'a [u8; SCTP_HEADER_BYTES],
    packet: &'a [u8],
}

impl<'a> SctpView<'a> {
    /// Views the payload of an IP packet.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: it is shorter than the common header.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let header = bytes.first_chunk().ok_or(DropReason::Malformed)?;
        Ok(Self { header, packet: bytes })
    }

    /// Source port.
    #[must_use]
    pub const fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Destination port.
    #[must_use]
    pub const fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Whether the checksum is valid.
    #[must_use]
    pub fn checksum_is_right(&self) -> bool {
        self.header[SCTP_CHECKSUM_OFFSET..] == checksum(self.packet).to_le_bytes()
    }

    /// Parses the packet. In a first fragment (`is_whole` false) the last chunk may be truncated.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: there is no chunk, one does not fit, a chunk must not share the packet, or a tag is
    /// wrongly zero or non-zero.
    pub fn packet(&self, is_whole: bool) -> Result<SctpPacket, DropReason> {
        let tag = self.header.get(VERIFICATION_TAG_OFFSET..).and_then(|rest| rest.first_chunk());
        let mut packet =
            SctpPacket { verification_tag: u32::from_be_bytes(*tag.unwrap_or(&[0; 4])), ..SctpPacket::default() };
        let mut rest = &self.packet[SCTP_HEADER_BYTES..];
        while let Some(&[kind, flags, high, low]) = rest.first_chunk::<CHUNK_HEADER_BYTES>() {
            let length = usize::from(u16::from_be_bytes([high, low]));
            if length < CHUNK_HEADER_BYTES || (length > rest.len() && is_whole) {
                return Err(DropReason::Malformed);
            }
            let bit = chunk::of_type(kind);
            if packet.chunks != 0 && (bit | packet.chunks) & chunk::ALONE != 0
                || packet.has(!0) && bit & chunk::FIRST != 0
            {
                return Err(DropReason::Malformed);
            }
            packet.chunks |= bit;
            packet.reflects_tag |= bit & (chunk::ABORT | chunk::SHUTDOWN_COMPLETE) != 0 && flags & T_BIT != 0;
            if bit & (chunk::INIT | chunk::INIT_ACK) != 0 {
                let body =
                    rest.get(..length).filter(|body| body.len() >= INIT_BYTES_MIN).ok_or(DropReason::Malformed)?;
                packet.initiate_tag = u32::from_be_bytes([body[4], body[5], body[6], body[7]]);
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        let is_init = packet.has(chunk::INIT);
        let tags_are_right = is_init == (packet.verification_tag == 0)
            && packet.has(chunk::INIT | chunk::INIT_ACK) == (packet.initiate_tag != 0);
        if packet.chunks != 0 && tags_are_right { Ok(packet) } else { Err(DropReason::Malformed) }
    }
}

/// The CRC32c for the checksum field of `packet`, computed with a zero field; the field stores it with the low byte
/// first (RFC 9260 appendix A).
#[must_use]
pub fn checksum(packet: &[u8]) -> u32 {
    let field = SCTP_CHECKSUM_OFFSET.min(packet.len())..SCTP_HEADER_BYTES.min(packet.len());
    let crc = crc32c(!0, &packet[..field.start]);
    let crc = crc32c(crc, &[0; 4][..field.len()]);
    !crc32c(crc, &packet[field.end..])
}

/// Stores the checksum in its field. Returns false, without changes, when `packet` is shorter than the common header.
pub(super) fn fill_checksum(packet: &mut [u8]) -> bool {
    let checksum = checksum(packet).to_le_bytes();
    let field = packet.get_mut(SCTP_CHECKSUM_OFFSET..SCTP_HEADER_BYTES);
    field.map(|field| field.copy_from_slice(&checksum)).is_some()
}

/// Bytes that are taken at a time: a table for each.
const SLICE_BYTES: usize = 8;

/// `TABLES[n][byte]`: what `byte` becomes when `n` bytes follow it.
static TABLES: [[u32; 256]; SLICE_BYTES] = {
    /// The Castagnoli polynomial, bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut tables = [[0; 256]; SLICE_BYTES];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < SLICE_BYTES {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
};

/// The CRC32c of `bytes` (RFC 9260 appendix A).
#[must_use]
pub fn crc32c_of(bytes: &[u8]) -> u32 {
    !crc32c(!0, bytes)
}

/// The CRC's register after `bytes`.
fn crc32c(mut crc: u32, bytes: &[u8]) -> u32 {
    let (slices, rest) = bytes.as_chunks::<SLICE_BYTES>();
    for slice in slices {
        let [a, b, c, d] = crc.to_le_bytes();
        let mixed = [slice[0] ^ a, slice[1] ^ b, slice[2] ^ c, slice[3] ^ d, slice[4], slice[5], slice[6], slice[7]];
        crc = mixed.iter().zip(TABLES.iter().rev()).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    for byte in rest {
        crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn packet(tag: u32, chunks: &[&[u8]]) -> Vec<u8> {
        let mut packet = vec![0x10, 0, 0x20, 0];
        packet.extend(tag.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(chunks.concat());
        packet
    }

    fn read(tag: u32, chunks: &[&[u8]]) -> Result<SctpPacket, DropReason> {
        SctpView::new_checked(&packet(tag, chunks)).unwrap().packet(true)
    }

    fn init(kind: u8, tag: u32) -> Vec<u8> {
        let mut init = vec![kind, 0, 0, 20];
        init.extend(tag.to_be_bytes());
        init.extend([0; 12]);
        init
    }

    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        // The check value of CRC-32C (RFC 3720 appendix B.4 has others).
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(!crc32c(!0, &[0xff; 32]), 0x62a8_ab43);
    }

    proptest! {
        #[test]
        fn slicing_equals_the_bytewise_sum(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
            let one_by_one = bytes.iter().fold(!0, |crc, byte| crc32c(crc, &[*byte]));
            prop_assert_eq!(crc32c(!0, &bytes), one_by_one);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), is_whole: bool) {
            if let Ok(view) = SctpView::new_checked(&bytes) {
                let _ = (view.packet(is_whole), view.checksum_is_right());
            }
        }
    }

    #[test]
    fn the_chunks_of_a_packet_are_read() {
        let data: &[u8] = &[0, 3, 0, 17, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0];
        let expected =
            SctpPacket { verification_tag: 9, chunks: chunk::COOKIE_ECHO | chunk::OTHER, ..SctpPacket::default() };
        assert_eq!(read(9, &[&[10, 0, 0, 8, 1, 2, 3, 4], data]), Ok(expected));
        let asked = read(0, &[&init(1, 7)]).unwrap();
        assert_eq!((asked.chunks, asked.initiate_tag), (chunk::INIT, 7));
        assert!(read(9, &[&[6, 1, 0, 4]]).unwrap().reflects_tag);
        assert!(!read(9, &[&[6, 0, 0, 4]]).unwrap().reflects_tag);
    }

    #[test]
    fn packets_that_no_stack_sends_are_refused() {
        let cookie_ack: &[u8] = &[11, 0, 0, 4];
        let sack: &[u8] = &[3, 0, 0, 4];
        for (what, tag, chunks) in [
            ("no chunk", 9, vec![]),
            ("a chunk shorter than its header", 9, vec![&[3, 0, 0, 3][..]]),
            ("a chunk longer than the packet", 9, vec![&[3, 0, 0, 9, 0, 0, 0, 0][..]]),
            ("an INIT with company", 0, vec![&init(1, 7)[..], sack]),
            ("company with an INIT ACK", 9, vec![sack, &init(2, 7)[..]]),
            ("an INIT with a verification tag", 9, vec![&init(1, 7)[..]]),
            ("an INIT whose tag is zero", 0, vec![&init(1, 0)[..]]),
            ("no verification tag", 0, vec![sack]),
            ("a COOKIE ACK that is not first", 9, vec![sack, cookie_ack]),
            ("half an INIT", 0, vec![&init(1, 7)[..12]]),
        ] {
            assert_eq!(read(tag, &chunks), Err(DropReason::Malformed), "{what}");
        }
        let truncated = packet(9, &[&[0, 3, 0, 100, 1, 2]]);
        assert_eq!(
            SctpView::new_checked(&truncated).unwrap().packet(false).unwrap().chunks,
            chunk::OTHER,
            "a first fragment"
        );
    }
}
