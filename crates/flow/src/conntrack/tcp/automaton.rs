//! The automaton of TCP as seen by a middlebox.
//!
//! ```text
//!            SYN                 SYN/ACK ◄──               ACK
//!   NONE ─────────► SYN_SENT ─────────────► SYN_RECV ─────────────► ESTABLISHED
//!                      │ SYN ◄──                ▲   │ FIN               │ FIN (either side)
//!                      ▼             SYN/ACK    │   └───────┐           │
//!                  SYN_SENT2 ───────────────────┘           ▼           ▼
//!                  (simultaneous open)                      └──► FIN_WAIT ──FIN──► LAST_ACK
//!                                                                   │ ACK         ▲    │ ACK
//!                                                                   ▼      FIN    │    ▼
//!                                                               CLOSE_WAIT ───────┘ TIME_WAIT
//!
//!   RST: any state ─► CLOSE          SYN in TIME_WAIT or CLOSE: a new connection begins (or the SYN is ignored)
//! ```
//!
//! Arrows without a mark are segments in the original direction or in either; `◄──` marks the reply direction.

use super::super::ProtocolState;
use super::TcpState;
use crate::Direction;
use crate::wire::tcp_flags::{ACK, FIN, PSH, RST, SYN, URG};

/// The kind of a segment for the automaton.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Syn = 0,
    SynAck = 1,
    Fin = 2,
    Ack = 3,
    Rst = 4,
    /// None of the flags that the automaton knows.
    None = 5,
}

impl Kind {
    #[cfg(test)]
    pub(super) const ALL: [Self; 6] = [Self::Syn, Self::SynAck, Self::Fin, Self::Ack, Self::Rst, Self::None];

    /// The kind of a segment with these flags; the flag with the greatest effect decides.
    pub(super) const fn of(flags: u8) -> Self {
        if flags & RST != 0 {
            Self::Rst
        } else if flags & SYN != 0 {
            if flags & ACK != 0 { Self::SynAck } else { Self::Syn }
        } else if flags & FIN != 0 {
            Self::Fin
        } else if flags & ACK != 0 {
            Self::Ack
        } else {
            Self::None
        }
    }
}

/// Records the kind of the last segment, to recognise the answer to it.
pub(super) const fn record_segment(state: &mut ProtocolState, direction: Direction, kind: Kind) {
    state.last_kind = kind as u8;
    state.last_direction = direction as u8;
}

/// Whether a stack may send a segment with these flags. PSH and the ECN bits (RFC 3168) are ignored.
pub(super) const fn are_valid_flags(flags: u8) -> bool {
    const SYN_ACK: u8 = SYN | ACK;
    const SYN_URG: u8 = SYN | URG;
    const FIN_ACK: u8 = FIN | ACK;
    const FIN_ACK_URG: u8 = FIN | ACK | URG;
    const ACK_URG: u8 = ACK | URG;
    const RST_ACK: u8 = RST | ACK;
    let relevant = flags & (FIN | SYN | RST | PSH | ACK | URG) & !PSH;
    matches!(relevant, SYN | SYN_URG | SYN_ACK | RST | RST_ACK | FIN_ACK | FIN_ACK_URG | ACK | ACK_URG)
}

/// The automaton's result for a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The connection enters this state.
    To(TcpState),
    /// The segment passes without effect: the end points may have newer state, and their answer will show it.
    Ignore,
    /// No compliant end point sends this.
    Invalid,
}

/// The effect of a segment of `kind` in `direction` on a connection in `state`.
pub(super) const fn step(state: TcpState, direction: Direction, kind: Kind) -> Step {
    match kind {
        Kind::None => Step::Invalid,
        _ => TABLE[state as usize][direction as usize][kind as usize],
    }
}

/// One row a state; in it original and reply direction; in each SYN, SYN/ACK, FIN, ACK, RST.
#[rustfmt::skip]
const TABLE: [[[Step; 5]; 2]; 10] = {
    const SS: Step = Step::To(TcpState::SynSent);
    const SR: Step = Step::To(TcpState::SynRecv);
    const ES: Step = Step::To(TcpState::Established);
    const FW: Step = Step::To(TcpState::FinWait);
    const CW: Step = Step::To(TcpState::CloseWait);
    const LA: Step = Step::To(TcpState::LastAck);
    const TW: Step = Step::To(TcpState::TimeWait);
    const CL: Step = Step::To(TcpState::Close);
    const S2: Step = Step::To(TcpState::SynSent2);
    const IG: Step = Step::Ignore;
    const NO: Step = Step::Invalid;
    [
        //                  original               reply
        //                  SYN S/A FIN ACK RST    SYN S/A FIN ACK RST
        /* NONE        */ [[SS, NO, NO, ES, NO],  [NO, NO, NO, NO, NO]],
        /* SYN_SENT    */ [[SS, NO, NO, NO, CL],  [S2, SR, NO, IG, CL]],
        /* SYN_RECV    */ [[IG, SR, FW, ES, CL],  [NO, IG, FW, SR, CL]],
        /* ESTABLISHED */ [[IG, NO, FW, ES, CL],  [NO, IG, FW, ES, CL]],
        /* FIN_WAIT    */ [[IG, NO, LA, CW, CL],  [NO, IG, LA, CW, CL]],
        /* CLOSE_WAIT  */ [[IG, NO, LA, CW, CL],  [NO, IG, LA, CW, CL]],
        /* LAST_ACK    */ [[IG, NO, LA, TW, CL],  [NO, IG, LA, TW, CL]],
        /* TIME_WAIT   */ [[SS, NO, TW, TW, CL],  [SS, IG, TW, TW, CL]],
        /* CLOSE       */ [[SS, NO, CL, CL, CL],  [NO, IG, CL, CL, CL]],
        /* SYN_SENT2   */ [[S2, SR, NO, NO, CL],  [S2, SR, NO, IG, CL]],
    ]
};
