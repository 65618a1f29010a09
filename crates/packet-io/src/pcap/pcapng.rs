//! The pcapng format (draft-ietf-opsawg-pcapng): sections of blocks, packets of several interfaces.
//!
//! ```text
//! block             type | total length | body … | total length            (each a u32, body padded to 4 bytes)
//! section header    byte order | version 1.x | section length | options
//! interface         link type | 0 | snapshot length | options (name, resolution of timestamps)
//! enhanced packet   interface | timestamp (2 × u32) | bytes in the file | bytes on the wire | frame | options
//! simple packet     bytes on the wire | frame
//! ```
//! Blocks of other kinds are passed over unread, so that memory is bounded by one frame whatever the file holds.

use std::io::{self, Read, Write};

use flow::Instant;

use super::format::{PcapError, SNAPSHOT_BYTES_MAX, fill};
use super::link_type::LinkType;

/// The maximum number of interfaces of a section; a file that states more is damaged.
pub const CAPTURE_INTERFACES_MAX: usize = 256;
/// The maximum size of an interface's description, in bytes.
const INTERFACE_BLOCK_BYTES_MAX: u32 = 64 << 10;

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Type, and total length twice.
const BLOCK_OVERHEAD_BYTES: u32 = 12;
const SECTION_FIELDS_BYTES: u32 = 16;
const PACKET_FIELDS_BYTES: u32 = 20;

mod option {
    //! Options of an interface, and of a packet.
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    pub(super) const NAME: u16 = 2;
    pub(super) const TIMESTAMP_RESOLUTION: u16 = 9;
    pub(super) const TIMESTAMP_OFFSET: u16 = 14;
}

/// An interface of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureInterface {
    /// The interface's name on the capturing system, if present.
    pub name: Option<String>,
    /// The type of its link headers.
    pub link_type: LinkType,
    /// The maximum number of captured bytes of a frame; 0: all.
    snapshot_bytes: u32,
    /// Units of its timestamps in a second.
    units_per_s: u64,
    /// The offset of its timestamps in seconds.
    offset_s: i64,
}

impl CaptureInterface {
    /// An interface without a name, with the format's default timestamp resolution.
    pub(super) const fn new(link_type: LinkType) -> Self {
        Self { name: None, link_type, snapshot_bytes: 0, units_per_s: 1_000_000, offset_s: 0 }
    }

    fn instant(&self, units: u64) -> Instant {
        let nanos = u128::from(units) * 1_000_000_000 / u128::from(self.units_per_s);
        let offset = i128::from(self.offset_s) * 1_000_000_000;
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(offset);
        Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

/// The metadata of a frame in a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaptureRecord {
    /// When it was captured, from the Unix epoch on. A simple packet has no time and gets that of the one before.
    pub timestamp: Instant,
    /// Its length on the wire; the file may contain fewer bytes.
    pub wire_bytes: u32,
    /// The index of its interface among the reader's interfaces at this position of the file.
    pub interface: usize,
}

/// Reads pcapng. Give it a buffered reader.
#[derive(Debug)]
pub(super) struct PcapngReader<R> {
    reader: R,
    big_endian: bool,
    interfaces: Vec<CaptureInterface>,
    last: Instant,
}

const fn damaged(what: &'static str) -> PcapError {
    PcapError::DamagedBlock(what)
}

impl<R: Read> PcapngReader<R> {
    /// Reads the header of the first section.
    pub(super) fn new(reader: R) -> Result<Self, PcapError> {
        let mut new = Self { reader, big_endian: false, interfaces: Vec::new(), last: Instant::ZERO };
        let head = new.bytes::<8>()?;
        new.begin_section([head[4], head[5], head[6], head[7]])?;
        Ok(new)
    }

    /// The interfaces of the current section that were described so far.
    pub(super) fn interfaces(&self) -> &[CaptureInterface] {
        &self.interfaces
    }

    /// Reads up to the next packet, whose bytes replace those in `frame`.
    pub(super) fn read(&mut self, frame: &mut Vec<u8>) -> Result<Option<CaptureRecord>, PcapError> {
        loop {
            let mut head = [0; 8];
            if !fill(&mut self.reader, &mut head)? {
                return Ok(None);
            }
            let kind = self.u32_at(&head, 0);
            if kind == SECTION_HEADER {
                self.begin_section([head[4], head[5], head[6], head[7]])?;
                continue;
            }
            let body_bytes = body_bytes(self.u32_at(&head, 4))?;
            let record = match kind {
                INTERFACE => self.read_interface(body_bytes).map(|()| None)?,
                ENHANCED_PACKET | OBSOLETE_PACKET => Some(self.read_packet(kind, body_bytes, frame)?),
                SIMPLE_PACKET => Some(self.read_simple_packet(body_bytes, frame)?),
                _ => self.skip(body_bytes).map(|()| None)?,
            };
            self.end_block(body_bytes)?;
            if let Some(record) = record {
                self.last = record.timestamp;
                return Ok(Some(record));
            }
        }
    }

    /// A section has its own byte order and its own interfaces.
    fn begin_section(&mut self, total_length: [u8; 4]) -> Result<(), PcapError> {
        let fields = self.bytes::<{ SECTION_FIELDS_BYTES as usize }>()?;
        let magic = u32::from_le_bytes([fields[0], fields[1], fields[2], fields[3]]);
        self.big_endian = match (magic, magic.swap_bytes()) {
            (BYTE_ORDER_MAGIC, _) => false,
            (_, BYTE_ORDER_MAGIC) => true,
            _ => return Err(damaged("a section has no byte order")),
        };
        let version = self.u16_at(&fields, 4);
        if version != 1 {
            return Err(PcapError::BadVersion(version));
        }
        let body_bytes = body_bytes(self.u32_at(&total_length, 0))?;
        self.interfaces.clear();
        self.skip(body_bytes.checked_sub(SECTION_FIELDS_BYTES).ok_or(damaged("a section header is too short"))?)?;
        self.end_block(body_bytes)
    }

    fn read_interface(&mut self, body_bytes: u32) -> Result<(), PcapError> {
        if !(8..=INTERFACE_BLOCK_BYTES_MAX).contains(&body_bytes) {
            return Err(damaged("the description of an interface is too short or too long"));
        }
        if self.interfaces.len() == CAPTURE_INTERFACES_MAX {
            return Err(damaged("a section has more than 256 interfaces"));
        }
        let mut body = vec![0; body_bytes as usize];
        self.need(&mut body)?;
        let mut interface = CaptureInterface {
            snapshot_bytes: self.u32_at(&body, 4),
            ..CaptureInterface::new(LinkType::from_number(self.u16_at(&body, 0).into()))
        };
        let mut options = &body[8..];
        while options.len() >= 4 {
            let (kind, length_bytes) = (self.u16_at(options, 0), usize::from(self.u16_at(options, 2)));
            let value = options.get(4..4 + length_bytes).ok_or(damaged("an option of an interface is too long"))?;
            match (kind, value) {
                (option::END, _) => break,
                (option::NAME, name) => interface.name = Some(String::from_utf8_lossy(name).into_owned()),
                (option::TIMESTAMP_RESOLUTION, &[exponent]) => interface.units_per_s = units_per_s(exponent)?,
                (option::TIMESTAMP_OFFSET, value) if value.len() == 8 => {
                    let (first, second) = (self.u32_at(value, 0), self.u32_at(value, 4));
                    let (high, low) = if self.big_endian { (first, second) } else { (second, first) };
                    interface.offset_s = (u64::from(high) << 32 | u64::from(low)).cast_signed();
                }
                _ => {}
            }
            options = options.get(4 + length_bytes.next_multiple_of(4)..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn read_packet(&mut self, kind: u32, body_bytes: u32, frame: &mut Vec<u8>) -> Result<CaptureRecord, PcapError> {
        let rest_bytes = body_bytes.checked_sub(PACKET_FIELDS_BYTES).ok_or(damaged("a packet block is too short"))?;
        let fields = self.bytes::<{ PACKET_FIELDS_BYTES as usize }>()?;
        let interface = match kind {
            // The block's former format: two bytes of interface and two of a drop count.
            OBSOLETE_PACKET => u32::from(self.u16_at(&fields, 0)),
            _ => self.u32_at(&fields, 0),
        };
        let units = u64::from(self.u32_at(&fields, 4)) << 32 | u64::from(self.u32_at(&fields, 8));
        let described = self.interface(interface)?.instant(units);
        self.read_frame(self.u32_at(&fields, 12), rest_bytes, frame)?;
        let wire_bytes = self.u32_at(&fields, 16);
        Ok(CaptureRecord { timestamp: described, wire_bytes, interface: interface as usize })
    }

    fn read_simple_packet(&mut self, body_bytes: u32, frame: &mut Vec<u8>) -> Result<CaptureRecord, PcapError> {
        let rest_bytes = body_bytes.checked_sub(4).ok_or(damaged("a packet block is too short"))?;
        let fields = self.bytes::<4>()?;
        let wire_bytes = self.u32_at(&fields, 0);
        let kept_bytes = match self.interface(0)?.snapshot_bytes {
            0 => wire_bytes,
            limit => wire_bytes.min(limit),
        };
        self.read_frame(kept_bytes.min(rest_bytes), rest_bytes, frame)?;
        Ok(CaptureRecord { timestamp: self.last, wire_bytes, interface: 0 })
    }

    /// Reads a frame, and skips the rest of its block.
    fn read_frame(&mut self, frame_bytes: u32, rest_bytes: u32, frame: &mut Vec<u8>) -> Result<(), PcapError> {
        if frame_bytes > SNAPSHOT_BYTES_MAX {
            return Err(PcapError::OversizedRecord(frame_bytes));
        }
        let behind_bytes = rest_bytes.checked_sub(frame_bytes).ok_or(damaged("a packet is longer than its block"))?;
        frame.resize(frame_bytes as usize, 0);
        self.need(frame)?;
        self.skip(behind_bytes)
    }

    fn interface(&self, number: u32) -> Result<&CaptureInterface, PcapError> {
        self.interfaces.get(number as usize).ok_or(damaged("a packet is of an interface that was not described"))
    }

    /// The length is repeated behind each block, so that files can be read backwards.
    fn end_block(&mut self, body_bytes: u32) -> Result<(), PcapError> {
        let trailer = self.bytes::<4>()?;
        let agrees = self.u32_at(&trailer, 0) == body_bytes + BLOCK_OVERHEAD_BYTES;
        if agrees { Ok(()) } else { Err(damaged("a block's two lengths differ")) }
    }

    fn bytes<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], PcapError> {
        let mut bytes = [0; COUNT];
        self.need(&mut bytes)?;
        Ok(bytes)
    }

    fn need(&mut self, bytes: &mut [u8]) -> Result<(), PcapError> {
        if fill(&mut self.reader, bytes)? { Ok(()) } else { Err(PcapError::Truncated) }
    }

    fn skip(&mut self, bytes: u32) -> Result<(), PcapError> {
        let skipped = io::copy(&mut (&mut self.reader).take(bytes.into()), &mut io::sink())?;
        if skipped == u64::from(bytes) { Ok(()) } else { Err(PcapError::Truncated) }
    }

    fn u16_at(&self, bytes: &[u8], at: usize) -> u16 {
        let field = [bytes[at], bytes[at + 1]];
        if self.big_endian { u16::from_be_bytes(field) } else { u16::from_le_bytes(field) }
    }

    fn u32_at(&self, bytes: &[u8], at: usize) -> u32 {
        let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(field) } else { u32::from_le_bytes(field) }
    }
}

/// A block's bytes between its head and its trailer.
fn body_bytes(total_bytes: u32) -> Result<u32, PcapError> {
    let body_bytes = total_bytes.checked_sub(BLOCK_OVERHEAD_BYTES).filter(|bytes| bytes.is_multiple_of(4));
    body_bytes.ok_or(damaged("a block's length is impossible"))
}

/// The option `if_tsresol`: a negative power of 10, or of 2 if the highest bit is set.
fn units_per_s(exponent: u8) -> Result<u64, PcapError> {
    let power = u32::from(exponent & 0x7f);
    let units = if exponent & 0x80 == 0 { 10_u64.checked_pow(power) } else { 1_u64.checked_shl(power) };
    units.ok_or(damaged("timestamps have an impossible resolution"))
}

/// Writes pcapng with nanosecond timestamps, little-endian. Give it a buffered writer.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    writer: W,
}

impl<W: Write> PcapngWriter<W> {
    /// Writes the header of a section with an Ethernet interface for each of the names.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new<'a>(writer: W, interfaces: impl IntoIterator<Item = &'a str>) -> Result<Self, PcapError> {
        let mut new = Self { writer };
        let mut body = Vec::new();
        body.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        body.extend_from_slice(&1_u16.to_le_bytes());
        body.extend_from_slice(&0_u16.to_le_bytes());
        // The section's length is not known yet.
        body.extend_from_slice(&u64::MAX.to_le_bytes());
        new.block(SECTION_HEADER, &[&body])?;
        for name in interfaces {
            body.clear();
            body.extend_from_slice(&1_u32.to_le_bytes());
            body.extend_from_slice(&SNAPSHOT_BYTES_MAX.to_le_bytes());
            put_option(&mut body, option::NAME, name.as_bytes());
            put_option(&mut body, option::TIMESTAMP_RESOLUTION, &[9]);
            put_option(&mut body, option::END, &[]);
            new.block(INTERFACE, &[&body])?;
        }
        Ok(new)
    }

    /// Hands everything written so far to the file, so that a reader sees whole blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), PcapError> {
        Ok(self.writer.flush()?)
    }

    /// Appends a frame of `wire_bytes` on `interface`, an index of the writer's names; `frame` holds its beginning.
    ///
    /// # Errors
    /// The frame is larger than [`SNAPSHOT_BYTES_MAX`], or the file cannot be written.
    pub fn write(
        &mut self,
        interface: usize,
        timestamp: Instant,
        frame: &[u8],
        wire_bytes: u32,
    ) -> Result<(), PcapError> {
        self.write_commented(interface, timestamp, frame, wire_bytes, None)
    }

    /// As [`PcapngWriter::write`], with a comment that readers show beside the packet.
    ///
    /// # Errors
    /// As [`PcapngWriter::write`].
    pub fn write_commented(
        &mut self,
        interface: usize,
        timestamp: Instant,
        frame: &[u8],
        wire_bytes: u32,
        comment: Option<&str>,
    ) -> Result<(), PcapError> {
        let bytes = u32::try_from(frame.len()).ok().filter(|bytes| *bytes <= SNAPSHOT_BYTES_MAX);
        let bytes = bytes.ok_or(PcapError::OversizedFrame(frame.len()))?;
        let nanos = timestamp.as_nanos();
        let interface = u32::try_from(interface).unwrap_or(u32::MAX);
        let mut fields = [0; PACKET_FIELDS_BYTES as usize];
        let numbers = [interface, (nanos >> 32) as u32, nanos as u32, bytes, wire_bytes];
        for (field, number) in fields.chunks_exact_mut(4).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        // Options begin on a boundary of four bytes.
        let padding = &[0; 3][..frame.len().next_multiple_of(4) - frame.len()];
        let mut options = Vec::new();
        if let Some(comment) = comment {
            put_option(&mut options, option::COMMENT, comment.as_bytes());
            put_option(&mut options, option::END, &[]);
        }
        self.block(ENHANCED_PACKET, &[&fields, frame, padding, &options])
    }

    /// Flushes the buffer and returns the writer.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<W, PcapError> {
        self.writer.flush()?;
        Ok(self.writer)
    }

    fn block(&mut self, kind: u32, parts: &[&[u8]]) -> Result<(), PcapError> {
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let padding_bytes = body_bytes.next_multiple_of(4) - body_bytes;
        let total = u32::try_from(body_bytes + padding_bytes).unwrap_or(u32::MAX).saturating_add(BLOCK_OVERHEAD_BYTES);
        self.writer.write_all(&kind.to_le_bytes())?;
        self.writer.write_all(&total.to_le_bytes())?;
        for part in parts {
            self.writer.write_all(part)?;
        }
        self.writer.write_all(&[0; 3][..padding_bytes])?;
        Ok(self.writer.write_all(&total.to_le_bytes())?)
    }
}

fn put_option(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // A name that is too long for the format is truncated.
    let value = &value[..value.len().min(usize::from(u16::MAX) - 3)];
    body.extend_from_slice(&kind.to_le_bytes());
    body.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
