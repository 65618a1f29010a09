//! Why a datagram was refused, and how often.

use alloc::string::String;

use super::certificate::CertificateError;
use super::secret::KeyId;

/// Reasons for which datagrams are refused, as they are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Refusal {
    /// It is not one of the channel's.
    Malformed,
    /// It is not encrypted.
    Unprotected,
    /// The peer uses another version of the channel, or has credentials of another kind.
    Incompatible,
    /// A handshake under a key that is not configured here.
    UnknownKey,
    /// Its sender does not have the key.
    Forged,
    /// It came before.
    Replayed,
    /// It is under session keys that this node does not have, or no longer has.
    UnknownSession,
    /// The peer's certificate or its proof does not hold.
    Certificate,
    /// More handshakes than are answered.
    RateLimited,
}

/// How many reasons there are.
pub const REFUSALS: usize = Refusal::ALL.len();

impl Refusal {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Malformed,
        Self::Unprotected,
        Self::Incompatible,
        Self::UnknownKey,
        Self::Forged,
        Self::Replayed,
        Self::UnknownSession,
        Self::Certificate,
        Self::RateLimited,
    ];

    /// Its name in metrics and in `status`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unprotected => "unprotected",
            Self::Incompatible => "incompatible",
            Self::UnknownKey => "unknown_key",
            Self::Forged => "forged",
            Self::Replayed => "replayed",
            Self::UnknownSession => "unknown_session",
            Self::Certificate => "certificate",
            Self::RateLimited => "rate_limited",
        }
    }
}

/// Why a datagram was refused. Session and established keys are as they were.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChannelError {
    /// Too short, too long, or of no known kind.
    #[error("{length_bytes} bytes that are no datagram of the secure channel; somebody else sends to this port")]
    Malformed {
        /// Bytes that there are.
        length_bytes: usize,
    },
    /// Another version.
    #[error(
        "it uses version {0} of the secure channel, which this release does not: run the same release on both nodes"
    )]
    Version(u8),
    /// It is in plain text.
    #[error(
        "it sends plain text, and is ignored: give both nodes the same kind of [replication.security]; if it is configured \
         so already, somebody pretends to be the node"
    )]
    Unprotected,
    /// The peer authenticates otherwise.
    #[error(
        "it authenticates by {theirs}, this node by {ours}: give both nodes the same kind of [replication.security]"
    )]
    ModeDiffers {
        /// The peer's way.
        theirs: &'static str,
        /// This node's.
        ours: &'static str,
    },
    /// A handshake under a key that is not configured here.
    #[error(
        "it uses pre-shared key {theirs}, and this node has {ours}: let replication.security.pre_shared_keys of both nodes \
         have a key in common"
    )]
    UnknownKey {
        /// What the peer's key is called.
        theirs: KeyId,
        /// What this node's keys are called.
        ours: String,
    },
    /// A handshake that does not hold.
    #[error(
        "a handshake that was not made with the key that it names, or not for this node: check that both nodes have each \
         other's node.id right; otherwise somebody pretends to be the node"
    )]
    ForgedHandshake,
    /// Content that does not hold.
    #[error(
        "a datagram that was changed in transit or forged: somebody pretends to be the node, or the link is broken"
    )]
    Forged,
    /// It came before.
    #[error("a datagram that came before")]
    Replayed,
    /// A handshake that was begun before.
    #[error("a handshake that came before, or of a node whose clock was set back")]
    StaleHandshake,
    /// Under unknown session keys.
    #[error("a datagram of another session: the peer or this node was restarted")]
    UnknownSession,
    /// Content before the peer has shown its certificate.
    #[error("content of a node that has not shown its certificate yet")]
    Unproven,
    /// The peer's certificate, or its proof that it is its.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Too many handshakes.
    #[error("more handshakes than are answered: somebody pretends to be the node, or the link loses nearly everything")]
    RateLimited,
}

impl ChannelError {
    /// What it is counted as.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::Malformed { .. } => Refusal::Malformed,
            Self::Version(_) | Self::ModeDiffers { .. } => Refusal::Incompatible,
            Self::Unprotected => Refusal::Unprotected,
            Self::UnknownKey { .. } => Refusal::UnknownKey,
            Self::ForgedHandshake | Self::Forged => Refusal::Forged,
            Self::Replayed | Self::StaleHandshake => Refusal::Replayed,
            Self::UnknownSession => Refusal::UnknownSession,
            Self::Unproven | Self::Certificate(_) => Refusal::Certificate,
            Self::RateLimited => Refusal::RateLimited,
        }
    }

    /// It happens without anybody's fault, when the network doubles or delays datagrams or a node was restarted: counted, not
    /// complained of.
    #[must_use]
    pub const fn is_routine(&self) -> bool {
        matches!(self, Self::Replayed | Self::StaleHandshake | Self::UnknownSession | Self::Unproven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_in_their_order_and_have_names_of_their_own() {
        for (number, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, number);
            assert!(Refusal::ALL[..number].iter().all(|other| other.label() != refusal.label()));
        }
    }
}
