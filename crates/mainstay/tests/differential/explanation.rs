//! Why the two sides may differ: each reason with the test that recognises it. The table in `docs/conformance.md` has
//! the same for people.

use flow::conntrack::{ProtocolState, TcpPeer, TcpState, peer_flags};
use flow::wire::tcp_flags::{ACK, FIN, RST, SYN};
use flow::{Direction, DropReason};

use crate::observation::{Connection, Lifetime, Observation};
use crate::pipeline::Outcome;
use crate::segment::Segment;

/// The number of a SYN in [`ProtocolState::last_kind`].
const LAST_KIND_SYN: u8 = 0;

/// A reason to differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Explanation {
    /// An option contradicts itself: the kernel takes the options up to there, Mainstay drops the segment.
    MalformedOption,
    /// A segment that was dropped, or passed without effect, showed a side for the first time or anew. The kernel takes
    /// the side for what it showed all the same, Mainstay does not.
    DroppedSegmentBelieved,
    /// A RST passed, and the connection went on. The kernel learns from it what its side has sent and offered, Mainstay
    /// learns nothing, for no acknowledgement confirms a RST.
    ResetMovedWindow,
    /// A RST without ACK, or with an acknowledgement of 0, behind a SYN. The kernel compares the acknowledgement with what
    /// it remembers of the SYN, which may be nothing, and believes the RST; Mainstay asks for a real acknowledgement.
    ResetWithoutAcknowledgement,
    /// A connection that was picked up in its middle was replaced by one that began with SYN and SYN/ACK. The kernel goes
    /// on without checking windows, Mainstay checks those of the new connection, which it knows.
    PickedUpStaysLiberal,
    /// Between a SYN that passed without effect and its answer (a SYN/ACK that agrees to it, a challenge ACK) a FIN or RST
    /// was dropped. The kernel then no longer recognises the answer, Mainstay does.
    DroppedEndRemembered,
}

impl Explanation {
    pub(crate) const ALL: [Self; 6] = [
        Self::MalformedOption,
        Self::DroppedSegmentBelieved,
        Self::ResetMovedWindow,
        Self::ResetWithoutAcknowledgement,
        Self::PickedUpStaysLiberal,
        Self::DroppedEndRemembered,
    ];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::MalformedOption => "malformed_option",
            Self::DroppedSegmentBelieved => "dropped_segment_believed",
            Self::ResetMovedWindow => "reset_moved_window",
            Self::ResetWithoutAcknowledgement => "reset_without_acknowledgement",
            Self::PickedUpStaysLiberal => "picked_up_stays_liberal",
            Self::DroppedEndRemembered => "dropped_end_remembered",
        }
    }
}

/// What happened on an exchange that may explain a difference later on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    /// See [`Explanation::DroppedSegmentBelieved`].
    has_shown_in_vain: bool,
    /// See [`Explanation::ResetMovedWindow`].
    has_passed_reset: bool,
    /// See [`Explanation::DroppedEndRemembered`].
    has_dropped_end_behind_syn: bool,
    /// See [`Explanation::PickedUpStaysLiberal`].
    was_picked_up: bool,
}

impl Past {
    /// What explains that the kernel observed something else of the segment.
    pub(crate) fn explain(&self, segment: &Segment, kernel: Observation, outcome: &Outcome) -> Option<Explanation> {
        let is_bare_reset = segment.has(RST) && (!segment.has(ACK) || segment.acknowledgement == 0);
        let is_strict = outcome.before.is_some_and(|(before, _)| !before.peers.iter().any(is_liberal));
        if kernel.is_passed() && outcome.reason == Some(DropReason::Malformed) {
            Some(Explanation::MalformedOption)
        } else if self.has_shown_in_vain {
            Some(Explanation::DroppedSegmentBelieved)
        } else if self.has_passed_reset {
            Some(Explanation::ResetMovedWindow)
        } else if self.has_dropped_end_behind_syn {
            Some(Explanation::DroppedEndRemembered)
        } else if is_bare_reset && is_close(kernel) && !is_close(outcome.observation) {
            Some(Explanation::ResetWithoutAcknowledgement)
        } else if self.was_picked_up && is_strict {
            Some(Explanation::PickedUpStaysLiberal)
        } else {
            None
        }
    }

    /// Takes note of a segment that both sides have seen.
    pub(crate) fn note(&mut self, segment: &Segment, outcome: &Outcome) {
        if outcome.observation == Observation::Passed(Connection::Began) {
            *self = Self { was_picked_up: !segment.has(SYN), ..Self::default() };
        }
        let Some((before, direction)) = &outcome.before else { return };
        let may_have_shown = matches!(
            outcome.reason,
            None | Some(DropReason::OutOfWindow | DropReason::InvalidReset | DropReason::Malformed)
        );
        let end_after = outcome.after.map(|after| after.peers[direction.index()].end);
        if may_have_shown && shows_side(segment, before, *direction) && end_after != Some(segment.end()) {
            self.has_shown_in_vain = true;
        }
        self.has_passed_reset |= segment.has(RST) && outcome.reason.is_none();
        let is_end = segment.has(FIN) || segment.has(RST);
        self.has_dropped_end_behind_syn |= outcome.reason.is_some() && is_end && before.last_kind == LAST_KIND_SYN;
    }
}

const fn is_liberal(peer: &TcpPeer) -> bool {
    peer.flags & peer_flags::LIBERAL != 0
}

fn is_close(observation: Observation) -> bool {
    matches!(observation, Observation::Passed(Connection::GoesOn { lifetime: Some(Lifetime::Close), .. }))
}

/// Whether the tracker takes the segment's sender for what the segment shows: the first one of a side, or a
/// SYN with a number above the last one's.
fn shows_side(segment: &Segment, before: &ProtocolState, direction: Direction) -> bool {
    let sender = &before.peers[direction.index()];
    let is_plain_ack = !segment.has(SYN) && !segment.has(RST) && segment.has(ACK);
    if sender.window_max == 0 {
        return !is_plain_ack;
    }
    let is_higher = sender.end.wrapping_sub(segment.end()).cast_signed() < 0;
    let may_be_new = match TcpState::from_u8(before.state) {
        Some(TcpState::SynSent) => direction == Direction::Original && !segment.has(ACK),
        Some(TcpState::SynRecv) => direction == Direction::Original && segment.has(ACK),
        _ => false,
    };
    segment.has(SYN) && is_higher && may_be_new
}
