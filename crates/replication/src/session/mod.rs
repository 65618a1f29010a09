//! The FT-FW protocol between this node and one peer (FT-FW, section 5), both ways, as a value.
//!
//! What it promises, whatever the network loses, doubles, delays or turns round:
//! * once the network is quiet, the peer has the newest state of every connection that is replicated to it;
//! * of one connection, the peer is never given an older state after a newer one;
//! * memory is bounded by [`SessionConfig`], whatever the peer sends and however long it is away.
//!
//! The node calls [`Session::mark_changed`] and [`Session::mark_deleted`] as packets change connections, and at the end of
//! a batch [`Session::poll_transmit`] until it is false. Datagrams of the peer go to [`Session::handle_datagram`], and when
//! [`Session::poll_timeout`] has come, [`Session::handle_timeout`] is called; after each of the two, `poll_transmit` again.

mod anti_entropy;
mod comparison;
mod config;
mod input;
mod link;
mod output;
mod receiver;
mod sender;
mod status;
mod store;
#[cfg(test)]
mod tests;

use core::time::Duration;

use arrayvec::ArrayVec;
use flow::random::SplitMix64;
use flow::{Instant, NodeId};

use self::anti_entropy::AntiEntropy;
use self::link::{Action, Input};
use self::receiver::{PeerRound, Receiver};
use self::sender::{Answers, Sender};
pub(crate) use self::status::Events;
use self::status::SessionCounters;

pub use self::anti_entropy::{AntiEntropyStatus, COMPARE_INTERVAL, SCAN_PERIOD};
pub use self::config::{BYTES_PER_CONNECTION, ConfigError, DATAGRAM_BYTES_MIN, SessionConfig};
pub use self::link::Link;
pub use self::sender::DELETION_BYTES_MAX;
pub use self::status::{EVENTS_MAX, PeerError, SessionEvent, SessionStatus};
pub use self::store::{ApplyError, Holding, Store};
pub use crate::handle::Handle;
pub use crate::item::{BUCKETS_MAX, Item};

/// Sessions of the peer that are over and must not be taken up again when a datagram of theirs comes late.
const RETIRED_SESSIONS_MAX: usize = 4;

/// A session of the peer that is taken to be over, for [`SessionConfig::peer_timeout`]: so long may a datagram be in flight.
/// Not for ever, because a late Hello may have made the wrong one of two look like the older.
#[derive(Clone, Copy)]
struct Retired {
    session: u32,
    until: Instant,
}

/// Replication between this node and one peer.
#[cfg_attr(test, derive(Clone))]
pub struct Session {
    config: SessionConfig,
    local: NodeId,
    peer: NodeId,
    random: SplitMix64,
    link: Link,
    session: u32,
    /// Whether this session and one of the peer's have known each other.
    has_been_open: bool,
    peer_session: Option<u32>,
    retired: ArrayVec<Retired, RETIRED_SESSIONS_MAX>,
    sender: Sender,
    receiver: Receiver,
    anti_entropy: AntiEntropy,
    answers: Answers,
    /// Header flags that the next datagram is to carry.
    pending: u8,
    /// Somebody waits for an acknowledgement that has not been asked for yet.
    is_awaited: bool,
    /// When one was asked for last for a waiting caller.
    asked_at: Option<Instant>,
    hello_at: Instant,
    hello_interval: Duration,
    last_sent: Instant,
    last_received_at: Option<Instant>,
    /// This node asks for a full synchronisation: the peer's round at that time.
    resync_asked: Option<PeerRound>,
    other_version: Option<u8>,
    was_synchronised: bool,
    events: Events,
    counters: SessionCounters,
}

impl Session {
    /// A session of the node `local` with the node `peer`. `seed` must differ from start to start: the session's number
    /// and its first message number come from it.
    ///
    /// # Errors
    /// The configuration is not sound.
    pub fn new(config: SessionConfig, local: NodeId, peer: NodeId, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let mut random = SplitMix64::new(seed ^ u64::from(local.0) << 56 ^ u64::from(peer.0) << 48);
        let session = draw_number(&mut random);
        let first = random.next() as u32;
        Ok(Self {
            config,
            local,
            peer,
            random,
            link: Link::Seeking,
            session,
            has_been_open: false,
            peer_session: None,
            retired: ArrayVec::new(),
            sender: Sender::new(&config, first),
            receiver: Receiver::new(),
            anti_entropy: AntiEntropy::new(),
            answers: Answers::default(),
            pending: 0,
            is_awaited: false,
            asked_at: None,
            hello_at: Instant::ZERO,
            hello_interval: config.hello_interval_min,
            last_sent: Instant::ZERO,
            last_received_at: None,
            resync_asked: None,
            other_version: None,
            was_synchronised: false,
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

    /// A connection ended, and its slot may be used again. `attributes` (at most [`DELETION_BYTES_MAX`] bytes) name it to the
    /// peer. The end of a connection that was never marked as changed since its slot was taken is not sent.
    pub fn mark_deleted(&mut self, handle: Handle, attributes: &[u8]) {
        self.note_gone(handle);
        self.sender.mark_deleted(handle, attributes);
    }

    /// As [`Session::mark_deleted`], of a connection that the peer knows from any sender: the end is sent even if this session
    /// never sent the connection.
    pub fn mark_deleted_unconditionally(&mut self, handle: Handle, attributes: &[u8]) {
        self.note_gone(handle);
        self.sender.mark_deleted_unconditionally(handle, attributes);
    }

    /// A slot became free without a message to the peer (it held a replica of the peer's own connection).
    pub fn forget(&mut self, handle: Handle) {
        self.note_gone(handle);
        self.sender.forget(handle);
    }

    /// From now on connections that the peer does not have yet are sent before changes of others: for a path of little rate.
    pub fn set_prefers_new(&mut self, prefers_new: bool) {
        self.sender.set_prefers_new(prefers_new);
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

    /// Whether the peer has the connection, as far as waiting for it has a purpose: it has acknowledged a message about
    /// it, or it does not listen at present.
    #[must_use]
    pub fn is_acknowledged(&self, handle: Handle) -> bool {
        self.link != Link::Open || self.sender.is_known(handle)
    }

    /// Asks the peer to acknowledge what changed so far, because a caller waits for [`Session::is_acknowledged`]: with the
    /// next datagram, unless it was asked less than [`SessionConfig::batch_delay`] ago; then when that is over, so that
    /// many who wait share a datagram and its answer.
    pub const fn ask_for_acknowledgement(&mut self) {
        self.is_awaited = matches!(self.link, Link::Open);
    }

    /// Asks the peer for a full synchronisation (this node's replicas were found wanting).
    pub fn request_resync(&mut self) {
        self.resync_asked = Some(self.receiver.round);
        self.pending |= output::ALIVE;
    }

    /// Begins a full synchronisation to the peer.
    pub fn resync(&mut self) {
        self.sender.resync_requested();
    }

    /// How long changes may wait for more to share their datagram from now on.
    ///
    /// # Errors
    /// The configuration would not be sound with it; the delay is then as it was.
    pub fn set_batch_delay(&mut self, batch_delay: Duration) -> Result<(), ConfigError> {
        self.check_batch_delay(batch_delay)?;
        self.config.batch_delay = batch_delay;
        Ok(())
    }

    /// Whether [`Session::set_batch_delay`] would take the delay.
    ///
    /// # Errors
    /// As there.
    pub fn check_batch_delay(&self, batch_delay: Duration) -> Result<(), ConfigError> {
        SessionConfig { batch_delay, ..self.config }.check()
    }

    /// The node leaves: the next datagram carries Goodbye, and is the last.
    pub fn close(&mut self) {
        if self.link != Link::Closed {
            self.change_link(Input::Close);
            self.pending = crate::message::flags::GOODBYE;
        }
    }

    /// What happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop()
    }

    /// When the replicas of the peer's connections were last found to be what it sent.
    #[must_use]
    pub fn agreed_at(&self) -> Option<Instant> {
        self.anti_entropy.status().agreed_at
    }

    /// The session's figures.
    #[must_use]
    pub fn status(&self) -> SessionStatus {
        let sent = &self.sender.counters;
        SessionStatus {
            link: self.link,
            sent_all: self.sender.is_synchronised(),
            received_all: matches!(self.receiver.round, PeerRound::Completed(_)),
            session: self.session,
            peer_session: self.peer_session,
            queued: self.sender.queued(),
            uncovered: self.sender.uncovered(),
            in_flight: self.sender.in_flight(),
            datagrams_sent: self.counters.datagrams_sent,
            bytes_sent: self.counters.bytes_sent,
            messages_sent: sent.messages,
            datagrams_received: self.counters.datagrams_received,
            bytes_received: self.counters.bytes_received,
            messages_received: self.counters.messages_received,
            lost: sent.lost,
            resent: sent.resent,
            missed: self.receiver.missed,
            late: self.receiver.late,
            left_out: sent.left_out,
            too_long: sent.too_long,
            probes: self.counters.probes,
            rounds: sent.rounds,
            apply_errors: self.counters.apply_errors,
            stale_datagrams: self.counters.stale_datagrams,
            bad_datagrams: self.counters.bad_datagrams,
            events_dropped: self.events.dropped,
            round_trip: self.sender.recovery.round_trip(),
            last_received_at: self.last_received_at,
            oldest_unacknowledged_at: self.sender.oldest_unacknowledged_at(),
            anti_entropy: self.anti_entropy.status(),
        }
    }

    fn change_link(&mut self, input: Input) -> Action {
        let (link, action) = self.link.next(input);
        self.link = link;
        match action {
            Action::Nothing => {}
            Action::Synchronise => self.sender.open(self.item_key()),
            Action::Suspend => {
                self.sender.suspend();
                self.is_awaited = false;
                self.hello_interval = self.config.hello_interval_min;
                self.was_synchronised = false;
                self.anti_entropy.stop();
                self.answers.clear();
            }
        }
        action
    }

    /// This session's numbering begins anew, with a new session number.
    fn renew(&mut self) {
        self.change_link(Input::OutOfSync);
        self.number_anew();
        self.events.push(SessionEvent::Renumbered);
    }

    /// Draws a new session and a new first number. Only while the link is not open.
    fn number_anew(&mut self) {
        self.session = draw_number(&mut self.random);
        let first = self.random.next() as u32;
        self.sender.renumber(first);
        self.has_been_open = false;
        self.hello_at = Instant::ZERO;
    }

    fn note_synchronised(&mut self, now: Instant) {
        let received_all = matches!(self.receiver.round, PeerRound::Completed(_));
        let is_synchronised = self.link == Link::Open && received_all && self.sender.is_synchronised();
        if is_synchronised && !self.was_synchronised {
            self.events.push(SessionEvent::Synchronised);
        }
        let compares = is_synchronised && self.config.compares_copies;
        if compares != self.anti_entropy.is_started() {
            if compares { self.anti_entropy.start(now) } else { self.anti_entropy.stop() }
        }
        self.was_synchronised = is_synchronised;
    }
}

/// A session's number, which is never 0.
pub(crate) const fn draw_number(random: &mut SplitMix64) -> u32 {
    (random.next() >> 32) as u32 | 1
}
