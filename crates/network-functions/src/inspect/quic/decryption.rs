//! The payload of a client's Initial packets, whose keys follow from the packet (RFC 9001 section 5.2; RFC 9369 section 3.3 for version 2).
//!
//! ```text
//!   destination connection id ─► initial secret ─► client's secret ─► key, IV, header protection
//!   first byte, packet number ◄─ mask of a sample ─┘
//!   frames: CRYPTO (offset, bytes of the ClientHello), PADDING, PING, ACK
//! ```
//!
//! Anybody can read and forge such packets: decryption proves nothing about the client. It costs four derivations and one pass over the
//! datagram.
//!
//! **Limits.** Datagrams up to [`DATAGRAM_BYTES_MAX`], [`PACKETS_MAX`] packets each, [`PIECES_MAX`] pieces of the ClientHello each.

use alloc::vec::Vec;
use core::hash::Hasher;

use arrayvec::ArrayVec;
use ring::{aead, hkdf};
use siphasher::sip::SipHasher13;

use super::super::reader::Reader;
use super::{Initial, LongHeader, Version, long_header};
use crate::inspect::Inspected;

/// The longest datagram that is decrypted.
pub const DATAGRAM_BYTES_MAX: usize = 2048;
/// Initial packets of a datagram that are read.
pub const PACKETS_MAX: usize = 4;
/// Pieces of the ClientHello in a datagram that are read. Clients scatter it over a few.
pub const PIECES_MAX: usize = 32;
const TAG_BYTES: usize = 16;
const IV_BYTES: usize = 12;
const KEY_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
/// The sample of the header protection begins so far behind the beginning of the packet number (RFC 9001 section 5.4.2).
const SAMPLE_OFFSET: usize = 4;
const SAMPLE_BYTES: usize = 16;

/// A piece of the ClientHello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its position in the handshake's stream.
    pub offset: usize,
    /// Where its bytes begin in [`ClientInitial::bytes`].
    start: usize,
    length_bytes: usize,
}

/// The pieces of a ClientHello in a client's datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientInitial {
    bytes: Vec<u8>,
    pieces: ArrayVec<Piece, PIECES_MAX>,
    /// A number that differs between connection ids, and so where a client begins again after a Retry.
    pub connection: u64,
}

impl ClientInitial {
    /// The pieces with their positions, in the order of these.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.pieces.iter().map(|piece| (piece.offset, &self.bytes[piece.start..piece.start + piece.length_bytes]))
    }
}

/// The keys of one direction.
struct Keys {
    key: [u8; KEY_BYTES],
    iv: [u8; IV_BYTES],
    header_protection: [u8; KEY_BYTES],
}

/// The length of what is derived.
struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label (RFC 8446 section 7.1) without context.
fn expand<const N: usize>(secret: &hkdf::Prk, label: &str) -> Option<[u8; N]> {
    const PREFIX: &[u8] = b"tls13 ";
    let length_bytes = (N as u16).to_be_bytes();
    let label_bytes = [(PREFIX.len() + label.len()) as u8];
    let mut derived = [0; N];
    let info = [&length_bytes[..], &label_bytes, PREFIX, label.as_bytes(), &[0]];
    secret.expand(&info, Bytes(N)).ok()?.fill(&mut derived).ok()?;
    Some(derived)
}

impl Keys {
    /// The keys of a client's Initial packets to this connection id.
    fn of_client(version: Version, destination_id: &[u8]) -> Option<Self> {
        let (salt, labels): ([u8; 20], _) = match version {
            Version::V1 => (
                [
                    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
                    0xcc, 0xbb, 0x7f, 0x0a,
                ],
                ["quic key", "quic iv", "quic hp"],
            ),
            Version::V2 => (
                [
                    0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb,
                    0xf9, 0xbd, 0x2e, 0xd9,
                ],
                ["quicv2 key", "quicv2 iv", "quicv2 hp"],
            ),
        };
        let initial = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt).extract(destination_id);
        let of_client: [u8; SECRET_BYTES] = expand(&initial, "client in")?;
        let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &of_client);
        Some(Self {
            key: expand(&secret, labels[0])?,
            iv: expand(&secret, labels[1])?,
            header_protection: expand(&secret, labels[2])?,
        })
    }

    fn mask(&self, sample: &[u8]) -> Option<[u8; 5]> {
        let key = aead::quic::HeaderProtectionKey::new(&aead::quic::AES_128, &self.header_protection).ok()?;
        key.new_mask(sample).ok()
    }

    fn packet_key(&self) -> Option<aead::LessSafeKey> {
        aead::UnboundKey::new(&aead::AES_128_GCM, &self.key).ok().map(aead::LessSafeKey::new)
    }

    fn nonce(&self, number: u32) -> aead::Nonce {
        let mut nonce = self.iv;
        for (byte, of_number) in nonce[IV_BYTES - 4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        aead::Nonce::assume_unique_for_key(nonce)
    }
}

/// The pieces of a ClientHello in a client's datagram. [`Inspected::Other`]: it begins with no Initial packet of a known version that its own key opens.
/// [`Inspected::Malformed`]: it is beyond the limits, or has frames that no client's Initial packet may have.
#[must_use]
pub fn client_initial(datagram: &[u8]) -> Inspected<ClientInitial> {
    let Inspected::Found(first @ LongHeader { initial: Some(initial), .. }) = long_header(datagram) else {
        return Inspected::Other;
    };
    if datagram.len() > DATAGRAM_BYTES_MAX {
        return Inspected::Malformed;
    }
    let Some(keys) = Keys::of_client(initial.version, first.destination_id) else { return Inspected::Other };
    let (mut bytes, mut pieces) = (Vec::new(), ArrayVec::new());
    let mut rest = datagram;
    let mut opened = 0;
    // The first packet must be one that its key opens; what is coalesced behind it may be anything.
    while let Some(initial) = next_initial(rest, &first) {
        let Some(payload) = open(&keys, rest, initial) else { break };
        opened += 1;
        if opened > PACKETS_MAX || read_frames(&payload, &mut bytes, &mut pieces).is_none() {
            return Inspected::Malformed;
        }
        rest = &rest[initial.number_offset + initial.protected.len()..];
    }
    if opened == 0 {
        return Inspected::Other;
    }
    pieces.sort_unstable_by_key(|piece| piece.offset);
    Inspected::Found(ClientInitial { bytes, pieces, connection: number_of(first.destination_id) })
}

/// A number of a connection id. Two ids with the same number would be read as one connection: their pieces contradict each other then.
fn number_of(connection_id: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(connection_id);
    hasher.finish()
}

/// The Initial packet that these bytes begin with, if it belongs to the same connection.
fn next_initial<'a>(rest: &'a [u8], first: &LongHeader<'_>) -> Option<Initial<'a>> {
    let header = long_header(rest).found()?;
    let is_same = header.version == first.version && header.destination_id == first.destination_id;
    header.initial.filter(|_| is_same)
}

/// The payload of an Initial packet.
fn open(keys: &Keys, packet: &[u8], initial: Initial<'_>) -> Option<Vec<u8>> {
    let sample = initial.protected.get(SAMPLE_OFFSET..SAMPLE_OFFSET + SAMPLE_BYTES)?;
    let mask = keys.mask(sample)?;
    let first_byte = packet[0] ^ (mask[0] & 0x0f);
    let number_bytes = usize::from(first_byte & 3) + 1;
    let mut header = packet[..initial.number_offset + number_bytes].to_vec();
    header[0] = first_byte;
    let mut number = 0;
    for (byte, mask) in header[initial.number_offset..].iter_mut().zip(&mask[1..]) {
        *byte ^= mask;
        number = number << 8 | u32::from(*byte);
    }
    let mut payload = initial.protected[number_bytes..].to_vec();
    let opened = keys.packet_key()?.open_in_place(keys.nonce(number), aead::Aad::from(&header), &mut payload).ok()?;
    let length_bytes = opened.len();
    payload.truncate(length_bytes);
    Some(payload)
}

/// Appends the pieces in a payload. `None` if a frame is there that no client's Initial packet may have, or is cut off, or if there are too many pieces.
fn read_frames(payload: &[u8], bytes: &mut Vec<u8>, pieces: &mut ArrayVec<Piece, PIECES_MAX>) -> Option<()> {
    const PADDING: u8 = 0;
    const PING: u8 = 1;
    const ACK: u8 = 2;
    const ACK_WITH_ECN: u8 = 3;
    const CRYPTO: u8 = 6;
    const CONNECTION_CLOSE: u8 = 0x1c;
    let mut reader = Reader::new(payload);
    while let Some(kind) = reader.u8() {
        match kind {
            PADDING | PING => {}
            ACK | ACK_WITH_ECN => skip_acknowledgement(&mut reader, kind == ACK_WITH_ECN)?,
            CRYPTO => {
                let offset = usize::try_from(reader.varint()?).ok()?;
                let length_bytes = usize::try_from(reader.varint()?).ok()?;
                let piece = reader.take(length_bytes)?;
                pieces.try_push(Piece { offset, start: bytes.len(), length_bytes }).ok()?;
                bytes.extend_from_slice(piece);
            }
            // Nothing behind it counts.
            CONNECTION_CLOSE => return Some(()),
            _ => return None,
        }
    }
    Some(())
}

fn skip_acknowledgement(reader: &mut Reader<'_>, has_ecn: bool) -> Option<()> {
    reader.varint()?;
    reader.varint()?;
    let ranges = reader.varint()?;
    reader.varint()?;
    for _ in 0..ranges {
        reader.varint()?;
        reader.varint()?;
    }
    for _ in 0..if has_ecn { 3 } else { 0 } {
        reader.varint()?;
    }
    Some(())
}

/// A client's datagram with one Initial packet of these pieces of a ClientHello, padded to 1200 bytes, for tests and benchmarks. `None` if they do not fit.
#[must_use]
pub fn client_initial_bytes(
    version: Version,
    destination_id: &[u8],
    number: u32,
    pieces: &[(usize, &[u8])],
) -> Option<Vec<u8>> {
    let varint = |value: usize| (value as u16 | 0x4000).to_be_bytes();
    let mut payload = Vec::new();
    for (offset, piece) in pieces {
        payload.push(6);
        payload.extend(varint(*offset));
        payload.extend(varint(piece.len()));
        payload.extend_from_slice(piece);
    }
    let (first_byte, version_number) = match version {
        Version::V1 => (0xc3, 1_u32),
        Version::V2 => (0xd3, 0x6b33_43cf),
    };
    let mut packet = alloc::vec![first_byte];
    packet.extend(version_number.to_be_bytes());
    packet.push(destination_id.len() as u8);
    packet.extend_from_slice(destination_id);
    // No connection id of the source, no token.
    packet.extend([0, 0]);
    let header_bytes = packet.len() + 2 + 4;
    let payload_bytes = super::INITIAL_DATAGRAM_BYTES_MIN.checked_sub(header_bytes + TAG_BYTES)?;
    if payload.len() > payload_bytes {
        return None;
    }
    payload.resize(payload_bytes, 0);
    packet.extend(varint(4 + payload_bytes + TAG_BYTES));
    packet.extend(number.to_be_bytes());
    let keys = Keys::of_client(version, destination_id)?;
    let sealed =
        keys.packet_key()?.seal_in_place_append_tag(keys.nonce(number), aead::Aad::from(&packet), &mut payload);
    sealed.ok()?;
    let mask = keys.mask(&payload[..SAMPLE_BYTES])?;
    packet[0] ^= mask[0] & 0x0f;
    packet[header_bytes - 4..].iter_mut().zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
    packet.extend(payload);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::inspect::tls;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// The ClientHello of RFC 9001 appendix A.2 and RFC 9369 appendix A.2.
    const CLIENT_HELLO: &str = "010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c00000413011302010000c0\
        00000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c706e000500050100000000003300260024001d00\
        209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d0010000e040305030603020308040805080600 2d0002010\
        1001c00024001003900320408ffffffffffffffff05048000ffff07048000ffff0801100104800075300901100f088394c8f03e51570806048000ffff";
    const DESTINATION_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

    #[test]
    fn keys_are_those_of_the_rfc() {
        let keys = Keys::of_client(Version::V1, &DESTINATION_ID).expect("keys");
        assert_eq!(keys.key[..], bytes("1f369613dd76d5467730efcbe3b1a22d"));
        assert_eq!(keys.iv[..], bytes("fa044b2f42a3fd3b46fb255c"));
        assert_eq!(keys.header_protection[..], bytes("9f50449e04a0e810283a1e9933adedd2"));
        assert_eq!(keys.mask(&bytes("d1b1c98dd7689fb8ec11d242b123dc9b")).expect("a mask")[..], bytes("437b9aec36"));
    }

    /// RFC 9001 appendix A.2 and RFC 9369 appendix A.2: the packet's beginning, and its tag, follow from all of its bytes.
    #[test]
    fn the_packet_of_the_rfc_is_sealed_and_opened() {
        let hello = bytes(CLIENT_HELLO);
        assert_eq!(hello.len(), 241);
        for (version, header, sample, tag) in [
            (
                Version::V1,
                "c000000001088394c8f03e5157080000449e7b9aec34",
                "d1b1c98dd7689fb8ec11d242b123dc9b",
                Some("e221af44860018ab0856972e194cd934"),
            ),
            (Version::V2, "d76b3343cf088394c8f03e5157080000449ea0c95e82", "ffe67b6abcdb4298b485dd04de806071", None),
        ] {
            // The RFC writes the offset 0 in one byte.
            let packet = sealed_with_short_offset(version, &hello);
            assert_eq!(packet.len(), 1200);
            assert_eq!(packet[..22], bytes(header), "{version:?}");
            assert_eq!(packet[22..38], bytes(sample), "{version:?}");
            if let Some(tag) = tag {
                assert_eq!(packet[1184..], bytes(tag));
            }
            let found = client_initial(&packet).found().expect("its key opens it");
            assert_eq!(found.pieces().collect::<Vec<_>>(), [(0, &hello[..])]);
            let name = tls::client_hello_message(&hello).found().and_then(|hello| hello.server_name);
            assert_eq!(name.expect("a name").as_str(), "example.com");
        }
    }

    fn sealed_with_short_offset(version: Version, hello: &[u8]) -> Vec<u8> {
        let header = match version {
            Version::V1 => "c300000001088394c8f03e5157080000449e00000002",
            Version::V2 => "d36b3343cf088394c8f03e5157080000449e00000002",
        };
        let mut packet = bytes(header);
        let mut payload = [&bytes("060040f1")[..], hello].concat();
        payload.resize(1162, 0);
        let keys = Keys::of_client(version, &DESTINATION_ID).expect("keys");
        let key = keys.packet_key().expect("a key");
        key.seal_in_place_append_tag(keys.nonce(2), aead::Aad::from(&packet), &mut payload).expect("it is sealed");
        let mask = keys.mask(&payload[..16]).expect("a mask");
        packet[0] ^= mask[0] & 0x0f;
        packet[18..].iter_mut().zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
        [packet, payload].concat()
    }

    #[test]
    fn pieces_come_in_the_order_of_their_positions() {
        let hello = vec![7; 300];
        let pieces = [(200, &hello[200..]), (0, &hello[..100]), (100, &hello[100..200])];
        let packet = client_initial_bytes(Version::V1, &DESTINATION_ID, 0, &pieces).expect("it fits");
        let found = client_initial(&packet).found().expect("it is opened");
        assert_eq!(
            found.pieces().map(|(offset, piece)| (offset, piece.len())).collect::<Vec<_>>(),
            [(0, 100), (100, 100), (200, 100)]
        );
        let other =
            client_initial_bytes(Version::V1, &[0x83, 0x94, 0xc8, 0xf0, 0, 0, 0, 1], 0, &pieces).expect("it fits");
        assert_ne!(client_initial(&other).found().expect("it is opened").connection, found.connection);
    }

    #[test]
    fn a_changed_packet_is_not_opened() {
        let packet = client_initial_bytes(Version::V2, &DESTINATION_ID, 7, &[(0, b"hello")]).expect("it fits");
        assert!(client_initial(&packet).found().is_some());
        for at in [0, 5, 10, 18, 30, 600, 1199] {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            assert_eq!(client_initial(&changed).found(), None, "{at}");
        }
        assert_eq!(client_initial(&vec![0xc0; DATAGRAM_BYTES_MAX + 1]).found(), None);
    }

    proptest! {
        #[test]
        fn any_payload_is_read_without_harm(payload: Vec<u8>) {
            let (mut bytes, mut pieces) = (Vec::new(), ArrayVec::new());
            let _ = read_frames(&payload, &mut bytes, &mut pieces);
            prop_assert!(bytes.len() <= payload.len());
        }

        #[test]
        fn any_datagram_is_read_without_harm(datagram: Vec<u8>, cut in 0_usize..1200) {
            let _ = client_initial(&datagram);
            let packet = client_initial_bytes(Version::V1, &DESTINATION_ID, 0, &[(0, b"hello")]).expect("it fits");
            prop_assert!(client_initial(&packet[..cut]).found().is_none());
        }
    }
}
