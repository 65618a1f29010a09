//! The messages between nodes of a site, by which standby nodes have the caches of the one that is the tunnel's end.
//!
//! ```text
//!  0       1       2
//! +-------+-------+----------------
//! | 0xd1  | kind  |  every datagram
//! +-------+-------+----------------
//! kind 1, Follow: name u32 of the life of a mirror, from who stands by to all others
//! kind 2, Stream: a datagram of kind Data from the active end, or Ack to it, as between the two ends (super::datagram)
//! kind 3, Want:   name u32, side u8, what is lacking (redundancy::wire::control, Missing)
//!
//! entries of the stream, each the body of a record FromEncoder:
//! kind 1, Block:  side u8, epoch u32, a block with its shim
//! kind 3, Plain:  side u8, epoch u32, a block that went plain and is remembered
//! kind 2, Word:   side u8, an Open, a Fill or a Gone (redundancy::wire::control)
//! ```
//! The version is in the first byte: 0xd1 is version 1.

use alloc::vec::Vec;

/// The first byte of these datagrams: who reads none of them takes them for nothing else that comes on the replication port.
const MAGIC: u8 = 0xd1;
/// And the part of it that is no version.
const MAGIC_MASK: u8 = 0xf0;

/// Whether a datagram on the replication channel is one of a mirror's, of whatever version.
#[must_use]
pub fn is_mirror(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & MAGIC_MASK == MAGIC & MAGIC_MASK)
}

/// Why a datagram is none of a mirror's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MirrorError {
    /// It ends before it should, or has an impossible value.
    #[error("the datagram is malformed")]
    Malformed,
    /// A version or a kind that is not known.
    #[error("the datagram is of version {version} and kind {1}, which is not known: the peer runs another release", version = .0 & 0xf)]
    Unknown(u8, u8),
}

/// Which of the caches of the node that is the tunnel's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// What it sent to the other site.
    Sent,
    /// What it received from there.
    Received,
}

impl Side {
    pub(super) const ALL: [Self; 2] = [Self::Sent, Self::Received];

    fn read(byte: u8) -> Result<Self, MirrorError> {
        Self::ALL.get(usize::from(byte)).copied().ok_or(MirrorError::Malformed)
    }
}

/// A datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word<'a> {
    Follow { name: u32 },
    Stream(&'a [u8]),
    Want { name: u32, side: Side, missing: &'a [u8] },
}

impl<'a> Word<'a> {
    /// Writes it into `out`, in place of what was there.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        let kind = match self {
            Self::Follow { .. } => 1,
            Self::Stream(_) => 2,
            Self::Want { .. } => 3,
        };
        out.extend_from_slice(&[MAGIC, kind]);
        match self {
            Self::Follow { name } => out.extend_from_slice(&name.to_be_bytes()),
            Self::Stream(datagram) => out.extend_from_slice(datagram),
            Self::Want { name, side, missing } => {
                out.extend_from_slice(&name.to_be_bytes());
                out.push(*side as u8);
                out.extend_from_slice(missing);
            }
        }
    }

    pub(crate) fn parse(datagram: &'a [u8]) -> Result<Self, MirrorError> {
        let ([magic, kind], rest) = datagram.split_first_chunk::<2>().ok_or(MirrorError::Malformed)?;
        let name = || rest.split_first_chunk::<4>().ok_or(MirrorError::Malformed);
        match (*magic, *kind) {
            (MAGIC, 1) => match name()? {
                (name, []) => Ok(Self::Follow { name: u32::from_be_bytes(*name) }),
                _ => Err(MirrorError::Malformed),
            },
            (MAGIC, 2) => Ok(Self::Stream(rest)),
            (MAGIC, 3) => {
                let (name, rest) = name()?;
                let (side, missing) = rest.split_first().ok_or(MirrorError::Malformed)?;
                Ok(Self::Want { name: u32::from_be_bytes(*name), side: Side::read(*side)?, missing })
            }
            (magic, kind) => Err(MirrorError::Unknown(magic, kind)),
        }
    }
}

/// An entry of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry<'a> {
    Block { side: Side, epoch: u32, block: &'a [u8] },
    Plain { side: Side, epoch: u32, block: &'a [u8] },
    Word { side: Side, message: &'a [u8] },
}

impl<'a> Entry<'a> {
    /// Appends it to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Block { side, epoch, block } | Self::Plain { side, epoch, block } => {
                let kind = if matches!(self, Self::Block { .. }) { 1 } else { 3 };
                out.extend_from_slice(&[kind, *side as u8]);
                out.extend_from_slice(&epoch.to_be_bytes());
                out.extend_from_slice(block);
            }
            Self::Word { side, message } => {
                out.extend_from_slice(&[2, *side as u8]);
                out.extend_from_slice(message);
            }
        }
    }

    pub(super) fn parse(entry: &'a [u8]) -> Result<Self, MirrorError> {
        let ([kind, side], rest) = entry.split_first_chunk::<2>().ok_or(MirrorError::Malformed)?;
        let side = Side::read(*side)?;
        match kind {
            1 | 3 => {
                let (epoch, block) = rest.split_first_chunk::<4>().ok_or(MirrorError::Malformed)?;
                let epoch = u32::from_be_bytes(*epoch);
                Ok(if *kind == 1 { Self::Block { side, epoch, block } } else { Self::Plain { side, epoch, block } })
            }
            2 => Ok(Self::Word { side, message: rest }),
            other => Err(MirrorError::Unknown(MAGIC, *other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn written_messages_are_read_back_and_differ_from_other_datagrams_of_the_port() {
        let words = [
            Word::Follow { name: 7 },
            Word::Stream(b"datagram"),
            Word::Want { name: 9, side: Side::Received, missing: b"ranges" },
        ];
        let mut out = Vec::new();
        for word in words {
            word.write(&mut out);
            assert_eq!(Word::parse(&out), Ok(word));
            // A node's heartbeat begins with 0.
            assert!(is_mirror(&out) && !replication::compact::is_compact(&out) && out[0] != 0);
        }
        for entry in [
            Entry::Block { side: Side::Sent, epoch: 1 << 30, block: b"block" },
            Entry::Plain { side: Side::Sent, epoch: 1, block: b"block" },
            Entry::Word { side: Side::Received, message: b"" },
        ] {
            let mut out = Vec::new();
            entry.write(&mut out);
            assert_eq!(Entry::parse(&out), Ok(entry));
        }
        assert_eq!(Word::parse(&[0xd2, 1, 0, 0]), Err(MirrorError::Unknown(0xd2, 1)));
        assert_eq!(Entry::parse(&[1, 2, 0, 0, 0, 0]), Err(MirrorError::Malformed), "there is no third side");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40), kind in 0..5_u8) {
            let bytes = [&[MAGIC, kind][..], &bytes].concat();
            if let Ok(word) = Word::parse(&bytes) {
                let mut out = Vec::new();
                word.write(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
