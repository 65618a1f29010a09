//! A capture of either format, detected by its first bytes.

use std::io::{Chain, Cursor, Read};

use super::format::{PcapError, PcapReader, fill};
use super::pcapng::{CaptureInterface, CaptureRecord, PcapngReader, SECTION_HEADER};

/// A file's first bytes, replayed before the rest.
type Whole<R> = Chain<Cursor<[u8; 4]>, R>;

/// First bytes of compressed files, the compressor, and the command that decompresses to standard output. Captures are
/// often compressed, and the error must name the remedy.
const COMPRESSED: [(&[u8], &str, &str); 5] = [
    (&[0x1f, 0x8b], "gzip", "zcat"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstdcat"),
    (&[0xfd, b'7', b'z', b'X'], "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4cat"),
];

#[derive(Debug)]
enum Format<R> {
    Pcap(PcapReader<Whole<R>>, [CaptureInterface; 1]),
    Pcapng(PcapngReader<Whole<R>>),
}

/// Reads a capture in the pcap or the pcapng format, of any link types, frame by frame. Give it a buffered reader.
#[derive(Debug)]
pub struct CaptureReader<R> {
    format: Format<R>,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// The file is no capture, or cannot be read.
    pub fn new(mut reader: R) -> Result<Self, PcapError> {
        let mut magic = [0; 4];
        if !fill(&mut reader, &mut magic)? {
            return Err(PcapError::Empty);
        }
        if let Some((_, compressor, decompressor)) = COMPRESSED.into_iter().find(|(begin, ..)| magic.starts_with(begin))
        {
            return Err(PcapError::Compressed(compressor, decompressor));
        }
        let whole = Cursor::new(magic).chain(reader);
        // This block's number is equal in both byte orders.
        let format = if u32::from_le_bytes(magic) == SECTION_HEADER {
            Format::Pcapng(PcapngReader::new(whole)?)
        } else {
            let reader = PcapReader::of_any_link_type(whole)?;
            let interface = CaptureInterface::new(reader.link_type());
            Format::Pcap(reader, [interface])
        };
        Ok(Self { format })
    }

    /// Reads the next frame into `frame`, replacing its content. `None` at the end of the file.
    ///
    /// # Errors
    /// The file is damaged, truncated or unreadable; no more frames can be read.
    pub fn read(&mut self, frame: &mut Vec<u8>) -> Result<Option<CaptureRecord>, PcapError> {
        match &mut self.format {
            Format::Pcapng(reader) => reader.read(frame),
            Format::Pcap(reader, _) => Ok(reader.read(frame)?.map(|record| CaptureRecord {
                timestamp: record.timestamp,
                wire_bytes: record.wire_bytes,
                interface: 0,
            })),
        }
    }

    /// The interfaces of frames that the current section has described so far.
    #[must_use]
    pub fn interfaces(&self) -> &[CaptureInterface] {
        match &self.format {
            Format::Pcapng(reader) => reader.interfaces(),
            Format::Pcap(_, interface) => interface,
        }
    }
}

#[cfg(test)]
mod tests;
