//! Records in the stream of a session, each behind its kind and its length:
//!
//! ```text
//! +------+------------------------+
//! | kind | bytes of body, number  |     a number has seven bits in a byte, the lowest first
//! +------+------------------------+
//! kind 1:       from the encoder to the decoder; 2: from the decoder to the encoder (redundancy::wire::control)
//! kind 3:       headers of this place are not remembered: number
//! kind 4:       records compressed together (redundancy::second_stage)
//! kind 16 to 31: a packet with its headers as they are: bytes of headers number, headers, payload. Of the kind's bits,
//!               1: the payload is a block with a shim
//! 2: it stands for several packets; first comes how it is segmented u8, bytes of payload of each u16, of header u16 4:
//! the headers are to be remembered; before them comes the place, number (place · 8 + version) 8: the payload is as it
//! was and is filed in the packet cache all the same (redundancy::Encoding::PlainCached) kind 32, 33, 40: a packet with
//! small headers ([`super::header`]), then payload or block; bits 1 and 8 as above
//! ```
//! A record may begin in one datagram and end in another, so none is too long for the path.

use alloc::vec::Vec;

use flow::{Segmentation, SegmentationKind};
use redundancy::Encoding;

use super::header::{PLACES, Remembered, put_number, segmentation_bytes, segmentation_of, take_number};
use super::limits::RECORD_BYTES_MAX;

/// Bytes before a record's body, at most.
const RECORD_HEADER_BYTES_MAX: usize = 4;
const FROM_ENCODER: u8 = 1;
const FROM_DECODER: u8 = 2;
const FORGOTTEN: u8 = 3;
const BUNDLE: u8 = 4;
const WHOLE: u8 = 16;
const SMALL: u8 = 32;
/// Bits of a packet's kind.
const CODED: u8 = 1;
const SEGMENTED: u8 = 2;
const REMEMBERED: u8 = 4;
const FILED: u8 = 8;

/// What a packet's payload is in its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadForm {
    /// As it was.
    Plain,
    /// As it was, and both ends' caches have it.
    Filed,
    /// A block with a shim.
    Coded,
}

impl PayloadForm {
    const fn bits(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Filed => FILED,
            Self::Coded => CODED,
        }
    }

    const fn of(kind: u8) -> Option<Self> {
        match kind & (FILED | CODED) {
            0 => Some(Self::Plain),
            FILED => Some(Self::Filed),
            CODED => Some(Self::Coded),
            _ => None,
        }
    }
}

impl From<Encoding> for PayloadForm {
    fn from(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Plain => Self::Plain,
            Encoding::PlainCached => Self::Filed,
            Encoding::Literal | Encoding::Encoded => Self::Coded,
        }
    }
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// A packet.
    Packet(PacketRecord<'a>),
    /// A packet with small headers, and what follows them.
    Small {
        /// What the payload is.
        form: PayloadForm,
        /// Small headers and payload.
        bytes: &'a [u8],
    },
    /// The encoder's messages.
    FromEncoder(&'a [u8]),
    /// The decoder's messages.
    FromDecoder(&'a [u8]),
    /// The other end of the headers does not remember what it was thought to, at this place.
    Forgotten(u16),
    /// Records compressed together.
    Bundle(&'a [u8]),
}

/// A packet in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRecord<'a> {
    /// What the payload is.
    pub form: PayloadForm,
    /// How it is cut into the packets that it stands for.
    pub segmentation: Segmentation,
    /// Where the headers are to be remembered: place and version.
    pub remembered: Option<(u16, u8)>,
    /// Its headers.
    pub header: &'a [u8],
    /// What follows them.
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends it to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        match self {
            Self::Packet(packet) => {
                out.push(packet.kind());
                put_number(out, packet.length() as u32);
                packet.write_body(out);
            }
            Self::Small { form, bytes } => put(SMALL | form.bits(), bytes, out),
            Self::FromEncoder(message) => put(FROM_ENCODER, message, out),
            Self::FromDecoder(message) => put(FROM_DECODER, message, out),
            Self::Forgotten(place) => {
                let length_bytes = if *place < 0x80 { 1 } else { 2 };
                out.extend_from_slice(&[FORGOTTEN, length_bytes]);
                put_number(out, (*place).into());
            }
            Self::Bundle(bundle) => put(BUNDLE, bundle, out),
        }
        debug_assert!(out.len() - begin <= RECORD_BYTES_MAX + RECORD_HEADER_BYTES_MAX);
    }

    /// Reads the first record of several that follow one another whole, and takes it off. `None`: there is none.
    pub fn take(rest: &mut &'a [u8]) -> Option<Self> {
        while let Some((&kind, mut after)) = rest.split_first() {
            let length = take_number(&mut after)? as usize;
            let (body, after) = after.split_at_checked(length)?;
            *rest = after;
            if let Some(record) = Self::read(kind, body) {
                return Some(record);
            }
        }
        None
    }

    /// Reads a record's body. `None`: it is none.
    fn read(kind: u8, body: &'a [u8]) -> Option<Self> {
        match kind {
            FROM_ENCODER => Some(Self::FromEncoder(body)),
            FROM_DECODER => Some(Self::FromDecoder(body)),
            FORGOTTEN => {
                let place = take_number(&mut { body })?;
                u16::try_from(place).ok().filter(|place| usize::from(*place) < PLACES).map(Self::Forgotten)
            }
            BUNDLE => Some(Self::Bundle(body)),
            WHOLE..=31 => PacketRecord::read(kind, body).map(Self::Packet),
            SMALL | 33 | 40 => PayloadForm::of(kind).map(|form| Self::Small { form, bytes: body }),
            _ => None,
        }
    }
}

/// Kind, length and body.
fn put(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_number(out, body.len() as u32);
    out.extend_from_slice(body);
}

impl<'a> PacketRecord<'a> {
    fn is_segmented(&self) -> bool {
        self.segmentation.kind != SegmentationKind::None
    }

    fn kind(&self) -> u8 {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let remembered = bit(self.remembered.is_some(), REMEMBERED);
        WHOLE | self.form.bits() | bit(self.is_segmented(), SEGMENTED) | remembered
    }

    /// What precedes the headers.
    fn write_front(&self, out: &mut Vec<u8>) {
        if self.is_segmented() {
            out.extend_from_slice(&segmentation_bytes(&self.segmentation));
        }
        if let Some((place, version)) = self.remembered {
            put_number(out, u32::from(place) << 3 | u32::from(version & 7));
        }
        put_number(out, self.header.len() as u32);
    }

    fn length(&self) -> usize {
        let mut front = Vec::with_capacity(16);
        self.write_front(&mut front);
        front.len() + self.header.len() + self.payload.len()
    }

    fn write_body(&self, out: &mut Vec<u8>) {
        self.write_front(out);
        out.extend_from_slice(self.header);
        out.extend_from_slice(self.payload);
    }

    fn read(kind: u8, body: &'a [u8]) -> Option<Self> {
        let mut rest = body;
        let mut segmentation = Segmentation::default();
        if kind & SEGMENTED != 0 {
            let (first, after) = rest.split_first_chunk()?;
            segmentation =
                segmentation_of(*first).filter(|segmentation| segmentation.kind != SegmentationKind::None)?;
            rest = after;
        }
        let mut remembered = None;
        if kind & REMEMBERED != 0 {
            let place_and_version = take_number(&mut rest)?;
            let place = u16::try_from(place_and_version >> 3).ok().filter(|place| usize::from(*place) < PLACES)?;
            remembered = Some((place, (place_and_version & 7) as u8));
        }
        let header_bytes = take_number(&mut rest)? as usize;
        let (header, payload) = rest.split_at_checked(header_bytes)?;
        Some(Self { form: PayloadForm::of(kind)?, segmentation, remembered, header, payload })
    }

    /// Where the headers are to be remembered.
    pub(super) fn place(&self) -> Option<Remembered> {
        self.remembered.map(|(place, version)| Remembered { place, version })
    }
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
            let (&kind, mut after) = rest.split_first()?;
            let length = take_number(&mut after).map(|length| length as usize);
            // A length of more bytes than there are may be continued in the next datagram.
            let is_begun = length.is_none() && rest.len() < RECORD_HEADER_BYTES_MAX;
            if is_begun {
                return None;
            }
            let Some(length) = length.filter(|length| *length <= RECORD_BYTES_MAX) else {
                // No end sends that: a sender of it is not understood before its next datagram.
                self.bytes.clear();
                self.taken = 0;
                self.is_torn = true;
                return None;
            };
            if after.len() < length {
                return None;
            }
            let start = self.taken + rest.len() - after.len();
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
        Record::Packet(PacketRecord {
            form: PayloadForm::Coded,
            segmentation,
            remembered: None,
            header: b"header",
            payload,
        })
    }

    #[test]
    fn records_come_out_of_datagrams_of_any_size() {
        let segmentation =
            Segmentation { kind: SegmentationKind::TcpIpv6, size_bytes: 1440, header_bytes: 86, ecn: true };
        let long = vec![7; 60_000];
        let remembered = Some((1000, 5));
        let whole = PacketRecord { form: PayloadForm::Plain, segmentation, remembered, header: b"h", payload: &long };
        let records = [
            packet(b"one"),
            Record::Packet(whole),
            Record::FromEncoder(b"hello"),
            Record::Small { form: PayloadForm::Coded, bytes: b"small" },
            Record::Forgotten(300),
            Record::Forgotten(3),
            Record::Bundle(&long[..5000]),
            Record::FromDecoder(b""),
        ];
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
        let mut stream = Vec::new();
        records.iter().for_each(|record| record.write(&mut stream));
        let mut rest = &stream[..];
        assert!(core::iter::from_fn(|| Record::take(&mut rest)).eq(records), "or one behind the other");
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
        let mut stream = vec![99, 2, 1, 2];
        packet(b"known").write(&mut stream);
        let mut reassembly = Reassembly::default();
        reassembly.handle_body(Some(0), &stream);
        assert_eq!(reassembly.poll(), Some(packet(b"known")));
        reassembly.handle_body(Some(0), &[1, 255, 255, 255, 1]);
        assert_eq!(reassembly.poll(), None);
        reassembly.handle_body(Some(0), &stream);
        assert_eq!(reassembly.poll(), Some(packet(b"known")));
    }
}
