//! The channel's datagrams: `docs/protocol.md` shows them.

use alloc::vec::Vec;

use super::error::ChannelError;
use super::resolver::{POINT_BYTES, TAG_BYTES};
use super::secret::KeyId;

/// The version of the channel's datagrams and handshake.
pub const CHANNEL_VERSION: u8 = 1;
/// The first bytes of the channel's datagrams.
const INITIATION: u8 = 0xe1;
const RESPONSE: u8 = 0xe2;
const SEALED: u8 = 0xe4;

/// Bytes of a sealed datagram before its ciphertext.
pub(super) const SEALED_HEADER_BYTES: usize = 16;
/// What a sealed datagram is longer than its content: header, kind of content and tag.
pub const OVERHEAD_BYTES: usize = SEALED_HEADER_BYTES + 1 + TAG_BYTES;

const INITIATION_HEADER_BYTES: usize = 12;
const RESPONSE_HEADER_BYTES: usize = 12;
/// Bytes of a point in time within an initiation.
pub(super) const STAMP_BYTES: usize = 8;
/// Bytes of the Noise messages.
pub(super) const INITIATION_NOISE_BYTES: usize = POINT_BYTES + STAMP_BYTES + TAG_BYTES;
pub(super) const RESPONSE_NOISE_BYTES: usize = POINT_BYTES + TAG_BYTES;

/// The kinds of credentials that a channel was begun with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mode(pub(super) u8);

impl Mode {
    const PRE_SHARED_KEY: u8 = 1;
    const CERTIFICATES: u8 = 2;

    pub(super) const fn new(has_pre_shared_key: bool, has_certificates: bool) -> Self {
        let key = if has_pre_shared_key { Self::PRE_SHARED_KEY } else { 0 };
        let certificates = if has_certificates { Self::CERTIFICATES } else { 0 };
        Self(key | certificates)
    }

    pub(super) const fn describe(self) -> &'static str {
        match self.0 {
            Self::PRE_SHARED_KEY => "a pre-shared key",
            Self::CERTIFICATES => "certificates",
            3 => "a pre-shared key and certificates",
            _ => "something that this release does not know",
        }
    }
}

/// A datagram of the channel, its parts checked for their lengths and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View<'a> {
    /// The first message of a handshake.
    Initiation { mode: Mode, key: KeyId, initiator_index: u32, noise: &'a [u8] },
    /// The second one.
    Response { responder_index: u32, initiator_index: u32, noise: &'a [u8] },
    /// Content under session keys; `receiver_index` is what the receiver calls them.
    Sealed { receiver_index: u32, counter: u64, ciphertext: &'a [u8] },
}

/// Whether a datagram on the replication port is one of the channel's.
#[must_use]
pub fn is_channel(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xf0 == 0xe0)
}

impl<'a> View<'a> {
    pub(super) fn parse(datagram: &'a [u8]) -> Result<Self, ChannelError> {
        let short = || ChannelError::Malformed { length_bytes: datagram.len() };
        let word = |at: usize| -> Result<u32, ChannelError> {
            let bytes = datagram.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
            bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(short)
        };
        let head = word(0)?.to_be_bytes();
        if head[1] != CHANNEL_VERSION {
            return Err(ChannelError::Version(head[1]));
        }
        // Nothing else protects them.
        let is_reserved_zero = head[3] == 0 && (head[0] == INITIATION || head[2] == 0);
        if !is_reserved_zero {
            return Err(short());
        }
        match head[0] {
            INITIATION => {
                let noise = datagram.get(INITIATION_HEADER_BYTES..).unwrap_or_default();
                if noise.len() != INITIATION_NOISE_BYTES {
                    return Err(short());
                }
                let key = KeyId(word(4)?.to_be_bytes());
                Ok(Self::Initiation { mode: Mode(head[2]), key, initiator_index: word(8)?, noise })
            }
            RESPONSE => {
                let noise = datagram.get(RESPONSE_HEADER_BYTES..).unwrap_or_default();
                if noise.len() != RESPONSE_NOISE_BYTES {
                    return Err(short());
                }
                Ok(Self::Response { responder_index: word(4)?, initiator_index: word(8)?, noise })
            }
            SEALED => {
                let counter = u64::from(word(8)?) << 32 | u64::from(word(12)?);
                let ciphertext = datagram.get(SEALED_HEADER_BYTES..).unwrap_or_default();
                if ciphertext.len() < 1 + TAG_BYTES || counter == u64::MAX {
                    return Err(short());
                }
                Ok(Self::Sealed { receiver_index: word(4)?, counter, ciphertext })
            }
            _ => Err(short()),
        }
    }
}

/// Writes what comes before an initiation's Noise message.
pub(super) fn put_initiation(out: &mut Vec<u8>, mode: Mode, key: KeyId, initiator_index: u32) {
    out.extend_from_slice(&[INITIATION, CHANNEL_VERSION, mode.0, 0]);
    out.extend_from_slice(&key.0);
    out.extend_from_slice(&initiator_index.to_be_bytes());
}

/// Writes what comes before a response's Noise message.
pub(super) fn put_response(out: &mut Vec<u8>, responder_index: u32, initiator_index: u32) {
    out.extend_from_slice(&[RESPONSE, CHANNEL_VERSION, 0, 0]);
    out.extend_from_slice(&responder_index.to_be_bytes());
    out.extend_from_slice(&initiator_index.to_be_bytes());
}

/// What comes before a sealed datagram's ciphertext.
pub(super) fn sealed_header(receiver_index: u32, counter: u64) -> [u8; SEALED_HEADER_BYTES] {
    let mut header = [0; SEALED_HEADER_BYTES];
    header[..4].copy_from_slice(&[SEALED, CHANNEL_VERSION, 0, 0]);
    header[4..8].copy_from_slice(&receiver_index.to_be_bytes());
    header[8..].copy_from_slice(&counter.to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_is_read() {
        let mut initiation = Vec::new();
        put_initiation(&mut initiation, Mode::new(true, false), KeyId([1, 2, 3, 4]), 5);
        initiation.extend([9; INITIATION_NOISE_BYTES]);
        let read = View::parse(&initiation).unwrap();
        let noise = &[9; INITIATION_NOISE_BYTES][..];
        assert_eq!(read, View::Initiation { mode: Mode(1), key: KeyId([1, 2, 3, 4]), initiator_index: 5, noise });
        let mut response = Vec::new();
        put_response(&mut response, 6, 7);
        response.extend([9; RESPONSE_NOISE_BYTES]);
        let noise = &[9; RESPONSE_NOISE_BYTES][..];
        let read = View::parse(&response).unwrap();
        assert_eq!(read, View::Response { responder_index: 6, initiator_index: 7, noise });
        let mut sealed = sealed_header(8, 1 << 40).to_vec();
        sealed.extend([9; 17]);
        let read = View::parse(&sealed).unwrap();
        assert_eq!(read, View::Sealed { receiver_index: 8, counter: 1 << 40, ciphertext: &[9; 17] });
    }

    proptest! {
        #[test]
        fn whatever_comes_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..120), first in 0xe0_u8..0xe6) {
            let mut bytes = bytes;
            if let [kind, version, ..] = &mut bytes[..] {
                (*kind, *version) = (first, *version % 3);
            }
            let _ = View::parse(&bytes);
        }
    }
}
