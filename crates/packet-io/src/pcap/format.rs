//! The classic file format.
//!
//! ```text
//! file header (24 bytes)   magic | version 2.4 | zone | accuracy | snapshot length | link type
//! record header (16 bytes) seconds | micro- or nanoseconds | bytes in the file | bytes on the wire
//! ```

use std::io::{self, Read, Write};

use flow::Instant;

use super::link_type::LinkType;

/// The maximum bytes of a frame in a file, as in tcpdump; a file that states more is damaged.
pub const SNAPSHOT_BYTES_MAX: u32 = 262_144;

const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
const LINK_TYPE_ETHERNET: u32 = 1;
/// The link type proper; the upper bits describe frame check sequences.
const LINK_TYPE_MASK: u32 = 0x0fff_ffff;

/// A capture file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file has another format.
    #[error("not a capture (first four bytes {0:#010x}): pcap or pcapng is needed")]
    BadMagic(u32),
    /// The file is compressed.
    #[error("compressed by {0}, which this program cannot read: decompress it ({1} FILE | mainstay … -)")]
    Compressed(&'static str, &'static str),
    /// The file is empty.
    #[error("the file is empty: not even the header of a capture is in it")]
    Empty,
    /// The file has an unknown version (pcap is always 2, pcapng always 1).
    #[error("capture format version {0}: pcap is of version 2, pcapng of version 1")]
    BadVersion(u16),
    /// The frames are not Ethernet.
    #[error("link type {0} instead of Ethernet (1)")]
    NotEthernet(u32),
    /// A record exceeds the maximum length.
    #[error("a record states {0} bytes, more than {SNAPSHOT_BYTES_MAX}: the file is damaged")]
    OversizedRecord(u32),
    /// A block of a pcapng file is inconsistent.
    #[error("{0}: the file is damaged")]
    DamagedBlock(&'static str),
    /// The file ends within a record: it was truncated, or is still being written.
    #[error("the file ends within a record")]
    Truncated,
    /// The frame to be written exceeds the maximum length.
    #[error("a frame of {0} bytes does not fit a record of at most {SNAPSHOT_BYTES_MAX}")]
    OversizedFrame(usize),
    /// An error of the system.
    #[error("reading or writing a capture: {0}")]
    Io(#[from] io::Error),
}

/// The metadata of a frame in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it was captured, from the Unix epoch on.
    pub timestamp: Instant,
    /// Its length on the wire; the file may contain fewer bytes.
    pub wire_bytes: u32,
}

/// Reads a capture, record by record. Give it a buffered reader.
#[derive(Debug)]
pub struct PcapReader<R> {
    reader: R,
    big_endian: bool,
    nanos_per_fraction: u64,
    link_type: u32,
}

impl<R: Read> PcapReader<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// The file is no capture of Ethernet frames, or cannot be read.
    pub fn new(reader: R) -> Result<Self, PcapError> {
        let reader = Self::of_any_link_type(reader)?;
        if reader.link_type == LINK_TYPE_ETHERNET { Ok(reader) } else { Err(PcapError::NotEthernet(reader.link_type)) }
    }

    /// As [`PcapReader::new`], for frames that need not be Ethernet.
    ///
    /// # Errors
    /// The file is no capture, or cannot be read.
    pub(super) fn of_any_link_type(mut reader: R) -> Result<Self, PcapError> {
        let mut header = [0; FILE_HEADER_BYTES];
        if !fill(&mut reader, &mut header)? {
            return Err(PcapError::Truncated);
        }
        let magic = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let (big_endian, nanos_per_fraction) = match (magic, magic.swap_bytes()) {
            (MAGIC_MICROS, _) => (false, 1000),
            (MAGIC_NANOS, _) => (false, 1),
            (_, MAGIC_MICROS) => (true, 1000),
            (_, MAGIC_NANOS) => (true, 1),
            _ => return Err(PcapError::BadMagic(magic.swap_bytes())),
        };
        let mut reader = Self { reader, big_endian, nanos_per_fraction, link_type: 0 };
        let version = if big_endian {
            u16::from_be_bytes([header[4], header[5]])
        } else {
            u16::from_le_bytes([header[4], header[5]])
        };
        if version != 2 {
            return Err(PcapError::BadVersion(version));
        }
        reader.link_type = reader.number(&header, 20) & LINK_TYPE_MASK;
        Ok(reader)
    }

    pub(super) const fn link_type(&self) -> LinkType {
        LinkType::from_number(self.link_type)
    }

    fn number(&self, bytes: &[u8], at: usize) -> u32 {
        let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(field) } else { u32::from_le_bytes(field) }
    }

    /// Reads the next frame into `frame`, replacing its content. `None` at the end of the file.
    ///
    /// # Errors
    /// The file is damaged, truncated or unreadable; no more frames can be read.
    pub fn read(&mut self, frame: &mut Vec<u8>) -> Result<Option<Record>, PcapError> {
        let mut header = [0; RECORD_HEADER_BYTES];
        if !fill(&mut self.reader, &mut header)? {
            return Ok(None);
        }
        let file_bytes = self.number(&header, 8);
        if file_bytes > SNAPSHOT_BYTES_MAX {
            return Err(PcapError::OversizedRecord(file_bytes));
        }
        frame.resize(file_bytes as usize, 0);
        if !fill(&mut self.reader, frame)? {
            return Err(PcapError::Truncated);
        }
        let fraction_nanos = u64::from(self.number(&header, 4)) * self.nanos_per_fraction;
        let nanos = u64::from(self.number(&header, 0)) * 1_000_000_000 + fraction_nanos;
        Ok(Some(Record { timestamp: Instant::from_nanos(nanos), wire_bytes: self.number(&header, 12) }))
    }
}

/// Fills `bytes`. Returns false at the end of the file before the first byte.
pub(super) fn fill(reader: &mut impl Read, bytes: &mut [u8]) -> Result<bool, PcapError> {
    let mut filled = 0;
    while filled < bytes.len() {
        match reader.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(PcapError::Truncated),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Writes a capture with nanosecond timestamps, little-endian. Give it a buffered writer.
#[derive(Debug)]
pub struct PcapWriter<W> {
    writer: W,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(mut writer: W) -> Result<Self, PcapError> {
        let mut header = [0; FILE_HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC_NANOS.to_le_bytes());
        header[4..6].copy_from_slice(&2_u16.to_le_bytes());
        header[6..8].copy_from_slice(&4_u16.to_le_bytes());
        header[16..20].copy_from_slice(&SNAPSHOT_BYTES_MAX.to_le_bytes());
        header[20..24].copy_from_slice(&LINK_TYPE_ETHERNET.to_le_bytes());
        writer.write_all(&header)?;
        Ok(Self { writer })
    }

    /// Appends a frame. Timestamps wrap in the year 2106, as the format's seconds do.
    ///
    /// # Errors
    /// The frame is larger than [`SNAPSHOT_BYTES_MAX`], or the file cannot be written.
    pub fn write(&mut self, timestamp: Instant, frame: &[u8]) -> Result<(), PcapError> {
        let bytes = u32::try_from(frame.len()).ok().filter(|bytes| *bytes <= SNAPSHOT_BYTES_MAX);
        let bytes = bytes.ok_or(PcapError::OversizedFrame(frame.len()))?;
        let seconds = (timestamp.as_nanos() / 1_000_000_000) as u32;
        let nanos = (timestamp.as_nanos() % 1_000_000_000) as u32;
        let mut header = [0; RECORD_HEADER_BYTES];
        for (field, number) in header.chunks_exact_mut(4).zip([seconds, nanos, bytes, bytes]) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        self.writer.write_all(&header)?;
        self.writer.write_all(frame)?;
        Ok(())
    }

    /// Flushes the buffer and returns the writer.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<W, PcapError> {
        self.writer.flush()?;
        Ok(self.writer)
    }
}
