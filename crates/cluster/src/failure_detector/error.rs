//! Why a control packet is discarded.

use super::state::State;

/// Why a packet was discarded. All but [`BfdError::AdministrativelyDown`] are the sender's fault, or that of
/// a host that pretends to be the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BfdError {
    /// The packet came from beyond the link (RFC 5881 section 5).
    #[error("time to live {0} instead of 255: the packet did not come from this link; discarded")]
    TimeToLive(u8),
    /// There are fewer bytes than a header has.
    #[error("{length_bytes} bytes are too few for a control packet; check the peer")]
    Truncated {
        /// Bytes that there are.
        length_bytes: usize,
    },
    /// Not version 1.
    #[error("BFD version {0} is not supported; the peer must use version 1 (RFC 5880)")]
    Version(u8),
    /// The length field is below what the packet must have.
    #[error("the packet claims to be {0} bytes long, less than its own header; check the peer")]
    LengthTooSmall(u8),
    /// The length field is above what the datagram holds.
    #[error("the packet claims to be {claimed} bytes long, but {length_bytes} came; check the peer and the path")]
    LengthBeyondPayload {
        /// The length field.
        claimed: u8,
        /// Bytes that there are.
        length_bytes: usize,
    },
    /// The detection multiplier is 0.
    #[error("a detection multiplier of 0 means nothing; correct the peer's configuration")]
    ZeroDetectMultiplier,
    /// The multipoint bit is set.
    #[error("the multipoint bit is set, which RFC 5880 reserves; check the peer")]
    Multipoint,
    /// The sender does not name its session.
    #[error("my discriminator is 0; check the peer")]
    ZeroMyDiscriminator,
    /// The packet names a session that is not this one: a left-over of an earlier run, or misdirected.
    #[error("the packet is for session {0}, which is not this one; it goes away once the peer forgets the old session")]
    UnknownDiscriminator(u32),
    /// The packet names no session, and its sender is not the peer of this session, which is up: the peer was restarted, or a stranger
    /// pretends to be the peer.
    #[error(
        "the packet names no session, and its sender's discriminator {0} is not that of the peer, which is up; it counts once the peer is silent"
    )]
    OtherSender(u32),
    /// The packet names no session though its sender claims to have received from one.
    #[error("your discriminator is 0 in a packet with state {0:?}; check the peer")]
    ZeroYourDiscriminator(State),
    /// The packet is authenticated, which this session is not configured for.
    #[error("the packet is authenticated but no authentication is configured; turn it off at the peer")]
    UnexpectedAuthentication,
    /// This side is held down by its operator. The packet was valid.
    #[error("this session is administratively down; enable it to let it come up")]
    AdministrativelyDown,
}
