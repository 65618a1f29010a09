//! SCTP (RFC 9260): the association's states as both directions show them, and its verification tags.
//!
//! ```text
//!  ──INIT──► COOKIE_WAIT ──COOKIE ECHO──► COOKIE_ECHOED ──COOKIE ACK──► ESTABLISHED
//!                                                                           │ SHUTDOWN
//!  ──HEARTBEAT──► HEARTBEAT_SENT ──HEARTBEAT ACK──► ESTABLISHED             ▼
//!  (a further path of an association)         SHUTDOWN_SENT, if the initiator asks, or SHUTDOWN_RECD
//!                                                                           │ SHUTDOWN ACK
//!  any ──ABORT──► CLOSED ◄──SHUTDOWN COMPLETE── SHUTDOWN_ACK_SENT ◄─────────┘
//! ```
//! The states have the names and numbers of Linux's `nf_conntrack`. Every packet must carry the tag of its direction: that
//! which the other side gave in its INIT or INIT ACK (section 8.5). An end point that was started anew sends INIT on an
//! association that stands: the tags offered then count only from the COOKIE ECHO that proves them (section 5.2).

use core::time::Duration;

use super::{Advance, Change, Next, ProtocolState, Timeouts, TrackerConfig, note_reply, peer_flags};
use crate::wire::SctpPacket;
use crate::wire::sctp::chunk;
use crate::{Direction, DropReason, connection};

/// The states of an association, by their numbers in [`ProtocolState::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SctpState {
    /// Nothing is known but that it is there: it was picked up, or taken over from a node that does not tell states.
    None = 0,
    /// It is over.
    Closed = 1,
    /// INIT seen.
    CookieWait = 2,
    /// COOKIE ECHO seen.
    CookieEchoed = 3,
    /// It stands.
    Established = 4,
    /// The initiator asked for the end.
    ShutdownSent = 5,
    /// The other side asked for the end.
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

    /// The association is on its way out.
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

/// The kinds of chunks that move an association on, in the order in which they count where a packet carries several.
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

/// An INIT begins an association, a HEARTBEAT a further path of one. In the middle one is picked up only where that is asked
/// for ([`TrackerConfig::loose`]).
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
        Ok(Moves::Association) => moved(current, direction, packet),
        Ok(Moves::Restarted) => SctpState::CookieEchoed,
        Ok(Moves::Nothing) => current,
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

/// What a packet that may pass does.
enum Moves {
    /// Its chunks move the association on.
    Association,
    /// It proves that an end point was started anew: the handshake goes on from there.
    Restarted,
    /// It is of a handshake that is not proven yet, or of one that is refused.
    Nothing,
}

/// Holds a packet's tag against those known, and notes the tags that it offers.
fn admit(
    state: &mut ProtocolState,
    current: SctpState,
    direction: Direction,
    packet: &SctpPacket,
) -> Result<Moves, DropReason> {
    let (this, other) = (direction.index(), direction.reverse().index());
    if packet.has(chunk::INIT) {
        // In a handshake of its own direction it is sent again; any other is one more handshake beside what there is.
        let is_again = current == SctpState::CookieWait && state.peers[this].end == 0;
        let tag = if is_again { &mut state.peers[other].end } else { &mut state.peers[other].end_max };
        *tag = packet.initiate_tag;
        return Ok(Moves::Nothing);
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
        return Ok(Moves::Nothing);
    }
    let reflected = state.peers[other].end;
    let carries = if packet.reflects_tag { reflected } else { known };
    if carries != 0 && packet.verification_tag == carries {
        return Ok(Moves::Association);
    }
    if packet.has(chunk::COOKIE_ECHO) && is_offered {
        for peer in &mut state.peers {
            (peer.end, peer.end_max) = (peer.end_max, 0);
        }
        return Ok(Moves::Restarted);
    }
    if packet.has(chunk::ABORT) && is_offered {
        return Ok(Moves::Nothing);
    }
    let may_be_learnt = matches!(current, SctpState::None | SctpState::HeartbeatSent)
        || state.peers[this].flags & peer_flags::RELEARNING != 0;
    if known == 0 && may_be_learnt && !packet.reflects_tag {
        state.peers[this].end = packet.verification_tag;
        state.peers[this].flags &= !peer_flags::RELEARNING;
        return Ok(Moves::Association);
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

/// See [`crate::conntrack::Tracker::take_over`]: a tag that the copy does not have is learnt from the next packet.
pub(super) fn take_over(state: &mut ProtocolState) {
    for peer in &mut state.peers {
        peer.flags = if peer.end == 0 { peer_flags::RELEARNING } else { 0 };
    }
}

#[cfg(test)]
mod tests;
