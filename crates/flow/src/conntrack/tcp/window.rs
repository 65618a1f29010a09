//! Whether a segment can be of the connection: the four bounds of Guido van Rooij ("Real Stateful TCP Packet Filtering
//! in IP Filter"), with window scaling (RFC 7323), selective acknowledgements (RFC 2018), and Linux's allowances.
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

/// Acknowledgements may lag at least this far behind what was sent, whatever the window.
const ACKNOWLEDGEMENT_LAG_BYTES_MIN: u32 = 66_000;
/// The largest shift of a window (RFC 7323 section 2.3).
pub(in crate::conntrack) const WINDOW_SCALE_MAX: u8 = 14;
/// The largest window that leaves sequence numbers comparable (RFC 7323 section 2.3).
pub(in crate::conntrack) const WINDOW_BYTES_MAX: u32 = 1 << 30;

/// What the bounds say of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Judgement {
    /// It is of the connection, and what it tells has been noted.
    Accept,
    /// It may be of the connection, but is too old, or too far ahead, to tell anything.
    Ignore,
    /// It is not of the connection.
    OutOfWindow,
}

/// A segment and what its judgement depends on beside the sides.
pub(super) struct Look<'a> {
    pub(super) segment: &'a TcpSegment,
    pub(super) direction: Direction,
    pub(super) kind: Kind,
    pub(super) from: TcpState,
    pub(super) is_liberal: bool,
}

/// A segment's numbers, put right where the segment leaves them out.
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

/// Judges a segment, and notes what an accepted one tells of both sides.
#[inline(always)]
pub(super) fn check(state: &mut ProtocolState, look: &Look<'_>) -> Judgement {
    let mut sender = state.peers[look.direction.index()];
    let mut receiver = state.peers[look.direction.reverse().index()];
    if sender.window_max == 0 || is_new_syn(look, &sender) {
        learn_sender(look, &mut sender, &mut receiver);
        if look.kind == Kind::Syn {
            commit(state, look.direction, sender, receiver);
            return Judgement::Accept;
        }
    }
    let numbers = Numbers::of(look, &sender, &receiver);
    match bounds(&numbers, &sender, &receiver) {
        // Nobody vouches for a RST: it may be forged, and must not move the window by which others are judged.
        Bounds::Within if look.kind == Kind::Rst => Judgement::Accept,
        Bounds::Within => {
            note_repetition(state, look, &numbers);
            note_segment(look.segment.has(ACK), &numbers, &mut sender, &mut receiver);
            commit(state, look.direction, sender, receiver);
            Judgement::Accept
        }
        missed => judge_missed(state, look, &numbers, missed, [sender, receiver]),
    }
}

/// A segment that is not within the bounds. `shown` are sender and receiver as they would be if it were of the connection.
#[cold]
fn judge_missed(
    state: &mut ProtocolState,
    look: &Look<'_>,
    numbers: &Numbers,
    missed: Bounds,
    shown: [TcpPeer; 2],
) -> Judgement {
    let [shown_sender, shown_receiver] = shown;
    if look.is_liberal || shown_sender.flags & peer_flags::LIBERAL != 0 {
        // Whoever lets it pass believes what it shows of a side of which nothing was known.
        commit(state, look.direction, shown_sender, shown_receiver);
    }
    let sender = &mut state.peers[look.direction.index()];
    if missed == Bounds::SlightlyOver && look.kind != Kind::Rst {
        // The receiver may take it, and its acknowledgement must then not look like one of data that nobody sent.
        sender.end = numbers.end;
        sender.flags |= peer_flags::UNACKNOWLEDGED;
    }
    match missed {
        _ if look.is_liberal || shown_sender.flags & peer_flags::LIBERAL != 0 => Judgement::Accept,
        Bounds::SlightlyOver | Bounds::Old => Judgement::Ignore,
        Bounds::Within | Bounds::Outside => Judgement::OutOfWindow,
    }
}

/// A side as its SYN shows it; of the flags that it had, those in `kept` stay.
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

/// A host that has lost its memory begins with a sequence number above those it used last (RFC 9293 section 3.4.3).
#[inline(always)]
fn is_new_syn(look: &Look<'_>, sender: &TcpPeer) -> bool {
    look.segment.has(SYN)
        && matches!(look.from, TcpState::SynSent | TcpState::SynRecv)
        && is_after(look.segment.end(), sender.end)
}

/// Takes the sender for what its first segment shows.
#[cold]
fn learn_sender(look: &Look<'_>, sender: &mut TcpPeer, receiver: &mut TcpPeer) {
    let segment = look.segment;
    let receiver_is_unknown = receiver.window_max == 0 && !has_acknowledged(sender);
    if segment.has(SYN) {
        // A SYN seen after a take-over may be a late repetition: much may have been sent since.
        *sender = peer_of_syn(segment, sender.flags & (peer_flags::LIBERAL | peer_flags::RELEARNING));
        let both_scale = sender.flags & receiver.flags & peer_flags::WINDOW_SCALE != 0;
        if look.direction == Direction::Reply && !both_scale {
            // Windows are scaled if both sides offer it (RFC 7323 section 1.3).
            sender.window_scale = 0;
            receiver.window_scale = 0;
        }
        if look.kind == Kind::Syn {
            return;
        }
    } else {
        let shown = peer_in_the_middle(segment, *sender);
        *sender = if !is_relearning(sender) {
            shown
        } else if has_acknowledged(receiver) {
            // What the other side said of this one's data goes further than a repetition of old data.
            TcpPeer { end: later(sender.end, shown.end), end_max: later(sender.end_max, shown.end), ..shown }
        } else {
            TcpPeer { end_max: shown.end, ..shown }
        };
        if receiver.window_max != 0 && selective_end(segment, receiver) == receiver.end.wrapping_add(1) {
            // Likely the answer to a keep-alive, of which nothing else was seen.
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

/// The highest that a segment acknowledges, if only selectively.
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
    fn of(look: &Look<'_>, sender: &TcpPeer, receiver: &TcpPeer) -> Self {
        let segment = look.segment;
        let window =
            if segment.has(SYN) { u32::from(segment.window) } else { scaled(segment.window, sender.window_scale) };
        let mut numbers = Self {
            sequence: segment.sequence,
            end: segment.end(),
            acknowledgement: segment.acknowledgement,
            sack: selective_end(segment, receiver),
            window,
        };
        // Some stacks set ACK in a RST and leave the number out.
        let has_number = segment.has(ACK) && !(segment.has(RST) && segment.acknowledgement == 0);
        if !has_number {
            numbers.acknowledgement = receiver.end;
            numbers.sack = receiver.end;
        }
        if segment.has(RST) && segment.sequence == 0 && look.from == TcpState::SynSent {
            // A RST that answers a SYN has no number of its own (RFC 9293 section 3.10.7.1).
            numbers.sequence = sender.end;
            numbers.end = sender.end;
        }
        numbers
    }
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
fn acknowledges_what_was_sent(numbers: &Numbers, sender: &TcpPeer, receiver: &TcpPeer) -> bool {
    if !is_relearning(receiver) {
        return !is_after(numbers.sack, receiver.end);
    }
    !has_acknowledged(sender) || !is_after(numbers.sack, later(receiver.end, sequence_limit(receiver, sender)))
}

/// Bound IV.
#[inline(always)]
fn acknowledges_recent(numbers: &Numbers, sender: &TcpPeer, receiver: &TcpPeer) -> bool {
    is_after(numbers.sack, lowest_acknowledgement(sender, receiver).wrapping_sub(1))
}

/// What the sender acknowledges lies here or behind it, or is very late.
#[inline(always)]
pub(super) fn lowest_acknowledgement(sender: &TcpPeer, receiver: &TcpPeer) -> u32 {
    receiver.end.wrapping_sub(sender.window_max.max(ACKNOWLEDGEMENT_LAG_BYTES_MIN))
}

/// Where a segment lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bounds {
    /// It is within all of them.
    Within,
    /// It misses II or IV alone: it is late, or a repetition.
    Old,
    /// It misses I alone, and by no more than the largest window that its receiver has advertised: a sender that overdoes
    /// it, or one that knows of a window of which we do not.
    SlightlyOver,
    /// It misses I by more, or III: it is not of the connection.
    Outside,
}

#[inline(always)]
fn bounds(numbers: &Numbers, sender: &TcpPeer, receiver: &TcpPeer) -> Bounds {
    let limit_is_unknown = is_relearning(sender) && !has_acknowledged(receiver);
    let is_recent = is_recent(numbers, sender, receiver) && acknowledges_recent(numbers, sender, receiver);
    if !acknowledges_what_was_sent(numbers, sender, receiver) {
        return Bounds::Outside;
    }
    if !limit_is_unknown && is_after(numbers.sequence, sequence_limit(sender, receiver)) {
        let over = numbers.end.wrapping_sub(sender.end_max).wrapping_add(1);
        return if is_recent && over <= receiver.window_max { Bounds::SlightlyOver } else { Bounds::Outside };
    }
    if is_recent { Bounds::Within } else { Bounds::Old }
}

/// Notes what an accepted segment tells of both sides.
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

/// Counts how often the very same segment has been seen in a row.
#[inline(always)]
fn note_repetition(state: &mut ProtocolState, look: &Look<'_>, numbers: &Numbers) {
    if look.kind == Kind::Ack {
        // An ACK's numbers are those that it carries.
        note_numbers(state, look.direction, look.segment, numbers.end);
    }
}

/// Counts a segment whose numbers are all those of the last one as its repetition, and remembers them.
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
