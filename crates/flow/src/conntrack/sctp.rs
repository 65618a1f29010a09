//! SCTP (RFC 9260): the association's states as visible from both directions, and its verification tags.
//!
//! ```text
//!  ──INIT──► COOKIE_WAIT ──COOKIE ECHO──► COOKIE_ECHOED ──COOKIE ACK──► ESTABLISHED
//!                                                                           │ SHUTDOWN
//!  ──HEARTBEAT──► HEARTBEAT_SENT ──HEARTBEAT ACK──► ESTABLISHED             ▼
//!  (a further path of an association)         SHUTDOWN_SENT, if the initiator sends it, or SHUTDOWN_RECD
//!                                                                           │ SHUTDOWN ACK
//!  any ──ABORT──► CLOSED ◄──SHUTDOWN COMPLETE── SHUTDOWN_ACK_SENT ◄─────────┘
//! ```
//! The states have the names and numbers of Linux's `nf_conntrack`. Every packet must carry its direction's tag, which
//! the other side chose in its INIT or INIT ACK (section 8.5).
//!
//! A restarted end point sends INIT on an established association. The new tags apply only after the COOKIE ECHO that
//! proves them (section 5.2).

use core::time::Duration;

use super::{Advance, Change, Next, ProtocolState, Timeouts, TrackerConfig, note_reply, peer_flags};
use crate::wire::SctpPacket;
use crate::wire::sctp::chunk;
use crate::{Direction, DropReason, connection};

/// The states of an association, by their numbers in [`ProtocolState::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SctpState {
    /// Unknown: the association was picked up in the middle, or taken over from a node that does not replicate SCTP
    /// states.
    None = 0,
    /// The association has ended.
    Closed = 1,
    /// INIT seen.
    CookieWait = 2,
    /// COOKIE ECHO seen.
    CookieEchoed = 3,
    /// The association is established.
    Established = 4,
    /// The initiator sent SHUTDOWN.
    ShutdownSent = 5,
    /// The responder sent SHUTDOWN.
    ShutdownRecd = 6,
    /// SHUTDOWN ACK seen.
    ShutdownAckSent = 7,
    /// A HEARTBEAT on a further path seen.
    HeartbeatSent = 8,
}

impl SctpState {
    /// All states, by their numbers.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Closed,
        Self::CookieWait,
        Self::CookieEchoed,
        Self::Established,
        Self::ShutdownSent,
        Self::ShutdownRecd,
        Self::ShutdownAckSent,
        Self::HeartbeatSent,
    ];

    /// The state with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
    }

    /// Its name, as Linux's tools print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Closed => "CLOSED",
            Self::CookieWait => "COOKIE_WAIT",
            Self::CookieEchoed => "COOKIE_ECHOED",
            Self::Established => "ESTABLISHED",
            Self::ShutdownSent => "SHUTDOWN_SENT",
            Self::ShutdownRecd => "SHUTDOWN_RECD",
            Self::ShutdownAckSent => "SHUTDOWN_ACK_SENT",
            Self::HeartbeatSent => "HEARTBEAT_SENT",
        }
    }

    /// The association is closing.
    #[must_use]
    pub const fn is_closing(self) -> bool {
        matches!(self, Self::Closed | Self::ShutdownSent | Self::ShutdownRecd | Self::ShutdownAckSent)
    }

    /// The state after a packet of `direction` with one chunk of this kind, a bit of [`chunk`].
    const fn after(self, kind: u16, direction: Direction) -> Self {
        match (self, kind) {
            (_, chunk::ABORT) => Self::Closed,
            (Self::CookieWait, chunk::COOKIE_ECHO) => Self::CookieEchoed,
            (Self::CookieEchoed, chunk::COOKIE_ACK)
            | (Self::HeartbeatSent, chunk::HEARTBEAT_ACK)
            | (Self::None, chunk::OTHER | chunk::HEARTBEAT | chunk::HEARTBEAT_ACK | chunk::COOKIE_ACK) => {
                Self::Established
            }
            (Self::None | Self::Established | Self::CookieEchoed | Self::HeartbeatSent, chunk::SHUTDOWN) => {
                match direction {
                    Direction::Original => Self::ShutdownSent,
                    Direction::Reply => Self::ShutdownRecd,
                }
            }
            (Self::None | Self::ShutdownSent | Self::ShutdownRecd, chunk::SHUTDOWN_ACK) => Self::ShutdownAckSent,
            (Self::None | Self::ShutdownAckSent, chunk::SHUTDOWN_COMPLETE) => Self::Closed,
            _ => self,
        }
    }
}

/// The kinds of chunks that change the state, in the order of precedence within a packet.
const MOVING: [u16; 9] = [
    chunk::OTHER,
    chunk::HEARTBEAT,
    chunk::HEARTBEAT_ACK,
    chunk::COOKIE_ECHO,
    chunk::COOKIE_ACK,
    chunk::SHUTDOWN,
    chunk::SHUTDOWN_ACK,
    chunk::SHUTDOWN_COMPLETE,
    chunk::ABORT,
];

impl Timeouts {
    /// The timeout of an SCTP state.
    #[must_use]
    pub const fn sctp(&self, state: SctpState) -> Duration {
        match state {
            SctpState::None | SctpState::Established => self.sctp_established,
            SctpState::Closed => self.sctp_closed,
            SctpState::CookieWait => self.sctp_cookie_wait,
            SctpState::CookieEchoed => self.sctp_cookie_echoed,
            SctpState::ShutdownSent => self.sctp_shutdown_sent,
            SctpState::ShutdownRecd => self.sctp_shutdown_recd,
            SctpState::ShutdownAckSent => self.sctp_shutdown_ack_sent,
            SctpState::HeartbeatSent => self.sctp_heartbeat_sent,
        }
    }
}

/// An INIT begins an association, a HEARTBEAT another path of one. Any other packet begins one only where
/// [`TrackerConfig::loose`] permits it.
pub(super) fn begin(config: &TrackerConfig, packet: &SctpPacket) -> Result<(ProtocolState, Duration), DropReason> {
    let mut state = ProtocolState::default();
    let begun = if packet.has(chunk::INIT) {
        state.peers[Direction::Reply.index()].end = packet.initiate_tag;
        SctpState::CookieWait
    } else if packet.has(chunk::HEARTBEAT) && !packet.has(chunk::ABORT) {
        state.peers[Direction::Original.index()].end = packet.verification_tag;
        SctpState::HeartbeatSent
    } else if config.loose && !packet.has(chunk::ABORT | chunk::SHUTDOWN_COMPLETE | chunk::INIT_ACK) {
        state.peers[Direction::Original.index()].end = packet.verification_tag;
        SctpState::None
    } else {
        return Err(DropReason::NoConnection);
    };
    state.state = begun as u8;
    Ok((state, config.timeouts.sctp(begun)))
}

pub(super) fn advance(
    timeouts: &Timeouts,
    state: &mut ProtocolState,
    flags: &mut u8,
    direction: Direction,
    packet: &SctpPacket,
) -> Advance {
    let before = *state;
    let Some(current) = SctpState::from_u8(state.state) else {
        return Advance::refuse(DropReason::InvalidSctpState);
    };
    if packet.has(chunk::INIT) && current == SctpState::Closed {
        return Advance { next: Next::Reopen, ..Advance::pass(Change::None, None) };
    }
    let next = match admit(state, current, direction, packet) {
        Ok(Admission::Association) => moved(current, direction, packet),
        Ok(Admission::Restarted) => SctpState::CookieEchoed,
        Ok(Admission::Nothing) => current,
        Err(reason) => {
            *state = before;
            return Advance::refuse(reason);
        }
    };
    state.state = next as u8;
    let mut change = note_reply(flags, direction);
    if next == SctpState::Established
        && *flags & connection::flags::ASSURED == 0
        && *flags & connection::flags::REPLIED != 0
    {
        *flags |= connection::flags::ASSURED;
        change = Change::State;
    }
    if next != current {
        change = Change::State;
    } else if *state != before {
        change = change.max(Change::Detail);
    }
    Advance::pass(change, Some(timeouts.sctp(next)))
}

/// The effect of a packet that may pass.
enum Admission {
    /// Its chunks advance the association.
    Association,
    /// It proves that an end point restarted: the handshake continues from there.
    Restarted,
    /// It belongs to an unproven or refused handshake.
    Nothing,
}

/// Compares a packet's tag with the known ones, and records the tags that it offers.
fn admit(
    state: &mut ProtocolState,
    current: SctpState,
    direction: Direction,
    packet: &SctpPacket,
) -> Result<Admission, DropReason> {
    let (this, other) = (direction.index(), direction.reverse().index());
    if packet.has(chunk::INIT) {
        // An INIT in the same direction during the handshake is a retransmission; any other begins a second handshake.
        let is_retransmission = current == SctpState::CookieWait && state.peers[this].end == 0;
        let tag = if is_retransmission { &mut state.peers[other].end } else { &mut state.peers[other].end_max };
        *tag = packet.initiate_tag;
        return Ok(Admission::Nothing);
    }
    let [known, offered] = [state.peers[this].end, state.peers[this].end_max];
    let is_offered = offered != 0 && packet.verification_tag == offered;
    if packet.has(chunk::INIT_ACK) {
        if known != 0 && packet.verification_tag == known && current == SctpState::CookieWait {
            state.peers[other].end = packet.initiate_tag;
        } else if is_offered {
            state.peers[other].end_max = packet.initiate_tag;
        } else {
            return Err(DropReason::InvalidSctpTag);
        }
        return Ok(Admission::Nothing);
    }
    let reflected = state.peers[other].end;
    let carries = if packet.reflects_tag { reflected } else { known };
    if carries != 0 && packet.verification_tag == carries {
        return Ok(Admission::Association);
    }
    if packet.has(chunk::COOKIE_ECHO) && is_offered {
        for peer in &mut state.peers {
            (peer.end, peer.end_max) = (peer.end_max, 0);
        }
        return Ok(Admission::Restarted);
    }
    if packet.has(chunk::ABORT) && is_offered {
        return Ok(Admission::Nothing);
    }
    let may_be_learnt = matches!(current, SctpState::None | SctpState::HeartbeatSent)
        || state.peers[this].flags & peer_flags::RELEARNING != 0;
    if known == 0 && may_be_learnt && !packet.reflects_tag {
        state.peers[this].end = packet.verification_tag;
        state.peers[this].flags &= !peer_flags::RELEARNING;
        return Ok(Admission::Association);
    }
    if current == SctpState::CookieWait && known == 0 {
        return Err(DropReason::InvalidSctpState);
    }
    Err(DropReason::InvalidSctpTag)
}

fn moved(current: SctpState, direction: Direction, packet: &SctpPacket) -> SctpState {
    let kinds = MOVING.into_iter().filter(|kind| packet.has(*kind));
    kinds.fold(current, |state, kind| state.after(kind, direction))
}

/// See [`crate::conntrack::Tracker::take_over`]: a tag that the replica lacks is learnt from the next packet.
pub(super) fn take_over(state: &mut ProtocolState) {
    for peer in &mut state.peers {
        peer.flags = if peer.end == 0 { peer_flags::RELEARNING } else { 0 };
    }
}

#[cfg(test)]
mod tests;
