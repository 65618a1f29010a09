//! Replication with one peer, by whichever transport it goes.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId};

use crate::baseline::{DatagramSession, StreamError, StreamSession};
use crate::session::{ConfigError, Handle, PeerError, Session, SessionConfig, SessionEvent, SessionStatus, Store};

/// What carries messages between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// The FT-FW protocol of [`Session`].
    #[default]
    Native,
    /// Plain UDP, for comparison: [`DatagramSession`].
    Udp,
    /// TCP, for comparison: [`StreamSession`].
    Tcp,
}

impl Transport {
    /// All transports, with their names.
    pub const ALL: [(&'static str, Self); 3] = [("native", Self::Native), ("udp", Self::Udp), ("tcp", Self::Tcp)];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// Replication with one peer. What the methods do is said at [`Session`]'s of the same names.
#[allow(clippy::large_enum_variant, reason = "there is one for each peer, and it stays where it is")]
pub enum PeerSession {
    /// By the FT-FW protocol.
    Native(Session),
    /// By plain UDP.
    Datagram(DatagramSession),
    /// By TCP.
    Stream(StreamSession),
}

/// Calls the same on whichever it is.
macro_rules! each {
    ($session:expr, $inner:ident => $call:expr) => {
        match $session {
            PeerSession::Native($inner) => $call,
            PeerSession::Datagram($inner) => $call,
            PeerSession::Stream($inner) => $call,
        }
    };
}

impl PeerSession {
    /// A session by this transport; see [`Session::new`].
    ///
    /// # Errors
    /// The configuration is not sound.
    pub fn new(
        transport: Transport,
        config: SessionConfig,
        local: NodeId,
        peer: NodeId,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        Ok(match transport {
            Transport::Native => Self::Native(Session::new(config, local, peer, seed)?),
            Transport::Udp => Self::Datagram(DatagramSession::new(config, local, peer, seed)?),
            Transport::Tcp => Self::Stream(StreamSession::new(config, local, peer, seed)?),
        })
    }

    /// The native protocol's session, if it is one.
    pub const fn native(&mut self) -> Option<&mut Session> {
        match self {
            Self::Native(session) => Some(session),
            Self::Datagram(_) | Self::Stream(_) => None,
        }
    }

    /// A connection changed.
    pub fn mark_changed(&mut self, handle: Handle) {
        each!(self, session => session.mark_changed(handle));
    }

    /// A connection ended.
    pub fn mark_deleted(&mut self, handle: Handle, attributes: &[u8]) {
        each!(self, session => session.mark_deleted(handle, attributes));
    }

    /// A connection ended that the peer knows, whoever told it. Only the native protocol tells more of it than
    /// [`PeerSession::mark_deleted`].
    pub fn mark_deleted_anyway(&mut self, handle: Handle, attributes: &[u8]) {
        match self {
            Self::Native(session) => session.mark_deleted_anyway(handle, attributes),
            Self::Datagram(_) | Self::Stream(_) => self.mark_deleted(handle, attributes),
        }
    }

    /// A slot became free of which the peer need not hear.
    pub fn forget(&mut self, handle: Handle) {
        each!(self, session => session.forget(handle));
    }

    /// Whether the peer hears what this node tells.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self {
            Self::Native(session) => session.is_open(),
            Self::Datagram(_) | Self::Stream(_) => self.status().link == crate::Link::Open,
        }
    }

    /// Whether waiting for the peer to have the connection has no purpose any more. Nobody acknowledges but in the native
    /// protocol, so that there waiting never has one.
    #[must_use]
    pub fn is_acknowledged(&self, handle: Handle) -> bool {
        match self {
            Self::Native(session) => session.is_acknowledged(handle),
            Self::Datagram(_) | Self::Stream(_) => true,
        }
    }

    /// Somebody waits for [`PeerSession::is_acknowledged`].
    pub fn ask_for_acknowledgement(&mut self) {
        self.native().into_iter().for_each(Session::ask_for_acknowledgement);
    }

    /// How long changes may wait for more to share their datagram from now on; they never do but in the native protocol.
    ///
    /// # Errors
    /// See [`Session::set_batch_delay`].
    pub fn set_batch_delay(&mut self, batch_delay: Duration) -> Result<(), ConfigError> {
        self.native().map_or(Ok(()), |session| session.set_batch_delay(batch_delay))
    }

    /// Whether [`PeerSession::set_batch_delay`] would take the delay.
    ///
    /// # Errors
    /// As there.
    pub fn check_batch_delay(&self, batch_delay: Duration) -> Result<(), ConfigError> {
        match self {
            Self::Native(session) => session.check_batch_delay(batch_delay),
            Self::Datagram(_) | Self::Stream(_) => Ok(()),
        }
    }

    /// The node leaves.
    pub fn close(&mut self) {
        each!(self, session => session.close());
    }

    /// What happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        each!(self, session => session.poll_event())
    }

    /// The session's figures.
    #[must_use]
    pub fn status(&self) -> SessionStatus {
        each!(self, session => session.status())
    }

    /// Takes a datagram of the peer.
    ///
    /// # Errors
    /// What was wrong with it; over TCP, that there are datagrams at all.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8], store: &mut impl Store) -> Result<(), PeerError> {
        match self {
            Self::Native(session) => session.handle_datagram(now, datagram, store),
            Self::Datagram(session) => session.handle_datagram(now, datagram, store),
            Self::Stream(_) => Err(PeerError::Malformed("another replication.transport: give both nodes the same")),
        }
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Native(session) => session.handle_timeout(now),
            Self::Datagram(session) => session.handle_timeout(now),
            Self::Stream(_) => {}
        }
    }

    /// When [`PeerSession::handle_timeout`] and what polls must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Native(session) => session.poll_timeout(),
            Self::Datagram(session) => session.poll_timeout(),
            Self::Stream(session) => session.has_more_to_tell().then_some(Instant::ZERO),
        }
    }

    /// Writes a datagram for the peer to `buf`; false if there is none to send now, and always over TCP.
    pub fn poll_transmit(&mut self, now: Instant, store: &mut impl Store, buf: &mut Vec<u8>) -> bool {
        match self {
            Self::Native(session) => session.poll_transmit(now, store, buf),
            Self::Datagram(session) => session.poll_transmit(now, store, buf),
            Self::Stream(_) => false,
        }
    }

    /// The session over a stream, if it is one.
    pub const fn stream(&mut self) -> Option<&mut StreamSession> {
        match self {
            Self::Stream(session) => Some(session),
            Self::Native(_) | Self::Datagram(_) => None,
        }
    }

    /// As [`StreamSession::handle_bytes`].
    ///
    /// # Errors
    /// As there.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8], store: &mut impl Store) -> Result<(), StreamError> {
        self.stream().map_or(Ok(()), |session| session.handle_bytes(now, bytes, store))
    }
}
