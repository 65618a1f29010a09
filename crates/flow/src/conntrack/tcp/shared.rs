//! Connections whose segments reach two live nodes ([`SHARED`]): each node sees a part of the segments, often one
//! direction.
//!
//! Windows depend on segments of both sides, so they are not checked after the handshake. This is Linux's
//! `nf_conntrack_tcp_be_liberal`, which conntrackd's manual recommends for asymmetric paths. The automaton still
//! applies.
//!
//! During the handshake the nodes replicate every segment with its numbers and check them as usual. Completing a
//! handshake thus requires the other side's initial sequence number.
//!
//! **RSTs.** A RST exactly at the receiver's acknowledgement ends the connection, if this node saw that
//! acknowledgement. Any other RST passes, as its receiver validates it (RFC 5961 section 3). It must not end a
//! connection that the receiver keeps, so the connection gets a short timeout, as after a take-over. Its number is
//! replicated: a node that saw the receiver's acknowledgement [confirms](super::reset::is_confirmed) the end.
//!
//! **Timeouts** depend on the state alone: unacknowledged data and retransmissions cannot be recognised from one
//! direction.

use core::time::Duration;

use super::automaton::Kind;
use super::{Advance, Arrival, ProtocolState, TcpPeer, TcpState, TrackerConfig, peer_flags, reset, take_over};
use crate::Direction;
use crate::connection::flags::{ASSURED, REPLIED, SHARED};
use crate::serial::later;
use crate::wire::TcpSegment;
use crate::wire::tcp_flags::{ACK, FIN, RST, SYN, URG};

/// Passes the common segments of an established shared connection: ACKs, with or without data. `None`, without side
/// effects, for all others.
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

/// The lifetime of a shared connection after a segment that moved it to `state`.
pub(super) const fn timeout(config: &TrackerConfig, kind: Kind, state: TcpState) -> Duration {
    match kind {
        Kind::Rst => config.timeouts.tcp_close,
        _ => config.timeouts.tcp(state),
    }
}

/// See [`crate::conntrack::merge`].
pub(in crate::conntrack) fn merge(received: &mut ProtocolState, local: &ProtocolState) -> bool {
    let before = *received;
    if progress(received) < Progress::Open && progress(local) >= Progress::Open {
        // The other node lacks the end of the handshake: the local state contains all that it has.
        *received = *local;
        return true;
    }
    for (received, local) in received.peers.iter_mut().zip(&local.peers) {
        received.flags |= local.flags & peer_flags::FIN_SENT;
    }
    let have_ended = received.peers.map(|peer| peer.flags & peer_flags::FIN_SENT != 0);
    if progress(local) > progress(received) {
        received.state = local.state;
    } else if reset::is_confirmed(received, local) {
        received.state = TcpState::Close as u8;
    }
    if have_ended == [true; 2] && progress(received) < Progress::BothEnded {
        received.state = TcpState::LastAck as u8;
    }
    *received != before
}

/// The progress of a connection, as far as nodes may differ in it.
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
        // The acknowledgement of the first FIN matters only to the node that saw it.
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

    /// Whether the windows are too uncertain to check the segment.
    pub(super) const fn windows_are_unknown(&self) -> bool {
        let is_handshake = matches!(self.from, TcpState::SynSent | TcpState::SynRecv | TcpState::SynSent2);
        self.is_shared() && !is_handshake
    }

    /// As [`Arrival::accept`], for a segment without window check.
    pub(super) fn accept_shared(self, next: TcpState) -> Advance {
        if self.segment.has(ACK) && self.kind != Kind::Rst {
            note_acknowledged(&mut self.state.peers[self.direction.index()], self.segment);
        }
        self.accept(next)
    }

    /// Handles a RST of a shared connection after its handshake.
    pub(super) fn shared_reset(self) -> Advance {
        let receiver = &self.state.peers[self.direction.reverse().index()];
        let is_exact =
            receiver.flags & peer_flags::ACKNOWLEDGED != 0 && self.segment.sequence == receiver.acknowledged_max;
        if is_exact || self.from.is_closing() {
            return self.accept(TcpState::Close);
        }
        take_over::pass_reset(self)
    }
}
