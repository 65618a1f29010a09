//! Records in the stream of a session, each behind its kind and its length:
//!
//! ```text
//! +------+--------------------+
//! | kind | bytes of body, u24 |
//! +------+--------------------+
//! kind 1: a packet as it is; 2: a packet whose payload is a block with a shim
//!         bytes of header u16, header (IP and transport), payload or block
//! kind 3, 4: as 1 and 2, of a packet that stands for several:
//!         how it is cut u8, bytes of payload of each u16, bytes of header of each u16; then as above
//! kind 5: from the encoder to the decoder; 6: from the decoder to the encoder (redundancy::wire::control)
//! ```
//! A record may begin in one datagram and end in another, so none is too long for the path.

use alloc::vec::Vec;

use flow::{Segmentation, SegmentationKind};

use super::limits::RECORD_BYTES_MAX;

/// Bytes before a record's body.
const RECORD_HEADER_BYTES: usize = 4;
const SEGMENTED: u8 = 2;

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// A packet.
    Packet(PacketRecord<'a>),
    /// What the encoder says.
    FromEncoder(&'a [u8]),
    /// What the decoder says.
    FromDecoder(&'a [u8]),
}

/// A packet in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRecord<'a> {
    /// The payload is a block with a shim.
    pub is_coded: bool,
    /// How it is cut into the packets that it stands for.
    pub segmentation: Segmentation,
    /// Its headers.
    pub header: &'a [u8],
    /// What follows them.
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends it to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        let kind = match self {
            Self::Packet(PacketRecord { is_coded, segmentation, header, payload }) => {
                let is_segmented = segmentation.kind != SegmentationKind::None;
                if is_segmented {
                    put_segmentation(segmentation, out);
                }
                out.extend_from_slice(&(header.len() as u16).to_be_bytes());
                out.extend_from_slice(header);
                out.extend_from_slice(payload);
                1 + u8::from(*is_coded) + if is_segmented { SEGMENTED } else { 0 }
            }
            Self::FromEncoder(message) => {
                out.extend_from_slice(message);
                5
            }
            Self::FromDecoder(message) => {
                out.extend_from_slice(message);
                6
            }
        };
        let length = ((out.len() - begin - RECORD_HEADER_BYTES) as u32).to_be_bytes();
        out[begin..begin + RECORD_HEADER_BYTES].copy_from_slice(&[kind, length[1], length[2], length[3]]);
    }

    /// Reads a record's body. `None`: it is none.
    fn read(kind: u8, body: &'a [u8]) -> Option<Self> {
        match kind {
            1..=4 => {
                let (is_coded, is_segmented) = (kind.is_multiple_of(2), kind > SEGMENTED);
                let (segmentation, body) =
                    if is_segmented { read_segmentation(body)? } else { (Segmentation::default(), body) };
                let (length, body) = body.split_first_chunk::<2>()?;
                let (header, payload) = body.split_at_checked(u16::from_be_bytes(*length).into())?;
                Some(Self::Packet(PacketRecord { is_coded, segmentation, header, payload }))
            }
            5 => Some(Self::FromEncoder(body)),
            6 => Some(Self::FromDecoder(body)),
            _ => None,
        }
    }
}

fn put_segmentation(segmentation: &Segmentation, out: &mut Vec<u8>) {
    let kind = match segmentation.kind {
        SegmentationKind::None => 0,
        SegmentationKind::TcpIpv4 => 1,
        SegmentationKind::TcpIpv6 => 2,
        SegmentationKind::Udp => 3,
    };
    out.push(kind | u8::from(segmentation.ecn) << 7);
    out.extend_from_slice(&segmentation.size_bytes.to_be_bytes());
    out.extend_from_slice(&segmentation.header_bytes.to_be_bytes());
}

fn read_segmentation(body: &[u8]) -> Option<(Segmentation, &[u8])> {
    let ([kind, s0, s1, h0, h1], body) = body.split_first_chunk::<5>()?;
    let ecn = kind & 0x80 != 0;
    let kind = match kind & 0x7f {
        1 => SegmentationKind::TcpIpv4,
        2 => SegmentationKind::TcpIpv6,
        3 => SegmentationKind::Udp,
        _ => return None,
    };
    let (size_bytes, header_bytes) = (u16::from_be_bytes([*s0, *s1]), u16::from_be_bytes([*h0, *h1]));
    (size_bytes > 0).then_some((Segmentation { kind, size_bytes, header_bytes, ecn }, body))
}

/// Puts records together from the bodies of datagrams.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    /// The beginning of the stream that is not taken yet.
    bytes: Vec<u8>,
    taken: usize,
    /// Something is missing before what comes next: it is of use from the next record's beginning on.
    is_torn: bool,
}

impl Reassembly {
    /// What was begun has no end: the datagram that follows is lost.
    pub fn tear(&mut self) {
        self.bytes.truncate(self.taken);
        self.is_torn = true;
        // Whole records that lie before the tear were taken before the next datagram is handed in.
    }

    /// The body of the next datagram.
    pub fn handle_body(&mut self, first_record: Option<u16>, body: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let from = if !self.is_torn {
            0
        } else if let Some(first) = first_record {
            self.is_torn = false;
            usize::from(first)
        } else {
            return;
        };
        self.bytes.extend_from_slice(body.get(from..).unwrap_or_default());
    }

    /// The next record that is whole. To be polled after every body until there is none.
    pub fn poll(&mut self) -> Option<Record<'_>> {
        loop {
            let rest = self.bytes.get(self.taken..).unwrap_or_default();
            let (&[kind, a, b, c], after) = rest.split_first_chunk::<RECORD_HEADER_BYTES>()?;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if length > RECORD_BYTES_MAX {
                // Nobody sends that: whoever did is not understood before its next datagram.
                self.bytes.clear();
                self.taken = 0;
                self.is_torn = true;
                return None;
            }
            if after.len() < length {
                return None;
            }
            let start = self.taken + RECORD_HEADER_BYTES;
            self.taken = start + length;
            if Record::read(kind, &self.bytes[start..start + length]).is_some() {
                return Record::read(kind, &self.bytes[start..start + length]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn packet(payload: &[u8]) -> Record<'_> {
        let segmentation = Segmentation::default();
        Record::Packet(PacketRecord { is_coded: true, segmentation, header: b"header", payload })
    }

    #[test]
    fn records_come_out_of_whatever_pieces_they_were_cut_into() {
        let segmentation =
            Segmentation { kind: SegmentationKind::TcpIpv6, size_bytes: 1440, header_bytes: 86, ecn: true };
        let long = vec![7; 60_000];
        let whole = PacketRecord { is_coded: false, segmentation, header: b"h", payload: &long };
        let records = [packet(b"one"), Record::Packet(whole), Record::FromEncoder(b"hello"), Record::FromDecoder(b"")];
        for piece_bytes in [1, 3, 7, 1000, 100_000] {
            let mut stream = Vec::new();
            records.iter().for_each(|record| record.write(&mut stream));
            let mut reassembly = Reassembly::default();
            let mut found = 0;
            for piece in stream.chunks(piece_bytes) {
                reassembly.handle_body(None, piece);
                while let Some(record) = reassembly.poll() {
                    assert_eq!(record, records[found]);
                    found += 1;
                }
            }
            assert_eq!(found, records.len(), "in pieces of {piece_bytes}");
        }
    }

    #[test]
    fn after_a_loss_the_next_record_that_begins_is_understood() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        packet(b"lost in part").write(&mut first);
        packet(b"whole").write(&mut second);
        let mut reassembly = Reassembly::default();
        reassembly.handle_body(Some(0), &first[..9]);
        assert_eq!(reassembly.poll(), None);
        reassembly.tear();
        reassembly.handle_body(None, b"of the middle of some record");
        assert_eq!(reassembly.poll(), None);
        let rest = [b"the end", &second[..]].concat();
        reassembly.handle_body(Some(7), &rest);
        assert_eq!(reassembly.poll(), Some(packet(b"whole")));
        assert_eq!(reassembly.poll(), None);
    }

    #[test]
    fn a_record_of_an_unknown_kind_is_passed_over_and_an_endless_one_ends_nothing_but_itself() {
        let mut stream = vec![99, 0, 0, 2, 1, 2];
        packet(b"known").write(&mut stream);
        let mut reassembly = Reassembly::default();
        reassembly.handle_body(Some(0), &stream);
        assert_eq!(reassembly.poll(), Some(packet(b"known")));
        reassembly.handle_body(Some(0), &[1, 255, 255, 255, 0]);
        assert_eq!(reassembly.poll(), None);
        reassembly.handle_body(Some(0), &stream);
        assert_eq!(reassembly.poll(), Some(packet(b"known")));
    }
}
