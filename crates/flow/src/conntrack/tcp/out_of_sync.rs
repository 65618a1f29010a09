//! The end points may have restarted a connection that the tracker still holds, or may hold an old one that the tracker
//! has lost. Segments that indicate this pass without effect; their answers show which state is right.

use super::automaton::{Kind, record_segment};
use super::{Advance, Arrival, Change, Next, TcpPeer, TcpState, last_flags, peer_flags, window};
use crate::Direction;

impl Arrival<'_> {
    /// Handles a SYN on a connection that has ended. RFC 9293 section 3.10.7.4 permits it to begin a new one under
    /// conditions that only the end points can check; the tracker leaves an aborted or early closed connection to them.
    pub(super) fn syn_after_the_end(self) -> Advance {
        let either = self.state.peers[0].flags | self.state.peers[1].flags;
        let after_own_reset =
            self.state.last_kind == Kind::Rst as u8 && self.state.last_direction == self.direction as u8;
        if either & peer_flags::FIN_SENT != 0 || after_own_reset {
            return Advance { verdict: Ok(()), change: Change::None, next: Next::Reopen, timeout: None };
        }
        self.ignore()
    }

    /// Passes the segment without effect, but records the numbers that its answer must match.
    pub(super) fn ignore(self) -> Advance {
        if self.acknowledges_ignored_syn() {
            return self.restart();
        }
        record_segment(self.state, self.direction, self.kind);
        self.state.last_sequence = self.segment.sequence;
        self.state.last_end = self.segment.end();
        self.state.last_window = self.segment.window;
        if self.kind == Kind::Syn {
            let syn = window::peer_of_syn(self.segment, 0);
            self.state.last_window_scale = syn.window_scale;
            self.state.last_flags = syn.flags;
            if self.from == TcpState::LastAck {
                self.state.last_flags |= last_flags::CHALLENGE_EXPECTED;
            }
        }
        if self.from == TcpState::SynSent && self.kind == Kind::Ack && self.direction == Direction::Reply {
            self.state.last_acknowledgement = self.segment.acknowledgement;
        }
        Advance::pass(Change::None, None)
    }

    fn acknowledges_ignored_syn(&self) -> bool {
        self.kind == Kind::SynAck
            && self.state.last_kind == Kind::Syn as u8
            && self.state.last_direction != self.direction as u8
            && self.segment.acknowledgement == self.state.last_end
    }

    /// Both end points agree on a connection that begins with the ignored SYN. Both sides are rebuilt from the recorded
    /// SYN and from this SYN/ACK.
    fn restart(mut self) -> Advance {
        self.state.last_flags &= !last_flags::CHALLENGE_EXPECTED;
        let syn = TcpPeer {
            end: self.state.last_end,
            end_max: self.state.last_end,
            window_max: u32::from(self.state.last_window).max(1),
            window_scale: self.state.last_window_scale,
            flags: self.state.last_flags & (peer_flags::WINDOW_SCALE | peer_flags::SACK_PERMITTED),
            ..TcpPeer::default()
        };
        self.state.peers[self.direction.reverse().index()] = syn;
        self.state.peers[self.direction.index()] = TcpPeer::default();
        self.from = TcpState::SynSent;
        self.move_if_in_window(TcpState::SynRecv)
    }

    /// An ACK in reply to a SYN in LAST_ACK may be a challenge (RFC 5961 section 4). It must not count as the
    /// acknowledgement of the last FIN.
    pub(super) fn is_challenge_in_last_ack(&self) -> bool {
        self.from == TcpState::LastAck
            && self.kind == Kind::Ack
            && self.state.last_kind == Kind::Syn as u8
            && self.state.last_direction != self.direction as u8
            && self.state.last_flags & last_flags::CHALLENGE_EXPECTED != 0
    }
}
