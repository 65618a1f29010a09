//! The status of a channel.

use alloc::string::String;

use flow::Instant;

use super::error::REFUSALS;
use super::secret::KeyId;

/// The most events that wait to be polled; when there are more, the oldest goes.
pub const EVENTS_MAX: usize = 16;

/// Something that happened to a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelEvent {
    /// The first session keys are in use.
    Established,
    /// New session keys are in use.
    KeysExchanged,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) handshakes: u64,
    pub(super) sealed: u64,
    pub(super) opened: u64,
    pub(super) refused: [u64; REFUSALS],
}

/// The session keys in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionKeys {
    /// The pre-shared key that their handshake was under, if there are any.
    pub key: Option<KeyId>,
    /// The name of the peer's certificate, if it showed one.
    pub peer_name: Option<String>,
    /// When they came into use.
    pub since: Instant,
}

/// A channel's figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelStatus {
    /// The session keys in use; `None` before there are any.
    pub keys: Option<SessionKeys>,
    /// Handshakes that made keys which came into use.
    pub handshakes: u64,
    /// Multiplications of points for handshakes of both nodes.
    pub multiplications: u64,
    /// Datagrams that were sealed.
    pub sealed: u64,
    /// Datagrams that were opened and taken.
    pub opened: u64,
    /// Datagrams that were refused, by [`super::Refusal`].
    pub refused: [u64; REFUSALS],
}
