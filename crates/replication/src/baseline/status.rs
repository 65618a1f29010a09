//! What both transports count.

use flow::Instant;

use super::telling::Telling;
use crate::session::{AgreementStatus, Link, SessionStatus};

/// Counters of a session, and how far it has come.
#[derive(Clone, Copy, Default)]
pub(super) struct Standing {
    /// The end of a full tell was sent since the peer was found.
    pub(super) told: bool,
    /// The end of the peer's full tell has come since it was found.
    pub(super) heard: bool,
    pub(super) was_synchronised: bool,
    pub(super) last_heard: Option<Instant>,
    pub(super) sent_datagrams: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_datagrams: u64,
    pub(super) received_bytes: u64,
    pub(super) received_messages: u64,
    pub(super) apply_errors: u64,
    pub(super) bad_datagrams: u64,
}

impl Standing {
    /// The peer is away: what it knew, and what was known of it, counts no more.
    pub(super) const fn lose_peer(&mut self) {
        self.told = false;
        self.heard = false;
        self.was_synchronised = false;
    }

    /// True when both have told each other everything and had not before.
    pub(super) fn becomes_synchronised(&mut self, link: Link) -> bool {
        let is_synchronised = link == Link::Open && self.told && self.heard;
        let becomes = is_synchronised && !self.was_synchronised;
        self.was_synchronised = is_synchronised;
        becomes
    }

    /// The figures as every session tells them. What only the native protocol knows is zero: nothing is in flight where nobody
    /// acknowledges, and what is lost is lost unseen.
    pub(super) fn status(&self, link: Link, sessions: (u32, Option<u32>), telling: &Telling) -> SessionStatus {
        SessionStatus {
            link,
            told: self.told,
            heard: self.heard,
            session: sessions.0,
            peer_session: sessions.1,
            queued: telling.queued(),
            in_flight: 0,
            datagrams_sent: self.sent_datagrams,
            bytes_sent: self.sent_bytes,
            messages_sent: telling.messages,
            datagrams_received: self.received_datagrams,
            bytes_received: self.received_bytes,
            messages_received: self.received_messages,
            lost: 0,
            resent: 0,
            missed: 0,
            late: 0,
            left_out: telling.left_out,
            too_long: telling.too_long,
            probes: 0,
            rounds: telling.rounds,
            apply_errors: self.apply_errors,
            stale_datagrams: 0,
            bad_datagrams: self.bad_datagrams,
            events_dropped: 0,
            round_trip: None,
            last_heard: self.last_heard,
            oldest_unacknowledged_at: None,
            agreement: AgreementStatus::default(),
        }
    }
}
