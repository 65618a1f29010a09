//! The long headers of QUIC packets (RFC 8999 section 5.1; RFC 9000 section 17.2 and RFC 9369 for the Initial packet).
//!
//! The version and the connection ids are readable in every version. The ClientHello of an Initial packet lies behind an encryption whose
//! key follows from the packet itself (RFC 9001 section 5.2): [`Initial`] has the parts that decryption needs, and [`decryption`] does it.
//! [`client_hello`] joins the pieces of a ClientHello, which may lie in several datagrams and in any order.

pub mod decryption;

use super::Inspected;
use super::assembly::{ASSEMBLY_BYTES_MAX, Assemblies, Held, StreamKey};
use super::reader::Reader;
use super::tls::ClientHello;

const LONG_HEADER: u8 = 0x80;
/// The fixed bit (RFC 9000 section 17.2). A greased one (RFC 9287) occurs only after the handshake.
const FIXED: u8 = 0x40;
const TYPE_SHIFT: u8 = 4;
const TYPE_MASK: u8 = 0x3;
/// The longest connection id in bytes of versions 1 and 2.
const CONNECTION_ID_BYTES_MAX: usize = 20;
/// A client's datagram with an Initial packet is at least this long (RFC 9000 section 14.1).
pub const INITIAL_DATAGRAM_BYTES_MIN: usize = 1200;

/// A version whose Initial packets are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// RFC 9000.
    V1,
    /// RFC 9369.
    V2,
}

impl Version {
    const fn from_number(number: u32) -> Option<Self> {
        match number {
            0x0000_0001 => Some(Self::V1),
            0x6b33_43cf => Some(Self::V2),
            _ => None,
        }
    }

    /// The bits of the packet type of Initial packets.
    const fn initial_type(self) -> u8 {
        match self {
            Self::V1 => 0,
            Self::V2 => 1,
        }
    }
}

/// A long header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongHeader<'a> {
    /// The version's number; 0 for version negotiation.
    pub version: u32,
    /// The destination's connection id.
    pub destination_id: &'a [u8],
    /// The source's connection id.
    pub source_id: &'a [u8],
    /// The rest of an Initial packet of a known version.
    pub initial: Option<Initial<'a>>,
}

/// The part of an Initial packet behind the connection ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Initial<'a> {
    /// The version.
    pub version: Version,
    /// The token, empty in most packets.
    pub token: &'a [u8],
    /// The position of the protected packet number in the datagram.
    pub number_offset: usize,
    /// Packet number and protected payload, as far as the packet's length reaches.
    pub protected: &'a [u8],
}

/// The long header that a datagram begins with. A datagram is whole: the answer is never partial.
#[must_use]
pub fn long_header(datagram: &[u8]) -> Inspected<LongHeader<'_>> {
    read(datagram).map_or(Inspected::Other, Inspected::Found)
}

fn read(datagram: &[u8]) -> Option<LongHeader<'_>> {
    let mut reader = Reader::new(datagram);
    let first = reader.u8()?;
    let number = reader.u32()?;
    if first & LONG_HEADER == 0 || (first & FIXED == 0 && number != 0) {
        return None;
    }
    let destination_id = reader.field_u8()?;
    let source_id = reader.field_u8()?;
    let version = Version::from_number(number);
    let has_valid_ids = destination_id.len().max(source_id.len()) <= CONNECTION_ID_BYTES_MAX;
    if !has_valid_ids && version.is_some() {
        return None;
    }
    let is_initial = |version: &Version| first >> TYPE_SHIFT & TYPE_MASK == version.initial_type();
    let initial = match version.filter(is_initial) {
        Some(version) => Some(initial(version, reader, datagram.len())?),
        None => None,
    };
    Some(LongHeader { version: number, destination_id, source_id, initial })
}

fn initial(version: Version, mut reader: Reader<'_>, datagram_bytes: usize) -> Option<Initial<'_>> {
    let token_bytes = usize::try_from(reader.varint()?).ok()?;
    let token = reader.take(token_bytes)?;
    let length_bytes = usize::try_from(reader.varint()?).ok()?;
    let number_offset = datagram_bytes - reader.rest().len();
    let protected = reader.take(length_bytes)?;
    Some(Initial { version, token, number_offset, protected })
}

/// Whether a datagram is a client's first of a QUIC connection: a long header with an Initial packet of a known version in a datagram of
/// the least length, or of a version that is not known.
#[must_use]
pub fn is_first(datagram: &[u8]) -> bool {
    let Inspected::Found(header) = long_header(datagram) else { return false };
    datagram.len() >= INITIAL_DATAGRAM_BYTES_MIN
        && header.version != 0
        && (header.initial.is_some() || Version::from_number(header.version).is_none())
        && header.destination_id.len() >= 8
}

/// What a datagram begins with, as far as its headers show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstPacket {
    /// An Initial packet of a known version is at this offset. Packets of other kinds may precede it (RFC 9000 section 12.2).
    Initial(usize),
    /// A packet of a version that is not known.
    UnknownVersion,
    /// No Initial packet.
    Other,
}

/// The first Initial packet of a datagram.
#[must_use]
pub fn first_packet(datagram: &[u8]) -> FirstPacket {
    let mut at = 0;
    while let Inspected::Found(header) = long_header(&datagram[at..]) {
        if header.initial.is_some() {
            return FirstPacket::Initial(at);
        }
        if Version::from_number(header.version).is_none() {
            return if header.version == 0 { FirstPacket::Other } else { FirstPacket::UnknownVersion };
        }
        match packet_bytes(&datagram[at..]) {
            Some(bytes) if bytes > 0 => at += bytes,
            _ => return FirstPacket::Other,
        }
    }
    FirstPacket::Other
}

/// The length of a 0-RTT or Handshake packet. `None` for a Retry packet, behind which there is none.
fn packet_bytes(packet: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(packet);
    let (first, number) = (reader.u8()?, reader.u32()?);
    let retry_type = (Version::from_number(number)?.initial_type() + TYPE_MASK) & TYPE_MASK;
    reader.field_u8()?;
    reader.field_u8()?;
    let length_bytes = usize::try_from(reader.varint()?).ok()?;
    reader.take(length_bytes)?;
    (first >> TYPE_SHIFT & TYPE_MASK != retry_type).then_some(packet.len() - reader.rest().len())
}

/// The ClientHello in a client's Initial packets, of which this is the next one. What came before is in `assemblies`, under the connection of `stream`; the
/// caller removes it once it has decided. [`Inspected::Other`]: the ClientHello is too long, or none. [`Inspected::Malformed`]: the pieces contradict each
/// other, or leave too many gaps.
pub fn client_hello(
    assemblies: &mut Assemblies,
    stream: &StreamKey,
    initial: &decryption::ClientInitial,
) -> Inspected<ClientHello> {
    let mut read = Inspected::Partial;
    for (offset, piece) in initial.pieces() {
        read = match assemblies.insert(stream, 0, offset, piece) {
            Ok(Held { prefix, progress }) => match progress.client_hello.read_message(prefix) {
                Inspected::Partial if prefix.len() >= ASSEMBLY_BYTES_MAX => Inspected::Other,
                read => read,
            },
            Err(_) => return Inspected::Malformed,
        };
    }
    read
}
