//! The header of a datagram.

use flow::NodeId;

/// Version of the protocol; another version is another protocol.
pub const PROTOCOL_VERSION: u8 = 1;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 20;

/// High half of the first byte; the low half is the version.
const MAGIC: u8 = 0xf0;

pub mod flags {
    //! Bits of [`super::Header::flags`]: the control messages of FT-FW, section 5.1.
    /// Begin numbering from this header; answer with [`HELLO_BACK`].
    pub const HELLO: u8 = 1;
    /// Numbering was begun as your Hello said.
    pub const HELLO_BACK: u8 = 2;
    /// Acknowledge at once (an Alive that asks for an answer).
    pub const PROBE: u8 = 4;
    /// Your numbers cannot follow those that were seen: send Hello with a new session.
    pub const OUT_OF_SYNC: u8 = 8;
    /// Start a full synchronisation; repeated until [`super::Header::round`] changes.
    pub const RESYNC: u8 = 16;
    /// This node leaves of its own will.
    pub const GOODBYE: u8 = 32;
}

/// The header of a datagram. All integers are big-endian.
///
/// ```text
///  0               1               2               3
/// +-------+-------+---------------+---------------+---------------+
/// |  0xf  |version|     flags     |    sender     |     round     |
/// +-------+-------+---------------+---------------+---------------+
/// |                       sender's session                        |
/// +---------------------------------------------------------------+
/// |              receiver's session, 0 if not known               |
/// +---------------------------------------------------------------+
/// |      number of the first message here, or of the next one     |
/// +-------------------------------+-------------------------------+
/// |          unresolved           |     numbered messages here    |
/// +-------------------------------+-------------------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bits of [`flags`].
    pub flags: u8,
    /// The sending node.
    pub sender: NodeId,
    /// The sender's full synchronisation that is in progress or was the last; 0 before the first.
    pub round: u8,
    /// The sender's session: random, new whenever its numbering begins anew; never 0.
    pub session: u32,
    /// The receiver's session as the sender knows it; 0 if it does not.
    pub peer_session: u32,
    /// Number of the first numbered message here; if there is none, the number that the next one will have.
    pub first: u32,
    /// How many numbers before `first` the sender does not know to be received. All numbers before those are settled: received,
    /// or sent again under newer numbers.
    pub unresolved: u16,
    /// Numbered messages here.
    pub count: u16,
}

/// Why a header cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    /// Not this protocol, or cut short.
    #[error("the datagram does not begin with a header of this protocol")]
    NotOurs,
    /// Another version of this protocol.
    #[error("the datagram is of protocol version {theirs}")]
    Version {
        /// The version that it is of.
        theirs: u8,
    },
}

impl Header {
    /// Oldest number that the sender does not know to be received.
    #[must_use]
    pub const fn base(&self) -> u32 {
        self.first.wrapping_sub(self.unresolved as u32)
    }

    /// Whether a bit of [`flags`] is set.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Reads the header and returns what lies behind it.
    ///
    /// # Errors
    /// [`HeaderError`]. Never panics, whatever the bytes.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let (bytes, rest) = datagram.split_first_chunk::<HEADER_BYTES>().ok_or(HeaderError::NotOurs)?;
        if bytes[0] & 0xf0 != MAGIC {
            return Err(HeaderError::NotOurs);
        }
        let theirs = bytes[0] & 0x0f;
        if theirs != PROTOCOL_VERSION {
            return Err(HeaderError::Version { theirs });
        }
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = Self {
            flags: bytes[1],
            sender: NodeId(bytes[2]),
            round: bytes[3],
            session: word(4),
            peer_session: word(8),
            first: word(12),
            unresolved: u16::from_be_bytes([bytes[16], bytes[17]]),
            count: u16::from_be_bytes([bytes[18], bytes[19]]),
        };
        if header.session == 0 { Err(HeaderError::NotOurs) } else { Ok((header, rest)) }
    }

    /// The header's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&[MAGIC | PROTOCOL_VERSION, self.flags, self.sender.0, self.round]);
        bytes[4..8].copy_from_slice(&self.session.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.peer_session.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.first.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.unresolved.to_be_bytes());
        bytes[18..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_comes_back_as_it_was_sent(
            (flags, sender, round) in any::<(u8, u8, u8)>(),
            session in 1u32..,
            (peer_session, first) in any::<(u32, u32)>(),
            (unresolved, count) in any::<(u16, u16)>(),
        ) {
            let header = Header { flags, sender: NodeId(sender), round, session, peer_session, first, unresolved, count };
            let mut bytes = header.emit().to_vec();
            bytes.push(7);
            prop_assert_eq!(Header::parse(&bytes), Ok((header, &[7u8][..])));
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((header, rest)) = Header::parse(&bytes) {
                prop_assert_eq!(&header.emit()[..], &bytes[..HEADER_BYTES]);
                prop_assert_eq!(rest, &bytes[HEADER_BYTES..]);
            }
        }
    }

    #[test]
    fn an_unknown_version_and_an_unknown_protocol_are_different_errors() {
        let mut bytes = [1; HEADER_BYTES];
        assert_eq!(Header::parse(&bytes), Err(HeaderError::NotOurs));
        bytes[0] = MAGIC | 9;
        assert_eq!(Header::parse(&bytes), Err(HeaderError::Version { theirs: 9 }));
        bytes[0] = MAGIC | PROTOCOL_VERSION;
        assert_eq!(Header::parse(&bytes[..HEADER_BYTES - 1]), Err(HeaderError::NotOurs));
    }
}
