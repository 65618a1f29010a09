//! Checks whether a segment can belong to the connection: the four bounds of Guido van Rooij ("Real Stateful TCP Packet
//! Filtering in IP Filter"), with window scaling (RFC 7323), selective acknowledgements (RFC 2018), and Linux's
//! allowances.
//!
//! ```text
//!   I    sequence         ≤ highest that the receiver's windows allow the sender
//!   II   end of segment   > sender's end − receiver's largest window      (else: a repetition, which moves nothing)
//!   III  acknowledgement  ≤ receiver's end
//!   IV   acknowledgement  > receiver's end − the most that may be unacknowledged  (else: very late, moves nothing)
//! ```
//!
//! I is on a segment's beginning, so that one frame that stands for many segments may reach beyond it.

use super::automaton::Kind;
use super::take_over::{allowance_bytes, is_relearning, note_acknowledgement, set_end_of_relearning};
use super::{ProtocolState, TcpPeer, TcpState, peer_flags};
use crate::Direction;
use crate::serial::{is_after, is_before, later};
use crate::wire::TcpSegment;
use crate::wire::tcp_flags::{ACK, RST, SYN};

/// The minimum by which acknowledgements may lag behind sent data, whatever the window.
const ACKNOWLEDGEMENT_LAG_BYTES_MIN: u32 = 66_000;
/// The largest shift of a window (RFC 7323 section 2.3).
pub(in crate::conntrack) const WINDOW_SCALE_MAX: u8 = 14;
/// The largest window for which sequence numbers stay comparable (RFC 7323 section 2.3).
pub(in crate::conntrack) const WINDOW_BYTES_MAX: u32 = 1 << 30;

/// The result of the window check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WindowVerdict {
    /// It belongs to the connection; its numbers have been recorded.
    Accept,
    /// It may belong to the connection, but is too old or too far ahead to be used.
    Ignore,
    /// It does not belong to the connection.
    OutOfWindow,
}

/// A segment and the context of its window check, without the sides.
pub(super) struct SegmentContext<'a> {
    pub(super) segment: &'a TcpSegment,
    pub(super) direction: Direction,
    pub(super) kind: Kind,
    pub(super) from: TcpState,
    pub(super) is_liberal: bool,
}

/// A segment's numbers, with replacements for those that it lacks.
#[derive(Clone, Copy)]
struct Numbers {
    sequence: u32,
    end: u32,
    acknowledgement: u32,
    /// The acknowledgement, or the highest selective one.
    sack: u32,
    /// The window, scaled.
    window: u32,
}

/// Checks a segment against the windows, and updates both sides from an accepted one.
#[inline(always)]
pub(super) fn check(state: &mut ProtocolState, context: &SegmentContext<'_>) -> WindowVerdict {
    let mut sender = state.peers[context.direction.index()];
    let mut receiver = state.peers[context.direction.reverse().index()];
    if sender.window_max == 0 || is_new_syn(context, &sender) {
        learn_sender(context, &mut sender, &mut receiver);
        if context.kind == Kind::Syn {
            commit(state, context.direction, sender, receiver);
            return WindowVerdict::Accept;
        }
    }
    let numbers = Numbers::of(context, &sender, &receiver);
    match bounds(&numbers, &sender, &receiver) {
        // A RST may be forged, so it must not move the window that validates other segments.
        Bounds::Within if context.kind == Kind::Rst => WindowVerdict::Accept,
        Bounds::Within => {
            note_repetition(state, context, &numbers);
            note_segment(context.segment.has(ACK), &numbers, &mut sender, &mut receiver);
            commit(state, context.direction, sender, receiver);
            WindowVerdict::Accept
        }
        missed => check_outside_bounds(state, context, &numbers, missed, [sender, receiver]),
    }
}

/// Handles a segment outside the bounds. `shown` are sender and receiver as the segment implies them.
#[cold]
fn check_outside_bounds(
    state: &mut ProtocolState,
    context: &SegmentContext<'_>,
    numbers: &Numbers,
    missed: Bounds,
    shown: [TcpPeer; 2],
) -> WindowVerdict {
    let [shown_sender, shown_receiver] = shown;
    if context.is_liberal || shown_sender.flags & peer_flags::LIBERAL != 0 {
        // An operator who passes such a segment accepts its numbers for a side that was unknown.
        commit(state, context.direction, shown_sender, shown_receiver);
    }
    let sender = &mut state.peers[context.direction.index()];
    if missed == Bounds::SlightlyOver && context.kind != Kind::Rst {
        // The receiver may accept it; its acknowledgement must then not count as one of unsent data.
        sender.end = numbers.end;
        sender.flags |= peer_flags::UNACKNOWLEDGED;
    }
    match missed {
        _ if context.is_liberal || shown_sender.flags & peer_flags::LIBERAL != 0 => WindowVerdict::Accept,
        Bounds::SlightlyOver | Bounds::Old => WindowVerdict::Ignore,
        Bounds::Within | Bounds::Outside => WindowVerdict::OutOfWindow,
    }
}

/// A side as its SYN shows it; its earlier flags in `kept` stay.
pub(super) fn peer_of_syn(segment: &TcpSegment, kept: u8) -> TcpPeer {
    let mut flags = kept;
    if segment.window_scale.is_some() {
        flags |= peer_flags::WINDOW_SCALE;
    }
    if segment.sack_permitted {
        flags |= peer_flags::SACK_PERMITTED;
    }
    TcpPeer {
        end: segment.end(),
        end_max: segment.end(),
        // The window of a SYN is never scaled (RFC 7323 section 2.2).
        window_max: u32::from(segment.window).max(1),
        window_scale: segment.window_scale.unwrap_or(0).min(WINDOW_SCALE_MAX),
        flags,
        ..TcpPeer::default()
    }
}

/// A side as a segment in the middle of a connection shows it; the rest is as in `known`.
pub(super) fn peer_in_the_middle(segment: &TcpSegment, known: TcpPeer) -> TcpPeer {
    let end = segment.end();
    let window_max = scaled(segment.window, known.window_scale).max(1);
    TcpPeer { end, end_max: end.wrapping_add(window_max), window_max, ..known }
}

#[inline(always)]
fn scaled(window: u16, scale: u8) -> u32 {
    u32::from(window) << scale.min(WINDOW_SCALE_MAX)
}

#[inline(always)]
fn commit(state: &mut ProtocolState, direction: Direction, sender: TcpPeer, receiver: TcpPeer) {
    state.peers[direction.index()] = sender;
    state.peers[direction.reverse().index()] = receiver;
}

/// A restarted host begins with a sequence number above those it used last (RFC 9293 section 3.4.3).
#[inline(always)]
fn is_new_syn(context: &SegmentContext<'_>, sender: &TcpPeer) -> bool {
    context.segment.has(SYN)
        && matches!(context.from, TcpState::SynSent | TcpState::SynRecv)
        && is_after(context.segment.end(), sender.end)
}

/// Initialises the sender from its first segment.
#[cold]
fn learn_sender(context: &SegmentContext<'_>, sender: &mut TcpPeer, receiver: &mut TcpPeer) {
    let segment = context.segment;
    let receiver_is_unknown = receiver.window_max == 0 && !has_acknowledged(sender);
    if segment.has(SYN) {
        // A SYN seen after a take-over may be a late retransmission: much may have been sent since.
        *sender = peer_of_syn(segment, sender.flags & (peer_flags::LIBERAL | peer_flags::RELEARNING));
        let both_scale = sender.flags & receiver.flags & peer_flags::WINDOW_SCALE != 0;
        if context.direction == Direction::Reply && !both_scale {
            // Windows are scaled if both sides offer it (RFC 7323 section 1.3).
            sender.window_scale = 0;
            receiver.window_scale = 0;
        }
        if context.kind == Kind::Syn {
            return;
        }
    } else {
        let shown = peer_in_the_middle(segment, *sender);
        *sender = if !is_relearning(sender) {
            shown
        } else if has_acknowledged(receiver) {
            // The other side's acknowledgements of this one's data are further ahead than a retransmission of old data.
            TcpPeer { end: later(sender.end, shown.end), end_max: later(sender.end_max, shown.end), ..shown }
        } else {
            TcpPeer { end_max: shown.end, ..shown }
        };
        if receiver.window_max != 0 && selective_end(segment, receiver) == receiver.end.wrapping_add(1) {
            // Likely the answer to a keep-alive that was not seen.
            receiver.end = receiver.end.wrapping_add(1);
        }
    }
    if receiver_is_unknown {
        receiver.end = selective_end(segment, receiver);
        receiver.end_max = receiver.end;
    }
}

#[inline(always)]
const fn has_acknowledged(peer: &TcpPeer) -> bool {
    peer.flags & peer_flags::ACKNOWLEDGED != 0
}

/// The highest number that a segment acknowledges, including selectively.
#[inline(always)]
const fn selective_end(segment: &TcpSegment, receiver: &TcpPeer) -> u32 {
    if receiver.flags & peer_flags::SACK_PERMITTED != 0 {
        later(segment.acknowledgement, segment.sack_end)
    } else {
        segment.acknowledgement
    }
}

impl Numbers {
    #[inline(always)]
    fn of(context: &SegmentContext<'_>, sender: &TcpPeer, receiver: &TcpPeer) -> Self {
        let segment = context.segment;
        let window =
            if segment.has(SYN) { u32::from(segment.window) } else { scaled(segment.window, sender.window_scale) };
        let mut numbers = Self {
            sequence: segment.sequence,
            end: segment.end(),
            acknowledgement: segment.acknowledgement,
            sack: selective_end(segment, receiver),
            window,
        };
        // Some stacks set ACK in a RST and omit the number.
        let has_number = segment.has(ACK) && !(segment.has(RST) && segment.acknowledgement == 0);
        if !has_number {
            numbers.acknowledgement = receiver.end;
            numbers.sack = receiver.end;
        }
        if segment.has(RST) && segment.sequence == 0 && context.from == TcpState::SynSent {
            // A RST that answers a SYN takes its number from that SYN (RFC 9293 section 3.10.7.1).
            numbers.sequence = sender.end;
            numbers.end = sender.end;
        }
        numbers
    }
}

/// Whether a number lies beyond both limits. What is not beyond the nearer one may be more than half the circle before the
/// farther one, where it would count as after it.
#[inline(always)]
fn is_after_both(number: u32, nearer: u32, farther: u32) -> bool {
    is_after(number, nearer) && is_after(number, farther)
}

/// Bound I: the sequence number of the last byte that the sender may send, plus one.
#[inline(always)]
fn sequence_limit(sender: &TcpPeer, receiver: &TcpPeer) -> u32 {
    let allowance = if is_relearning(sender) { allowance_bytes(receiver) } else { 0 };
    sender.end_max.wrapping_add(allowance)
}

/// Bound II.
#[inline(always)]
fn is_recent(numbers: &Numbers, sender: &TcpPeer, receiver: &TcpPeer) -> bool {
    let lowest = sender.end.wrapping_sub(receiver.window_max).wrapping_sub(1);
    receiver.window_max == 0 || is_after(numbers.end, lowest)
}

/// Bound III.
#[inline(always)]
fn acknowledges_sent_data(numbers: &Numbers, sender: &TcpPeer, receiver: &TcpPeer) -> bool {
    if !is_relearning(receiver) {
        return !is_after(numbers.sack, receiver.end);
    }
    let limit = later(receiver.end, sequence_limit(receiver, sender));
    !has_acknowledged(sender) || !is_after_both(numbers.sack, receiver.end, limit)
}

/// Bound IV.
#[inline(always)]
fn acknowledges_recent(numbers: &Numbers, sender: &TcpPeer, receiver: &TcpPeer) -> bool {
    is_after(numbers.sack, lowest_acknowledgement(sender, receiver).wrapping_sub(1))
}

/// The sender acknowledges this number or a later one, or the segment is very late.
#[inline(always)]
pub(super) fn lowest_acknowledgement(sender: &TcpPeer, receiver: &TcpPeer) -> u32 {
    receiver.end.wrapping_sub(sender.window_max.max(ACKNOWLEDGEMENT_LAG_BYTES_MIN))
}

/// The position of a segment relative to the bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bounds {
    /// It is within all of them.
    Within,
    /// It violates II or IV alone: it is late, or a retransmission.
    Old,
    /// It violates I alone, and by no more than the largest window that its receiver has advertised: the sender exceeds
    /// it, or knows a window that the tracker does not.
    SlightlyOver,
    /// It violates I by more, or III: it does not belong to the connection.
    Outside,
}

#[inline(always)]
fn bounds(numbers: &Numbers, sender: &TcpPeer, receiver: &TcpPeer) -> Bounds {
    let limit_is_unknown = is_relearning(sender) && !has_acknowledged(receiver);
    let is_recent = is_recent(numbers, sender, receiver) && acknowledges_recent(numbers, sender, receiver);
    if !acknowledges_sent_data(numbers, sender, receiver) {
        return Bounds::Outside;
    }
    if !limit_is_unknown && is_after_both(numbers.sequence, sender.end_max, sequence_limit(sender, receiver)) {
        let over = numbers.end.wrapping_sub(sender.end_max).wrapping_add(1);
        return if is_recent && over <= receiver.window_max { Bounds::SlightlyOver } else { Bounds::Outside };
    }
    if is_recent { Bounds::Within } else { Bounds::Old }
}

/// Updates both sides from an accepted segment.
#[inline(always)]
fn note_segment(has_ack: bool, numbers: &Numbers, sender: &mut TcpPeer, receiver: &mut TcpPeer) {
    let selective = numbers.sack.wrapping_sub(numbers.acknowledgement);
    let window = numbers.window.saturating_add(selective).min(WINDOW_BYTES_MAX);
    sender.window_max = sender.window_max.max(window);
    if is_after(numbers.end, sender.end) {
        sender.end = numbers.end;
        sender.flags |= peer_flags::UNACKNOWLEDGED;
    }
    if receiver.window_max != 0 && is_after(numbers.end, sender.end_max) && !is_relearning(sender) {
        let beyond = numbers.end.wrapping_sub(sender.end_max);
        receiver.window_max = receiver.window_max.saturating_add(beyond).min(WINDOW_BYTES_MAX);
    }
    let edge = numbers.sack.wrapping_add(numbers.window);
    if !is_before(edge, receiver.end_max) {
        // A closed window is probed with one byte (RFC 9293 section 3.8.6.1).
        receiver.end_max = if numbers.window == 0 { edge.wrapping_add(1) } else { edge };
    }
    if has_ack {
        note_acknowledged(numbers, sender, receiver);
    }
    if numbers.acknowledgement == receiver.end {
        receiver.flags &= !peer_flags::UNACKNOWLEDGED;
    }
}

#[inline(always)]
fn note_acknowledged(numbers: &Numbers, sender: &mut TcpPeer, receiver: &mut TcpPeer) {
    let is_first = !has_acknowledged(sender);
    if is_first || is_after(numbers.acknowledgement, sender.acknowledged_max) {
        sender.acknowledged_max = numbers.acknowledgement;
        sender.flags |= peer_flags::ACKNOWLEDGED;
    }
    if is_relearning(receiver) {
        receiver.end = later(receiver.end, numbers.sack);
        if is_first {
            set_end_of_relearning(receiver, sender);
        }
        note_acknowledgement(receiver, numbers.acknowledgement);
    }
}

/// Counts how often the same segment was seen in a row.
#[inline(always)]
fn note_repetition(state: &mut ProtocolState, context: &SegmentContext<'_>, numbers: &Numbers) {
    if context.kind == Kind::Ack {
        // An ACK carries its numbers itself.
        note_numbers(state, context.direction, context.segment, numbers.end);
    }
}

/// Counts a segment with exactly the numbers of the last one as its retransmission, and records its numbers.
#[inline(always)]
pub(super) fn note_numbers(state: &mut ProtocolState, direction: Direction, segment: &TcpSegment, end: u32) {
    let is_same = state.last_sequence == segment.sequence
        && state.last_direction == direction as u8
        && state.last_acknowledgement == segment.acknowledgement
        && state.last_end == end
        && state.last_window == segment.window;
    state.retransmissions = if is_same { state.retransmissions.saturating_add(1) } else { 0 };
    state.last_direction = direction as u8;
    state.last_sequence = segment.sequence;
    state.last_acknowledgement = segment.acknowledgement;
    state.last_end = end;
    state.last_window = segment.window;
}
