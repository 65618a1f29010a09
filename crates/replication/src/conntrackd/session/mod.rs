//! The session: both directions of the protocol with one peer.

mod input;
mod link;
mod output;
mod receiver;

use core::time::Duration;

use flow::netfilter::{Entry, Expectation};
use flow::{Instant, NodeId};

pub use self::link::Link;

use self::receiver::Receiver;
use super::sender::Sender;
use super::status::Events;
use super::{FtfwConfig, FtfwConfigError, FtfwEvent, FtfwStatus};
use crate::session::Handle;

/// Replication between this node and a conntrackd.
pub struct FtfwSession {
    config: FtfwConfig,
    peer: NodeId,
    link: Link,
    sender: Sender,
    receiver: Receiver,
    hello_at: Instant,
    hello_interval: Duration,
    hello_back_pending: bool,
    last_sent: Option<Instant>,
    last_received_at: Option<Instant>,
    other_version: Option<u8>,
    had_sent_all: bool,
    events: Events,
    counters: SessionCounters,
}

/// Counters of the session itself.
#[derive(Clone, Copy, Default)]
struct SessionCounters {
    datagrams_sent: u64,
    bytes_sent: u64,
    datagrams_received: u64,
    bytes_received: u64,
    messages_received: u64,
    control_received: u64,
    bad_messages: u64,
    apply_errors: u64,
    bad_datagrams: u64,
}

impl FtfwSession {
    /// A session with the conntrackd that the node calls `peer`. Messages are numbered from `time_of_day_s`, the seconds since
    /// 1970, as conntrackd does it.
    ///
    /// # Errors
    /// The configuration is not sound.
    pub fn new(config: FtfwConfig, peer: NodeId, time_of_day_s: u32) -> Result<Self, FtfwConfigError> {
        config.check()?;
        Ok(Self {
            config,
            peer,
            link: Link::Seeking,
            sender: Sender::new(&config, time_of_day_s),
            receiver: Receiver::new(),
            hello_at: Instant::ZERO,
            hello_interval: config.hello_interval_min,
            hello_back_pending: false,
            last_sent: None,
            last_received_at: None,
            other_version: None,
            had_sent_all: false,
            events: Events::default(),
            counters: SessionCounters::default(),
        })
    }

    /// The node that the session is with.
    #[must_use]
    pub const fn peer(&self) -> NodeId {
        self.peer
    }

    /// A connection changed in a way worth replicating. Costs nothing more when it is queued already. Handles that are not
    /// below `connections_max` are ignored.
    pub fn mark_changed(&mut self, handle: Handle) {
        self.sender.mark_changed(handle);
    }

    /// A connection ended, and its handle may be used again. The end of one that was never sent is not sent either, once a full
    /// synchronisation was sent: before, an earlier process of this node may have sent the connection.
    pub fn mark_deleted(&mut self, handle: Handle, entry: &Entry) {
        self.sender.mark_deleted(handle, entry, false);
    }

    /// As [`FtfwSession::mark_deleted`], of a connection that the peer knows from any sender.
    pub fn mark_deleted_unconditionally(&mut self, handle: Handle, entry: &Entry) {
        self.sender.mark_deleted(handle, entry, true);
    }

    /// A handle became free without a message to the peer.
    pub fn forget(&mut self, handle: Handle) {
        self.sender.forget(handle);
    }

    /// As [`FtfwSession::mark_changed`], of an expectation.
    pub fn mark_expectation_changed(&mut self, handle: Handle) {
        self.sender.mark_expectation_changed(handle);
    }

    /// As [`FtfwSession::mark_deleted`], of an expectation.
    pub fn mark_expectation_deleted(&mut self, handle: Handle, expectation: &Expectation) {
        self.sender.mark_expectation_deleted(handle, expectation);
    }

    /// As [`FtfwSession::forget`], of an expectation.
    pub fn forget_expectation(&mut self, handle: Handle) {
        self.sender.forget_expectation(handle);
    }

    /// Whether the connection was sent to the peer, or is queued.
    #[must_use]
    pub fn is_replicated(&self, handle: Handle) -> bool {
        self.sender.is_replicated(handle)
    }

    /// Whether the peer receives what this node sends.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.link == Link::Open
    }

    /// Asks the peer for a full synchronisation.
    pub fn request_resync(&mut self) {
        if self.link == Link::Open {
            self.sender.ask_for_everything();
        }
    }

    /// Begins a full synchronisation to the peer.
    pub fn resync(&mut self) {
        self.sender.replicate_all();
    }

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
    pub fn close(&mut self) {
        self.change_link(link::Input::Close);
    }

    /// What happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<FtfwEvent> {
        self.events.pop()
    }

    /// The session's figures.
    #[must_use]
    pub fn status(&self) -> FtfwStatus {
        let (sent, own) = (&self.sender.counters, &self.counters);
        FtfwStatus {
            link: self.link,
            sent_all: self.sender.is_full_sync_acknowledged(),
            received_all: self.link == Link::Open && self.sender.is_resync_acknowledged,
            queued: self.sender.queued(),
            in_flight: self.sender.in_flight(),
            datagrams_sent: own.datagrams_sent,
            bytes_sent: own.bytes_sent,
            messages_sent: sent.messages,
            control_sent: sent.control,
            datagrams_received: own.datagrams_received,
            bytes_received: own.bytes_received,
            messages_received: own.messages_received,
            control_received: own.control_received,
            lost: sent.lost,
            resent: sent.resent,
            timed_out: sent.timed_out,
            asks: sent.asks,
            missed: self.receiver.missed,
            late: self.receiver.late,
            left_out: sent.left_out,
            inexpressible: sent.inexpressible,
            rounds: sent.rounds,
            bad_messages: own.bad_messages,
            apply_errors: own.apply_errors,
            bad_datagrams: own.bad_datagrams,
            events_dropped: self.events.dropped,
            last_received_at: self.last_received_at,
            oldest_unacknowledged_at: self.sender.oldest_unacknowledged_at(),
        }
    }
}

#[cfg(test)]
mod tests;
