//! The session: both directions of the protocol with one peer.

mod link;

use alloc::vec::Vec;
use core::time::Duration;

use flow::netfilter::{Entry, Expectation};
use flow::{Instant, NodeId};

pub use self::link::Link;

use super::status::Events;
use super::{FtfwConfig, FtfwConfigError, FtfwError, FtfwEvent, FtfwStatus, Table};
use crate::session::Handle;

/// Replication between this node and a conntrackd.
#[derive(Debug)]
pub struct FtfwSession {
    config: FtfwConfig,
    peer: NodeId,
    link: Link,
    events: Events,
    next: u32,
}

impl FtfwSession {
    /// A session with the conntrackd that the node calls `peer`. Messages are numbered from `time_of_day_s`, the seconds since
    /// 1970, so that those of a process are beyond those of the one before it.
    ///
    /// # Errors
    /// The configuration is not sound.
    pub fn new(config: FtfwConfig, peer: NodeId, time_of_day_s: u32) -> Result<Self, FtfwConfigError> {
        config.check()?;
        Ok(Self { config, peer, link: Link::Seeking, events: Events::default(), next: time_of_day_s })
    }

    /// The node that the session is with.
    #[must_use]
    pub const fn peer(&self) -> NodeId {
        self.peer
    }

    /// A connection changed in a way worth telling. Costs nothing more when it waits to be told already. Handles that are not
    /// below `connections_max` are ignored.
    pub fn mark_changed(&mut self, handle: Handle) {
        let _ = handle;
    }

    /// A connection ended, and its handle may be used again. Of one that was never marked as changed, the peer is not told.
    pub fn mark_deleted(&mut self, handle: Handle, entry: &Entry) {
        let _ = (handle, entry);
    }

    /// As [`FtfwSession::mark_deleted`], of a connection that the peer knows, whoever told it.
    pub fn mark_deleted_anyway(&mut self, handle: Handle, entry: &Entry) {
        let _ = (handle, entry);
    }

    /// A handle became free of which the peer need not hear.
    pub fn forget(&mut self, handle: Handle) {
        let _ = handle;
    }

    /// As [`FtfwSession::mark_changed`], of an expectation.
    pub fn mark_expectation_changed(&mut self, handle: Handle) {
        let _ = handle;
    }

    /// As [`FtfwSession::mark_deleted`], of an expectation.
    pub fn mark_expectation_deleted(&mut self, handle: Handle, expectation: &Expectation) {
        let _ = (handle, expectation);
    }

    /// As [`FtfwSession::forget`], of an expectation.
    pub fn forget_expectation(&mut self, handle: Handle) {
        let _ = handle;
    }

    /// Whether the peer was told of the connection, or is about to be.
    #[must_use]
    pub fn is_told(&self, handle: Handle) -> bool {
        let _ = handle;
        false
    }

    /// Whether the peer hears what this node tells.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.link == Link::Open
    }

    /// Asks the peer to tell everything again.
    pub fn request_resync(&mut self) {}

    /// Tells the peer everything again.
    pub fn resync(&mut self) {}

    /// How long changes may wait for more to share their datagram from now on.
    ///
    /// # Errors
    /// The configuration would not be sound with it; the delay is then as it was.
    pub fn set_batch_delay(&mut self, batch_delay: Duration) -> Result<(), FtfwConfigError> {
        let config = FtfwConfig { batch_delay, ..self.config };
        config.check()?;
        self.config = config;
        Ok(())
    }

    /// The node leaves: nothing is sent any more. conntrackd has no word for it, and finds the node silent.
    pub fn close(&mut self) {}

    /// What happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<FtfwEvent> {
        self.events.pop()
    }

    /// Takes a datagram of the peer. What it says of connections goes to `table`.
    ///
    /// # Errors
    /// The first thing that was wrong. The session goes on in every case; nothing needs to be done but to count or log it.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8], table: &mut impl Table) -> Result<(), FtfwError> {
        let _ = (now, datagram, table);
        Ok(())
    }

    /// Time has come; see [`FtfwSession::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// When [`FtfwSession::handle_timeout`] and then [`FtfwSession::poll_transmit`] must be called at the latest, if nothing else
    /// happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Writes a datagram for the peer to `buf`, replacing what is there; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, table: &mut impl Table, buf: &mut Vec<u8>) -> bool {
        let _ = (now, table, self.next);
        buf.clear();
        false
    }

    /// The session's figures.
    #[must_use]
    pub fn status(&self) -> FtfwStatus {
        FtfwStatus { link: self.link, events_dropped: self.events.dropped, ..FtfwStatus::default() }
    }
}
