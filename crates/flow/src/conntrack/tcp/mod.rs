//! TCP tracking. The [`automaton`] computes the next state, the [`window`] decides whether a segment can belong to the
//! connection, and [`reset`] decides which RSTs are valid. [`out_of_sync`] resynchronises with restarted end points,
//! [`take_over`](mod@take_over) continues from an old replica, [`shared`] works with a part of the segments, and [`one_sided`] with the
//! client's alone.

mod arrival;
mod automaton;
mod fast_path;
mod fragmented;
mod one_sided;
mod out_of_sync;
mod rebirth;
mod reset;
mod shared;
mod state;
mod take_over;
mod window;

use core::time::Duration;

use self::arrival::Arrival;
use self::automaton::{Kind, Step, record_segment};
use self::reset::Reset;
use self::window::WindowVerdict;
use super::{
    Advance, Change, Next, ProtocolState, TcpPeer, Timeouts, TrackerConfig, last_flags, note_reply, peer_flags,
};
use crate::connection::flags::{ASSURED, REPLIED};
use crate::wire::TcpSegment;
use crate::{Direction, DropReason};

pub use self::state::{TCP_RETRANSMISSIONS_MAX, TcpState};

pub(super) use self::fast_path::pass_plain;
pub(super) use self::fragmented::extend;
pub(super) use self::one_sided::{is_one_sided, see_one_side};
pub(super) use self::rebirth::{begins_anew, has_restarted};
pub(super) use self::reset::{has_unverified_reset, set_unverified_reset};
pub(super) use self::shared::merge;
pub(crate) use self::take_over::note_acknowledgement;
pub(super) use self::take_over::take_over;
pub(super) use self::window::{WINDOW_BYTES_MAX, WINDOW_SCALE_MAX};

/// The first segment of a tuple. See [`super::Tracker::begin`].
pub(super) fn begin(config: &TrackerConfig, segment: &TcpSegment) -> Result<(ProtocolState, Duration), DropReason> {
    if !automaton::are_valid_flags(segment.flags) {
        return Err(DropReason::InvalidTcpFlags);
    }
    let kind = Kind::of(segment.flags);
    let Step::To(next) = automaton::step(TcpState::None, Direction::Original, kind) else {
        return Err(DropReason::NoConnection);
    };
    let mut state = ProtocolState { state: next as u8, ..ProtocolState::default() };
    record_segment(&mut state, Direction::Original, kind);
    if next == TcpState::SynSent {
        state.peers[0] = window::peer_of_syn(segment, 0);
        return Ok((state, config.timeouts.tcp(next)));
    }
    if !config.loose {
        return Err(DropReason::NoConnection);
    }
    // Picked up in the middle: window scales are unknown, so windows cannot be checked.
    let unknown = TcpPeer { flags: peer_flags::SACK_PERMITTED | peer_flags::LIBERAL, ..TcpPeer::default() };
    state.peers = [window::peer_in_the_middle(segment, unknown), unknown];
    let context =
        window::SegmentContext { segment, direction: Direction::Original, kind, from: next, is_liberal: true };
    // The segment's data is recorded as for any other one, as far as it fits the empty state.
    window::check(&mut state, &context);
    Ok((state, config.timeouts.tcp_unacknowledged.min(config.timeouts.tcp(next))))
}

/// A segment of a known connection. See [`super::Tracker::advance`].
#[inline]
pub(super) fn advance(
    config: &TrackerConfig,
    state: &mut ProtocolState,
    flags: &mut u8,
    direction: Direction,
    segment: &TcpSegment,
) -> Advance {
    // The fast path for nearly all segments: the state stays, and no replicated field changes.
    let plain = pass_plain(config, state, *flags, direction, segment);
    if plain.is_none() && is_one_sided(state) {
        return one_sided::advance(config, state, flags, direction, segment);
    }
    match plain.or_else(|| shared::pass_plain(config, state, *flags, direction, segment)) {
        Some(timeout) => Advance::pass(Change::None, Some(timeout)),
        None => general(config, state, flags, direction, segment),
    }
}

/// As [`advance`], for every segment.
fn general(
    config: &TrackerConfig,
    state: &mut ProtocolState,
    flags: &mut u8,
    direction: Direction,
    segment: &TcpSegment,
) -> Advance {
    if !automaton::are_valid_flags(segment.flags) {
        return Advance::refuse(DropReason::InvalidTcpFlags);
    }
    let kind = Kind::of(segment.flags);
    let replicated = Replicated::of(state);
    // Decoding rejects unknown state numbers; if one is present all the same, nothing passes.
    let from = TcpState::from_u8(state.state).unwrap_or(TcpState::None);
    let arrival = Arrival { config, state, flags, direction, kind, segment, from };
    let mut advance = arrival.advance();
    if advance.verdict.is_ok() && advance.next == Next::Keep {
        advance.change = advance.change.max(note_reply(flags, direction)).max(replicated.change_to(state));
    }
    advance
}

/// The replicated fields of a connection beside its windows.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Replicated {
    state: u8,
    scales: [u8; 2],
    flags: [u8; 2],
}

impl Replicated {
    const PEER_FLAGS: u8 =
        peer_flags::WINDOW_SCALE | peer_flags::SACK_PERMITTED | peer_flags::FIN_SENT | peer_flags::LIBERAL;

    fn of(state: &ProtocolState) -> Self {
        Self {
            state: state.state,
            scales: state.peers.map(|peer| peer.window_scale),
            flags: state.peers.map(|peer| peer.flags & Self::PEER_FLAGS),
        }
    }

    fn change_to(self, state: &ProtocolState) -> Change {
        if self.state != state.state {
            Change::State
        } else if self != Self::of(state) {
            Change::Detail
        } else {
            Change::None
        }
    }
}

impl Arrival<'_> {
    fn advance(mut self) -> Advance {
        if take_over::is_unlearnt(self.state) && !self.is_shared() {
            if self.kind == Kind::Rst {
                return take_over::pass_reset(self);
            }
            self.from = take_over::catch_up(self.state, self.from, self.direction, self.kind);
        }
        match automaton::step(self.from, self.direction, self.kind) {
            Step::Invalid => self.refuse(DropReason::InvalidTcpState),
            Step::Ignore => self.ignore(),
            Step::To(TcpState::SynSent) if self.from.is_closing() => self.syn_after_the_end(),
            Step::To(TcpState::TimeWait) if self.is_challenge_in_last_ack() => {
                self.state.last_flags &= !last_flags::CHALLENGE_EXPECTED;
                Advance::pass(Change::None, None)
            }
            Step::To(TcpState::Close) if self.kind == Kind::Rst => self.reset(),
            Step::To(next) => self.move_to(next),
        }
    }

    fn move_to(self, next: TcpState) -> Advance {
        let mut next = next;
        if next == TcpState::SynSent2 {
            self.state.last_flags |= last_flags::SIMULTANEOUS_OPEN;
        }
        let is_simultaneous = self.state.last_flags & last_flags::SIMULTANEOUS_OPEN != 0;
        if next == TcpState::SynRecv && self.direction == Direction::Reply && self.kind == Kind::Ack && is_simultaneous
        {
            next = TcpState::Established;
        }
        self.move_if_in_window(next)
    }

    fn reset(self) -> Advance {
        if self.windows_are_unknown() {
            return self.shared_reset();
        }
        match reset::classify(&self) {
            Reset::Invalid => Advance::refuse(DropReason::InvalidReset),
            Reset::Accepted => self.accept(TcpState::Close),
            Reset::IfInWindow => self.move_if_in_window(TcpState::Close),
            Reset::LeftToEndPoint => {
                let state = self.from;
                self.move_if_in_window(state)
            }
        }
    }

    fn move_if_in_window(self, next: TcpState) -> Advance {
        if self.windows_are_unknown() {
            return self.accept_shared(next);
        }
        let context = window::SegmentContext {
            segment: self.segment,
            direction: self.direction,
            kind: self.kind,
            from: self.from,
            is_liberal: self.config.liberal,
        };
        match window::check(self.state, &context) {
            WindowVerdict::Accept => self.accept(next),
            WindowVerdict::Ignore => Advance::pass(Change::None, None),
            // The other node may have seen the segment that this one answers. It proves nothing here, and the receiver
            // validates it.
            WindowVerdict::OutOfWindow if self.is_shared() && self.kind != Kind::Rst => {
                Advance::pass(Change::None, None)
            }
            WindowVerdict::OutOfWindow if self.kind == Kind::Rst => self.refuse(DropReason::InvalidReset),
            WindowVerdict::OutOfWindow => self.refuse(DropReason::OutOfWindow),
        }
    }

    /// The segment belongs to the connection, which enters `next`.
    fn accept(self, next: TcpState) -> Advance {
        record_segment(self.state, self.direction, self.kind);
        self.state.state = next as u8;
        if self.kind == Kind::Fin && next != TcpState::Close {
            self.state.peers[self.direction.index()].flags |= peer_flags::FIN_SENT;
        }
        let mut timeout = self.timeout(next);
        let mut change = Change::None;
        if *self.flags & REPLIED == 0 {
            if self.kind == Kind::Rst {
                // A connection that was only ever refused needs no record.
                return Advance { verdict: Ok(()), change: Change::State, next: Next::Close, timeout: None };
            }
            if self.kind == Kind::Syn {
                // A client that retries endlessly must not keep an entry (and its translation) alive.
                return Advance::pass(Change::None, None);
            }
            if next == TcpState::Established {
                timeout = timeout.min(self.config.timeouts.tcp_unacknowledged);
            }
        } else if *self.flags & ASSURED == 0
            && self.kind != Kind::Rst
            && matches!(self.from, TcpState::SynRecv | TcpState::Established)
            && next == TcpState::Established
        {
            *self.flags |= ASSURED;
            change = Change::State;
        }
        Advance::pass(change, Some(timeout))
    }

    fn timeout(&self, next: TcpState) -> Duration {
        if self.windows_are_unknown() {
            return shared::timeout(self.config, self.kind, next);
        }
        timeout_of(&self.config.timeouts, self.state, next, self.kind == Kind::Rst)
    }

    /// Drops the segment. An out-of-window FIN or RST from each side shows that the end points have closed the
    /// connection and that the tracker is out of step. The connection then gets a short timeout instead of days.
    #[cold]
    fn refuse(self, reason: DropReason) -> Advance {
        let mut advance = Advance::refuse(reason);
        let ends = |kind: u8| kind == Kind::Fin as u8 || kind == Kind::Rst as u8;
        if self.from != TcpState::Established || !ends(self.kind as u8) {
            return advance;
        }
        if ends(self.state.last_kind) && self.state.last_direction != self.direction as u8 {
            advance.timeout = Some(self.config.timeouts.tcp_unacknowledged);
        } else {
            record_segment(self.state, self.direction, self.kind);
        }
        advance
    }
}

/// The lifetime of a connection after a segment that left it in this state.
fn timeout_of(timeouts: &Timeouts, state: &ProtocolState, next: TcpState, is_reset: bool) -> Duration {
    let normal = timeouts.tcp(next);
    let either = state.peers[0].flags | state.peers[1].flags;
    if state.retransmissions >= TCP_RETRANSMISSIONS_MAX && normal > timeouts.tcp_retransmission {
        timeouts.tcp_retransmission
    } else if is_reset {
        timeouts.tcp_close
    } else if (either & peer_flags::UNACKNOWLEDGED != 0 || take_over::is_unlearnt(state))
        && normal > timeouts.tcp_unacknowledged
    {
        // After a take-over this may have been the last ACK of a close whose FINs the former node saw. The connection
        // gets its full timeout only when both sides are known.
        timeouts.tcp_unacknowledged
    } else if state.last_window == 0 && normal > timeouts.tcp_retransmission {
        timeouts.tcp_retransmission
    } else {
        normal
    }
}

/// See [`super::Tracker::timeout`].
pub(super) fn timeout(config: &TrackerConfig, state: &ProtocolState) -> Duration {
    let Some(next) = TcpState::from_u8(state.state) else { return Duration::ZERO };
    if is_one_sided(state) { one_sided::timeout(config, next) } else { config.timeouts.tcp(next) }
}

/// See [`super::Tracker::timeout_after_last`].
pub(super) fn timeout_after_last(config: &TrackerConfig, state: &ProtocolState, flags: u8) -> Duration {
    let Some(next) = TcpState::from_u8(state.state) else { return Duration::ZERO };
    if is_one_sided(state) {
        return one_sided::timeout(config, next);
    }
    let is_reset = state.last_kind == Kind::Rst as u8;
    if is_reset && !next.is_closing() {
        return take_over::timeout_after_unverified_reset(&config.timeouts, next);
    }
    let timeout = timeout_of(&config.timeouts, state, next, is_reset);
    let is_begun_midway = flags & REPLIED == 0 && next == TcpState::Established;
    if is_begun_midway { timeout.min(config.timeouts.tcp_unacknowledged) } else { timeout }
}

#[cfg(test)]
mod tests;
