//! Connections whose segments reach two living nodes ([`SHARED`]): each node sees a part of the conversation, often one
//! direction of it.
//!
//! Windows are made of what both sides say, so once the handshake is over they say nothing here, and segments are not held
//! against them: as Linux with `nf_conntrack_tcp_be_liberal`, which conntrackd's manual asks for when paths are asymmetric. The
//! states still count: what the automaton does not allow does not pass. During the handshake the nodes tell each other every
//! segment with its numbers, and those are checked as ever, so that nobody completes a handshake who has not seen the other
//! side's number.
//!
//! **RSTs.** A RST at exactly what its receiver has acknowledged ends the connection, if that acknowledgement came by here. Any
//! other one passes, as its receiver can judge it (RFC 5961 section 3), and must not end a connection that the receiver keeps:
//! the connection gets a short time to show that it lives, as it does after a take-over.
//!
//! **Timeouts** are those of the state alone. That data waits for its acknowledgement, or that a segment is repeated, cannot be
//! told from one direction.

use core::time::Duration;

use super::automaton::Kind;
use super::{Advance, Arrival, ProtocolState, TcpPeer, TcpState, TrackerConfig, peer_flags, take_over};
use crate::Direction;
use crate::connection::flags::{ASSURED, REPLIED, SHARED};
use crate::serial::later;
use crate::wire::TcpSegment;
use crate::wire::tcp_flags::{ACK, FIN, RST, SYN, URG};

/// Passes what most segments of a shared connection are: an ACK, with data or without, while it is established. `None`, and
/// nothing noted, for all else.
pub(super) fn pass_plain(
    config: &TrackerConfig,
    state: &mut ProtocolState,
    flags: u8,
    direction: Direction,
    segment: &TcpSegment,
) -> Option<Duration> {
    const SETTLED: u8 = REPLIED | ASSURED | SHARED;
    let is_settled = state.state == TcpState::Established as u8 && flags & SETTLED == SETTLED;
    if !is_settled || segment.flags & (SYN | FIN | RST | URG | ACK) != ACK {
        return None;
    }
    note_acknowledged(&mut state.peers[direction.index()], segment);
    state.last_kind = Kind::Ack as u8;
    state.last_direction = direction as u8;
    Some(config.timeouts.tcp_established)
}

/// How long a shared connection lives after a segment that took it to `state`.
pub(super) const fn timeout(config: &TrackerConfig, kind: Kind, state: TcpState) -> Duration {
    match kind {
        Kind::Rst => config.timeouts.tcp_close,
        _ => config.timeouts.tcp(state),
    }
}

/// See [`crate::conntrack::merge`].
pub(in crate::conntrack) fn merge(told: &mut ProtocolState, known: &ProtocolState) -> bool {
    let before = *told;
    if progress(told) < Progress::Open && progress(known) >= Progress::Open {
        // The other node has not heard of the end of the handshake: what it knows is all known here.
        *told = *known;
        return true;
    }
    for (told, known) in told.peers.iter_mut().zip(&known.peers) {
        told.flags |= known.flags & peer_flags::FIN_SENT;
    }
    let have_ended = told.peers.map(|peer| peer.flags & peer_flags::FIN_SENT != 0);
    if progress(known) > progress(told) {
        told.state = known.state;
    }
    if have_ended == [true; 2] && progress(told) < Progress::BothEnded {
        told.state = TcpState::LastAck as u8;
    }
    *told != before
}

/// How far a connection has come, as far as one node may be behind another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Begun,
    Answered,
    Open,
    OneEnded,
    BothEnded,
    Over,
    Reset,
}

const fn progress(state: &ProtocolState) -> Progress {
    match TcpState::from_u8(state.state) {
        None | Some(TcpState::None | TcpState::SynSent | TcpState::SynSent2) => Progress::Begun,
        Some(TcpState::SynRecv) => Progress::Answered,
        Some(TcpState::Established) => Progress::Open,
        // That the first FIN was acknowledged matters to nobody but who has seen it.
        Some(TcpState::FinWait | TcpState::CloseWait) => Progress::OneEnded,
        Some(TcpState::LastAck) => Progress::BothEnded,
        Some(TcpState::TimeWait) => Progress::Over,
        Some(TcpState::Close) => Progress::Reset,
    }
}

fn note_acknowledged(sender: &mut TcpPeer, segment: &TcpSegment) {
    let is_first = sender.flags & peer_flags::ACKNOWLEDGED == 0;
    let known = if is_first { segment.acknowledgement } else { sender.acknowledged_max };
    sender.acknowledged_max = later(segment.acknowledgement, known);
    sender.flags |= peer_flags::ACKNOWLEDGED;
}

impl Arrival<'_> {
    pub(super) const fn is_shared(&self) -> bool {
        *self.flags & SHARED != 0
    }

    /// The windows are not known well enough to be held against the segment.
    pub(super) const fn windows_say_nothing(&self) -> bool {
        let is_handshake = matches!(self.from, TcpState::SynSent | TcpState::SynRecv | TcpState::SynSent2);
        self.is_shared() && !is_handshake
    }

    /// As [`Arrival::accept`], of a segment that the windows say nothing of.
    pub(super) fn accept_shared(self, next: TcpState) -> Advance {
        if self.segment.has(ACK) && self.kind != Kind::Rst {
            note_acknowledged(&mut self.state.peers[self.direction.index()], self.segment);
        }
        self.accept(next)
    }

    /// A RST of a shared connection whose handshake is over.
    pub(super) fn shared_reset(self) -> Advance {
        let receiver = &self.state.peers[self.direction.reverse().index()];
        let is_exact =
            receiver.flags & peer_flags::ACKNOWLEDGED != 0 && self.segment.sequence == receiver.acknowledged_max;
        if is_exact || self.from.is_closing() {
            return self.accept(TcpState::Close);
        }
        take_over::pass_reset(self.config, self.from)
    }
}
