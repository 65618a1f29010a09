//! A segment's disposition as seen from outside, the same of both sides.

use std::fmt;

/// What a connection's timeout was after a segment: which of the tracker's timeouts it got, and so its state. Both sides
/// are given timeouts that distinguish them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Lifetime {
    SynSent2,
    SynSent,
    SynRecv,
    FinWait,
    CloseWait,
    LastAck,
    TimeWait,
    Close,
    Unacknowledged,
    Retransmission,
    Established,
}

impl Lifetime {
    pub(crate) const ALL: [Self; 11] = [
        Self::SynSent2,
        Self::SynSent,
        Self::SynRecv,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Close,
        Self::Unacknowledged,
        Self::Retransmission,
        Self::Established,
    ];
    /// How much may have run off a timeout when it is looked at, in seconds: longer than any run of this test.
    pub(crate) const SLACK_S: u64 = 100;

    /// The timeout in seconds. In the order in which Linux's defaults lie, as far as that decides anything: ESTABLISHED
    /// alone is above those of data that is not acknowledged and of retransmissions. Linux has no way to set that of
    /// SYN_SENT2.
    pub(crate) const fn seconds(self) -> u64 {
        match self {
            Self::SynSent2 => 120,
            other => other as u64 * 1000,
        }
    }

    /// Which timeout has this left.
    pub(crate) fn of_rest(rest_s: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|lifetime| {
            let whole = lifetime.seconds();
            rest_s <= whole && rest_s + Self::SLACK_S >= whole
        })
    }
}

/// What became of the connection that a passed segment belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connection {
    /// It began with the segment.
    Began,
    /// It ended with the segment.
    Ended,
    /// It goes on.
    GoesOn {
        /// The segment went against the one that began it.
        is_reply: bool,
        /// It was answered.
        is_replied: bool,
        /// It is assured.
        is_assured: bool,
        /// Which timeout it has; `None` is one that no connection should have.
        lifetime: Option<Lifetime>,
    },
}

/// What became of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Observation {
    /// It is not of any connection that may be.
    Invalid,
    /// It passed.
    Passed(Connection),
}

impl Observation {
    pub(crate) fn is_passed(self) -> bool {
        self != Self::Invalid
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid => write!(f, "invalid"),
            Self::Passed(Connection::Began) => write!(f, "began"),
            Self::Passed(Connection::Ended) => write!(f, "ended"),
            Self::Passed(Connection::GoesOn { is_reply, is_replied, is_assured, lifetime }) => {
                let word = |is: bool, word: &'static str| if is { word } else { "" };
                match lifetime {
                    Some(lifetime) => write!(f, "{lifetime:?}")?,
                    None => write!(f, "another timeout")?,
                }
                let direction = if *is_reply { " reply" } else { " original" };
                write!(f, "{direction}{}{}", word(*is_replied, " replied"), word(*is_assured, " assured"))
            }
        }
    }
}
